"""Pages that must come in order from several partitions though they began in one: it was split while they were read.

Rows are taken one at a time off the lanes, so that each lane's position is that of its last row given; whoever starts
over several partitions merges longer runs (`merged_queries.py`) or lets the client do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary import limits
from armillary.account.queries.partition_slices import Slice
from armillary.clock import Clock
from armillary.query.execution import Page, Position, Progress
from armillary.query.gather import rank

_LAST_RID = (
    2**64 - 2
)  # above all items' numbers, as 0 is below; among equals those above come first in descending order


@dataclass(slots=True)
class _Lane:
    slice: Slice
    before: Progress  # the row at hand
    row: bytes | None = None
    order: bytes = b""
    is_ended: bool = False  # behind that row


class Lanes:
    def __init__(self, slices: Sequence[Slice], clock: Clock, *, is_descending: bool) -> None:
        self._clock = clock
        self._is_descending = is_descending
        self._last_order: bytes | None = None  # of the row that was given last
        for each in slices:
            # Rows are left out and counted when they are merged, not before.
            each.execution.progress.skip, each.execution.progress.take = 0, None
        self._lanes = [_Lane(each, replace(each.execution.progress)) for each in slices]

    async def fill(self) -> Page | None:
        """Look for the next row of a lane that has none at hand. None: all have one, or are at their end."""
        lane = next((each for each in self._lanes if each.row is None and not each.is_ended), None)
        if lane is None:
            return None
        lane.before = replace(lane.slice.execution.progress)
        page, _ = await lane.slice.read(self._clock, 1, limits.PAGE_BYTES_MAX)
        lane.is_ended = page.position is None
        if page.rows:
            lane.row, lane.order = page.rows[0], page.orders[0]
        return page

    @property
    def first(self) -> bytes | None:
        """The row that comes next; None: there is none. Only when all lanes are filled."""
        lane = self._next
        return lane.row if lane is not None else None

    def take(self) -> None:
        """The first row was given."""
        lane = self._next
        assert lane is not None
        lane.row = None
        self._last_order = lane.order

    @property
    def _next(self) -> _Lane | None:
        return min(
            (each for each in self._lanes if each.row is not None),
            key=lambda each: self._rank(each.order),
            default=None,
        )

    def _rank(self, order: bytes) -> bytes:
        return rank(order, self._is_descending)

    def rest(self) -> list[Slice]:
        """What is left, each lane standing before the row that it has at hand, and none before the row given last:
        what comes into being there is not in the order any more."""
        for lane in self._lanes:
            if lane.row is not None:
                lane.slice.execution.progress = lane.before
            progress, last = lane.slice.execution.progress, self._last_order
            if last is not None and self._rank(progress.position.order) < self._rank(last):
                # It has given nothing of that order yet, so it stands before all of it.
                progress.position = Position(_LAST_RID if self._is_descending else 0, last)
        return [lane.slice for lane in self._lanes if lane.row is not None or not lane.is_ended]
