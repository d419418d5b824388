"""Numbers as the library's functions give and take them: doubles, whose whole values are integers while doubles hold
them exactly; and 64-bit integers, where a function asks for whole numbers.
"""

from __future__ import annotations

import math
from typing import Any, Final

from armillary.model.values import EXACT_INT_MAX, as_double

NUMBERS: Final[frozenset[Any]] = frozenset([int, float])
ABSENT: Final = object()  # the default of an argument that was not given: null and undefined are given
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def number(result: float) -> int | float:
    """A result as a reader of JSON expects it: 6, not 6.0."""
    if -EXACT_INT_MAX <= result <= EXACT_INT_MAX and result == int(result):
        return int(result)
    return result


def double(value: Any) -> float | None:
    """The double that a value is; None if it is no number."""
    return as_double(value) if value.__class__ in NUMBERS else None


def whole(value: Any) -> int | None:
    """The 64-bit integer that a value is, whichever way it is written; None if it is anything else."""
    if value.__class__ is float:
        # 2.0**63 is the first double that does not fit.
        if not INT64_MIN <= value < 2.0**63 or value != int(value):
            return None
        return int(value)
    if value.__class__ is int and INT64_MIN <= value <= INT64_MAX:
        return value
    return None


def count(value: Any) -> int | None:
    """A number of characters or elements, or a position: fractions are cut off, infinities become very many. None for
    NaN and for what is no number."""
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
    point = len(before) + (int(exponent_text) if exponent_text else 0)  # where the point stands among the digits
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
