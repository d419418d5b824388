"""Pages of items: read feeds and queries over one logical partition, one physical one, a stretch of the hash space, or
the whole container.

Partitions are read in the order of their ranges (`visits/page_walk.py` has the loop), items inside each in the order of
their creation or of ORDER BY; the continuation token has the position. Work is done in short slices on new snapshots,
so that a long scan does not block other requests. Inside one partition every query is answered in its final form; over
several, those whose rows need only be concatenated. Other queries the client merges: it gets the query plan.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from armillary import limits, work
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries.partition_slices import Slice, count_work, out_of_time, rows_without_items
from armillary.account.queries.split_pages import SplitMerge
from armillary.account.visits.page_walk import FeedOptions, PageWalk, SliceEnd
from armillary.errors import Failure, Kind, Reason, bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.hybrid_search import is_component
from armillary.languages.sql.planning.partition_queries import is_bare_aggregate
from armillary.languages.sql.planning.plan import key_index_paths, query_plan
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.model.encoding import decode_value, encode_value
from armillary.model.keys import NO_KEY, Key
from armillary.model.ranges import KeyRange
from armillary.model.values import UNDEFINED
from armillary.partition.budget import QUERY_DEPOSIT, READ_DEPOSIT
from armillary.query import continuation_token
from armillary.query.access.access_path import Index, Scope
from armillary.query.conditions import Condition, pinned_keys, pinned_points
from armillary.query.continuation_token import Cursor
from armillary.query.execution import Execution
from armillary.query.operators import evaluate
from armillary.query.ordering import check_order
from armillary.query.page import START, Counters, Page, Position, Progress
from armillary.query.row_json import dump_large
from armillary.query.selection import Selection


@dataclass(slots=True)
class PageAnswer:
    rows: list[bytes]  # JSON unless another form was asked for
    continuation: str | None
    charge_ru: float
    lsns: list[tuple[int, int]]  # of the partitions asked: range id, lsn
    work: QueryWork = field(default_factory=QueryWork)  # that was charged
    counters: Counters = field(default_factory=Counters)


async def read_feed(account: Account, container: Container, options: FeedOptions) -> PageAnswer:
    walk = _ItemWalk(account, container, options, Selection(), b"feed", is_feed=True)
    await walk.run("feed")
    return walk.answer()


async def query(
    account: Account, container: Container, bound: BoundQuery, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of a query. `text` is what continuations are bound to: the query and its parameters."""
    selection = bound.selection
    if selection.ordering is not None and bound.has_source:
        check_order(selection.ordering, container.schema.rules.indexing)
    if selection.take is not None and is_component(bound):
        # Python's client takes the first page of a ranking's part for all of it.
        options = replace(options, page_items=max(options.page_items, selection.take))
    walk = _ItemWalk(account, container, options, selection, text)
    if bound.has_source:
        walk.confine(bound.condition)
        if not options.is_cross_partition_allowed and not walk.is_confined:
            raise bad_request(
                "The query needs several partitions, and the request does not allow that.",
                reason=Reason.CROSS_PARTITION_OFF,
            )
        if walk.is_for_clients or (walk.has_several and is_bare_aggregate(bound)):
            plan = query_plan(bound, container.key)
            # A client that does not know the newest range has an old map, and reads it anew before it asks each range.
            newest = container.partitions[max(container.partitions)]
            place = {"range_id": newest.range.id, "lsn": newest.lsn, "container": container}
            raise Failure(
                Kind.CROSS_PARTITION,
                "The client must merge the parts of this query.",
                details={"reason": Reason.CLIENT_MERGES, "plan": plan, **place},
            )
        # As the service's pages of queries are: a client then makes as many requests here as there.
        walk.is_page_of_one = True
        await walk.run("query", faults_max=1)
    else:
        walk.rows = await rows_without_items(bound, account.clock)
        walk.work.partitions_begun = 1
    return walk.answer()


async def select(
    account: Account, container: Container, selection: Selection, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of what any language asks for, where rows of partitions need only be put one after the other. A filter
    that pins one partition key reads that logical partition alone. `text` is what continuations are bound to."""
    assert selection.is_plain, "rows must be merged: see merged_queries.py"
    if container.key is not None and options.key is None:
        keys = pinned_keys(selection.condition, key_index_paths(container.key))
        if keys is not None and len(keys) == 1 and not container.key.is_unsure_of(keys):
            options = replace(options, key=keys[0])
    walk = _ItemWalk(account, container, options, selection, text)
    walk.confine(selection.condition)
    await walk.run("query")
    return walk.answer()


def slices_of(
    account: Account, container: Container, bound: BoundQuery, selection: Selection, options: FeedOptions
) -> list[Slice]:
    """The slices of a query whose rows are merged, each at its beginning. `selection` is what each partition does
    of the query."""
    walk = _ItemWalk(account, container, options, selection, b"")
    walk.confine(bound.condition)
    return walk.find_parts()


def selection_slices(account: Account, container: Container, selection: Selection, options: FeedOptions) -> list[Slice]:
    """The same of what any language asks for."""
    walk = _ItemWalk(account, container, options, selection, b"")
    walk.confine(selection.condition)
    return walk.find_parts()


class _ItemWalk(PageWalk[Slice]):
    """One page of items. Partitions are read one after the other, except where they continue an ordered one that was
    split: then their rows are merged."""

    def __init__(
        self,
        account: Account,
        container: Container,
        options: FeedOptions,
        selection: Selection,
        text: bytes,
        *,
        is_feed: bool = False,
    ) -> None:
        self._selection = selection
        self._is_past = False  # about a range that is gone
        low, high = self._stretch(container, options)
        super().__init__(account, container, options, low, high, READ_DEPOSIT if is_feed else QUERY_DEPOSIT)
        self._points: tuple[tuple[bytes, str], ...] | None = None
        self._wanted: set[int] | None = None  # range ids that can hold an answer; None: all
        self._bound = (text, *self._bound_stretch())
        self._cursor = Cursor((), low)
        if options.continuation is not None:
            self._go_on(options.continuation)
        self._continuation: str | None = None
        self._size_bytes = 0
        self._is_new = False  # nothing was read of the current part, in this page or an earlier one
        self._is_feed = is_feed
        self.is_page_of_one = False  # from one partition only, even if it has no rows
        self.rows: list[bytes] = []
        self.work = QueryWork()
        self._counters = Counters()

    def _stretch(self, container: Container, options: FeedOptions) -> tuple[bytes, bytes]:
        """What the request is about. A range that was split or merged while its rows are being read is what it was:
        Python's client would begin it anew."""
        selection = self._selection
        try:
            return container.stretch(options.key, options.range_id, options.epk_range)
        except Failure:
            is_begun = options.continuation is not None and selection.is_streaming
            is_sequence = selection.ordering is None or selection.is_streaming
            if not is_begun and not (options.is_unaware and is_sequence):
                raise
            past = container.past_stretch(options.range_id or "")
            if past is None and not is_begun:
                raise
        self._is_past = True
        low, high = container.stretch(options.key, None, options.epk_range)
        return (max(low, past[0]), min(high, past[1])) if past is not None else (low, high)

    def _bound_stretch(self) -> tuple[bytes, bytes]:
        """What a continuation is bound to. Not to ranges: clients hand it to those that took the place of one."""
        if self._options.key is not None:
            return self._container.key_range(self._options.key)
        return (self._low, self._high) if self._container.one_key(self._low, self._high) else (b"", b"")

    def _go_on(self, continuation: str) -> None:
        container, range_id = self._container, self._options.range_id
        fingerprint = continuation_token.fingerprint_of(self._bound)
        cursor = continuation_token.decode(continuation, self._account.secret, container.record.rid, fingerprint)
        low, high = max(self._low, cursor.low), min(self._high, cursor.high)
        if low >= high:
            raise continuation_token.bad_token()
        if range_id is not None and not container.has_lineage(range_id, low, high):
            container.partition_by_id(range_id)
        if low > cursor.low:
            cursor = cursor._replace(state=b"")  # of aggregates: the request for the beginning has it
        self._low, self._high, self._cursor = low, high, cursor
        self._bill.epk = container.one_key(low, high)

    @property
    def is_confined(self) -> bool:
        """Whether the request says where to look. A container that has just one partition today may have more
        tomorrow, so its clients must say so too."""
        options, definition = self._options, self._container.key
        if definition is None or options.range_id is not None or options.epk_range is not None:
            return True
        return bool(options.key) or self._wanted is not None or (definition.is_system and options.key == NO_KEY)

    @property
    def is_for_clients(self) -> bool:
        """Whether the client must merge the rows of several partitions, or rank those of a whole container (clients
        refuse rankings without a limit, but only where they merge). A query over a whole container is merged even where
        it has one partition, as with the service: it may have two later. A query that has begun to give rows is
        continued here, also when its partition was split meanwhile."""
        options, selection = self._options, self._selection
        if self._is_past or (options.continuation is not None and selection.is_streaming):
            return False
        if selection.ranking is not None and options.key is None and options.range_id is None:
            return True
        found = self._container.map.overlapping(self._low, self._high)
        wanted = [each for each in found if self._wanted is None or each.id in self._wanted]
        return (len(wanted) > 1 or not self.is_confined) and not selection.is_plain

    @property
    def has_several(self) -> bool:
        """Whether the request is about several partitions, whatever the filter says, and not about a range."""
        return not self._is_past and len(self._container.map.overlapping(self._low, self._high)) > 1

    def confine(self, condition: Condition) -> None:
        """Leave out partitions that cannot hold an answer because the filter pins the partition key."""
        definition = self._container.key
        if definition is None:
            return
        paths = key_index_paths(definition)
        keys = pinned_keys(condition, paths)
        if keys is None or definition.is_unsure_of(keys):
            return
        container = self._container
        places = {self._effective_key(key) for key in keys}
        self._wanted = {container.map.find(epk).id for epk in places}
        if len(places) == 1:
            [self._bill.epk] = places
        points = pinned_points(condition, paths)
        if points is not None:
            self._points = tuple((self._effective_key(key), item_id) for key, item_id in points)

    def _effective_key(self, pinned: Key) -> bytes:
        definition = self._container.key
        assert definition is not None
        if definition.is_system and UNDEFINED in pinned:
            pinned = NO_KEY  # the empty key of a migrated container
        return self._container.effective_key(pinned)

    # Walking.

    async def _fill(self) -> None:
        slices, ordering = self._parts, self._selection.ordering
        if not slices:
            self.work.partitions_begun = 1  # a filter that nothing can meet was evaluated all the same
            self.rows = await work.run(lambda: list(map(dump_large, evaluate(self._selection, []))))
        elif ordering is not None and len(slices) > 1 and self._selection.is_streaming:
            is_descending = ordering.keys[0].is_descending
            await self._fill_in_order(SplitMerge(slices, self._account.clock, is_descending=is_descending))
        else:
            await super()._fill()

    def _enter(self, part: Slice, *, is_first: bool) -> bool:
        self._is_new = part.position == START
        return super()._enter(part, is_first=is_first)

    async def _read_slice(self, index: int) -> SliceEnd:
        current = self._parts[index]
        room = self._options.page_items - len(self.rows)
        # With a full page it is only looked whether anything follows: a page too many is a request too many.
        before = replace(current.execution.progress) if room <= 0 else None
        page, is_out_of_time = await current.read(
            self._account.clock,
            max(room, 1),
            limits.PAGE_BYTES_MAX - self._size_bytes,
            self._begun_s,
            can_end=self._selection.is_streaming,
        )
        if before is not None and page.rows:
            current.execution.progress = before
            return SliceEnd(is_part_read=False, is_page_full=True)
        self._take(page)
        self.work.partitions_begun += self._is_new
        self._is_new = False
        if page.position is not None:
            return SliceEnd(is_part_read=False, is_page_full=len(page.rows) < room and not is_out_of_time)
        is_last = index + 1 == len(self._parts)
        if not is_last:
            done, following = current.execution.progress, self._parts[index + 1].execution.progress
            following.skip, following.take = done.skip, done.take
        return SliceEnd(is_part_read=True, is_page_full=self.is_page_of_one and not is_last)

    async def _fill_in_order(self, merge: SplitMerge) -> None:
        skip, take = self._selection.skip, self._selection.take
        if self._options.continuation is not None:
            skip, take = self._cursor.skip, self._cursor.take
        for index, each in enumerate(self._parts):
            if not self._enter(each, is_first=not index):
                self._stop_in_order(merge, skip, take)
                return
        while take != 0:
            while (page := await merge.fill()) is not None:
                self._take(page._replace(rows=[]))
                if self._seconds() > limits.PAGE_SECONDS_MAX:
                    self._stop_in_order(merge, skip, take)
                    return
            row = merge.first
            if row is None:
                return
            if not skip:
                is_full = len(self.rows) >= self._options.page_items
                if is_full or (self.rows and self._size_bytes + len(row) > limits.PAGE_BYTES_MAX):
                    self._stop_in_order(merge, skip, take)
                    return
                self.rows.append(row)
                self._size_bytes += len(row)
                self.work.returned_ru += charges.read_ru(len(row))
                take = take - 1 if take is not None else None
            skip = max(0, skip - 1)
            merge.take()
            await asyncio.sleep(0)

    def _stop_in_order(self, merge: SplitMerge, skip: int, take: int | None) -> None:
        positions = tuple(continuation_token.Position(each.low, each.high, *each.position) for each in merge.rest())
        self._end_page(Cursor(positions, None, self._cursor.page + 1, skip, take))

    def _is_late(self, part: Slice, seconds: float) -> bool:
        """What cannot be taken up again later goes on, within another limit."""
        if seconds <= limits.PAGE_SECONDS_MAX:
            return False
        if part.execution.can_stop:
            return True
        if seconds > limits.QUERY_SECONDS_MAX:
            raise out_of_time()
        return False

    def find_parts(self) -> list[Slice]:
        """What is left to read, one partition at a time. A position of before a split goes on in all its children."""
        slices = []
        for low, high, after_rid, order, given in self._cursor.positions:
            position = Position(after_rid, order, given)
            slices += self._partitions_of(max(low, self._low), min(high, self._high), position)
        if self._cursor.tail is not None:
            slices += self._partitions_of(max(self._cursor.tail, self._low), self._high, START)
        return slices

    def _partitions_of(self, low: bytes, high: bytes, position: Position) -> list[Slice]:
        slices = []
        schema = self._container.schema
        index = Index(schema.rules.indexing, is_complete=not self._container.is_restating)
        for key_range in self._container.map.overlapping(low, high):
            if self._wanted is not None and key_range.id not in self._wanted:
                continue
            cut_low, cut_high = max(low, key_range.low), min(high, key_range.high)
            partition = self._container.partitions[key_range.id]
            execution = Execution(
                self._selection,
                scope=self._scope_of(cut_low, cut_high, key_range),
                index=index,
                is_live=self._is_live if schema.rules.default_ttl is not None else None,
                statistics=partition,
                progress=self._progress(position),
                form=self._options.form or self._container.form,
            )
            slices.append(Slice(partition, cut_low, cut_high, execution))
        return slices

    def _progress(self, position: Position) -> Progress:
        cursor = self._cursor
        if self._options.continuation is None:
            return Progress(position, self._selection.skip, self._selection.take)
        state = decode_value(cursor.state)[0] if cursor.state else UNDEFINED
        return Progress(position, cursor.skip, cursor.take, state)

    def _scope_of(self, low: bytes, high: bytes, key_range: KeyRange) -> Scope:
        if self._points is not None:
            # The order of the points decides nothing: candidates come in the order of their rids.
            points = tuple(point for point in self._points if low <= point[0] < high)
            return Scope(low, high, points=points)
        if high == low + b"\x00" and low:
            return Scope(low, high, epk=low)
        if low <= key_range.low and high >= key_range.high:
            return Scope()  # all of the partition: no item's key needs to be looked at
        return Scope(low, high)

    def _take(self, page: Page) -> None:
        self.rows += page.rows
        self._size_bytes += page.size_bytes
        work = self.work
        count_work(work, page.counters)
        self._counters.add(page.counters)
        work.returned_ru += charges.rows_ru(page.rows)
        work.loaded_bytes += max(0, page.counters.bytes_loaded - page.size_bytes)

    def _stop_at(self, index: int) -> None:
        """The continuation has the positions of the slices begun, then everything behind them."""
        rest = self._parts[index:]
        positions = tuple(
            continuation_token.Position(each.low, each.high, *each.position) for each in rest if each.position.rid >= 0
        )
        tail = next((each.low for each in rest if each.position.rid < 0), None)
        progress = rest[0].execution.progress
        state = encode_value(rest[0].execution.state) if rest[0].execution.state is not UNDEFINED else b""
        self._end_page(Cursor(positions, tail, self._cursor.page + 1, progress.skip, progress.take, state))

    def _end_page(self, cursor: Cursor) -> None:
        cursor = cursor._replace(low=self._low, high=self._high)
        fingerprint = continuation_token.fingerprint_of(self._bound)
        self._continuation = cursor.encode(self._account.secret, self._container.record.rid, fingerprint)

    def _cost_ru(self) -> float:
        factor = self._options.read_factor
        if self._is_feed:
            return max(float(factor), self.work.returned_ru * factor)
        return charges.query_page_ru(self.work, factor)

    def answer(self) -> PageAnswer:
        charge_ru, lsns = self._settle()
        return PageAnswer(self.rows, self._continuation, charge_ru, lsns, self.work, self._counters)
