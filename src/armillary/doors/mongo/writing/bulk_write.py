"""bulkWrite: inserts, updates and deletes on several collections in one command, with a result document for each."""

from __future__ import annotations

from typing import Final

from armillary.account.collections import collection_rules, document_operations
from armillary.account.collections.document_operations import RetryRecord
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, check_collection, check_database
from armillary.doors.mongo.commands import capped
from armillary.doors.mongo.errors import code_of, ends_command, message_of
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading.cursor_commands import batch_size_of, first_batch, listed
from armillary.doors.mongo.sessions import authorization
from armillary.doors.mongo.sessions.roles import Right
from armillary.doors.mongo.wire.answers import Elements, encode_elements
from armillary.doors.mongo.wire.messages import decode_document
from armillary.doors.mongo.writing import change_statements
from armillary.doors.mongo.writing.duplicate_key_errors import as_duplicate
from armillary.doors.mongo.writing.inserts import check_count, inserting, statement_numbers
from armillary.doors.mongo.writing.updates_and_deletes import with_statement_id
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.model.bson.bson_values import Document, encode

FIELDS: Final = frozenset("bulkWrite ops nsInfo ordered errorsOnly let bypassDocumentValidation cursor".split())
_KINDS: Final = {
    "insert": frozenset(("insert", "document")),
    "update": frozenset("update filter updateMods multi upsert arrayFilters hint collation sort constants".split()),
    "delete": frozenset("delete filter multi hint collation".split()),
}


async def bulk_write(call: Call) -> Reply:
    operations = _documents(call, "ops")
    check_count(len(operations))
    spaces = [_namespace(each, place) for place, each in enumerate(_documents(call, "nsInfo"))]
    for database, collection in spaces:
        authorization.require(call, Right.WRITE, database)
        authorization.check_collection(call, database, collection)
    is_ordered = call.fields.flag("ordered", True)
    shows_errors_only = call.fields.flag("errorsOnly", False)
    run = _Run(call, spaces, len(operations))
    for operation in operations:
        _check(operation, spaces)
    rows: list[Document] = []
    errors = 0
    for index, operation in enumerate(operations):
        try:
            call.check_time()
            row = await run.one(index, operation)
        except Failure as failure:
            if ends_command(failure):
                raise
            if call.transaction is not None:
                call.transaction.check((failure,))
            errors += 1
            rows.append(
                {
                    "ok": 0.0,
                    "idx": index,
                    "code": code_of(failure),
                    "errmsg": message_of(failure),
                    **failure.details.get("fields", {}),
                    "n": 0,
                }
            )
            if is_ordered:
                break
        else:
            if not shows_errors_only:
                rows.append({"ok": 1.0, "idx": index, **row})
    cursor = listed(call, rows, "admin.$cmd.bulkWrite")
    opened = await first_batch(call, cursor, batch_size=batch_size_of(call))
    counts: Document = {"nErrors": errors, **run.counts}
    if run.retried:
        counts["retriedStmtIds"] = run.retried
    return Elements(opened.content + encode_elements(counts))


class _Run:
    def __init__(self, call: Call, spaces: list[tuple[str, str]], count: int) -> None:
        self._call = call
        self._spaces = spaces
        self._numbers = statement_numbers(call, count)
        self.retried: list[int] = []
        self._variables = change_statements.Variables(call)
        self.counts = dict.fromkeys(("nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"), 0)

    def _record(self, index: int) -> RetryRecord | None:
        retryable = self._call.retryable
        if retryable is None:
            return None
        return retryable.record((self._numbers[index],), (encode({"n": 1}),))

    async def _known(self, container: Container | None, index: int) -> bytes | None:
        retryable = self._call.retryable
        if retryable is None or container is None:
            return None
        packed = (await retryable.known(container)).get(self._numbers[index])
        if packed is not None:
            self.retried.append(self._numbers[index])
        return packed

    async def one(self, index: int, operation: Document) -> Document:
        kind = next(iter(operation))
        call = self._call
        before = call.database
        call.database, collection = self._spaces[int(operation[kind])]
        try:
            if call.transaction is not None:
                capped.check_write(call, collection)
            match kind:
                case "insert":
                    return await self._insert(collection, index, operation)
                case "update":
                    return await self._update(collection, index, operation)
            return await self._delete(collection, index, operation)
        finally:
            call.database = before

    async def _insert(self, collection: str, index: int, operation: Document) -> Document:
        call = self._call
        container = await namespaces.for_writing(call, collection)
        if await self._known(container, index) is not None:
            self.counts["nInserted"] += 1
            return {"n": 1}
        skips = call.fields.flag("bypassDocumentValidation", False)
        check = collection_rules.check_of(container, skips_validation=skips)
        made = inserting(call, container, encode(operation["document"]), check)
        try:
            answer = await document_operations.write(
                await call.scoped(container, made.key), made, record=self._record(index)
            )
        except Failure as failure:
            raise as_duplicate(call, container, failure, operation["document"]) from None
        call.spend(answer.charge_ru)
        self.counts["nInserted"] += 1
        return {"n": 1}

    async def _update(self, collection: str, index: int, operation: Document) -> Document:
        call = self._call
        is_upsert = bool(operation.get("upsert"))
        container = await namespaces.for_writing(call, collection) if is_upsert else namespaces.find(call, collection)
        given: Document = {"q": operation["filter"], "u": operation["updateMods"], "c": operation.get("constants")}
        given |= {
            name: operation[name]
            for name in ("multi", "upsert", "arrayFilters", "hint", "collation", "sort")
            if name in operation
        }
        order = change_statements.update_order(call, container, Fields(given, "bulkWrite.ops"), self._variables)
        packed = await self._known(container, index)
        if packed is not None:
            done = change_statements.Done.unpack(packed)
        elif container is not None:
            done = await change_statements.run_update(call, container, with_statement_id(order, self._numbers[index]))
        else:
            done = change_statements.Done()
        self.counts["nMatched"] += done.matched
        self.counts["nModified"] += done.modified
        row: Document = {"n": done.matched, "nModified": done.modified}
        if done.is_upserted:
            self.counts["nUpserted"] += 1
            row = {"n": 1, "nModified": 0, "upserted": {"_id": done.upserted_id}}
        return row

    async def _delete(self, collection: str, index: int, operation: Document) -> Document:
        call = self._call
        container = namespaces.find(call, collection)
        given: Document = {"q": operation["filter"], "limit": 0 if operation.get("multi") else 1}
        given |= {name: operation[name] for name in ("hint", "collation") if name in operation}
        order = change_statements.delete_order(call, container, Fields(given, "bulkWrite.ops"), self._variables)
        packed = await self._known(container, index)
        if packed is not None:
            count = change_statements.Done.unpack(packed).matched
        else:
            order = with_statement_id(order, self._numbers[index])
            count = await change_statements.run_delete(call, container, order) if container is not None else 0
        self.counts["nDeleted"] += count
        return {"n": count}


def _documents(call: Call, name: str) -> list[Document]:
    encoded = call.sequences.get(name)
    return [decode_document(each) for each in encoded] if encoded is not None else call.fields.documents(name)


def _namespace(given: Document, place: int) -> tuple[str, str]:
    database, _, collection = Fields(given, f"bulkWrite.nsInfo.{place}").text("ns").partition(".")
    check_database(database)
    return database, check_collection(database, collection)


def _check(operation: Document, spaces: list[tuple[str, str]]) -> None:
    kind = next(iter(operation), "")
    known = _KINDS.get(kind)
    if known is None:
        raise refusal(9, f"Unrecognized bulkWrite operation '{kind[:64]}': it is insert, update or delete")
    fields = Fields(operation, f"bulkWrite.ops.{kind}")
    fields.only(known)
    place = whole_number(operation[kind])
    if place is None or not 0 <= place < len(spaces):
        raise refusal(2, f"BulkWrite ops entry {kind} has an invalid nsInfo index.")
    for name in ("document",) if kind == "insert" else ("filter",):
        fields.document(name)
    if kind == "update" and not isinstance(operation.get("updateMods"), dict | list):
        raise fields.missing("updateMods")
