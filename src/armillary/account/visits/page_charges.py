"""The charge of a page, shared between the partitions that were read for it: each is entered before it is read, which
its meter may refuse, and all are charged when the page is done. Operations on single items are charged by `visits.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armillary.errors import Failure
from armillary.model.charges import apportion
from armillary.partition.budget import HUNDREDTHS, Ask
from armillary.partition.partition import Partition


class _Entry(NamedTuple):
    partition: Partition
    ticket: int
    before_ru: float  # what the page had cost when the partition was entered


class Bill:
    def __init__(self, ask: Ask | None, epk: bytes | None) -> None:
        self._ask = ask
        self.epk = epk  # of the one logical partition that the page is about, if it is about one
        self._entries: list[_Entry] = []

    def enter(self, partition: Partition, deposit: int, cost_ru: float = 0.0) -> None:
        """Before a partition is read; it may refuse. `cost_ru`: what the page has cost so far."""
        self._entries.append(_Entry(partition, partition.meter.admit(deposit, self._ask), cost_ru))

    def pay(self, cost_ru: float, otherwise: Partition) -> float:
        """When the page is done. Returns the charge to answer. `otherwise` pays when no partition was entered."""
        entries = self._entries
        if not entries:
            return otherwise.meter.spend(cost_ru, self.epk)
        if len(entries) == 1:
            return entries[0].partition.meter.spend(cost_ru, self.epk, entries[0].ticket, self._ask)
        ends_ru = [*(each.before_ru for each in entries[1:]), cost_ru]
        return self._pay_in_parts(cost_ru, [end - each.before_ru for each, end in zip(entries, ends_ru, strict=True)])

    def pay_shares(self, cost_ru: float, weights: Sequence[float], otherwise: Partition) -> float:
        """The same, where it was counted how much each partition did, in the order in which they were entered."""
        return self._pay_in_parts(cost_ru, weights) if self._entries else otherwise.meter.spend(cost_ru, self.epk)

    def _pay_in_parts(self, cost_ru: float, weights: Sequence[float]) -> float:
        parts = apportion(round(cost_ru * HUNDREDTHS), weights)
        for entry, part in zip(self._entries, parts, strict=True):
            entry.partition.meter.spend(part / HUNDREDTHS, self.epk, entry.ticket, self._ask)
        return sum(parts) / HUNDREDTHS

    def charge(self, failure: Failure, otherwise: Partition) -> Failure:
        """When there will be no page: the first partition pays what the failure costs."""
        if failure.is_metered:
            for entry in self._entries:
                entry.partition.meter.release(entry.ticket, self._ask)
            return failure
        if not self._entries:
            return otherwise.meter.charge(failure, self.epk)
        first, *others = self._entries
        for entry in others:
            entry.partition.meter.release(entry.ticket, self._ask)
        return first.partition.meter.charge(failure, self.epk, first.ticket, self._ask)
