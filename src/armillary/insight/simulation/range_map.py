"""The partitions of a simulation: their bounds in the hash space, splits that are under way, and where a partition is
cut. The rules are those of `account/reshaping/split_planner.py` and `partition/reshaping/split_point.py`: at the middle
of the bytes, between logical partitions; one key alone is not cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from armillary import limits
from armillary.insight.simulation.key_space import STRETCH, KeySpace, Numbers

STORAGE, THROUGHPUT = "storage", "throughput"
_SLACK: Final = limits.BALANCED_SHARE_MAX - 0.5  # of the bytes, that a cut between values of the first level may miss


@dataclass(slots=True, order=True)
class Split:
    """One that is under way. The parent serves until it is done."""

    boundary: float
    done_s: float
    reason: str


@dataclass(slots=True)
class RangeMap:
    bounds: Numbers  # from 0 to 1, one more than partitions
    running: dict[float, Split] = field(default_factory=dict)  # by the lower bound of the parent
    outgrown: dict[float, float] = field(default_factory=dict)  # bytes from which on one key alone is looked at again

    @classmethod
    def even(cls, partitions: int) -> RangeMap:
        return cls(np.linspace(0.0, 1.0, partitions + 1))

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def next_done_s(self) -> float:
        return min((split.done_s for split in self.running.values()), default=np.inf)

    def finish(self, now_s: float) -> list[Split]:
        """Cut what is done, and say what that was, in the order of the hash space."""
        done = sorted((low, split) for low, split in self.running.items() if split.done_s <= now_s)
        for low, split in done:
            del self.running[low]
            self.bounds = np.insert(self.bounds, np.searchsorted(self.bounds, split.boundary), split.boundary)
        return [split for _, split in done]

    def merge(self, index: int) -> None:
        """Make one of the partition at an index and the next."""
        self.bounds = np.delete(self.bounds, index + 1)


def cut_of(space: KeySpace, key_bytes: Numbers, density: float, low: float, high: float) -> float | None:
    """Where a partition is divided; None: it holds one logical partition, or nothing. `density`: bytes of the mass in
    the whole hash space."""
    first, last = np.searchsorted(space.places, (low, high), side="left")
    if space.has_stretches and first > 0 and space.places[first - 1] + STRETCH > low:
        first -= 1  # a value of the first level that was cut before
    places, sizes = space.places[first:last], _inside(space, key_bytes, first, last, low, high)
    sums = np.cumsum(sizes)
    whole = float(sums[-1] if len(sums) else 0.0) + density * (high - low)
    half = whole / 2.0
    if whole <= 0.0:
        return None
    after = sums + density * (np.maximum(places, low) - low)
    index = int(np.searchsorted(after, half, side="right"))
    passed = float(sums[index - 1]) if index > 0 else 0.0
    if index == len(places) or passed + density * (places[index] - low) >= half:
        if density > 0.0:
            return low + (half - passed) / density
        # Between two keys: the second one begins the upper half.
        return float(places[index]) if index < len(places) and passed > 0.0 else None
    return _beside(space, places, sizes, index, float(after[index]), half, density, low, high)


def _inside(space: KeySpace, key_bytes: Numbers, first: int, last: int, low: float, high: float) -> Numbers:
    """The bytes of each key that lie between two bounds."""
    sizes = key_bytes[first:last]
    if not space.has_stretches:
        return sizes
    begins, ends = np.maximum(space.places[first:last], low), np.minimum(space.places[first:last] + STRETCH, high)
    return np.asarray(sizes * np.clip((ends - begins) / STRETCH, 0.0, 1.0))


def _beside(
    space: KeySpace,
    places: Numbers,
    sizes: Numbers,
    index: int,
    after: float,
    half: float,
    density: float,
    low: float,
    high: float,
) -> float | None:
    """The middle lies inside of one key: before or after it, whichever is nearer; inside, if it is hierarchical and
    both are far."""
    place, size = float(places[index]), float(sizes[index])
    before = after - size
    miss_before, miss_after = half - before, after - half
    if space.has_stretches and min(miss_before, miss_after) > _SLACK * 2.0 * half:
        begin, end = max(place, low), min(place + STRETCH, high)
        return begin + (end - begin) * miss_before / size
    after_it = _next_place(space, places, index, density, high)
    is_before_possible, is_after_possible = place > low and before > 0.0, after_it is not None and after < 2.0 * half
    if is_before_possible and (miss_before <= miss_after or not is_after_possible):
        return place
    return after_it if is_after_possible else None


def _next_place(space: KeySpace, places: Numbers, index: int, density: float, high: float) -> float | None:
    """The first bound above a key: that of the next key, or of the mass that begins right behind it."""
    if density > 0.0:
        end = float(places[index]) + (STRETCH if space.has_stretches else 0.0)
        above = float(np.nextafter(end, 1.0))
    elif index + 1 < len(places):
        above = float(places[index + 1])
    else:
        return None
    return above if above < high else None
