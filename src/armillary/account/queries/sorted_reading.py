"""Rows of a whole container in the order of an index, for cursors that are kept in memory. `query/ordered_merge.py`
merges the rows of the partitions. When a partition is split or merged meanwhile, its successors are read instead, from
the position that it was read to.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.merged_slices import MergedSlice, PageWork, charged_page, read_ahead
from armillary.account.queries.partition_slices import PageAnswer, Slice
from armillary.account.visits.page_walk import FeedOptions, Moved
from armillary.account.visits.uncounted_visits import several_at
from armillary.errors import Failure, Kind
from armillary.query.access.field_access import HasSeveral, several_in
from armillary.query.access.field_order import served_order
from armillary.query.gather import partial
from armillary.query.ordered_merge import OrderedMerge
from armillary.query.selection import Selection


async def has_order(container: Container, selection: Selection) -> bool:
    """Whether an index of the collection has the order of a selection, so that nothing needs to be held and sorted."""
    ordering, policy = selection.ordering, container.schema.rules.indexing
    if ordering is None or not ordering.fields or not policy.fields or container.is_restating:
        return False
    for partition in list(container.partitions.values()):

        def is_served(has_several: HasSeveral) -> bool:
            return served_order(ordering, selection.condition, policy, has_several) is not None

        if partition.is_elsewhere:
            is_in_order = is_served(await several_at(container, partition))
        else:
            is_in_order = await partition.read(lambda view: is_served(several_in(view)))
        if not is_in_order:
            return False
    return True


class SortedReading:
    """A selection with an ordering, at work."""

    def __init__(self, account: Account, container: Container, selection: Selection, options: FeedOptions) -> None:
        assert selection.ordering is not None and selection.is_streaming
        self._account = account
        self._container = container
        self._options = options
        self._selection = partial(selection)
        self._skip, self._take = selection.skip, selection.take
        slices = self._slices(options)
        self._page_work = PageWork(slices)
        # The orders of an index are in its direction already, so the merge is never descending.
        sources = [self._merged(each) for each in slices]
        read_ahead(sources)
        self._merge = OrderedMerge(sources)

    def _slices(self, options: FeedOptions) -> list[Slice]:
        return item_pages.selection_slices(self._account, self._container, self._selection, options)

    def _merged(self, slice_: Slice, *, is_begun: bool = False) -> MergedSlice:
        return MergedSlice(slice_, self._account.clock, self._page_work, is_begun=is_begun)

    @property
    def is_done(self) -> bool:
        return self._take == 0 or self._merge.is_ended

    async def page(self, max_items: int, max_bytes: int = limits.PAGE_BYTES_MAX) -> PageAnswer:
        """The next rows, with what they cost; none only at the end, or where many items must be looked at for one."""
        for lane in list(self._merge.lanes):
            if not lane.is_ended:
                self._replace_moved(lane.source)
        payers = [lane.source for lane in self._merge.lanes if not lane.is_ended]
        answer = await charged_page(
            self._container,
            self._selection,
            self._options,
            self._page_work,
            payers,
            lambda: self._read(max_items, max_bytes),
        )
        self._merge.drop_ended()
        answer.lsns = [(each.range.id, each.lsn) for each in self._container.partitions.values()]
        return answer

    async def _read(self, max_items: int, max_bytes: int) -> list[bytes]:
        merge = self._merge
        begun_s = self._account.clock.elapsed_s()
        rows: list[bytes] = []
        size_bytes = 0
        while self._take != 0 and len(rows) < max_items:
            while merge.is_waiting:
                self._replace_moved(merge.waiting.source)
                lanes = len(merge.lanes)
                try:
                    await merge.fill(max(1, (max_items - len(rows)) // lanes + 1), limits.PAGE_BYTES_MAX // lanes)
                except Moved as moved:
                    await moved.followed()
                    continue
                if rows and self._account.clock.elapsed_s() - begun_s > limits.PAGE_SECONDS_MAX:
                    return rows
                if self._account.clock.elapsed_s() - begun_s > limits.QUERY_SECONDS_MAX:
                    raise Failure(
                        Kind.TIMED_OUT,
                        f"The sort takes longer than {limits.QUERY_SECONDS_MAX:.0f} seconds. Filter more, or index "
                        "what it filters and sorts by.",
                    )
            row = merge.first
            if row is None:
                break
            if self._skip:
                self._skip -= 1
            elif rows and size_bytes + len(row) > max_bytes:
                break
            else:
                rows.append(row)
                size_bytes += len(row)
                if self._take is not None:
                    self._take -= 1
            merge.take()
        return rows

    def _replace_moved(self, moved: MergedSlice) -> None:
        """Where a partition was split or merged, read its successors: one in its lane, others in lanes of their own."""
        old = moved.slice
        if not old.partition.is_moved:
            return
        options = replace(self._options, key=None, range_id=None, epk_range=(old.low, old.high))
        first, *others = self._slices(options)
        for each in (first, *others):
            each.execution.follow(old.execution)
        moved.slice = first
        for each in others:
            self._merge.add(self._merged(each, is_begun=moved.is_begun))
