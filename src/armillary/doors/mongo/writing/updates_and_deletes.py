"""The commands update and delete: statements in the order given, each with its own error. How one statement finds and
changes documents is in `change_statements.py`; insert is in `inserts.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import views
from armillary.doors.mongo.errors import ends_command, write_error
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.wire.messages import decode_document
from armillary.doors.mongo.writing import change_statements
from armillary.doors.mongo.writing.inserts import check_count, statement_numbers
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.pipeline import check_stages
from armillary.model.bson.bson_values import Document

UPDATE_FIELDS: Final = frozenset("update updates ordered bypassDocumentValidation let".split())
# Drivers send bypassDocumentValidation with every command of a bulk. A delete stores no document, so that no validator
# applies to it.
DELETE_FIELDS: Final = frozenset("delete deletes ordered bypassDocumentValidation let".split())
_STATEMENT_FIELDS: Final = {
    "update": frozenset("q u c upsert multi collation arrayFilters hint sort sampleId".split()),
    "delete": frozenset("q limit collation hint sampleId".split()),
}


async def update(call: Call) -> Reply:
    collection = call.collection()
    statements = statements_of(call, "updates")
    if any(each.body.get("upsert") for each in statements):
        container: Container | None = await namespaces.for_writing(call, collection)
    else:
        container = namespaces.find(call, collection)
        views.refuse(call, collection)
        if container is None:
            namespaces.check_new(call, collection)
    reply: Document = {"n": 0, "nModified": 0}
    upserted: list[Document] = []
    variables = change_statements.Variables(call)
    once = Once(call, container, len(statements))

    async def one(index: int, statement: Fields) -> None:
        order = change_statements.update_order(call, container, statement, variables)
        if container is None:
            return
        done = await once.run(
            index, lambda number: change_statements.run_update(call, container, with_statement_id(order, number))
        )
        reply["n"] += done.matched
        reply["nModified"] += done.modified
        if done.is_upserted:
            reply["n"] += 1
            upserted.append({"index": index, "_id": done.upserted_id})

    errors = await in_turn(call, statements, one)
    if upserted:
        reply["upserted"] = upserted
    if errors:
        reply["writeErrors"] = errors
    return once.finish(reply)


def with_statement_id(order: change_statements.Order, number: int) -> change_statements.Order:
    return change_statements.adjusted(order, statement=number)


class Once:
    """Statements of a retryable write: those that are recorded are not run again."""

    def __init__(self, call: Call, container: Container | None, count: int) -> None:
        self._retryable, self._container = call.retryable, container
        self._numbers = statement_numbers(call, count)
        self._known: dict[int, bytes] | None = None
        self.retried: list[int] = []

    async def run(self, index: int, run: Callable[[int], Awaitable[change_statements.Done]]) -> change_statements.Done:
        known = self._known
        if known is None:
            retryable, container = self._retryable, self._container
            known = await retryable.known(container) if retryable is not None and container is not None else {}
            self._known = known
        number = self._numbers[index]
        packed = known.get(number)
        done = change_statements.Done.unpack(packed) if packed is not None else await run(number)
        if done.repeated is not None:
            self.retried.append(number)
        return done

    def finish(self, reply: Document) -> Document:
        if self.retried:
            reply["retriedStmtIds"] = self.retried
        return reply


async def delete(call: Call) -> Reply:
    collection = call.collection()
    statements = statements_of(call, "deletes")
    call.fields.flag("bypassDocumentValidation", False)
    container = namespaces.find(call, collection)
    views.refuse(call, collection)
    if container is None:
        namespaces.check_new(call, collection)
    reply: Document = {"n": 0}
    variables = change_statements.Variables(call)
    once = Once(call, container, len(statements))

    async def one(index: int, statement: Fields) -> None:
        order = change_statements.delete_order(call, container, statement, variables)
        if container is None:
            return
        if order.is_multi:
            reply["n"] += await change_statements.run_delete(call, container, order)
            return
        done = await once.run(
            index, lambda number: change_statements.delete_one(call, container, with_statement_id(order, number))
        )
        reply["n"] += done.matched

    errors = await in_turn(call, statements, one)
    if errors:
        reply["writeErrors"] = errors
    return once.finish(reply)


async def in_turn(
    call: Call,
    statements: list[Fields],
    run: Callable[[int, Fields], Awaitable[None]],
) -> list[Document]:
    is_ordered = call.fields.flag("ordered", True)
    errors: list[Document] = []
    for index, statement in enumerate(statements):
        try:
            call.check_time()
            await run(index, statement)
        except Failure as failure:
            if ends_command(failure):
                raise
            if call.transaction is not None:
                call.transaction.check((failure,))
            errors.append(write_error(failure, index))
            if is_ordered:
                break
    return errors


def statements_of(call: Call, name: str) -> list[Fields]:
    encoded = call.sequences.get(name)
    if encoded is not None:
        known_ones = call.statements
        is_decoded = known_ones is not None and len(known_ones) == len(encoded)
        found = known_ones if known_ones is not None and is_decoded else [decode_document(each) for each in encoded]
    else:
        found = call.fields.documents(name)
    check_count(len(found))
    statements = [Fields(each, f"{call.name}.{name}") for each in found]
    known = _STATEMENT_FIELDS[call.name] - (frozenset() if call.services.settings.version >= "8.0" else {"sort"})
    for each in statements:
        each.only(known)
        if "q" not in each.body:
            raise each.missing("q")
        if call.name == "delete":
            if "limit" not in each.body:
                raise each.missing("limit")
            if each.body["limit"] not in (0, 1):
                raise refusal(9, f"The limit field in delete objects must be 0 or 1. Got {each.body['limit']}")
        elif "u" not in each.body:
            raise each.missing("u")
        elif type(each.body["u"]) is list:
            check_stages(each.body["u"])  # an invalid pipeline fails the whole command
    return statements
