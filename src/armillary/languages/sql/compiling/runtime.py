"""The operators of the language as functions that generated code calls. They take any value, undefined included, and
never raise, so the code generator may choose the order of evaluation.

"Trilean" below is true, false or undefined. Numbers are doubles whatever their Python type (`model/values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from armillary import limits
from armillary.errors import bad_request
from armillary.languages.sql.compiling.like import like as like
from armillary.languages.sql.compiling.like import like_constant as like_constant
from armillary.languages.sql.library.membership import ConstantArray as ConstantArray
from armillary.model.encoding import encode_value
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Undefined, Value, as_double, equal, weight
from armillary.query.aggregates import Groups as Groups
from armillary.query.aggregates import Seen
from armillary.query.selection import PACED_MIN as PACED_MIN
from armillary.query.selection import PAUSE as PAUSE
from armillary.query.selection import paced as paced
from armillary.work import current, make
from armillary.work import made as made
from armillary.work import release as release
from armillary.work import spend as spend

Trilean: TypeAlias = bool | Undefined

NUMBERS: frozenset[Any] = frozenset([int, float])
PRIMITIVES: frozenset[Any] = frozenset([str, bool, int, float, type(None)])
_UNHASHED: frozenset[Any] = frozenset([list, dict])
_NOTHING: tuple[()] = ()
_LONG = 4_096  # characters; comparing shorter strings is not charged for
_LONG_SHIFT = 10  # characters for one unit of work, as a power of two


# Comparison.


def equals(first: Value, second: Value) -> Trilean:
    if first is UNDEFINED or second is UNDEFINED:
        return UNDEFINED
    return equal(first, second)


def differs(first: Value, second: Value) -> Trilean:
    if first is UNDEFINED or second is UNDEFINED:
        return UNDEFINED
    return not equal(first, second)


def less(first: Any, second: Any) -> Trilean:
    kind, other = first.__class__, second.__class__
    if kind in NUMBERS and other in NUMBERS:
        return as_double(first) < as_double(second)
    if kind is not other or kind in _UNHASHED or kind is Undefined:
        return UNDEFINED
    if kind is str and len(first) > _LONG:
        spend(len(first) >> _LONG_SHIFT)
    return False if first is None else bool(first < second)


def at_most(first: Any, second: Any) -> Trilean:
    kind, other = first.__class__, second.__class__
    if kind in NUMBERS and other in NUMBERS:
        return as_double(first) <= as_double(second)
    if kind is not other or kind in _UNHASHED or kind is Undefined:
        return UNDEFINED
    if kind is str and len(first) > _LONG:
        spend(len(first) >> _LONG_SHIFT)
    return True if first is None else bool(first <= second)


def greater(first: Value, second: Value) -> Trilean:
    return less(second, first)


def at_least(first: Value, second: Value) -> Trilean:
    return at_most(second, first)


def between(operand: Value, low: Value, high: Value) -> Trilean:
    return every((at_least(operand, low), at_most(operand, high)))


# Logic. Operands that are not booleans count as undefined.


def every(operands: Sequence[Value]) -> Trilean:
    is_sure = True
    for operand in operands:
        if operand is False:
            return False
        if operand is not True:
            is_sure = False
    return True if is_sure else UNDEFINED


def some(operands: Sequence[Value]) -> Trilean:
    is_sure = True
    for operand in operands:
        if operand is True:
            return True
        if operand is not False:
            is_sure = False
    return False if is_sure else UNDEFINED


def negate(operand: Value) -> Trilean:
    if operand is True:
        return False
    if operand is False:
        return True
    return UNDEFINED


def coalesce(operands: Sequence[Value]) -> Value:
    for operand in operands:
        if operand is not UNDEFINED:
            return operand
    return UNDEFINED


# Membership, by hashing.


def hash_key(value: Any) -> Any:
    """A hashable key whose Python equality is the language's equality (true is not 1). Values that cannot be hashed get
    a key that equals no other."""
    kind = value.__class__
    if kind is str:
        return value
    if kind is bool:
        return (value,)
    if kind in _UNHASHED:
        return _NOTHING
    if kind is int and not -EXACT_INT_MAX <= value <= EXACT_INT_MAX:
        return as_double(value)
    return value


class Members:
    """The constants of an IN list."""

    __slots__ = ("_deep", "_has_undefined", "_hashed")

    def __init__(self, values: Sequence[Value]) -> None:
        self._hashed = frozenset(hash_key(value) for value in values if value.__class__ not in _UNHASHED)
        self._deep = frozenset(encode_value(value) for value in values if value.__class__ in _UNHASHED)
        self._has_undefined = UNDEFINED in self._hashed

    def holds(self, value: Value) -> bool:
        if value.__class__ in _UNHASHED:
            return bool(self._deep) and encode_value(value) in self._deep
        return hash_key(value) in self._hashed

    def find(self, value: Value) -> Trilean:
        """`value IN (…)`, with the result of the equivalent OR of equalities."""
        if value is UNDEFINED:
            return UNDEFINED
        if self.holds(value):
            return True
        return UNDEFINED if self._has_undefined else False


Table = Sequence[tuple[tuple[Any, ...], Any]]  # path, expected value


def equality_table(constants: Sequence[Value], rows: Sequence[tuple[tuple[Any, ...], int]]) -> Table:
    """The table for many `path = constant`, from the places of the constants (-1: undefined)."""
    return [(path, UNDEFINED if place < 0 else hash_key(constants[place])) for path, place in rows]


def all_equal(value: Value, table: Table) -> bool:
    return all(hash_key(walk(value, path)) == key for path, key in table)


def any_equal(value: Value, table: Table) -> bool:
    return any(hash_key(walk(value, path)) == key for path, key in table)


def key_set(constants: Sequence[Value], rows: Sequence[tuple[int, ...]]) -> frozenset[Any]:
    """The hash keys of rows of constants, given by their places (-1: undefined)."""
    return frozenset(tuple([UNDEFINED if place < 0 else hash_key(constants[place]) for place in row]) for row in rows)


# Arithmetic.


def _number(result: float) -> int | float:
    """Whole results become integers while a double holds them exactly: 6 / 2 is 3, not 3.0."""
    if -EXACT_INT_MAX <= result <= EXACT_INT_MAX and result == int(result):
        return int(result)
    return result


def add(first: Any, second: Any) -> Value:
    if first.__class__ in NUMBERS and second.__class__ in NUMBERS:
        return _number(as_double(first) + as_double(second))
    return UNDEFINED


def subtract(first: Any, second: Any) -> Value:
    if first.__class__ in NUMBERS and second.__class__ in NUMBERS:
        return _number(as_double(first) - as_double(second))
    return UNDEFINED


def multiply(first: Any, second: Any) -> Value:
    if first.__class__ in NUMBERS and second.__class__ in NUMBERS:
        return _number(as_double(first) * as_double(second))
    return UNDEFINED


def divide(first: Any, second: Any) -> Value:
    if first.__class__ not in NUMBERS or second.__class__ not in NUMBERS:
        return UNDEFINED
    dividend, divisor = as_double(first), as_double(second)
    if divisor == 0:
        if dividend == 0 or dividend != dividend:
            return math.nan
        return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)
    return _number(dividend / divisor)


def remainder(first: Any, second: Any) -> Value:
    if first.__class__ not in NUMBERS or second.__class__ not in NUMBERS:
        return UNDEFINED
    dividend, divisor = as_double(first), as_double(second)
    if divisor == 0 or not math.isfinite(dividend) or divisor != divisor:
        return math.nan
    return _number(math.fmod(dividend, divisor))


def minus(operand: Any) -> Value:
    return _number(-as_double(operand)) if operand.__class__ in NUMBERS else UNDEFINED


def plus(operand: Any) -> Value:
    return operand if operand.__class__ in NUMBERS else UNDEFINED


def concatenate(first: Any, second: Any) -> Value:
    if first.__class__ is str and second.__class__ is str:
        size = len(first) + len(second)
        if size > limits.ITEM_BYTES_MAX:
            return UNDEFINED  # as for CONCAT: longer than the largest item
        if size > _SMALL:
            make(size)
        return str(first + second)
    return UNDEFINED


# Bitwise operators, with JavaScript's 32-bit rules.


def _int32(number: int | float) -> int:
    double = as_double(number)
    if not math.isfinite(double):
        return 0
    bits = int(double) & 0xFFFFFFFF
    return bits - 0x100000000 if bits >= 0x80000000 else bits


def _bitwise(first: Any, second: Any) -> tuple[int, int] | None:
    if first.__class__ in NUMBERS and second.__class__ in NUMBERS:
        return _int32(first), _int32(second)
    return None


def bit_and(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else pair[0] & pair[1]


def bit_or(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else pair[0] | pair[1]


def bit_xor(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else pair[0] ^ pair[1]


def bit_not(operand: Any) -> Value:
    return ~_int32(operand) if operand.__class__ in NUMBERS else UNDEFINED


def shift_left(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else _int32(pair[0] << (pair[1] & 31))


def shift_right(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else pair[0] >> (pair[1] & 31)


def shift_right_unsigned(first: Any, second: Any) -> Value:
    pair = _bitwise(first, second)
    return UNDEFINED if pair is None else (pair[0] & 0xFFFFFFFF) >> (pair[1] & 31)


# Subqueries.

ONCE: tuple[None] = (None,)
_END = object()
_SMALL = 64  # characters; shorter strings are counted as a constant for each row
_ROWS = 64  # rows of an array between two charges


def gathered(rows: Iterator[Value], row_bytes: int) -> list[Value]:
    """ARRAY(SELECT …) whose rows are existing values: only the array itself is counted."""
    found = list(islice(rows, _ROWS))
    if len(found) < _ROWS:
        return found
    while more := list(islice(rows, _ROWS)):
        make(_ROWS * row_bytes)
        found += more
    return found


def collected(rows: Iterator[Value], row_bytes: int) -> list[Value]:
    """ARRAY(SELECT …). Counts `row_bytes` for each row, and only the memory of values that the row keeps."""
    run = current()
    held_bytes = run.made_bytes
    found: list[Value] = []
    for row in rows:
        found.append(row)
        fresh_bytes = run.made_bytes - held_bytes
        if fresh_bytes > 0:
            held_bytes += min(fresh_bytes, weight(row))
            run.made_bytes = held_bytes
        if len(found) % _ROWS == 0:
            make(_ROWS * row_bytes)
            held_bytes = run.made_bytes
    return found


def single(rows: Iterator[Value]) -> Value:
    """The value of a scalar subquery."""
    first = next(rows, UNDEFINED)
    if first is not UNDEFINED and next(rows, _END) is not _END:
        raise bad_request("The cardinality of a scalar subquery result set cannot be greater than one.")
    return first


def is_empty(rows: Iterator[Value]) -> bool:
    return next(rows, _END) is _END


def is_empty_after_all(rows: Iterator[Value]) -> bool:
    """The same for rows whose evaluation allocates memory, which is given back."""
    run = current()
    before_bytes = run.made_bytes
    is_none = next(rows, _END) is _END
    if run.made_bytes != before_bytes:
        run.made_bytes = before_bytes  # the row is dropped
    return is_none


def last(rows: Iterator[Value]) -> Value:
    found: Value = UNDEFINED
    run = current()
    before_bytes = run.made_bytes
    for found in rows:  # noqa: B007 (the last one is what is wanted)
        if run.made_bytes != before_bytes:
            run.made_bytes = before_bytes
    return found


def elements(rows: Iterator[Value]) -> Iterator[Value]:
    """`x IN (SELECT …)` in FROM: the elements of the arrays that a subquery returns."""
    for row in rows:
        if row.__class__ is list:
            yield from row


def distinct(rows: Iterator[Value]) -> Iterator[Value]:
    seen = Seen()
    return (row for row in rows if seen.is_new(row))


# Access and construction.


def member(source: Any, name: str) -> Value:
    return source.get(name, UNDEFINED) if source.__class__ is dict else UNDEFINED


def element(source: Any, index: Any) -> Value:
    """`source[index]`: a property for a string, an element for a whole number."""
    kind = index.__class__
    if kind is str:
        return member(source, index)
    if source.__class__ is not list or kind not in NUMBERS or not 0 <= index < len(source) or index != int(index):
        return UNDEFINED
    found: Value = source[int(index)]
    return found


def walk(source: Any, steps: Sequence[str | int]) -> Value:
    for step in steps:
        source = element(source, step)
    return source  # type: ignore[no-any-return]


def make_array(elements: Sequence[Value]) -> Value:
    return [value for value in elements if value is not UNDEFINED]


def make_object(names: Sequence[str], values: Sequence[Value]) -> Value:
    return {name: value for name, value in zip(names, values, strict=True) if value is not UNDEFINED}
