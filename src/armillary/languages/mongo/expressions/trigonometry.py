"""Trigonometric operators. The result is a double, or a decimal for decimals; decimals are computed as doubles, with
about 16 correct digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from bson.decimal128 import Decimal128

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.compiling import Function, Operator
from armillary.languages.mongo.expressions.numbers import CONTEXT, RANKS, as_double, decimal128, double_text, is_nullish
from armillary.model.bson.bson_values import shell_text, to_decimal, type_name

_PI: Final = Decimal("3.141592653589793238462643383279502884")
_BOUNDS: Final = 50989


def _angle(
    name: str, function: Callable[[float], float], allowed: str, is_allowed: Callable[[float], bool]
) -> Callable[[Any], Any]:
    def evaluate(value: Any) -> Any:
        if type(value) not in RANKS:
            if is_nullish(value):
                return None
            raise refusal(28765, f"{name} only supports numeric types, not {type_name(value)}")
        number = as_double(value)
        if math.isnan(number):
            return value
        if not is_allowed(number):
            raise refusal(_BOUNDS, f"cannot apply {name} to {shell_text(value)}, value must be in {allowed}")
        try:
            result = function(number)
        except OverflowError:
            result = math.copysign(math.inf, number) if name == "$sinh" else math.inf
        return decimal128(Decimal(double_text(result))) if type(value) is Decimal128 else result

    return evaluate


def _atan2(y: Any, x: Any) -> Any:
    if is_nullish(y) or is_nullish(x):
        return None
    for value, code in ((y, 51044), (x, 51045)):
        if type(value) not in RANKS:
            raise refusal(code, f"$atan2 only supports numeric types, not {type_name(value)}")
    result = math.atan2(as_double(y), as_double(x))
    return decimal128(Decimal(double_text(result))) if Decimal128 in (type(y), type(x)) else result


def _inverse_hyperbolic_tangent(number: float) -> float:
    return math.copysign(math.inf, number) if abs(number) == 1 else math.atanh(number)


def _scaled(name: str, of_double: Callable[[float], float], factor: Decimal) -> Callable[[Any], Any]:
    def evaluate(value: Any) -> Any:
        if type(value) is Decimal128:
            return decimal128(CONTEXT.multiply(to_decimal(value), factor))
        if type(value) in RANKS:
            return of_double(float(value))
        if is_nullish(value):
            return None
        raise refusal(28765, f"{name} only supports numeric types, not {type_name(value)}")

    return evaluate


def _is_unit(number: float) -> bool:
    return -1 <= number <= 1


def _is_anything(number: float) -> bool:
    return True


_FINITE, _UNIT, _ANY = "(-inf,inf)", "[-1,1]", "[-inf,inf]"

OPERATORS: Final[Mapping[str, Operator]] = {
    "$sin": Function(_angle("$sin", math.sin, _FINITE, math.isfinite)),
    "$cos": Function(_angle("$cos", math.cos, _FINITE, math.isfinite)),
    "$tan": Function(_angle("$tan", math.tan, _FINITE, math.isfinite)),
    "$asin": Function(_angle("$asin", math.asin, _UNIT, _is_unit)),
    "$acos": Function(_angle("$acos", math.acos, _UNIT, _is_unit)),
    "$atan": Function(_angle("$atan", math.atan, _ANY, _is_anything)),
    "$atan2": Function(_atan2, 2, 2),
    "$sinh": Function(_angle("$sinh", math.sinh, _ANY, _is_anything)),
    "$cosh": Function(_angle("$cosh", math.cosh, _ANY, _is_anything)),
    "$tanh": Function(_angle("$tanh", math.tanh, _ANY, _is_anything)),
    "$asinh": Function(_angle("$asinh", math.asinh, _ANY, _is_anything)),
    "$acosh": Function(_angle("$acosh", math.acosh, "[1,inf]", lambda number: number >= 1)),
    "$atanh": Function(_angle("$atanh", _inverse_hyperbolic_tangent, _UNIT, _is_unit)),
    "$degreesToRadians": Function(_scaled("$degreesToRadians", math.radians, CONTEXT.divide(_PI, Decimal(180)))),
    "$radiansToDegrees": Function(_scaled("$radiansToDegrees", math.degrees, CONTEXT.divide(Decimal(180), _PI))),
}
