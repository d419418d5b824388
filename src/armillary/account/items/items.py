"""Operations on items: create, read, replace, upsert, merge, patch, delete, transactional batch, delete by partition
key. Each function checks what needs no transaction and makes a visit to the partition that owns the key
(`account/visits`). Answers carry the range and lsn, which session tokens are made of.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from armillary.account.container import Container
from armillary.account.visits import key_deletion, visits
from armillary.account.visits.patch_conditions import check_condition
from armillary.account.visits.read_visits import Answer, FindItem, ReadItem, read_at_hand
from armillary.account.visits.visits import Session
from armillary.account.visits.write_visits import BatchAnswer, Refused, WriteBatch, WriteItem
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.model import resources
from armillary.model.keys import KEY_DIFFERS, KEY_MISSING, NO_KEY, Key
from armillary.model.patch import Patch
from armillary.partition.budget import Ask
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.operations import Document as Document
from armillary.partition.operations import Operation as Operation
from armillary.partition.operations import Outcome as Outcome
from armillary.partition.operations import Result as Result
from armillary.partition.operations import Verb as Verb
from armillary.partition.operations import draft
from armillary.partition.partition import Partition


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


Answering: TypeAlias = Coroutine[Any, Any, Answer]
_NO_OPTIONS = ItemOptions()


async def read(container: Container, item_id: str, options: ItemOptions) -> Answer:
    key = options.key
    if key is None:
        raise bad_request(KEY_MISSING)
    epk = container.effective_key(key)
    visit = ReadItem(epk, item_id, options.read_factor, options.if_none_match, options.session, key=key)
    return found(
        read_at_hand(container, visit, options.ask) or await visits.run(container, visit, options.ask), item_id
    )


def found(answer: Answer, item_id: str) -> Answer:
    """The answer to a read, or the failure that says that there is no such item."""
    if answer.result is Result.MISSING:
        raise visits.metered(
            Failure(
                Kind.NOT_FOUND,
                "Entity with the specified id does not exist in the system: "
                f"no item with id '{item_id}' in this logical partition.",
            ),
            answer,
        )
    return answer


def create(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    return write(container, stored(Verb.CREATE, container, document, options, clock), options.ask)


def upsert(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    return write(container, stored(Verb.UPSERT, container, document, options, clock), options.ask)


async def merge(container: Container, document: Document, options: ItemOptions, clock: Clock) -> Answer:
    """Put the properties of the body over those of the item. Without If-Match it is made if it does not exist."""
    return await write(container, stored(Verb.MERGE, container, document, options, clock), options.ask)


def replace(container: Container, item_id: str, document: Document, options: ItemOptions, clock: Clock) -> Answering:
    """Another id in the body renames the item, as the service does."""
    return write(container, stored(Verb.REPLACE, container, document, options, clock, item_id), options.ask)


async def patch(container: Container, item_id: str, changes: Patch, options: ItemOptions) -> Answer:
    operation = _keyed(Verb.PATCH, container, item_id, options)
    check_condition(container, changes)
    operation.patch = changes
    return await write(container, operation, options.ask)


async def delete(container: Container, item_id: str, options: ItemOptions) -> Answer:
    return await write(container, _keyed(Verb.DELETE, container, item_id, options), options.ask)


async def delete_by_key(container: Container, key: Key, ask: Ask | None = None) -> Answer:
    """Delete every item of one logical partition; returns when none is left."""
    return await key_deletion.delete_by_key(container, key, ask)


# Batches.


@dataclass(slots=True)
class Member:
    """One operation of a batch or of a bulk request."""

    verb: Verb
    item_id: str | None = None
    document: Document | None = None
    patch: Patch | None = None
    options: ItemOptions | None = None


async def batch(
    container: Container, key: Key, members: Sequence[Member], options: ItemOptions, clock: Clock
) -> BatchAnswer:
    """All members in one transaction on one logical partition, or none."""
    epk = container.effective_key(key)
    todo: list[Operation] = []
    refused: Refused | None = None
    for index, member in enumerate(members):
        try:
            operation = operation_of(container, member, key, clock)
            if operation.epk != epk:
                raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS)
            todo.append(operation)
        except Failure as failure:
            refused = Refused(index, failure)
            break
    visit = WriteBatch(epk, todo, len(members), options.session, refused)
    return await visits.run(container, visit, options.ask)


# Inside.


def operation_of(container: Container, member: Member, key: Key, clock: Clock) -> Operation:
    """What a member asks for, checked as far as that needs no transaction."""
    options = member.options or _NO_OPTIONS
    keyed = ItemOptions(key, options.if_match, options.if_none_match, directive=options.directive)
    if member.verb in (Verb.CREATE, Verb.UPSERT, Verb.REPLACE, Verb.MERGE):
        assert member.document is not None
        item_id = member.item_id if member.verb is Verb.REPLACE else None
        return stored(member.verb, container, member.document, keyed, clock, item_id, is_alone=False)
    assert member.item_id is not None
    operation = _keyed(member.verb, container, member.item_id, keyed)
    if member.patch is not None:
        check_condition(container, member.patch)
        operation.patch = member.patch
    return operation


def stored(
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


def write(container: Container, operation: Operation, ask: Ask | None, record: Record | None = None) -> Answering:
    """Let the partition that owns the key do an operation. With a record it is done once: asked again, the answer is
    REPEATED."""
    return visits.run(container, WriteItem(operation.epk, operation, record), ask)


async def write_here(container: Container, partition: Partition, operation: Operation, ask: Ask | None) -> Outcome:
    """The same where the client has said which partition it is: it is told if that is split or merged meanwhile."""
    visit = WriteItem(operation.epk, operation)
    lost = await visits.meet_faults(container, visit)
    while True:
        check_owner(container, partition, operation)
        answer = await visits.run_at(container, partition, visit, ask)
        if answer is not None:
            break
        await partition.released()
    if lost is not None:
        raise lost
    assert answer.outcome is not None
    return answer.outcome


def check_owner(container: Container, partition: Partition, operation: Operation) -> None:
    if container.partition_for(operation.epk) is not partition:
        raise Failure(
            Kind.RANGE_GONE,
            f"The item '{operation.item_id}' is not in the partition key range {partition.range.id}.",
        )


async def present_etag(container: Container, item_id: str, key: Key) -> str | None:
    """The etag that an item has now, uncharged: for doors whose etags say less than ours."""
    return (await visits.run_uncounted(container, FindItem(container.effective_key(key), item_id=item_id))).etag


async def rid_behind_id(container: Container, item_id: str, key: Key) -> str | None:
    """The rid of the item with an id, as its `_rid` reads; None: there is none."""
    found = await visits.run_uncounted(container, FindItem(container.effective_key(key), item_id))
    return resources.item_rid_text(container.record.rid, found.number) if found.number is not None else None


async def id_behind_rid(container: Container, rid: str, key: Key | None) -> str:
    """The id of the item that a rid link names. A rid does not tell the partition key, so that must be given."""
    number = resources.item_rid(resources.rid_bytes(rid) or b"")
    if key is None:
        raise bad_request(KEY_MISSING)
    epk = container.effective_key(key)
    if number is not None:
        found = await visits.run_uncounted(container, FindItem(epk, number=number))
        if found.item_id is not None:
            return found.item_id
    missing = Failure(Kind.NOT_FOUND, f"No item with the rid '{rid}' exists in this logical partition.", charge_ru=1.0)
    raise visits.refused_at(container, container.partition_for(epk), missing, epk, "read")
