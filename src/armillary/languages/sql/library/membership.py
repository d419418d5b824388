"""Membership tests in arrays by hashing. An array that is searched repeatedly while one item is evaluated
(ARRAY_CONTAINS in a JOIN over the array itself, 200 conditions on one array, nested set functions) is hashed once, so
that all searches together take linear time. Hash tables are cached by the identity of the array until the end of the
item (`work.end_item`).

Equality is the language's: true is not 1, 1 is 1.0, -0.0 is 0, objects are compared regardless of the order of
properties.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from armillary import limits
from armillary.model.encoding import encode_value
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Value, equal, hash_key
from armillary.work import current, make, spend

CHUNK: Final = 512  # elements compared between two charges to the work budget
FEW: Final = 4  # values; comparing fewer one by one is as fast as hashing
_SHORT: Final = 32  # elements; scanning a shorter array is as fast as hashing
_SCANS: Final = 2  # of one array, before it is hashed
_KEPT_MAX: Final = 64  # arrays in the cache; older ones are evicted
_KEPT_BYTES: Final = 40 * limits.MB  # of hash tables in the cache, likewise: nested set functions make one each
_KEY_BYTES: Final = 120  # of an element in a hash table, estimated
_DEEP: Final = frozenset([list, dict])


class ConstantArray:
    """An array that is the same for all items: hashed on the first search."""

    __slots__ = ("_keys", "_looked")

    def __init__(self, array: list[Any]) -> None:
        self._looked = _Looked(array)
        self._keys: set[Hashable] | None = None

    def contains(self, value: Any, is_partial: Any = False) -> Value:
        """ARRAY_CONTAINS."""
        if value is UNDEFINED or is_partial.__class__ is not bool:
            return UNDEFINED
        array = self._looked.array
        if is_partial and value.__class__ is dict:
            return _contains_part(self._looked, value)
        if len(array) <= _SHORT:
            return _scan(array, value)
        if self._keys is None:
            keys: set[Hashable] = set()
            for start in range(0, len(array), CHUNK):
                spend(2 * CHUNK)
                keys.update(map(_key, array[start : start + CHUNK]))
            self._keys = keys
        is_held: bool = _key(value) in self._keys
        return is_held


class _Looked:
    """An array that was searched, and its hash tables."""

    __slots__ = ("array", "by_name", "distinct", "scans", "size_bytes")

    def __init__(self, array: list[Any]) -> None:
        self.array = array  # kept alive, so that its id() is not reused
        self.scans = 0
        self.size_bytes = 0  # of the tables
        self.distinct: dict[Hashable, Any] | None = None
        self.by_name: dict[str, dict[Hashable, list[dict[str, Any]]]] = {}


def _looked(array: list[Any]) -> _Looked:
    run = current()
    known = run.derived
    found: _Looked | None = known.get(id(array)) if known is not None else None
    if found is not None:
        return found
    found = _Looked(array)
    # Counted, so that the work budget clears the cache at the end of the item.
    make(len(array))
    if run.made_bytes:
        if known is None or len(known) >= _KEPT_MAX:
            known = run.derived = {}
        known[id(array)] = found
    return found


def contains(array: list[Any], value: Any, *, is_asked_often: bool = False) -> bool:
    if len(array) <= _SHORT:
        return _scan(array, value)
    looked = _looked(array)
    if looked.distinct is None:
        looked.scans += 1
        if looked.scans <= _SCANS and not is_asked_often:
            return _scan(array, value)
    return _key(value) in _distinct(looked)


def _scan(array: list[Any], value: Any) -> bool:
    kind = value.__class__
    size = len(array)
    if kind is str or (
        (kind is int or kind is float) and -EXACT_INT_MAX < value < EXACT_INT_MAX and value != 0 and value != 1
    ):
        # For other values Python's equality is the language's: only 0 and 1 equal a boolean.
        if size > _SHORT:
            spend(size >> 2)
        return value in array
    if size <= _SHORT:
        return any(equal(element, value) for element in array)
    for start in range(0, size, CHUNK):
        spend(2 * CHUNK)
        if any(equal(element, value) for element in array[start : start + CHUNK]):
            return True
    return False


def contains_part(array: list[Any], part: dict[str, Any]) -> bool:
    """ARRAY_CONTAINS with partial match: whether an element is an object that has all properties of another object."""
    if len(array) <= _SHORT:
        return any(_holds(element, part) for element in array)
    return _contains_part(_looked(array), part)


def _contains_part(looked: _Looked, part: dict[str, Any]) -> bool:
    array = looked.array
    if len(array) <= _SHORT:
        return any(_holds(element, part) for element in array)
    looked.scans += 1
    if looked.scans <= _SCANS or not part:
        return _scan_parts(array, part)
    # Candidates are the elements that have the rarest of the properties.
    candidates: list[dict[str, Any]] | None = None
    for name, value in part.items():
        found = _by_name(looked, name).get(_key(value), [])
        if candidates is None or len(found) < len(candidates):
            candidates = found
    return _scan_parts(candidates or [], part)


def _scan_parts(elements: list[Any], part: dict[str, Any]) -> bool:
    for start in range(0, len(elements), CHUNK):
        spend((2 + 4 * len(part)) * min(CHUNK, len(elements) - start))
        if any(_holds(element, part) for element in elements[start : start + CHUNK]):
            return True
    return False


def _holds(held: Any, part: dict[str, Any]) -> bool:
    if held.__class__ is not dict:
        return False
    return all(name in held and equal(held[name], value) for name, value in part.items())


def distinct(array: list[Any]) -> dict[Hashable, Any]:
    """The distinct elements of an array by hash key. The caller must not change the dictionary."""
    if len(array) <= _SHORT:
        return _table(array)
    return _distinct(_looked(array))


def _distinct(looked: _Looked) -> dict[Hashable, Any]:
    if looked.distinct is None:
        _count(looked, _KEY_BYTES * len(looked.array))
        looked.distinct = _table(looked.array)
    return looked.distinct


def _count(looked: _Looked, size_bytes: int) -> None:
    """Count a table before it is made, and evict the oldest ones if there are too many."""
    run = current()
    known: dict[Any, Any] = run.derived or {}
    others = [(key, each) for key, each in known.items() if each.__class__ is _Looked and each is not looked]
    held_bytes = sum([each.size_bytes for _, each in others])
    for key, each in others:
        if held_bytes + size_bytes <= _KEPT_BYTES:
            break
        held_bytes -= each.size_bytes
        run.made_bytes = max(0, run.made_bytes - each.size_bytes)
        del known[key]
    looked.size_bytes += size_bytes
    make(size_bytes)


def _table(array: list[Any]) -> dict[Hashable, Any]:
    table: dict[Hashable, Any] = {}
    for start in range(0, len(array), CHUNK):
        piece = array[start : start + CHUNK]
        spend(2 * len(piece))
        for element in piece:
            table.setdefault(_key(element), element)
    return table


def _by_name(looked: _Looked, name: str) -> dict[Hashable, list[dict[str, Any]]]:
    table = looked.by_name.get(name)
    if table is None:
        _count(looked, 2 * _KEY_BYTES * len(looked.array))
        table = {}
        for start in range(0, len(looked.array), CHUNK):
            spend(3 * CHUNK)
            for element in looked.array[start : start + CHUNK]:
                if element.__class__ is dict and name in element:
                    table.setdefault(_key(element[name]), []).append(element)
        looked.by_name[name] = table
    return table


def _key(value: Any) -> Hashable:
    """A hashable key that is equal exactly for equal values. Composite values have their encoding, which are bytes."""
    kind = value.__class__
    if kind is str:
        return value  # type: ignore[no-any-return]
    return encode_value(value) if kind in _DEEP else hash_key(value)
