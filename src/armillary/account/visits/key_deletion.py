"""Deletion of all items of one logical partition. It is done in portions, each of which may find another owner.

A process that is asked by another one does it for a limited time and says how far it has come: it is asked again for
the rest, so that no question takes longer than questions may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.notes import Note
from armillary.account.container import Container
from armillary.account.visits import visits
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.visits import Visit
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import documents, layout
from armillary.model.keys import Key
from armillary.model.sendable import LOCAL
from armillary.partition.budget import WRITE_DEPOSIT, Ask
from armillary.partition.operations import Operation, Outcome, Result, Verb
from armillary.partition.partition import Partition
from armillary.partition.upkeep.background_throttle import Slice
from armillary.storage.engine import View

DELETE_BY_KEY_RU = 1.0  # and what the deletes cost
_PASSING = (Kind.NOT_FOUND, Kind.RANGE_BUSY)  # another client deleted it, or it is to be tried again


@dataclass(slots=True)
class KeyDeleted:
    """What was done of it. `is_whole`: nothing is left."""

    charge_ru: float
    range_id: int
    lsn: int
    is_whole: bool


@dataclass(slots=True)
class DeleteByKey(Visit[KeyDeleted]):
    """Delete the items that are left of one logical partition."""

    epk: bytes
    key: Key
    before_ru: float = 0.0  # that the request has paid already
    ends_s: float | None = field(default=None, metadata=LOCAL)  # by the clock of the process that was asked by another
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "delete"

    def receive(self, account: Account) -> None:
        self.ends_s = account.clock.elapsed_s() + limits.VISIT_SECONDS_MAX / 2

    def notes(self, done: KeyDeleted | None) -> Sequence[Note]:
        """The request is recorded as one, with its last visit."""
        if done is not None and not done.is_whole:
            return ()
        note = Note("delete", Kind.INTERNAL, 0.0, self.key)
        if done is not None:
            note.outcome, note.charge_ru = Result.DELETED, self.before_ru + done.charge_ru
        return (note,)

    async def run(self, container: Container, partition: Partition) -> KeyDeleted:
        charge_ru = 0.0 if self.before_ru else DELETE_BY_KEY_RU
        is_whole = False
        try:
            await partition.settle()  # if nothing is found, that must be so on the node that leads
            while ids := await partition.read(lambda view: self._some_ids(view, partition.clock)):
                outcomes = await asyncio.gather(
                    *[partition.write(Operation(Verb.DELETE, self.epk, self.key, each, is_any=True)) for each in ids],
                    return_exceptions=True,
                )
                charge_ru += sum(outcome.charge_ru for outcome in outcomes if isinstance(outcome, Outcome))
                for outcome in outcomes:
                    # Another client may delete an item meanwhile; anything else is a failure.
                    if isinstance(outcome, BaseException) and getattr(outcome, "kind", None) not in _PASSING:
                        raise outcome
                await partition.released()
                is_late = self.ends_s is not None and partition.clock.elapsed_s() > self.ends_s
                if is_late or container.partition_for(self.epk) is not partition:
                    break
            else:
                is_whole = True
        except Failure as failure:
            failure.charge_ru = charge_ru
            raise
        return KeyDeleted(charge_ru, partition.range.id, partition.lsn, is_whole)

    def _some_ids(self, view: View, clock: Clock) -> list[str]:
        members = view.scan(layout.member_key(self.epk, 0), layout.prefix_end(layout.MEMBERS + self.epk))
        bound = Slice(clock)
        ids: list[str] = []
        for member, _ in islice(members, limits.BATCH_OPERATIONS_MAX):
            stored = view.get(layout.ITEMS + member[-layout.RID_BYTES :])
            if stored is not None:
                ids.append(documents.item_id(stored))
                if not bound.takes(len(stored)):
                    break
        return ids


async def delete_by_key(container: Container, key: Key, ask: Ask | None = None) -> Answer:
    """Delete every item of one logical partition; returns when none is left."""
    visit = DeleteByKey(container.effective_key(key), key)
    done = await visits.run(container, visit, ask)
    charge_ru = done.charge_ru
    while not done.is_whole:
        try:
            done = await visits.run_on(container, replace(visit, before_ru=charge_ru), ask)
        except Failure as failure:
            failure.charge_ru += charge_ru
            raise
        charge_ru += done.charge_ru
    return Answer(Result.DELETED, None, None, round(charge_ru, 2), done.range_id, done.lsn)
