"""The ordered merge: rows of several partitions, each of which gives its own in order, become one sequence in that
order (a k-way merge with a heap). Each partition is a lane that has a run of rows read ahead; the next row is known
once every lane has one at hand or is at its end.

Used by queries that are answered in their final form (`gather.py`), by pages of a partition that was split while it was
read, and by cursors that are kept in memory (both in `account/queries`). How a lane is read, and how many rows at a
time, is for them to say. Lanes may be added while the merge runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from armillary.query.page import Page, Position

_INVERTED = bytes(255 - byte for byte in range(256))


class RowSource(Protocol):
    """Rows of one partition in order."""

    async def read(self, max_items: int, max_bytes: int) -> Page:
        """The next rows, perhaps none, in a short time; a position of None: nothing comes after them."""


Source = TypeVar("Source", bound=RowSource)


class Lane(Generic[Source]):
    """A source, and the rows that were read ahead of it."""

    __slots__ = ("at", "is_ended", "number", "positions", "rows", "source")

    def __init__(self, source: Source, number: int) -> None:
        self.source = source
        self.number = number  # among equal rows those of the lower number come first
        self.rows: Sequence[bytes] = ()
        self.positions: Sequence[Position] = ()
        self.at = 0  # the next row
        self.is_ended = False  # there are no rows but those read ahead

    @property
    def has_row(self) -> bool:
        return self.at < len(self.rows)


class OrderedMerge(Generic[Source]):
    """Merges lanes by the order in `Page.positions`. As long as `is_waiting`, the next row is not known, and `fill`
    must be called."""

    def __init__(self, sources: Iterable[Source] = (), *, is_descending: bool = False) -> None:
        self._is_descending = is_descending
        self._added = 0
        self._waiting: list[Lane[Source]] = []  # that have no row at hand and are not at their end; next one last
        self._heap: list[tuple[bytes, int, Lane[Source]]] = []  # by the rank of each lane's next row
        self.lanes: list[Lane[Source]] = []
        for source in sources:
            self.add(source)

    def add(self, source: Source) -> None:
        """One more lane, which is filled after those that wait already."""
        lane = Lane(source, self._added)
        self._added += 1
        self.lanes.append(lane)
        self._waiting.insert(0, lane)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> Lane[Source]:
        """The lane that `fill` reads next."""
        return self._waiting[-1]

    @property
    def is_ended(self) -> bool:
        """Whether there are no more rows. False does not promise one."""
        return not self._waiting and not self._heap

    async def fill(self, max_items: int, max_bytes: int) -> Page:
        """Read on in one lane that has no row at hand. Returns what was read, perhaps no rows."""
        lane = self._waiting[-1]
        page = await lane.source.read(max_items, max_bytes)
        assert len(page.positions) == len(page.rows), "rows without their order"
        lane.rows, lane.positions, lane.at = page.rows, page.positions, 0
        lane.is_ended = page.position is None
        if page.rows:
            heapq.heappush(self._heap, (self.rank(page.positions[0].order), lane.number, lane))
        if page.rows or lane.is_ended:
            self._waiting.pop()
        return page

    @property
    def first(self) -> bytes | None:
        """The next row; None: there is none. Only when no lane waits."""
        if not self._heap:
            return None
        lane = self._heap[0][2]
        return lane.rows[lane.at]

    @property
    def first_lane(self) -> Lane[Source]:
        """The one that the next row is of."""
        return self._heap[0][2]

    @property
    def first_order(self) -> bytes:
        """Where the next row stands."""
        lane = self._heap[0][2]
        return lane.positions[lane.at].order

    def take(self) -> bytes:
        """The next row, which is no longer at hand then. Only when no lane waits."""
        _, number, lane = self._heap[0]
        at = lane.at
        lane.at = at + 1
        if at + 1 < len(lane.rows):
            heapq.heapreplace(self._heap, (self.rank(lane.positions[at + 1].order), number, lane))
        else:
            heapq.heappop(self._heap)
            if not lane.is_ended:
                self._waiting.append(lane)
        return lane.rows[at]

    def take_rows(self, max_items: int, max_bytes: int) -> list[bytes]:
        """The next rows, as many as are known: until a lane waits, or there are enough."""
        rows: list[bytes] = []
        size_bytes = 0
        while self._heap and not self._waiting and len(rows) < max_items and size_bytes < max_bytes:
            row = self.take()
            rows.append(row)
            size_bytes += len(row)
        return rows

    def rank(self, order: bytes) -> bytes:
        """An order of a position as it is compared: the lesser comes first."""
        # No order begins with another, so inverting the bytes turns the order round.
        return order.translate(_INVERTED) if self._is_descending else order

    def drop_ended(self) -> None:
        """Forget lanes that have no more rows."""
        self.lanes = [lane for lane in self.lanes if lane.has_row or not lane.is_ended]
