"""Comparison of values: equality, comparison (which may be undefined), and the total order that order() uses.

The rules are TinkerPop's: numbers compare across their types, a boolean is not a number, NaN equals nothing and sorts
last among numbers, values of different types are unequal and cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, TypeVar

from armillary.languages.gremlin.syntax.tokens import Token
from armillary.languages.gremlin.values.elements import (
    Edge,
    Entry,
    Frozen,
    Path,
    Property,
    Subgraph,
    Tree,
    Vertex,
    VertexProperty,
    pairs,
    thaw,
)
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Float32, Set, Uuid
from armillary.work import make, sorted_values, spend

T = TypeVar("T")
NUMBERS: Final = (int, float, Decimal)
_KEY_BYTES: Final = 100  # about, of the identity of a value
_SMALL: Final = 2**63
_DIGITS_MAX: Final = 2_000  # of whole numbers that are converted to texts
_EXACT: Final = Context(prec=4_000)


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def type_rank(value: Any) -> int:
    """The rank of a value's type in the total order. Only values of the same rank can be compared."""
    if value is None:
        return 0
    kind = type(value)
    rank = _RANKS.get(kind)
    if rank is not None:
        return rank
    for parent, parent_rank in _PARENT_RANKS:
        if isinstance(value, parent):
            _RANKS[kind] = parent_rank
            return parent_rank
    return 99


_RANKS: dict[type, int] = {
    bool: 1,
    int: 2,
    float: 2,
    Decimal: 2,
    datetime: 3,
    str: 4,
    Uuid: 5,
    Vertex: 6,
    Edge: 7,
    VertexProperty: 8,
    Property: 9,
    Path: 10,
    Set: 11,
    list: 12,
    BulkSet: 12,
    dict: 13,
    Entry: 14,
    Tree: 15,
    Subgraph: 16,
    timedelta: 17,
}
_PARENT_RANKS: Final = ((bool, 1), (int, 2), (float, 2), (Uuid, 5), (str, 4), (list, 12), (dict, 13), (Token, 18))


def equal(left: Any, right: Any) -> bool:
    rank = type_rank(left)
    if rank != type_rank(right):
        return False
    if rank in (11, 12):
        if len(left) != len(right):
            return False
        if rank == 11:
            mine, others = set(_identities(left)), set(_identities(right))
            return ("nan",) not in mine and mine == others
        spend(4 * len(left))
        return all(equal(one, other) for one, other in zip(left, right, strict=True))
    if rank == 13:
        if len(left) != len(right):
            return False
        spend(6 * len(left))
        return all(key in right and equal(value, right[key]) for key, value in left.items())
    if rank == 9:
        return left.key == right.key and equal(left.value, right.value)
    if rank == 14:
        return equal(left[0], right[0]) and equal(left[1], right[1])
    return bool(left == right)


def compare(left: Any, right: Any) -> int | None:
    """-1, 0 or 1; None if the comparison is undefined: different types, NaN, and types without an order."""
    rank = type_rank(left)
    if rank != type_rank(right):
        return None
    if rank == 0:
        return 0
    if rank > 5 and rank not in (11, 12, 13, 17):
        one, other = order_key(left), order_key(right)
        if rank not in (6, 7, 8, 9, 10):
            return None
        return -1 if one < other else 1 if one > other else 0
    if rank in (11, 12):
        for one, other in zip(left, right, strict=False):
            spend(4)
            found = compare(one, other)
            if found != 0:
                return found
        return (len(left) > len(right)) - (len(left) < len(right))
    if rank == 13:
        one, other = order_key(left), order_key(right)
        return -1 if one < other else 1 if one > other else 0
    if is_nan(left) or is_nan(right):
        return None
    return -1 if left < right else 1 if left > right else 0


def order_key(value: Any) -> tuple[Any, ...]:
    """A sort key for values of any types."""
    rank = type_rank(value)
    if rank == 2:
        return (2, 1, 0) if value != value else (2, 0, value)
    if rank == 4:
        return (4, str(value))
    if rank == 18:
        return (4, str(value.value))  # T.id among other keys of a map
    if rank in (1, 3, 17):
        return (rank, value)
    if rank == 0:
        return (0,)
    if rank == 5:
        return (5, str(value))
    if rank in (6, 7, 8):
        return (rank, order_key(value.id), order_key(value.partition if rank < 8 else None))
    if rank == 9:
        return (9, value.key, order_key(value.value))
    if rank == 10:
        return (10, _order_keys(value.objects))
    if rank == 11:
        return (11, sorted_values(_order_keys(value)))
    if rank == 12:
        return (12, _order_keys(value))
    if rank == 13:
        return (13, sorted_values([(order_key(key), _spent(order_key(each))) for key, each in pairs(value)]))
    if rank == 14:
        return (14, order_key(value[0]), order_key(value[1]))
    return (rank, type(value).__name__, str(value))


def _order_keys(values: list[Any]) -> list[Any]:
    make(_KEY_BYTES * len(values))
    return [_spent(order_key(each)) for each in values]


def _spent(key: T) -> T:
    spend(6)
    return key


def _identities(values: list[Any]) -> list[Hashable]:
    make(_KEY_BYTES * len(values))
    return [_spent(identity(each)) for each in values]


def identity(value: Any) -> Hashable:
    """A hashable key that is equal for equal values, for dedup(), groups, sets and merging traversers."""
    kind = type(value)
    if kind is str or kind is Vertex or kind is Edge:
        return value  # type: ignore[no-any-return]
    if kind is int and -_SMALL <= value < _SMALL:
        return value  # type: ignore[no-any-return]
    if value is None:
        return None
    if kind is bool:
        return ("b", value)
    if isinstance(value, NUMBERS):
        return _number_identity(value)
    # Tuples begin with a text: Python salts the hashes of texts, so a client cannot construct collisions.
    if isinstance(value, Set):
        return ("s", frozenset([("k", each) for each in _identities(value)]))
    if isinstance(value, list):
        return ("l", *_identities(value))
    if isinstance(value, dict):
        return ("m", frozenset([_spent(("k", identity(key), identity(each))) for key, each in pairs(value)]))
    if kind is Property:
        return ("p", value.key, identity(value.value))
    if kind is Path:
        return ("path", *_identities(value.objects))
    if kind is Entry:
        return ("e", identity(value[0]), identity(value[1]))
    if kind is Uuid:
        return ("u", str(value))
    if isinstance(value, Hashable):
        return value
    return id(value)


def _number_identity(value: Any) -> Hashable:
    """The same key for equal numbers of all types. Small numbers are their own key; others are texts, because clients
    could construct collisions of Python's hashes of large numbers.
    """
    if isinstance(value, int):
        return int(value) if -_SMALL <= value < _SMALL else ("n", f"{value:x}")
    if value != value:
        return ("nan",)
    if isinstance(value, float):
        if math.isinf(value) or not value.is_integer():
            return float(value)
        return _number_identity(int(value))
    if value.is_infinite():
        return float(value)
    if value.adjusted() > _DIGITS_MAX:
        return ("d", str(value.normalize(_EXACT)))
    if value == value.to_integral_value():
        return _number_identity(int(value))
    near = float(value)
    return near if Decimal(near) == value else ("d", str(value.normalize(_EXACT)))


def map_key(value: Any) -> Any:
    """A value as a key of a dict: itself if Python's equality is that of Gremlin, otherwise Frozen."""
    kind = type(value)
    if kind is str or kind is Vertex or kind is Edge:
        return value
    if isinstance(value, NUMBERS) and kind is not bool:
        own = _number_identity(value)
        return Frozen(value, own) if type(own) is tuple else value
    if kind is bool or isinstance(value, list | dict) or kind is Entry or kind is Property or kind is Tree:
        return Frozen(value, identity(value))
    return value if isinstance(value, Hashable) else Frozen(value, identity(value))


def unique(values: Iterable[Any]) -> Set:
    """Each value once."""
    seen: set[Hashable] = set()
    result = Set()
    for value in values:
        spend(6)
        key = identity(value)
        if key not in seen:
            make(_KEY_BYTES)
            seen.add(key)
            result.append(value)
    return result


def counted(values: Iterable[Any]) -> list[tuple[Any, int]]:
    """Each value once, with the number of times that it occurs: the form in which bulk sets are sent."""
    counts: dict[Hashable, tuple[Any, int]] = {}
    for value in values:
        key = identity(value)
        first, count = counts.get(key, (value, 0))
        counts[key] = (first, count + 1)
    return list(counts.values())


def _float_text(value: float) -> str:
    """A double as Java writes it: with an exponent from ten million on and below a thousandth."""
    text = repr(float(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"


def text_of(value: Any) -> str:
    """As asString() and format() write a value."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float) and not isinstance(value, bool):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return _float_text(value)
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, Set | list):
        text = "[" + ", ".join([_spent(text_of(each)) for each in value]) + "]"
        make(len(text))
        return text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(key)}={text_of(each)}" for key, each in pairs(value)) + "}"
    if isinstance(value, Entry):
        return f"{text_of(value[0])}={text_of(value[1])}"
    if isinstance(value, Path):
        return "path[" + ", ".join(text_of(each) for each in value.objects) + "]"
    if isinstance(value, Token):
        return str(value.value)
    return str(thaw(value))


def shown(value: Any) -> str:
    """A value as error messages quote it."""
    return repr(str(value)) if isinstance(value, str) else text_of(value)


def kind_of(value: Any) -> str:
    """The type of a value as error messages name it."""
    return _NAMES.get(type(value), type(value).__name__)


_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "Boolean",
    str: "String",
    int: "Integer",
    float: "Double",
    Float32: "Float",
    Decimal: "BigDecimal",
    BigInt: "BigInteger",
    Uuid: "UUID",
    datetime: "Date",
    timedelta: "Duration",
    list: "List",
    dict: "Map",
}
