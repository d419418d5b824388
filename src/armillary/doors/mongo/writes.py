"""insert, update and delete: statements in the order given, each for itself, with its own error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from bson.objectid import ObjectId
from bson.regex import Regex

from armillary import limits
from armillary.account import bson_items
from armillary.account.container import Container
from armillary.doors.mongo import changes, namespaces, raw, validation
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.duplicates import as_duplicate
from armillary.doors.mongo.errors import write_error
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.wire import decode_document
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson_values import Document, encode, type_name
from armillary.partition.operations import Operation

INSERT_FIELDS: Final = frozenset("insert documents ordered bypassDocumentValidation".split())
UPDATE_FIELDS: Final = frozenset("update updates ordered bypassDocumentValidation let".split())
DELETE_FIELDS: Final = frozenset("delete deletes ordered let".split())
_STATEMENT_FIELDS: Final = {
    "update": frozenset("q u c upsert multi collation arrayFilters hint sort upsertSupplied sampleId".split()),
    "delete": frozenset("q limit collation hint sampleId".split()),
}


def check_count(count: int) -> None:
    if not 1 <= count <= limits.MONGO_BATCH_OPERATIONS_MAX:
        raise refusal(
            16,
            f"Write batch sizes must be between 1 and {limits.MONGO_BATCH_OPERATIONS_MAX}. Got {count} operations.",
        )


# insert.


async def insert(call: Call) -> Reply:
    collection = call.collection()
    documents = documents_of(call)
    check_count(len(documents))
    is_ordered = call.fields.flag("ordered", True)
    container = await namespaces.for_writing(call, collection)
    skips = call.fields.flag("bypassDocumentValidation", False)
    check = None if skips else validation.validator_of(call, container)
    operations: list[Operation] = []
    places: list[int] = []  # of each operation's document
    errors: list[Document] = []
    for index, given in enumerate(documents):
        try:
            operations.append(inserting(call, container, given, check))
            places.append(index)
        except Failure as failure:
            errors.append(write_error(failure, index))
            if is_ordered:
                break
    inserted, failures = await write_all(call, container, operations, stops=is_ordered)
    if failures and is_ordered:
        errors.clear()  # what was wrong later was never looked at
    for place, reason in failures:
        made = operations[place].draft
        assert made is not None
        errors.append(write_error(as_duplicate(call, container, reason, made.document), places[place]))
    reply: Document = {"n": inserted}
    if errors:
        reply["writeErrors"] = sorted(errors, key=lambda each: each["index"])
    return reply


def documents_of(call: Call) -> list[bytes]:
    """The documents of an insert, encoded as they came."""
    documents = call.sequences.get("documents")
    if documents is not None:
        return documents
    for index, each in enumerate(call.fields.array("documents")):
        if type(each) is not dict:
            raise refusal(
                14,
                f"BSON field 'insert.documents.{index}' is the wrong type '{type_name(each)}', expected type 'object'",
            )
    return raw.documents_at(call.raw_body, "documents")


def inserting(call: Call, container: Container, given: bytes, check: validation.Check | None = None) -> Operation:
    document = decode_document(given)
    if next(iter(document), None) != "_id":
        document = {"_id": document["_id"], **document} if "_id" in document else {"_id": new_id(call), **document}
        given = raw.with_id_first(given, encode({"_id": document["_id"]}))
    check_id(document["_id"])
    namespaces.check_shard_key(container, document)
    if check is not None:
        check(document, None)
    return bson_items.inserting(container, document, given, call.clock)


def new_id(call: Call) -> ObjectId:
    seconds = int(call.clock.now_s()) & 0xFFFFFFFF
    return ObjectId(seconds.to_bytes(4, "big") + call.clock.random_bytes(8))


def check_id(value: Any) -> None:
    if isinstance(value, list):
        raise refusal(53, "The '_id' value cannot be of type array")
    if isinstance(value, Regex):
        raise refusal(53, "The '_id' value cannot be of type regex")
    if isinstance(value, dict) and next(iter(value), "").startswith("$"):
        raise refusal(
            52, f"_id fields may not contain '$'-prefixed fields: {next(iter(value))} is not valid for storage."
        )


async def write_all(
    call: Call, container: Container, operations: list[Operation], *, stops: bool
) -> tuple[int, list[tuple[int, Failure]]]:
    """How many were done, and which were not, and why."""
    if not operations:
        return 0, []
    try:
        answer = await bson_items.write_many(container, operations, stops=stops)
    except Failure as failure:
        if failure.kind is not Kind.THROTTLED:
            raise
        call.spend(failure.charge_ru)
        return 0, [(0, failure)]
    call.spend(answer.charge_ru)
    failures = [(place, each) for place, each in enumerate(answer.outcomes) if isinstance(each, Failure)]
    return len(answer.outcomes) - len(failures), failures


# update and delete.


async def update(call: Call) -> Reply:
    collection = call.collection()
    statements = statements_of(call, "updates")
    if any(each.body.get("upsert") for each in statements):
        container: Container | None = await namespaces.for_writing(call, collection)
    else:
        container = namespaces.find(call, collection)
    reply: Document = {"n": 0, "nModified": 0}
    upserted: list[Document] = []
    variables = changes.Variables(call)

    async def one(index: int, statement: Fields) -> None:
        order = changes.update_order(call, container, statement, variables)
        if container is None:
            return
        done = await changes.run_update(call, container, order)
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
    return reply


async def delete(call: Call) -> Reply:
    collection = call.collection()
    statements = statements_of(call, "deletes")
    container = namespaces.find(call, collection)
    reply: Document = {"n": 0}
    variables = changes.Variables(call)

    async def one(index: int, statement: Fields) -> None:
        order = changes.delete_order(call, container, statement, variables)
        if container is not None:
            reply["n"] += await changes.run_delete(call, container, order)

    errors = await in_turn(call, statements, one)
    if errors:
        reply["writeErrors"] = errors
    return reply


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
            if failure.kind in (Kind.DROPPED, Kind.TIMED_OUT):
                raise
            errors.append(write_error(failure, index))
            if is_ordered:
                break
    return errors


def statements_of(call: Call, name: str) -> list[Fields]:
    encoded = call.sequences.get(name)
    if encoded is not None:
        found = [decode_document(each) for each in encoded]
    else:
        found = call.fields.documents(name)
    check_count(len(found))
    statements = [Fields(each, f"{call.name}.{name}") for each in found]
    known = _STATEMENT_FIELDS[call.name] - (frozenset() if call.door.settings.version >= "8.0" else {"sort"})
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
    return statements
