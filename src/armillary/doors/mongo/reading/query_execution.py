"""Execution of a filter: the matching documents page by page, from one document to all partitions, in storage order or
sorted. Charges are added to the command. The winning plan, which `explain` shows and `returnKey` uses, is here too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from armillary import limits, work
from armillary.account.captures import notes
from armillary.account.collections import document_operations, document_queries, tailing
from armillary.account.collections.document_queries import EVERY_DOCUMENT, DocumentSelection, IndexCondition
from armillary.account.collections.indexes import all_definitions, definitions
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.sorted_reading import SortedReading, has_order
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands import inline_commands
from armillary.doors.mongo.namespaces import shard_fields
from armillary.doors.mongo.reading.shard_targeting import Target, target_of
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters.conjunctions import conjunction_of, field_path, shape_of
from armillary.languages.mongo.filters.matching import Matcher
from armillary.languages.mongo.indexes.key_conditions import usable_condition
from armillary.languages.mongo.sort_keys import Sort
from armillary.model.bson.bson_values import MISSING, Document, decode
from armillary.model.documents import BSON, bson_form
from armillary.model.keys import NO_KEY
from armillary.work import sorted_values

_PAGE_ITEMS = 1000
_ROW_BYTES = 200  # overhead of a document in a sort
_TEXT = b"mongo"  # continuations are bound to this text


class Found:
    """A stored document, decoded on first use."""

    __slots__ = ("_document", "encoded")

    def __init__(self, encoded: bytes, document: Document | None = None) -> None:
        self.encoded = encoded
        self._document = document

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = decode(self.encoded)
        return self._document


class Wanted(NamedTuple):
    """A filter over a collection, ready to be executed."""

    given: Document
    matcher: Matcher
    target: Target
    condition: IndexCondition = EVERY_DOCUMENT
    most: int | None = None  # at most so many are needed
    page_items: int = _PAGE_ITEMS  # to be read at a time
    names: frozenset[str] | None = None  # of the fields that are used; None: all


def wanted(
    container: Container, given: Document, matcher: Matcher, *, has_collation: bool = False, most: int | None = None
) -> Wanted:
    if container.recording is not None:
        notes.describe(lambda: shape_of(given), conjunction_of(given) if not has_collation else EVERY_DOCUMENT)
    target = target_of(container, given, has_collation=has_collation)
    if target.is_point:
        return Wanted(given, matcher, target, EVERY_DOCUMENT, most)
    named = container.schema.rules.indexing.named_fields
    condition = usable_condition(
        given,
        is_collated=has_collation,
        single_paths=shard_fields(container),
        indexed=[field for field, _ in named] if named is not None else None,
        text=matcher.text,
    )
    if matcher.hint is not None:
        condition = document_queries.with_hint(condition, matcher.hint)
    return Wanted(given, matcher, target, condition, most)


async def pages(call: Call, container: Container, wanted: Wanted) -> AsyncIterator[list[Found]]:
    """In storage order, partition after partition."""
    target, matches = wanted.target, wanted.matcher.matches
    container = await call.scoped(container, target.key)
    if target.is_point:
        found = await document_operations.find(container, target.key or NO_KEY, target.id_value)
        call.examine(int(found.document is not None), found.charge_ru, is_keyed=True)
        if found.document is not None:
            row = Found(found.document)
            if target.is_whole or await inline_commands.in_slices(
                lambda: matches(row.document), len(found.document), call
            ):
                yield [row]
        return
    async for rows, seen in _scan(call, container, wanted):
        yield [Found(row, document) for row, document in zip(rows, seen, strict=False)]


async def documents(call: Call, container: Container, wanted: Wanted) -> AsyncIterator[list[Document]]:
    """The same, decoded; never an empty page."""
    if wanted.target.is_point:
        async for page in pages(call, container, wanted):
            yield [found.document for found in page]
        return
    async for rows, seen in _scan(call, await call.scoped(container, wanted.target.key), wanted):
        if rows:
            yield seen[: len(rows)]


async def _scan(
    call: Call, container: Container, wanted: Wanted
) -> AsyncIterator[tuple[Sequence[bytes], list[Document]]]:
    """Stored rows and their decoded documents; there may be one more document than rows, which the page left out."""
    matches = wanted.matcher.matches
    seen: list[Document] = []

    def keeps(document: Document) -> bool:
        # The filter has decoded the document: it is kept, so that it is decoded once.
        if matches(document):
            seen.append(document)
            return True
        return False

    is_here = not container.is_divided
    selection = document_queries.selection(wanted.condition, wanted.matcher, keeps if is_here else None)
    form = BSON if wanted.names is None else bson_form(wanted.names)
    continuation: str | None = None
    left = wanted.most
    while True:
        call.check_time()
        page_items = wanted.page_items if left is None else min(left, wanted.page_items)
        options = FeedOptions(
            key=wanted.target.key or None, page_items=page_items, continuation=continuation, form=form
        )
        page = await item_pages.select(call.account, container, selection, _TEXT, options)
        call.examine(page.counters.items_loaded, page.charge_ru, is_keyed=not page.counters.is_full_scan)
        if not is_here:  # the filter may have run in another process
            rows = page.rows
            seen[:] = await work.run(lambda: list(map(form.load, rows)))  # noqa: B023 (run at once)
        yield page.rows, seen
        seen.clear()
        if left is not None:
            left -= len(page.rows)
        continuation = page.continuation
        if continuation is None or left == 0:
            return


async def ordered(
    call: Call, container: Container, wanted: Wanted, sort: Sort, *, most: int | None
) -> AsyncIterator[list[Found]]:
    """In the order of a sort, no more than may be needed: off an index that has it, or sorted here within what a sort
    may hold."""
    if container.recording is not None:
        notes.describe_order([(field_path(each.path), each.is_descending) for each in sort.fields])
    selection = sorted_selection(wanted, sort, most)
    container = await call.scoped(container, wanted.target.key)
    if selection is not None and await has_order(container, selection):
        options = FeedOptions(key=wanted.target.key or None, form=BSON)
        async for found in _walked(call, container, selection, options, wanted.page_items):
            yield found
        return
    held = Held(sort.key, most)
    async for found in pages(call, container, wanted._replace(most=None)):
        held.add(found)
    yield held.sorted()


async def some(call: Call, container: Container, wanted: Wanted) -> AsyncIterator[list[Found]]:
    """In any order, no more than are wanted. Of a stretch of an index only so much is read, in the index's order;
    capped collections have an order of their own."""
    selection = None
    if wanted.most is not None and not wanted.target.key and container.schema.cap is None:
        selection = document_queries.index_range_selection(wanted.condition, wanted.matcher, wanted.most)
    if selection is not None:
        scoped = await call.scoped(container, wanted.target.key)
        if await has_order(scoped, selection):
            left = wanted.most or 0
            for each in list(scoped.map.ranges):  # one after the other: partitions that are not needed are not charged
                options = FeedOptions(epk_range=(each.low, each.high), form=BSON)
                rest = document_queries.taking(selection, left)
                async for found in _walked(call, scoped, rest, options, wanted.page_items):
                    left -= len(found)
                    yield found
                if left == 0:
                    return
            return
    async for found in pages(call, container, wanted):
        yield found


async def _walked(
    call: Call, container: Container, selection: DocumentSelection, options: FeedOptions, page_items: int
) -> AsyncIterator[list[Found]]:
    walk = SortedReading(call.account, container, selection, options)
    while not walk.is_done:
        call.check_time()
        page = await walk.page(min(selection.take or page_items, page_items))
        call.examine(page.counters.items_loaded, page.charge_ru, is_keyed=True)
        yield [Found(row) for row in page.rows]


def sorted_selection(wanted: Wanted, sort: Sort, most: int | None) -> DocumentSelection | None:
    """The selection for an index with this order; None: no index can have it."""
    if not sort.is_plain or wanted.target.is_point:
        return None
    fields = [(each.path, each.is_descending) for each in sort.fields]
    return document_queries.sorted_selection(wanted.condition, wanted.matcher, fields, most)


class Held:
    """A sort in memory, of the first `most` documents or of all."""

    def __init__(self, key: Callable[[Document], Any], most: int | None) -> None:
        self._key = key
        self._most = most
        self._rows: list[tuple[Any, int, Found]] = []
        self._count = 0
        self._bytes = 0

    def add(self, page: list[Found]) -> None:
        for found in page:
            self._count += 1
            self._bytes += len(found.encoded) + _ROW_BYTES
            work.spend(20)
            self._rows.append((self._key(found.document), self._count, Found(found.encoded)))
        if self._most is not None and len(self._rows) > 2 * self._most + _PAGE_ITEMS:
            self._cut()
        if self._bytes > limits.MONGO_STAGE_BYTES_MAX:
            self._cut()
            if self._bytes > limits.MONGO_STAGE_BYTES_MAX:
                raise refusal(
                    292,
                    f"Sort exceeded memory limit of {limits.MONGO_STAGE_BYTES_MAX} bytes, and there is no external "
                    "sort. Filter, limit, or sort by an index.",
                )

    def _cut(self) -> None:
        self._rows = sorted_values(self._rows, _place)
        if self._most is not None:
            del self._rows[self._most :]
            self._bytes = sum(len(found.encoded) + _ROW_BYTES for _, _, found in self._rows)

    def sorted(self) -> list[Found]:
        self._cut()
        return [found for _, _, found in self._rows]


def _place(row: tuple[Any, int, Found]) -> tuple[Any, int]:
    return row[0], row[1]


async def newest_first(call: Call, container: Container, wanted: Wanted) -> AsyncIterator[list[Found]]:
    """What was stored last comes first: read backwards where there is one partition, else within what a sort may
    hold."""
    container = await call.scoped(container, wanted.target.key)
    if container.key is not None or wanted.target.is_point:
        held = Held(lambda _document: 0, None)
        async for found in pages(call, container, wanted._replace(most=None)):
            held.add(found)
        yield held.sorted()[::-1]
        return
    number: int | None = None
    while True:
        call.check_time()
        page = await tailing.read_before(container, number)
        call.examine(len(page.documents), page.charge_ru, is_keyed=False)
        if page.is_end:
            return
        number = page.number
        yield [found for found in map(Found, page.documents) if wanted.matcher.matches(found.document)]


async def near_first(
    call: Call, container: Container, wanted: Wanted, *, most: int | None
) -> AsyncIterator[list[Found]]:
    """The order of `$near`: nearest first."""
    near = wanted.matcher.near
    assert near is not None
    held = Held(lambda document: near.distance(document) or 0.0, most)
    async for page in pages(call, container, wanted._replace(most=None)):
        held.add(page)
    yield held.sorted()


async def winning_plan(container: Container, wanted: Wanted, sort: Sort | None) -> Document:
    """Nested stages with MongoDB's names; `account/collections/document_queries.py` chooses the index.
    `sorts`: they give documents in the order of the sort."""
    if wanted.target.is_point:
        return {"stage": "IDHACK"}
    sorting = sorted_selection(wanted, sort, None) if sort is not None else None
    chosen = await document_queries.choose_index(container, wanted.condition, sorting)
    if chosen is not None:
        definition = next(each for each in all_definitions(container) if each["name"] == chosen.name)
        scan = _index_scan(definition, chosen.is_multikey, is_reverse=chosen.is_reverse)
        scan["indexBounds"] = {
            path: ["(by the filter)"] if path in chosen.filtered_fields else ["[MinKey, MaxKey]"]
            for path in definition["key"]
        }
        return {"stage": "FETCH", "inputStage": scan, "sorts": chosen.sorts}
    if wanted.target.id_value is not MISSING or document_queries.names_ids(wanted.condition):
        return {"stage": "FETCH", "inputStage": _index_scan(definitions(container)[0], False, is_reverse=False)}
    if _uses_shard_key(container, wanted):
        return {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "indexName": "shard key", "direction": "forward"}}
    return {"stage": "COLLSCAN", "direction": "forward"}


def _uses_shard_key(container: Container, wanted: Wanted) -> bool:
    return container.key is not None and wanted.target.key is not None


def _index_scan(definition: Document, is_multikey: bool, *, is_reverse: bool) -> Document:
    return {
        "stage": "IXSCAN",
        "keyPattern": definition["key"],
        "indexName": definition["name"],
        "isMultiKey": is_multikey,
        "isUnique": bool(definition.get("unique", False)) or definition["name"] == "_id_",
        "isSparse": bool(definition.get("sparse", False)),
        "isPartial": "partialFilterExpression" in definition,
        "indexVersion": 2,
        "direction": "backward" if is_reverse else "forward",
    }
