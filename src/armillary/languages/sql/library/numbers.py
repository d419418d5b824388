"""Conversion of numbers for built-in functions. Results are doubles; whole results are Python integers while a double
holds them exactly, so that JSON has 6 and not 6.0. Functions that require whole numbers take 64-bit integers.
"""

from __future__ import annotations

import math
from typing import Any, Final

from armillary.model.values import EXACT_INT_MAX, as_double

NUMBERS: Final[frozenset[Any]] = frozenset([int, float])
ABSENT: Final = object()  # default of optional arguments: distinguishes an omitted one from null and undefined
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def number(result: float) -> int | float:
    """A result with whole values as integers: 6, not 6.0."""
    if -EXACT_INT_MAX <= result <= EXACT_INT_MAX and result == int(result):
        return int(result)
    return result


def double(value: Any) -> float | None:
    """The value as a double; None if it is not a number."""
    return as_double(value) if value.__class__ in NUMBERS else None


def whole(value: Any) -> int | None:
    """The value as a 64-bit integer, also if it is a float with a whole value; None otherwise."""
    if value.__class__ is float:
        # 2.0**63 is the first double that does not fit.
        if not INT64_MIN <= value < 2.0**63 or value != int(value):
            return None
        return int(value)
    if value.__class__ is int and INT64_MIN <= value <= INT64_MAX:
        return value
    return None


def count(value: Any) -> int | None:
    """A length or position: fractions are truncated, infinities become the largest 64-bit integers. None for NaN and
    for values that are not numbers."""
    if value.__class__ is int:
        return value
    if value.__class__ is not float or value != value:
        return None
    return int(max(INT64_MIN, min(value, INT64_MAX)))


def number_text(value: int | float) -> str:
    """The shortest text that reads back as the same number, in JavaScript's form: 1, 0.1, 1e+21, 1e-7."""
    if value.__class__ is int and -EXACT_INT_MAX <= value <= EXACT_INT_MAX:
        return str(value)
    if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
        return str(value)  # a 64-bit integer is kept exact
    value = as_double(value)
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    mantissa, _, exponent_text = repr(value).partition("e")
    sign = "-" if value < 0 else ""
    before, _, after = mantissa.lstrip("-").partition(".")
    digits = before + after
    point = len(before) + (int(exponent_text) if exponent_text else 0)  # position of the decimal point in the digits
    leading = len(digits) - len(digits.lstrip("0"))
    digits, point = digits[leading:], point - leading
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    shown = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{shown}e{point - 1:+d}"
