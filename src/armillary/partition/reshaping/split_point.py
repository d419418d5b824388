"""Choosing the split point of a partition: the middle of its keys by bytes, so that a skewed partition is halved too,
and always between logical partitions. Hierarchical keys are split at the first level that divides well enough, so that
a prefix stays in one partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import NamedTuple

from armillary import limits
from armillary.model import layout
from armillary.model.keys import KEY_BYTES_PER_LEVEL, PartitionKeyDefinition
from armillary.model.layout import unpack_size
from armillary.partition.partition import Partition
from armillary.storage.engine import View


class Cut(NamedTuple):
    boundary: bytes
    low_bytes: int  # bytes of items below the boundary


def prefixes(epk: bytes, definition: PartitionKeyDefinition) -> list[bytes]:
    """The possible split points at a key, coarse to fine."""
    if definition.version == 1:
        return [_hash_part_v1(epk)]
    return [epk[: (level + 1) * KEY_BYTES_PER_LEVEL] for level in range(max(1, len(definition.paths)))]


def _hash_part_v1(epk: bytes) -> bytes:
    """A V1 key begins with its hash; the lowest bit of each byte says whether another follows."""
    end = 2
    while epk[end] & 1:
        end += 1
    return epk[: end + 1]


class _Search:
    """The best split points so far, one for each level of keys."""

    def __init__(self, definition: PartitionKeyDefinition, total_bytes: int, low: bytes) -> None:
        self._definition = definition
        self._half_bytes = total_bytes / 2
        self._low = low
        self._before: list[bytes] | None = None
        self._passed_bytes = 0
        self.best: list[Cut | None] = [None] * (1 if definition.version == 1 else max(1, len(definition.paths)))

    def take(self, epk: bytes, size_bytes: int) -> None:
        places = prefixes(epk, self._definition)
        if self._before is not None:
            for level, (before, place) in enumerate(zip(self._before, places, strict=True)):
                if before != place and place > self._low:
                    self._offer(level, Cut(place, self._passed_bytes))
        self._before = places
        self._passed_bytes += size_bytes

    def _offer(self, level: int, cut: Cut) -> None:
        best = self.best[level]
        if best is None or self._distance(cut) < self._distance(best):
            self.best[level] = cut

    def _distance(self, cut: Cut) -> float:
        return abs(cut.low_bytes - self._half_bytes)

    @property
    def is_over(self) -> bool:
        """All further split points are farther from the middle."""
        return self._passed_bytes > 2 * self._half_bytes * limits.BALANCED_SHARE_MAX and any(self.best)

    def result(self) -> Cut | None:
        slack_bytes = (limits.BALANCED_SHARE_MAX - 0.5) * 2 * self._half_bytes
        found = [cut for cut in self.best if cut is not None]
        return next((cut for cut in found if self._distance(cut) <= slack_bytes), found[-1] if found else None)


async def middle(
    partition: Partition, definition: PartitionKeyDefinition, rest: Callable[[], Awaitable[None]]
) -> Cut | None:
    """The best split point; None: all items have one partition key, or there are none."""
    search = _Search(definition, partition.head.size_bytes, partition.range.low)
    low = layout.SIZES
    while not search.is_over:

        def some(view: View, low: bytes = low) -> list[tuple[bytes, bytes]]:
            return list(islice(view.scan(low, layout.space_end(layout.SIZES)), limits.COPY_PORTION_ENTRIES))

        entries = await partition.read(some)
        if not entries:
            break
        for key, value in entries:
            search.take(key[1:], unpack_size(value).size_bytes)
        low = entries[-1][0] + b"\x00"
        await rest()
    return search.result()
