"""The charge of a page, shared between the partitions that were read for it: each is entered before it is read, which
its meter may refuse, and all are charged when the page is done. Operations on single items are charged by `visits.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armillary.errors import Failure
from armillary.model.charges import apportion
from armillary.partition.budget import HUNDREDTHS, Ask
from armillary.partition.meter import NOT_COUNTED
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
        self._reserved: list[tuple[Partition, int]] = []  # partitions that are read before their turn, and the tickets
        self.paid: list[tuple[int, int]] = []  # range id and hundredths, of each partition that was charged

    @property
    def visited(self) -> list[int]:
        """The range ids of the partitions that were entered, or that paid without."""
        return list(dict.fromkeys([each.partition.range.id for each in self._entries] or [at for at, _ in self.paid]))

    def reserve(self, partition: Partition, deposit: int, *, is_optional: bool) -> int:
        """Before a partition of another process is read before its turn. Returns the ticket that it is entered with, if
        the page comes to it. `is_optional`: the page ends before the partition if that refuses."""
        ticket = partition.meter.admit(deposit, self._ask, self.epk)
        if is_optional:
            partition.meter.make_optional(ticket)
        self._reserved.append((partition, ticket))
        return ticket

    def enter(self, partition: Partition, deposit: int, cost_ru: float = 0.0, ticket: int = NOT_COUNTED) -> int:
        """Before a partition is read; it may refuse. `cost_ru`: what the page has cost so far. `ticket`: one that was
        reserved. Returns the ticket."""
        if ticket != NOT_COUNTED and (partition, ticket) in self._reserved:
            self._reserved.remove((partition, ticket))
        else:
            ticket = partition.meter.admit(deposit, self._ask, self.epk)
        self._entries.append(_Entry(partition, ticket, cost_ru))
        return ticket

    def withdraw(self) -> None:
        """The partition that was entered last was not read."""
        entry = self._entries.pop()
        entry.partition.meter.release(entry.ticket, self._ask)

    def pay(self, cost_ru: float, otherwise: Partition) -> float:
        """When the page is done. Returns the charge to answer. `otherwise` pays when no partition was entered."""
        self._leave_reserved()
        entries = self._entries
        if not entries:
            return self._pay_alone(cost_ru, otherwise)
        if len(entries) == 1:
            return self._pay_alone(cost_ru, entries[0].partition, entries[0].ticket, self._ask)
        ends_ru = [*(each.before_ru for each in entries[1:]), cost_ru]
        return self._pay_in_parts(cost_ru, [end - each.before_ru for each, end in zip(entries, ends_ru, strict=True)])

    def pay_shares(self, cost_ru: float, weights: Sequence[float], otherwise: Partition) -> float:
        """The same, where it was counted how much each partition did, in the order in which they were entered."""
        self._leave_reserved()
        return self._pay_in_parts(cost_ru, weights) if self._entries else self._pay_alone(cost_ru, otherwise)

    def _pay_alone(
        self, cost_ru: float, partition: Partition, ticket: int = NOT_COUNTED, ask: Ask | None = None
    ) -> float:
        charge_ru = partition.meter.spend(cost_ru, self.epk, ticket, ask)
        self.paid.append((partition.range.id, round(charge_ru * HUNDREDTHS)))
        return charge_ru

    def _pay_in_parts(self, cost_ru: float, weights: Sequence[float]) -> float:
        parts = apportion(round(cost_ru * HUNDREDTHS), weights)
        for entry, part in zip(self._entries, parts, strict=True):
            entry.partition.meter.spend(part / HUNDREDTHS, self.epk, entry.ticket, self._ask)
            self.paid.append((entry.partition.range.id, part))
        return sum(parts) / HUNDREDTHS

    def leave(self) -> None:
        """When the page is begun anew: nothing is charged."""
        self._leave_reserved()
        while self._entries:
            entry = self._entries.pop()
            entry.partition.meter.release(entry.ticket, self._ask)

    def _leave_reserved(self) -> None:
        """The page has not come to these partitions."""
        while self._reserved:
            partition, ticket = self._reserved.pop()
            partition.meter.release(ticket, self._ask)

    def charge(self, failure: Failure, otherwise: Partition) -> Failure:
        """When there will be no page: the first partition pays what the failure costs."""
        self._leave_reserved()
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
