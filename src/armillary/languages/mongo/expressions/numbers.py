"""Arithmetic on BSON's four numeric types: the type of a result, sums, products and quotients. int32 and int64 stay
whole until they overflow, doubles take precedence over whole numbers, and decimals over all. Operators check the types
of their operands themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Decimal
from decimal import Context as DecimalContext
from typing import Any, Final

from bson.decimal128 import Decimal128, create_decimal128_context
from bson.int64 import Int64

from armillary.languages.mongo.filters.value_types import whole_number
from armillary.model.bson.bson_values import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, MISSING, to_decimal

INT, LONG, DOUBLE, DECIMAL = range(4)
RANKS: Final[dict[type, int]] = {int: INT, Int64: LONG, float: DOUBLE, Decimal128: DECIMAL}
CONTEXT: Final = create_decimal128_context()
DIGITS_MAX: Final = 34
_WIDE: Final = DecimalContext(prec=1200, Emax=9999, Emin=-9999)

_EXACT_MAX: Final = 1 << 53


def is_nullish(value: Any) -> bool:
    return value is None or value is MISSING


def widest(values: Iterable[Any]) -> int:
    return max((RANKS[type(value)] for value in values), default=INT)


def integer(number: int, rank: int) -> Any:
    """A whole number in the smallest type that holds it and is as wide as the operands; a double if none does."""
    if rank == INT and INT32_MIN <= number <= INT32_MAX:
        return int(number)
    if INT64_MIN <= number <= INT64_MAX:
        return Int64(number)
    return float(number)


def decimal128(number: Decimal) -> Decimal128:
    return Decimal128(CONTEXT.create_decimal(number) if number.is_finite() else number)


def exact_decimal(value: Any) -> Decimal:
    """A double as a decimal with all digits that a decimal can hold, as sums use it."""
    return CONTEXT.create_decimal(Decimal(value)) if type(value) is float else to_decimal(value)


def sum_in_order(values: Iterable[Any]) -> Any:
    """The sum from left to right, as in $add: doubles are not compensated, and are rounded to 15 digits if added to
    decimals.
    """
    rank = INT
    result: Any = 0
    for value in values:
        rank = max(rank, RANKS[type(value)])
        if rank <= LONG:
            result += int(value)
            if not INT64_MIN <= result <= INT64_MAX:
                rank, result = DOUBLE, float(result)
        elif rank == DOUBLE:
            result = float(result) + float(value)
        else:
            result = CONTEXT.add(result if type(result) is Decimal else to_decimal(result), to_decimal(value))
    if rank <= LONG:
        return integer(result, rank)
    return result if rank == DOUBLE else decimal128(result)


def total(values: list[Any]) -> Any:
    """The sum of numbers, compensated for rounding errors."""
    rank = widest(values)
    if rank <= LONG:
        return integer(sum(values), rank)
    if rank == DOUBLE:
        return double_sum(values)
    doubles = double_sum([value for value in values if type(value) is float])
    result = Decimal(sum([int(value) for value in values if RANKS[type(value)] <= LONG]))
    if doubles:
        result = CONTEXT.add(result, exact_decimal(doubles))
    for value in values:
        if type(value) is Decimal128:
            result = CONTEXT.add(result, value.to_decimal())
    return decimal128(result)


def double_sum(values: Iterable[Any]) -> float:
    parts: list[float] = []
    for value in values:
        if type(value) is not float and abs(value) > _EXACT_MAX:
            high = float(value)
            parts += (high, float(value - int(high)))
        else:
            parts.append(float(value))
    try:
        return math.fsum(parts)
    except (OverflowError, ValueError):  # infinities
        return sum(parts)


def product(left: Any, right: Any) -> Any:
    rank = max(RANKS[type(left)], RANKS[type(right)])
    if rank <= LONG:
        return integer(int(left) * int(right), rank)
    if rank == DOUBLE:
        return float(left) * float(right)
    return decimal128(CONTEXT.multiply(to_decimal(left), to_decimal(right)))


def difference(left: Any, right: Any) -> Any:
    rank = max(RANKS[type(left)], RANKS[type(right)])
    if rank <= LONG:
        return integer(int(left) - int(right), rank)
    if rank == DOUBLE:
        return float(left) - float(right)
    return decimal128(CONTEXT.subtract(to_decimal(left), to_decimal(right)))


def quotient(left: Any, right: Any) -> Any:
    """The quotient of numbers, the second not 0: a double or a decimal."""
    if DECIMAL in (RANKS[type(left)], RANKS[type(right)]):
        return decimal128(CONTEXT.divide(to_decimal(left), to_decimal(right)))
    try:
        return float(left) / float(right)
    except OverflowError:
        return math.inf


def is_zero(number: Any) -> bool:
    return bool(to_decimal(number) == 0) if type(number) is Decimal128 else bool(number == 0)


def as_double(number: Any) -> float:
    return float(to_decimal(number)) if type(number) is Decimal128 else float(number)


def as_int32(value: Any) -> int | None:
    number = whole_number(value)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def quantized(number: Decimal, places: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """Rounded to a number of decimal places, if negative of places before the point, within a decimal's digits."""
    if not number.is_finite():
        return number
    if number:
        places = min(places, DIGITS_MAX - 1 - number.adjusted())
    return number.quantize(Decimal(1).scaleb(-places), rounding=rounding, context=_WIDE)


def double_text(number: float) -> str:
    """A double as conversions to strings write it: without a point if it is whole."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    text = repr(number)
    return text[:-2] if text.endswith(".0") else text
