"""The commands find, count and distinct. Documents are found by `query_execution.py`; the options of a find are read
by `find_query.py`, tailable cursors are in `tailable_cursors.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from bson.int64 import Int64

from armillary import limits
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.visits.read_visits import count_items
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import inline_commands
from armillary.doors.mongo.reading import compiled_filters, hints, query_execution, tailable_cursors
from armillary.doors.mongo.reading.cursor_commands import first_batch, new_cursor
from armillary.doors.mongo.reading.cursors import PagedSource
from armillary.doors.mongo.reading.find_query import Query, query_of
from armillary.doors.mongo.reading.query_execution import winning_plan
from armillary.doors.mongo.reading.shard_targeting import target_of
from armillary.doors.mongo.wire.answers import cursor_reply
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.accumulators import DistinctValues
from armillary.model.bson.bson_values import MISSING, Document, encode, order_key
from armillary.model.indexes.field_indexes import EMPTY, rows_of
from armillary.model.keys import NO_KEY

FIND_FIELDS: Final = frozenset(
    "find filter sort projection hint skip limit batchSize singleBatch comment max min returnKey showRecordId tailable "
    "awaitData noCursorTimeout oplogReplay allowPartialResults collation allowDiskUse let term readOnce "
    "allowSpeculativeMajorityRead requestResumeToken".split()
)
_RECORD_ID: Final = "$recordId"


async def find(call: Call) -> Reply:
    collection = call.collection()
    fields = call.fields
    container = namespaces.find(call, collection)
    namespace = f"{call.database}.{collection}"
    batch_size = fields.whole("batchSize", low=0)
    fast = await _point(call, container, namespace)
    if fast is not None:
        return fast
    is_tailable = fields.flag("tailable", False)
    if fields.flag("awaitData", False) and not is_tailable:
        raise refusal(9, "Cannot set 'awaitData' without also setting 'tailable'")
    query = query_of(call, container)
    if container is None:
        return cursor_reply([], cursor_id=0, namespace=namespace, is_first=True, time=call.past_time)
    if is_tailable:
        return await tailable_cursors.find(call, container, namespace, query)
    source = PagedSource(rows(call, container, query))
    cursor = new_cursor(call, source, namespace)
    cursor.left = query.limit or None
    cursor.never_expires = fields.flag("noCursorTimeout", False)
    is_single = fields.flag("singleBatch", False)
    return await first_batch(call, cursor, batch_size=batch_size, is_single=is_single)


_PLAIN: Final = frozenset(
    "find filter limit singleBatch batchSize lsid $db $clusterTime $readPreference txnNumber readConcern maxTimeMS "
    "comment apiVersion".split()
)


async def _point(call: Call, container: Container | None, namespace: str) -> Reply | None:
    """Fast path: one whole document by its `_id` and shard key."""
    body = call.body
    given = body.get("filter")
    if container is None or type(given) is not dict or len(given) > 4 or "_id" not in given:
        return None
    if not body.keys() <= _PLAIN or call.transaction is not None or call.past is not None or body.get("batchSize") == 0:
        return None
    if "collation" in namespaces.options_of(container):
        return None
    target = target_of(container, given, has_collation=False)
    if not target.is_point or not target.is_whole:
        return None
    found = await document_operations.find(container, target.key or NO_KEY, target.id_value)
    call.spend(found.charge_ru)
    documents = [found.document] if found.document is not None else []
    return cursor_reply(documents, cursor_id=0, namespace=namespace, is_first=True)


async def rows(call: Call, container: Container, query: Query) -> AsyncIterator[list[bytes]]:
    """The documents of a find, encoded, page by page."""
    if query.returns_keys or query.shows_numbers:
        async for shown in _keys_or_numbers(call, container, query, found_pages(call, container, query)):
            yield shown
        return
    async for page in found_pages(call, container, query):
        project = query.project
        if project is None:
            yield [found.encoded for found in page]
        else:
            size_bytes = len(page[0].encoded) if len(page) == 1 else limits.MONGO_DOCUMENT_BYTES_MAX
            yield await inline_commands.in_slices(partial(_shown, project, page), size_bytes, call)


def _shown(project: Callable[[Document], Document], page: list[query_execution.Found]) -> list[bytes]:
    return [encode(project(found.document)) for found in page]


async def found_pages(call: Call, container: Container, query: Query) -> AsyncIterator[list[query_execution.Found]]:
    """The documents after sort, skip and limit, before projection."""
    wanted = query_execution.wanted(
        container, query.given, query.matcher, has_collation=query.collation is not None, most=query.most
    )
    sort = query.sort
    if sort is not None and sort.fields:
        source = query_execution.ordered(call, container, wanted, sort, most=query.most)
    elif sort is not None and sort.natural < 0:
        source = query_execution.newest_first(call, container, wanted)
    elif query.matcher.near is not None:
        source = query_execution.near_first(call, container, wanted, most=query.most)
    else:
        source = query_execution.some(call, container, wanted)
    skip, left = query.skip, query.limit or None
    async for page in source:
        if skip:
            page, skip = page[skip:], max(0, skip - len(page))
        if left is not None:
            page = page[:left]
            left -= len(page)
        if page:
            yield page
        if left == 0:
            return


async def _keys_or_numbers(
    call: Call, container: Container, query: Query, pages: AsyncIterator[list[query_execution.Found]]
) -> AsyncIterator[list[bytes]]:
    """With `returnKey`, the keys of documents in the index that is used; with `showRecordId`, documents with the
    numbers under which they are stored."""
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
                    row[_RECORD_ID] = Int64(number)
            shown.append(encode(row))
        yield shown


async def _key_fields(container: Container, query: Query) -> tuple[str, ...]:
    """The fields of the index that is used; none: it is a collection scan."""
    wanted = query_execution.wanted(container, query.given, query.matcher, has_collation=query.collation is not None)
    plan: Document = await winning_plan(container, wanted, query.sort)
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return ("_id",) if plan["stage"] == "IDHACK" else tuple(plan.get("keyPattern", ()))


def _keys(document: Document, fields: tuple[str, ...]) -> Document:
    """The first index key of a document; an array gives several."""
    if not fields:
        return {}
    first = rows_of(document, tuple([tuple(field.split(".")) for field in fields]))[0]
    values = [None if value is MISSING or value is EMPTY else value for value in first]
    return dict(zip(fields, values, strict=True))


# count.


async def count(call: Call) -> Reply:
    collection = call.collection()
    fields = call.fields
    given = fields.document("query", {})
    limit = fields.number("limit", 0, low=-(1 << 62))
    skip = fields.number("skip", 0)
    container = namespaces.find(call, collection)
    collation = compiled_filters.collation_of(
        fields.optional_document("collation"),
        namespaces.options_of(container).get("collation") if container is not None else None,
    )
    matcher = compiled_filters.matcher_of(
        given,
        call,
        compiled_filters.context_of(call, None, collation),
        has_collation=collation is not None,
        text_index=hints.text_index(container),
    )
    matcher = hints.hinted(matcher, hints.check(container, call.body.get("hint")))
    if container is None:
        return {"n": 0}
    total = 0
    most = skip + abs(limit) if limit else None
    if not given and matcher.hint is None and "defaultTtl" not in container.record.body:
        counted = await count_items(container)
        total = counted.count
        call.spend(counted.charge_ru)
    else:
        wanted = query_execution.wanted(container, given, matcher, has_collation=collation is not None, most=most)
        async for page in query_execution.pages(call, container, wanted):
            total += len(page)
    total = max(0, total - skip)
    return {"n": min(total, abs(limit)) if limit else total}


# distinct.

COUNT_FIELDS: Final = frozenset("count query limit skip hint collation fields comment".split())
DISTINCT_FIELDS: Final = frozenset("distinct key query collation hint comment".split())


async def distinct(call: Call) -> Reply:
    collection = call.collection()
    fields = call.fields
    path = fields.text("key")
    if not path or "\x00" in path:
        raise refusal(2, "The key of distinct is a path")
    given = fields.document("query", {})
    container = namespaces.find(call, collection)
    collation = compiled_filters.collation_of(
        fields.optional_document("collation"),
        namespaces.options_of(container).get("collation") if container is not None else None,
    )
    matcher = compiled_filters.matcher_of(
        given, call, compiled_filters.context_of(call, None, collation), has_collation=collation is not None
    )
    matcher = hints.hinted(matcher, hints.check(container, call.body.get("hint")))
    if container is None:
        return {"values": []}
    values = DistinctValues(path, collation)
    wanted = query_execution.wanted(container, given, matcher, has_collation=collation is not None)
    # Over several partitions the first of equal values is chosen by `_id`, since there is no common order.
    is_spread = len(container.partitions) > 1
    async for page in query_execution.pages(call, container, wanted):
        for found in page:
            values.add(found.document, order_key(found.document["_id"]) if is_spread else None)
    reply: dict[str, Any] = {"values": values.values}
    if len(encode(reply)) > limits.MONGO_REPLY_BYTES_MAX:
        raise refusal(96, "distinct too big, 16mb cap")
    if call.past_time is not None:
        reply["atClusterTime"] = call.past_time
    return reply
