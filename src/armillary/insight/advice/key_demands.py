"""What the operations of a load become under a candidate key: which partitions each visits, what it costs, and which
key it goes to. The sums are those of `planning/needs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.candidate_keys import KeyValues, Written
from armillary.insight.advice.candidates import CONCATENATED, HIERARCHICAL, ID, SUFFIXED, Candidate
from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.advice.reading.value_counts import counted
from armillary.insight.advice.request_load import ADDRESSED, CREATING, Load, Operation
from armillary.insight.planning import operation_charges, visits
from armillary.insight.planning.needs import Demand, FannedDemand, KeyedDemand
from armillary.insight.planning.operation_charges import ItemShape, QueryShape
from armillary.insight.planning.placement import PlacedKeys

ONE, LIST, PREFIX, ALL = "one", "list", "prefix", "all"
_SEEN_MIN: Final = 100  # requests of an operation whose own keys are taken, instead of those of the data


@dataclass(frozen=True, slots=True)
class Route:
    """How an operation finds its partitions: by the whole key, a list of keys, the first levels, or not at all."""

    kind: str
    values: int = 1  # of a list
    levels: int = 0  # that are pinned, of a prefix


def route_of(operation: Operation, candidate: Candidate) -> Route:
    if not operation.is_query:
        return Route(ONE)
    pinned, lists = operation.eq, dict(operation.lists)
    if candidate.kind == SUFFIXED:
        if candidate.paths[0] not in pinned:
            return Route(ALL)
        return Route(ONE) if ID in pinned else Route(LIST, candidate.suffixes)
    if candidate.kind == CONCATENATED:
        return Route(ONE) if pinned.issuperset(candidate.paths) else Route(ALL)
    levels = candidate.levels
    if pinned.issuperset(levels):
        return Route(ONE)
    many = 1
    for count, path in enumerate(levels):
        if path in lists:
            many *= lists[path]
        elif path not in pinned:
            return Route(ALL) if count == 0 else Route(LIST, many) if many > 1 else Route(PREFIX, levels=count)
    return Route(LIST, many)


def knows_key(candidate: Candidate, known: frozenset[str] | set[str]) -> bool:
    """Whether an application that reads by id can name the key."""
    return {path for path in candidate.paths if path != ID} <= known


class KeyDemands:
    """The demands of a load on one candidate key."""

    def __init__(
        self,
        values: KeyValues,
        load: Load,
        item: ItemShape,
        partitions: int,
        now: Written | None,
        *,
        is_clock: bool = False,
        reads_as_queries: bool = False,
    ) -> None:
        """`now`: the values that are written now, where those are others than the stored ones; `is_clock`: at any
        moment, whatever a capture has of all its time."""
        self._values, self._item = values, item
        self._candidate = values.candidate
        self._reads_as_queries, self._is_clock = reads_as_queries, is_clock
        self._stored = values.placed(partitions)
        self._partitions = partitions
        self._now = values.placed_requests(*now, partitions) if now is not None else None
        self._now_top = top_share(now.whole) if now is not None else 0.0
        sizes = values.counted.sizes
        self._top = float(sizes[0] / sizes.sum()) if len(sizes) else 1.0
        self._prefixes = self._prefix_shares() if self._candidate.kind == HIERARCHICAL else np.empty(0)
        self.hottest_value_ru = 0.0
        self.planned_query_ru = 0.0  # of queries that name a key, or first levels of one, which is not known
        self.visited: list[tuple[Operation, Route]] = []
        self.demands: list[Demand] = [demand for each in load.operations for demand in self._of(each)]

    def _prefix_shares(self) -> NDArray[np.float64]:
        """Of the rows, by values of the first level, the largest first."""
        rows = counted(self._values.first, self._values.weights).sizes
        shares: NDArray[np.float64] = rows / max(1.0, float(rows.sum()))
        return shares

    def _of(self, operation: Operation) -> list[Demand]:
        if operation.kind in ADDRESSED and self._reads_as_queries:
            self.visited.append((operation, Route(ALL)))
            query = QueryShape(rows=1.0)
            rows_ru = point_ru(operation, self._item) if operation.kind != "read" else self._rows_ru(query)
            return [FannedDemand(operation.rate, operation_charges.query_visit_ru(query), rows_ru, float)]
        route = route_of(operation, self._candidate)
        self.visited.append((operation, route))
        if not operation.is_query:
            return [self._keyed(operation, operation.rate, point_ru(operation, self._item))]
        query = query_shape(operation)
        visit_ru = operation_charges.query_visit_ru(query)
        rows_ru = operation.charge_ru if operation.charge_ru is not None else self._rows_ru(query)
        if route.kind == PREFIX:
            # By the place of the first level: a large one lies over several partitions, each of which is visited.
            visited = self._visits(route, max(self._partitions, _PARTITIONS_LEAST))
            return [self._keyed(operation, operation.rate, visited * visit_ru + rows_ru)]
        if route.kind == ONE:
            return [self._keyed(operation, operation.rate, visit_ru + rows_ru)]
        return [FannedDemand(operation.rate, visit_ru, rows_ru, lambda count: self._visits(route, count))]

    def _visits(self, route: Route, partitions: int) -> float:
        if route.kind == ONE:
            return 1.0
        if route.kind == LIST:
            return visits.of_list(route.values, partitions)
        if route.kind == PREFIX:
            large = self._prefixes[self._prefixes * partitions > 1.0].tolist()
            return 1.0 + math.fsum(share * (visits.of_prefix(share, partitions) - 1) for share in large)
        return float(partitions)

    def _keyed(self, operation: Operation, rate: float, charge_ru: float) -> KeyedDemand:
        own = self._values.of(operation.values) if operation.values else None
        if own is None and operation.is_query:
            self.planned_query_ru += rate * charge_ru
        keys: PlacedKeys
        is_now = self._is_clock and operation.kind in CREATING
        if own is not None and len(own) >= _SEEN_MIN and not is_now:
            first = operation.values[self._candidate.paths[0]]
            keys, top = self._values.placed_requests(first, own, self._partitions), top_share(own)
        elif operation.kind in CREATING and self._now is not None:
            keys, top = self._now, self._now_top
        else:
            keys, top = self._stored, self._top
        self.hottest_value_ru += rate * charge_ru * top
        return KeyedDemand(rate, charge_ru, keys)

    def _rows_ru(self, query: QueryShape) -> float:
        return operation_charges.query_rows_ru(query, self._item)

    def release(self) -> None:
        """Give the memory of placed keys back; the figures over operations stay."""
        self.demands = []
        self._now, self._stored = None, _NOWHERE
        self._prefixes = self._prefixes[:_PREFIXES_MAX]

    # Figures over all operations.

    def fan_out(self, partitions: int) -> float:
        """The mean number of partitions that a query visits."""
        queries = [(each.rate, self._visits(route, partitions)) for each, route in self.visited if each.is_query]
        return visits.fan_out(queries)

    def single_partition_share(self, partitions: int) -> float:
        """Of all requests."""
        return self._single_share(self.visited, partitions)

    def single_query_share(self, partitions: int) -> float:
        return self._single_share([each for each in self.visited if each[0].is_query], partitions)

    def _single_share(self, visited: Sequence[tuple[Operation, Route]], partitions: int) -> float:
        rate = math.fsum(each.rate for each, _ in visited)
        single = math.fsum(each.rate * self._stays(route, partitions) for each, route in visited)
        return single / rate if rate else 1.0

    def _stays(self, route: Route, partitions: int) -> float:
        """The share of such requests that visit one partition."""
        if route.kind == PREFIX:
            return max(0.0, 1.0 - float(self._prefixes[self._prefixes * partitions > 1.0].sum()))
        return float(self._visits(route, partitions) <= _ONE_VISIT)

    def fanning(self, partitions: int) -> list[tuple[Operation, float]]:
        """Queries that visit more than one partition, with how many, those with the highest rate first."""
        found = [(each, self._visits(route, partitions)) for each, route in self.visited if each.is_query]
        return sorted([each for each in found if each[1] > _ONE_VISIT], key=lambda each: -each[0].rate)


def query_shape(operation: Operation) -> QueryShape:
    return QueryShape(operation.rows, max(operation.rows, operation.loaded), operation.seeks)


def point_ru(operation: Operation, item: ItemShape) -> float:
    """The charge of a read or a write, as measured or by the model."""
    if operation.charge_ru is not None:
        return operation.charge_ru
    match operation.kind:
        case "read":
            return operation_charges.read_ru(item)
        case "create":
            return operation_charges.create_ru(item)
        case "delete":
            return operation_charges.delete_ru(item)
        case "patch":
            return operation_charges.patch_ru(item)
        case "batch":
            return operation_charges.batch_ru(item, max(1, round(operation.rows)))
    return operation_charges.replace_ru(item)


_ONE_VISIT: Final = 1.01
_NOWHERE: Final = PlacedKeys.at(())
_PREFIXES_MAX: Final = 10_000  # first levels that may span partitions
_PARTITIONS_LEAST: Final = 4  # a container of one partition grows


def top_share(digests: Digests) -> float:
    if not len(digests):
        return 0.0
    _, counts = np.unique(digests, return_counts=True)
    return float(counts.max() / len(digests))
