"""Counting of load by rows: equal parts of a partition's range, in columns of ten seconds. The meter adds each request
to one number of a list; this module closes a column when its time is over and keeps it until the history takes it
(`account/load_history`).

A number of `served` holds requests in its upper and hundredths of request units in its lower bits, so that one addition
counts both.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.model.ranges import KeyRange

_REQUEST_BIT = 44
REQUEST = 1 << _REQUEST_BIT  # one request in a number of `served`; below it are charges: 175,000 million request units
_CHARGED = REQUEST - 1


class RangeRows(NamedTuple):
    """How a partition's range is divided."""

    range: KeyRange
    wanted: int  # the number of rows that it was to be divided into; a very narrow range has fewer
    bounds: tuple[bytes, ...]  # between the rows

    @property
    def row_count(self) -> int:
        return len(self.bounds) + 1

    @property
    def name(self) -> tuple[int, int]:
        """Tells it apart from other divisions of the container."""
        return self.range.id, self.wanted

    @property
    def edges(self) -> list[bytes]:
        return [self.range.low, *self.bounds, self.range.high]


class RowCounts(NamedTuple):
    """What one partition has counted in one column: a number for each row, and as the last one what belongs to no
    key."""

    column: int  # seconds since the epoch, by the seconds of a column
    rows: RangeRows
    requests: list[int]
    charged: list[int]  # hundredths
    refused: list[int]
    would_be_refused: list[int]
    full: list[int]


class LoadRows:
    """Of one meter. Until `divide` is called everything is one row, and columns are only added up."""

    __slots__ = (
        "_charged",
        "_clock",
        "_closed",
        "_column",
        "_full",
        "_over",
        "_refused",
        "_requests",
        "_rows",
        "bounds",
        "ends_s",
        "served",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: RangeRows | None = None
        self._closed: list[RowCounts] = []
        self._column = 0
        self._requests = self._charged = 0  # of the columns that were closed
        self.bounds: tuple[bytes, ...] = ()
        self.served = [0, 0]  # the same list until the rows are divided anew
        self.ends_s = 0.0  # of the open column, in monotonic seconds
        self._begin()
        self._open()

    def _begin(self) -> None:
        count = len(self.bounds) + 2
        self.served[:] = [0] * count
        self._refused = [0] * count
        self._over = [0] * count
        self._full = [0] * count

    # Counting.

    def refuse(self, epk: bytes | None, charged: int) -> None:
        row = self._row(epk)
        self._refused[row] += 1
        self.served[row] += charged + REQUEST

    def exceed(self, epk: bytes | None) -> None:
        """A request is beyond the budget, and is served all the same."""
        self._over[self._row(epk)] += 1

    def fill(self, epk: bytes | None) -> None:
        """A write was refused because its key is full."""
        self._full[self._row(epk)] += 1

    def _row(self, epk: bytes | None) -> int:
        return -1 if epk is None else bisect_right(self.bounds, epk)

    # Columns.

    def divide(self, rows: RangeRows) -> None:
        """Count by these rows from now on."""
        if self._rows == rows:
            return
        self._close()
        self._rows, self.bounds, self.served = rows, rows.bounds, []
        self._begin()
        self._open()

    def _open(self) -> None:
        now_s = self._clock.now_s()
        # A machine's clock may be set back; columns do not go back with it.
        self._column = max(self._column, int(now_s // limits.HISTORY_COLUMN_S))
        end_s = (self._column + 1) * limits.HISTORY_COLUMN_S
        self.ends_s = self._clock.monotonic_s() + end_s - now_s

    def turn(self) -> None:
        """Close the open column if its time is over."""
        if self._clock.monotonic_s() >= self.ends_s:
            self._close()
            self._open()

    def _close(self) -> None:
        if not (any(self.served) or any(self._full) or any(self._over)):
            return
        self._requests, self._charged = self.totals
        if self._rows is not None:
            self._closed.append(self._counts(self._rows))
        self._begin()

    @property
    def totals(self) -> tuple[int, int]:
        """Requests and charges since the beginning."""
        packed = sum(self.served)
        return self._requests + (packed >> _REQUEST_BIT), self._charged + (packed & _CHARGED)

    def _counts(self, rows: RangeRows) -> RowCounts:
        requests = [number >> _REQUEST_BIT for number in self.served]
        charged = [number & _CHARGED for number in self.served]
        return RowCounts(self._column, rows, requests, charged, list(self._refused), list(self._over), list(self._full))

    def take(self) -> list[RowCounts]:
        """The columns that were closed since the last call."""
        self.turn()
        closed, self._closed = self._closed, []
        return closed

    def take_all(self) -> list[RowCounts]:
        """The same with the open column: nothing more is counted."""
        self._close()
        return self.take()

    @property
    def open_counts(self) -> RowCounts | None:
        """The column that is not closed yet, as it is now."""
        self.turn()
        return self._counts(self._rows) if self._rows is not None else None
