"""Arithmetic: sums and products, quotients, powers and roots, rounding, bits. With a null or missing operand the result
is null; other values that are not numbers are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from armillary.languages.mongo.errors import TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import RANDOM, Context, Expression
from armillary.languages.mongo.expressions.compiling import Function, Operator
from armillary.languages.mongo.expressions.numbers import (
    CONTEXT,
    DECIMAL,
    DOUBLE,
    INT,
    RANKS,
    as_double,
    as_int32,
    decimal128,
    difference,
    exact_decimal,
    integer,
    is_nullish,
    is_zero,
    product,
    quantized,
    quotient,
    sum_in_order,
)
from armillary.model.bson.bson_values import INT64_MAX, INT64_MIN, shell_text, to_decimal, type_name

OVERFLOW: Final = 15


def date_plus(milliseconds: int, what: str) -> DatetimeMS:
    if not INT64_MIN <= milliseconds <= INT64_MAX:
        raise refusal(OVERFLOW, f"date overflow in {what}")
    return DatetimeMS(milliseconds)


def add(*values: Any) -> Any:
    if len(values) == 2 and type(values[0]) is int and type(values[1]) is int:
        return integer(values[0] + values[1], INT)
    before: list[Any] = []
    date_ms: int | None = None
    for value in values:
        if type(value) in RANKS:
            if date_ms is None:
                before.append(value)
            else:
                date_ms += _milliseconds(value)  # each operand is rounded separately
        elif is_nullish(value):
            return None
        elif type(value) is DatetimeMS:
            if date_ms is not None:
                raise refusal(16612, "only one date allowed in an $add expression")
            date_ms = int(value) + _milliseconds(sum_in_order(before))
        else:
            raise refusal(TYPE_MISMATCH, f"$add only supports numeric or date types, not {type_name(value)}")
    return sum_in_order(before) if date_ms is None else date_plus(date_ms, "$add")


def _milliseconds(number: Any) -> int:
    if type(number) is Decimal128:
        value = number.to_decimal()
        if not value.is_finite():
            raise refusal(OVERFLOW, "date overflow in $add")
        return round(value)
    if type(number) is float:
        if not math.isfinite(number):
            raise refusal(OVERFLOW, "date overflow in $add")
        return math.floor(number + 0.5) if number >= 0 else math.ceil(number - 0.5)
    return int(number)


def subtract(left: Any, right: Any) -> Any:
    if type(left) in RANKS and type(right) in RANKS:
        return difference(left, right)
    if is_nullish(left) or is_nullish(right):
        return None
    if type(left) is DatetimeMS:
        if type(right) is DatetimeMS:
            return Int64(int(left) - int(right))
        if type(right) in RANKS:
            return date_plus(int(left) - _milliseconds(right), "$subtract")
    raise refusal(TYPE_MISMATCH, f"can't $subtract {type_name(right)} from {type_name(left)}")


def multiply(*values: Any) -> Any:
    result: Any = 1
    for value in values:
        if is_nullish(value):
            return None
        if type(value) not in RANKS:
            raise refusal(TYPE_MISMATCH, f"$multiply only supports numeric types, not {type_name(value)}")
    for value in values:
        result = product(result, value)
    return result


def divide(left: Any, right: Any) -> Any:
    if type(left) in RANKS and type(right) in RANKS:
        if is_zero(right):
            raise bad_value("can't $divide by zero")
        return quotient(left, right)
    if is_nullish(left) or is_nullish(right):
        return None
    raise refusal(TYPE_MISMATCH, f"$divide only supports numeric types, not {type_name(left)} and {type_name(right)}")


def mod(left: Any, right: Any) -> Any:
    if type(left) not in RANKS or type(right) not in RANKS:
        if is_nullish(left) or is_nullish(right):
            return None
        raise refusal(16611, f"$mod only supports numeric types, not {type_name(left)} and {type_name(right)}")
    if is_zero(right):
        raise refusal(16610, "can't $mod by zero")
    rank = max(RANKS[type(left)], RANKS[type(right)])
    if rank == DECIMAL:
        return decimal128(CONTEXT.remainder(to_decimal(left), to_decimal(right)))
    if rank == DOUBLE:
        if math.isinf(float(left)):
            return math.nan
        return math.fmod(float(left), float(right))
    dividend, divisor = int(left), int(right)
    remainder = abs(dividend) % abs(divisor)
    return integer(-remainder if dividend < 0 else remainder, rank)


# One number.


def _of_number(
    name: str, of_double: Callable[[float], float], of_decimal: Callable[[Decimal], Decimal]
) -> Callable[[Any], Any]:
    """An operator whose result for whole numbers is a double."""

    def evaluate(value: Any) -> Any:
        kind = type(value)
        if kind is Decimal128:
            return decimal128(of_decimal(value.to_decimal()))
        if kind in RANKS:
            return of_double(float(value))
        return _no_number(name, value)

    return evaluate


def _no_number(name: str, value: Any) -> None:
    if not is_nullish(value):
        raise refusal(28765, f"{name} only supports numeric types, not {type_name(value)}")


def absolute(value: Any) -> Any:
    kind = type(value)
    if kind is Decimal128:
        return decimal128(value.to_decimal().copy_abs())
    if kind is float:
        return abs(value)
    if kind in RANKS:
        if kind is Int64 and value == INT64_MIN:
            raise refusal(28680, "can't take $abs of long long min")
        return integer(abs(int(value)), RANKS[kind])
    return _no_number("$abs", value)


def _to_whole(name: str, of_double: Callable[[float], int], rounding: str) -> Callable[[Any], Any]:
    def evaluate(value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return float(of_double(value)) if math.isfinite(value) else value
        if kind is Decimal128:
            number = value.to_decimal()
            return decimal128(number.to_integral_value(rounding) if number.is_finite() else number)
        return value if kind in RANKS else _no_number(name, value)

    return evaluate


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _square_root(value: Any) -> Any:
    if type(value) in RANKS and as_double(value) < 0:
        raise refusal(28714, "$sqrt's argument must be greater than or equal to 0")
    return _root(value)


_root = _of_number("$sqrt", math.sqrt, lambda number: number.sqrt(CONTEXT))


def _logarithm(name: str, code: int, of_double: Callable[[float], float], of_decimal: Any) -> Callable[[Any], Any]:
    evaluate = _of_number(name, of_double, of_decimal)

    def checked(value: Any) -> Any:
        if type(value) in RANKS and as_double(value) <= 0:
            raise refusal(code, f"{name}'s argument must be a positive number, but is {shell_text(value)}")
        result = evaluate(value)
        return math.nan if type(result) is Decimal128 and result.to_decimal().is_nan() else result

    return checked


def log(value: Any, radix: Any) -> Any:
    if is_nullish(value) or is_nullish(radix):
        return None
    if type(value) not in RANKS:
        raise refusal(28756, f"$log's argument must be numeric, not {type_name(value)}")
    if type(radix) not in RANKS:
        raise refusal(28757, f"$log's base must be numeric, not {type_name(radix)}")
    if as_double(value) <= 0:
        raise refusal(28758, f"$log's argument must be a positive number, but is {shell_text(value)}")
    if as_double(radix) <= 0 or as_double(radix) == 1:
        raise refusal(28759, f"$log's base must be a positive number not equal to 1, but is {shell_text(radix)}")
    if Decimal128 in (type(value), type(radix)):
        return decimal128(CONTEXT.divide(to_decimal(value).ln(CONTEXT), to_decimal(radix).ln(CONTEXT)))
    return math.log(float(value)) / math.log(float(radix))


def power(number: Any, exponent: Any) -> Any:
    if is_nullish(number) or is_nullish(exponent):
        return None
    if type(number) not in RANKS:
        raise refusal(28762, f"$pow's base must be numeric, not {type_name(number)}")
    if type(exponent) not in RANKS:
        raise refusal(28763, f"$pow's exponent must be numeric, not {type_name(exponent)}")
    if is_zero(number) and as_double(exponent) < 0:
        raise refusal(28764, "$pow cannot take a base of 0 and a negative exponent")
    rank = max(RANKS[type(number)], RANKS[type(exponent)])
    if rank == DECIMAL:
        return _decimal_power(to_decimal(number), to_decimal(exponent))
    if rank == DOUBLE:
        return _double_power(float(number), float(exponent))
    whole, times = int(number), int(exponent)
    if abs(whole) <= 1:
        return integer(whole ** (abs(times) % 2 if whole < 0 else times) if whole or times >= 0 else 0, rank)
    if times < 0 or times > 64:
        return _double_power(float(whole), float(times))
    return integer(whole**times, rank)


def _decimal_power(number: Decimal, exponent: Decimal) -> Decimal128:
    """The power with all 34 digits of a decimal, including trailing zeros."""
    if number == 1:
        exponent = Decimal(0)  # 1 to any power is 1, including NaN and infinity
    found = CONTEXT.power(number, exponent)
    return decimal128(CONTEXT.add(found, Decimal("0E-6176")) if found.is_finite() else found)


def _double_power(number: float, exponent: float) -> float:
    try:
        result = number**exponent
    except OverflowError:
        return -math.inf if number < 0 and exponent % 2 == 1 else math.inf
    return math.nan if isinstance(result, complex) else result


def _rounded(name: str, rounding: str) -> Callable[..., Any]:
    def evaluate(value: Any, places: Any = 0) -> Any:
        if is_nullish(value) or is_nullish(places):
            return None
        kind = type(value)
        if kind not in RANKS:
            raise refusal(51081, f"{name} only supports numeric types, not {type_name(value)}")
        if type(places) not in RANKS:
            raise refusal(16004, f"can't convert from BSON type {type_name(places)} to long")
        if not INT64_MIN <= as_double(places) < 2.0**63:  # false for NaN too
            raise refusal(31109, "Can't coerce out of range value " + shell_text(places) + " to long")
        count = as_int32(places)
        if count is None:
            raise refusal(51082, f"precision argument to  {name} must be a integral value")
        if not -20 <= count <= 100:
            raise refusal(51083, f"cannot apply {name} with precision value {count} value must be in [-20, 100]")
        if kind is Decimal128:
            return decimal128(quantized(value.to_decimal(), count, rounding))
        if kind is float:
            return float(quantized(exact_decimal(value), count, rounding)) if math.isfinite(value) else value
        if count >= 0:
            return value
        number = int(quantized(Decimal(int(value)), count, rounding))
        if not INT64_MIN <= number <= INT64_MAX:
            raise refusal(51080, f"invalid conversion from Decimal128 result in {name} resulting from arguments")
        return integer(number, RANKS[kind])

    return evaluate


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


# Bits.


def _bits(name: str, start: int, combine: Callable[[int, int], int]) -> Callable[..., Any]:
    def evaluate(*values: Any) -> Any:
        result, rank = start, INT
        for value in values:
            if is_nullish(value):
                return None
            if type(value) is not int and type(value) is not Int64:
                raise refusal(TYPE_MISMATCH, f"{name} only supports int and long operands.")
            result, rank = combine(result, int(value)), max(rank, RANKS[type(value)])
        return integer(result, rank)

    return evaluate


def _bit_not(value: Any) -> Any:
    if is_nullish(value):
        return None
    if type(value) is not int and type(value) is not Int64:
        raise refusal(TYPE_MISMATCH, f"$bitNot only supports int and long, not {type_name(value)}")
    return integer(~int(value), RANKS[type(value)])


def _rand(name: str, spec: Any, context: Context) -> Expression:
    if spec not in ({}, []):
        raise refusal(3040501, "$rand does not currently accept arguments")
    values = context.values
    return lambda scope: values[RANDOM]()


def _decimal(function: Callable[[Decimal], Decimal]) -> Callable[[Decimal], Decimal]:
    def evaluate(number: Decimal) -> Decimal:
        try:
            return function(number)
        except (InvalidOperation, OverflowError):
            return Decimal("NaN")

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {
    "$abs": Function(absolute),
    "$add": Function(add, 0, None),
    "$bitAnd": Function(_bits("$bitAnd", -1, lambda one, other: one & other), 0, None),
    "$bitNot": Function(_bit_not),
    "$bitOr": Function(_bits("$bitOr", 0, lambda one, other: one | other), 0, None),
    "$bitXor": Function(_bits("$bitXor", 0, lambda one, other: one ^ other), 0, None),
    "$ceil": Function(_to_whole("$ceil", math.ceil, ROUND_CEILING)),
    "$divide": Function(divide, 2, 2),
    "$exp": Function(_of_number("$exp", _exponential, lambda number: number.exp(CONTEXT))),
    "$floor": Function(_to_whole("$floor", math.floor, ROUND_FLOOR)),
    "$ln": Function(_logarithm("$ln", 28766, math.log, lambda number: number.ln(CONTEXT))),
    "$log": Function(log, 2, 2),
    "$log10": Function(_logarithm("$log10", 28761, math.log10, lambda number: number.log10(CONTEXT))),
    "$mod": Function(mod, 2, 2),
    "$multiply": Function(multiply, 0, None),
    "$pow": Function(power, 2, 2),
    "$rand": _rand,
    "$round": Function(_rounded("$round", ROUND_HALF_EVEN), 1, 2),
    "$sigmoid": Function(
        _of_number(
            "$sigmoid", _sigmoid, _decimal(lambda number: CONTEXT.divide(Decimal(1), 1 + (-number).exp(CONTEXT)))
        )
    ),
    "$sqrt": Function(_square_root),
    "$subtract": Function(subtract, 2, 2),
    "$trunc": Function(_rounded("$trunc", ROUND_DOWN), 1, 2),
}
