"""What a simulation remembers of each step, and what is made of it in the end: a timeline of at most 2,000 points,
totals, percentiles and hours to be billed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from armillary import limits
from armillary.insight.planning import money
from armillary.insight.planning.money import Bill
from armillary.insight.planning.prices import Prices
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S, MONTH_S
from armillary.insight.planning.workload import AUTOSCALE, SERVERLESS, Provision
from armillary.insight.simulation.key_space import Numbers

POINTS_MAX: Final = 2_000
# Of each step. State at its beginning: bytes, partitions, full keys, budget, provisioned; the rest of its course.
_STATE: Final = ("bytes", "partitions", "fullKeys", "ruPerPartition", "provisionedRu")
_MEANS: Final = ("demandRu", "refusedRu", "failedRu", "fullShare", "writes")
_HIGHEST: Final = ("waitS", "normalizedMax", "normalizedP99", "normalizedMedian", "currentRu", "billedRu")
FIELDS: Final = (*_STATE, *_MEANS, *_HIGHEST)
_DIGITS: Final = 6


class Recording:
    def __init__(self, steps: int, step_s: float) -> None:
        self.step_s = step_s
        self.steps = steps
        self._columns: dict[str, Numbers] = {name: np.zeros(steps) for name in FIELDS}

    def note(self, first: int, count: int, **values: Numbers | float) -> None:
        """Values of a block of steps: one for each, or one for all."""
        assert values.keys() == self._columns.keys(), "a field of the recording is missing"
        for name, value in values.items():
            self._columns[name][first : first + count] = value

    @property
    def fields(self) -> tuple[str, ...]:
        return FIELDS

    def column(self, name: str) -> Numbers:
        return self._columns[name]

    def timeline(self, cost: Numbers) -> list[dict[str, Any]]:
        """Points in order; each stands for as many steps as it takes to have no more than 2,000."""
        stride = -(-self.steps // POINTS_MAX)
        firsts = np.arange(0, self.steps, stride)
        counts = np.minimum(firsts + stride, self.steps) - firsts
        thinned: dict[str, Numbers] = {name: self._columns[name][firsts] for name in _STATE}
        for name in _MEANS:
            thinned[name] = np.add.reduceat(self._columns[name], firsts) / counts
        for name in _HIGHEST:
            thinned[name] = np.maximum.reduceat(self._columns[name], firsts)
        demand = np.maximum(thinned["demandRu"], 1e-12)
        thinned["refusedShare"] = thinned.pop("refusedRu") / demand
        failed = thinned.pop("failedRu")
        thinned["failedShare"] = failed / demand
        thinned["servedRu"] = thinned["demandRu"] - failed
        del thinned["writes"]
        thinned["costSoFar"] = cost[firsts]
        days = firsts * self.step_s / DAY_S
        names = sorted(thinned)
        return [
            {"day": _rounded(days[row]), **{name: _rounded(thinned[name][row]) for name in names}}
            for row in range(len(firsts))
        ]

    def normalized_p99(self) -> float:
        """Of the highest normalised RU of each minute, or of each step where these are longer."""
        column = self._columns["normalizedMax"]
        in_minute = max(1, round(60.0 / self.step_s))
        minutes = np.maximum.reduceat(column, np.arange(0, self.steps, in_minute))
        return float(np.quantile(minutes, 0.99, method="inverted_cdf"))

    def totals(self) -> dict[str, Any]:
        demand, refused, failed = (float(self._columns[name].sum()) for name in ("demandRu", "refusedRu", "failedRu"))
        writes = self._columns["writes"]
        full = float((self._columns["fullShare"] * writes).sum())
        return {
            "demandRu": _rounded(demand * self.step_s),
            "refusedShare": _rounded(refused / demand) if demand else 0.0,
            "failedShare": _rounded(failed / demand) if demand else 0.0,
            "fullShareOfWrites": _rounded(full / float(writes.sum())) if writes.any() else 0.0,
            "normalizedP99": _rounded(self.normalized_p99()),
            "longestWaitS": _rounded(float(self._columns["waitS"].max())),
        }


def _rounded(value: float) -> float | int:
    """Six significant digits: more would be noise, and would hide that two runs are equal."""
    number = float(f"{float(value):.{_DIGITS}g}")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


@dataclass(frozen=True, slots=True)
class Costs:
    bill: Bill
    so_far: Numbers  # before each step

    def to_json(self, horizon_s: float) -> dict[str, Any]:
        months = horizon_s / MONTH_S
        per_month = Bill(self.bill.throughput / months, self.bill.storage / months, self.bill.prices)
        return {"whole": self.bill.to_json(), "perMonth": per_month.to_json()}


def costs_of(recording: Recording, prices: Prices, provision: Provision, regions: int) -> Costs:
    """Hours of throughput and months of storage. An hour is billed by its highest step."""
    hours = recording.step_s / HOUR_S
    if provision.kind == SERVERLESS:
        served = recording.column("demandRu") - recording.column("failedRu")
        throughput = served * recording.step_s / 1e6 * prices.serverless_million_ru * regions
    else:
        billed = _highest_of_hours(recording.column("billedRu"), recording.step_s)
        hundreds = np.ceil(billed / limits.THROUGHPUT_STEP_RU - 1e-9)
        is_autoscale = provision.kind == AUTOSCALE
        price = prices.autoscale_100_ru_hour if is_autoscale else prices.manual_100_ru_hour
        throughput = hundreds * price * hours * regions
    gigabytes = recording.column("bytes") / limits.GB
    storage = gigabytes * money.storage_month(prices, limits.GB, regions) * hours / prices.month_hours
    whole = np.concatenate(([0.0], np.cumsum(throughput + storage)))
    return Costs(Bill(float(throughput.sum()), float(storage.sum()), prices), whole[:-1])


def _highest_of_hours(billed: Numbers, step_s: float) -> Numbers:
    in_hour = round(HOUR_S / step_s)
    if in_hour <= 1:
        return billed
    highest = np.maximum.reduceat(billed, np.arange(0, len(billed), in_hour))
    return np.repeat(highest, in_hour)[: len(billed)]
