"""The part of a filter that an index can use, as plain objects that every language makes and
`query/access/access_path.py` reads.

A condition is *necessary*: every item that the filter keeps satisfies it, while an item that satisfies it may still be
dropped. So a language may leave out whatever it cannot say here, and the filter itself always has the last word.

    Condition = All | Nothing | Equal | In | Range | Defined | Touching | SameElement | Keyed | And | Or

Paths are written as in the index: `/a/b`, `/tags/[]` for the elements of an array. Keyed alone is about the indexes of
collections, whose fields are written `a.b`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from armillary.model.encoding import encode_value
from armillary.model.key_values import Key, key_forms
from armillary.model.spatial.cells import Region
from armillary.model.values import UNDEFINED, Value, compare, type_rank
from armillary.work import paced, sorted_values, spend

# More combinations of pinned values than this are not worth their arithmetic; the filter is then not a pin.
_PINS_MAX = 4096
_PART_UNITS: Final = 5  # of work, to look at a part of a condition


@dataclass(frozen=True, slots=True)
class All:
    """Nothing is known: every item may match."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No item matches."""


@dataclass(frozen=True, slots=True)
class Equal:
    path: str
    value: Value  # UNDEFINED: the path is missing


@dataclass(frozen=True, slots=True)
class In:
    path: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Values between two of one type, numbers or strings. UNDEFINED as a bound: open to the end of the type."""

    path: str
    low: Value
    high: Value
    includes_low: bool = True
    includes_high: bool = True


@dataclass(frozen=True, slots=True)
class Defined:
    path: str


@dataclass(frozen=True, slots=True)
class Touching:
    """A shape that lies in a region, at least in part."""

    path: str
    region: Region


@dataclass(frozen=True, slots=True)
class SameElement:
    """Equalities on paths through an array that one and the same element meets."""

    parts: tuple[Equal, ...]


class KeyRange(NamedTuple):
    """Keys of a field: from the first to before the second."""

    low: bytes
    high: bytes
    is_point: bool = False  # the keys that are or begin with `low`, which is a whole value


KeyRanges: TypeAlias = tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A field has a key in one of some stretches, in every index that begins with it and holds all documents."""

    field: str
    ranges: KeyRanges


THROUGH: Final = "through:"  # in place of a field's name


def through(index_name: str) -> Keyed:
    """Reading one index and no other, whatever it holds."""
    return Keyed(THROUGH + index_name, (KeyRange(b"", b"\xff"),))


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]


Condition: TypeAlias = All | Nothing | Equal | In | Range | Defined | Touching | SameElement | Keyed | And | Or

ALL, NOTHING = All(), Nothing()


def both(parts: Iterable[Condition]) -> Condition:
    """AND, flat, with what adds nothing left out and ranges on one path joined."""
    kept: list[Condition] = []
    ranges: dict[str, int] = {}
    for part in chain.from_iterable([part.parts if isinstance(part, And) else (part,) for part in parts]):
        spend(_PART_UNITS)
        if isinstance(part, Nothing):
            return NOTHING
        if isinstance(part, All):
            continue
        # Two ranges on the elements of an array may be met by two different elements; they stay two.
        if isinstance(part, Range) and "/[]" not in part.path:
            place = ranges.setdefault(part.path, len(kept))
            if place < len(kept):
                earlier = kept[place]
                assert isinstance(earlier, Range)
                joined = _intersection(earlier, part)
                if joined is None:
                    return NOTHING
                kept[place] = joined
                continue
        kept.append(part)
    if not kept:
        return ALL
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def either(parts: Iterable[Condition]) -> Condition:
    """OR, which knows nothing as soon as one part knows nothing."""
    kept: list[Condition] = []
    for part in parts:
        spend(_PART_UNITS)
        if isinstance(part, All):
            return ALL
        if not isinstance(part, Nothing):
            kept.append(part)
    if not kept:
        return NOTHING
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def united(ranges: Iterable[KeyRange]) -> KeyRanges:
    """In order, without overlaps."""
    found: list[KeyRange] = []
    for each in paced(sorted_values(ranges), 3):
        if each.low >= each.high:
            continue
        if found and each.low < found[-1].high:
            last = found[-1]
            found[-1] = last if last[:2] == each[:2] else KeyRange(last.low, max(last.high, each.high))
        else:
            found.append(each)
    return tuple(found)


def intersected(left: KeyRanges, right: KeyRanges) -> KeyRanges:
    found = []
    for first in left:
        for second in right:
            low, high = max(first.low, second.low), min(first.high, second.high)
            is_point = (first.is_point and first[:2] == (low, high)) or (second.is_point and second[:2] == (low, high))
            found.append(KeyRange(low, high, is_point))
    return united(found)


def prefix_range(path: str, prefix: str) -> Condition:
    """Strings that begin with a prefix."""
    if not prefix:
        return Range(path, "", UNDEFINED)
    return Range(path, prefix, _after_prefix(prefix), includes_high=False)


def _after_prefix(prefix: str) -> Value:
    """The least string greater than all that begin with a prefix; UNDEFINED if there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    if not trimmed:
        return UNDEFINED
    following = ord(trimmed[-1]) + 1
    # Surrogates are no characters; the next one after them is U+E000.
    return trimmed[:-1] + chr(0xE000 if following == 0xD800 else following)


def _intersection(first: Range, second: Range) -> Range | None:
    if _rank(first) != _rank(second):
        return None
    low, includes_low = first.low, first.includes_low
    if second.low is not UNDEFINED:
        order = 1 if low is UNDEFINED else compare(second.low, low)
        if order > 0:
            low, includes_low = second.low, second.includes_low
        elif order == 0:
            includes_low = includes_low and second.includes_low
    high, includes_high = first.high, first.includes_high
    if second.high is not UNDEFINED:
        order = -1 if high is UNDEFINED else compare(second.high, high)
        if order < 0:
            high, includes_high = second.high, second.includes_high
        elif order == 0:
            includes_high = includes_high and second.includes_high
    return Range(first.path, low, high, includes_low, includes_high)


def _rank(condition: Range) -> int:
    return type_rank(condition.low if condition.low is not UNDEFINED else condition.high)


def pinned_prefixes(condition: Condition, paths: Sequence[str]) -> list[Key] | None:
    """The leading values of `paths` that a condition allows: one key for each combination, each as long as the
    condition pins it without a gap. None when some item without any pinned value may match; empty when none can match.

    Values are those of partition keys: an object or an array counts as UNDEFINED, as it does when a key is extracted,
    and a zero stands for 0 and -0.0, which are equal in filters and two keys.
    """
    rows = _assignments(condition, frozenset(paths))
    if rows is None:
        return None
    found: dict[tuple[bytes, ...], list[Key]] = {}
    for row in rows:
        spend(20)
        key: list[Value] = []
        for path in paths:
            if path not in row:
                break
            key.append(row[path])
        if not key:
            return None
        found.setdefault(tuple([encode_value(value) for value in key]), key_forms(key))
    return [key for forms in found.values() for key in forms]


def pinned_keys(condition: Condition, key_paths: Sequence[str]) -> list[Key] | None:
    """The full partition keys that a condition pins; None when it leaves any part of the key open."""
    keys = pinned_prefixes(condition, key_paths)
    if keys is None or any(len(key) != len(key_paths) for key in keys):
        return None
    return keys


def pinned_points(condition: Condition, key_paths: Sequence[str]) -> list[tuple[Key, str]] | None:
    """The (partition key, id) pairs that a condition pins, as clients write them to read many items."""
    rows = pinned_keys(condition, [*key_paths, "/id"])
    if rows is None:
        return None
    return [(Key(row[:-1]), row[-1]) for row in rows if isinstance(row[-1], str)]


def pinned_ids(condition: Condition) -> list[str] | None:
    rows = pinned_keys(condition, ["/id"])
    return None if rows is None else [row[0] for row in rows if isinstance(row[0], str)]


_Row: TypeAlias = Mapping[str, Value]


def _assignments(condition: Condition, paths: frozenset[str]) -> list[_Row] | None:
    """The combinations of values of `paths` under which a condition can hold; None if there are too many."""
    if isinstance(condition, Equal):
        return [{condition.path: _key_value(condition.value)}] if condition.path in paths else [{}]
    if isinstance(condition, In):
        if condition.path not in paths:
            return [{}]
        spend(5 * len(condition.values))
        return [{condition.path: _key_value(value)} for value in condition.values]
    if isinstance(condition, Nothing):
        return []
    if isinstance(condition, Or):
        united: list[_Row] = []
        for part in condition.parts:
            spend(_PART_UNITS)
            rows = _assignments(part, paths)
            if rows is None or len(united) + len(rows) > _PINS_MAX:
                return None
            united.extend(rows)
        return united
    if isinstance(condition, And):
        joined: list[_Row] = [{}]
        for part in condition.parts:
            rows = _assignments(part, paths)
            if rows is None:
                continue  # this part pins too much to say; the others still hold
            if len(joined) * len(rows) > _PINS_MAX:
                return None
            joined = [merged for first in joined for second in rows if (merged := _merged(first, second)) is not None]
        return joined
    return [{}]


def _merged(first: _Row, second: _Row) -> _Row | None:
    if not first:
        return second
    for path, value in second.items():
        if path in first and compare(first[path], value) != 0:
            return None
    return {**first, **second}


def _key_value(value: Value) -> Value:
    return UNDEFINED if isinstance(value, (list, dict)) else value
