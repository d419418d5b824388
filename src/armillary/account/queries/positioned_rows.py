"""Rows of several slices as one sequence, for pages that a continuation token goes on from: read ahead in runs, and the
token says how far each slice was given. With ORDER BY the slices are merged (`query/ordered_merge.py`); without it they
come one after the other. `item_walk.py` fills pages from them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import orjson

from armillary import limits, work
from armillary.account.queries.partition_slices import Slice
from armillary.clock import Clock
from armillary.model.encoding import encode_value
from armillary.query.aggregates import too_many
from armillary.query.ordered_merge import OrderedMerge
from armillary.query.page import Page, Position

DIGEST_BYTES = 12  # of a row, by which DISTINCT knows it again
_STATE = b"\x01"  # before the digests, so that none of them is another thing than no state
_DIGEST_UNITS = 30  # of work for the digest of a small row
_LOADED_UNIT_BYTES = 24  # of JSON that is read for one unit of work

# Above the rids of all items, as 0 is below: among equals, descending order has the higher rids first.
_LAST_RID = 2**64 - 2


class ReadAhead(NamedTuple):
    slice: Slice
    page: Page


class Reading(NamedTuple):
    """How slices are read."""

    clock: Clock
    enter: Callable[[Slice], None]  # before one is read for the first time; may refuse
    begin_ahead: Callable[[Slice, int, int], None]  # before its turn, with so many items and bytes
    most: int | None = None  # rows that are wanted of all slices together, if that is known
    has_digests: bool = False


class SeenRows:
    """The rows that DISTINCT has given, by their digests."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def is_new(self, digest: bytes) -> bool:
        return digest not in self._digests

    def add(self, digest: bytes) -> None:
        if len(self._digests) >= limits.QUERY_DISTINCT_MAX:
            raise too_many("DISTINCT finds", limits.QUERY_DISTINCT_MAX, "values")
        self._digests.add(digest)

    def state(self) -> bytes | None:
        """For a continuation token; None: it is too long, and must be found out again."""
        is_long = len(self._digests) * DIGEST_BYTES > limits.QUERY_STATE_BYTES_MAX
        return None if is_long else _STATE + b"".join(sorted(self._digests))

    def restore(self, state: bytes) -> None:
        for at in range(len(_STATE), len(state), DIGEST_BYTES):
            self.add(state[at : at + DIGEST_BYTES])


class PositionedSlice:
    """A slice that remembers where it stood before its last read, and the digests of the rows if they are wanted."""

    def __init__(self, slice_: Slice, reading: Reading) -> None:
        slice_.execution.keeps_positions = True
        self.slice = slice_
        self.before = slice_.position
        self.digests: Sequence[bytes] = ()
        self._reading = reading
        self._is_entered = False
        self.following: Sequence[PositionedSlice] = ()  # those that must be read too before there is a row
        self.is_further = False  # the last read has found that some items give no row

    async def read(self, max_items: int, max_bytes: int) -> Page:
        if not self._is_entered:
            for each in self.following:
                self._reading.begin_ahead(each.slice, max_items, max_bytes)
            self._reading.enter(self.slice)
            self._is_entered = True
        self.before = self.slice.position
        page, _ = await self.slice.read(self._reading.clock, max_items, max_bytes)
        # A sort is lost with its page, and so are rows that were read ahead.
        self.is_further = not page.rows and not self.slice.execution.has_sorter
        if self._reading.has_digests and page.rows:
            self.digests = await work.run(lambda: list(map(_digest, page.rows)))
        return page

    def stand(self, positions: Sequence[Position], at: int) -> None:
        """Go back to where the rows from `at` on, of those read last, are not given."""
        self.slice.execution.progress.position = positions[at - 1] if at else self.before
        if self.slice.tally is not None:
            self.slice.tally.returned -= len(positions) - at


def _digest(row: bytes) -> bytes:
    """Equal for rows that are equal to DISTINCT."""
    work.spend(_DIGEST_UNITS + len(row) // _LOADED_UNIT_BYTES)
    return hashlib.sha256(encode_value(orjson.loads(row))).digest()[:DIGEST_BYTES]


class PositionedRows(ABC):
    """The rows of slices, one at a time."""

    is_concatenated = False

    def __init__(self, slices: Sequence[Slice], reading: Reading) -> None:
        for each in slices:
            # OFFSET and LIMIT are applied to the rows of all of them.
            each.execution.progress.skip, each.execution.progress.take = 0, reading.most
        self._sources = [PositionedSlice(each, reading) for each in slices]
        self.is_further = False  # than when the page began: a row was taken, or items were read that give none

    @abstractmethod
    async def fill(self, wanted: int) -> ReadAhead | None:
        """Read on in a slice that has no row at hand. None: the next row is known, or that there is none."""

    @property
    @abstractmethod
    def first(self) -> bytes | None:
        """The row that comes next; None: there is none. Only when all are filled."""

    @property
    @abstractmethod
    def first_digest(self) -> bytes: ...

    @abstractmethod
    def take(self) -> None:
        """The first row was given, or left out."""

    @abstractmethod
    def rest(self) -> list[Slice]:
        """The slices that are left, each at the position from which the next page reads it."""

    @property
    @abstractmethod
    def unread(self) -> int:
        """How many rows were read ahead and not taken."""


class MergedRows(PositionedRows):
    """In the order that all slices have."""

    def __init__(self, slices: Sequence[Slice], reading: Reading, *, is_descending: bool) -> None:
        super().__init__(slices, reading)
        self._is_descending = is_descending
        self._last_order: bytes | None = None  # of the row that was taken last
        self._merge = OrderedMerge(self._sources, is_descending=is_descending)
        for index, source in enumerate(self._sources, 1):
            source.following = self._sources[index : index + limits.SLICES_AHEAD_MAX]

    async def fill(self, wanted: int) -> ReadAhead | None:
        merge = self._merge
        if not merge.is_waiting:
            return None
        lanes, source = len(merge.lanes), merge.waiting.source
        page = await merge.fill(wanted // lanes + 1, limits.PAGE_BYTES_MAX // lanes)
        self.is_further = self.is_further or source.is_further
        return ReadAhead(source.slice, page)

    @property
    def first(self) -> bytes | None:
        return self._merge.first

    @property
    def first_digest(self) -> bytes:
        lane = self._merge.first_lane
        return lane.source.digests[lane.at]

    def take(self) -> None:
        self._last_order = self._merge.first_order
        self._merge.take()
        self.is_further = True

    def rest(self) -> list[Slice]:
        """None stands before the row taken last: items that are written before that are out of order now, and not
        given. So all positions have one order."""
        rank, last = self._merge.rank, self._last_order
        lanes = self._merge.lanes
        for lane in lanes:
            progress = lane.source.slice.execution.progress
            if lane.has_row:
                lane.source.stand(lane.positions, lane.at)
            if last is not None and rank(progress.position.order) < rank(last):
                # It has given nothing of that order yet, so it stands before all of it.
                progress.position = Position(_LAST_RID if self._is_descending else 0, last)
        return [lane.source.slice for lane in lanes if lane.has_row or not lane.is_ended]

    @property
    def unread(self) -> int:
        return sum([len(lane.rows) - lane.at for lane in self._merge.lanes])


class ConcatenatedRows(PositionedRows):
    """One slice after the other."""

    is_concatenated = True

    def __init__(self, slices: Sequence[Slice], reading: Reading) -> None:
        super().__init__(slices, reading)
        self._open = deque(self._sources)
        self._page: Page | None = None  # of the first that is open
        self._at = 0

    async def fill(self, wanted: int) -> ReadAhead | None:
        while self._page is not None and self._page.position is None and self._at >= len(self._page.rows):
            self._open.popleft()
            self._page = None
        if not self._open or (self._page is not None and self._at < len(self._page.rows)):
            return None
        source = self._open[0]
        self._page, self._at = await source.read(wanted, limits.PAGE_BYTES_MAX), 0
        self.is_further = self.is_further or source.is_further
        return ReadAhead(source.slice, self._page)

    @property
    def first(self) -> bytes | None:
        return self._page.rows[self._at] if self._page is not None and self._open else None

    @property
    def first_digest(self) -> bytes:
        return self._open[0].digests[self._at]

    def take(self) -> None:
        self._at += 1
        self.is_further = True

    def rest(self) -> list[Slice]:
        page = self._page
        if page is not None and self._at < len(page.rows):
            self._open[0].stand(page.positions, self._at)
        elif page is not None and page.position is None:
            self._open.popleft()
        return [each.slice for each in self._open]

    @property
    def unread(self) -> int:
        return len(self._page.rows) - self._at if self._page is not None else 0
