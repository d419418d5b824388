"""How a query finds its items in one partition: candidates by rid, by key, in an order or by their scores, and what of
an item decides whether it is one. `execution.py` makes pages of them; which index is asked is chosen by
`access_path.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any, Final, Literal, NamedTuple

from armillary import limits
from armillary.model.documents import Form
from armillary.model.encoding import FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.model.values import UNDEFINED
from armillary.query.access.access_path import (
    Candidate,
    Index,
    Scope,
    Statistics,
    all_items,
    candidates,
    loaded,
    loaded_batches,
    matching_rids,
    present,
)
from armillary.query.access.field_order import FieldWalk, is_served
from armillary.query.access.index_only import distinct_rids, is_distinct_by_index
from armillary.query.access.ordered_access import OrderedWalk, Sorter, Start
from armillary.query.access.ranked_access import RankedItems
from armillary.query.conditions import ALL
from armillary.query.page import START, Counters, Position, Progress
from armillary.query.selection import Ordering, Selection
from armillary.storage.engine import View
from armillary.work import current, end_item, spend

IsLive = Callable[[ItemHeader], bool]
IsDue = Callable[[], bool]

CHECK_TIME_EVERY: Final = 32  # items between two looks at the clock
LARGE_BYTES: Final = 4 * limits.KB  # of items whose size counts as work, and whose rows may be large
ITEM_UNITS: Final = 20  # of work for a small item
LOADED_UNIT_BYTES: Final = 24  # of JSON that is read for one unit of work


class ItemSearch:
    def __init__(
        self,
        selection: Selection,
        scope: Scope,
        index: Index,
        is_live: IsLive | None,
        statistics: Statistics | None,
        progress: Progress | None,
        form: Form,
    ) -> None:
        self._selection = selection
        self.form = form
        self._statistics = statistics
        self._scope = scope
        self._index = index
        self._is_live = is_live
        # A walk by key keeps to its scope by itself.
        self._needs_header = is_live is not None or not (scope.is_whole or selection.by_key)
        self.progress = progress or Progress(skip=selection.skip, take=selection.take)
        self._sorter: Sorter | None = None
        self._field_ordering: Ordering | None = None  # that positions are by, once an index has been chosen
        self._ranked_items: RankedItems[int] | None = None
        if selection.ranking is not None:
            self._ranked_items = RankedItems(selection.ranking, self._rows_max)
        self._is_distinct = is_live is None and is_distinct_by_index(selection, scope, index)
        self._is_matching = False  # the index has told that all candidates meet the filter

    @property
    def _after_rid(self) -> int:
        position = self.progress.position
        return position.rid - 1 if position.given else position.rid

    def _matching_rids(self, view: View) -> Iterator[int] | Literal["too many"] | None:
        selection = self._selection
        if not selection.is_exact:
            return None
        return matching_rids(view, selection.condition, self._scope, self._index, self._after_rid)

    def _unordered(
        self, view: View, rids: Iterator[int] | Literal["too many"] | None, max_items: int, counters: Counters
    ) -> Iterator[Candidate]:
        """`rids`: of the items that are known to meet the filter."""
        self._is_matching = False
        if rids is None:
            place = self._scope, self._index, self._after_rid, max_items, counters
            return candidates(view, self._selection.condition, *place)
        if isinstance(rids, str):  # too many, which `candidates` would only find out again
            counters.is_full_scan = True
            return all_items(view, self._after_rid)
        self._is_matching = True
        return loaded(view, zip(repeat(b""), rids), max_items)

    def _distinct_rids(self, view: View) -> list[int] | None:
        """The items that DISTINCT needs to look at; None: all."""
        after_rid, most = self.progress.position.rid, limits.QUERY_GATHER_MAX // 10
        rids = distinct_rids(view, self._selection, self._statistics, after_rid, most)
        self._is_distinct = rids is not None  # so as not to try again in every slice
        return rids

    def _ordered(self, view: View, max_items: int, is_due: IsDue, counters: Counters) -> Iterator[Candidate] | None:
        """Candidates in the order asked for; None while they are still being sorted."""
        selection = self._selection
        assert selection.ordering is not None
        position = self.progress.position
        start = Start(position.order, position.rid, position.given > 0)
        if self._sorter is None and selection.ordering.fields:
            served = is_served(view, selection.ordering, selection.condition, self._scope, self._index)
            if served is not None and self._places_as(served.ordering, position):
                return FieldWalk(view, served, self._scope, self.form).candidates(start, max_items)
            self._sorter = Sorter(self._field_ordering or selection.ordering, self._rows_max, start)
        elif self._sorter is None:
            walk = OrderedWalk(view, selection, self._scope, self._index, self.form)
            if walk.is_served:
                is_everywhere = False
                if walk.path is not None and self._statistics is not None:
                    is_everywhere = self._statistics.is_everywhere(view, walk.path)
                return walk.candidates(start, max_items, is_path_everywhere=is_everywhere)
            self._sorter = Sorter(selection.ordering, self._rows_max, start)
        sorter = self._sorter
        if not sorter.is_sorted:
            plain = Counters()
            found = candidates(
                view, selection.condition, self._scope, self._index, sorter.last_rid, limits.PAGE_ITEMS_MAX, plain
            )
            run = current()
            before_bytes = run.made_bytes
            for examined, (_, rid, stored) in enumerate(found, 1):
                if run.made_bytes != before_bytes:
                    end_item(run, before_bytes)
                document = self._kept(stored) if stored is not None else None
                sorter.add(rid, document if document is not None and self._has_row(document) else None)
                if examined % CHECK_TIME_EVERY == 0 and is_due():
                    return None
            sorter.finish()
        return loaded(view, sorter.after(start), max_items)

    def _places_as(self, ordering: Ordering, position: Position) -> bool:
        """Whether an index's order can be followed: positions are by the order that the first page had."""
        if self._field_ordering is None and position == START:
            self._field_ordering = ordering
        return self._field_ordering is not None and self._field_ordering.fields == ordering.fields

    def _ranked(self, view: View, is_due: IsDue, counters: Counters) -> Iterator[Candidate] | None:
        """Candidates by their scores, those that were not yet given; None while they are still being scored."""
        selection, items = self._selection, self._ranked_items
        assert selection.ranking is not None and items is not None
        if not items.is_ranked:
            condition = ALL if selection.ranking.needs_all else selection.condition
            plain = Counters()
            found = candidates(view, condition, self._scope, self._index, items.last_rid, limits.PAGE_ITEMS_MAX, plain)
            run = current()
            before_bytes = run.made_bytes
            for examined, (_, rid, stored) in enumerate(found, 1):
                if run.made_bytes != before_bytes:
                    end_item(run, before_bytes)
                items.last_rid = rid
                document = self._kept(stored) if stored is not None else None
                if document is not None and stored is not None:
                    items.counters.load(payload_of(stored))
                    items.add(rid, document, self._has_row(document))
                if examined % CHECK_TIME_EVERY == 0 and is_due():
                    return None
            items.finish()
            # All at once, so that the same query costs the same however it is cut.
            counters.items_loaded += items.counters.items_loaded
            counters.bytes_loaded += items.counters.bytes_loaded
            counters.items_missed += items.counters.items_loaded - items.left
        return loaded(view, ((b"", rid) for rid in items.rest()), 1)

    @property
    def _rows_max(self) -> int | None:
        """How many items are needed at most; None: it cannot be told before their rows are made."""
        selection, take = self._selection, self.progress.take
        stage = selection.stages[0]
        if take is None or len(selection.stages) > 1 or not stage.is_streaming or stage.rows is not None:
            return None
        return self.progress.skip + take

    def _has_row(self, document: Any) -> bool:
        """Whether an item may give a row; exactly, where it gives one at most."""
        stage = self._selection.stages[0]
        if stage.predicate is not None and not stage.predicate(document):
            return False
        return stage.project is None or stage.is_sure or stage.project(document) is not UNDEFINED

    def _kept(self, stored: bytes) -> Any:
        """The document of an item that is in the scope and has not expired; None for others."""
        spend(ITEM_UNITS if len(stored) <= LARGE_BYTES else len(stored) // LOADED_UNIT_BYTES)
        if self._needs_header and not self._is_wanted(stored):
            return None
        return self.form.load(self.form.text(stored))

    def _is_wanted(self, stored: bytes) -> bool:
        header = unpack_header(stored)
        return self._scope.holds(header.epk) and (self._is_live is None or self._is_live(header))


class StoredRows(NamedTuple):
    """Rows that are items as they are stored: of a filter that the index has told exactly. They are read and counted in
    batches, without a look into each."""

    rows: list[bytes]
    size_bytes: int
    last_rid: int  # of the last row; -1: there is none
    is_last: bool  # nothing follows
    rest: Iterator[Candidate] | None  # to be looked at one by one: they must be converted, or more than fit


def stored_rows(
    view: View, rids: Iterator[int], max_items: int, max_bytes: int, is_due: Callable[[], bool]
) -> StoredRows:
    """The items with these rids until there are enough of them or time is up."""
    rows: list[bytes] = []
    size_bytes, last_rid = 0, -1
    places = zip(repeat(b""), rids)
    for batch, items in loaded_batches(view, places, max_items):
        found = [item for item in items if item is not None]
        more = list(map(payload_of, found))
        more_bytes = sum(map(len, more))
        if (
            any(item[0] != FORMAT_JSON for item in found)
            or size_bytes + more_bytes > max_bytes
            or len(rows) + len(more) > max_items
        ):
            rest = chain(present(batch, items), loaded(view, places, max_items))
            return StoredRows(rows, size_bytes, last_rid, False, rest)
        rows += more
        size_bytes += more_bytes
        last_rid = batch[-1][1]
        spend(len(batch) * ITEM_UNITS)
        if is_due():
            return StoredRows(rows, size_bytes, last_rid, False, None)
    return StoredRows(rows, size_bytes, last_rid, True, None)
