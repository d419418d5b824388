"""Arithmetic of Gremlin, for sum(), mean(), fold(seed, op) and sack(op): whole numbers stay whole and get wider types
as needed, decimals take precedence over doubles, and the sum of no values is null. math() computes in doubles by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal, DecimalException
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import execution, too_much
from armillary.languages.gremlin.syntax.tokens import Operator
from armillary.languages.gremlin.values.comparing import compare, is_nan, is_number, kind_of, shown, unique
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Set, Short

_WIDTHS: Final = {Byte: 0, Short: 1, int: 2, Long: 3, BigInt: 4}
_BITS: Final = {0: 7, 1: 15, 2: 31, 3: 63}
_TYPES: Final[dict[int, type[int]]] = {0: Byte, 1: Short, 2: int, 3: Long, 4: BigInt}


def _number(value: Any, what: str) -> Any:
    if not is_number(value):
        raise execution(f"{what} takes numbers, not {kind_of(value)} {shown(value):.50}.")
    return value


def sized(value: int, width: int) -> int:
    """A whole number in the narrowest type that holds it and is at least `width`."""
    while width < 4 and not -(1 << _BITS[width]) <= value < (1 << _BITS[width]):
        width += 1
    if value.bit_length() > limits.GREMLIN_NUMBER_BITS_MAX:
        raise too_much(f"A whole number has at most {limits.GREMLIN_NUMBER_BITS_MAX} bits.")
    return _TYPES[width](value)


def width_of(value: int) -> int:
    width = _WIDTHS.get(type(value), 2)
    return width if width != 2 or -(2**31) <= value < 2**31 else 3 if -(2**63) <= value < 2**63 else 4


def _apply(what: str, left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Any:
    if left is None or right is None:
        return left
    left, right = _number(left, what), _number(right, what)
    try:
        if isinstance(left, int) and isinstance(right, int):
            return sized(operation(int(left), int(right)), max(width_of(left), width_of(right)))
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return operation(_decimal(left), _decimal(right))
        result = operation(float(left), float(right))
        return Float32(result) if isinstance(left, Float32) and isinstance(right, Float32) else result
    except (OverflowError, DecimalException) as wrong:
        raise execution(f"{what} has no result for {str(left)[:50]} and {str(right)[:50]}: {wrong}.") from None


def _decimal(value: Any) -> Decimal:
    return (
        value if isinstance(value, Decimal) else Decimal(int(value)) if isinstance(value, int) else Decimal(repr(value))
    )


def add(left: Any, right: Any) -> Any:
    return _apply("sum()", left, right, lambda one, other: one + other)


def subtract(left: Any, right: Any) -> Any:
    return _apply("minus", left, right, lambda one, other: one - other)


def multiply(left: Any, right: Any) -> Any:
    return _apply("mult", left, right, lambda one, other: one * other)


def divide(left: Any, right: Any) -> Any:
    return _apply("div", left, right, _quotient)


def _quotient(left: Any, right: Any) -> Any:
    if right == 0:
        if isinstance(left, float):
            return float("nan") if left == 0 or is_nan(left) else float("inf") if left > 0 else float("-inf")
        raise execution("/ by zero.")
    if isinstance(left, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def lesser(left: Any, right: Any) -> Any:
    return _chosen(left, right, -1)


def greater(left: Any, right: Any) -> Any:
    return _chosen(left, right, 1)


def _chosen(left: Any, right: Any, wanted: int) -> Any:
    """min and max: any other value is preferred to null and NaN."""
    if left is None or is_nan(left):
        return right if right is not None else left
    if right is None or is_nan(right):
        return left
    found = compare(left, right)
    if found is None:
        raise execution(f"Cannot compare {shown(left):.50} with {shown(right):.50}.")
    return right if found == -wanted else left


class Total:
    """A running sum. Rounding errors of doubles are compensated (Neumaier), so that the sum of stored values hardly
    depends on the order in which partitions return them.
    """

    __slots__ = ("_lost", "_sum", "count")

    def __init__(self) -> None:
        self._sum: Any = None
        self._lost = 0.0
        self.count = 0

    def add(self, value: Any, bulk: int = 1, step: str = "sum()") -> None:
        part = multiply(value, Long(bulk)) if bulk != 1 else _number(value, step)
        self.count += bulk
        before = self._sum
        if before is None:
            self._sum = part
            return
        self._sum = after = add(before, part)
        if type(after) is float and type(part) is float and type(before) is float:
            self._lost += (before - after) + part if abs(before) >= abs(part) else (part - after) + before

    @property
    def result(self) -> Any:
        """None of nothing."""
        if self._lost and math.isfinite(self._lost) and type(self._sum) is float:
            return self._sum + self._lost
        return self._sum

    @property
    def mean(self) -> Any:
        """None of nothing."""
        found = self.result
        if found is None:
            return None
        try:
            return float(found) / self.count if isinstance(found, int) else divide(found, Long(self.count))
        except OverflowError:
            raise execution("The mean is beyond the range of doubles.") from None


def total(values: Iterable[tuple[Any, int]], step: str = "sum()") -> Total:
    """The sum of values, each multiplied by its count."""
    found = Total()
    for value, bulk in values:
        if value is not None:
            found.add(value, bulk, step)
    return found


def _both(left: Any, right: Any) -> Any:
    return bool(right) and (left is None or bool(left))


def _either(left: Any, right: Any) -> Any:
    return bool(left) or bool(right)


def gather(left: Any, right: Any) -> Any:
    """addAll: the members of both collections."""
    if left is None or right is None:
        return left if right is None else right
    if isinstance(left, dict) and isinstance(right, dict):
        return {**left, **right}
    if isinstance(left, Set):
        return unique([*left, *(right if isinstance(right, list) else [right])])
    if isinstance(left, list):
        more = right if isinstance(right, list) else [right]
        if len(left) + len(more) > limits.GREMLIN_LIST_MAX:
            raise too_much(f"A list has at most {limits.GREMLIN_LIST_MAX} values.")
        return type(left)([*left, *more])
    raise execution(f"addAll takes lists and maps, not {kind_of(left)}.")


OPERATIONS: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.sum: add,
    Operator.sumLong: add,
    Operator.minus: subtract,
    Operator.mult: multiply,
    Operator.div: divide,
    Operator.min: lesser,
    Operator.max: greater,
    Operator.assign: lambda _left, right: right,
    Operator.and_: _both,
    Operator.or_: _either,
    Operator.addAll: gather,
}
