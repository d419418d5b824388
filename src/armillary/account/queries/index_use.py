"""Which indexes a query uses, and which others would serve it: what clients show as index metrics.

Single indexes are those that the filter and ORDER BY ask for, spatial and tuple indexes among them. Composite ones are
used for ORDER BY with several keys, for several filters, and for filters with ORDER BY; where the policy lacks one for
these it is named as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from armillary.account.container import Container
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.plan import key_index_paths
from armillary.model.indexes.composites import TUPLE_NAME
from armillary.model.keys import Key
from armillary.model.values import UNDEFINED
from armillary.query.access.access_path import Index
from armillary.query.access.composite_access import ComposedFilter, composed_filter, composed_order
from armillary.query.conditions import And, Condition, Defined, Equal, In, Or, Range, Touching
from armillary.query.selection import Selection


class CompositePath(NamedTuple):
    path: str
    is_descending: bool


class IndexUse(NamedTuple):
    """Paths as the index writes them, each index once."""

    used: tuple[str, ...]
    possible: tuple[str, ...]
    used_composites: tuple[tuple[CompositePath, ...], ...] = ()
    possible_composites: tuple[tuple[CompositePath, ...], ...] = ()
    used_spatial: tuple[str, ...] = ()
    possible_spatial: tuple[str, ...] = ()


def container_index_use(container: Container, query: BoundQuery, key: Key | None) -> IndexUse:
    """The indexes of a container that a query uses. `key`: the partition key, or a prefix of it, that the request gives
    beside the query."""
    paths = key_index_paths(container.key)[: len(key)] if container.key is not None and key else ()
    index = Index(container.schema.rules.indexing, is_complete=not container.is_restating)
    return index_use(query.selection, index, paths)


def index_use(selection: Selection, index: Index, key_paths: Sequence[str] = ()) -> IndexUse:
    """`key_paths`: those of the partition key that the request, and not the filter, gives."""
    ordering = selection.ordering
    asked = list(_paths(selection.condition))
    if ordering is not None and len(ordering.keys) == 1 and ordering.keys[0].path is not None:
        asked.append(ordering.keys[0].path)
    used = dict.fromkeys(key_paths)
    possible: dict[str, None] = {}
    for path in asked:
        if path in used or index.is_indexed(path):
            used[path] = None
        else:
            possible[path] = None
    composed = composed_filter(selection.condition, index.policy) if index.is_complete else None
    if composed is not None and composed.composite in index.policy.tuples:
        used[composed.composite.name.removeprefix(TUPLE_NAME)] = None
        composed = None
    spatial: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for condition in _touching(selection.condition):
        spatial[index.spatial_index(condition) is None][condition.path] = None
    return IndexUse(
        tuple(used),
        tuple(possible),
        _used_composites(selection, index, composed),
        _possible(selection, index),
        tuple(spatial[0]),
        tuple(spatial[1]),
    )


def _touching(condition: Condition) -> Iterator[Touching]:
    if isinstance(condition, (And, Or)):
        for part in condition.parts:
            yield from _touching(part)
    elif isinstance(condition, Touching):
        yield condition


def _paths(condition: Condition) -> Iterator[str]:
    """The paths that an index is asked about, in the order of the filter."""
    if isinstance(condition, (And, Or)):
        for part in condition.parts:
            yield from _paths(part)
    elif isinstance(condition, (Equal, In, Range, Defined)) and not (
        isinstance(condition, Equal) and condition.value is UNDEFINED
    ):
        yield condition.path


def _used_composites(
    selection: Selection, index: Index, composed: ComposedFilter | None
) -> tuple[tuple[CompositePath, ...], ...]:
    used = [composed.composite] if composed is not None else []
    ordering = selection.ordering
    if ordering is not None and index.is_complete:
        ordered = composed_order(ordering, selection.condition, index.policy)
        if ordered is not None and ordered.composite not in used:
            used.append(ordered.composite)
    return tuple([tuple([CompositePath(*key) for key in composite.keys]) for composite in used])


def _possible(selection: Selection, index: Index) -> tuple[tuple[CompositePath, ...], ...]:
    """Equalities first, then one range or the keys of ORDER BY."""
    condition = selection.condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    equal = dict.fromkeys(part.path for part in parts if isinstance(part, Equal) and part.value is not UNDEFINED)
    ranges = dict.fromkeys(part.path for part in parts if isinstance(part, Range) and part.path not in equal)
    last: list[CompositePath] = []
    if selection.ordering is not None:
        keys = selection.ordering.keys
        last = [CompositePath(key.path, key.is_descending) for key in keys if key.path is not None]
        if not equal or len(last) < len(keys) or any(each.path in equal for each in last):
            return ()
    elif ranges:
        last = [CompositePath(next(iter(ranges)), False)]
    wanted = (*[CompositePath(path, False) for path in equal], *last)
    if len(wanted) < 2 or any("/[]" in each.path for each in wanted) or _has(index, tuple(equal), last):
        return ()
    return (wanted,)


def _has(index: Index, equal: tuple[str, ...], last: Sequence[CompositePath]) -> bool:
    """Whether the policy has such an index. The order among equalities, and all directions reversed, make no odds."""
    for composite in index.policy.composites:
        keys = [CompositePath(*key) for key in composite.keys]
        if len(keys) != len(equal) + len(last) or {key.path for key in keys[: len(equal)]} != set(equal):
            continue
        tail = keys[len(equal) :]
        if tail == list(last) or tail == [CompositePath(path, not down) for path, down in last]:
            return True
    return False
