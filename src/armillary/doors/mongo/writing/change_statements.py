"""One statement that changes documents: an update, a delete or a findAndModify, compiled and executed.

Candidates are found as for a find; each is then changed in a transaction if it still matches. A statement about one
document tries the next candidate if the first was changed meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from armillary import limits, work
from armillary.account.collections import collection_rules, compiled_changes, document_operations
from armillary.account.collections.document_operations import (
    ChangeStatement,
    CompiledChange,
    DocumentWrite,
    Returning,
    WriteOutcome,
)
from armillary.account.container import Container
from armillary.account.visits.read_visits import Answer
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading import compiled_filters, hints, query_execution
from armillary.doors.mongo.reading.shard_targeting import ANYWHERE, Target
from armillary.doors.mongo.writing.duplicate_key_errors import as_duplicate
from armillary.doors.mongo.writing.inserts import check_id, new_id
from armillary.doors.mongo.writing.optimistic_decisions import decide_ahead, write_decided
from armillary.errors import Failure, Kind
from armillary.languages.mongo.collation import Collation, key_function
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import Matcher
from armillary.languages.mongo.sort_keys import Sort, compile_sort
from armillary.languages.mongo.updates.updates import Update, compile_update, is_replacement
from armillary.languages.mongo.updates.upserts import upserted_document
from armillary.model.bson.bson_values import MISSING, Document, decode, encode
from armillary.model.keys import NO_KEY, Key

_UPSERT_TRIES: Final = 10  # while another client inserts and deletes the same document
_PORTION: Final = 1000  # operations made at a time
_PORTION_AHEAD, _AHEAD_BYTES, _AHEAD_TRIES = 50, 16 * limits.MB, 20  # the same if they are decided ahead


class Variables:
    """What the expressions of a command's statements may name, and the contexts they are compiled in."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.now_ms = int(call.clock.now_s() * 1000)
        self._let = compiled_filters.let_of(call)

    def values(self, constants: Document | None = None) -> Document | None:
        return {**(self._let or {}), **constants} if constants else self._let

    def context(self, collation: Collation | None, constants: Document | None = None) -> Context:
        random = collection_rules.dice(self._call.clock)
        return Context.of(
            self.now_ms, random, self.values(constants), key_function(collation), self._call.run_javascript
        )

    @property
    def are_none(self) -> bool:
        return self._let is None


@dataclass(frozen=True, slots=True)
class Order:
    """One statement, compiled."""

    given: Document
    matcher: Matcher
    collation: Collation | None
    is_multi: bool
    change: ChangeStatement  # what is sent to the partitions
    context: Context
    update: Update | None = None  # None: delete
    is_upsert: bool = False
    sort: Sort | None = None
    statement: int = 0  # statement id of a retryable write

    def compiled(self, container: Container) -> CompiledChange:
        """What becomes of a document. It may run more than once."""
        change, matcher = self.change, self.matcher
        project = compiled_changes.projection_of(change, self.context, matcher)
        if self.update is None:
            return compiled_changes.delete_change(change, matcher, project)
        check = collection_rules.check_of(container, skips_validation=change.skips_validation)
        return compiled_changes.update_change(container, change, matcher, self.update, project, check)

    def operation(self, container: Container, key: Key, id_value: Any, compiled: CompiledChange) -> DocumentWrite:
        """The operation on one document."""
        if self.update is None:
            return document_operations.deleting(container, key, id_value, self.change, compiled)
        operation = document_operations.changing(container, key, id_value, self.change, compiled)
        operation.is_replacement = self.update.kind == "replacement"
        return operation


@dataclass(slots=True)
class Done:
    matched: int = 0
    modified: int = 0
    is_upserted: bool = False
    upserted_id: Any = None
    answer: Document | None = None  # of findAndModify
    repeated: bytes | None = None  # a retry: the recorded answer

    @classmethod
    def of(cls, outcome: WriteOutcome | None) -> Done:
        changed = outcome.changed if outcome is not None else None
        if changed is None or not changed.is_match:
            return cls()
        return cls(1, int(changed.after is not None), answer=changed.answer)

    @classmethod
    def unpack(cls, packed: bytes) -> Done:
        kept = decode(packed)
        return cls(kept["n"], kept["m"], "u" in kept, kept.get("u"), repeated=packed)


def update_order(call: Call, container: Container | None, statement: Fields, variables: Variables) -> Order:
    given = statement.document("q")
    change = statement.body["u"]
    is_multi = statement.flag("multi", False)
    if is_multi and is_replacement(change):
        raise refusal(9, "multi update is not supported for replacement-style update")
    collation = _collation(container, statement)
    constants = statement.optional_document("c")
    if constants is not None and type(change) is not list:
        raise refusal(51198, "Constant values may only be specified for pipeline updates")
    context = variables.context(collation, constants)
    array_filters = statement.body.get("arrayFilters")
    update = compile_update(change, context, array_filters)
    matcher = _matcher(call, container, given, context, collation, variables)
    matcher = hints.hinted(matcher, hints.check(container, statement.body.get("hint")))
    order = statement.optional_document("sort")
    if order and is_multi:
        raise refusal(9, "Cannot specify sort with multi=true")
    sort = compile_sort(order, collation, matcher.text) if order else None
    is_upsert = statement.flag("upsert", False)
    stated = ChangeStatement(
        given,
        change,
        array_filters,
        collation=_given_collation(container, statement),
        let=variables.values(constants),
        now_ms=variables.now_ms,
        skips_validation=call.fields.flag("bypassDocumentValidation", False),
    )
    return Order(given, matcher, collation, is_multi, stated, context, update, is_upsert, sort)


def delete_order(call: Call, container: Container | None, statement: Fields, variables: Variables) -> Order:
    given = statement.document("q")
    collation = _collation(container, statement)
    context = variables.context(collation)
    matcher = _matcher(call, container, given, context, collation, variables)
    matcher = hints.hinted(matcher, hints.check(container, statement.body.get("hint")))
    stated = ChangeStatement(
        given, collation=_given_collation(container, statement), let=variables.values(), now_ms=variables.now_ms
    )
    return Order(given, matcher, collation, not statement.body["limit"], stated, context)


def returning(order: Order, wanted: Returning) -> Order:
    """The statement of a findAndModify, which answers the document."""
    return replace(order, change=replace(order.change, returning=wanted))


def _given_collation(container: Container | None, statement: Fields) -> Document | None:
    own = namespaces.options_of(container).get("collation") if container is not None else None
    return statement.optional_document("collation") or own


def _collation(container: Container | None, statement: Fields) -> Collation | None:
    return compiled_filters.collation_of(_given_collation(container, statement))


def _matcher(
    call: Call,
    container: Container | None,
    given: Document,
    context: Context,
    collation: Collation | None,
    variables: Variables,
) -> Matcher:
    return compiled_filters.matcher_of(
        given,
        call,
        context,
        has_collation=collation is not None or not variables.are_none,
        text_index=hints.text_index(container),
    )


def adjusted(order: Order, **changes: Any) -> Order:
    return replace(order, **changes)


# Updating.


async def run_update(call: Call, container: Container, order: Order) -> Done:
    for _ in range(_UPSERT_TRIES):
        done = await _update_found(call, container, order)
        if done.matched or done.repeated is not None or not order.is_upsert:
            return done
        try:
            return await _upsert(call, container, order)
        except Failure as failure:
            # Another client has inserted it: update that document, if the filter matches it.
            if failure.kind is not Kind.CONFLICT or not await _matches_now(call, container, order):
                raise
    raise Failure(Kind.RETRY_WITH, "The document to upsert comes and goes; try again.")


async def _matches_now(call: Call, container: Container, order: Order) -> bool:
    wanted = query_execution.wanted(
        container, order.given, order.matcher, has_collation=order.collation is not None, most=1
    )
    async for page in query_execution.pages(call, container, wanted):
        if page:
            return True
    return False


async def _update_found(call: Call, container: Container, order: Order) -> Done:
    if order.is_multi:
        check_target(call, container, order, ANYWHERE)
        return await _update_many(call, container, order)
    return await _change_one(call, container, order)


async def _change_one(call: Call, container: Container, order: Order) -> Done:
    """Change or delete the first document that still matches."""
    change = order.compiled(container)
    compiled = compiled_changes.bounded(change)
    async for key, id_value in candidates(call, container, order):
        operation = order.operation(container, key, id_value, compiled)
        write = partial(_write, call, container, operation, order)
        try:
            answer = await write_decided(call, container, operation, id_value, change, write)
        except Failure as failure:
            if failure.kind is not Kind.NOT_FOUND:
                raise as_duplicate(call, container, failure) from None
            call.spend(failure.charge_ru)
            continue
        call.spend(answer.charge_ru)
        if document_operations.was_repeated(answer):
            return _repeated(order, answer)
        done = Done.of(answer.outcome)
        if done.matched:
            return done
    return Done()


async def _write(
    call: Call, container: Container, operation: DocumentWrite, order: Order, recorded: bytes | None = None
) -> Answer:
    """One operation, with a retry record if the write is retryable, inside the transaction if there is one.
    `recorded`: what a retry is answered; None: what the statement returns."""
    record = None
    if call.retryable is not None:
        record = call.retryable.record((order.statement,), (recorded,) if recorded is not None else None)
    return await document_operations.write(await call.scoped(container, operation.key), operation, record=record)


def _repeated(order: Order, answer: Answer) -> Done:
    """The recorded answer of a retry."""
    packed = answer.payload or b""
    return Done(matched=1, repeated=packed) if order.change.returning is not None else Done.unpack(packed)


async def _update_many(call: Call, container: Container, order: Order) -> Done:
    total = Done()
    async for outcomes in _in_portions(call, container, order):
        for each in map(Done.of, outcomes):
            total.matched += each.matched
            total.modified += each.modified
    return total


async def _in_portions(call: Call, container: Container, order: Order) -> AsyncIterator[list[WriteOutcome | None]]:
    """Every document, many in one transaction. Once one of them takes long to compute, all that follow are computed
    ahead of their transactions."""
    places = [each async for each in candidates(call, container, order)]
    change = order.compiled(container)
    compiled = compiled_changes.bounded(change, compiled_changes.SHARES)
    first = tries = 0
    is_ahead = False
    while first < len(places):
        call.check_time()
        operations: list[DocumentWrite] = []
        kept_bytes = 0
        for key, id_value in places[first : first + (_PORTION_AHEAD if is_ahead else _PORTION)]:
            operation = order.operation(container, key, id_value, compiled)
            if is_ahead:
                kept_bytes += await decide_ahead(call, container, operation, id_value, change)
            operations.append(operation)
            if kept_bytes > _AHEAD_BYTES:
                break
        try:
            done, is_outlasted = await _all_of(call, container, operations)
        except Failure as failure:
            raise as_duplicate(call, container, failure) from None
        yield done
        first += len(done)
        is_ahead = is_ahead or is_outlasted
        tries = 0 if done else tries + 1
        if tries > _AHEAD_TRIES:
            raise Failure(Kind.RETRY_WITH, "Documents change while it is computed what becomes of them; try again.")


async def _all_of(
    call: Call, container: Container, operations: list[DocumentWrite]
) -> tuple[list[WriteOutcome | None], bool]:
    """Every operation, up to one that must be decided ahead, and whether there was one. Those whose document is gone
    are passed over (None), anything else ends it."""
    done: list[WriteOutcome | None] = []
    while len(done) < len(operations):
        rest = operations[len(done) :]
        scoped = await call.scoped(container, rest[0].key)
        answer = await document_operations.write_many(scoped, rest, stops=True, at_once=call.transaction is None)
        call.spend(answer.charge_ru)
        for each in answer.outcomes:
            if isinstance(each, work.Outlasted):
                return done, True
            if isinstance(each, Failure) and each.kind is not Kind.NOT_FOUND:
                raise each
            done.append(None if isinstance(each, Failure) else each)
    return done, False


async def _upsert(call: Call, container: Container, order: Order) -> Done:
    assert order.update is not None
    document = upserted_document(order.given, order.update)
    if "_id" not in document:
        document = {"_id": new_id(call), **document}
    check_id(document["_id"])
    for field in namespaces.shard_fields(container):
        if namespaces.value_at(document, field) is MISSING:
            raise refusal(61, "Failed to target upsert by query :: could not extract exact shard key")
    namespaces.check_shard_key(container, document)
    check = collection_rules.check_of(container, skips_validation=order.change.skips_validation)
    if check is not None:
        check(document, None)
    operation = document_operations.inserting(container, document, encode(document), call.clock)
    done = Done(is_upserted=True, upserted_id=document["_id"])
    wanted = order.change.returning
    if wanted is not None:
        project = compiled_changes.projection_of(order.change, order.context, order.matcher)
        value = document if wanted.is_new else None
        done.answer = compiled_changes.modified_answer(value, project, is_removing=False, upserted=document)
    recorded = encode(done.answer) if done.answer is not None else encode({"n": 0, "m": 0, "u": document["_id"]})
    try:
        answer = await _write(call, container, operation, order, recorded)
    except Failure as failure:
        raise as_duplicate(call, container, failure, document) from None
    call.spend(answer.charge_ru)
    return _repeated(order, answer) if document_operations.was_repeated(answer) else done


# Deleting.


async def run_delete(call: Call, container: Container, order: Order) -> int:
    if not order.is_multi:
        return (await delete_one(call, container, order)).matched
    check_target(call, container, order, ANYWHERE)
    count = 0
    async for done in _in_portions(call, container, order):
        count += sum(1 for each in done if each is not None and document_operations.has_deleted(each))
    return count


async def delete_one(call: Call, container: Container, order: Order) -> Done:
    return await _change_one(call, container, order)


# Finding.


async def candidates(call: Call, container: Container, order: Order) -> AsyncIterator[tuple[Key, Any]]:
    """Shard key and `_id` of the documents that match, in the statement's order."""
    has_collation = order.collation is not None
    wanted = query_execution.wanted(container, order.given, order.matcher, has_collation=has_collation)
    target = wanted.target
    if target.is_point:
        assert target.key is not None
        yield target.key, target.id_value
        return
    check_target(call, container, order, target)
    fields = namespaces.shard_fields(container)
    has_order = order.sort is not None and bool(order.sort.fields or order.sort.natural < 0)
    if has_order or order.matcher.near is not None:
        if order.sort is not None and order.sort.fields:
            source = query_execution.ordered(call, container, wanted, order.sort, most=None)
        elif order.sort is not None and order.sort.natural < 0:
            source = query_execution.newest_first(call, container, wanted)
        else:
            source = query_execution.near_first(call, container, wanted, most=None)
        async for page in source:
            for each in page:
                yield container.key_of_bson(each.document) if fields else NO_KEY, each.document["_id"]
        return
    if not order.is_multi:
        wanted = wanted._replace(page_items=1)
    async for page in query_execution.pages(call, container, wanted):
        for each in page:
            yield container.key_of_bson(each.document) if fields else NO_KEY, each.document["_id"]


def check_target(call: Call, container: Container, order: Order, target: Target) -> None:
    """A retryable statement about one document of a sharded collection must say in which shard it is."""
    if call.retryable is None:
        return
    if order.is_multi:
        raise refusal(72, "Cannot use retryable writes with multi=true or limit=0")
    if target.key is not None:
        return
    raise refusal(
        61,
        "A retryable write to one document of a sharded collection must have the shard key in its filter. Add "
        f"{', '.join(namespaces.shard_fields(container))}, or connect with retryWrites=false.",
    )
