"""Which index of a collection serves a filter, and which of its keys. Keys of an index begin with those of its first
field; so values of the first fields, then stretches of one more, make stretches of the index.
`access_path.py` reads them.

Where a document has several keys, two conditions on one field may be met by two of them, and so may conditions on two
fields inside the same array: then only one of them is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from armillary import limits
from armillary.model import layout
from armillary.model.bson.bson_order import ARRAY, NULL, OBJECT, inverted
from armillary.model.indexes.field_indexes import SEVERAL_TERM, FieldIndex, wildcard_prefix
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.query.conditions import THROUGH, And, Condition, Keyed, KeyRange, KeyRanges, intersected
from armillary.storage.engine import View

HasSeveral = Callable[[FieldIndex], bool]

_STRETCHES_MAX = 1_000  # more are not worth their seeks
_CUT_AT = limits.FIELD_KEY_BYTES_MAX - 1


class FieldPlan(NamedTuple):
    chosen: FieldIndex
    ranges: list[tuple[bytes, bytes]]  # of its keys
    pinned: int  # fields that are held to values
    is_run: bool  # the keys of one value of all its fields: items come in their order
    fields: frozenset[str]  # that it uses conditions on


def several_in(view: View) -> HasSeveral:
    """Whether documents have several keys in an index, as a snapshot has it."""

    def has_several(index: FieldIndex) -> bool:
        number = view.get(layout.path_key(index.several_name))
        if number is None:
            return False
        prefix = layout.TERMS + number + SEVERAL_TERM
        return next(iter(view.scan(prefix, layout.prefix_end(prefix))), None) is not None

    return has_several


def keyed_parts(condition: Condition) -> list[Keyed]:
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return [part for part in parts if isinstance(part, Keyed)]


def field_plan(parts: Sequence[Keyed], policy: IndexingPolicy, has_several: HasSeveral) -> FieldPlan | None:
    """The index that serves conditions best; None: none serves any."""
    if not parts or not policy.fields:
        return None
    best: FieldPlan | None = None
    named = named_index(parts)
    for index in policy.fields:
        if named is not None and index.name != named:
            continue
        found = _wildcard_plan(parts, index) if index.wildcard is not None else _plan(parts, index, has_several)
        if found is not None and (best is None or _rank(found) > _rank(best)):
            best = found
        if named is not None and found is None:
            return FieldPlan(index, [(b"", b"\xff")], 0, False, frozenset())  # all of it: it may not hold everything
    return best


def named_index(parts: Sequence[Keyed]) -> str | None:
    """The index that alone is to be read."""
    for part in parts:
        if part.field.startswith(THROUGH):
            return part.field.removeprefix(THROUGH)
    return None


def holds_all(index: FieldIndex, parts: Sequence[Keyed]) -> bool:
    """Whether all documents that meet conditions are in an index, as far as it is partial."""
    if index.keeps is None:
        return True
    if index.requires is None:
        return False
    return all(
        any(part.field == field and all(_is_inside(each, ranges) for each in part.ranges) for part in parts)
        for field, ranges in index.requires
    )


def _is_inside(inner: KeyRange, ranges: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(low <= inner.low and inner.high <= high for low, high in ranges)


def _rank(plan: FieldPlan) -> tuple[int, int, bool, int]:
    # Of two that pin as much, the one with fewer fields has the shorter keys.
    return plan.pinned, len(plan.fields), plan.is_run, -len(plan.chosen.fields)


def _plan(parts: Sequence[Keyed], index: FieldIndex, has_several: HasSeveral) -> FieldPlan | None:
    first = index.fields[0][0] if index.fields else None
    if not any(part.field == first for part in parts) or not holds_all(index, parts):
        return None
    by_field = {path: [part.ranges for part in parts if part.field == path] for path, _ in index.fields}
    is_several = has_several(index)
    prefixes = [b""]
    stretches: list[tuple[bytes, bytes]] = []
    used: list[str] = []
    pinned = 0
    for path, is_descending in index.fields:
        sets = by_field[path]
        if not sets or (is_several and any(_root(path) == _root(other) for other in used)):
            break
        ranges = _joined(sets, is_several)
        if index.is_sparse and any(_holds_null(each) for each in ranges):
            break
        if len(prefixes) * len(ranges) > _STRETCHES_MAX:
            break
        used.append(path)
        if not all(each.is_point for each in ranges):
            stretches = [_placed(prefix, each, is_descending) for prefix in prefixes for each in ranges]
            break
        pinned += 1
        prefixes = [
            prefix + (inverted(each.low) if is_descending else each.low) for prefix in prefixes for each in ranges
        ]
    if not used:
        return None
    if not stretches:
        stretches = [_cut((prefix, layout.prefix_end(prefix))) for prefix in prefixes]
    is_whole = pinned == len(index.fields) and len(stretches) == 1 and len(prefixes[0]) < _CUT_AT
    return FieldPlan(index, sorted(stretches), pinned, is_whole, frozenset(used))


def _wildcard_plan(parts: Sequence[Keyed], index: FieldIndex) -> FieldPlan | None:
    """Leaves of documents, each under its path: what is missing is not there, nor are objects and arrays as a whole."""
    root = index.wildcard
    if not holds_all(index, parts):
        return None
    for part in parts:
        is_below = not root or part.field == root or part.field.startswith(f"{root}.")
        if is_below and not any(_holds_null(each) or _holds_nested(each) for each in part.ranges):
            prefix = wildcard_prefix(part.field)
            ranges = sorted([_placed(prefix, each, False) for each in part.ranges])
            is_point = len(part.ranges) == 1 and part.ranges[0].is_point
            return FieldPlan(index, ranges, int(is_point), False, frozenset([part.field]))
    return None


def _joined(sets: Sequence[KeyRanges], is_several: bool) -> KeyRanges:
    if is_several:
        # The narrowest is a guess: values before stretches.
        return min(sets, key=lambda ranges: (not all(each.is_point for each in ranges), len(ranges)))
    joined = sets[0]
    for ranges in sets[1:]:
        joined = intersected(joined, ranges)
    return joined


def _root(path: str) -> str:
    return path.partition(".")[0]


def _holds_null(ranges: KeyRange) -> bool:
    return ranges.low <= bytes([NULL]) < ranges.high


def _holds_nested(ranges: KeyRange) -> bool:
    return any(ranges.low[:1] <= bytes([each]) < ranges.high for each in (OBJECT, ARRAY))


def _placed(prefix: bytes, ranges: KeyRange, is_descending: bool) -> tuple[bytes, bytes]:
    low, high = ranges.low, ranges.high
    if is_descending:
        # No key is the beginning of another, so what is greater is less when inverted. May let in the next key.
        low, high = inverted(high), layout.prefix_end(inverted(low))
    return _cut((prefix + low, prefix + high))


def bounds_of(ranges: KeyRanges, is_descending: bool) -> tuple[bytes, bytes]:
    """One stretch of keys of a field that holds all of some; it may hold more."""
    if not ranges:
        return b"", b""
    whole = KeyRange(ranges[0].low, max([each.high for each in ranges]))
    return _placed(b"", whole, is_descending)


def _cut(stretch: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """The same of keys that are cut where they get long."""
    low, high = stretch
    return low[:_CUT_AT], high if len(high) <= _CUT_AT else layout.prefix_end(high[:_CUT_AT])
