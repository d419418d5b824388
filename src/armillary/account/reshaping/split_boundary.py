"""Where a partition is divided that is to be split: at the middle of what it holds, or of its range."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from armillary import limits
from armillary.account.container import Container
from armillary.errors import Failure, Kind, bad_request
from armillary.model.ranges import midpoint
from armillary.partition.partition import Partition
from armillary.partition.reshaping import split_point


class OneKey(Failure):
    """All items have one partition key, so there is no boundary."""


async def boundary_in(
    container: Container, partition: Partition, bytes_max: int, rest: Callable[[], Awaitable[None]], *, by_size: bool
) -> bytes:
    """`bytes_max`: what a partition stores. `by_size`: it has outgrown that, so the middle of the range will not do."""
    definition, key_range = container.key, partition.range
    assert definition is not None
    # A small sample does not predict the distribution of keys; hashes of many keys are even.
    is_tiny = partition.head.size_bytes < min(limits.TINY_PARTITION_BYTES, bytes_max // 8)
    if by_size or not is_tiny:
        cut = await split_point.middle(partition, definition, rest)
        if cut is not None and key_range.low < cut.boundary < key_range.high:
            return cut.boundary
        if by_size:
            raise OneKey(Kind.BAD_REQUEST, "All items have one partition key: they stay together.")
    middle = midpoint(key_range.low, key_range.high, definition.version, len(definition.paths))
    if middle is None:
        raise bad_request(f"The range {key_range.id} is too narrow to be divided.")
    return middle


def width_of(partition: Partition) -> int:
    """How much of the hash space a partition has: of two with equal sizes, the wider one will grow faster."""
    low, high = (bound[:16].ljust(16, b"\x00") for bound in (partition.range.low, partition.range.high))
    return int.from_bytes(high, "big") - int.from_bytes(low, "big")
