"""The query plan that client libraries ask for before they run a query over several partitions themselves: what they
must merge, and which ranges of effective keys they must ask. Queries that need no merging have an empty plan.
"""

from __future__ import annotations

from typing import Any

from armillary.errors import Failure
from armillary.languages.sql.check import not_yet
from armillary.languages.sql.compile import CompiledQuery
from armillary.model.index_paths import path_text
from armillary.model.keys import PartitionKeyDefinition, parse_path
from armillary.model.values import Value
from armillary.query.conditions import Condition, pinned_prefixes

_FULL_RANGE = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}
# More points than this are no help to a client that would ask nearly every partition anyway.
_RANGES_MAX = 1000


def query_plan(
    query: CompiledQuery,
    parameters: dict[str, Value],
    definition: PartitionKeyDefinition | None,
    supported_features: str = "",
) -> dict[str, Any]:
    """The plan, in the form of the wire. Only queries whose rows need no merging have one yet."""
    bound = query.bind(parameters)
    if not bound.selection.is_plain:
        raise not_yet("A query over several partitions whose rows must be merged (ORDER BY, aggregates and the like)")
    return {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None",
            "top": None,
            "offset": None,
            "limit": None,
            "orderBy": [],
            "orderByExpressions": [],
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": "",
            "hasSelectValue": query.query.select.kind == "VALUE",
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": _query_ranges(bound.condition, definition),
    }


def key_index_paths(definition: PartitionKeyDefinition) -> list[str]:
    """The partition-key paths as conditions write them."""
    return [path_text(parse_path(path)) for path in definition.paths]


def _query_ranges(condition: Condition, definition: PartitionKeyDefinition | None) -> list[dict[str, Any]]:
    if definition is None:
        return [_FULL_RANGE]
    keys = pinned_prefixes(condition, key_index_paths(definition))
    # A filter that nothing can satisfy keeps one range: clients need one to ask.
    if not keys or len(keys) > _RANGES_MAX:
        return [_FULL_RANGE]
    ranges: dict[tuple[str, str], bool] = {}
    for key in keys:
        if definition.is_system:
            return [_FULL_RANGE]  # a migrated container: items without key have a place of their own, below all hashes
        try:
            if len(key) == len(definition.paths):
                low = high = definition.effective_key(key).hex().upper()  # type: ignore[arg-type]
            else:
                low, high = [bound.hex().upper() for bound in definition.prefix_range(key)]  # type: ignore[arg-type]
        except Failure:
            return [_FULL_RANGE]  # no item has such a key; let the filter find that out
        ranges[low, high] = low == high
    return [
        {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": is_point}
        for (low, high), is_point in _disjoint(ranges)
    ]


def _disjoint(ranges: dict[tuple[str, str], bool]) -> list[tuple[tuple[str, str], bool]]:
    """Sorted and without overlap: two key prefixes either hold one another or have nothing in common."""
    kept: list[tuple[tuple[str, str], bool]] = []
    covered = ""
    for (low, high), is_point in sorted(ranges.items(), key=lambda entry: (entry[0][0], entry[1])):
        if kept and low < covered:
            continue
        kept.append(((low, high), is_point))
        covered = covered if is_point else high
    return kept
