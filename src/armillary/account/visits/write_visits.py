"""Visits that write: one operation, a batch of one logical partition, or many operations of one physical partition as
one transaction. The partition's writer computes the charge of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from armillary.account.captures.notes import Note, note_of, spread
from armillary.account.container import Container
from armillary.account.faults import write_name
from armillary.account.visits.patch_conditions import compiled, with_conditions
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.visits import Session, Visit, check_session
from armillary.errors import Failure, Kind, Reason
from armillary.model import charges, layout
from armillary.model.encoding import lsn_of
from armillary.partition.budget import WRITE_DEPOSIT, Ask
from armillary.partition.document_changes import CHANGE_SHARES
from armillary.partition.history.retryable_write_records import Record, Repeated
from armillary.partition.meter import Meter
from armillary.partition.operations import MemberFailed, Operation, Outcome, Result, Verb, redraft
from armillary.partition.partition import Partition
from armillary.storage.engine import View

NOT_RUN = "Not executed because another operation of the batch failed."


@dataclass(slots=True)
class BatchAnswer:
    members: list[Outcome | Failure]
    is_done: bool  # False: nothing was applied
    charge_ru: float
    range_id: int
    lsn: int


class Refused(NamedTuple):
    """An operation of a list that cannot be done."""

    place: int
    failure: Failure


@dataclass(slots=True)
class WriteItem(Visit[Answer]):
    """One operation, in a transaction of its own. With a record it is done once: asked again, the answer is
    REPEATED."""

    epk: bytes
    todo: Operation
    record: Record | None = None
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False

    def fault_name(self) -> str:
        return write_name(self.todo.verb)

    def notes(self, done: Answer | None) -> Sequence[Note]:
        return (note_of(self.todo, done.outcome if done is not None else None),)

    async def run(self, container: Container, partition: Partition) -> Answer:
        todo, record = self.todo, self.record
        if todo.draft is None or todo.draft.rules is None:
            todo = ready(container, todo)
        if record is not None:
            outcome = await _recorded(partition, todo, record)
        elif todo.condition is not None:
            outcome = await with_conditions([todo], lambda: partition.write(todo), partition.clock)
        else:
            outcome = await partition.write(todo)
        lsn = partition.head.lsn if record is None else partition.lsn  # a repeated write has not brought the head along
        place = partition.range.id, lsn, outcome.lsn
        return Answer(outcome.result, outcome.payload, outcome.etag, outcome.charge_ru, *place, outcome)

    def pay(self, done: Answer, meter: Meter, ticket: int, ask: Ask | None) -> None:
        assert done.outcome is not None
        done.charge_ru = done.outcome.charge_ru = meter.spend(done.charge_ru, self.epk, ticket, ask)


async def _recorded(partition: Partition, operation: Operation, record: Record) -> Outcome:
    try:
        [outcome] = await with_conditions(
            [operation], lambda: partition.write_all([operation], record), partition.clock
        )
    except MemberFailed as failed:
        raise failed.failure from None
    except Repeated as repeated:
        return repeated_outcome(repeated, record.statements[0])
    return outcome


async def _write_all(container: Container, partition: Partition, todo: Sequence[Operation]) -> list[Outcome]:
    """Operations in one transaction, their conditions compiled here."""
    ready = ready_all(container, todo)
    return await with_conditions(ready, lambda: partition.write_all(ready), partition.clock)


def ready(container: Container, operation: Operation, shares: int = 1) -> Operation:
    """The operation with what it needs made of what was sent: its draft, the compiled condition of its patch, or its
    compiled change. `shares`: the number of operations that share the time of the transaction."""
    if operation.draft is not None:
        if operation.draft.rules is not None:
            return operation
        return replace(operation, draft=redraft(container.schema, operation.draft, operation.directive))
    if operation.patch is not None:
        return compiled(container, operation)
    if operation.change is not None and operation.compiled is None:
        from armillary.account.collections.compiled_changes import with_change  # MongoDB alone sends statements

        return with_change(container, operation, shares)
    return operation


def ready_all(container: Container, todo: Sequence[Operation]) -> Sequence[Operation]:
    if all(each.draft is not None and each.draft.rules is not None for each in todo):
        return todo
    shares = 1 if len(todo) == 1 else CHANGE_SHARES
    return [ready(container, each, shares) for each in todo]


def repeated_outcome(repeated: Repeated, statement: int) -> Outcome:
    return Outcome(Result.REPEATED, repeated.answers.get(statement), None, 0, charges.failed_write_ru())


@dataclass(slots=True)
class WriteBatch(Visit[BatchAnswer]):
    """Operations on one logical partition in one transaction, all or none. `refused`: the first that cannot be done,
    as far as that was known before."""

    epk: bytes
    todo: Sequence[Operation]
    count: int  # of operations, those behind the first that was refused included
    session: Session | None = None
    refused: Refused | None = None
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "batch"

    def has_taken_place(self, done: BatchAnswer) -> bool:
        return done.is_done

    def notes(self, done: BatchAnswer | None) -> Sequence[Note]:
        return batch_notes(self.todo, done)

    def pay(self, done: BatchAnswer, meter: Meter, ticket: int, ask: Ask | None) -> None:
        if any(isinstance(each, Failure) and each.kind is Kind.KEY_FULL for each in done.members):
            meter.count_full(self.epk)
        Visit.pay(self, done, meter, ticket, ask)

    async def run(self, container: Container, partition: Partition) -> BatchAnswer:
        if self.session is not None:
            check_session(partition, self.session)
        try:
            if self.refused is not None:
                raise MemberFailed(*self.refused)
            outcomes = await _write_all(container, partition, self.todo)
        except MemberFailed as failed:
            answers: list[Outcome | Failure] = [
                failed.failure if index == failed.index else Failure(Kind.FAILED_DEPENDENCY, NOT_RUN)
                for index in range(self.count)
            ]
            return BatchAnswer(answers, False, max(1.0, failed.failure.charge_ru), partition.range.id, partition.lsn)
        charge_ru = sum([outcome.charge_ru for outcome in outcomes])
        return BatchAnswer([*outcomes], True, charge_ru, partition.range.id, partition.lsn)


def batch_notes(todo: Sequence[Operation], done: BatchAnswer | None) -> Sequence[Note]:
    """Of the members of a batch; together they have its charge. Members behind one that could not even be made are
    not known."""
    members = done.members if done is not None else []
    notes = []
    for place, operation in enumerate(todo):
        member = members[place] if place < len(members) else None
        note = note_of(operation, member if isinstance(member, Outcome) else None, is_alone=False, is_grouped=True)
        if isinstance(member, Failure):
            note.outcome = member.kind
        notes.append(note)
    if not notes:  # the first could not be made
        note = Note("batch", Kind.INTERNAL, 0.0, is_alone=False, is_grouped=True)
        failures = [member.kind for member in members if isinstance(member, Failure)]
        note.outcome = failures[0] if failures else Kind.INTERNAL
        notes.append(note)
    return spread(notes, done.charge_ru if done is not None else 0.0)


@dataclass(slots=True)
class Written:
    """What became of several operations; each has its own charge."""

    outcomes: list[Outcome]
    charge_ru: float = 0.0


@dataclass(slots=True)
class WriteMany(Visit[Written]):
    """Operations on logical partitions of one physical partition, in one transaction, each charged for itself. Raises
    MemberFailed naming the first that cannot be done, which is charged, and Repeated if all were done before; nothing
    is done then. `takes_gone`: the deletion of what is gone is not charged."""

    epk: bytes  # of the first
    todo: Sequence[Operation]
    record: Record | None = None
    takes_gone: bool = False
    found: Mapping[str, int | None] | None = None
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False

    async def run(self, container: Container, partition: Partition) -> Written:
        todo = ready_all(container, self.todo)
        return Written(await partition.write_all(todo, self.record, self._check if self.found is not None else None))

    def _check(self, view: View) -> None:
        """Refuse the writes if any of the items was written since. Runs in the transaction that writes them."""
        assert self.found is not None
        for item_id, lsn in self.found.items():
            if item_lsn(view, self.epk, item_id) != lsn:
                raise write_conflict()

    def notes(self, done: Written | None) -> Sequence[Note]:
        return many_notes(self.todo, done)

    def is_gone(self, failed: MemberFailed) -> bool:
        return failed.failure.kind is Kind.NOT_FOUND and self.todo[failed.index].verb is Verb.DELETE

    def refuse(self, failed: MemberFailed, meter: Meter, ticket: int, ask: Ask | None) -> None:
        if self.takes_gone and self.is_gone(failed):
            meter.release(ticket, ask)
        else:
            meter.charge(failed.failure, self.todo[failed.index].epk, ticket, ask)

    def pay(self, done: Written, meter: Meter, ticket: int, ask: Ask | None) -> None:
        done.charge_ru = pay_each(self.todo, done.outcomes, meter, ticket, ask)


@dataclass(slots=True)
class WriteBulk(Visit[Written]):
    """Independent writes of one request in one transaction, which is several times less work than one for each. They
    are admitted one by one, as they would be alone."""

    epk: bytes  # of the first
    todo: Sequence[Operation]
    asks: Sequence[Ask | None]
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False

    def notes(self, done: Written | None) -> Sequence[Note]:
        return many_notes(self.todo, done)

    async def run(self, container: Container, partition: Partition) -> Written:
        return Written(await _write_all(container, partition, self.todo))

    def pay(self, done: Written, meter: Meter, ticket: int, ask: Ask | None) -> None:
        for index, (operation, outcome, own) in enumerate(zip(self.todo, done.outcomes, self.asks, strict=True)):
            if index:  # what is done already is refused no more
                ticket = min(ticket, 0) if meter.is_enforcing else meter.admit(WRITE_DEPOSIT, own, operation.epk)
            outcome.charge_ru = meter.spend(outcome.charge_ru, operation.epk, ticket, own)


def many_notes(todo: Sequence[Operation], done: Written | None) -> Sequence[Note]:
    outcomes: Sequence[Outcome | None] = done.outcomes if done is not None else [None] * len(todo)
    return [note_of(*each, is_alone=False) for each in zip(todo, outcomes, strict=True)]


def item_lsn(view: View, epk: bytes, item_id: str) -> int | None:
    """The lsn of an item; None: there is none."""
    rid = view.get(layout.id_key(epk, item_id))
    stored = view.get(layout.ITEMS + rid) if rid is not None else None
    return lsn_of(stored) if stored is not None else None


def write_conflict() -> Failure:
    return Failure(
        Kind.RETRY_WITH,
        "Write conflict during plan execution and yielding is disabled. Please retry your operation or multi-document "
        "transaction.",
        details={"reason": Reason.WRITE_CONFLICT},
    )


def pay_each(
    operations: Sequence[Operation], outcomes: Sequence[Outcome], meter: Meter, ticket: int, ask: Ask | None
) -> float:
    """Pay for operations that were done under one ticket. Returns the sum."""
    total_ru = 0.0
    for operation, outcome in zip(operations, outcomes, strict=True):
        outcome.charge_ru = meter.spend(outcome.charge_ru, operation.epk, ticket, ask)
        total_ru += outcome.charge_ru
        ticket = min(ticket, 0)  # the deposit was one for all
    return total_ru


async def run_together(
    container: Container,
    shares: Mapping[Partition, Sequence[Operation]],
    write: Callable[[], Awaitable[Sequence[list[Outcome]]]],
    ask: Ask | None,
) -> Sequence[list[Outcome]] | None:
    """Operations of one or several partitions as one transaction, which `write` does: all of them are admitted before,
    and each is paid for by its own. None: one of the partitions is being split or merged, and nothing was done."""
    tickets: dict[Partition, int] = {}
    try:
        for partition in shares:
            tickets[partition] = partition.meter.admit(WRITE_DEPOSIT, ask)
        found = await write()
    except Failure as failure:
        first = next(iter(shares))
        ticket = tickets.pop(first, None) if failure.kind is not Kind.RANGE_BUSY and not failure.is_metered else None
        _release(tickets, ask)
        if failure.kind is Kind.RANGE_BUSY:
            return None
        if ticket is not None:
            first.meter.charge(failure, shares[first][0].epk, ticket, ask)
        if container.recording is not None and failure.is_metered:
            container.recording.fail(many_notes(shares[first][:1], None), (first.range.id,), failure)
        raise failure from None
    except BaseException:
        _release(tickets, ask)
        raise
    for (partition, operations), outcomes in zip(shares.items(), found, strict=True):
        pay_each(operations, outcomes, partition.meter, tickets[partition], ask)
        if container.recording is not None:
            container.recording.add(many_notes(operations, Written(outcomes)), (partition.range.id,))
    return found


def _release(tickets: Mapping[Partition, int], ask: Ask | None) -> None:
    for partition, ticket in tickets.items():
        partition.meter.release(ticket, ask)
