"""What a workload needs under a partition key: the load of each partition, the hottest one, the throughput that keeps
it below its share, what is paid because load is not even, and the day on which a key is full.

Loads are sums of demands. A keyed demand goes to the partition of its key; a fanned one visits many partitions, each
of which charges the visit and its part of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from armillary import limits
from armillary.insight.planning import partition_counts
from armillary.insight.planning.partition_counts import DEFAULT_LIMITS, PartitionLimits
from armillary.insight.planning.placement import PlacedKeys
from armillary.insight.planning.refusals import refused_share

UTILISATION: Final = 0.7  # of its share that the hottest partition is planned to use
_FILLED: Final = 0.8  # of a limit that a suffixed key is planned to reach
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class KeyedDemand:
    """Requests that go to one partition each, by their key."""

    rate: float  # requests a second
    charge_ru: float
    keys: PlacedKeys

    def total_ru(self, partitions: int) -> float:
        return self.rate * self.charge_ru

    def add_to(self, load: PartitionLoads) -> None:
        for index, share in enumerate(self.keys.on(load.bounds) if load.bounds else self.keys.on_even(load.count)):
            load.add(index, self.rate * share, self.charge_ru)


@dataclass(frozen=True, slots=True)
class FannedDemand:
    """Queries that visit several partitions, with rows that lie evenly in those."""

    rate: float
    visit_ru: float  # of each visited partition
    rows_ru: float  # of all rows together
    visited: Callable[[int], float]  # of so many partitions; all of them: `lambda partitions: partitions`

    def total_ru(self, partitions: int) -> float:
        return self.rate * (self.visited(partitions) * self.visit_ru + self.rows_ru)

    def add_to(self, load: PartitionLoads) -> None:
        visited = min(float(load.count), self.visited(load.count))
        charge_ru = self.visit_ru + (self.rows_ru / visited if self.rows_ru else 0.0)
        for index in range(load.count):
            load.add(index, self.rate * visited / load.count, charge_ru)


Demand = KeyedDemand | FannedDemand


class PartitionLoads:
    """Request units a second of each partition, with the variance that random arrivals give them."""

    __slots__ = ("bounds", "count", "demand_ru", "variance")

    def __init__(self, count: int, bounds: Sequence[bytes] = ()) -> None:
        self.count = count
        self.bounds = bounds  # lower bounds of partitions that are not even
        self.demand_ru = [0.0] * count
        self.variance = [0.0] * count

    @classmethod
    def of(cls, demands: Sequence[Demand], partitions: int) -> PartitionLoads:
        """On partitions of equal width."""
        load = cls(partitions)
        for demand in demands:
            demand.add_to(load)
        return load

    @classmethod
    def on(cls, demands: Sequence[Demand], bounds: Sequence[bytes]) -> PartitionLoads:
        """On partitions with these lower bounds."""
        load = cls(len(bounds), bounds)
        for demand in demands:
            demand.add_to(load)
        return load

    def add(self, index: int, rate: float, charge_ru: float) -> None:
        self.demand_ru[index] += rate * charge_ru
        self.variance[index] += rate * charge_ru * charge_ru

    @property
    def hottest_ru(self) -> float:
        return max(self.demand_ru)

    @property
    def total_ru(self) -> float:
        return math.fsum(self.demand_ru)

    @property
    def hottest_of_fair(self) -> float:
        """How many times its fair share the hottest partition has."""
        return self.hottest_ru * self.count / self.total_ru if self.total_ru else 1.0

    def refused_shares(self, throughput_ru: float, partition_ru: int = limits.PARTITION_THROUGHPUT_RU) -> list[float]:
        """The 429 share of each partition at a throughput."""
        budget_ru = min(float(partition_ru), throughput_ru / self.count)
        return [
            refused_share(demand, variance, budget_ru)
            for demand, variance in zip(self.demand_ru, self.variance, strict=True)
        ]

    def refused_of_all(self, throughput_ru: float, partition_ru: int = limits.PARTITION_THROUGHPUT_RU) -> float:
        """The share of all request units that is refused."""
        shares = self.refused_shares(throughput_ru, partition_ru)
        refused = math.fsum(share * demand for share, demand in zip(shares, self.demand_ru, strict=True))
        return refused / self.total_ru if self.total_ru else 0.0


def hottest_key_ru(demands: Sequence[Demand]) -> float:
    """Request units a second of the busiest key, which no number of partitions divides."""
    by_keys: dict[int, tuple[PlacedKeys, float]] = {}  # most demands share one distribution
    for demand in demands:
        if isinstance(demand, KeyedDemand):
            _, known_ru = by_keys.get(id(demand.keys), (demand.keys, 0.0))
            by_keys[id(demand.keys)] = demand.keys, known_ru + demand.rate * demand.charge_ru
    if len(by_keys) == 1:
        [(keys, whole_ru)] = by_keys.values()
        return whole_ru * max(keys.shares, default=0.0)
    by_place: dict[bytes, float] = {}
    for keys, whole_ru in by_keys.values():
        for place, share in zip(keys.places, keys.shares, strict=True):
            by_place[place] = by_place.get(place, 0.0) + whole_ru * share
    return max(by_place.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Requirement:
    """T*: the throughput that a workload needs, and the partitions that it then has."""

    throughput_ru: int
    partitions: int
    total_ru: float  # R: what is asked for a second, fan-out included
    hottest_ru: float
    create_with_ru: int  # less than the throughput: create with this, then scale up
    utilisation: float

    @property
    def surcharge(self) -> float:
        """How many times the throughput is what even load would need."""
        return self.throughput_ru * self.utilisation / self.total_ru if self.total_ru else 1.0


def required_throughput(
    demands: Sequence[Demand],
    size_bytes: float,
    *,
    is_autoscale: bool = False,
    utilisation: float = UTILISATION,
    bounds: PartitionLimits = DEFAULT_LIMITS,
) -> Requirement | None:
    """The least throughput whose partitions, with so many bytes, keep the hottest one at or below `utilisation` of its
    share. None: no throughput does, because one key is too hot for a partition."""
    key_ru = hottest_key_ru(demands) / utilisation
    if key_ru > bounds.throughput_ru:
        return None
    if math.fsum(each.total_ru(1) for each in demands) / utilisation > bounds.container_ru_max:
        return None  # on one partition queries cost least
    search = _Search(demands, size_bytes, is_autoscale, utilisation, bounds)
    most = partition_counts.created(
        bounds.container_ru_max,
        is_autoscale=is_autoscale,
        partition_ru=bounds.throughput_ru,
        initial_share=bounds.initial_share,
    )
    later: Requirement | None = None
    for initial in range(1, most + 1):
        if initial * key_ru > bounds.container_ru_max:
            break  # more partitions make the share of the busiest key smaller still
        found, is_as_created = search.at(initial)
        if found is not None and is_as_created:
            return found
        if found is not None and (later is None or found.throughput_ru < later.throughput_ru):
            later = found
    return later


class _Search:
    def __init__(
        self,
        demands: Sequence[Demand],
        size_bytes: float,
        is_autoscale: bool,
        utilisation: float,
        bounds: PartitionLimits,
    ) -> None:
        self._demands, self._size_bytes, self._is_autoscale = demands, size_bytes, is_autoscale
        self._utilisation, self._bounds = utilisation, bounds
        self._step_ru = limits.AUTOSCALE_STEP_RU if is_autoscale else limits.THROUGHPUT_STEP_RU
        least_ru = partition_counts.minimum_ru(size_bytes, is_autoscale=is_autoscale)
        self._least_ru = max(least_ru, bounds.container_ru_min)
        self._loads: dict[int, PartitionLoads] = {}

    def at(self, initial: int) -> tuple[Requirement | None, bool]:
        """The throughput for a container that is created with so many partitions, and whether it has them when it is
        created with that throughput."""
        partitions = partition_counts.by_storage(initial, self._size_bytes, self._bounds.storage_bytes)
        if partitions not in self._loads:
            self._loads[partitions] = PartitionLoads.of(self._demands, partitions)
        load = self._loads[partitions]
        lowest, highest = self._created_with(initial - 1) + self._step_ru, self._created_with(initial)
        needed_ru = max(self._least_ru, partitions * load.hottest_ru / self._utilisation)
        rounded = math.ceil(needed_ru / self._step_ru - _ROUNDING) * self._step_ru
        is_as_created = rounded <= highest
        throughput_ru = max(rounded, lowest) if is_as_created else rounded
        if throughput_ru > min(self._bounds.container_ru_max, partitions * self._bounds.throughput_ru):
            return None, False
        create_ru = throughput_ru if is_as_created else highest
        found = Requirement(throughput_ru, partitions, load.total_ru, load.hottest_ru, create_ru, self._utilisation)
        return found, is_as_created

    def _created_with(self, partitions: int) -> int:
        return partition_counts.created_with_max(
            partitions,
            is_autoscale=self._is_autoscale,
            partition_ru=self._bounds.throughput_ru,
            initial_share=self._bounds.initial_share,
        )


def days_to_fill(
    today_bytes: float, share: float, growth_bytes_day: float, limit_bytes: float = limits.LOGICAL_PARTITION_BYTES_MAX
) -> float | None:
    """When a key that gets such a share of the growth reaches the limit of a logical partition; None: never."""
    if today_bytes >= limit_bytes:
        return 0.0
    growth = share * growth_bytes_day
    return (limit_bytes - today_bytes) / growth if growth > 0 else None


def suffixes_needed(
    size_bytes: float,
    hottest_ru: float,
    budget_ru: float,
    limit_bytes: float = limits.LOGICAL_PARTITION_BYTES_MAX,
) -> int:
    """Into how many keys a value has to be divided, by bytes and by load."""
    by_size = math.ceil(size_bytes / (_FILLED * limit_bytes) - _ROUNDING)
    by_load = math.ceil(hottest_ru / (_FILLED * budget_ru) - _ROUNDING)
    return max(1, by_size, by_load)
