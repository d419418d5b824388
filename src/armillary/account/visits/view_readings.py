"""Readings of a partition's store for figures: what is read is a message, so it may be read of a partition that another
process holds. Nothing is admitted and nothing is charged. A reading takes a slice of time at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar, cast

from armillary.clock import Clock
from armillary.model.sendable import Sendable
from armillary.partition.partition import Partition
from armillary.storage.engine import View

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
