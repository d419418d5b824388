"""The way of one page of items through its container: which slices of partitions it reads, from which positions, and
the continuation token that it ends with. The loop over partitions is in `visits/page_walk.py`.

Partitions are read in the order of their ranges, items inside each in the order of their creation or of ORDER BY. Work
is done in short slices on new snapshots, so that a long scan does not block other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from armillary import limits, work
from armillary.account.account import Account
from armillary.account.captures.notes import Note, query_note
from armillary.account.container import Container
from armillary.account.queries.elsewhere.reading_ahead import count_ahead
from armillary.account.queries.elsewhere.slices import SliceElsewhere
from armillary.account.queries.partition_slices import (
    BegunPage,
    GivenPage,
    PageAnswer,
    PageRequest,
    Slice,
    Tally,
    count_work,
    out_of_time,
    place_of,
    position_of,
    shares_of,
)
from armillary.account.queries.positioned_rows import MergedRows, PositionedRows, Reading, SeenRows
from armillary.account.visits.page_walk import FeedOptions, PageWalk, SliceEnd
from armillary.errors import Failure
from armillary.languages.sql.planning.plan import key_index_paths
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.model.encoding import decode_value, encode_value
from armillary.model.keys import NO_KEY, Key
from armillary.model.ranges import KeyRange
from armillary.model.values import UNDEFINED
from armillary.partition.budget import QUERY_DEPOSIT, READ_DEPOSIT
from armillary.partition.meter import NOT_COUNTED
from armillary.partition.operations import Result
from armillary.partition.partition import Partition
from armillary.query import continuation_token
from armillary.query.access.access_path import Index, Scope
from armillary.query.conditions import Condition, pinned_keys, pinned_points
from armillary.query.continuation_token import Cursor
from armillary.query.execution import Execution
from armillary.query.operators import evaluate
from armillary.query.page import START, Counters, Page, Position, Progress
from armillary.query.row_json import dump_large
from armillary.query.selection import Selection

AskWhole = Callable[[Container, Sequence[Slice], PageRequest, FeedOptions], Awaitable[GivenPage | None]]


class ItemWalk(PageWalk[Slice]):
    """One page of items. Partitions are read one after the other, except where their rows are in an order: then they
    are merged."""

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
        self._members: tuple[bytes, ...] | None = None  # effective keys that the filter pins and no index has
        self._text = text
        self._bound = (text, *self._bound_stretch())
        self._cursor = Cursor((), low)
        if options.continuation is not None:
            self._go_on(options.continuation)
        self._begun: BegunPage | None = None
        self._ahead: list[Slice] = []  # that were begun before their turn
        self._is_feed = is_feed
        self.ask_whole: AskWhole | None = None  # asks one other place for the page, if it holds all partitions
        self.is_page_of_one = False  # from one partition only, even if it has no rows
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.rows: list[bytes] = []
        self.work = QueryWork()
        self._counters = Counters()
        self._size_bytes = 0
        self._is_new = False  # nothing was read of the current part, in this page or an earlier one
        # Of partitions whose rows are read together, what each has done for the page.
        self._shares: dict[int, tuple[Slice, QueryWork]] = {}
        self._continuation: str | None = None
        self._given: PageAnswer | None = None  # by the place that holds all partitions of the page

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

    def _bound_stretch(self) -> tuple[bytes, ...]:
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
        if not all(map(self._index.is_indexed, paths)) and all(places):
            self._members = tuple(sorted(places))
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

    async def go_on(self, begun: BegunPage) -> None:
        """`run` for a page that was begun. Nothing is metered of it yet."""
        self._begun, self._parts, self._begun_s = begun, [begun.part], begun.begun_s
        await self._run()

    async def _run(self) -> None:
        try:
            await super()._run()
        finally:
            while self._ahead:
                self._ahead.pop().leave_ahead()

    async def _fill(self) -> None:
        slices, ordering = self._parts, self._selection.ordering
        if not slices:
            self.work.partitions_begun = 1  # a filter that nothing can meet was evaluated all the same
            self.rows = await work.run(lambda: list(map(dump_large, evaluate(self._selection, []))))
        elif ordering is not None and len(slices) > 1 and self._selection.is_streaming:
            skip, take = self._counts
            most = None if take is None else skip + take
            await self._fill_rows(MergedRows(slices, self._reading(most), is_descending=ordering.keys[0].is_descending))
        else:
            await super()._fill()

    def _reading(self, most: int | None = None, *, has_digests: bool = False) -> Reading:
        return Reading(self._account.clock, self._admit, self._begin_ahead, most, has_digests)

    def _read_ahead(self, index: int) -> None:
        progress = self._parts[index].execution.progress
        if self.is_page_of_one or progress.skip or progress.take is not None or self._selection.ordering is not None:
            return
        given, room = len(self.rows), self._options.page_items - len(self.rows)
        # Together they hold what a page may have. One that does not fit is read again in its turn.
        max_bytes = (limits.PAGE_BYTES_MAX - self._size_bytes) // limits.SLICES_AHEAD_MAX
        for part in self._parts[index + 1 : index + 1 + count_ahead(index, given, room)]:
            if part.position == START:
                part.execution.progress.skip, part.execution.progress.take = 0, None
                self._begin_ahead(part, room, max_bytes, is_optional=True)

    def _begin_ahead(self, part: Slice, max_items: int, max_bytes: int, *, is_optional: bool = False) -> None:
        if part.partition.is_elsewhere and part.ticket == NOT_COUNTED:
            part.ticket = self._bill.reserve(part.partition, self._deposit, is_optional=is_optional)
            can_end = is_optional and self._selection.is_streaming
            part.begin_ahead(self._account.clock, max_items, max_bytes, self._begun_s, can_end=can_end)
            self._ahead.append(part)

    def _enter(self, part: Slice, *, is_first: bool) -> bool:
        self._is_new = part.position == START or self._begun is not None
        return super()._enter(part, is_first=is_first)

    async def _read_slice(self, index: int) -> SliceEnd:
        current = self._parts[index]
        room = self._options.page_items - len(self.rows)
        # With a full page it is only looked whether anything follows: a page too many is a request too many.
        before = replace(current.execution.progress) if room <= 0 else None
        if self._begun is not None:
            (_, page, is_out_of_time, _), self._begun = self._begun, None
        else:
            page, is_out_of_time = await current.read(
                self._account.clock,
                max(room, 1),
                limits.PAGE_BYTES_MAX - self._size_bytes,
                self._begun_s,
                can_end=self._selection.is_streaming,
            )
        if before is not None and page.rows:
            current.execution.progress = before
            if current.tally is not None:
                current.tally.returned -= len(page.rows)
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

    async def _fill_rows(self, rows: PositionedRows, seen: SeenRows | None = None) -> None:
        """With rows that are read ahead; OFFSET and LIMIT hold for all of them. `seen`: what DISTINCT leaves out."""
        skip, take = self._counts
        while take != 0:
            while (read := await rows.fill(self._wanted_rows(skip))) is not None:
                self._count(*read)
                seconds = self._seconds()
                if seconds > limits.PAGE_SECONDS_MAX and rows.is_further:
                    self._stop_rows(rows, skip, take, seen)
                    return
                if seconds > limits.QUERY_SECONDS_MAX:
                    raise out_of_time()
                await asyncio.sleep(0)
            row = rows.first
            if row is None:
                return
            if seen is not None and not seen.is_new(rows.first_digest):
                rows.take()
                continue
            if not skip:
                is_full = len(self.rows) >= self._options.page_items
                if is_full or (self.rows and self._size_bytes + len(row) > limits.PAGE_BYTES_MAX):
                    self._stop_rows(rows, skip, take, seen)
                    return
                self.rows.append(row)
                self._size_bytes += len(row)
                self.work.returned_ru += charges.read_ru(len(row))
                take = take - 1 if take is not None else None
            skip = max(0, skip - 1)
            if seen is not None:
                seen.add(rows.first_digest)
            rows.take()

    @property
    def _counts(self) -> tuple[int, int | None]:
        """The rows that OFFSET and LIMIT have left."""
        if self._options.continuation is not None:
            return self._cursor.skip, self._cursor.take
        return self._asked.skip, self._asked.take

    def _wanted_rows(self, skip: int) -> int:
        return max(1, min(self._options.page_items - len(self.rows) + skip, limits.PAGE_ITEMS_MAX))

    def _stop_rows(self, rows: PositionedRows, skip: int, take: int | None, seen: SeenRows | None) -> None:
        self.work.sorted_rows = max(0, self.work.sorted_rows - rows.unread)  # the page that gives them counts them
        rest = rows.rest()
        positions, tail = place_of(rest) if rows.is_concatenated else (tuple(map(position_of, rest)), None)
        cursor = Cursor(positions, tail, self._cursor.page + 1, skip, take)
        if seen is not None and (state := seen.state()) is not None:
            try:
                self._end_page(cursor._replace(state=state))
                return
            except Failure:
                pass  # too long with it: then it is found out again
        self._end_page(cursor)

    def _admit(self, part: Slice) -> None:
        """Enter a partition that is read together with others: they share the charge by the work that each did."""
        part.ticket = self._bill.enter(part.partition, self._deposit, ticket=part.ticket)
        done = QueryWork(partitions_begun=part.position == START)
        self._shares[id(part)] = (part, done)
        self.work.partitions_begun += done.partitions_begun

    def _count(self, part: Slice, page: Page) -> None:
        """Add the work of such a part, without that of returning rows."""
        done = self._shares[id(part)][1]
        for each in (done, self.work):
            count_work(each, page.counters)
        done.loaded_bytes += page.counters.bytes_loaded
        self.work.loaded_bytes += max(0, page.counters.bytes_loaded - page.size_bytes)
        self._counters.add(page.counters)

    def _pay(self, otherwise: Partition) -> float:
        if not self._shares:
            return super()._pay(otherwise)
        weights = [charges.query_page_ru(done) for _, done in self._shares.values()]
        return self._bill.pay_shares(self._cost_ru(), weights, otherwise)

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
        slices: list[Slice] = []
        schema, index = self._container.schema, self._index
        for key_range in self._container.map.overlapping(low, high):
            if self._wanted is not None and key_range.id not in self._wanted:
                continue
            cut_low, cut_high = max(low, key_range.low), min(high, key_range.high)
            partition = self._container.partitions[key_range.id]
            if partition.is_elsewhere:
                where = partition, cut_low, cut_high
                scope, progress = self._scope_of(cut_low, cut_high, key_range), self._progress(position)
                slices.append(SliceElsewhere(self._container, *where, self._selection, scope, progress, self._options))
                continue
            execution = Execution(
                self._selection,
                scope=self._scope_of(cut_low, cut_high, key_range),
                index=index,
                is_live=self._is_live if schema.rules.default_ttl is not None else None,
                statistics=partition,
                progress=self._progress(position),
                form=self._options.form or self._container.form,
            )
            tally = Tally() if self._options.tells_shares else None
            slices.append(Slice(partition, cut_low, cut_high, execution, tally))
        return slices

    @property
    def _index(self) -> Index:
        return Index(self._container.schema.rules.indexing, is_complete=not self._container.is_restating)

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
        members = self._members
        if members is not None:
            members = tuple(epk for epk in members if low <= epk < high)
        if low <= key_range.low and high >= key_range.high:
            return Scope(members=members)  # all of the partition: no item's key needs to be looked at
        return Scope(low, high, members=members)

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
        positions, tail = place_of(rest)
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

    @property
    def _asked(self) -> Selection:
        """What the client asked for."""
        return self._selection

    def _note(self) -> Note:
        rows, loaded = len(self.rows), self._counters.items_loaded
        note = Note("feed" if self._is_feed else "query", Result.READ, 0.0, self._options.key, is_alone=False)
        note.rows, note.size_bytes, note.loaded = rows, sum(map(len, self.rows)), loaded
        note.query = query_note(self._asked, self._options.key)
        return note

    async def _is_given_whole(self) -> bool:
        ask_whole = self.ask_whole
        if ask_whole is None:
            return False
        try:
            given = await ask_whole(self._container, self._parts, self._request(), self._options)
        except Failure as failure:
            self._note_failure(failure)
            raise
        if given is None:
            return False
        answer = self._given = given.answer
        self.rows, self.work, self._counters = answer.rows, answer.work, answer.counters
        self._note_done(answer.charge_ru, given.visited)
        return True

    def _request(self) -> PageRequest:
        return PageRequest(self._asked, self._text, self._is_feed, self.is_page_of_one)

    @property
    def visited(self) -> Sequence[int]:
        """Range ids of the partitions that were entered."""
        return self._visited()

    def answer(self) -> PageAnswer:
        if self._given is not None:
            return self._given
        charge_ru, lsns = self._settle()
        shares = shares_of(self._bill.paid, self._parts) if self._options.tells_shares else []
        return PageAnswer(self.rows, self._continuation, charge_ru, lsns, self.work, self._counters, shares)
