"""What a find shows in place of documents or beside them: the keys that they have in the index which was used
(`returnKey`), and the numbers that they are stored under (`showRecordId`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from bson.int64 import Int64

from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands.plans import winning_plan
from armillary.doors.mongo.reading import matching_documents
from armillary.model.bson.bson_values import MISSING, Document, encode
from armillary.model.indexes.field_indexes import EMPTY, rows_of

if TYPE_CHECKING:
    from armillary.doors.mongo.reading.find import Query

_NUMBER = "$recordId"


async def rows(
    call: Call, container: Container, query: Query, pages: AsyncIterator[list[matching_documents.Found]]
) -> AsyncIterator[list[bytes]]:
    fields = await _key_fields(container, query) if query.returns_keys else ()
    async for page in pages:
        shown = []
        for found in page:
            document = found.document
            if query.returns_keys:
                shown.append(encode(_keys(document, fields)))  # and nothing else, as MongoDB does it
                continue
            row = dict(document) if query.project is None else query.project(document)
            if query.shows_numbers:
                key = container.key_of_bson(document)
                number = await document_operations.number_of(await call.scoped(container, key), key, document["_id"])
                if number is not None:
                    row[_NUMBER] = Int64(number)
            shown.append(encode(row))
        yield shown


async def _key_fields(container: Container, query: Query) -> tuple[str, ...]:
    """The fields of the index that is used; none: documents are looked at one by one."""
    wanted = matching_documents.wanted(container, query.given, query.matcher, has_collation=query.collation is not None)
    plan: Document = await winning_plan(container, wanted, query.sort)
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return ("_id",) if plan["stage"] == "IDHACK" else tuple(plan.get("keyPattern", ()))


def _keys(document: Document, fields: tuple[str, ...]) -> Document:
    """Of the keys of an index that leads through arrays, the first."""
    if not fields:
        return {}
    first = rows_of(document, tuple([tuple(field.split(".")) for field in fields]))[0]
    values = [None if value is MISSING or value is EMPTY else value for value in first]
    return dict(zip(fields, values, strict=True))
