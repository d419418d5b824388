"""One page of a query over one partition: candidates are loaded, filtered, projected, one after the other, and nothing
is kept but the rows of the page. What is wanted comes in as a Selection from any language; where candidates come from
is `access.py`'s choice, charges and continuations are the caller's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from armillary import limits
from armillary.model import layout
from armillary.model.encoding import FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.model.values import UNDEFINED, Value
from armillary.query.access import Counters, IsIndexed, Scope, count_index_use, find_rids
from armillary.query.conditions import Condition
from armillary.storage.engine import View

IsLive = Callable[[ItemHeader], bool]

_BATCH_ITEMS = 64  # loaded together
_CHECK_TIME_EVERY = 32  # items between two looks at the clock


@dataclass(frozen=True, slots=True)
class Selection:
    """What a query wants, in the terms that all languages share."""

    condition: Condition
    predicate: Callable[[Any], Any] | None = None  # None: every item
    project: Callable[[Any], Value] | None = None  # None: the item as it is stored


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[bytes]  # JSON
    last_rid: int | None  # where the next page goes on; None: there is nothing after this page
    counters: Counters
    size_bytes: int  # of the rows together


def run_page(
    view: View,
    selection: Selection,
    *,
    scope: Scope,
    is_indexed: IsIndexed,
    is_live: IsLive | None = None,
    after_rid: int = -1,
    max_items: int = limits.PAGE_ITEMS_DEFAULT,
    max_bytes: int = limits.PAGE_BYTES_MAX,
    is_due: Callable[[], bool] | None = None,
) -> Page:
    """Rows of items after `after_rid` until the page is full or time is up (`is_due`). A row larger than a page is a
    page of its own, so every page makes progress."""
    counters = Counters()
    count_index_use(selection.condition, is_indexed, counters)
    rows: list[bytes] = []
    size_bytes = 0
    last_rid = after_rid
    predicate, project = selection.predicate, selection.project
    is_whole = predicate is None and project is None
    needs_header = is_live is not None or not scope.is_whole
    examined = 0
    for rid, stored in _candidates(view, selection.condition, scope, is_indexed, after_rid, max_items, counters):
        if len(rows) >= max_items:
            return Page(rows, last_rid, counters, size_bytes)
        examined += 1
        if is_due is not None and examined % _CHECK_TIME_EVERY == 0 and is_due():
            return Page(rows, last_rid, counters, size_bytes)
        if needs_header:
            header = unpack_header(stored)
            if not scope.holds(header.epk) or (is_live is not None and not is_live(header)):
                last_rid = rid
                continue
        assert stored[0] == FORMAT_JSON, "other formats are converted by the door that wrote them"
        payload = payload_of(stored)
        row = payload
        if not is_whole:
            document = orjson.loads(payload)
            value: Value = UNDEFINED
            if predicate is None or predicate(document):
                value = document if project is None else project(document)
            if value is UNDEFINED:
                counters.items_loaded += 1
                counters.bytes_loaded += len(payload)
                last_rid = rid
                continue
            if project is not None:
                row = orjson.dumps(value)
        if rows and size_bytes + len(row) > max_bytes:
            return Page(rows, last_rid, counters, size_bytes)
        counters.items_loaded += 1
        counters.bytes_loaded += len(payload)
        rows.append(row)
        size_bytes += len(row)
        last_rid = rid
    return Page(rows, None, counters, size_bytes)


def _candidates(
    view: View,
    condition: Condition,
    scope: Scope,
    is_indexed: IsIndexed,
    after_rid: int,
    max_items: int,
    counters: Counters,
) -> Iterator[tuple[int, bytes]]:
    rids = find_rids(view, condition, scope, is_indexed, after_rid)
    if rids is None:
        counters.is_full_scan = True
        for key, stored in view.scan(layout.item_key(after_rid + 1), layout.space_end(layout.ITEMS)):
            yield int.from_bytes(key[1:], "big"), stored
        return
    batch_items = max(1, min(max_items, _BATCH_ITEMS))
    while batch := list(islice(rids, batch_items)):
        items = view.get_many([layout.item_key(rid) for rid in batch])
        for rid, item in zip(batch, items, strict=True):
            assert item is not None, "the index names an item that is not there"
            yield rid, item
