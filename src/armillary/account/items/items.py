"""What can be done to items: create, read, replace, upsert, patch, delete, batch, delete by key.

Each function finds the partition that a key belongs to, checks what must be checked before it is asked, and returns
what the partition answered together with where that was (range and lsn), which session tokens are made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from armillary import limits
from armillary.account.container import Container
from armillary.account.items.patch_conditions import PatchCondition, with_conditions
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.sql.compiling.compile import compile_filter
from armillary.model import charges, documents, items, layout, resources
from armillary.model.encoding import FORMAT_JSON, lsn_of, payload_of, unpack_header
from armillary.model.keys import KEY_DIFFERS, KEY_MISSING, NO_KEY, Key
from armillary.model.patch import Patch
from armillary.partition.budget import READ_DEPOSIT, WRITE_DEPOSIT, Ask
from armillary.partition.history.answered_writes import Record, Repeated
from armillary.partition.operations import Document, MemberFailed, Operation, Outcome, Result, Verb, draft
from armillary.partition.partition import Partition
from armillary.partition.upkeep.time_slices import Slice
from armillary.storage.engine import View

Session = Mapping[int, int]  # range id -> lsn


@dataclass(slots=True)
class ItemOptions:
    """What a request says beside the item itself."""

    key: Key | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    session: Session | None = None
    read_factor: int = 1  # 2 at strong and bounded staleness
    directive: str = "Default"
    ask: Ask | None = None


@dataclass(slots=True)
class Answer:
    result: Result
    payload: bytes | None
    etag: str | None
    charge_ru: float
    range_id: int
    lsn: int  # of the partition, after the operation
    item_lsn: int = 0
    outcome: Outcome | None = None  # of a write: what it took


Answering: TypeAlias = Coroutine[Any, Any, Answer]

_NO_OPTIONS = ItemOptions()
DELETE_BY_KEY_RU = 1.0  # and what the deletes cost
NOT_RUN = "Not executed because another operation of the batch failed."
_PASSING = (Kind.NOT_FOUND, Kind.RANGE_BUSY)  # deleted by somebody else, or to be tried again


async def read(container: Container, item_id: str, options: ItemOptions) -> Answer:
    key = options.key
    if key is None:
        raise bad_request(KEY_MISSING)
    epk = container.effective_key(key)
    if container.faults is not None:
        await container.faults.at_key("read", container, epk)
    partition = container.partition_for(epk)
    ask = options.ask
    ticket = partition.admit(READ_DEPOSIT, ask)
    factor = options.read_factor
    try:
        if options.session is not None:
            check_session(partition, options.session)
        stored = await partition.read_item(epk, item_id)
        if partition.is_moved:  # while storage was waited for: its children know better
            partition.meter.release(ticket, ask)
            return await read(container, item_id, options)
        if stored is None:
            raise Failure(
                Kind.NOT_FOUND,
                "Entity with the specified id does not exist in the system: "
                f"no item with id '{item_id}' in this logical partition.",
                charge_ru=charges.failed_read_ru(factor),
            )
    except Failure as failure:
        raise _at(partition, partition.meter.charge(failure, epk, ticket, ask)) from None
    payload = payload_of(stored) if stored[0] == FORMAT_JSON else documents.json_text(stored, container.schema)
    etag = items.etag_in(payload)
    place = (partition.range.id, partition.head.lsn, lsn_of(stored))
    if options.if_none_match is not None and options.if_none_match in ("*", etag):
        charge_ru = partition.spend(charges.failed_read_ru(factor), epk, ticket, ask)
        return Answer(Result.NOT_MODIFIED, None, etag, charge_ru, *place)
    charge_ru = partition.spend(charges.read_ru(len(payload), factor), epk, ticket, ask)
    return Answer(Result.READ, payload, etag, charge_ru, *place)


def create(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    return write(container, _stored(Verb.CREATE, container, document, options, clock), options.ask)


def upsert(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    return write(container, _stored(Verb.UPSERT, container, document, options, clock), options.ask)


async def merge(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answer:
    """Put the properties of the body over those of the item. Without If-Match it is made if it does not exist."""
    return await write(container, _stored(Verb.MERGE, container, document, options, clock), options.ask)


def replace(container: Container, item_id: str, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    """Another id in the body renames the item, as the service does."""
    return write(container, _stored(Verb.REPLACE, container, document, options, clock, item_id), options.ask)


async def patch(container: Container, item_id: str, changes: Patch, options: ItemOptions) -> Answer:
    operation = _keyed(Verb.PATCH, container, item_id, options)
    operation.patch = changes
    operation.condition = _condition(container, changes)
    return await write(container, operation, options.ask)


async def delete(container: Container, item_id: str, options: ItemOptions) -> Answer:
    return await write(container, _keyed(Verb.DELETE, container, item_id, options), options.ask)


async def delete_by_key(container: Container, key: Key, ask: Ask | None = None) -> Answer:
    """Delete every item of one logical partition; returns when none is left."""
    epk = container.effective_key(key)
    lost = await container.faults.at_key("delete", container, epk) if container.faults is not None else None
    partition = container.partition_for(epk)

    def some_ids(view: View) -> list[str]:
        members = view.scan(layout.member_key(epk, 0), layout.prefix_end(layout.MEMBERS + epk))
        bound = Slice(partition.clock)
        ids: list[str] = []
        for member, _ in islice(members, limits.BATCH_OPERATIONS_MAX):
            stored = view.get(layout.ITEMS + member[-layout.RID_BYTES :])
            if stored is not None:
                ids.append(documents.item_id(stored))
                if not bound.takes(len(stored)):
                    break
        return ids

    ticket = partition.admit(WRITE_DEPOSIT, ask)
    charge_ru = DELETE_BY_KEY_RU
    owner = partition
    try:
        while ids := await owner.read(some_ids):
            outcomes = await asyncio.gather(
                *[owner.write(Operation(Verb.DELETE, epk, key, item_id, is_any=True)) for item_id in ids],
                return_exceptions=True,
            )
            charge_ru += sum(outcome.charge_ru for outcome in outcomes if isinstance(outcome, Outcome))
            for outcome in outcomes:
                # Somebody else may delete an item meanwhile; anything else is a failure.
                if isinstance(outcome, BaseException) and getattr(outcome, "kind", None) not in _PASSING:
                    raise outcome
            await owner.released()
            owner = container.partition_for(epk)
    except Failure as failure:
        failure.charge_ru = charge_ru
        raise _at(partition, partition.meter.charge(failure, epk, ticket, ask)) from None
    charge_ru = partition.spend(charge_ru, epk, ticket, ask)
    if lost is not None:
        raise lost
    return Answer(Result.DELETED, None, None, charge_ru, owner.range.id, owner.lsn)


# Batches.


@dataclass(slots=True)
class Member:
    """One operation of a batch or of a bulk request."""

    verb: Verb
    item_id: str | None = None
    document: Document | None = None
    patch: Patch | None = None
    options: ItemOptions | None = None


@dataclass(slots=True)
class BatchAnswer:
    members: list[Outcome | Failure]
    is_done: bool  # False: nothing was applied
    charge_ru: float
    range_id: int
    lsn: int


async def batch(
    container: Container, key: Key, members: Sequence[Member], options: ItemOptions, clock: Clock
) -> BatchAnswer:
    """All members in one transaction on one logical partition, or none."""
    epk = container.effective_key(key)
    lost = await container.faults.at_key("batch", container, epk) if container.faults is not None else None
    while True:
        partition = container.partition_for(epk)
        try:
            answer = await _batch(container, partition, epk, key, members, options, clock)
            break
        except Failure as failure:
            if failure.kind is not Kind.RANGE_BUSY:
                raise
        await partition.released()  # and on to whoever owns the key then
    if lost is not None and answer.is_done:
        raise lost
    return answer


async def _batch(
    container: Container,
    partition: Partition,
    epk: bytes,
    key: Key,
    members: Sequence[Member],
    options: ItemOptions,
    clock: Clock,
) -> BatchAnswer:
    ticket = partition.admit(WRITE_DEPOSIT, options.ask)
    operations: list[Operation] = []
    try:
        if options.session is not None:
            check_session(partition, options.session)
        for index, member in enumerate(members):
            try:
                operation = operation_of(container, member, key, clock)
                if operation.epk != epk:
                    raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS)
                operations.append(operation)
            except Failure as failure:
                raise MemberFailed(index, failure) from failure
        outcomes = await with_conditions(operations, lambda: partition.write_all(operations), clock)
    except MemberFailed as failed:
        answers: list[Outcome | Failure] = [
            failed.failure if index == failed.index else Failure(Kind.FAILED_DEPENDENCY, NOT_RUN)
            for index in range(len(members))
        ]
        charge_ru = partition.spend(max(1.0, failed.failure.charge_ru), epk, ticket, options.ask)
        return BatchAnswer(answers, False, charge_ru, partition.range.id, partition.lsn)
    except Failure as failure:
        if failure.kind is Kind.RANGE_BUSY:
            partition.meter.release(ticket, options.ask)
            raise
        raise _at(partition, partition.meter.charge(failure, epk, ticket, options.ask)) from None
    charge_ru = partition.spend(sum(outcome.charge_ru for outcome in outcomes), epk, ticket, options.ask)
    return BatchAnswer([*outcomes], True, charge_ru, partition.range.id, partition.lsn)


# Inside.


def operation_of(container: Container, member: Member, key: Key, clock: Clock) -> Operation:
    """What a member asks for, checked as far as that needs no transaction."""
    options = member.options or _NO_OPTIONS
    keyed = ItemOptions(key, options.if_match, options.if_none_match, directive=options.directive)
    if member.verb in (Verb.CREATE, Verb.UPSERT, Verb.REPLACE, Verb.MERGE):
        assert member.document is not None
        item_id = member.item_id if member.verb is Verb.REPLACE else None
        return _stored(member.verb, container, member.document, keyed, clock, item_id, is_alone=False)
    assert member.item_id is not None
    operation = _keyed(member.verb, container, member.item_id, keyed)
    if member.patch is not None:
        operation.patch = member.patch
        operation.condition = _condition(container, member.patch)
    return operation


def _stored(
    verb: Verb,
    container: Container,
    document: Document,
    options: ItemOptions,
    clock: Clock,
    item_id: str | None = None,
    *,
    is_alone: bool = True,
) -> Operation:
    """An operation that brings a whole item. `item_id`: of the item to replace, if that is not the body's."""
    made = draft(container.schema, document, int(clock.now_s()), options.directive)
    key = container.key_of(document)
    epk = container.effective_key(key)
    if options.key is not None and options.key != key:
        is_former = is_alone and container.is_former_key(options.key, document)
        if not is_former and container.effective_key(options.key) != epk:
            raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS)
    return Operation(
        verb,
        epk,
        key,
        item_id if item_id is not None else made.item_id,
        draft=made,
        if_match=options.if_match,
        if_none_match=options.if_none_match,
        directive=options.directive,
    )


def _keyed(verb: Verb, container: Container, item_id: str, options: ItemOptions) -> Operation:
    """An operation on an item that is addressed by key and id."""
    if options.key is None:
        if container.key is not None:
            raise bad_request(KEY_MISSING)
        options.key = NO_KEY
    epk = container.effective_key(options.key)
    return Operation(
        verb,
        epk,
        options.key,
        item_id,
        if_match=options.if_match,
        if_none_match=options.if_none_match,
        directive=options.directive,
    )


async def write(container: Container, operation: Operation, ask: Ask | None, record: Record | None = None) -> Answer:
    """Admit an operation, let whoever owns the key do it, and pay for it. With a record it is done once: asked again,
    the answer is REPEATED."""
    faults = container.faults
    lost = await faults.at_write(container, operation) if faults is not None else None
    while True:
        partition = container.partition_for(operation.epk)
        try:
            outcome = await _metered(partition, operation, ask, record)
            break
        except Failure as failure:
            if failure.kind is not Kind.RANGE_BUSY:
                raise _at(partition, failure) from None
        await partition.released()  # and on to whoever owns the key then
    if lost is not None:
        raise lost
    return Answer(
        outcome.result,
        outcome.payload,
        outcome.etag,
        outcome.charge_ru,
        partition.range.id,
        partition.head.lsn,
        outcome.lsn,
        outcome,
    )


async def _metered(
    partition: Partition, operation: Operation, ask: Ask | None, record: Record | None = None
) -> Outcome:
    """A write that is admitted before, and paid for after, whatever comes of it."""
    ticket = partition.admit(WRITE_DEPOSIT, ask)
    try:
        if record is None and operation.condition is None:
            outcome = await partition.write(operation)
        elif record is None:
            outcome = await with_conditions([operation], lambda: partition.write(operation))
        else:
            outcome = await _recorded(partition, operation, record)
    except Failure as failure:
        if failure.kind is Kind.RANGE_BUSY:  # nothing was done, and somebody else may be asked
            partition.meter.release(ticket, ask)
            raise
        raise partition.meter.charge(failure, operation.epk, ticket, ask) from None
    outcome.charge_ru = partition.spend(outcome.charge_ru, operation.epk, ticket, ask)
    return outcome


async def _recorded(partition: Partition, operation: Operation, record: Record) -> Outcome:
    try:
        [outcome] = await with_conditions([operation], lambda: partition.write_all([operation], record))
    except MemberFailed as failed:
        raise failed.failure from None
    except Repeated as repeated:
        return repeated_outcome(repeated, record.statements[0])
    return outcome


def repeated_outcome(repeated: Repeated, statement: int) -> Outcome:
    return Outcome(Result.REPEATED, repeated.answers.get(statement), None, 0, charges.failed_write_ru())


async def metered_here(container: Container, partition: Partition, operation: Operation, ask: Ask | None) -> Outcome:
    """The same where the client has said which partition it is: it is told if that is split or merged meanwhile."""
    while True:
        check_owner(container, partition, operation)
        try:
            return await _metered(partition, operation, ask)
        except Failure as failure:
            if failure.kind is not Kind.RANGE_BUSY:
                raise
        await partition.released()


def check_owner(container: Container, partition: Partition, operation: Operation) -> None:
    if container.partition_for(operation.epk) is not partition:
        raise Failure(
            Kind.RANGE_GONE,
            f"The item '{operation.item_id}' is not in the partition key range {partition.range.id}.",
        )


def _condition(container: Container, changes: Patch) -> Callable[[Document], bool] | None:
    if changes.condition is None:
        return None
    predicate = compile_filter(changes.condition).bind({}, container.query_context()).predicate
    return PatchCondition(predicate) if predicate is not None else None


def check_session(partition: Partition, session: Session) -> None:
    """A reader must not see less than it has seen. Tokens of split ranges count for their children."""
    lsn = partition.head.lsn
    key_range = partition.range
    if session.get(key_range.id, 0) > lsn or any(session.get(parent, 0) > lsn for parent in key_range.parents):
        raise Failure(
            Kind.SESSION_BEHIND,
            "The read session is not available for the input session token: it is ahead of this partition.",
            charge_ru=1.0,
            details=_place(partition),
        )


def _at(partition: Partition, failure: Failure) -> Failure:
    """Note where a failure happened: its answer carries a session token too."""
    failure.details = {**failure.details, **_place(partition)}
    return failure


def _place(partition: Partition) -> dict[str, int]:
    return {"range_id": partition.range.id, "lsn": partition.lsn}


async def present_etag(container: Container, item_id: str, key: Key) -> str | None:
    """The etag that an item has now, uncharged: for doors whose etags say less than ours."""
    epk = container.effective_key(key)
    stored = await container.partition_for(epk).read_item(epk, item_id)
    return documents.etag_of(stored) if stored is not None else None


async def id_behind_rid(container: Container, rid: str, key: Key | None) -> str:
    """The id of the item that a rid link names. A rid does not tell the partition key, so that must be given."""
    number = resources.item_number(resources.rid_bytes(rid) or b"")
    if key is None:
        raise bad_request(KEY_MISSING)
    epk = container.effective_key(key)
    partition = container.partition_for(epk)
    if number is not None:
        stored = await partition.read(lambda view: view.get(layout.item_key(number)))
        if stored is not None and unpack_header(stored).epk == epk:
            return documents.item_id(stored)
    missing = Failure(Kind.NOT_FOUND, f"No item with the rid '{rid}' exists in this logical partition.", charge_ru=1.0)
    raise partition.meter.charge(missing, epk)
