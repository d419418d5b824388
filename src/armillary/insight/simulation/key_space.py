"""The keys of a simulation in the order of the hash space, and what the operations ask of each: request units, their
variance, bytes that are added. The heaviest keys are known one by one; the rest is a mass that lies evenly.

A hierarchical key has a short stretch of the hash space instead of a point, since its further levels spread inside of
its place: a partition can be cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from armillary.insight.planning import placement
from armillary.insight.planning import workload_demands as routes
from armillary.insight.planning.distributions import KeyShares, KeyValue
from armillary.insight.planning.needs import FannedDemand
from armillary.insight.planning.operation_charges import WRITES
from armillary.insight.planning.workload import Operation, Spike, Workload
from armillary.insight.planning.workload_demands import FANNED, LISTED
from armillary.model import charges

Numbers: TypeAlias = npt.NDArray[np.float64]
Indexes: TypeAlias = npt.NDArray[np.int64]

STRETCH: Final = 1e-12  # of the hash space, for a value of the first level
FULL_RU: Final = charges.failed_write_ru()  # of a write that is refused because its key is full


class KeySpace:
    """Keys by their place."""

    def __init__(self, workload: Workload) -> None:
        values: dict[KeyValue, None] = {}
        distributions = [workload.data.keys.shares, *(each.keys.shares for each in workload.operations)]
        for shares in {id(each): each for each in distributions}.values():
            values.update(dict.fromkeys(value for value, _ in shares.named))
        values.update(dict.fromkeys(spike.key for spike in workload.shape.spikes if spike.key is not None))
        version = workload.hash_version
        placed = sorted((placement.position(placement.place_of(each, version), version), each) for each in values)
        self.names = [str(value) for _, value in placed]
        self.places: Numbers = np.array([place for place, _ in placed])
        self._rank = {value: rank for rank, (_, value) in enumerate(placed)}
        self._stretch = STRETCH if workload.is_hierarchical else 0.0

    @property
    def has_stretches(self) -> bool:
        return self._stretch > 0.0

    def rank(self, value: KeyValue) -> int:
        return self._rank[value]

    def shares(self, shares: KeyShares) -> Numbers:
        """A distribution over all keys."""
        found = np.zeros(len(self.places))
        ranks = [self._rank[value] for value, _ in shares.named]
        found[ranks] = [share for _, share in shares.named]
        return found

    def by_partition(self, amounts: Numbers, rest: float, bounds: Numbers) -> Numbers:
        """Sums of an amount by partition. `bounds` begin with 0 and end with 1."""
        inner = bounds[1:-1]
        sums = np.concatenate(([0.0], np.cumsum(amounts)))
        below = np.searchsorted(self.places, inner, side="left")
        reached = sums[below]
        if self._stretch and len(self.places):
            last = np.maximum(below - 1, 0)
            beyond = np.clip(1.0 - (inner - self.places[last]) / self._stretch, 0.0, 1.0)
            reached = reached - np.where(below > 0, amounts[last] * beyond, 0.0)
        whole = np.concatenate(([0.0], reached, [sums[-1]]))
        return np.maximum(np.diff(whole), 0.0) + rest * np.diff(bounds)

    def partition_of(self, bounds: Numbers) -> Indexes:
        """Which partition each key lies in, or begins in."""
        return np.searchsorted(bounds, self.places, side="right") - 1


@dataclass(slots=True)
class Amounts:
    """Of something by key, and of the rest."""

    keys: Numbers
    rest: float

    def add(self, keys: Numbers, rest: float) -> None:
        self.keys = self.keys + keys
        self.rest += rest


class OperationLoad:
    """What the operations of a workload ask of each key at the given rates, open and full."""

    def __init__(self, workload: Workload, space: KeySpace, byte_factor: float) -> None:
        self._space = space
        size = len(space.places)
        self.demand, self.demand_full = Amounts(np.zeros(size), 0.0), Amounts(np.zeros(size), 0.0)
        self.variance, self.variance_full = Amounts(np.zeros(size), 0.0), Amounts(np.zeros(size), 0.0)
        self.added_bytes = Amounts(np.zeros(size), 0.0)  # a second
        self.removed_bytes = Amounts(np.zeros(size), 0.0)  # by deletes
        self.adding = Amounts(np.zeros(size), 0.0)  # requests a second that full keys refuse
        self.writes = 0.0  # requests a second
        known: dict[int, Numbers] = {}
        for each in workload.operations:
            shares = each.keys.shares
            if id(shares) not in known:
                known[id(shares)] = space.shares(shares)
            self._add(workload, each, known[id(shares)], byte_factor)
        self.fanned = routes.fanned_demands(workload)

    def _add(self, workload: Workload, operation: Operation, shares: Numbers, byte_factor: float) -> None:
        rate, rest_share = operation.rate, operation.keys.shares.rest_share
        created = routes.created_items(operation)
        if operation.kind in WRITES:
            self.writes += rate
        if created:
            size_bytes = rate * abs(created) * operation.item.size_bytes * byte_factor
            (self.added_bytes if created > 0 else self.removed_bytes).add(size_bytes * shares, size_bytes * rest_share)
        if routes.route_of(workload, operation) in (FANNED, LISTED):
            return  # by partition, not by key
        charge_ru = routes.charge_ru(workload, operation, 1)
        refused = (1.0 - operation.existing if operation.kind == "upsert" else 1.0) if created > 0 else 0.0
        if refused:
            self.adding.add(rate * refused * shares, rate * refused * rest_share)
        full_ru = _full_charge(workload, operation, charge_ru, refused)
        for charge, demand, variance in (
            (charge_ru, self.demand, self.variance),
            (full_ru, self.demand_full, self.variance_full),
        ):
            demand.add(rate * charge * shares, rate * charge * rest_share)
            variance.add(rate * charge * charge * shares, rate * charge * charge * rest_share)

    def spiked(self, spike: Spike, extra: float) -> OperationLoad:
        """The same with `extra` times all rates on top, on the key of a spike."""
        assert spike.key is not None
        one = np.zeros(len(self._space.places))
        one[self._space.rank(spike.key)] = 1.0
        changed = object.__new__(OperationLoad)
        changed._space = self._space
        for name in ("demand", "demand_full", "variance", "variance_full", "added_bytes", "removed_bytes", "adding"):
            amounts: Amounts = getattr(self, name)
            whole = float(amounts.keys.sum()) + amounts.rest
            setattr(changed, name, Amounts(amounts.keys + extra * whole * one, amounts.rest))
        changed.writes = self.writes * (1.0 + extra)
        changed.fanned = [
            FannedDemand(each.rate * (1.0 + extra), each.visit_ru, each.rows_ru, each.visited) for each in self.fanned
        ]
        return changed

    def fanned_by_partition(self, partitions: int) -> tuple[float, float]:
        """Request units a second, and their variance, of each partition for queries that visit several."""
        demand = variance = 0.0
        for each in self.fanned:
            visited = min(float(partitions), each.visited(partitions))
            charge_ru = each.visit_ru + (each.rows_ru / visited if each.rows_ru else 0.0)
            rate = each.rate * visited / partitions
            demand += rate * charge_ru
            variance += rate * charge_ru * charge_ru
        return demand, variance


def _full_charge(workload: Workload, operation: Operation, charge_ru: float, refused: float) -> float:
    """The mean charge where the key is full: creates are refused, replaces are not."""
    if not refused:
        return charge_ru
    if operation.kind != "upsert":
        return FULL_RU
    replaced = Operation("replace", 0.0, operation.item, operation.keys, changed_values=operation.changed_values)
    return refused * FULL_RU + (1.0 - refused) * routes.charge_ru(workload, replaced, 1)
