"""has() steps at the beginning of a traversal as a condition that an index can use. The condition may match more items
than the steps do, never fewer: the traversal filters what was found.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.account.graphs.graph_documents import ID, LABEL, TTL, VALUE
from armillary.languages.gremlin.graph_protocol import Condition as Wish
from armillary.languages.gremlin.syntax.tokens import T
from armillary.languages.gremlin.values.predicates import P
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import EXACT_INT_MAX, UNDEFINED
from armillary.query.conditions import ALL, NOTHING, Condition, Equal, In, Range, both, either, prefix_range


def condition_of(wish: Wish, partition_key: str | None, *, is_edges: bool) -> Condition:
    key = wish.key
    if key is T.id:
        return _condition(wish.predicate, f"/{ID}")
    if key is T.label:
        return _condition(wish.predicate, f"/{LABEL}")
    if not isinstance(key, str) or key in (ID, LABEL) or key.startswith("_"):
        return ALL
    path = path_text((key,))
    if is_edges or key == partition_key:
        return _condition(wish.predicate, path)
    inside = _condition(wish.predicate, path_text((key, None, VALUE)))
    # Bare where it was written through another door, and of vertices' own properties only ttl.
    return ALL if inside is ALL or key == TTL else either([inside, _condition(wish.predicate, path)])


def _condition(predicate: P, path: str) -> Condition:
    name, value = predicate.name, predicate.value
    if name == "eq":
        plain = _plain(value)
        return ALL if plain is None else Equal(path, plain)
    if name == "within":
        plains = [_plain(each) for each in value]
        if not plains:
            return NOTHING
        return ALL if None in plains else In(path, tuple(plains))
    if name == "and":
        return both([_condition(part, path) for part in value])
    if name == "or":
        return either([_condition(part, path) for part in value])
    if name == "startingWith":
        return prefix_range(path, str(value))
    if name in ("lt", "lte", "gt", "gte"):
        plain = _plain(value)
        if plain is None or isinstance(plain, bool):
            return ALL
        # Bounds are included: large numbers are stored rounded, with what they are exactly beside them.
        return Range(path, UNDEFINED, plain) if name in ("lt", "lte") else Range(path, plain, UNDEFINED)
    return ALL


def _plain(value: Any) -> bool | int | float | str | None:
    """A value as the index has it; None: it cannot be told."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= EXACT_INT_MAX else None
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return None
