"""The simulator: partitions, keys and bytes of a container over months, by the rules of the engine. Not requests one by
one, but the load of each partition and key; refusals inside a second are by formula. The same workload gives the same
numbers: nothing is drawn.

In each step, in this order: throughput changes, splits end, items expire, keys become full, splits begin, budgets are
divided, requests are served and add bytes. Between such events whole blocks of steps are computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from armillary import limits
from armillary.errors import bad_request
from armillary.insight.planning import partition_counts
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S, MONTH_S
from armillary.insight.planning.workload import SERVERLESS, Provision, Workload
from armillary.insight.simulation.budgets import BudgetState, Served
from armillary.insight.simulation.byte_growth import FULL_SHARE, Expiry, Growth, Stored
from armillary.insight.simulation.key_space import Amounts, KeySpace, Numbers, OperationLoad
from armillary.insight.simulation.load_course import LoadCourse, default_step_s, step_count
from armillary.insight.simulation.range_map import STORAGE, THROUGHPUT, RangeMap, Split, cut_of
from armillary.insight.simulation.recording import Recording

COPY_BYTES_S: Final = 50 * limits.MB  # of a split here
CLOUD_SPLIT_S: Final = 5 * HOUR_S  # the service says 4 to 6 hours
_BLOCK_MIN, _BLOCK_MAX = 16, 512
_OPEN: Final = 0.99  # of the limit, below which it is open again
_EVENTS_MAX: Final = 1_000
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    horizon_s: float = 12 * MONTH_S
    step_s: float | None = None  # None: by the horizon
    is_cloud: bool = False  # split times of the service
    index_share: float = 0.0  # of the items' bytes, counted as storage too
    is_dynamic: bool = False  # autoscale bills each partition by itself


@dataclass(slots=True)
class Events:
    """What happened, with day and reason."""

    found: list[dict[str, Any]] = field(default_factory=list)
    left_off: int = 0

    def add(self, now_s: float, kind: str, text: str, **details: Any) -> None:
        if len(self.found) < _EVENTS_MAX:
            self.found.append({"day": round(now_s / DAY_S, 4), "kind": kind, "text": text, **details})
        else:
            self.left_off += 1


@dataclass(slots=True)
class _Regime:
    """What holds until the map, a full key or the shares of the load change. By partition, at factor 1."""

    demand_ru: Numbers
    variance: Numbers
    full_share: float  # of writes, refused because their key is full
    writes: float


class Simulator:
    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        if workload.provision is None:
            raise bad_request("container needs one of throughput, autoscale and serverless to be simulated.")
        self.workload, self.options = workload, options
        self.provision: Provision = workload.provision
        self.step_s = options.step_s or default_step_s(options.horizon_s)
        self.steps = step_count(options.horizon_s, self.step_s)
        self.space = KeySpace(workload)
        self.course = LoadCourse(workload.shape, self.step_s, self.steps)
        self.recording = Recording(self.steps, self.step_s)
        self.events = Events()
        byte_factor = 1.0 + options.index_share
        self._load = self._present = OperationLoad(workload, self.space, byte_factor)
        self.target_ru = self.in_force_ru = self.provision.ru
        self._changes = list(workload.changes)
        self.map = RangeMap.even(self._created())
        partition_counts.check_count(self.map.count)
        self.stored = self._stored_at_first(byte_factor)
        self.full_since: dict[int, float] = {}
        self._budgets = BudgetState(self.map.count, workload.retries, has_burst=workload.has_burst)
        ttl_s = workload.data.ttl_s
        self._expiry = Expiry(ttl_s, self.step_s, Amounts(self.stored.keys, self.stored.mass)) if ttl_s else None
        self._regime: _Regime | None = None
        self._spiking: tuple[int, ...] = ()
        self.blocks = 0  # computed so far: the measure of the work
        self._grow_at_once()

    def _created(self) -> int:
        if self.provision.kind == SERVERLESS:
            return 1
        bounds = self.workload.bounds
        return partition_counts.created(
            self.provision.ru,
            is_autoscale=self.provision.is_autoscale,
            partition_ru=bounds.throughput_ru,
            initial_share=bounds.initial_share,
        )

    def _stored_at_first(self, byte_factor: float) -> Stored:
        data, shares = self.workload.data, self.workload.data.keys.shares
        size_bytes = data.size_bytes * byte_factor
        limit_bytes = self.workload.bounds.logical_bytes * float(data.keys.second_level)
        keys = np.minimum(self.space.shares(shares) * size_bytes, limit_bytes)
        return Stored(keys, shares.rest_share * size_bytes, limit_bytes, np.zeros(len(keys), dtype=np.bool_))

    def _grow_at_once(self) -> None:
        """Data that is there at the start has made its splits before."""
        self._begin_splits(0.0, is_at_once=True)
        self.events.found.clear()

    # Running.

    def run(self, progress: Progress = lambda share: None) -> None:
        """`progress` is told the share of the steps that are done."""
        step, block = 0, _BLOCK_MIN
        while step < self.steps:
            now_s = step * self.step_s
            self._happen(step, now_s)
            wanted = min(block, self.steps - step, self._until_next(step, now_s))
            done = self._serve(step, wanted)
            self.blocks += 1
            step += done
            progress(step / self.steps)
            block = min(_BLOCK_MAX, 2 * block) if done == wanted else _BLOCK_MIN

    def _until_next(self, step: int, now_s: float) -> int:
        """Steps until something that is known beforehand."""
        times = [self.map.next_done_s(), *(change.at_s for change in self._changes[:1])]
        if self._expiry is not None:
            times.append(self._expiry.next_turn_s(now_s))
        if self.workload.merges:
            times.append(now_s + HOUR_S)
        ends = [math.ceil(time_s / self.step_s - 1e-9) for time_s in times if time_s < math.inf]
        changed = self.course.next_change(step)
        if changed is not None:
            ends.append(changed)
        return max(1, min((end - step for end in ends), default=self.steps))

    def _happen(self, step: int, now_s: float) -> None:
        while self._changes and self._changes[0].at_s <= now_s:
            self.target_ru = self._changes.pop(0).ru
            self.events.add(now_s, "scaled", f"The throughput is set to {self.target_ru:,} RU/s.", ru=self.target_ru)
        self._finish_splits(now_s)
        self._note_full_keys(now_s)
        self._begin_splits(now_s)
        self._merge(now_s)
        self._grow(now_s)
        if self.target_ru <= self.map.count * self.workload.bounds.throughput_ru:
            self.in_force_ru = self.target_ru
        spiking = tuple(self.course.spikes.index(each) for each in self.course.keyed_at(step))
        if spiking != self._spiking:
            self._spike(now_s, spiking)

    def _spike(self, now_s: float, spiking: tuple[int, ...]) -> None:
        self._present = self._load
        for index in spiking:
            each = self.course.spikes[index]
            self._present = self._present.spiked(each.spike, each.extra)
            if index not in self._spiking:
                text = f"A spike of {each.spike.factor:g} times the load begins on the key {each.spike.key}."
                self.events.add(now_s, "spike", text, key=each.spike.key)
        self._spiking = spiking
        self._regime = None

    # Keys.

    def _note_full_keys(self, now_s: float) -> None:
        found = np.flatnonzero((self.stored.keys >= FULL_SHARE * self.stored.limit_bytes) & ~self.stored.is_full)
        opened = np.flatnonzero((self.stored.keys < _OPEN * self.stored.limit_bytes) & self.stored.is_full)
        for rank in found.tolist():
            self.full_since.setdefault(rank, now_s)
            limit = self.stored.limit_bytes / limits.GB
            text = f"The key {self.space.names[rank]} is full ({limit:,.4g} GB): its new items are refused with 403."
            self.events.add(now_s, "full", text, key=self.space.names[rank])
        if len(found) or len(opened):
            self.stored.is_full[found], self.stored.is_full[opened] = True, False
            self._regime = None

    # The map.

    def partition_bytes(self) -> Numbers:
        return self.stored.by_partition(self.space, self.map.bounds)

    def _finish_splits(self, now_s: float) -> None:
        if self.map.next_done_s() > now_s:
            return
        partition_counts.check_count(self.map.count + len(self.map.running))
        for split in self.map.finish(now_s):
            index = int(np.searchsorted(self.map.bounds, split.boundary)) - 1
            self._budgets.divide(index)
            share = self._budget_ru()
            text = f"A partition was split for {split.reason}: {self.map.count} partitions of {share:,.1f} RU/s."
            self.events.add(now_s, "split", text, reason=split.reason, partitions=self.map.count)
        self._regime = None

    def _begin_splits(self, now_s: float, *, is_at_once: bool = False) -> None:
        """Of partitions that have outgrown their storage."""
        while True:
            sizes = self.partition_bytes()
            begun = False
            for index in np.flatnonzero(sizes >= self.workload.bounds.storage_bytes).tolist():
                low = float(self.map.bounds[index])
                if low not in self.map.running and sizes[index] >= self.map.outgrown.get(low, 0.0):
                    begun |= self._begin(now_s, index, float(sizes[index]), STORAGE, is_at_once=is_at_once)
            if not begun or self.map.next_done_s() > now_s:
                return
            self._finish_splits(now_s)

    def _begin(self, now_s: float, index: int, size_bytes: float, reason: str, *, is_at_once: bool = False) -> bool:
        low, high = float(self.map.bounds[index]), float(self.map.bounds[index + 1])
        is_tiny = size_bytes < min(limits.TINY_PARTITION_BYTES, self.workload.bounds.storage_bytes / 8)
        boundary = None
        if reason == STORAGE or not is_tiny:
            boundary = cut_of(self.space, self.stored.keys, self.stored.mass, low, high)
        if boundary is None and reason == THROUGHPUT:
            boundary = (low + high) / 2.0
        if boundary is None or not low < boundary < high:
            # One key alone: looked at again when the partition has grown, perhaps by other keys.
            self.map.outgrown[low] = size_bytes * (1.0 + 1.0 / limits.OUTGROWN_SHARE)
            return False
        done_s = now_s if is_at_once else now_s + self._split_seconds(size_bytes)
        self.map.running[low] = Split(boundary, done_s, reason)
        return True

    def _split_seconds(self, size_bytes: float) -> float:
        if self.workload.split_s is not None:
            return self.workload.split_s
        return CLOUD_SPLIT_S if self.options.is_cloud else size_bytes / COPY_BYTES_S

    def _grow(self, now_s: float) -> None:
        """Begin the splits that more throughput needs, the fullest partitions first."""
        wanted = partition_counts.after_scaling(1, max(1, self.target_ru), self.workload.bounds.throughput_ru)
        while wanted > self.map.count + len(self.map.running):
            sizes, widths = self.partition_bytes(), np.diff(self.map.bounds)
            free = [index for index in range(self.map.count) if float(self.map.bounds[index]) not in self.map.running]
            free.sort(key=lambda index: (-sizes[index], -widths[index]))
            missing = wanted - self.map.count - len(self.map.running)
            for index in free[:missing]:
                self._begin(now_s, index, float(sizes[index]), THROUGHPUT)
            if self.map.next_done_s() > now_s:
                return
            self._finish_splits(now_s)

    def _merge(self, now_s: float) -> None:
        """By policy: two small neighbours, where the share of throughput is small too."""
        count = self.map.count
        small = self.workload.bounds.storage_bytes * limits.MERGE_STORAGE_SHARE_MAX
        carried_ru = (count - 1) * self.workload.bounds.throughput_ru
        if not self.workload.merges or count < 2 or self.map.running or self.target_ru > carried_ru:
            return
        sizes = self.partition_bytes()
        if self.target_ru / count >= limits.MERGE_PARTITION_RU_MAX or sizes.mean() >= small:
            return
        pairs = sizes[:-1] + sizes[1:]
        index = int(np.argmin(pairs))
        if pairs[index] < small:
            self.map.merge(index)
            self._budgets.join(index)
            self._regime = None
            self.events.add(now_s, "merge", f"Two small partitions were merged: {self.map.count} partitions.")

    # Load.

    def _budget_ru(self) -> float:
        partition_ru = float(self.workload.bounds.throughput_ru)
        if self.provision.kind == SERVERLESS:
            return min(float(limits.SERVERLESS_PARTITION_RU), partition_ru)
        return min(partition_ru, self.in_force_ru / self.map.count)

    def _open_shares(self, leaving: Amounts, factor: float) -> Numbers:
        """Which share of its new items each key takes: all, or if it is full as many bytes as leave it."""
        added = self._present.added_bytes.keys * factor
        kept = np.divide(leaving.keys, added, out=np.ones(len(added)), where=added > 0.0)
        return np.where(self.stored.is_full, np.minimum(1.0, kept), 1.0)

    def demand_by_key(self) -> Amounts:
        """Request units a second of each key as things are now, at factor 1."""
        full = self.stored.is_full
        keys = np.where(full, self._present.demand_full.keys, self._present.demand.keys)
        return Amounts(keys, self._present.demand.rest)

    def _renewed(self, load: OperationLoad, open_shares: Numbers) -> _Regime:
        bounds = self.map.bounds
        demand = load.demand_full.keys + open_shares * (load.demand.keys - load.demand_full.keys)
        variance = load.variance_full.keys + open_shares * (load.variance.keys - load.variance_full.keys)
        fanned, fanned_variance = load.fanned_by_partition(self.map.count)
        refused = float((load.adding.keys * (1.0 - open_shares)).sum())
        return _Regime(
            self.space.by_partition(demand, load.demand.rest, bounds) + fanned,
            self.space.by_partition(variance, load.variance.rest, bounds) + fanned_variance,
            refused / load.writes if load.writes else 0.0,
            load.writes,
        )

    def load_by_partition(self, requests: Workload | None = None) -> tuple[Numbers, Numbers, float]:
        """When the last step has ended: the demand of each partition, its variance, and the budget that each has, with
        the rates of that moment. `requests`: the operations with other shares of the same keys, where what is asked for
        now differs from what was stored."""
        now_s, shape = self.steps * self.step_s, self.workload.shape
        load, factor = self._load, shape.regular(now_s)
        if requests is not None:
            load = OperationLoad(requests, self.space, 1.0 + self.options.index_share)
        for spike in shape.spikes_at(now_s):
            if spike.key is None:
                factor *= spike.factor
            else:
                load = load.spiked(spike, spike.factor - 1.0)
        regime = self._renewed(load, self._open_shares(self._leaving(now_s, factor), factor))
        return regime.demand_ru * factor, regime.variance * factor, self._budget_ru()

    def _leaving(self, now_s: float, factor: float) -> Amounts:
        """Bytes that leave a second, by expiry and deletes."""
        deleted = self._present.removed_bytes
        found = Amounts(deleted.keys * factor, deleted.rest * factor)
        if self._expiry is not None:
            expired = self._expiry.rates(now_s)
            found.add(expired.keys, expired.rest)
        return found

    def _serve(self, step: int, wanted: int) -> int:
        """Serve up to so many steps, until a key or a partition is full. Returns how many."""
        now_s = step * self.step_s
        factors = self.course.factors[step : step + wanted]
        mean = float(factors.mean())
        leaving = self._leaving(now_s, mean)
        open_shares = self._open_shares(leaving, mean)
        if self._regime is None or (self._expiry is not None and self.stored.is_full.any()):
            self._regime = self._renewed(self._present, open_shares)
        regime, budget_ru = self._regime, self._budget_ru()
        served = self._budgets.serve(regime.demand_ru, regime.variance, budget_ru, factors, self.step_s)
        added = self._present.added_bytes
        adding = Amounts(added.keys * open_shares, added.rest)
        growth = Growth(self.space, self.map, self.stored, adding, leaving, served, factors, self.step_s)
        done = growth.steps_until_full(self.workload.bounds.storage_bytes)
        self._record(step, done, regime, served, growth, budget_ru)
        self._budgets.keep(served, done, regime.demand_ru, budget_ru, factors, self.step_s)
        growth.store(done)
        if self._expiry is not None:
            self._expiry.add(now_s, growth.written_in(done))
        return done

    def _record(self, step: int, done: int, regime: _Regime, served: Served, growth: Growth, budget_ru: float) -> None:
        factors = self.course.factors[step : step + done]
        demand = regime.demand_ru[served.hot, None] * factors
        normalized = regime.demand_ru / budget_ru
        current, billed = self._scaled(regime.demand_ru, factors, budget_ru)
        self.recording.note(
            step,
            done,
            bytes=growth.total_before(done),
            partitions=float(self.map.count),
            fullKeys=float(self.stored.is_full.sum()),
            ruPerPartition=budget_ru,
            provisionedRu=float(self.target_ru),
            demandRu=float(regime.demand_ru.sum()) * factors,
            refusedRu=(served.refused[:, :done] * demand).sum(axis=0),
            failedRu=(served.failed[:, :done] * demand).sum(axis=0),
            fullShare=regime.full_share,
            writes=regime.writes * factors,
            waitS=served.wait_s[:, :done].max(axis=0, initial=0.0),
            normalizedMax=float(normalized.max()) * factors,
            normalizedP99=float(np.quantile(normalized, 0.99, method="inverted_cdf")) * factors,
            normalizedMedian=float(np.quantile(normalized, 0.5, method="inverted_cdf")) * factors,
            currentRu=current,
            billedRu=billed,
        )

    def _scaled(self, demand_ru: Numbers, factors: Numbers, budget_ru: float) -> tuple[Numbers, Numbers]:
        """Where an autoscale range stands, and what it is billed as."""
        count = self.map.count
        if not self.provision.is_autoscale:
            fixed = np.full(len(factors), float(self.target_ru))
            return fixed, fixed
        busiest = np.minimum(float(demand_ru.max()) * factors, budget_ru)
        most = float(self.in_force_ru)
        current = np.minimum(most, np.maximum(most / 10.0, count * busiest))
        if not self.options.is_dynamic:
            return current, current
        # `money.dynamic_billed_ru` for many steps at once.
        share_ru = most / count
        return current, np.clip(demand_ru[:, None] * factors, share_ru / 10.0, share_ru).sum(axis=0)
