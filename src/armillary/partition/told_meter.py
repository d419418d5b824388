"""The meter of a partition that another process holds, as far as figures show it: what that process has told last. What
a process had counted before it ended and was started again stays in the sums.
"""

from __future__ import annotations

from armillary.clock import Clock
from armillary.partition.load_rows import LoadRows, RangeRows, RowCounts
from armillary.partition.meter import Meter, MeterFigures, Totals


class ToldRows(LoadRows):
    """Columns that were counted elsewhere."""

    __slots__ = ("_told", "_told_open")

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._told: list[RowCounts] = []
        self._told_open: RowCounts | None = None

    def adopt(self, figures: MeterFigures) -> None:
        self._told += figures.closed
        self._told_open = figures.open

    def take(self) -> list[RowCounts]:
        told, self._told = self._told, []
        return told

    def take_all(self) -> list[RowCounts]:
        told = self.take()
        if self._told_open is not None:
            told.append(self._told_open)
            self._told_open = None
        return told

    @property
    def open_counts(self) -> RowCounts | None:
        return self._told_open


class ToldMeter(Meter):
    def __init__(self, clock: Clock, place_number: int) -> None:
        """`place_number`: of the process that holds the partition."""
        super().__init__(clock)
        self.place_number = place_number
        self.load: ToldRows = ToldRows(clock)
        self._told = Totals()
        self._ended = Totals()  # of former runs of the process
        self._run = b""

    def divide(self, rows: RangeRows) -> None:
        """The process that counts does."""

    def adopt(self, figures: MeterFigures, run: bytes) -> None:
        """`run`: of the process that tells it."""
        if run != self._run:
            self._ended, self._run = self._ended.plus(self._told), run
        self._told = figures.totals
        self._second, self._in_second = figures.second, figures.in_second
        self._recent.clear()
        self._recent.extend(figures.recent)
        self._peaks = figures.peaks
        self._forgotten = figures.forgotten
        if figures.keys:
            self._keys = dict(figures.keys)
        self._full_keys = {each.epk: each for each in figures.full_keys}
        self.load.adopt(figures)

    @property
    def totals(self) -> Totals:
        return self._ended.plus(self._told)
