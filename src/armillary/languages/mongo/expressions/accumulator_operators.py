"""Accumulator operators by name, as outputs of `$group` and as expressions over arrays: their arguments are parsed and
checked here. The computations are in `accumulators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from armillary import work
from armillary.languages.mongo.errors import TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulators import (
    Accumulator,
    AddToSet,
    Average,
    Deviation,
    Extreme,
    ExtremeN,
    First,
    FirstN,
    Last,
    LastN,
    Merge,
    Ordered,
    Percentiles,
    Push,
    Sum,
)
from armillary.languages.mongo.expressions.arrays import check_n
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Operator,
    arguments,
    compile_expression,
    folded,
    looks_at_documents,
    named_arguments,
)
from armillary.languages.mongo.expressions.numbers import RANKS, as_double
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.sort_keys import compile_sort_by
from armillary.model.bson.bson_values import shell_text

Begin = Callable[[Scope, Budget], Accumulator]
_STRIDE: Final = 512  # values between two calls that meter work


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output of a group: the expression whose value the accumulator takes for each document, and a function that
    creates the accumulator. That function gets a scope over the group's key, because `n` may depend on it.
    """

    argument: Expression
    begin: Begin


_Compile = Callable[[str, Any, Context], Aggregate]
_ONE: Final = Constant(1)


def compile_aggregate(name: str, spec: Any, context: Context) -> Aggregate:
    compile_this = _AGGREGATES.get(name)
    if compile_this is None:
        raise refusal(15952, f"unknown group operator '{name}'")
    return compile_this(name, spec, context)


def is_aggregate(name: str) -> bool:
    return name in _AGGREGATES


def define_aggregate(name: str, compile_this: _Compile) -> None:
    """Registers an accumulator of another module."""
    assert name not in _AGGREGATES
    _AGGREGATES[name] = compile_this


def _simple(begin: Callable[[Context], Begin]) -> _Compile:
    def compile_this(name: str, spec: Any, context: Context) -> Aggregate:
        return Aggregate(compile_expression(spec, context), begin(context))

    return compile_this


def _count(name: str, spec: Any, context: Context) -> Aggregate:
    if spec != {} or type(spec) is not dict:
        raise refusal(TYPE_MISMATCH, "$count takes no arguments, i.e. $count:{}")
    return Aggregate(_ONE, lambda scope, budget: Sum())


def _number_of(spec: Any, context: Context) -> Callable[[Scope], int]:
    expression = compile_expression(spec, context)
    if isinstance(expression, Constant):
        number = check_n(expression.value)
        return lambda scope: number
    return lambda scope: check_n(expression(scope))


def _several(begin: Callable[[Context, int, Budget], Accumulator], object_code: int = 5787900) -> _Compile:
    """`{n, input}`."""

    def compile_this(name: str, spec: Any, context: Context) -> Aggregate:
        given = named_arguments(name, spec, {"n": 5787906, "input": 5787907}, (), object_code, 5787901)
        number = _number_of(given["n"], context)
        return Aggregate(
            compile_expression(given["input"], context), lambda scope, budget: begin(context, number(scope), budget)
        )

    return compile_this


def _ordered(is_last: bool, is_single: bool) -> _Compile:
    """`{sortBy, output}`, and `n` if it gives several."""

    def compile_this(name: str, spec: Any, context: Context) -> Aggregate:
        required = {"sortBy": 5788005, "output": 5788004}
        if not is_single:
            required["n"] = 5788003
        given = named_arguments(name, spec, required, (), 5788001, 5788002)
        if type(given["sortBy"]) is not dict:
            raise refusal(5788604, f"expected 'sortBy' to already be an object in the arguments to {name}")
        key_of = compile_sort_by(given["sortBy"], context.key).key
        output = compile_expression(given["output"], context)
        number = (lambda scope: 1) if is_single else _number_of(given["n"], context)
        return Aggregate(
            lambda scope: (key_of(scope[ROOT]), output(scope)),
            lambda scope, budget: Ordered(number(scope), is_last, is_single, budget),
        )

    return compile_this


def _ranks(name: str, spec: Any, context: Context) -> tuple[Any, Callable[[Scope], list[float]]]:
    """The percentiles that are asked for: constants, or variables of the run."""
    required = {"input": 40414, "method": 40414, **({} if name == "$median" else {"p": 40414})}
    given = named_arguments(name, spec, required, (), 7436100, 40415)
    if given["method"] != "approximate":
        raise bad_value("Currently only 'approximate' can be used as percentile 'method'.")
    if name == "$median":
        return given["input"], lambda scope: [0.5]
    wanted = given["p"]
    expression = compile_expression(wanted, context)
    if isinstance(expression, Constant):
        ranks = _checked_ranks(expression.value)
        return given["input"], lambda scope: ranks
    if looks_at_documents(wanted):
        raise refusal(
            7750300,
            f"The $percentile 'p' field must be an array of constant values, but found value: {shell_text(wanted)}.",
        )
    return given["input"], lambda scope: _checked_ranks(expression(scope))


def _checked_ranks(wanted: Any) -> list[float]:
    message = "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: "
    if type(wanted) is not list or not wanted:
        raise refusal(7750301, message + shell_text(wanted))
    for each in wanted:
        if type(each) not in RANKS:
            raise refusal(7750302, message + shell_text(each))
        if not 0 <= as_double(each) <= 1:
            raise refusal(7750303, message + shell_text(each))
    return [as_double(each) for each in wanted]


def _percentiles(name: str, spec: Any, context: Context) -> Aggregate:
    operand, ranks_of = _ranks(name, spec, context)
    return Aggregate(
        compile_expression(operand, context),
        lambda scope, budget: Percentiles(ranks_of(scope), name == "$median", budget),
    )


_AGGREGATES: Final[dict[str, _Compile]] = {
    "$sum": _simple(lambda context: lambda scope, budget: Sum()),
    "$avg": _simple(lambda context: lambda scope, budget: Average()),
    "$stdDevPop": _simple(lambda context: lambda scope, budget: Deviation(False)),
    "$stdDevSamp": _simple(lambda context: lambda scope, budget: Deviation(True)),
    "$min": _simple(lambda context: lambda scope, budget: Extreme(context.key, False)),
    "$max": _simple(lambda context: lambda scope, budget: Extreme(context.key, True)),
    "$first": _simple(lambda context: lambda scope, budget: First()),
    "$last": _simple(lambda context: lambda scope, budget: Last()),
    "$push": _simple(lambda context: lambda scope, budget: Push(budget)),
    "$addToSet": _simple(lambda context: lambda scope, budget: AddToSet(context.key, budget)),
    "$mergeObjects": _simple(lambda context: lambda scope, budget: Merge(budget)),
    "$count": _count,
    "$firstN": _several(lambda context, number, budget: FirstN(number, budget), 5787801),
    "$lastN": _several(lambda context, number, budget: LastN(number, budget), 5787801),
    "$maxN": _several(lambda context, number, budget: ExtremeN(context.key, number, True, budget)),
    "$minN": _several(lambda context, number, budget: ExtremeN(context.key, number, False, budget)),
    "$top": _ordered(is_last=False, is_single=True),
    "$topN": _ordered(is_last=False, is_single=False),
    "$bottom": _ordered(is_last=True, is_single=True),
    "$bottomN": _ordered(is_last=True, is_single=False),
    "$percentile": _percentiles,
    "$median": _percentiles,
}


# Over arrays.


def _over_array(begin: Callable[[Context], Accumulator]) -> Operator:
    """An accumulator over several operands, or over the elements of a single operand that is an array."""

    def compile_this(name: str, spec: Any, context: Context) -> Expression:
        parts = [compile_expression(each, context) for each in arguments(spec)]

        def evaluate(scope: Scope) -> Any:
            values = [part(scope) for part in parts]
            if len(values) == 1 and type(values[0]) is list:
                values = values[0]
            accumulator = begin(context)
            for place, value in enumerate(values):
                if place % _STRIDE == 0:
                    work.spend(4 * min(_STRIDE, len(values) - place))
                accumulator.add(value)
            return accumulator.result()

        return folded(evaluate, parts)

    return compile_this


def _percentiles_of(name: str, spec: Any, context: Context) -> Expression:
    operand, ranks_of = _ranks(name, spec, context)
    value_of = compile_expression(operand, context)

    def evaluate(scope: Scope) -> Any:
        value = value_of(scope)
        percentiles = Percentiles(ranks_of(scope), name == "$median", Budget(name))
        for each in value if type(value) is list else [value]:
            work.spend(6)
            percentiles.add(each)
        return percentiles.result()

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {
    "$sum": _over_array(lambda context: Sum()),
    "$avg": _over_array(lambda context: Average()),
    "$min": _over_array(lambda context: Extreme(context.key, False)),
    "$max": _over_array(lambda context: Extreme(context.key, True)),
    "$stdDevPop": _over_array(lambda context: Deviation(False)),
    "$stdDevSamp": _over_array(lambda context: Deviation(True)),
    "$percentile": _percentiles_of,
    "$median": _percentiles_of,
}
