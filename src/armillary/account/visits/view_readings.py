"""Readings of a partition's store for figures: what is read is a message, so it may be read of a partition that another
process holds. Nothing is admitted and nothing is charged. A reading takes a slice of time at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar, cast

from armillary import limits
from armillary.account.visits.visits import MOVING
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model.sendable import Sendable
from armillary.partition.partition import Partition
from armillary.storage.engine import View

T = TypeVar("T")
Found = TypeVar("Found")
Found_co = TypeVar("Found_co", covariant=True)


class ViewReading(Sendable, ABC, Generic[Found_co]):
    """Subclasses are dataclasses of plain data, listed in `elsewhere/message_table.py`."""

    __slots__ = ()

    @abstractmethod
    def read(self, view: View, clock: Clock) -> Found_co:
        """Where the partition is. What is returned could be sent to another process."""


class ReadElsewhere(Protocol):
    """A stand-in for a partition that another process holds (`elsewhere/partition_elsewhere.py`)."""

    async def read_view(self, reading: ViewReading[Found]) -> Found: ...


async def read_view(partition: Partition, reading: ViewReading[Found]) -> Found:
    if partition.is_elsewhere:
        return await cast(ReadElsewhere, partition).read_view(reading)
    return await partition.read(lambda view: reading.read(view, partition.clock))


async def read_again(clock: Clock, read: Callable[[], Awaitable[T]]) -> T:
    """What `read` finds in partitions that other processes may hold. It is begun again when one of them was split,
    merged or moved, which the process that holds it knows first."""
    ends_s = clock.elapsed_s() + limits.VISIT_SECONDS_MAX
    while True:
        try:
            return await read()
        except Failure as failure:
            if MOVING not in failure.details or clock.elapsed_s() >= ends_s:
                raise
        await clock.sleep(limits.RESHAPE_POLL_SECONDS)
