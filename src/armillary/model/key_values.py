"""The value of a partition key. `Key` compares as the hash space does, so that two keys are equal exactly when they are
one logical partition of a container with hash V2: true is not 1, -0.0 is not 0, 1 is 1.0.

Plain tuples compare differently, and so does every dict, set and `in` over them. All code therefore uses `Key` for
keys; mypy refuses a plain tuple in its place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import product
from typing import Any, Final, NoReturn, TypeAlias

from armillary.model.values import Undefined, as_double

KeyComponent: TypeAlias = bool | int | float | str | Undefined | None

_bits_of = struct.Struct("<d").pack


class Key(tuple[KeyComponent, ...]):
    """One component per path, fewer for a prefix of a hierarchical key."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return not self != other

    def __ne__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(self) != len(other):
            return True
        if len(self) == 1 and type(self[0]) is str:  # by far the commonest, and compared with every write
            return bool(self[0] != other[0])
        return not all(map(same_component, self, other))

    def __hash__(self) -> int:
        # Python hashes equal numbers alike, but 2**53 + 1 and its double are equal here only.
        return hash(tuple([as_double(each) if isinstance(each, int) else each for each in self]))

    def begins_with(self, prefix: Key) -> bool:
        """Whether this key is `prefix`, or lies below it in a hierarchical key."""
        return len(self) >= len(prefix) and all(map(same_component, prefix, self))

    def __contains__(self, component: object) -> bool:
        return any(same_component(each, component) for each in self)

    def _unordered(self, other: object) -> NoReturn:
        raise TypeError("partition keys have no order; compare their effective keys")

    __lt__ = __le__ = __gt__ = __ge__ = _unordered


NO_KEY: Final = Key()  # of containers without partition key, and of items that have none after a migration


def key_forms(values: Iterable[Any]) -> list[Key]:
    """The keys that are equal to this one in a filter: 0 and -0.0 are equal in a filter, and two keys."""
    forms = [(value, -as_double(value)) if _is_zero(value) else (value,) for value in values]
    return [Key(each) for each in product(*forms)]


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0 and not isinstance(value, bool)


def same_component(first: object, second: object) -> bool:
    """Equality of two components as they are hashed: numbers by the bits of their doubles, all else by type and value.
    Subclasses count as their base type: Gremlin's `Long` is a number."""
    if isinstance(first, str):
        return isinstance(second, str) and first == second
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return _bits_of(as_double(first)) == _bits_of(as_double(second))
    return first is second or (type(first) is type(second) and first == second)
