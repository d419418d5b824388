"""What partitions refuse in a block of steps: the refused share of each second, the backlog of requests that clients
retry, and units saved for bursts. Only partitions near their budget are computed; the others refuse nothing.

The refused share is that of `planning/refusals.py`, for many partitions and steps at once. numpy has no error function,
so the tail of the normal distribution is a polynomial (Abramowitz and Stegun, 26.2.17) with an error below 2e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from armillary import limits
from armillary.insight.planning.refusals import RETRY_SECONDS_MAX
from armillary.insight.planning.workload import NO_RETRIES, SDK_RETRIES
from armillary.insight.simulation.key_space import Indexes, Numbers

_FACTORS: Final = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
_SLOPE: Final = 0.2316419
_ROOT_2_PI: Final = math.sqrt(2.0 * math.pi)
_FAR: Final = 9.0  # standard deviations below the budget, where nothing is refused
_LEAST: Final = 1e-9  # a smaller share is the error of the polynomial


def normal_density(z: Numbers) -> Numbers:
    return np.asarray(np.exp(-0.5 * z * z) / _ROOT_2_PI)


def normal_above(z: Numbers) -> Numbers:
    """1 - Φ(z)."""
    size = np.abs(z)
    t = 1.0 / (1.0 + _SLOPE * size)
    first, second, third, fourth, fifth = _FACTORS
    tail = normal_density(size) * t * (first + t * (second + t * (third + t * (fourth + t * fifth))))
    return np.where(z >= 0, tail, 1.0 - tail)


def refused_shares(demand_ru: Numbers, variance: Numbers, budget_ru: Numbers) -> Numbers:
    """The share of each demand that is beyond its budget; the arrays have one shape, or can be brought to one."""
    demand, spread, budget = np.broadcast_arrays(demand_ru, variance, budget_ru)
    found = np.zeros(demand.shape)
    sigma = np.sqrt(spread)
    near = (demand > 0.0) & (spread > 0.0) & (budget - demand < _FAR * sigma)
    if not near.any():
        return found
    sigma, mean = sigma[near], demand[near]
    z = (budget[near] - mean) / sigma
    shares = np.clip(sigma / mean * (normal_density(z) - z * normal_above(z)), 0.0, 1.0)
    found[near] = np.where(shares < _LEAST, 0.0, shares)
    return found


def refused_deviations(demand_ru: Numbers, variance: Numbers, budget_ru: float) -> Numbers:
    """By how much the refused share of one second differs from that of many: the standard deviation of the units beyond
    the budget, over the demand."""
    sigma = np.sqrt(np.maximum(variance, 1e-12))
    z = np.maximum((budget_ru - demand_ru) / sigma, -_FAR)
    above, density = normal_above(z), normal_density(z)
    mean = density - z * above
    square = (1.0 + z * z) * above - z * density
    return np.asarray(sigma * np.sqrt(np.maximum(0.0, square - mean * mean)) / np.maximum(demand_ru, 1e-12))


@dataclass(slots=True)
class Served:
    """Of a block of steps. Rows are the partitions `hot`; all others serve everything."""

    hot: Indexes
    refused: Numbers  # share of the demand that gets 429 at first
    failed: Numbers  # share that is never served
    wait_s: Numbers  # of those that are retried
    backlog_ru: Numbers  # after each step
    saved_ru: Numbers  # for bursts, after each step


class BudgetState:
    """Backlogs and saved units of all partitions, which last from one block to the next."""

    def __init__(self, partitions: int, retries: str, *, has_burst: bool) -> None:
        self.backlog_ru: Numbers = np.zeros(partitions)
        self.saved_ru: Numbers = np.zeros(partitions)
        self._is_retrying, self._has_burst = retries != NO_RETRIES, has_burst
        self._most_s = RETRY_SECONDS_MAX if retries == SDK_RETRIES else math.inf

    def divide(self, index: int) -> None:
        """A partition was split: its children take half of each."""
        for name in ("backlog_ru", "saved_ru"):
            values: Numbers = getattr(self, name)
            values[index] /= 2.0
            setattr(self, name, np.insert(values, index, values[index]))

    def join(self, index: int) -> None:
        """A partition was merged with the next one."""
        for name in ("backlog_ru", "saved_ru"):
            values: Numbers = getattr(self, name)
            values[index] += values[index + 1]
            setattr(self, name, np.delete(values, index + 1))

    def serve(self, demand_ru: Numbers, variance: Numbers, budget_ru: float, factors: Numbers, step_s: float) -> Served:
        """What comes of a block, in which all demands follow the factors. The state changes when `keep` is called."""
        highest = float(factors.max())
        nearest = demand_ru * highest + _FAR * np.sqrt(variance * highest)
        hot = np.flatnonzero((nearest > budget_ru) | (self.backlog_ru > 0.0))
        shape = (len(hot), len(factors))
        nothing = np.zeros(shape)
        if not len(hot):
            return Served(hot, nothing, nothing, nothing, nothing, nothing)
        demand = demand_ru[hot, None] * factors
        budgets, saved = self._with_bursts(hot, demand, budget_ru, step_s)
        refused = refused_shares(demand, variance[hot, None] * factors, budgets)
        if not self._is_retrying:
            return Served(hot, refused, refused, nothing, nothing, saved)
        failed, wait_s, backlog = self._retried(hot, demand, budgets, step_s)
        return Served(hot, refused, failed, wait_s, backlog, saved)

    def keep(
        self, served: Served, steps: int, demand_ru: Numbers, budget_ru: float, factors: Numbers, step_s: float
    ) -> None:
        """Go on from the state after so many steps of a block."""
        if self._has_burst and budget_ru < limits.BURST_THROUGHPUT_RU:
            most = budget_ru * limits.BURST_SECONDS_MAX
            spare = budget_ru * steps * step_s - demand_ru * float(factors[:steps].sum()) * step_s
            self.saved_ru = np.minimum(most, self.saved_ru + np.maximum(spare, 0.0))
            self.saved_ru[served.hot] = served.saved_ru[:, steps - 1]
        if self._is_retrying:
            self.backlog_ru[served.hot] = served.backlog_ru[:, steps - 1]

    def _with_bursts(self, hot: Indexes, demand: Numbers, budget_ru: float, step_s: float) -> tuple[Numbers, Numbers]:
        """The budget of each step with what is saved for bursts, and what is saved then."""
        budgets = np.full(demand.shape, budget_ru)
        kept = np.zeros(demand.shape)
        if not self._has_burst or budget_ru >= limits.BURST_THROUGHPUT_RU:
            return budgets, kept
        saved, most = self.saved_ru[hot], budget_ru * limits.BURST_SECONDS_MAX
        for step in range(demand.shape[1]):
            asked = np.minimum(demand[:, step], limits.BURST_THROUGHPUT_RU) - budget_ru
            used = np.minimum(saved, np.maximum(asked, 0.0) * step_s)
            budgets[:, step] += used / step_s
            saved = np.minimum(most, saved - used + np.maximum(budget_ru - demand[:, step], 0.0) * step_s)
            kept[:, step] = saved
        return budgets, kept

    def _retried(
        self, hot: Indexes, demand: Numbers, budgets: Numbers, step_s: float
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Refused units come again: a backlog grows by the excess; what waits longer than clients do fails."""
        failed, wait_s, kept = np.zeros(demand.shape), np.zeros(demand.shape), np.zeros(demand.shape)
        backlog = self.backlog_ru[hot]
        if not backlog.any() and (demand <= budgets).all():
            return failed, wait_s, kept
        for step in range(demand.shape[1]):
            asked, budget = demand[:, step], budgets[:, step]
            grown = np.maximum(0.0, backlog + (asked - budget) * step_s)
            most = self._most_s * budget
            backlog = np.minimum(grown, most)
            failed[:, step] = np.divide(grown - backlog, asked * step_s, out=np.zeros(len(hot)), where=asked > 0.0)
            wait_s[:, step] = backlog / budget
            kept[:, step] = backlog
        return failed, wait_s, kept
