"""Ordered pages over several slices that began as one: the partition was split while its pages were read, and the
continuation token must say how far each child was read.

Rows are merged one at a time (`query/ordered_merge.py`), so that the position of each slice is that of its last row
given. Queries that begin over several partitions are merged in longer runs (`merged_queries.py`), or by the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary import limits
from armillary.account.queries.partition_slices import Slice
from armillary.clock import Clock
from armillary.query.ordered_merge import OrderedMerge
from armillary.query.page import Page, Position

# Above the rids of all items, as 0 is below: among equals, descending order has the higher rids first.
_LAST_RID = 2**64 - 2


class _PositionedSlice:
    """A slice that remembers where it stood before its last read."""

    def __init__(self, slice_: Slice, clock: Clock) -> None:
        self.slice = slice_
        self.before = replace(slice_.execution.progress)
        self._clock = clock

    async def read(self, max_items: int, max_bytes: int) -> Page:
        self.before = replace(self.slice.execution.progress)
        page, _ = await self.slice.read(self._clock, max_items, max_bytes)
        return page


class SplitMerge:
    """The merge of the children's rows, with the positions of those that were not given."""

    def __init__(self, slices: Sequence[Slice], clock: Clock, *, is_descending: bool) -> None:
        self._is_descending = is_descending
        self._last_order: bytes | None = None  # of the row that was given last
        for each in slices:
            # OFFSET and LIMIT are applied to the merged rows.
            each.execution.progress.skip, each.execution.progress.take = 0, None
        sources = [_PositionedSlice(each, clock) for each in slices]
        self._merge = OrderedMerge(sources, is_descending=is_descending)

    async def fill(self) -> Page | None:
        """Look for the next row of a slice that has none at hand. None: all have one, or are at their end."""
        return await self._merge.fill(1, limits.PAGE_BYTES_MAX) if self._merge.is_waiting else None

    @property
    def first(self) -> bytes | None:
        """The row that comes next; None: there is none. Only when all are filled."""
        return self._merge.first

    def take(self) -> None:
        """The first row was given."""
        self._last_order = self._merge.first_order
        self._merge.take()

    def rest(self) -> list[Slice]:
        """The slices that are left. Each stands before the row that it has at hand, and none before the row given last:
        items that are written before that are out of order now, and not given."""
        rank, last = self._merge.rank, self._last_order
        lanes = self._merge.lanes
        for lane in lanes:
            execution = lane.source.slice.execution
            if lane.has_row:
                execution.progress = lane.source.before
            if last is not None and rank(execution.progress.position.order) < rank(last):
                # It has given nothing of that order yet, so it stands before all of it.
                execution.progress.position = Position(_LAST_RID if self._is_descending else 0, last)
        return [lane.source.slice for lane in lanes if lane.has_row or not lane.is_ended]
