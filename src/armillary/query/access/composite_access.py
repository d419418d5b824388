"""Composite and tuple indexes: which of them serves a filter, or the order of what a filter leaves, and which of its
terms. The terms of such an index begin with those of its first path; so equalities on the first paths, then one range
or the keys of ORDER BY, make one stretch of it.

A filter is served when it speaks of every path of the index, as in the service. Paths through an array may differ in
the element that they mean, unless the filter is known to mean one and the same (`SameElement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from armillary.model import layout
from armillary.model.encoding import encode_term
from armillary.model.indexes.composites import CompositeIndex
from armillary.model.indexes.indexing import NONE, IndexingPolicy
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.term_ranges import inverted, inverted_bounds, term_bounds
from armillary.query.conditions import And, Condition, Defined, Equal, Range, SameElement
from armillary.query.selection import Ordering

_ALL = (b"", b"\xff")


class ComposedFilter(NamedTuple):
    """Terms of an index: all items that meet certain parts of a filter have one of them. Others may where terms are cut
    or bounds are wide."""

    composite: CompositeIndex
    fixed: bytes  # what the terms begin with
    bounds: tuple[bytes, bytes] | None  # of what follows; None: nothing does, so that its items are in their order
    parts: frozenset[int]  # the ids of the parts that it stands for


class ComposedOrder(NamedTuple):
    """Terms of an index that, one after the other, are items in an order."""

    composite: CompositeIndex
    fixed: bytes
    bounds: tuple[bytes, bytes]  # of what follows
    is_reverse: bool  # they are to be read backwards
    is_inverted: bool  # the index has the first key of the order descending
    is_whole: bool  # they hold what the filter leaves, and nothing else


def composed_filter(condition: Condition, policy: IndexingPolicy) -> ComposedFilter | None:
    """The index that serves most parts of a filter; None if none serves two."""
    if not isinstance(condition, And) or not (policy.composites or policy.tuples):
        return None
    best: ComposedFilter | None = None
    for index in (*policy.composites, *policy.tuples):
        for equal in _equalities(condition.parts, index):
            found = _filter(index, equal, condition.parts)
            if found is not None and (best is None or _rank(found) > _rank(best)):
                best = found
    return best


def _rank(found: ComposedFilter) -> tuple[int, bool]:
    return len(found.composite.paths), found.bounds is None


_Pins = Mapping[str, tuple[Value, int]]  # by path: the value, and the id of the part that says so


def _equalities(parts: Sequence[Condition], index: CompositeIndex) -> Iterator[_Pins]:
    """The values that a filter asks for; once for each element that it may mean."""
    pins: dict[str, tuple[Value, int]] = {}
    for part in parts:
        if isinstance(part, Equal) and _is_scalar(part.value):
            pins.setdefault(part.path, (part.value, id(part)))
    if sum(None in steps for steps in index.paths) < 2:
        yield pins
        return
    outside = {path: pin for path, pin in pins.items() if "/[]" not in path}
    for part in parts:
        if isinstance(part, SameElement):
            inside = {each.path: (each.value, id(part)) for each in part.parts if _is_scalar(each.value)}
            yield outside | inside


def _filter(index: CompositeIndex, equal: _Pins, parts: Sequence[Condition]) -> ComposedFilter | None:
    fixed: list[bytes] = []
    used: set[int] = set()
    last = len(index.paths) - 1
    for place, (path, is_descending) in enumerate(index.keys):
        if path in equal:
            value, part_id = equal[path]
            used.add(part_id)
            fixed.append(_placed(value, is_descending))
            continue
        found = next((part for part in parts if isinstance(part, Range) and part.path == path), None)
        if place < last or found is None:
            return None
        bounds = _bounds(found, is_descending)
        return ComposedFilter(index, b"".join(fixed), bounds, frozenset(used | {id(found)}))
    return ComposedFilter(index, b"".join(fixed), None, frozenset(used))


def composed_order(ordering: Ordering, condition: Condition, policy: IndexingPolicy) -> ComposedOrder | None:
    """The index that has an order among the items that a filter leaves. For several keys there must be one that has
    them alone (see `ordering.check_order`); for one it is a gain when the filter pins the paths before it."""
    if not policy.composites or policy.mode == NONE:
        return None
    parts = condition.parts if isinstance(condition, And) else (condition,)
    pins = {part.path: part.value for part in parts if isinstance(part, Equal) and _is_scalar(part.value)}
    best: ComposedOrder | None = None
    most = 0 if len(ordering.keys) == 1 else -1  # paths before the keys: one key alone has an index of its own
    for index in policy.composites:
        before = len(index.paths) - len(ordering.keys)
        if before <= most or index.array:
            continue
        is_reverse = _direction(index, before, ordering)
        if is_reverse is not None and all(path in pins for path, _ in index.keys[:before]):
            best, most = _order(index, before, parts, is_reverse), before
    return best


def _direction(index: CompositeIndex, before: int, ordering: Ordering) -> bool | None:
    """Whether an index has the keys of an order after some paths, backwards or not; None: it has not."""
    for is_reverse in (False, True):
        keys = tuple([(key.path, key.is_descending != is_reverse) for key in ordering.keys])
        if index.keys[before:] == keys:
            return is_reverse
    return None


def _order(index: CompositeIndex, before: int, parts: Sequence[Condition], is_reverse: bool) -> ComposedOrder:
    equal = {part.path: part for part in parts if isinstance(part, Equal) and _is_scalar(part.value)}
    fixed = [_placed(equal[path].value, is_descending) for path, is_descending in index.keys[:before]]
    used = {id(equal[path]) for path, _ in index.keys[:before]}
    begun = b""
    bounds = _ALL
    for path, is_descending in index.keys[before:]:
        if path in equal:
            used.add(id(equal[path]))
            begun += _placed(equal[path].value, is_descending)
            bounds = begun, layout.prefix_end(begun)
            continue
        limits = [part for part in parts if isinstance(part, (Range, Defined)) and part.path == path]
        if limits:
            used.add(id(limits[0]))
            low, high = _bounds(limits[0], is_descending)
            bounds = begun + low, begun + high
        break
    is_whole = all(id(part) in used for part in parts)
    return ComposedOrder(index, b"".join(fixed), bounds, is_reverse, index.is_descending[before], is_whole)


def _bounds(condition: Range | Defined, is_descending: bool) -> tuple[bytes, bytes]:
    found = term_bounds(condition)
    assert found is not None
    return inverted_bounds(*found) if is_descending else found


def _placed(value: Value, is_descending: bool) -> bytes:
    term = encode_term(value)
    return inverted(term) if is_descending else term


def _is_scalar(value: Value) -> bool:
    return value is not UNDEFINED and not isinstance(value, (list, dict))
