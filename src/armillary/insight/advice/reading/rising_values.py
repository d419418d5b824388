"""Values that are rising: a new tenant, or one that has begun to grow, has a much larger share of the newest writes
than of what is stored, while the other values are still written. Bytes and writes of the time to come follow the newest
share. Values that replace each other with time, such as dates, seasons and versions, are not rising: each rests when
the next one comes.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.reading.leaf_columns import MISSING, Digests
from armillary.insight.advice.reading.row_times import TENTHS, Windows
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.planning import distributions

_ROWS_MIN: Final = 50  # of the last tenth of the time, and of the time before
_TENTH_ROWS: Final = 20  # of an earlier tenth whose shares are looked at
_SHARE_MIN: Final = 0.05  # of the newest writes
_TIMES: Final = 2.0  # the share that a value had before, at least
_KEPT: Final = 0.5  # of its share of the last tenth, that a value has in both halves of it
_OTHERS_MIN: Final = 0.05  # of the newest writes, that go to other values
_KNOWN_MIN: Final = 0.5  # of these, to values that were there before
_PEAK: Final = 0.5  # of a rising share: an earlier value with so much of a tenth, which then rested, was its forerunner
_RESTED: Final = 0.25  # of its peak
_UNLIKELY: Final = 0.025


class Rise(NamedTuple):
    """Values with a larger share of the writes of the last tenth of the time than before, the largest first."""

    values: Digests
    shares: NDArray[np.float64]  # of the writes of the last tenth
    is_late: NDArray[np.bool_]  # rows of the sample of the last tenth
    z: float  # standard errors that allow for the choice among many values

    @property
    def rows(self) -> int:
        return int(self.is_late.sum())

    @property
    def largest(self) -> Estimate:
        share = float(self.shares[0])
        return Estimate(share, *distributions.wilson(share, self.rows))


def rise_of(digests: Digests, windows: Windows | None) -> Rise | None:
    """`digests`: a value for each row of the sample. None: no value rises, or the sample cannot tell."""
    if windows is None or not windows.can_tell:
        return None
    tenths = windows.tenths()
    is_late, is_early = tenths == TENTHS - 1, (tenths >= 0) & (tenths < TENTHS - 1)
    late, early = int(is_late.sum()), int(is_early.sum())
    if late < _ROWS_MIN or early < _ROWS_MIN:
        return None
    values, counts = np.unique(digests[is_late], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    values, shares = values[order], counts[order] / late
    values = values[(shares >= _SHARE_MIN) & (values != MISSING)]
    if not len(values):
        return None
    z = math.sqrt(2.0 * math.log(max(2.0, len(np.unique(digests))) / _UNLIKELY))
    second_half = windows.last_part(0.5 / TENTHS)
    halves = (is_late & ~second_half, is_late & second_half)
    rising = [each for each in values.tolist() if _is_rising(digests == np.uint64(each), is_late, is_early, halves, z)]
    if not rising:
        return None
    risen = np.array(rising, np.uint64)
    risen_shares = np.array([float((digests[is_late] == each).mean()) for each in risen])
    if not _others_go_on(digests, risen, is_late, is_early):
        return None
    if _replaces_others(digests, risen, tenths, float(risen_shares.min())):
        return None
    return Rise(risen, risen_shares, is_late, z)


def _is_rising(
    is_own: NDArray[np.bool_],
    is_late: NDArray[np.bool_],
    is_early: NDArray[np.bool_],
    halves: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    z: float,
) -> bool:
    share, before = float(is_own[is_late].mean()), float(is_own[is_early].mean())
    low = distributions.wilson(share, int(is_late.sum()), z).low
    if low <= _TIMES * distributions.wilson(before, int(is_early.sum()), z).high:
        return False
    return all(half.any() and float(is_own[half].mean()) >= _KEPT * share for half in halves)


def _others_go_on(digests: Digests, risen: Digests, is_late: NDArray[np.bool_], is_early: NDArray[np.bool_]) -> bool:
    others = digests[is_late & ~np.isin(digests, risen)]
    if len(others) < _OTHERS_MIN * is_late.sum():
        return False
    return float(np.isin(others, digests[is_early]).mean()) >= _KNOWN_MIN


def _replaces_others(digests: Digests, risen: Digests, tenths: NDArray[np.int8], share: float) -> bool:
    """Whether an earlier value had as much of the writes for a while, and rests now."""
    late = digests[tenths == TENTHS - 1]
    for tenth in range(TENTHS - 1):
        own = digests[tenths == tenth]
        if len(own) < _TENTH_ROWS:
            continue
        values, counts = np.unique(own, return_counts=True)
        peaks = counts / len(own)
        for value, peak in zip(values.tolist(), peaks.tolist(), strict=True):
            if peak < _PEAK * share or value in risen:
                continue
            if float((late == np.uint64(value)).mean()) < _RESTED * peak:
                return True
    return False


def horizon_weights(first: Digests, rise: Rise, sizes: NDArray[np.float64], grown: float) -> NDArray[np.float64]:
    """A weight for each row of the sample, by which the values have the shares of the bytes that they will have when
    the data has grown by `grown` times what is stored."""
    weights = np.ones(len(first))
    whole, taken, stored_sum = float(sizes.sum()), 0.0, 0.0
    for value, share in zip(rise.values.tolist(), rise.shares.tolist(), strict=True):
        is_own = first == np.uint64(value)
        stored = float(sizes[is_own].sum()) / whole
        later = (stored + share * grown) / (1.0 + grown)
        weights[is_own] = later / stored
        taken, stored_sum = taken + later, stored_sum + stored
    is_other = ~np.isin(first, rise.values)
    weights[is_other] = (1.0 - taken) / max(1e-12, 1.0 - stored_sum)
    return weights
