"""What processes ask each other about the transactions and snapshots of clients (`spanning.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.model.keys import Key
from armillary.partition.history.retryable_write_records import Record
from armillary.processes.transactions.parts import Begun, Parts, PartUsed
from armillary.processes.transactions.promises import Promises


class Transactions(Protocol):
    """Of the process that is asked."""

    parts: Parts
    promises: Promises

    async def begin(self, begun: Begun) -> None: ...
    async def decide(self, txn_id: bytes, record: Record | None, others: list[int]) -> None: ...
    async def promise(self, txn_id: bytes, record: Record | None, coordinator: int) -> bool: ...
    async def keep(self, txn_id: bytes) -> None: ...
    async def give_up(self, txn_id: bytes) -> None: ...
    def resolve(self, txn_id: bytes) -> None: ...
    def end(self, begun_id: bytes) -> None: ...
    def note_kept(self, txn_id: bytes, place: int) -> None: ...


class _Process(Protocol):
    transactions: Transactions


def transactions_of(here: LocalPlace) -> Transactions:
    return cast(_Process, here).transactions


@dataclass(slots=True)
class BeginSpanning(Question):
    """Of the first process, which holds the writers of all."""

    begun: Begun

    async def answer(self, here: LocalPlace) -> None:
        await transactions_of(here).begin(self.begun)


@dataclass(slots=True)
class BeginHere(Question):
    """With what is in this process alone, for a transaction that may need no more."""

    begun: Begun

    async def answer(self, here: LocalPlace) -> None:
        await transactions_of(here).parts.begin(here.account, [self.begun])


@dataclass(slots=True)
class UsePart(Question):
    """One logical partition that this process holds."""

    txn_id: bytes
    container: bytes  # rid
    key: Key | None
    is_own: bool  # the transaction has made the container, so that it is in no snapshot

    async def answer(self, here: LocalPlace) -> PartUsed:
        transaction = transactions_of(here).parts.transaction(self.txn_id)
        return await transaction.use(here.container(self.container), self.key, is_own=self.is_own)


@dataclass(slots=True)
class OpenPast(Question):
    """A container as it was at the moment of a snapshot."""

    snapshot_id: bytes
    container: bytes  # rid

    async def answer(self, here: LocalPlace) -> bytes | None:
        return await transactions_of(here).parts.open_past(self.snapshot_id, here.container(self.container))


@dataclass(slots=True)
class EndSpanning(Told):
    """A transaction or a snapshot is not used any more, and was not committed here."""

    begun_id: bytes

    def take(self, here: LocalPlace) -> None:
        transactions_of(here).parts.end(self.begun_id)


@dataclass(slots=True)
class CommitParts(Question):
    """Write what a transaction is to write in this process. `others` have promised what they are to write."""

    id: bytes
    txn_id: bytes
    record: Record | None
    others: list[int]

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        await transactions_of(here).decide(self.txn_id, self.record, self.others)


@dataclass(slots=True)
class PromiseParts(Question):
    """Whether there was anything to write."""

    id: bytes
    txn_id: bytes
    record: Record | None
    coordinator: int

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> bool:
        return await transactions_of(here).promise(self.txn_id, self.record, self.coordinator)


@dataclass(slots=True)
class KeepPromise(Question):
    id: bytes
    txn_id: bytes

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        await transactions_of(here).keep(self.txn_id)


@dataclass(slots=True)
class GiveUpPromise(Question):
    id: bytes
    txn_id: bytes

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        await transactions_of(here).give_up(self.txn_id)


@dataclass(slots=True)
class ResolvePromise(Question):
    """The process that commits the transaction does not know how it ended."""

    txn_id: bytes

    async def answer(self, here: LocalPlace) -> None:
        transactions_of(here).resolve(self.txn_id)


@dataclass(slots=True)
class AskDecision(Question):
    """Of the coordinator: whether a transaction is committed; None: it is not decided yet. One that is not committed by
    then will not be."""

    txn_id: bytes

    async def answer(self, here: LocalPlace) -> bool | None:
        return await transactions_of(here).promises.is_committed(self.txn_id)


@dataclass(slots=True)
class HasKept(Told):
    """To the coordinator: what this process has promised is written."""

    txn_id: bytes
    place: int

    def take(self, here: LocalPlace) -> None:
        transactions_of(here).note_kept(self.txn_id, self.place)
