"""Rows of a whole container in an order, merged off the partitions: for cursors that are kept in memory. Each partition
gives short runs of rows with their places; whichever comes first is given next. A partition that is split or merged
meanwhile is left for those that took its place, from where it was read to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.item_pages import FeedOptions, PageAnswer
from armillary.account.queries.partition_slices import Slice, count_rows, count_work
from armillary.account.visits.page_charges import Bill
from armillary.errors import Failure, Kind
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.partition.budget import QUERY_DEPOSIT
from armillary.query.access.access_path import Counters
from armillary.query.access.field_access import several_in
from armillary.query.access.field_order import served_order
from armillary.query.gather import partial
from armillary.query.selection import Selection
from armillary.storage.engine import View


async def has_order(container: Container, selection: Selection) -> bool:
    """Whether an index of the collection has the order of a selection, so that nothing needs to be held and sorted."""
    ordering, policy = selection.ordering, container.schema.rules.indexing
    if ordering is None or not ordering.fields or not policy.fields or container.is_restating:
        return False
    for partition in container.partitions.values():

        def is_served(view: View) -> bool:
            return served_order(ordering, selection.condition, policy, several_in(view)) is not None

        if not await partition.read(is_served):
            return False
    return True


class _Lane:
    """What was read ahead of one stretch."""

    __slots__ = ("is_begun", "rows", "slice", "work")

    def __init__(self, slice_: Slice | None) -> None:
        self.slice = slice_  # None: all of it was read
        self.rows: deque[tuple[bytes, bytes]] = deque()  # place and row
        self.is_begun = False
        self.work = QueryWork()  # not paid for yet


class SortedReading:
    """A selection with an ordering, at work."""

    def __init__(self, account: Account, container: Container, selection: Selection, options: FeedOptions) -> None:
        assert selection.ordering is not None and selection.is_streaming
        self._account = account
        self._container = container
        self._options = options
        self._selection = partial(selection)
        self._skip, self._take = selection.skip, selection.take
        self._lanes = [_Lane(each) for each in self._slices(options)]
        self._payers: list[_Lane] = []  # of the page that is being read
        self._work = QueryWork()
        self._counters = Counters()
        self._loaded_bytes = 0
        if not self._lanes:
            self._work.partitions_begun = 1  # what nothing can meet has been looked at all the same

    def _slices(self, options: FeedOptions) -> list[Slice]:
        return item_pages.selection_slices(self._account, self._container, self._selection, options)

    @property
    def is_done(self) -> bool:
        return self._take == 0 or all(lane.slice is None and not lane.rows for lane in self._lanes)

    async def page(self, max_items: int, max_bytes: int = limits.PAGE_BYTES_MAX) -> PageAnswer:
        """The next rows, with what they cost; none only at the end, or where many items must be looked at for one."""
        bill = Bill(self._options.ask, None)
        anyone = next(iter(self._container.partitions.values()))
        try:
            rows = await self._read(bill, max_items, max_bytes)
        except Failure as failure:
            raise bill.charge(failure, anyone) from None
        work, self._work = self._work, QueryWork()
        counters, self._counters = self._counters, Counters()
        self._loaded_bytes = count_rows(work, rows, self._loaded_bytes)
        shares = []
        for lane in self._payers:
            shares.append(charges.query_page_ru(lane.work))
            lane.work = QueryWork()
        charge_ru = bill.pay_shares(charges.query_page_ru(work, self._options.read_factor), shares, anyone)
        self._lanes = [lane for lane in self._lanes if lane.slice is not None or lane.rows]
        lsns = [(each.range.id, each.lsn) for each in self._container.partitions.values()]
        return PageAnswer(rows, None, charge_ru, lsns, work, counters)

    async def _read(self, bill: Bill, max_items: int, max_bytes: int) -> list[bytes]:
        for lane in list(self._lanes):
            if lane.slice is not None:
                self._present(lane)
        self._payers = [lane for lane in self._lanes if lane.slice is not None]
        for lane in self._payers:
            assert lane.slice is not None
            bill.enter(lane.slice.partition, QUERY_DEPOSIT)
        begun_s = self._account.clock.elapsed_s()
        rows: list[bytes] = []
        size_bytes = 0
        while self._take != 0 and len(rows) < max_items:
            while (empty := next((each for each in self._lanes if not each.rows and each.slice), None)) is not None:
                await self._fill(empty, max_items - len(rows))
                if rows and self._account.clock.elapsed_s() - begun_s > limits.PAGE_SECONDS_MAX:
                    return rows
                if self._account.clock.elapsed_s() - begun_s > limits.QUERY_SECONDS_MAX:
                    raise Failure(
                        Kind.TIMED_OUT,
                        f"The sort takes longer than {limits.QUERY_SECONDS_MAX:.0f} seconds. Filter more, or index "
                        "what it filters and sorts by.",
                    )
            first = min([lane for lane in self._lanes if lane.rows], key=lambda lane: lane.rows[0][0], default=None)
            if first is None:
                break
            row = first.rows[0][1]
            if self._skip:
                self._skip -= 1
            elif rows and size_bytes + len(row) > max_bytes:
                break
            else:
                rows.append(row)
                size_bytes += len(row)
                if self._take is not None:
                    self._take -= 1
            first.rows.popleft()
        return rows

    async def _fill(self, lane: _Lane, wanted: int) -> None:
        """Some more rows of a lane that has none at hand."""
        self._present(lane)
        assert lane.slice is not None
        share = max(1, wanted // len(self._lanes) + 1)
        max_bytes = limits.PAGE_BYTES_MAX // len(self._lanes)
        page, _ = await lane.slice.read(self._account.clock, share, max_bytes)
        lane.rows.extend(zip(page.orders, page.rows, strict=True))
        self._work.partitions_begun += not lane.is_begun
        lane.work.partitions_begun += not lane.is_begun
        lane.is_begun = True
        for work in (self._work, lane.work):
            count_work(work, page.counters)
        lane.work.loaded_bytes += page.counters.bytes_loaded
        self._loaded_bytes += page.counters.bytes_loaded
        self._counters.add(page.counters)
        if page.position is None:
            lane.slice = None
        await asyncio.sleep(0)

    def _present(self, lane: _Lane) -> None:
        """See to it that a lane is on a partition that owns its keys; where several took its place, more lanes are."""
        old = lane.slice
        assert old is not None
        if not old.partition.is_moved:
            return
        options = replace(self._options, key=None, range_id=None, epk_range=(old.low, old.high))
        following = self._slices(options)
        for each in following:
            each.execution.follow(old.execution)
        lane.slice = following[0]
        for each in following[1:]:
            another = _Lane(each)
            another.is_begun = lane.is_begun
            self._lanes.append(another)
