"""Metering of pages that another process gathers: a partition is entered with the first of its slices, which its meter
may refuse, and keeps the ticket until the page is paid for. Tickets of pages that are never paid for, because their
process died, are given back after a time. What a slice needs between its reads is kept with the ticket.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.partition.budget import Ask
from armillary.partition.partition import Partition


@dataclass(slots=True)
class Entry:
    """A page's entry into a partition, as it is sent."""

    id: bytes
    deposit: int
    ask: Ask | None = None
    epk: bytes | None = None  # the one logical partition that the page is about
    is_optional: bool = False  # the page ends before the partition if it refuses


class HeldEntry:
    """The same at the place that holds the partition."""

    __slots__ = ("answer", "entry", "lock", "partition", "reader", "ticket", "turn", "used_s")

    def __init__(self, entry: Entry, partition: Partition, ticket: int, used_s: float) -> None:
        self.entry = entry
        self.partition = partition
        self.ticket = ticket
        self.used_s = used_s
        self.lock = asyncio.Lock()  # a question that comes twice waits for the first
        self.reader: Any = None  # of the slice
        self.turn = -1  # of the last answer, which is given again when the question comes twice
        self.answer: Any = None


class Entries:
    """Of all pages of other processes that have entered partitions here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: OrderedDict[bytes, HeldEntry] = OrderedDict()  # the one that was used last is the last
        self._over: OrderedDict[bytes, None] = OrderedDict()  # that were paid for or left

    def __len__(self) -> int:
        return len(self._held)

    def find(self, entry: Entry) -> HeldEntry | None:
        self._release_old()
        if entry.id in self._over:
            raise Failure(Kind.UNAVAILABLE, "The page that this is part of is over.")
        held = self._held.get(entry.id)
        if held is not None:
            held.used_s = self._clock.elapsed_s()
            self._held.move_to_end(entry.id)
        return held

    def enter(self, entry: Entry, partition: Partition) -> HeldEntry | None:
        """Enter a partition, whose meter may refuse. None: it would, and the page can do without."""
        meter = partition.meter
        if entry.is_optional and meter.is_closed(entry.ask):
            return None
        if len(self._held) >= limits.PAGE_ENTRIES_MAX:
            raise Failure(
                Kind.UNAVAILABLE,
                "Too many pages are being read from this process at once. Try again.",
                retry_after_ms=limits.CLUSTER_RETRY_MS,
            )
        ticket = meter.admit(entry.deposit, entry.ask, entry.epk)
        held = self._held[entry.id] = HeldEntry(entry, partition, ticket, self._clock.elapsed_s())
        return held

    def end(self, entry_id: bytes) -> HeldEntry | None:
        """The page is over; None: it has not entered here."""
        self._over[entry_id] = None
        if len(self._over) > limits.PAGE_ENTRIES_MAX:
            self._over.popitem(last=False)
        return self._held.pop(entry_id, None)

    def leave(self, entry_id: bytes) -> None:
        """The page is over, and the partition is not charged."""
        held = self.end(entry_id)
        if held is not None:
            held.partition.meter.release(held.ticket, held.entry.ask)

    def leave_partition(self, partition: Partition) -> None:
        """Another process holds it: pages that read it are asked again there."""
        for entry_id in [each for each, held in self._held.items() if held.partition is partition]:
            del self._held[entry_id]

    def _release_old(self) -> None:
        end_s = self._clock.elapsed_s() - limits.PAGE_ENTRY_SECONDS
        while self._held:
            entry_id, oldest = next(iter(self._held.items()))
            if oldest.used_s > end_s:
                return
            self.leave(entry_id)
