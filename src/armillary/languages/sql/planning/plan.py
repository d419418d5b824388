"""The query plan that clients request before they execute a cross-partition query: how to merge the results, the
rewritten query for each partition (`partition_queries.py`, `hybrid_search.py`), and the ranges of effective partition
keys to query. Queries that need no merging have a trivial plan.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from armillary.errors import Failure, bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.hybrid_search import hybrid_plan, is_hybrid
from armillary.languages.sql.planning.partition_queries import Feature, nothing_to_merge, partial_of
from armillary.model.indexes.index_paths import path_text
from armillary.model.keys import PartitionKeyDefinition, parse_path
from armillary.query.conditions import Condition, pinned_prefixes

_FULL_RANGE = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}
# With more points than this a client would query nearly every partition anyway.
_RANGES_MAX = 1000


def query_plan(
    bound: BoundQuery, definition: PartitionKeyDefinition | None, supported_features: str | None = None
) -> dict[str, Any]:
    """The plan as JSON. `supported_features`: the features that the client supports, separated by commas; None if it
    does not say. Queries that cannot be merged, or not by this client, are refused."""
    plan: dict[str, Any] = {"partitionedQueryExecutionInfoVersion": 2}
    if is_hybrid(bound):
        hybrid, features = hybrid_plan(bound)
        # The service omits `queryInfo` here; without its distinctType the Python client would drop equal rows.
        plan |= {"queryInfo": nothing_to_merge(), "hybridSearchQueryInfo": hybrid}
    else:
        partial = partial_of(bound)
        features = partial.features
        plan["queryInfo"] = partial.info
    _check_features(features, supported_features)
    return plan | {"queryRanges": _query_ranges(bound.condition, definition)}


def merged_features(bound: BoundQuery) -> set[Feature]:
    """What a client must support to merge a query. Refused if no client can merge it."""
    return set(hybrid_plan(bound)[1] if is_hybrid(bound) else partial_of(bound).features)


def _check_features(needed: list[Feature], supported: str | None) -> None:
    if supported is None:
        return
    known = {name.strip().lower() for name in supported.split(",")}
    missing = [name for name in needed if name.lower() not in known]
    if missing:
        raise bad_request(
            f"Query contains the following features, which the calling client does not support: {', '.join(missing)}. "
            "With --queries merge the server merges such queries."
        )


@lru_cache(1024)  # definitions; asked for by every query
def key_index_paths(definition: PartitionKeyDefinition) -> tuple[str, ...]:
    """The partition-key paths as index paths."""
    return tuple([path_text(parse_path(path)) for path in definition.paths])


def _query_ranges(condition: Condition, definition: PartitionKeyDefinition | None) -> list[dict[str, Any]]:
    if definition is None:
        return [_FULL_RANGE]
    keys = pinned_prefixes(condition, key_index_paths(definition))
    # Also for a filter that is never true: clients need at least one range.
    if not keys or len(keys) > _RANGES_MAX or definition.is_unsure_of(keys):
        return [_FULL_RANGE]
    ranges: dict[tuple[str, str], bool] = {}
    for key in keys:
        if definition.is_system:
            return [_FULL_RANGE]  # a migrated container: items without a key are stored below all hashes
        try:
            if len(key) == len(definition.paths):
                low = high = definition.effective_key(key).hex().upper()
            else:
                low, high = [bound.hex().upper() for bound in definition.prefix_range(key)]
        except Failure:
            return [_FULL_RANGE]  # no item can have such a key: the filter will match nothing
        ranges[low, high] = low == high
    return [
        {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": is_point}
        for (low, high), is_point in _disjoint(ranges)
    ]


def _disjoint(ranges: dict[tuple[str, str], bool]) -> list[tuple[tuple[str, str], bool]]:
    """Sort ranges and drop those that another one contains: ranges of key prefixes are nested or disjoint."""
    kept: list[tuple[tuple[str, str], bool]] = []
    covered = ""
    for (low, high), is_point in sorted(ranges.items(), key=lambda entry: (entry[0][0], entry[1])):
        if kept and low < covered:
            continue
        kept.append(((low, high), is_point))
        covered = covered if is_point else high
    return kept
