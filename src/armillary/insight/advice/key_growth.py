"""The largest logical partition of a candidate key at the horizon, and the day on which the first one is full. Three
kinds of keys grow differently: a closed set of values keeps its shares; in an open set, and where a value
rises, it grows by its share of the newest rows; values that move with time, such as a date, are written for a while
and then rest.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.candidate_keys import KeyValues
from armillary.insight.advice.reading.data_profile import Profile
from armillary.insight.advice.reading.rising_values import Rise
from armillary.insight.advice.reading.row_times import DAY_S, Windows
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.planning import distributions, needs

OPEN_SET: Final = 0.1  # β from which on new values keep coming
_Z95: Final = 1.96
_UNLIKELY: Final = 0.025
_RECENT_ROWS: Final = 1_000  # of the last tenth of the time, that say something
_HEAVIEST: Final = 100
_FILLING: Final = 1_000  # values whose day of being full is computed


class Largest(NamedTuple):
    size: Estimate  # bytes
    low_bytes: float  # the low end, allowing for the choice of the largest of many
    days_to_limit: float | None
    rising: int | None = None  # digest of the largest, if it is a value that rises


class KeyGrowth:
    def __init__(
        self, profile: Profile, plan: Plan, today_bytes: float, sample_rows: float, windows: Windows | None
    ) -> None:
        self._profile, self._plan = profile, plan
        self._today_bytes, self._sample_rows = today_bytes, sample_rows
        self._windows = windows
        self._limit = float(plan.limits.logical_bytes)

    def largest(
        self,
        values: KeyValues,
        top: Estimate,
        distinct: float,
        exponent: float,
        *,
        is_moving: bool,
        rise: Rise | None = None,
    ) -> Largest:
        # The largest of many values is large by chance too: its low end has to stand for all of them.
        z = max(_Z95, math.sqrt(2.0 * math.log(max(2.0, distinct) / _UNLIKELY)))
        if is_moving and self._windows is not None and self._plan.growth_bytes_day:
            return self._moving(values, top, self._windows)
        recent = self._recent_shares(values, exponent)
        found = self._closed(values, top, z) if recent is None else self._open(values, *recent, z)
        risen = self._risen(values, rise) if rise is not None and self._plan.growth_bytes_day else None
        return risen if risen is not None and risen.size.value > found.size.value else found

    def _risen(self, values: KeyValues, rise: Rise) -> Largest:
        """The largest of the values that rise: what it has, and its share of the newest writes of all growth."""
        plan, sizes = self._plan, self._profile.reservoir.sizes
        at = int(np.argmax(rise.shares))
        digest, share = int(rise.values[at]), float(rise.shares[at])
        stored = float(sizes[values.digests == rise.values[at]].sum() / sizes.sum()) * self._today_bytes
        growth = plan.growth_bytes_day * plan.horizon_days
        interval = distributions.wilson(share, rise.rows)
        low = distributions.wilson(share, rise.rows, rise.z).low
        size = Estimate(stored + share * growth, stored + interval.low * growth, stored + interval.high * growth)
        days = needs.days_to_fill(stored, share, plan.growth_bytes_day, self._limit)
        return Largest(size, stored + low * growth, days, digest)

    def _closed(self, values: KeyValues, top: Estimate, z: float) -> Largest:
        plan = self._plan
        horizon_bytes = self._today_bytes + plan.growth_bytes_day * plan.horizon_days
        days = needs.days_to_fill(top.value * self._today_bytes, top.value, plan.growth_bytes_day, self._limit)
        high = top.value if values.is_unique else top.high
        is_exact = top.low == top.high
        low = top.value if is_exact else distributions.wilson(top.value, self._sample_rows, z).low
        size = Estimate(top.value * horizon_bytes, top.low * horizon_bytes, high * horizon_bytes)
        return Largest(size, low * horizon_bytes, days)

    def _moving(self, values: KeyValues, top: Estimate, windows: Windows) -> Largest:
        """The largest is that of the time in which a value is written."""
        plan = self._plan
        spans = windows.spans_days(values.digests, values.counted.digests[:_HEAVIEST])
        span = max(spans.values(), default=0.0) + windows.width_s / DAY_S
        share = min(1.0, float(windows.concentration(values.digests).mean()))
        later = share * plan.growth_bytes_day * min(span, plan.horizon_days)
        size = max(top.value * self._today_bytes, later)
        days = 0.0 if size >= self._limit else None
        return Largest(Estimate(size, size, size), size, days)

    def _open(self, values: KeyValues, stored: NDArray[np.float64], late: NDArray[np.float64], z: float) -> Largest:
        plan = self._plan
        sizes = stored * self._today_bytes + late * plan.growth_bytes_day * plan.horizon_days
        at = int(np.argmax(sizes))
        size, share = float(sizes[at]), float(stored[at])
        filling = [
            needs.days_to_fill(each * self._today_bytes, rate, plan.growth_bytes_day, self._limit)
            for each, rate in zip(stored[:_FILLING].tolist(), late[:_FILLING].tolist(), strict=True)
        ]
        days = min((each for each in filling if each is not None), default=None)
        interval = distributions.wilson(share, self._sample_rows)
        by_share = size / share if share else 0.0
        low_bytes = distributions.wilson(share, self._sample_rows, z).low * by_share
        high = size if values.is_unique else interval.high * by_share
        return Largest(Estimate(size, interval.low * by_share, high), low_bytes, days)

    def _recent_shares(
        self, values: KeyValues, exponent: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Of an open set of values: the share of all bytes and that of the last tenth of the time, by value, the
        heaviest first."""
        if exponent < OPEN_SET or self._windows is None or not self._plan.growth_bytes_day:
            return None
        is_late = self._windows.last_part(0.1)
        if is_late.sum() < _RECENT_ROWS:
            return None
        sizes = self._profile.reservoir.sizes
        _, inverse = np.unique(values.digests, return_inverse=True)
        stored = np.bincount(inverse, weights=sizes).astype(np.float64)
        late = np.bincount(inverse, weights=sizes * is_late, minlength=len(stored)).astype(np.float64)
        stored, late = stored / stored.sum(), late / late.sum()
        order = np.argsort(-(stored + late), kind="stable")
        return stored[order], late[order]
