"""The execution of a query in one partition: candidates are loaded, filtered and projected, in slices of time, each on
a new snapshot. Only a position is kept between slices, unless the query must see all rows before it can give one
(groups, DISTINCT) or sorts without an index.

A position is the last item that was looked at: its rid, and with ORDER BY its place in the order. It is valid on other
snapshots, after restarts, and whichever access path `query/access/access_path.py` chooses then. Where one item gives
many rows (JOIN) it has the number of rows that were given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from armillary import limits, work
from armillary.model.documents import PLAIN_JSON, Form
from armillary.model.encoding import FORMAT_JSON, encode_value, payload_of
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.access_path import (
    Candidate,
    Index,
    Scope,
    Statistics,
    count_index_use,
    loaded,
)
from armillary.query.access.composite_access import composed_order
from armillary.query.access.field_order import field_ordering
from armillary.query.access.index_only import CannotTell, IndexAnswer
from armillary.query.access.item_search import (
    CHECK_TIME_EVERY,
    ITEM_UNITS,
    LARGE_BYTES,
    LOADED_UNIT_BYTES,
    IsDue,
    IsLive,
    ItemSearch,
    stored_rows,
)
from armillary.query.access.primary_key_access import KeyedWalk
from armillary.query.join_rows import JoinedItem
from armillary.query.operators import Collector, rows_of
from armillary.query.page import START, Counters, Page, PageEnds, Position, Progress, last_page
from armillary.query.row_json import dump_large
from armillary.query.selection import Selection
from armillary.storage.engine import View
from armillary.work import current, end_item, spend


def _never_due() -> bool:
    return False


class Execution(ItemSearch):
    """One query in one partition, step by step. A step changes the execution, so it is run once."""

    def __init__(
        self,
        selection: Selection,
        *,
        scope: Scope,
        index: Index,
        is_live: IsLive | None = None,
        statistics: Statistics | None = None,
        progress: Progress | None = None,
        form: Form = PLAIN_JSON,
    ) -> None:
        super().__init__(selection, scope, index, is_live, statistics, progress, form)
        self._collector: Collector | None = None
        self._answer: IndexAnswer | None = None
        if not selection.is_streaming:
            self._collector = Collector(selection)
            if self.progress.state is not UNDEFINED:
                self._collector.merge(self.progress.state)
            elif self.progress.position == START:
                has_expiry = is_live is not None
                self._answer = IndexAnswer.of(selection, scope, index, statistics, has_expiry=has_expiry)
        # What a composite index would save. By what is asked and not by how it is done, as all charges.
        ordering = selection.ordering
        self._is_sorting = selection.ranking is not None or (
            ordering is not None
            and not selection.is_order_free
            and len(ordering.keys) == 1
            and not (index.is_complete and composed_order(ordering, selection.condition, index.policy) is not None)
        )
        # Whether a page may end before the item at work: one was done with before it, or rows of it were given.
        self.can_end = False
        self._keyed: KeyedWalk | None = None
        self._item: JoinedItem | None = None
        self.keeps_positions = ordering is not None
        self._positions: list[Position] = []  # of the page's rows
        self._is_index_counted = self.progress.position != START  # an earlier page paid for it

    def follow(self, other: Execution) -> None:
        """Go on where another one is, which ran the same in the partition that was here before."""
        self.progress = replace(other.progress)
        self._field_ordering = other._field_ordering
        self._is_index_counted = other._is_index_counted

    def take_up(self, *, is_index_counted: bool, order_fields: tuple[tuple[str, bool], ...] | None) -> None:
        """Go on where one is that ran the same in another process."""
        self._is_index_counted = self._is_index_counted or is_index_counted
        if order_fields is not None:
            self._field_ordering = field_ordering(order_fields)

    @property
    def order_fields(self) -> tuple[tuple[str, bool], ...] | None:
        """The order of an index that positions are by, once it has been chosen."""
        return self._field_ordering.fields if self._field_ordering is not None else None

    def step(
        self,
        view: View,
        max_items: int = limits.PAGE_ITEMS_DEFAULT,
        max_bytes: int = limits.PAGE_BYTES_MAX,
        is_due: IsDue = _never_due,
    ) -> Page:
        """Rows until the page is full or time is up. A row larger than a page is a page of its own, so every page makes
        progress."""
        counters = Counters()
        if not self._is_index_counted:
            # By the filter and not by the slices, so that the same query costs the same however it is cut.
            self._is_index_counted = True
            count_index_use(self._selection.condition, self._index, counters)
            counters.precise_scans += self._selection.ordering is not None and not self._selection.is_order_free
        meter = self._selection.meter
        joined, called = meter.joined_tuples, meter.user_calls
        page = self._step(view, max_items, max_bytes, is_due, counters)
        counters.joined_tuples += meter.joined_tuples - joined
        counters.user_calls += meter.user_calls - called
        if self._is_sorting:
            counters.sorted_rows += len(page.rows)
        if page.position is not None:
            self.progress.position = page.position
        return page

    def _step(self, view: View, max_items: int, max_bytes: int, is_due: IsDue, counters: Counters) -> Page:
        if self.progress.take == 0:
            return Page([], None, counters, 0)
        if self._answer is not None and self._collector is not None:
            try:
                states = self._answer.step(view, is_due)
                if states is None:
                    return Page([], START, counters, 0)
                self._collector.merge([[[], states]])
                return last_page(self._collector.finish(), counters)
            except CannotTell:
                self._answer = None
        ordering = self._selection.ordering
        if self._selection.ranking is not None:
            ranked = self._ranked(view, is_due, counters)
            if ranked is None:
                return Page([], self.progress.position, counters, 0)
            found = ranked
        elif self._selection.by_key:
            if self._keyed is None:
                self._keyed = KeyedWalk(self._selection, self._scope, self._index)
            found = self._keyed.candidates(view, self.progress.position, max_items)
        elif self._is_distinct and (rids := self._distinct_rids(view)) is not None:
            found = loaded(view, ((b"", rid) for rid in rids), limits.PAGE_ITEMS_MAX)
        elif ordering is None:
            try:
                matching = self._matching_rids(view)
                if isinstance(matching, Iterator) and self._gives_items():
                    return self._item_page(view, matching, max_items, max_bytes, is_due, counters)
                found = self._unordered(view, matching, max_items, counters)
            except PageEnds:
                return self._ended([], None, counters, 0)
        else:
            ordered = self._ordered(view, max_items, is_due, counters)
            if ordered is None:
                return Page([], self.progress.position, counters, 0)
            found = ordered
        if self._collector is not None:
            return self._collect(found, self._collector, is_due, counters)
        if self.progress.take is not None:
            max_items = min(max_items, self.progress.take)
        page = self._page if self._selection.stages[0].rows is None else self._joined_page
        return page(found, max_items, max_bytes, is_due, counters)

    def _gives_items(self) -> bool:
        """Whether rows are items as they are stored, so that those which meet the filter need not be parsed."""
        stages = self._selection.stages
        if len(stages) > 1 or not stages[0].is_bare or self._collector is not None or self.keeps_positions:
            return False
        return self.form.is_json and not self._needs_header and not self.progress.skip

    def _item_page(
        self, view: View, rids: Iterator[int], max_items: int, max_bytes: int, is_due: IsDue, counters: Counters
    ) -> Page:
        """`_page` of items that all meet the filter and are rows as they are stored, in batches."""
        if self.progress.take is not None:
            max_items = min(max_items, self.progress.take)
        found = stored_rows(view, rids, max_items, max_bytes, is_due)
        if found.rest is not None:
            self._is_matching = True
            return self._page(found.rest, max_items, max_bytes, is_due, counters, found.rows, found.last_rid)
        counters.items_loaded += len(found.rows)
        counters.bytes_loaded += found.size_bytes
        self.can_end = self.can_end or found.last_rid >= 0
        at = (found.last_rid, b"") if found.last_rid >= 0 else None
        return self._ended(found.rows, at, counters, found.size_bytes, is_done=found.is_last)

    def _page(
        self,
        found: Iterator[Candidate],
        max_items: int,
        max_bytes: int,
        is_due: IsDue,
        counters: Counters,
        begun: Sequence[bytes] = (),
        begun_at: int = -1,
    ) -> Page:
        """Where an item gives one row at most. The loop that every scan runs in, so what it counts it keeps at hand.
        `begun`: items that the page has already, and the rid of the last of them."""
        stage, progress = self._selection.stages[0], self.progress
        predicate, project = stage.predicate, stage.project
        is_whole = predicate is None and project is None
        is_sure = project is None and self._is_matching
        is_json, text, load, dump, _ = self.form
        needs_header = self._needs_header
        keeps_positions = self.keeps_positions
        at_rid, at_order = begun_at, b""
        rows = list(begun)
        positions = self._positions = []
        size_bytes = loaded_bytes = sum(map(len, rows))
        examined = len(rows)
        missed = passed = 0
        is_done, is_full = False, len(rows) >= max_items
        run = current()
        before_bytes = run.made_bytes
        seen_makings, makings = work.makings[0], work.makings
        can_end, large_bytes = False, LARGE_BYTES
        rid = begun_at
        try:
            for order, rid, stored in found:
                if is_full:
                    break
                examined += 1
                if examined % CHECK_TIME_EVERY == 0:
                    spend(CHECK_TIME_EVERY * ITEM_UNITS)
                    if is_due():
                        examined -= 1
                        break
                if stored is None or (needs_header and not self._is_wanted(stored)):
                    passed += 1
                    at_rid, at_order = rid, order
                    continue
                is_plain = is_json and stored[0] == FORMAT_JSON
                row = payload = payload_of(stored) if is_plain else text(stored)
                payload_bytes = len(payload)
                if not is_whole and not (is_sure and is_plain):
                    if payload_bytes > large_bytes:
                        spend(payload_bytes // LOADED_UNIT_BYTES)
                    document = load(payload)
                    value: Value = UNDEFINED
                    if predicate is None or predicate(document):
                        value = document if project is None else project(document)
                    if value is UNDEFINED:
                        missed += 1
                        loaded_bytes += payload_bytes
                        at_rid, at_order = rid, order
                        if makings[0] != seen_makings:
                            seen_makings = makings[0]
                            end_item(run, before_bytes)
                        if not can_end:
                            can_end = self.can_end = True
                        continue
                    if project is not None:
                        is_small = payload_bytes <= large_bytes and makings[0] == seen_makings
                        row = dump(value) if is_small or not is_json else dump_large(value)
                    if makings[0] != seen_makings:
                        seen_makings = makings[0]
                        end_item(run, before_bytes)
                if progress.skip:
                    progress.skip -= 1
                elif rows and size_bytes + len(row) > max_bytes:
                    examined -= 1
                    break
                else:
                    rows.append(row)
                    size_bytes += len(row)
                    is_full = len(rows) >= max_items
                    if keeps_positions:
                        positions.append(Position(rid, order))
                loaded_bytes += payload_bytes
                at_rid, at_order = rid, order
                if not can_end:
                    can_end = self.can_end = True
            else:
                is_done = True
        except PageEnds:
            examined -= rid != at_rid  # the item at work is for the next page
        counters.items_loaded += examined - passed
        counters.items_missed += missed
        counters.bytes_loaded += loaded_bytes
        at = None if at_rid < 0 else (at_rid, at_order)
        return self._ended(rows, at, counters, size_bytes, is_done=is_done)

    def _joined_page(
        self, found: Iterator[Candidate], max_items: int, max_bytes: int, is_due: IsDue, counters: Counters
    ) -> Page:
        """Where an item may give any number of rows."""
        stage = self._selection.stages[0]
        assert stage.rows is not None
        position = self.progress.position
        at: tuple[int, bytes] | tuple[int, bytes, int] | None = None
        rows: list[bytes] = []
        positions = self._positions = []
        size_bytes = 0
        run = current()
        for examined, (order, rid, stored) in enumerate(found, 1):
            if len(rows) >= max_items:
                return self._ended(rows, at, counters, size_bytes)
            if examined % CHECK_TIME_EVERY == 0:
                spend(CHECK_TIME_EVERY * ITEM_UNITS)
                if is_due():
                    return self._ended(rows, at, counters, size_bytes)
            if stored is None or (self._needs_header and not self._is_wanted(stored)):
                at = rid, order
                continue
            if len(stored) > LARGE_BYTES:
                spend(len(stored) // LOADED_UNIT_BYTES)
            payload = self.form.text(stored)
            item = self._item
            if item is None or item.rid != rid:
                given = position.given if rid == position.rid else 0
                is_small = len(stored) <= LARGE_BYTES
                item = JoinedItem(rid, stage.rows(self.form.load(payload)), given, is_small)
            try:
                size_bytes, is_over = item.give(run, rows, size_bytes, (max_items, max_bytes), is_due, self)
                self._item = item if is_over else None
            except PageEnds:
                # What was joined of the item is joined again for the next page, but for the rows given.
                size_bytes, is_over, self._item = sum(map(len, rows)), True, None
                item.number = max(item.number, item.given)
            if not item.is_counted and (item.number or not is_over):
                item.is_counted = True
                counters.load(payload)
                counters.items_missed += not item.number
            if self.keeps_positions:
                first = item.number - (len(rows) - len(positions)) + 1
                positions += [Position(rid, order, number) for number in range(first, item.number + 1)]
            if is_over:
                at = (rid, order, item.number) if item.number else at
                return self._ended(rows, at, counters, size_bytes)
            at = rid, order
            self.can_end = True
        return self._ended(rows, None, counters, size_bytes, is_done=True)

    def _collect(self, found: Iterator[Candidate], collector: Collector, is_due: IsDue, counters: Counters) -> Page:
        stage = self._selection.stages[0]
        position = self.progress.position
        run = current()
        before_bytes = run.made_bytes
        for examined, (order, rid, stored) in enumerate(found, 1):
            document = self._kept(stored) if stored is not None else None
            if document is not None and stored is not None:
                if self._ranked_items is None:
                    counters.load(payload_of(stored))
                is_missed = True
                for row in rows_of(stage, document):
                    is_missed = False
                    collector.push(row)
                    if run.made_bytes != before_bytes:
                        run.made_bytes = before_bytes  # what groups and rows keep is counted by them
                counters.items_missed += is_missed
                if run.derived is not None:
                    end_item(run, before_bytes)
            position = Position(rid, order)
            if collector.is_full:
                break
            if examined % CHECK_TIME_EVERY == 0 and is_due():
                return Page([], position, counters, 0)
        return last_page(collector.finish(), counters)

    @property
    def has_sorter(self) -> bool:
        return self._sorter is not None

    @property
    def can_stop(self) -> bool:
        """Whether a later request can go on from here."""
        if self._answer is not None:
            return False
        if self._collector is not None:
            if not self._collector.is_small:
                return False
            state = self._collector.state
            return state is not UNDEFINED and len(encode_value(state)) <= limits.QUERY_STATE_BYTES_MAX
        return self._sorter is None or self._sorter.is_sorted

    @property
    def state(self) -> Value:
        """Of half-made groups; UNDEFINED when the query has none, or cannot be taken up again."""
        return self._collector.state if self._collector is not None else UNDEFINED

    def _ended(
        self,
        rows: list[bytes],
        at: tuple[int, bytes] | tuple[int, bytes, int] | None,
        counters: Counters,
        size_bytes: int,
        *,
        is_done: bool = False,
    ) -> Page:
        """`at`: the last item looked at; None: none since the page began."""
        position = self.progress.position if at is None else Position(*at)
        take = self.progress.take
        if take is not None:
            self.progress.take = take - len(rows)
            is_done = is_done or take == len(rows)
        return Page(rows, None if is_done else position, counters, size_bytes, self._positions)
