"""Operations on documents of the MongoDB API: insert, find by shard key and `_id`, change, delete; one by one, or many
in few transactions. Documents are items and take the same request path. What differs is here: they are BSON, and a
change is computed inside the transaction that writes it, from the document that is stored at that moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from armillary import limits
from armillary.account.collections.write_pipeline import Ahead, RecordOf, portion
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.visits import visits
from armillary.account.visits.read_visits import (
    Answer,
    FindItem,
    ReadItem,
    is_refusing,
    read_at_hand,
    read_document_at_hand,
)
from armillary.account.visits.uncounted_visits import FindRecords, at_all
from armillary.account.visits.write_visits import WriteMany, repeated_outcome
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_values import Document
from armillary.model.keys import Key
from armillary.partition.budget import Ask
from armillary.partition.document_changes import Changed as Changed
from armillary.partition.document_changes import ChangeStatement as ChangeStatement
from armillary.partition.document_changes import CompiledChange as CompiledChange
from armillary.partition.document_changes import Decided
from armillary.partition.document_changes import Returning as Returning
from armillary.partition.history.retryable_write_records import Record, Repeated
from armillary.partition.operations import MemberFailed, Operation, Outcome, Result, Verb, bson_draft

DocumentWrite: TypeAlias = Operation  # made by `inserting`, `replacing`, `changing` and `deleting`
WriteOutcome: TypeAlias = Outcome
RetryRecord: TypeAlias = Record  # makes a write retryable: stored with it, and found when it is sent again


def retry_record(
    session_id: bytes, number: int, statements: tuple[int, ...], answers: tuple[bytes, ...] | None
) -> RetryRecord:
    """The record of a retryable write. `answers`: what is to be answered if a statement is sent again; None: what the
    statement returns, or the counts of documents that it changes."""
    return Record(session_id, number, statements, answers)


def was_repeated(done: WriteOutcome | Answer) -> bool:
    """Whether a retryable write had been done before: its payload is then the answer that was recorded."""
    return done.result is Result.REPEATED


def has_deleted(done: WriteOutcome | Answer) -> bool:
    return done.result is Result.DELETED


def document_of(operation: DocumentWrite) -> Document:
    """The document that an insert or a replacement stores."""
    assert operation.draft is not None
    return operation.draft.document


# One document.


@dataclass(slots=True)
class Found:
    document: bytes | None  # BSON; None: there is none
    charge_ru: float
    lsn: int


async def find(container: Container, key: Key, id_value: Any, ask: Ask | None = None, read_factor: int = 1) -> Found:
    """The document with this `_id` and this shard key: a point read."""
    visit = ReadItem(container.effective_key(key), id_text(id_value), read_factor, is_bson=True, key=key)
    answer = await visits.run(container, visit, ask)
    return Found(answer.payload, answer.charge_ru, answer.lsn)


async def peek(container: Container, key: Key, id_value: Any) -> bytes | None:
    """The document's BSON, for a write that looks at it and is charged for what it does. Nothing is counted."""
    visit = ReadItem(container.effective_key(key), id_text(id_value), is_bson=True)
    return (await visits.run_uncounted(container, visit)).payload


def find_at_hand(container: Container, given: Document) -> tuple[bytes | None, float] | None:
    """The document with this `_id` and this shard key, if there is one, and the charge: `find` without waiting and
    without refusals. None: ask `find`; nothing is counted then."""
    id_value = given["_id"]
    if not container.is_observed:
        return read_document_at_hand(container, _effective_key(container, given), id_text(id_value))
    key = container.key_of_bson(given)
    epk = container.effective_key(key)
    if is_refusing(container, epk):
        return None
    answer = read_at_hand(container, ReadItem(epk, id_text(id_value), is_bson=True, key=key))
    return (answer.payload, answer.charge_ru) if answer is not None else None


def _effective_key(container: Container, given: Document) -> bytes:
    """Where a document with this `_id` and shard key lies. Short texts at the one field of a key are remembered."""
    definition = container.key
    if definition is not None and len(given) == 2 and len(definition.paths) == 1:
        first, second = given.items()
        value = first[1] if second[0] == "_id" else second[1]
        if type(value) is str and len(value) <= limits.EPK_REMEMBERED_BYTES_MAX:
            known = container.epks_of_texts.get(value)
            if known is None:
                known = container.effective_key(container.key_of_bson(given))
                if len(container.epks_of_texts) >= limits.EPKS_REMEMBERED_MAX:
                    container.epks_of_texts.clear()
                container.epks_of_texts[value] = known
            return known
    return container.effective_key(container.key_of_bson(given))


async def number_of(container: Container, key: Key, id_value: Any) -> int | None:
    """The number that a document is stored under; None: there is none."""
    visit = FindItem(container.effective_key(key), item_id=id_text(id_value))
    return (await visits.run_uncounted(container, visit)).number


def inserting(container: Container, document: Document, encoded: bytes, clock: Clock) -> Operation:
    """The operation that stores a new document, which has an `_id`. `encoded` is its BSON as it came."""
    made = bson_draft(container.schema, document, encoded, int(clock.now_s()))
    key = container.key_of_bson(document)
    return Operation(Verb.CREATE, container.effective_key(key), key, made.item_id, draft=made)


def replacing(container: Container, document: Document, encoded: bytes, clock: Clock, *, upserts: bool) -> Operation:
    """The operation that stores a document in place of the one with its key and `_id`."""
    operation = inserting(container, document, encoded, clock)
    operation.verb = Verb.UPSERT if upserts else Verb.REPLACE
    return operation


def changing(
    container: Container, key: Key, id_value: Any, statement: ChangeStatement, compiled: CompiledChange | None = None
) -> Operation:
    """The operation that makes another document of one, if it still matches; it must keep `_id` and shard key.
    `compiled`: what the statement means, if the caller knows. It may run more than once."""
    epk, item_id = container.effective_key(key), id_text(id_value)
    return Operation(Verb.CHANGE, epk, key, item_id, change=statement, compiled=compiled)


def deleting(
    container: Container, key: Key, id_value: Any, statement: ChangeStatement, compiled: CompiledChange | None = None
) -> Operation:
    """The operation that deletes a document if it still matches."""
    epk, item_id = container.effective_key(key), id_text(id_value)
    return Operation(Verb.DELETE, epk, key, item_id, change=statement, compiled=compiled)


async def decide_ahead(
    container: Container, operation: DocumentWrite, id_value: Any, decide: Callable[[bytes], Awaitable[Changed]]
) -> int:
    """Compute what the operation's statement makes of the document as it is now: for statements that take longer than
    a transaction may. Returns the bytes of memory that are kept for it."""
    encoded = await peek(container, operation.key, id_value)
    if encoded is None:
        return 0
    try:
        operation.decided = Decided(encoded, await decide(encoded))
    except Failure as failure:
        operation.decided = Decided(encoded, failure)
    return 10 * len(encoded)


async def write(
    container: Container, operation: Operation, ask: Ask | None = None, record: Record | None = None
) -> Answer:
    """Do it; what was there before is in the answer's `outcome`. NOT_FOUND if it is about nothing, CONFLICT if the id
    or a unique value is taken. With a record it is done once: REPEATED, with what was recorded, if it was before."""
    return await items.write(container, operation, ask, record)


async def recorded(container: Container, session: bytes, number: int) -> dict[int, bytes]:
    """What was answered to statements of a retryable write, in any partition."""
    answers: dict[int, bytes] = {}
    partitions = container.partitions.values()
    if any(partition.is_elsewhere for partition in partitions):
        for found in await at_all(container, FindRecords(session, number)):
            answers |= found.answers
    else:
        for partition in partitions:
            answers |= partition.records.find(session, number)
    return answers


async def last_number(container: Container, session: bytes) -> int:
    """The last number of a session that is known of; -1: none."""
    partitions = container.partitions.values()
    if any(partition.is_elsewhere for partition in partitions):
        return max([found.last_number for found in await at_all(container, FindRecords(session))], default=-1)
    return max([partition.records.last_number(session) for partition in partitions], default=-1)


# Many.


@dataclass(slots=True)
class ManyAnswer:
    outcomes: list[Outcome | Failure] = field(default_factory=list)  # for each operation, as far as they were run
    charge_ru: float = 0.0
    has_failed: bool = False

    def add(self, outcomes: list[Outcome]) -> None:
        self.outcomes += outcomes
        self.charge_ru += sum([each.charge_ru for each in outcomes])


async def write_many(
    container: Container,
    operations: Sequence[Operation],
    *,
    stops: bool,
    at_once: bool = False,
    is_mixed: bool = False,
    ask: Ask | None = None,
    record_of: RecordOf | None = None,
) -> ManyAnswer:
    """Independent operations in the order given, many in one transaction: each succeeds or fails for itself, and the
    first to fail is the last to run if it `stops`. Throttling and whatever ends all raises only if nothing was done;
    otherwise it is the outcome of those that were not. `record_of` numbers operations, named by their places: each is
    then done once, and REPEATED if it was before. `at_once`: several transactions may be under way at a time, and if
    it `stops` and `is_mixed` one may be about several partitions."""
    answer = ManyAnswer()
    if not at_once or container.faults is not None or len(operations) <= 1:
        await _write_in_turn(container, operations, answer, len(operations), stops, ask, record_of)
        return answer
    is_mixed = is_mixed and stops
    ahead = Ahead(container, operations, ask, record_of, is_chained=stops, is_mixed=is_mixed)
    if record_of is not None and is_mixed:
        record_of = _scattered(record_of)
    try:
        while len(answer.outcomes) < len(operations) and not (stops and answer.has_failed):
            end, outcomes = await ahead.take()
            try:
                if isinstance(outcomes, Failure):
                    raise outcomes
                if outcomes is None:
                    await _write_in_turn(container, operations, answer, end, stops, ask, record_of)
                else:
                    answer.add(outcomes)
            except Failure as failure:
                if not answer.outcomes and not await ahead.has_done():
                    raise
                answer.charge_ru += failure.charge_ru
                answer.outcomes += [failure] * (1 if stops else end - len(answer.outcomes))
                answer.has_failed = True
    finally:
        await ahead.end()
    return answer


def _scattered(record_of: RecordOf) -> RecordOf:
    """Records for operations that are written one by one: an earlier attempt of the same request may have written them
    in one transaction with others."""
    return lambda places: replace(record_of(places), is_scattered=True)


async def _write_in_turn(
    container: Container,
    operations: Sequence[Operation],
    answer: ManyAnswer,
    end: int,
    stops: bool,
    ask: Ask | None,
    record_of: RecordOf | None,
) -> None:
    """One transaction after the other, from the first that has no answer yet up to `end`."""
    while (at := len(answer.outcomes)) < end:
        try:
            if container.faults is not None:
                record = record_of(range(at, at + 1)) if record_of is not None else None
                done, failure = await _write_one(container, operations[at], ask, record)
            else:
                batch = portion(container, operations, at, end)
                done, failure = await _write_portion(container, batch, ask, at, record_of)
        except Failure as failed:
            if not answer.outcomes:
                raise
            done, failure = [], failed
        answer.add(done)
        if failure is not None:
            answer.outcomes.append(failure)
            answer.charge_ru += failure.charge_ru
            answer.has_failed = True
            if stops:
                break


async def _write_portion(
    container: Container, batch: Sequence[Operation], ask: Ask | None, at: int, record_of: RecordOf | None
) -> tuple[list[Outcome], Failure | None]:
    """Those that were done, and why the next one was not."""
    failure: Failure | None = None
    while batch:
        owned = portion(container, batch, 0, len(batch))
        if len(owned) < len(batch):  # a partition was split while one was waited for
            batch, failure = owned, None
        partition = container.partition_for(batch[0].epk)
        record = record_of(range(at, at + len(batch))) if record_of is not None else None
        try:
            done = await visits.run_at(container, partition, WriteMany(batch[0].epk, batch, record), ask)
        except Repeated as repeated:
            assert record is not None
            # Perhaps not all of them were: what is not known is done one by one.
            known = [each for each in record.statements if each in repeated.answers]
            if len(known) < len(batch):
                batch = batch[: max(1, len(known))]
                continue
            return [repeated_outcome(repeated, each) for each in known], failure
        except MemberFailed as failed:
            # Nothing was done. Those before it can be.
            failure = failed.failure
            batch = batch[: failed.index]
            continue
        if done is not None:
            return done.outcomes, failure
        await partition.released()  # the keys may have several owners then
    return [], failure


async def _write_one(
    container: Container, operation: Operation, ask: Ask | None, record: Record | None
) -> tuple[list[Outcome], Failure | None]:
    """Where rules of faults look at every write."""
    try:
        answer = await items.write(container, operation, ask, record)
    except Failure as failure:
        return [], failure
    assert answer.outcome is not None
    return [answer.outcome], None
