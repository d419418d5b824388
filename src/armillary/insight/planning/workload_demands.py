"""What the operations of a workload cost and where they go: each becomes demands on partitions (`needs.py`), by the
partition key, the keys it is about and the paths that a query pins.
"""

from __future__ import annotations

import math
from dataclasses import replace

from armillary.insight.planning import operation_charges as charges
from armillary.insight.planning import visits
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.needs import Demand, FannedDemand, KeyedDemand
from armillary.insight.planning.placement import PlacedKeys
from armillary.insight.planning.workload import Operation, Spike, Workload

KEYED, LISTED, PREFIXED, FANNED = "one partition", "a list of keys", "a prefix", "all partitions"
_ONE = 1.0


def route_of(workload: Workload, operation: Operation) -> str:
    """How an operation finds its partitions."""
    if operation.kind != "query":
        return KEYED
    pinned = set(operation.filter)
    if pinned.issuperset(workload.partition_key):
        return KEYED if operation.values == 1 else LISTED
    if workload.is_hierarchical and workload.partition_key[0] in pinned:
        return PREFIXED if operation.values == 1 else LISTED
    return FANNED


def visited(workload: Workload, operation: Operation, partitions: int) -> float:
    """The mean number of partitions that an operation visits."""
    route = route_of(workload, operation)
    if route == KEYED:
        return _ONE
    if route == LISTED:
        return visits.of_list(operation.values, partitions)
    if route == PREFIXED:
        return visits.of_prefixes(operation.keys.shares, partitions)
    return float(partitions)


def charge_ru(workload: Workload, operation: Operation, partitions: int) -> float:
    """The mean charge of one request of a kind."""
    item = operation.item
    match operation.kind:
        case "read":
            return charges.read_ru(item, workload.read_factor)
        case "create":
            return charges.create_ru(item)
        case "delete":
            return charges.delete_ru(item)
        case "replace":
            return charges.replace_ru(item, operation.changed_values)
        case "upsert":
            return charges.upsert_ru(item, operation.existing, operation.changed_values)
        case "patch":
            return charges.patch_ru(item, operation.changed_values, operation.patch_operations)
        case "batch":
            return charges.batch_ru(item, operation.batch_items)
    count = visited(workload, operation, partitions)
    return charges.query_ru(operation.query, item, count, workload.read_factor)


def created_items(operation: Operation) -> float:
    """Items that a request adds; negative: removes."""
    added = {"create": 1.0, "batch": float(operation.batch_items), "delete": -1.0, "upsert": 1.0 - operation.existing}
    return added.get(operation.kind, 0.0)


class WorkloadDemands:
    """The demands of one workload, whose keys are hashed once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._placed: dict[int, PlacedKeys] = {}

    def placed(self, shares: KeyShares) -> PlacedKeys:
        known = self._placed.get(id(shares))
        if known is None:
            known = self._placed[id(shares)] = PlacedKeys.of(shares, self.workload.hash_version)
        return known

    def at(self, factor: float = 1.0, spike: Spike | None = None) -> list[Demand]:
        """All demands at a multiple of the given rates; those that a spike with a key adds go to that key."""
        found: list[Demand] = []
        for operation in self.workload.operations:
            if operation.rate:
                found += self._of(replace(operation, rate=operation.rate * factor))
                if spike is not None and spike.factor > 1.0 and spike.key is not None:
                    found += self._of_spike(operation, factor, spike)
        return found

    def _of_spike(self, operation: Operation, factor: float, spike: Spike) -> list[Demand]:
        assert spike.key is not None
        one = KeyShares(((spike.key, 1.0),))
        extra = operation.rate * factor * (spike.factor - 1.0)
        return self._of(replace(operation, rate=extra, keys=replace(operation.keys, shares=one)))

    def _of(self, operation: Operation) -> list[Demand]:
        workload, rate = self.workload, operation.rate
        route, keys = route_of(workload, operation), operation.keys.shares
        if route == KEYED:
            return [KeyedDemand(rate, charge_ru(workload, operation, 1), self.placed(keys))]
        fanned = _fanned_of(workload, operation)
        if route == PREFIXED:
            # The first visit goes to the partition of the key, further ones to its neighbours.
            rows_ru = charges.query_rows_ru(operation.query, operation.item, workload.read_factor)
            return [KeyedDemand(rate, fanned.visit_ru + rows_ru, self.placed(keys)), fanned]
        return [fanned]

    def growth_bytes_s(self, factor: float = 1.0) -> float:
        """Bytes that the operations add a second."""
        return factor * math.fsum(
            each.rate * created_items(each) * each.item.size_bytes for each in self.workload.operations
        )


def fanned_demands(workload: Workload) -> list[FannedDemand]:
    """Those of queries that visit several partitions, at the given rates. No key is hashed for them."""
    return [
        _fanned_of(workload, each) for each in workload.operations if each.rate and route_of(workload, each) != KEYED
    ]


def _fanned_of(workload: Workload, operation: Operation) -> FannedDemand:
    """Of a query by the first levels of a key: what it visits beside the partition of the key."""
    keys = operation.keys.shares
    visit_ru = charges.query_visit_ru(operation.query, workload.read_factor)
    if route_of(workload, operation) == PREFIXED:
        return FannedDemand(operation.rate, visit_ru, 0.0, lambda count: visits.of_prefixes(keys, count) - _ONE)
    rows_ru = charges.query_rows_ru(operation.query, operation.item, workload.read_factor)
    return FannedDemand(operation.rate, visit_ru, rows_ru, lambda count: visited(workload, operation, count))
