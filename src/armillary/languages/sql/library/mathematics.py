"""Mathematical functions. They compute with doubles by IEEE 754, NaN and infinities included; an argument that is not a
number makes the result undefined. The Int functions compute with 64-bit integers: a fractional argument or an overflow
makes the result undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.numbers import INT64_MAX, INT64_MIN, NUMBERS, double, number, whole
from armillary.model.values import UNDEFINED, Value, as_double


def _of_one(compute: Callable[[float], float]) -> Callable[..., Value]:
    def call(given: Any) -> Value:
        if given.__class__ not in NUMBERS:
            return UNDEFINED
        try:
            return number(compute(as_double(given)))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def _of_two_integers(compute: Callable[[int, int], int | None]) -> Callable[..., Value]:
    def call(first: Any, second: Any) -> Value:
        left, right = whole(first), whole(second)
        if left is None or right is None:
            return UNDEFINED
        result = compute(left, right)
        return result if result is not None and INT64_MIN <= result <= INT64_MAX else UNDEFINED

    return call


def absolute(given: Any) -> Value:
    return abs(given) if given.__class__ in NUMBERS else UNDEFINED


def sign(given: Any) -> Value:
    if given.__class__ not in NUMBERS:
        return UNDEFINED
    return math.nan if given != given else (given > 0) - (given < 0)


def _to_whole(compute: Callable[[float], int]) -> Callable[..., Value]:
    def call(given: Any) -> Value:
        if given.__class__ is int:
            return given
        if given.__class__ is not float:
            return UNDEFINED
        return number(float(compute(given))) if math.isfinite(given) else given

    return call


def _half_away_from_zero(given: float) -> int:
    size = abs(given)
    below = math.floor(size)
    rounded = below + 1 if size - below >= 0.5 else below
    return rounded if given > 0 else -rounded


ceiling = _to_whole(math.ceil)
floor = _to_whole(math.floor)
truncate = _to_whole(math.trunc)
round_number = _to_whole(_half_away_from_zero)

arc_cosine = _of_one(math.acos)
arc_sine = _of_one(math.asin)
arc_tangent = _of_one(math.atan)
cosine = _of_one(math.cos)
sine = _of_one(math.sin)
tangent = _of_one(math.tan)
degrees = _of_one(math.degrees)
radians = _of_one(math.radians)
exponential = _of_one(math.exp)
square_root = _of_one(math.sqrt)
square = _of_one(lambda given: given * given)


def _cotangent(given: float) -> float:
    value = math.tan(given)
    return 1 / value if value else math.copysign(math.inf, value)


def _logarithm(given: float) -> float:
    return -math.inf if given == 0 else math.log(given)


cotangent = _of_one(_cotangent)
logarithm_10 = _of_one(lambda given: -math.inf if given == 0 else math.log10(given))


def logarithm(given: Any, radix: Any = math.e) -> Value:
    value, of = double(given), double(radix)
    if value is None or of is None:
        return UNDEFINED
    if value < 0 or of < 0 or value != value or of != of:
        return math.nan
    if of == math.e:
        return number(_logarithm(value))
    if of == 10 and value:
        return number(math.log10(value))
    if of == 2 and value:
        return number(math.log2(value))
    dividend, divisor = _logarithm(value), _logarithm(of)
    if divisor == 0:
        return math.copysign(math.inf, dividend) if dividend else math.nan
    return number(dividend / divisor)


def power(given: Any, exponent: Any) -> Value:
    value, to = double(given), double(exponent)
    if value is None or to is None:
        return UNDEFINED
    is_negative = to % 2 == 1 and math.copysign(1.0, value) < 0 if math.isfinite(to) else False
    infinity = -math.inf if is_negative else math.inf
    try:
        return number(math.pow(value, to))
    except OverflowError:
        return infinity
    except ValueError:
        return infinity if value == 0 else math.nan


def arc_tangent_2(y: Any, x: Any) -> Value:
    rise, run = double(y), double(x)
    return UNDEFINED if rise is None or run is None else number(math.atan2(rise, run))


def pi() -> Value:
    return math.pi


def random_number(context: Context) -> Value:
    return context.random()


def number_bin(given: Any, size: Any = 1) -> Value:
    value, step = double(given), double(size)
    if value is None or step is None or step == 0:
        return UNDEFINED
    steps = value / step
    return number(math.floor(steps) * step) if math.isfinite(steps) else UNDEFINED


# 64-bit integers.


def _divide(dividend: int, divisor: int) -> int | None:
    if divisor == 0:
        return None
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _remainder(dividend: int, divisor: int) -> int | None:
    if divisor == 0:
        return None
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _shift_left(value: int, places: int) -> int | None:
    """Shift left in 64 bits; bits beyond the top are lost."""
    if not 0 <= places < 64:
        return None
    bits = (value << places) & (2**64 - 1)
    return bits - 2**64 if bits > INT64_MAX else bits


int_add = _of_two_integers(lambda first, second: first + second)
int_subtract = _of_two_integers(lambda first, second: first - second)
int_multiply = _of_two_integers(lambda first, second: first * second)
int_divide = _of_two_integers(_divide)
int_remainder = _of_two_integers(_remainder)
int_and = _of_two_integers(lambda first, second: first & second)
int_or = _of_two_integers(lambda first, second: first | second)
int_xor = _of_two_integers(lambda first, second: first ^ second)
int_shift_left = _of_two_integers(_shift_left)
int_shift_right = _of_two_integers(lambda value, places: value >> places if 0 <= places < 64 else None)


def int_not(given: Any) -> Value:
    value = whole(given)
    return UNDEFINED if value is None else ~value
