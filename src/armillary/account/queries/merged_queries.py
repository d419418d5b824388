"""Queries over several partitions, answered in their final form: for clients that do not merge the rows of partitions
themselves. Reads the partitions in short slices and shares the charge between them; `query/gather.py` merges the rows.

A Gathering keeps its place in memory, so it serves the cursors and streams of one connection. Pages that survive a
restart are `item_pages.py`'s.
"""

from __future__ import annotations

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.item_pages import PageAnswer, slices_of
from armillary.account.queries.merged_slices import MergedSlice, PageWork, charged_page
from armillary.account.queries.partition_slices import Slice, out_of_time, rows_without_items
from armillary.account.visits.page_walk import FeedOptions
from armillary.account.visits.visits import check_session, refused_at
from armillary.clock import Clock
from armillary.errors import Failure, bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.partition_queries import is_unmergeable
from armillary.query.aggregates import too_many
from armillary.query.gather import Gather, partial
from armillary.query.ordering import check_order


def gather(account: Account, container: Container, bound: BoundQuery, options: FeedOptions) -> Gathering:
    """Begin a query over everything that `options` does not leave out. Its pages have no continuation: ask the
    Gathering for the next."""
    if options.continuation is not None:
        raise bad_request("A gathered query goes on where it is; it takes no continuation.")
    selection = bound.selection
    if selection.ordering is not None and bound.has_source:
        check_order(selection.ordering, container.schema.rules.indexing)
    slices = slices_of(account, container, bound, partial(selection), options) if bound.has_source else []
    if options.session is not None:
        for each in slices:
            try:
                check_session(each.partition, options.session)
            except Failure as failure:
                raise refused_at(each.partition, failure, None) from None
    return Gathering(account.clock, container, bound, slices, options)


async def query(
    account: Account, container: Container, bound: BoundQuery, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of a query, as `item_pages.query` gives it. Rows of a grouped or distinct subquery, which clients cannot
    merge, are merged here; like groups they come in one page, within the limits that groups have."""
    is_whole = options.range_id is None and options.epk_range is None and options.continuation is None
    if is_whole and options.is_cross_partition_allowed and bound.has_source and is_unmergeable(bound):
        gathering = gather(account, container, bound, options)
        if gathering.has_several:
            return await gathering.whole()
    return await item_pages.query(account, container, bound, text, options)


class Gathering:
    """A query at work over several partitions."""

    def __init__(
        self, clock: Clock, container: Container, bound: BoundQuery, slices: list[Slice], options: FeedOptions
    ) -> None:
        self._clock = clock
        self._container = container
        self._options = options
        self._slices = slices
        self._page_work = PageWork(slices)
        self._held: list[bytes] | None = None
        self._bound = bound
        self._sources = [MergedSlice(each, clock, self._page_work) for each in slices]
        self._gather = Gather(bound.selection, self._sources)
        self._is_streaming = bound.selection.is_streaming

    @property
    def is_done(self) -> bool:
        if self._bound.has_source:
            return self._gather.is_done
        return self._held is not None and not self._held

    @property
    def has_several(self) -> bool:
        """Whether there is anything to merge."""
        return len(self._slices) > 1

    async def whole(self) -> PageAnswer:
        """All rows in one page."""
        answer = await self.page()
        size_bytes = sum(map(len, answer.rows))
        while not self.is_done:
            more = await self.page()
            size_bytes += sum(map(len, more.rows))
            if size_bytes > limits.QUERY_HELD_BYTES_MAX:
                raise too_many("The answer has", limits.QUERY_HELD_BYTES_MAX, "bytes")
            answer.rows += more.rows
            answer.charge_ru += more.charge_ru
            answer.lsns = more.lsns
            # All items were read for the first row; later pages only return some.
            answer.work.returned_ru += more.work.returned_ru
            answer.work.loaded_bytes += more.work.loaded_bytes
        return answer

    async def page(self) -> PageAnswer:
        """The next rows, with what they cost. Perhaps none, where many items must be looked at for a row."""
        if self._container.faults is not None and self._slices:
            low, high = self._slices[0].low, self._slices[-1].high
            ranges = [each.partition.range for each in self._slices]
            await self._container.faults.over("query", self._container, low, high, ranges)
        answer = await charged_page(self._container, self._options, self._page_work, self._sources, self._read)
        lsns = [(each.partition.range.id, each.partition.lsn) for each in self._slices]
        answer.lsns = list(dict.fromkeys(lsns))
        return answer

    async def _read(self) -> list[bytes]:
        if not self._bound.has_source:
            if self._held is None:
                self._held = await rows_without_items(self._bound, self._clock)
            rows, self._held = self._held[: self._options.page_items], self._held[self._options.page_items :]
            return rows
        begun_s = self._clock.elapsed_s()
        for each in self._sources:
            each.begun_s = begun_s
        while True:
            rows = await self._gather.page(self._options.page_items, is_late=lambda: self._is_late(begun_s))
            # Half a sum is no answer, so what must see all rows first goes on, within another limit.
            if rows or self._gather.is_done or self._is_streaming:
                return rows
            if self._clock.elapsed_s() - begun_s > limits.QUERY_SECONDS_MAX:
                raise out_of_time()

    def _is_late(self, begun_s: float) -> bool:
        return self._clock.elapsed_s() - begun_s > limits.PAGE_SECONDS_MAX
