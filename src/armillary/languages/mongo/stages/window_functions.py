"""The window functions of `$setWindowFields`: accumulators over a window, `$rank`, `$shift`, `$derivative`,
`$integral`, `$expMovingAvg`, `$locf`, `$linearFill` and so on. A partition is a sorted list; a function gives a value
for each index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from armillary import work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulator_operators import compile_aggregate, is_aggregate
from armillary.languages.mongo.expressions.calendar import UNIT_MONTHS, UNIT_MS
from armillary.languages.mongo.expressions.compiling import Constant, compile_expression, named_arguments
from armillary.languages.mongo.expressions.numbers import (
    INT,
    RANKS,
    as_double,
    difference,
    integer,
    is_nullish,
    is_zero,
    product,
    quotient,
    total,
)
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.stages.window_bounds import Window, read_window
from armillary.model.bson.bson_values import MISSING, Document, shell_text, type_name


@dataclass(slots=True)
class Partition:
    documents: list[Document]
    keys: list[Any]  # sort keys; equal keys have equal ranks
    sort_values: Callable[[], list[Any]]  # values of the field, if the sort is by one field
    scope: Scope
    budget: Budget

    def values(self, expression: Expression) -> list[Any]:
        found = []
        scope = self.scope
        for document in self.documents:
            work.spend(20)
            scope[CURRENT] = scope[ROOT] = document
            found.append(expression(scope))
        return found


@dataclass(frozen=True, slots=True)
class Order:
    """The properties of `sortBy` that windows depend on."""

    count: int  # number of fields
    is_ascending: bool  # whether it is one field, ascending


Compute = Callable[[Partition], list[Any]]


def compile_function(field: str, spec: Any, order: Order, context: Context) -> Compute:
    if type(spec) is not dict:
        raise refusal(FAILED_TO_PARSE, f"The field '{field}' must be an object")
    names = [each for each in spec if each != "window"]
    if len(names) != 1 or not names[0].startswith("$"):
        raise refusal(FAILED_TO_PARSE, f"Expected a $-prefixed window function in '{field}', and 'window' beside it")
    name = names[0]
    operand = spec[name]
    if name in _RANKS and "window" in spec:
        raise refusal(5371601, f"{name} does not accept a 'window' field")
    window = None
    if "window" in spec:
        window = read_window(name, spec["window"], order.count > 0, order.is_ascending, context)
    if name in _UNBOUND:
        if window is not None:
            raise refusal(FAILED_TO_PARSE, f"{name} does not accept a 'window' field")
        return _UNBOUND[name](name, operand, order, context)
    if name in _BOUND:
        return _BOUND[name](name, operand, window, order, context)
    if is_aggregate(name):
        return _accumulated(name, operand, window or Window(), context)
    raise refusal(FAILED_TO_PARSE, f"Unrecognized window function, {name}")


_STRIDE: Final = 512  # values between two calls that meter work
_DEVIATIONS: Final = ("$stdDevPop", "$stdDevSamp")  # over moving windows they are null if a number is not finite


def _is_finite(value: Any) -> bool:
    return type(value) not in RANKS or math.isfinite(as_double(value))


def _accumulated(name: str, operand: Any, window: Window, context: Context) -> Compute:
    aggregate = compile_aggregate(name, operand, context)

    def compute(partition: Partition) -> list[Any]:
        values = partition.values(aggregate.argument)
        partition.scope[CURRENT] = partition.scope[ROOT] = {}
        spans = window.spans(len(values), partition.sort_values)

        def of_span(first: int, last: int) -> Any:
            if not window.only_grows and name in _DEVIATIONS and not all(map(_is_finite, values[first:last])):
                return None
            accumulator = aggregate.begin(partition.scope, partition.budget)
            for place in range(first, last):
                if (place - first) % _STRIDE == 0:
                    work.spend(5 + 4 * min(_STRIDE, last - place))
                accumulator.add(values[place])
            return counted(accumulator.result())

        def counted(result: Any) -> Any:
            if type(result) is list:
                partition.budget.take(8 * len(result))
            return result

        if window.is_whole:
            return [of_span(0, len(values))] * len(values)
        if not window.only_grows:
            return [of_span(first, last) for first, last in spans]
        results, fed = [], 0
        growing = aggregate.begin(partition.scope, partition.budget)
        for _, last in spans:
            for value in values[fed:last]:
                work.spend(5)
                growing.add(value)
            fed = max(fed, last)
            results.append(counted(growing.result()))
        return results

    return compute


# Ranks.

_RANKS: Final = ("$rank", "$denseRank", "$documentNumber")


def _rank(name: str, operand: Any, order: Order, context: Context) -> Compute:
    if operand != {}:
        raise refusal(5371603, f"{name} must be specified with '{{}}' as the value")
    if order.count == 0 or (order.count != 1 and name != "$documentNumber"):
        raise refusal(5371602, f"{name} must be specified with a top level sortBy expression with exactly one element")

    def compute(partition: Partition) -> list[Any]:
        results = []
        rank = dense = 0
        for place, key in enumerate(partition.keys, 1):
            if place == 1 or key != partition.keys[place - 2]:
                rank, dense = place, dense + 1
            results.append(integer({"$rank": rank, "$denseRank": dense}.get(name, place), INT))
        return results

    return compute


def _shift(name: str, operand: Any, order: Order, context: Context) -> Compute:
    given = named_arguments(name, operand, {"output": FAILED_TO_PARSE, "by": FAILED_TO_PARSE}, ("default",))
    by = whole_number(given["by"])
    if by is None:
        raise refusal(FAILED_TO_PARSE, f"'$shift:by' field must be an integer, but found {shell_text(given['by'])}")
    if order.count == 0:
        raise refusal(FAILED_TO_PARSE, "'$shift' requires a sortBy")
    default = compile_expression(given.get("default"), context)
    if not isinstance(default, Constant):
        raise refusal(FAILED_TO_PARSE, "'$shift:default' expression must yield a constant value.")
    output = compile_expression(given["output"], context)
    shift = by

    def compute(partition: Partition) -> list[Any]:
        values = [default.value if value is MISSING else value for value in partition.values(output)]
        count = len(values)
        return [values[place + shift] if 0 <= place + shift < count else default.value for place in range(count)]

    return compute


# $expMovingAvg.


def _exp_moving_avg(name: str, operand: Any, order: Order, context: Context) -> Compute:
    given = named_arguments(name, operand, {"input": FAILED_TO_PARSE}, ("N", "alpha"))
    if order.count == 0:
        raise refusal(FAILED_TO_PARSE, f"{name} requires an explicit 'sortBy'")
    if ("N" in given) == ("alpha" in given):
        raise refusal(
            FAILED_TO_PARSE,
            f"{name} sub object must have exactly two fields: An 'input' field, and either 'N' or 'alpha'",
        )
    if "N" in given:
        number = whole_number(given["N"])
        if number is None or number <= 0:
            raise refusal(
                FAILED_TO_PARSE, f"'N' field must be an integer greater than zero. Got {shell_text(given['N'])}"
            )
        alpha: Any = 2.0 / (number + 1)
    else:
        alpha = given["alpha"]
        if type(alpha) not in RANKS or not 0 < as_double(alpha) < 1:
            raise refusal(FAILED_TO_PARSE, f"'alpha' must be between 0 and 1 (exclusive), found {shell_text(alpha)}")
    rest = difference(1.0, alpha)
    input_of = compile_expression(given["input"], context)

    def compute(partition: Partition) -> list[Any]:
        results: list[Any] = []
        average: Any = None
        for value in partition.values(input_of):
            if type(value) in RANKS:
                average = value if average is None else total([product(value, alpha), product(average, rest)])
                results.append(average)
            else:
                results.append(None)
        return results

    return compute


# $derivative and $integral.


def _unit_ms(name: str, given: Document) -> int | None:
    if "unit" not in given:
        return None
    unit = given["unit"]
    if unit in UNIT_MONTHS:
        raise refusal(5490710, f"unit must be 'week' or smaller, not {shell_text(unit)}")
    if unit not in UNIT_MS:
        raise refusal(FAILED_TO_PARSE, f"unit must be one of {', '.join(UNIT_MS)}, not {shell_text(unit)}")
    return UNIT_MS[unit]


def _position(name: str, value: Any, unit_ms: int | None) -> Any:
    """The sort value of a document as a coordinate."""
    if type(value) is DatetimeMS:
        if unit_ms is None:
            code = 5423902 if name == "$integral" else 5624901
            raise refusal(code, f"{name} where the sortBy is a Date requires a 'unit'")
        return Int64(int(value))
    if type(value) not in RANKS:
        raise refusal(5624902, f"{name} requires the sortBy to be numeric or a Date, not {type_name(value)}")
    if unit_ms is not None:
        code = 5423901 if name == "$integral" else 5624900
        raise refusal(code, f"{name} with 'unit' expects the sortBy field to be a Date")
    return value


def _number(name: str, value: Any) -> Any:
    if type(value) is DatetimeMS:
        return int(value)
    if type(value) not in RANKS:
        raise refusal(5624903, f"{name} requires its input to be numeric, not {type_name(value)}")
    return value


def _derivative(name: str, operand: Any, window: Window | None, order: Order, context: Context) -> Compute:
    given = named_arguments(name, operand, {"input": FAILED_TO_PARSE}, ("unit",))
    unit_ms = _unit_ms(name, given)
    if order.count != 1:
        raise refusal(FAILED_TO_PARSE, f"{name} requires a sortBy with exactly one element")
    if window is None:
        raise refusal(FAILED_TO_PARSE, f"{name} requires explicit window bounds")
    bounds = window
    input_of = compile_expression(given["input"], context)

    def compute(partition: Partition) -> list[Any]:
        values = partition.values(input_of)
        axis = partition.sort_values()
        spans = bounds.spans(len(values), partition.sort_values)

        def slope(first: int, last: int) -> Any:
            if last - first < 2 or is_nullish(values[first]) or is_nullish(values[last - 1]):
                return None
            run = difference(_position(name, axis[last - 1], unit_ms), _position(name, axis[first], unit_ms))
            rise = difference(_number(name, values[last - 1]), _number(name, values[first]))
            if is_zero(run):
                return None
            # Dates are computed in exact milliseconds; the unit is applied last.
            return quotient(rise, run) if unit_ms is None else product(quotient(rise, run), unit_ms)

        return [slope(first, last) for first, last in spans]

    return compute


def _integral(name: str, operand: Any, window: Window | None, order: Order, context: Context) -> Compute:
    given = named_arguments(name, operand, {"input": FAILED_TO_PARSE}, ("unit",))
    unit_ms = _unit_ms(name, given)
    if order.count != 1:
        raise refusal(FAILED_TO_PARSE, f"{name} requires a sortBy with exactly one element")
    bounds = window or Window()
    input_of = compile_expression(given["input"], context)

    def compute(partition: Partition) -> list[Any]:
        points = [
            None if is_nullish(value) else (_position(name, at, unit_ms), _number(name, value))
            for at, value in zip(partition.sort_values(), partition.values(input_of), strict=True)
        ]

        def area(first: int, last: int) -> Any:
            work.spend(8 * (last - first))
            known = [point for point in points[first:last] if point is not None]
            if not known:
                return None
            pieces: list[Any] = [0.0]
            for (x0, y0), (x1, y1) in pairwise(known):
                pieces.append(quotient(product(difference(x1, x0), total([y0, y1])), 2))
            return total(pieces) if unit_ms is None else quotient(total(pieces), unit_ms)

        return [area(first, last) for first, last in bounds.spans(len(points), partition.sort_values)]

    return compute


def _covariance(name: str, operand: Any, window: Window | None, order: Order, context: Context) -> Compute:
    # Input that is not a pair of expressions is ignored.
    given = operand if type(operand) is list and len(operand) == 2 else [None, None]
    first_of, second_of = [compile_expression(each, context) for each in given]
    bounds = window or Window()
    lost = 1 if name == "$covarianceSamp" else 0

    def compute(partition: Partition) -> list[Any]:
        pairs = list(zip(partition.values(first_of), partition.values(second_of), strict=True))

        def of_span(first: int, last: int) -> Any:
            work.spend(30 * (last - first))
            known = [pair for pair in pairs[first:last] if type(pair[0]) in RANKS and type(pair[1]) in RANKS]
            count = len(known)
            if count - lost <= 0:
                return None
            mean = [quotient(total([pair[place] for pair in known]), count) for place in (0, 1)]
            products = [product(difference(x, mean[0]), difference(y, mean[1])) for x, y in known]
            return quotient(total(products), count - lost)

        return [of_span(first, last) for first, last in bounds.spans(len(pairs), partition.sort_values)]

    return compute


# $locf and $linearFill.


def _locf(name: str, operand: Any, order: Order, context: Context) -> Compute:
    input_of = compile_expression(operand, context)

    def compute(partition: Partition) -> list[Any]:
        results, known = [], None
        for value in partition.values(input_of):
            known = known if is_nullish(value) else value
            results.append(known)
        return results

    return compute


def _linear_fill(name: str, operand: Any, order: Order, context: Context) -> Compute:
    if order.count != 1:
        raise refusal(605001, f"{name} must be specified with a top level sortBy expression with exactly one element")
    input_of = compile_expression(operand, context)

    def compute(partition: Partition) -> list[Any]:
        values = [None if value is MISSING else value for value in partition.values(input_of)]
        axis = partition.sort_values()
        known = [place for place, value in enumerate(values) if value is not None]
        for at in axis:
            _on_axis(at)
        for place in known:
            if type(values[place]) not in RANKS:
                raise refusal(
                    TYPE_MISMATCH,
                    f"Value to be filled must be numeric or nullish, but found type {type_name(values[place])}",
                )
        for one, other in pairwise(axis):
            if one == other:
                raise refusal(6050106, "There can be no repeated values in the sort field in the same partition")
            if (type(one) is DatetimeMS) != (type(other) is DatetimeMS):
                raise refusal(TYPE_MISMATCH, f"Conflicting sort value types: {type_name(one)} and {type_name(other)}")
        for left, right in pairwise(known):
            for place in range(left + 1, right):
                values[place] = _between(axis, values, left, right, place)
        return values

    return compute


def _between(axis: list[Any], values: list[Any], left: int, right: int, place: int) -> Any:
    ends = [_on_axis(axis[each]) for each in (left, place, right)]
    slope = quotient(difference(values[right], values[left]), difference(ends[2], ends[0]))
    return total([values[left], product(difference(ends[1], ends[0]), slope)])


def _on_axis(value: Any) -> Any:
    if type(value) is DatetimeMS:
        return int(value)
    if type(value) not in RANKS:
        raise refusal(
            TYPE_MISMATCH, f"Value of the sortBy field must be numeric or a date, but found {type_name(value)}"
        )
    return value


_UNBOUND: Final[Mapping[str, Callable[[str, Any, Order, Context], Compute]]] = {
    "$rank": _rank,
    "$denseRank": _rank,
    "$documentNumber": _rank,
    "$shift": _shift,
    "$expMovingAvg": _exp_moving_avg,
    "$locf": _locf,
    "$linearFill": _linear_fill,
}
_BOUND: Final[Mapping[str, Callable[[str, Any, Window | None, Order, Context], Compute]]] = {
    "$derivative": _derivative,
    "$integral": _integral,
    "$covariancePop": _covariance,
    "$covarianceSamp": _covariance,
}
