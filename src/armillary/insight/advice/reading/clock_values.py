"""Keys that are a clock: a path whose value is the time of writing, as a timestamp or a bucket of minutes. All writes
of one grain of it share one value, so that one partition gets all writes at any moment. A sample of much data has so
few rows that each has a value of its own and nothing looks shared: the grain of the times and the rate of writes tell.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np

from armillary.insight.advice.reading.data_profile import Profile
from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.advice.reading.row_times import DAY_S, Seconds

MONTH_S: Final = 30 * DAY_S
_PARTS_S: Final = {"month": MONTH_S, "day": DAY_S, "hour": 3_600.0}
_GRAINS_S: Final = (7 * DAY_S, DAY_S, 3_600.0, 600.0, 60.0, 1.0, 0.001)
_WHOLE: Final = 0.99  # of the times, that are multiples of a grain
_ERROR: Final = 1e-6  # of a second: times are floats
_MONDAY_S: Final = 4 * DAY_S  # 1970-01-01 was a Thursday
_FOLLOWING: Final = 0.95  # of the rows, whose value is within a grain of the time of writing
_TOGETHER: Final = 2.0  # writes of one grain, from which on they share a value


class Clock(NamedTuple):
    path: str
    grain_s: float
    writes_s: float  # that one value gets, while it is the present one
    is_certain: bool  # False: which time is that of writing is not known
    now: int  # the digest of the present value
    last_s: float  # the time that it says

    @property
    def name(self) -> str:
        """The present value, as a time."""
        return datetime.fromtimestamp(self.last_s, UTC).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def share_of_minute(self) -> float:
        """Of the writes of a minute, or of a grain that is longer, that one value gets."""
        return min(1.0, self.grain_s / 60.0)


def clock_of(
    profile: Profile, path: str, digests: Digests, items: float, writes_s: float, part: str | None = None
) -> Clock | None:
    """`digests`: the values of the path, or of a part of its time, in the sample; `items`: of all data; `writes_s`: of
    the load, 0 if it is not known."""
    found = profile.paths.get(path)
    own = profile.reservoir.times(found.steps) if found is not None and found.is_time else None
    if own is None or found is None:
        return None
    timed = np.flatnonzero(~np.isnan(own))
    if len(timed) < 2:
        return None
    grain_s = max(grain_of(own[timed]), _PARTS_S[part] if part is not None else 0.0)
    if not grain_s:
        return None
    written = profile.reservoir.times(profile.written) if profile.written is not None else None
    if written is not None and found.steps != profile.written and not _follows(own, written, grain_s):
        return None
    span_s = float(own[timed].max() - own[timed].min()) + grain_s
    rate = max(writes_s, items / span_s)
    if rate * grain_s < _TOGETHER:
        return None
    last = timed[np.argmax(own[timed])]
    return Clock(path, grain_s, rate, written is not None, int(digests[last]), float(own[last]))


def grain_of(seconds: Seconds) -> float:
    """The longest time of which nearly all are multiples; 0: they are finer than milliseconds."""
    stamps = np.floor(seconds).astype(np.int64).astype("datetime64[s]")
    is_day = seconds % DAY_S < _ERROR
    is_first = is_day & (stamps.astype("datetime64[D]") == stamps.astype("datetime64[M]").astype("datetime64[D]"))
    if is_first.mean() >= _WHOLE:
        return MONTH_S
    for grain_s in _GRAINS_S:
        shifted = seconds - _MONDAY_S if grain_s == _GRAINS_S[0] else seconds
        rest = np.abs(shifted / grain_s - np.round(shifted / grain_s)) * grain_s
        if (rest <= max(_ERROR, grain_s * 1e-9)).mean() >= _WHOLE:
            return grain_s
    return 0.0


def _follows(own: Seconds, written: Seconds, grain_s: float) -> bool:
    """Whether times are those of writing, cut to a grain, in whatever time zone."""
    both = ~np.isnan(own) & ~np.isnan(written)
    if both.sum() < 2:
        return False
    apart = own[both] - written[both]
    apart = np.abs(apart - np.median(apart))
    # Times of writing may themselves be coarser, such as dates.
    return float((apart <= max(grain_s, grain_of(written[both]))).mean()) >= _FOLLOWING
