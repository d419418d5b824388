"""What a workload needs, at once: request units of its operations, throughput, partitions, storage, the day on which a
key is full, and what manual throughput, autoscale and serverless would cost side by side. The answer is plain data in
the form that `armillary estimate --json` prints.

Nothing is sampled here: the figures rest on the rates, sizes and keys of the workload, which the answer names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from armillary import limits
from armillary.errors import bad_request
from armillary.insight.planning import distributions, money, needs, operation_charges, partition_counts, visits
from armillary.insight.planning import workload_demands as routes
from armillary.insight.planning.money import Bill
from armillary.insight.planning.needs import Demand, PartitionLoads, Requirement
from armillary.insight.planning.prices import Prices
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S
from armillary.insight.planning.workload import AUTOSCALE, MANUAL, SERVERLESS, Spike, Workload
from armillary.insight.planning.workload_demands import WorkloadDemands

VERSION: Final = 1
INDEX_SHARE_CLOUD: Final = 0.2  # an assumption: the service counts the index as storage
FORMULA_ERROR: Final = 0.1  # of the refused share, seen against partition/budget.py
_WEEK_HOURS: Final = 7 * 24
_TOP_KEYS: Final = 10
_WARNED_DAYS: Final = 730  # of a full key, where no horizon is given
_FULL_DAYS_MAX: Final = 3_650  # a later day is no plan
_FILLED_PARTITION: Final = 0.8  # of its storage, when much data is loaded at once


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    horizon_s: float = 0.0  # how far ahead the data and the rates have grown
    utilisation: float = needs.UTILISATION
    index_share: float = 0.0  # of the items' bytes, counted as storage too
    is_dynamic: bool = False  # autoscale bills each partition by itself


def estimate(workload: Workload, prices: Prices, options: EstimateOptions | None = None) -> dict[str, Any]:
    try:
        return _Estimate(workload, prices, options or EstimateOptions()).content()
    except OverflowError:
        raise bad_request("The rates grow beyond all numbers in this time: check shape.growth_per_month.") from None


class _Estimate:
    def __init__(self, workload: Workload, prices: Prices, options: EstimateOptions) -> None:
        self._workload, self._prices, self._options = workload, prices, options
        self._demands = WorkloadDemands(workload)
        self._factor = workload.shape.highest(options.horizon_s)
        self._growth_bytes_day = self._mean_growth_s() * DAY_S
        grown_s = workload.shape.grown_s(options.horizon_s)
        grown = workload.data.size_bytes + self._growth_bytes_day * grown_s / DAY_S
        if workload.data.ttl_s:
            alive_s = grown_s - workload.shape.grown_s(options.horizon_s - workload.data.ttl_s)
            grown = min(grown, max(workload.data.size_bytes, self._growth_bytes_day * alive_s / DAY_S))
        self._stored_bytes = max(0.0, grown) * (1.0 + options.index_share)
        self._warnings: list[str] = []
        self._loads: dict[int, PartitionLoads] = {}

    def _load(self, partitions: int) -> PartitionLoads:
        """At the given rates. All loads follow the factor of the time."""
        if partitions not in self._loads:
            self._loads[partitions] = PartitionLoads.of(self._demands.at(), partitions)
        return self._loads[partitions]

    def content(self) -> dict[str, Any]:
        manual, autoscale = self._required(is_autoscale=False), self._required(is_autoscale=True)
        chosen = self._chosen(manual, autoscale)
        provisioned = self._provisioned()
        return {
            "version": VERSION,
            "inputs": self._inputs(),
            "assumptions": self._assumptions(),
            "restsOn": self._rests_on(chosen, has_throughput=provisioned is not None),
            "operations": self._operations(chosen),
            "peak": self._peak(chosen),
            "keys": self._keys(chosen),
            "storage": self._storage(),
            "required": {
                MANUAL: self._requirement(manual, is_autoscale=False),
                AUTOSCALE: self._requirement(autoscale, is_autoscale=True),
                SERVERLESS: self._serverless(),
            },
            "provisioned": provisioned,
            "breakEven": self._break_even(manual),
            "warnings": self._warnings,
        }

    # The load.

    def _mean_growth_s(self) -> float:
        shape = self._workload.shape
        mean = math.fsum(shape.weekly) / len(shape.weekly) * math.fsum(shape.daily) / len(shape.daily)
        return self._demands.growth_bytes_s(mean)

    def _peaks(self) -> list[list[Demand]]:
        """The load at the highest regular rates, and in each spike."""
        found = [self._demands.at(self._factor)]
        for spike in self._workload.shape.spikes:
            if not self._options.horizon_s or spike.at_s <= self._options.horizon_s:
                found.append(self._in_spike(spike))
        return found

    def _in_spike(self, spike: Spike) -> list[Demand]:
        factor = self._workload.shape.regular(spike.at_s)
        if spike.key is not None:
            return self._demands.at(factor, spike)
        return self._demands.at(factor * spike.factor)

    def _required(self, *, is_autoscale: bool) -> Requirement | None:
        """The most that any of the peaks needs."""
        found = [
            needs.required_throughput(
                demands,
                self._stored_bytes,
                is_autoscale=is_autoscale,
                utilisation=self._options.utilisation,
                bounds=self._workload.bounds,
            )
            for demands in self._peaks()
        ]
        known = [each for each in found if each is not None]
        return max(known, key=lambda each: each.throughput_ru) if len(known) == len(found) else None

    def _chosen(self, manual: Requirement | None, autoscale: Requirement | None) -> int:
        """The number of partitions that the figures about load are for."""
        if self._workload.provision is not None:
            return self._provisioned_partitions()
        known = manual or autoscale
        initial = known.partitions if known is not None else 1
        return partition_counts.by_storage(initial, self._stored_bytes, self._workload.bounds.storage_bytes)

    def _provisioned_partitions(self) -> int:
        workload, provision = self._workload, self._workload.provision
        assert provision is not None
        partition_ru = workload.bounds.throughput_ru
        initial = 1
        if provision.kind != SERVERLESS:
            initial = partition_counts.created(
                provision.ru,
                is_autoscale=provision.is_autoscale,
                partition_ru=partition_ru,
                initial_share=workload.bounds.initial_share,
            )
        for change in self._changes():
            initial = partition_counts.after_scaling(initial, change, partition_ru)
        return partition_counts.by_storage(initial, self._stored_bytes, workload.bounds.storage_bytes)

    def _changes(self) -> list[int]:
        """Throughput that is set within the horizon."""
        return [each.ru for each in self._workload.changes if each.at_s <= self._options.horizon_s]

    # Parts of the answer.

    def _inputs(self) -> dict[str, Any]:
        workload, options = self._workload, self._options
        provision = workload.provision
        return {
            "partitionKey": list(workload.partition_key),
            "provision": {"kind": provision.kind, "ru": provision.ru} if provision is not None else None,
            "keys": workload.data.keys.text,
            "horizonDays": round(options.horizon_s / DAY_S, 3),
            "utilisation": options.utilisation,
            "indexShare": options.index_share,
            "regions": workload.regions,
            "partitionStorageBytes": workload.bounds.storage_bytes,
            "logicalPartitionBytes": workload.bounds.logical_bytes,
            "partitionThroughputRu": workload.bounds.throughput_ru,
        }

    def _assumptions(self) -> list[str]:
        workload, options = self._workload, self._options
        found = [
            "Rates, sizes and the distribution of keys are those of the workload; nothing was sampled.",
            workload.bounds.text,
            f"The hottest partition is planned to use {options.utilisation:.0%} of its share.",
            f"Shares of refused requests are by formula, within {FORMULA_ERROR:.0%} of the engine's.",
            "Rows of queries that visit several partitions lie evenly in them.",
        ]
        if workload.data.keys.shares.zipf is not None:
            found.append("Keys are named k1, k2, … and lie where their hash says; real names lie elsewhere.")
        if options.index_share:
            found.append(f"The index takes {options.index_share:.0%} of the items' bytes as storage.")
        if options.horizon_s:
            days = options.horizon_s / DAY_S
            found.append(f"Data and rates are those in {days:,.0f} days, by the growth that the workload says.")
        if workload.is_hierarchical:
            found.append(
                f"Below a value of the first level lie {workload.data.keys.second_level:,} of the further levels. It "
                "is taken to lie in one partition; splits by storage divide it, as `armillary simulate` shows."
            )
        if any(each.kind in ("replace", "patch", "upsert") for each in workload.operations):
            found.append("An update changes as many indexed values as its changed_values says (1 without it).")
        if options.horizon_s:
            found.append("What full keys refuse is counted as stored here; `armillary simulate` leaves it out.")
        return found

    def _rests_on(self, partitions: int, *, has_throughput: bool) -> dict[str, str]:
        """What the figures of each part rest on, those that have no interval of their own."""
        days = self._options.horizon_s / DAY_S
        when = f"in {days:,.0f} days" if days else "now"
        months = f"a month of {self._prices.month_hours:,g} hours"
        times = f"{self._factor:,.4g} times those given" if self._factor != 1.0 else "as given"
        found = {
            "operations": "RU each: what the engine charges for items, index terms, rows and seeks as the workload has "
            f"them. Rates: the highest of a week {when}, {times}.",
            "peak": f"The load of partitions: {partitions:,} of equal width, with keys where the hash of their names "
            "says. --seed lays the keys of a distribution elsewhere.",
            "keys": f"Keys: the distribution of the workload. Their bytes: its share of all that is stored {when}. The "
            "day on which one is full: the growth of the workload goes on.",
            "storage": f"Stored: the size that is given and what the rates have added {when}. To load it at once: one "
            f"create for each item, partitions filled to {_FILLED_PARTITION:.0%}, all throughput used.",
            "required": f"Needed: the peak, and bytes that fill all partitions alike. Money: {months} at the prices "
            "named; autoscale by the hours of a week, serverless by its mean load, both without spikes.",
            "provisioned": "The throughput of the workload: at the highest rates, spikes included. Shares of refused "
            f"requests: by formula, within {FORMULA_ERROR:.0%} of the engine's.",
            "breakEven": "Where another kind costs less: the prices alone.",
        }
        if not has_throughput:
            del found["provisioned"]
        return found

    def _operations(self, partitions: int) -> list[dict[str, Any]]:
        found = []
        for each in self._workload.operations:
            charge_ru = routes.charge_ru(self._workload, each, partitions)
            found.append(
                {
                    "kind": each.kind,
                    "filter": list(each.filter),
                    "rate": each.rate * self._factor,
                    "chargeRu": round(charge_ru, 3),
                    "partitions": round(routes.visited(self._workload, each, partitions), 3),
                    "ruPerSecond": round(each.rate * self._factor * charge_ru, 2),
                }
            )
        return found

    def _peak(self, partitions: int) -> dict[str, Any]:
        load = self._load(partitions)
        queries = [each for each in self._workload.operations if each.kind == "query"]
        visited = [(each.rate, routes.visited(self._workload, each, partitions)) for each in queries]
        return {
            "factor": round(self._factor, 6),
            "partitions": partitions,
            "totalRu": round(load.total_ru * self._factor, 2),
            "hottestRu": round(load.hottest_ru * self._factor, 2),
            "hottestOfFair": round(load.hottest_of_fair, 4),
            "fanOut": round(visits.fan_out(visited), 3) if queries else None,
            "spikes": len(self._workload.shape.spikes),
        }

    def _keys(self, partitions: int) -> dict[str, Any]:
        data = self._workload.data
        shares, second_level = data.keys.shares, data.keys.second_level
        limit_bytes = self._workload.bounds.logical_bytes
        stored = 1.0 + self._options.index_share
        largest = shares.largest / second_level
        days = needs.days_to_fill(
            largest * data.size_bytes * stored, largest, self._growth_bytes_day * stored, limit_bytes
        )
        until_s = self._workload.shape.until_s(days * DAY_S) if days is not None else None
        days = until_s / DAY_S if until_s is not None else None
        if data.ttl_s and largest * self._growth_bytes_day * stored * data.ttl_s / DAY_S < limit_bytes:
            days = None  # items leave before the key is full
        if days is not None and days > _FULL_DAYS_MAX:
            days = None
        largest_key = str(shares.named[0][0]) if shares.named else "k1"
        enough = distributions.enough_values(partitions)
        if days is not None and days * DAY_S <= (self._options.horizon_s or _WARNED_DAYS * DAY_S):
            self._warnings.append(
                f"The key {largest_key} reaches {limit_bytes / limits.GB:,.4g} GB on day {days:,.1f}: "
                "from then on its writes are refused for good."
            )
        if shares.count * second_level < enough:
            self._warnings.append(
                f"{shares.count:,} values are few for {partitions} partitions: {enough:,} of equal weight keep the "
                "fullest below 1.5 times its share."
            )
        return {
            "count": shares.count,
            "largestKey": largest_key,
            "largestShare": shares.largest,
            "topTenShare": shares.top_share(_TOP_KEYS),
            "effectiveKeys": round(shares.effective_keys(), 3),
            "gini": round(shares.gini(), 5) if shares.zipf or shares.count <= limits.OVERVIEW_KEYS_MAX else None,
            "largestBytes": round(largest * self._stored_bytes),
            "fullOnDay": round(days, 2) if days is not None else None,
            "enoughValues": enough,
        }

    def _items(self) -> float:
        return self._stored_bytes / (self._workload.data.item.size_bytes * (1.0 + self._options.index_share))

    def _create_ru(self) -> float:
        return operation_charges.create_ru(self._workload.data.item)

    def _storage(self) -> dict[str, Any]:
        bounds = self._workload.bounds
        filled = _FILLED_PARTITION * bounds.storage_bytes
        plan = partition_counts.ingest_plan(self._stored_bytes, self._items(), self._create_ru(), filled, bounds=bounds)
        return {
            "bytes": round(self._stored_bytes),
            "growthBytesPerDay": round(self._growth_bytes_day * (1.0 + self._options.index_share)),
            "leastPartitions": partition_counts.least_by_storage(self._stored_bytes, bounds.storage_bytes),
            "minimumRu": {
                MANUAL: partition_counts.minimum_ru(self._stored_bytes),
                AUTOSCALE: partition_counts.minimum_ru(self._stored_bytes, is_autoscale=True),
            },
            "ingest": {
                "partitions": plan.partitions,
                "createdPartitions": partition_counts.created(
                    plan.create_with_ru, partition_ru=bounds.throughput_ru, initial_share=bounds.initial_share
                ),
                "createWithRu": plan.create_with_ru,
                "scaleToRu": plan.scale_to_ru,
                "hours": round(plan.hours, 3),
            },
        }

    def _requirement(self, need: Requirement | None, *, is_autoscale: bool) -> dict[str, Any] | None:
        if need is None:
            kind = AUTOSCALE if is_autoscale else MANUAL
            self._warnings.append(
                f"No {kind} throughput up to {limits.THROUGHPUT_MAX_RU:,} RU/s is enough: the hottest partition needs "
                f"more than {self._options.utilisation:.0%} of what a partition carries "
                f"({self._workload.bounds.throughput_ru:,} RU/s)."
            )
            return None
        bill = self._autoscale_bill(need) if is_autoscale else self._manual_bill(need.throughput_ru)
        bounds = self._workload.bounds
        carried_ru = need.partitions * bounds.throughput_ru
        even_ru = partition_counts.even_scale_up(need.partitions, carried_ru + 1, bounds.throughput_ru)
        return {
            "throughputRu": need.throughput_ru,
            "createWithRu": need.create_with_ru,
            "partitions": need.partitions,
            "ruPerPartition": round(need.throughput_ru / need.partitions, 2),
            "bytesPerPartition": round(self._stored_bytes / need.partitions),
            "hottestRu": round(need.hottest_ru, 2),
            "surcharge": round(need.surcharge, 4),
            "ingestDays": round(self._items() * self._create_ru() / need.throughput_ru / DAY_S, 3),
            "carriedRu": min(carried_ru, bounds.container_ru_max),
            "evenScaleUpRu": even_ru if even_ru <= bounds.container_ru_max else None,
            "monthly": bill.to_json(),
        }

    def _manual_bill(self, throughput_ru: int) -> Bill:
        regions = self._workload.regions
        return Bill(money.manual_month(self._prices, throughput_ru, regions), self._storage_month(), self._prices)

    def _storage_month(self) -> float:
        return money.storage_month(self._prices, self._stored_bytes, self._workload.regions)

    def _autoscale_bill(self, need: Requirement) -> Bill:
        """By the hours of a week at the horizon; spikes are not in it."""
        hourly, load = [], self._load(need.partitions)
        for factor, hours in _counted(self._week()):
            if self._options.is_dynamic:
                billed = money.dynamic_billed_ru(need.throughput_ru, [each * factor for each in load.demand_ru])
            else:
                billed = money.autoscale_billed_ru(need.throughput_ru, need.partitions, load.hottest_ru * factor)
            hourly += [billed] * hours
        weeks = self._prices.month_hours / _WEEK_HOURS
        throughput = money.autoscale_hours(self._prices, hourly, self._workload.regions) * weeks
        return Bill(throughput, self._storage_month(), self._prices)

    def _week(self) -> list[float]:
        """The factors of the hours of a week, as they have grown by the horizon."""
        shape = self._workload.shape
        grown = self._factor / (max(shape.weekly) * max(shape.daily) or 1.0)
        return [shape.weekly[hour // 24] * shape.daily[hour % 24] * grown for hour in range(_WEEK_HOURS)]

    def _serverless(self) -> dict[str, Any]:
        bounds = self._workload.bounds
        partitions = partition_counts.by_storage(1, self._stored_bytes, bounds.storage_bytes)
        budget_ru = min(limits.SERVERLESS_PARTITION_RU, bounds.throughput_ru)
        hottest = max(PartitionLoads.of(demands, partitions).hottest_ru for demands in self._peaks())
        second_ru = self._load(partitions).total_ru * math.fsum(self._week()) / _WEEK_HOURS
        month_ru = second_ru * HOUR_S * self._prices.month_hours
        if hottest > budget_ru:
            self._warnings.append(
                f"Serverless is too small: the hottest partition needs {hottest:,.0f} RU/s of {budget_ru:,}."
            )
        consumed = money.serverless(self._prices, month_ru, self._workload.regions)
        return {
            "isPossible": hottest <= budget_ru,
            "partitions": partitions,
            "bytesPerPartition": round(self._stored_bytes / partitions),
            "hottestRu": round(hottest, 2),
            "budgetRu": budget_ru,
            "millionRuPerMonth": round(month_ru / 1e6, 3),
            "monthly": Bill(consumed, self._storage_month(), self._prices).to_json(),
        }

    def _provisioned(self) -> dict[str, Any] | None:
        """How the throughput of the workload does at the peaks."""
        provision, bounds = self._workload.provision, self._workload.bounds
        if provision is None:
            return None
        partitions = self._provisioned_partitions()
        if provision.kind == SERVERLESS:
            throughput_ru = partitions * min(limits.SERVERLESS_PARTITION_RU, bounds.throughput_ru)
        else:
            throughput_ru = [provision.ru, *self._changes()][-1]
        loads = [PartitionLoads.of(demands, partitions) for demands in self._peaks()]
        worst = max(loads, key=lambda load: load.hottest_ru)
        share_ru = min(float(bounds.throughput_ru), throughput_ru / partitions)
        refused = worst.refused_of_all(throughput_ru, bounds.throughput_ru)
        hottest_refused = max(worst.refused_shares(throughput_ru, bounds.throughput_ru))
        if hottest_refused > 0.01:
            self._warnings.append(
                f"At its peak {hottest_refused:.1%} of the request units of the hottest partition are refused (429), "
                f"{refused:.1%} of all."
            )
        found = {
            "kind": provision.kind,
            "throughputRu": throughput_ru,
            "partitions": partitions,
            "ruPerPartition": round(share_ru, 2),
            "bytesPerPartition": round(self._stored_bytes / partitions),
            "normalizedRu": round(worst.hottest_ru / share_ru, 4),
            "refusedShare": _with_error(refused),
            "hottestRefusedShare": _with_error(hottest_refused),
        }
        if provision.kind == MANUAL:
            found["monthly"] = self._manual_bill(throughput_ru).to_json()
        return found

    def _break_even(self, manual: Requirement | None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "autoscaleBelowMeanOfPeaks": round(money.autoscale_pays_below(self._prices), 4),
            "prices": self._prices.to_json(),
        }
        if manual is not None:
            even = money.serverless_pays_below(self._prices, manual.throughput_ru)
            found["serverlessBelowMillionRu"] = round(even.million_ru_month, 3)
            found["serverlessBelowUse"] = round(even.use_share, 4)
        return found


def _counted(factors: Sequence[float]) -> list[tuple[float, int]]:
    """Different factors with how often they come, in a fixed order."""
    return [(factor, factors.count(factor)) for factor in sorted(set(factors))]


def _with_error(share: float) -> dict[str, float]:
    """A refused share with the interval that the formula's error leaves."""
    return {
        "value": round(share, 6),
        "low": round(share * (1.0 - FORMULA_ERROR), 6),
        "high": round(min(1.0, share * (1.0 + FORMULA_ERROR)), 6),
    }
