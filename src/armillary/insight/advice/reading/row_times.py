"""Times in items: recognising paths that hold them (ISO 8601, digits such as 202601311559, or seconds or milliseconds
since 1970), which of these is the time of writing, and what happens in windows of it. A date, a month or a type that
many writes share at the same time is what makes a partition hot, and only windows of time show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.reading.leaf_columns import Digests, Steps

Seconds = NDArray[np.float64]

TIMELY: Final = 0.99  # of the values that have to be times
DAY_S: Final = 86_400.0
GRAINS: Final = ("month", "day", "hour")
_ISO: Final = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?)?")
# Buckets of time: 202601, 20260131, 2026013115, 202601311559, 20260131155930, with or without signs between.
_DIGITS: Final = re.compile(
    r"(20\d\d)[-/.]?(0[1-9]|1[0-2])"
    r"(?:[-/.]?(0[1-9]|[12]\d|3[01])(?:[-T _]?([01]\d|2[0-3])(?::?([0-5]\d)(?::?([0-5]\d))?)?)?)?"
)
_WEEK: Final = re.compile(r"20\d\d-?W[0-5]\d")
_DIGITS_MAX: Final = 20_991_231_235_959
_EPOCH_S: Final = (946_684_800.0, 4_102_444_800.0)  # the years 2000 to 2100
_LOOKED_AT: Final = 50  # values of a batch that tell whether the others are worth parsing
_WINDOWS_S: Final = (60.0, 600.0, 3_600.0, 21_600.0, DAY_S, 7 * DAY_S, 30 * DAY_S, 365 * DAY_S)
TENTHS: Final = 10
_WINDOW_ROWS: Final = 100  # on average, for the largest share of a window to say something
_WINDOWS_MIN: Final = 5
_ROWS_MAX: Final = 50_000
_GRAINS_S: Final = (DAY_S, 3_600.0)  # of times that are dates or hours
_GRAIN_ROWS: Final = 5
_MOVING: Final = 1.5  # times the concentration that the same values have in shuffled order
_MOVING_LEAST: Final = 0.05
# Words in names of the time of writing, the best first, and in those of times that are something else.
_WRITTEN: Final = (
    re.compile(
        r"(creat|insert|writ|ingest|timestamp|occur|log|record|receiv|plac|post|sent|send|click|book|issu)\w*|ts"
    ),
    re.compile(r"(time|date|day|month|zeit|datum|fecha)\w*|at|when|on"),
)
_OTHERWISE: Final = re.compile(
    r"(birth|expir|valid|until|start|deliver|updat|modif|deadline|schedul|ship|renew|clos|chang)\w*|end(s|ed)?|due|last|dob|next"
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # in createdAt, created_at, CREATED-AT


def seconds_of(values: Sequence[Any]) -> Seconds | None:
    """Values as seconds since 1970, NaN where one is no time; None: too few of them are."""
    if not values:
        return None
    looked_at = values[:: max(1, len(values) // _LOOKED_AT)]
    if sum(_is_time(value) for value in looked_at) < TIMELY * len(looked_at):
        return None
    return np.array([_second(value) for value in values])


def _is_time(value: Any) -> bool:
    return not np.isnan(_second(value))


def _second(value: Any) -> float:
    kind = type(value)
    if kind is str:
        return _of_text(value)
    if kind is int and value <= _DIGITS_MAX and (second := _of_digits(str(value))) is not None:
        return second  # an epoch of ten digits that begins with 20 would be of 2033 or later
    if kind is int or kind is float:
        for scale in (1.0, 1e3, 1e6):
            if _EPOCH_S[0] <= value / scale <= _EPOCH_S[1]:
                return float(value / scale)
    return float("nan")


def _of_text(text: str) -> float:
    if not 6 <= len(text) <= 35:
        return float("nan")
    is_week = _WEEK.fullmatch(text) is not None
    if _ISO.fullmatch(text) is None and not is_week:
        second = _of_digits(text)
        return second if second is not None else float("nan")
    try:
        is_month = len(text) == len("2026-01") and not is_week
        found = datetime.fromisoformat(f"{text}-01" if is_month else text.replace(",", "."))
    except ValueError:
        return float("nan")
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _of_digits(text: str) -> float | None:
    """A year and month at least, as buckets of time have them."""
    found = _DIGITS.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else None for part in found.groups())
    assert year is not None and month is not None
    try:
        return datetime(year, month, day or 1, hour or 0, minute or 0, second or 0, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def is_text_time(value: Any) -> bool:
    return type(value) is str


def writing_time(timely: Sequence[tuple[Steps, bool, int]]) -> Steps | None:
    """Which of the time-like paths is the time of writing: (path, is it a text, number of values). A number alone is
    not trusted: it may be an id."""

    def place(each: tuple[Steps, bool, int]) -> tuple[int, int, int, Steps]:
        steps, _, distinct = each
        return (_hint(steps), len(steps), -distinct, steps)

    known = [each for each in timely if not _names(each[0], _OTHERWISE) and (each[1] or _hint(each[0]) < len(_WRITTEN))]
    return min(known, key=place)[0] if known else None


def _hint(steps: Steps) -> int:
    """How much a name says that it is the time of writing: the lowest number says most."""
    return next((place for place, words in enumerate(_WRITTEN) if _names(steps, words)), len(_WRITTEN))


def _names(steps: Steps, words: re.Pattern[str]) -> bool:
    return any(words.fullmatch(word.lower()) for word in _WORD.findall(steps[-1]))


def parts_of(seconds: Seconds, grain: str) -> Digests:
    """The month, day or hour of each time, as a number that is never 0; 0 where there is no time."""
    is_time = ~np.isnan(seconds)
    found = np.zeros(len(seconds), np.uint64)
    stamps = seconds[is_time].astype(np.int64).astype("datetime64[s]")
    unit = {"month": "M", "day": "D", "hour": "h"}[grain]
    found[is_time] = (stamps.astype(f"datetime64[{unit}]").astype(np.int64) + 1).astype(np.uint64)
    return found


def part_text(second: float, grain: str) -> str:
    form = {"month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}[grain]
    return datetime.fromtimestamp(second, UTC).strftime(form)


class Windows:
    """Rows by windows of time: as short as 60 s, and longer where they would hold too few rows to tell anything."""

    def __init__(self, seconds: Seconds, times_rows: float = 1.0) -> None:
        """`times_rows`: how many rows each row of the sample stands for. Of a large sample a part is enough."""
        self._rows_of_sample = len(seconds)
        timed = np.flatnonzero(~np.isnan(seconds))
        if len(timed) > _ROWS_MAX:
            times_rows *= len(timed) / _ROWS_MAX
            timed = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(timed)[:_ROWS_MAX])
        self._taken = timed
        self._seconds = seconds[timed]
        self.rows = len(self._seconds)
        self._times_rows = max(1.0, times_rows)
        self.first_s = float(self._seconds.min()) if self.rows else 0.0
        self.last_s = float(self._seconds.max()) if self.rows else 0.0
        self.width_s = self._width_s()
        self._window = np.floor(self._seconds / self.width_s).astype(np.int64)
        self.count = len(np.unique(self._window))

    def _width_s(self) -> float:
        grain_s = next((grain for grain in _GRAINS_S if self.rows and not np.any(self._seconds % grain)), 0.0)
        if grain_s and self.rows / len(np.unique(self._seconds)) >= _GRAIN_ROWS:
            return grain_s  # times are dates: finer windows do not exist
        for width_s in _WINDOWS_S:
            if self.rows / max(1, len(np.unique(np.floor(self._seconds / width_s)))) >= _WINDOW_ROWS:
                return width_s
        return _WINDOWS_S[-1]

    @property
    def can_tell(self) -> bool:
        return self.count >= _WINDOWS_MIN and self.rows / self.count >= _GRAIN_ROWS

    @property
    def span_days(self) -> float:
        return (self.last_s - self.first_s) / DAY_S

    def concentration(self, digests: Digests, order: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """W by window: the largest share that one value has of the rows of each. `order` takes the rows' values in
        another order."""
        values = digests[self._taken]
        values = values if order is None else values[order]
        _, inverse = np.unique(values, return_inverse=True)
        pairs = self._window * (int(inverse.max()) + 1) + inverse if len(inverse) else self._window
        found, counts = np.unique(pairs, return_counts=True)
        windows = found // (int(inverse.max()) + 1) if len(inverse) else found
        starts = np.flatnonzero(np.diff(windows, prepend=windows[:1] - 1))
        largest = np.maximum.reduceat(counts, starts).astype(np.float64)
        whole = np.add.reduceat(counts, starts).astype(np.float64)
        # A value that a sample has once may have been written once among all the rows that the sample stands for.
        largest[largest == 1.0] /= self._times_rows
        return largest / whole

    def staying_share(self, digests: Digests) -> float | None:
        """How often a row has the same value as the one before it in time, of rows that are a minute apart or more. A
        sample of much data has too few rows in a minute for windows of it, but a value that stays for longer than that
        has the minutes between for itself. None: too few such rows."""
        order = np.argsort(self._seconds, kind="stable")
        values = digests[self._taken][order]
        apart = np.diff(self._seconds[order]) >= _WINDOWS_S[0]
        if apart.sum() < _WINDOW_ROWS:
            return None
        return float((values[1:] == values[:-1])[apart].mean())

    def is_moving(self, digests: Digests, random: np.random.Generator) -> bool:
        """Whether writes go to other values from window to window, as with a date: then those of now are hot."""
        order = random.permutation(self.rows)
        seen, shuffled = float(self.concentration(digests).mean()), float(self.concentration(digests, order).mean())
        return seen > _MOVING * shuffled and seen - shuffled > _MOVING_LEAST

    def is_staying(self, digests: Digests, random: np.random.Generator) -> bool:
        """The same for values that stay longer than a minute and less than a window."""
        staying = self.staying_share(digests)
        values = digests[self._taken]
        by_chance = float((values == values[random.permutation(self.rows)]).mean()) if self.rows else 0.0
        return staying is not None and staying > _MOVING * by_chance and staying - by_chance > 2 * _MOVING_LEAST

    def last_values(self, digests: Digests, *, is_staying: bool) -> Digests:
        """The values that are written now: of the last rows, as many as one value stays for, or of the last window
        that holds as many rows as half of the others."""
        if is_staying:
            staying = self.staying_share(digests) or 0.0
            count = min(_WINDOW_ROWS, max(1, round(1.0 / max(0.01, 1.0 - staying)) // 2))
            return digests[self._taken][np.argsort(self._seconds, kind="stable")][-count:]
        windows, counts = np.unique(self._window, return_counts=True)
        full = windows[counts >= np.median(counts) / 2]
        found: Digests = digests[self._taken][self._window == full[-1]]
        return found

    def last_part(self, share: float) -> NDArray[np.bool_]:
        """Which rows of the sample are of the last share of the time."""
        is_late = np.zeros(self._rows_of_sample, bool)
        is_late[self._taken] = self._seconds >= self.last_s - share * (self.last_s - self.first_s)
        return is_late

    def tenths(self) -> NDArray[np.int8]:
        """In which tenth of the time each row of the sample lies; -1: it has no time, or is not looked at."""
        found = np.full(self._rows_of_sample, -1, np.int8)
        passed = (self._seconds - self.first_s) / max(1e-9, self.last_s - self.first_s)
        found[self._taken] = np.minimum(TENTHS - 1, np.floor(passed * TENTHS)).astype(np.int8)
        return found

    def spans_days(self, digests: Digests, values: Digests) -> dict[int, float]:
        """For how many days each of these values was written."""
        own = digests[self._taken]
        spans = {}
        for value in values.tolist():
            times = self._seconds[own == value]
            spans[value] = float(times.max() - times.min()) / DAY_S if len(times) else 0.0
        return spans
