"""The figures of a candidate key, each with the interval of its sampling error: values, skew, the largest logical
partition at the horizon and the day it is full, concentration of writes, fan-out, and the throughput that the load
needs under this key. Formulas are those of `planning`; what they mean is judged in `gates.py` and `ranking.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.candidate_keys import UNNAMED, KeyValues, Written
from armillary.insight.advice.candidates import HIERARCHICAL, ID, SUFFIXED, Candidate
from armillary.insight.advice.key_demands import KeyDemands, knows_key, top_share
from armillary.insight.advice.key_growth import OPEN_SET, KeyGrowth
from armillary.insight.advice.reading.clock_values import Clock, clock_of
from armillary.insight.advice.reading.data_profile import Profile
from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.advice.reading.rising_values import Rise, horizon_weights, rise_of
from armillary.insight.advice.reading.row_times import Windows
from armillary.insight.advice.reading.value_counts import Counted, Estimate, counted
from armillary.insight.advice.request_load import ADDRESSED, CREATING, Load
from armillary.insight.planning import distributions, needs, partition_counts
from armillary.insight.planning.needs import PartitionLoads, Requirement
from armillary.insight.planning.operation_charges import ItemShape

FIRST_LEVELS: Final = 2  # of a hierarchical key for each partition of a new container
PARTITIONS_JUDGED: Final = 4  # at least: a container of one partition grows
_Z95: Final = 1.96
_BOOTSTRAP: Final = 200
_RESAMPLED: Final = 20_000
_BOOTSTRAP_WORK: Final = 50_000  # values drawn for one candidate
_WINDOWED_WRITES: Final = 1_000
_REPEATED_MAX: Final = 0.01  # of ids
_SPREAD_SHARE: Final = 0.05  # of the writes of a moment, above which a key follows the time


@dataclass(slots=True)
class Scores:
    values: KeyValues
    distinct: Estimate
    distinct_at_horizon: float
    first_levels: float  # values of the first level of a hierarchical key; else as distinct
    growth_exponent: float  # β
    chao1: float
    top_share: Estimate  # p_max
    top_name: str
    rising: Estimate | None  # of the newest writes, of the largest key at the horizon if it is a value that rises
    rising_name: str
    top_ten_share: Estimate
    effective_keys: Estimate
    gini: Estimate
    largest_bytes: Estimate  # of a logical partition, at the horizon
    largest_low_bytes: float  # the low end, allowing for the choice of the largest of many
    days_to_limit: float | None
    concentration: Estimate | None  # W; None: no times
    is_moving: bool  # writes go to other values from window to window
    clock: Clock | None  # the key is the time of writing
    missing: Estimate
    fan_out: float
    single_share: float  # of requests that visit one partition
    knows_key: bool | None  # None: there are no reads by id
    transactions_kept: float
    groups: int
    requirement: Requirement | None  # None: no throughput is enough
    requirement_low_ru: float
    requirement_high_ru: float
    reads_fanned: Requirement | None  # if the application does not know the key when it reads
    surcharge: float
    hottest_value_ru: float
    partitions: int  # with the required throughput
    created: int  # of a container that is created with it
    judged_partitions: int  # on which fan-out and load are shown: for small data more than it has
    loads: PartitionLoads
    laid: list[float]  # shares of the bytes by partition
    demands: KeyDemands

    def release(self) -> None:
        self.values.release()
        self.demands.release()

    @property
    def candidate(self) -> Candidate:
        return self.values.candidate

    @property
    def certain_single_share(self) -> float:
        """Of requests in one partition, without reads by id for which the application would have to know more."""
        if self.knows_key is not False:
            return self.single_share
        visited = self.demands.visited
        rate = math.fsum(each.rate for each, _ in visited)
        return self.single_share - math.fsum(each.rate for each, _ in visited if each.kind in ADDRESSED) / rate

    @property
    def hottest_name(self) -> str:
        if self.clock is not None and self.clock.is_certain:
            return self.clock.name
        return self.rising_name or self.top_name

    @property
    def largest_name(self) -> str:
        """Of the largest key at the horizon."""
        return self.rising_name or self.top_name

    @property
    def required(self) -> Estimate:
        return Estimate(self.required_ru, self.requirement_low_ru, self.requirement_high_ru)

    @property
    def required_ru(self) -> float:
        return self.requirement.throughput_ru if self.requirement is not None else math.inf

    @property
    def has_enough_values(self) -> bool:
        return (
            self.distinct_at_horizon >= distributions.enough_values(self.judged_partitions) and self.first_levels_spread
        )

    @property
    def first_levels_spread(self) -> bool:
        """Of a hierarchical key: whether its first levels are enough to lie evenly on the partitions that a new
        container has by its throughput. Partitions that come from splits are cut inside first levels too."""
        return self.candidate.kind != HIERARCHICAL or self.first_levels >= distributions.enough_values(
            self.created_partitions
        )

    @property
    def has_enough_first_levels(self) -> bool:
        """With fewer some partitions of a new container have no load at all."""
        return self.candidate.kind != HIERARCHICAL or self.first_levels >= FIRST_LEVELS * self.created_partitions

    @property
    def created_partitions(self) -> int:
        """Of a new container with the required throughput; of a small one as many as it is judged on at least."""
        return max(PARTITIONS_JUDGED, min(self.created, self.judged_partitions))


class Scorer:
    def __init__(self, profile: Profile, load: Load, plan: Plan) -> None:
        self.profile, self.load, self.plan = profile, load, plan
        self.today_bytes = plan.today_bytes(profile.size_bytes, profile.rows)
        self.horizon_bytes = plan.horizon_bytes(profile.size_bytes, profile.rows)
        self.item = ItemShape(max(1, round(profile.item_bytes)), round(profile.terms))
        sizes = profile.reservoir.sizes
        self.sample_rows = float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else 0.0  # Kish
        self.windows = self._windows()
        self.is_sample = plan.is_sample_of(profile.rows)
        self._stored_windows = self.windows if not load.writes else self._windows_of_rows()
        self._growth = KeyGrowth(profile, plan, self.today_bytes, self.sample_rows, self._stored_windows)
        self._random = np.random.Generator(np.random.PCG64(plan.seed))
        self.base_partitions = partition_counts.by_storage(1, self.horizon_bytes, plan.limits.storage_bytes)

    @cached_property
    def repeated_rows(self) -> list[list[int]]:
        """Rows of the sample with the same id, if that is rare: where ids repeat often they are unique inside one key
        only, and say nothing about changes."""
        ids = self.profile.reservoir.column(("id",))
        order = np.argsort(ids, kind="stable")
        same = np.flatnonzero((np.diff(ids[order]) == 0) & (ids[order][1:] != 0))
        if len(same) > _REPEATED_MAX * len(ids):
            return []
        found: dict[int, list[int]] = {}
        for at in same.tolist():
            found.setdefault(int(ids[order[at]]), [int(order[at])]).append(int(order[at + 1]))
        return list(found.values())

    def _windows(self) -> Windows | None:
        if len(self.load.writes) >= _WINDOWED_WRITES:
            return Windows(np.array([second for second, _ in self.load.writes]))
        return self._windows_of_rows()

    def _windows_of_rows(self) -> Windows | None:
        if self.profile.written is None:
            return None
        seconds = self.profile.reservoir.times(self.profile.written)
        if seconds is None:
            return None
        return Windows(seconds, self.profile.rows / max(1, self.profile.sampled))

    def _window_values(self, values: KeyValues) -> Digests | None:
        if len(self.load.writes) < _WINDOWED_WRITES:
            return values.placing
        paths = values.candidate.paths
        written = {path: np.array([leaf.get(path, 0) for _, leaf in self.load.writes], np.uint64) for path in paths}
        return written[paths[0]] if values.candidate.kind == HIERARCHICAL else values.of(written)

    def score(self, candidate: Candidate) -> Scores:
        values = KeyValues(self.profile, candidate)
        found = values.counted
        distinct, exponent = self._distinct(values)
        top_share = self._top_share(values)
        clock = self._clock(values)
        rise = rise_of(values.placing, self._stored_windows) if clock is None else None
        if rise is not None and candidate.kind == HIERARCHICAL:
            values.weights = horizon_weights(values.first, rise, self.profile.reservoir.sizes, self._grown_times)
        concentration, is_moving, now = self._concentration(values, clock, rise)
        whole = rise_of(values.digests, self._stored_windows) if candidate.kind == HIERARCHICAL else rise
        largest = self._growth.largest(values, top_share, distinct.value, exponent, is_moving=is_moving, rise=whole)
        reads = [each for each in self.load.operations if each.kind in ADDRESSED]
        known = {*self.plan.known, *self.load.present_key}
        is_known = knows_key(candidate, known) if reads else None
        is_clock = clock is not None and clock.is_certain
        demands = KeyDemands(values, self.load, self.item, self.base_partitions, now, is_clock=is_clock)
        requirement = self._required(demands)
        fanned = None
        if is_known is False:
            as_queries = KeyDemands(
                values, self.load, self.item, self.base_partitions, now, is_clock=is_clock, reads_as_queries=True
            )
            fanned = self._required(as_queries)
            if self.plan.known:  # the application has said what it knows
                demands, requirement = as_queries, fanned
        partitions = requirement.partitions if requirement is not None else self.base_partitions
        judged = max(partitions, self.base_partitions, PARTITIONS_JUDGED)
        loads = PartitionLoads.of(self._grown(demands, values, now, partitions, judged).demands, judged)
        low_ru, high_ru = self._required_interval(requirement, judged)
        groups = self.load.groups
        kept = sum(group.agrees_in(candidate.paths) for group in groups) if ID not in candidate.paths else 0
        return Scores(
            values,
            distinct,
            distributions.distinct_at(distinct.value, self._times_data, exponent),
            self._first_levels(values, distinct.value),
            exponent,
            self._chao1(found),
            top_share,
            self._top_name(values),
            whole.largest if whole is not None and largest.rising is not None else None,
            values.name(largest.rising) if largest.rising is not None else "",
            self._top_ten_share(found),
            *self._skew(found),
            largest.size,
            largest.low_bytes,
            largest.days_to_limit,
            concentration,
            is_moving,
            clock,
            self._missing(candidate),
            demands.fan_out(judged),
            demands.single_partition_share(judged),
            is_known,
            kept / len(groups) if groups else 1.0,
            len(groups),
            requirement,
            low_ru,
            high_ru,
            fanned,
            self._surcharge(demands, values, loads, judged, now),
            demands.hottest_value_ru,
            partitions,
            self._created(requirement),
            judged,
            loads,
            values.placed(self.base_partitions).on_even(judged),
            demands,
        )

    def _created(self, requirement: Requirement | None) -> int:
        if requirement is None:
            return self.base_partitions
        return partition_counts.created(
            requirement.create_with_ru,
            is_autoscale=self.plan.is_autoscale,
            partition_ru=self.plan.limits.throughput_ru,
            initial_share=self.plan.limits.initial_share,
        )

    def _grown(
        self, demands: KeyDemands, values: KeyValues, now: Written | None, partitions: int, judged: int
    ) -> KeyDemands:
        """The demands on more partitions than there are: data that has grown to them was split, which spreads the first
        levels of a hierarchical key."""
        if values.candidate.kind != HIERARCHICAL or judged <= max(partitions, self.base_partitions):
            return demands
        return KeyDemands(values, self.load, self.item, judged, now)

    @property
    def _grown_times(self) -> float:
        """What is added up to the horizon, by what is stored."""
        return max(0.0, self.horizon_bytes / self.today_bytes - 1.0) if self.today_bytes else 0.0

    @property
    def _times_data(self) -> float:
        """How many times what was read there will be."""
        return max(1.0, self.horizon_bytes / self.profile.size_bytes) if self.profile.size_bytes else 1.0

    def _distinct(self, values: KeyValues) -> tuple[Estimate, float]:
        found = values.counted
        # What a random half of the rows would have of values, on average: a value of k rows is in it but for 2 ** -k.
        half = float((1.0 - 0.5 ** np.minimum(found.rows, 1000.0)).sum())
        exponent = distributions.growth_exponent(half, float(len(found.digests)))
        paths = values.paths
        figures = self.plan.figures
        if figures is not None and figures.is_of(values.candidate):
            return figures.distinct, exponent
        if len(paths) == 1 and paths[0] is not None and values.candidate.kind == "single":
            return self._of_all_data(paths[0].counts.distinct(), exponent), exponent
        count = float(len(found.digests))
        if self.profile.reservoir.is_complete:
            return self._of_all_data(Estimate(count, count, count), exponent), exponent
        grown = distributions.distinct_at(count, self.profile.rows / self.profile.sampled, exponent)
        return Estimate(grown, count, max(grown, float(self.profile.rows) if exponent > OPEN_SET else grown)), exponent

    def _of_all_data(self, seen: Estimate, exponent: float) -> Estimate:
        """The values that were seen in a sample: all data may have as many more as the exponent says."""
        if not self.is_sample or not self.profile.size_bytes:
            return seen
        times = max(1.0, self.today_bytes / self.profile.size_bytes)
        return seen._replace(high=max(seen.high, distributions.distinct_at(seen.value, times, exponent)))

    def _top_name(self, values: KeyValues) -> str:
        figures, found = self.plan.figures, values.counted
        if figures is not None and figures.is_of(values.candidate) and figures.largest_name:
            return figures.largest_name
        name = values.name(int(found.digests[0])) if len(found.digests) else UNNAMED
        return name if name != UNNAMED else ""

    def _top_share(self, values: KeyValues) -> Estimate:
        figures = self.plan.figures
        if figures is not None and figures.is_of(values.candidate):
            return figures.top_share
        sizes, parts = values.counted.sizes, 1
        if values.candidate.kind == SUFFIXED:
            # A hash divides the largest value evenly: that is known better than the few rows of each part show.
            sizes, parts = counted(values.first, self.profile.reservoir.sizes).sizes, values.candidate.suffixes
        top = float(sizes[0] / sizes.sum()) if len(sizes) else 1.0
        interval = distributions.wilson(top, self.sample_rows)
        return Estimate(top / parts, interval.low / parts, interval.high / parts)

    def _top_ten_share(self, found: Counted) -> Estimate:
        share = float(found.sizes[:10].sum() / found.sizes.sum()) if len(found.sizes) else 1.0
        interval = distributions.wilson(min(1.0, share), self.sample_rows)
        return Estimate(share, interval.low, interval.high)

    def _first_levels(self, values: KeyValues, distinct: float) -> float:
        if values.candidate.kind != HIERARCHICAL:
            return distinct
        found = self.profile.paths.get(values.candidate.paths[0])
        return found.counts.distinct().value if found is not None else 1.0

    def _chao1(self, found: Counted) -> float:
        once, twice = int((found.rows == 1).sum()), int((found.rows == 2).sum())
        return distributions.chao1(len(found.digests), once, twice)

    def _skew(self, found: Counted) -> tuple[Estimate, Estimate]:
        """Effective keys and Gini, with intervals from resampling rows (Poisson bootstrap)."""
        sizes = found.sizes
        if not len(sizes):
            return Estimate(1.0, 1.0, 1.0), Estimate(0.0, 0.0, 0.0)
        times = max(10, min(_BOOTSTRAP, _BOOTSTRAP_WORK // len(sizes)))
        each = sizes / found.rows
        drawn = [self._resampled(found.rows) * each for _ in range(times)]
        kept = [sample[sample > 0] for sample in drawn if sample.any()]
        return (
            _spread(_effective(sizes), [_effective(sample) for sample in kept], 1.0, float(len(sizes))),
            _spread(_gini(sizes), [_gini(sample) for sample in kept], 0.0, 1.0),
        )

    def _resampled(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The light values of very many stay as they are: their errors even out."""
        drawn = rows.copy()
        drawn[:_RESAMPLED] = self._random.poisson(rows[:_RESAMPLED])
        return drawn

    def _clock(self, values: KeyValues) -> Clock | None:
        """Of any part of a key."""
        items = self.today_bytes / self.profile.item_bytes if self.profile.item_bytes else 0.0
        writes_s = math.fsum(each.rate for each in self.load.operations if each.kind in CREATING)
        is_seen = len(self.load.writes) >= _WINDOWED_WRITES  # then the writes themselves tell
        for number, part in enumerate(values.candidate.parts):
            if part.grain is not None and len(values.candidate.parts) > 1:
                continue  # windows of time show it: parts of times have many rows each
            found = clock_of(self.profile, part.path, values.parts[number], items, writes_s, part.grain)
            if found is not None and (found.is_certain or not is_seen):
                return found
        return None

    def _concentration(
        self, values: KeyValues, clock: Clock | None, rise: Rise | None
    ) -> tuple[Estimate | None, bool, Written | None]:
        """W, whether the writes move from value to value, and what is written now where that is not what is stored."""
        if clock is not None and clock.is_certain:
            now = values.at_one_moment(clock.path, clock.now)
            share, top = clock.share_of_minute, top_share(now)
            interval = distributions.wilson(top, len(now)) if top < 1.0 else (top, top)
            return Estimate(share * top, *(share * end for end in interval)), top > _SPREAD_SHARE, Written(now, now)
        windows = self.windows
        digests = self._window_values(values) if windows is not None else None
        if windows is None or digests is None or not windows.rows:
            return None, False, None
        if not windows.can_tell:
            return None, False, None
        if len(self.load.writes) >= _WINDOWED_WRITES:
            rise = None  # the capture has the writes of now
        is_staying = rise is None and windows.is_staying(digests, self._random)
        is_moving = is_staying or (rise is None and windows.is_moving(digests, self._random))
        if values.candidate.kind == HIERARCHICAL and not is_moving and not self.load.writes:
            digests = values.digests  # a first level that is always large is a matter of placement
        by_window = windows.concentration(digests)
        means = self._random.choice(by_window, (_BOOTSTRAP, len(by_window))).mean(axis=1).tolist()
        found = _spread(float(by_window.mean()), means, 0.0, 1.0)
        if is_staying:
            # Two rows have the same value with the sum of squared shares: the largest is at most its root. Values that
            # stay for less than the time between two rows show less of it than there is.
            share = math.sqrt(windows.staying_share(digests) or 0.0)
            found = Estimate(max(share, found.value), max(share, found.low), 1.0)
        if rise is not None:
            newest = Written(values.placing[rise.is_late], values.digests[rise.is_late])
            return found if values.candidate.kind == HIERARCHICAL else rise.largest, False, newest
        last = windows.last_values(digests, is_staying=is_staying) if is_moving else None
        return found, is_moving, Written(last, last) if last is not None else None

    def _missing(self, candidate: Candidate) -> Estimate:
        rows = self.profile.rows
        present = min(
            (each.present if (each := self.profile.paths.get(path)) is not None else 0 for path in candidate.paths),
            default=0,
        )
        share = 1.0 - present / rows if rows else 1.0
        return Estimate(share, *distributions.wilson(share, rows))

    def _required(self, demands: KeyDemands) -> Requirement | None:
        plan = self.plan
        return needs.required_throughput(
            demands.demands,
            self.horizon_bytes,
            is_autoscale=plan.is_autoscale,
            utilisation=plan.utilisation,
            bounds=plan.limits,
        )

    def _required_interval(self, requirement: Requirement | None, partitions: int) -> tuple[float, float]:
        """By the error that the shares of partitions have in a sample of so many rows."""
        if requirement is None:
            return math.inf, math.inf
        error = _Z95 * math.sqrt((partitions - 1) / max(1.0, self.sample_rows))
        return requirement.throughput_ru * max(0.0, 1.0 - error), requirement.throughput_ru * (1.0 + error)

    def _surcharge(
        self, demands: KeyDemands, values: KeyValues, loads: PartitionLoads, partitions: int, now: Written | None
    ) -> float:
        """How many times its fair share the hottest partition has. Without requests, by the bytes that lie there and
        by those that are written now."""
        if loads.total_ru:
            return loads.hottest_of_fair
        stored = max(values.placed(self.base_partitions).on_even(partitions)) * partitions
        if now is None:
            return stored
        written = values.placed_requests(*now, self.base_partitions)
        return max(stored, max(written.on_even(partitions)) * partitions)


def _effective(sizes: NDArray[np.float64]) -> float:
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _gini(sizes: NDArray[np.float64]) -> float:
    ordered = np.sort(sizes)
    count = len(ordered)
    ranked = float((np.arange(1, count + 1) * ordered).sum())
    return max(0.0, 2.0 * ranked / (count * float(ordered.sum())) - (count + 1) / count)


def _spread(value: float, samples: list[float], least: float, most: float) -> Estimate:
    """With the interval of 1.96 standard deviations of the resamples: their mean is biased where values are rare."""
    deviation = float(np.std(samples)) if samples else 0.0
    return Estimate(value, max(least, value - _Z95 * deviation), min(most, value + _Z95 * deviation))
