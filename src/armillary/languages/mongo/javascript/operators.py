"""`$function`, `$accumulator`, and the operators of mapReduce: `$_internalJsEmit` and `$_internalJsReduce`, which have
these names in MongoDB too.

Accumulators call their function for many documents at once: each call crosses to another process and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from armillary.languages.mongo.errors import FAILED_TO_PARSE, bad_value, refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulator_operators import Aggregate, define_aggregate
from armillary.languages.mongo.expressions.compiling import Constant, Operator, compile_expression, named_arguments
from armillary.languages.mongo.javascript.requests import Scripts, Source, check_language, source_of
from armillary.languages.mongo.memory_budget import Budget
from armillary.model.bson.bson_values import type_name

_ROWS_MAX: Final = 200  # of a call: the documents that an accumulator keeps before it calls its function
_REDUCED_MAX: Final = 1_000  # values that are reduced in one call


def _arguments(name: str, spec: Any, context: Context) -> Expression:
    expression = compile_expression(spec, context)

    def evaluate(scope: Scope) -> list[Any]:
        found = expression(scope)
        if type(found) is not list:
            raise refusal(4544712, f"The arguments of {name} must be an array")
        return found

    return evaluate


def _function(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"body": 4660800, "args": 4660801, "lang": 4031703}, (), 4660800, 4031700)
    check_language(name, given)
    source = source_of(given["body"], f"the body of {name}")
    values_of = _arguments(name, given["args"], context)
    scripts = Scripts(context)
    return lambda scope: scripts.call(source, values_of(scope))


def _emit(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"eval": FAILED_TO_PARSE, "this": FAILED_TO_PARSE}, ("scope",))
    source = source_of(given["eval"], "map").with_scope(given.get("scope") or {})
    document_of = compile_expression(given["this"], context)
    scripts = Scripts(context)
    return lambda scope: scripts.emitted(source, document_of(scope))


OPERATORS: Final[Mapping[str, Operator]] = {"$function": _function, "$_internalJsEmit": _emit}


# $accumulator.


class _Folding:
    """The state of one group, and the arguments of documents that it does not include yet."""

    __slots__ = ("_budget", "_finalize", "_rows", "_scripts", "_source", "_state")

    def __init__(self, scripts: Scripts, state: Any, source: Source, finalize: Source | None, budget: Budget) -> None:
        self._scripts, self._state, self._source, self._finalize = scripts, state, source, finalize
        self._budget = budget
        self._rows: list[Any] = []

    def add(self, value: Any) -> None:
        self._budget.take_value(value)
        self._rows.append(value)
        if len(self._rows) >= _ROWS_MAX:
            self._include()

    def _include(self) -> None:
        rows, self._rows = self._rows, []
        self._state = self._scripts.fold(self._source, self._state, rows)

    def result(self) -> Any:
        if self._rows:
            self._include()
        return self._state if self._finalize is None else self._scripts.call(self._finalize, [self._state])


def _accumulator(name: str, spec: Any, context: Context) -> Aggregate:
    required = dict.fromkeys(("init", "accumulate", "accumulateArgs", "merge", "lang"), 4544704)
    given = named_arguments(name, spec, required, ("initArgs", "finalize"), 4544703, 4544706)
    check_language(name, given)
    sources = {each: source_of(given[each], f"{name}.{each}") for each in ("init", "accumulate", "merge")}
    finalize = source_of(given["finalize"], f"{name}.finalize") if given.get("finalize") is not None else None
    initial = _arguments(name, given.get("initArgs", []), context)
    scripts = Scripts(context)

    def begin(scope: Scope, budget: Budget) -> _Folding:
        state = scripts.call(sources["init"], initial(scope))
        return _Folding(scripts, state, sources["accumulate"], finalize, budget)

    return Aggregate(_arguments(name, given["accumulateArgs"], context), begin)


# mapReduce.


class _Reducing:
    """The values of one key. A single value is not reduced, as in MongoDB."""

    __slots__ = ("_budget", "_key", "_scripts", "_source", "_values")

    def __init__(self, scripts: Scripts, source: Source, budget: Budget) -> None:
        self._scripts, self._source, self._budget = scripts, source, budget
        self._key: Any = None
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        if type(value) is not dict:
            raise bad_value(
                f"The data of $_internalJsReduce must be objects with 'k' and 'v', found {type_name(value)}"
            )
        self._budget.take_value(value)
        self._key = value.get("k")
        self._values.append(value.get("v"))
        if len(self._values) >= _REDUCED_MAX:
            self._values = [self._reduced()]

    def _reduced(self) -> Any:
        return self._scripts.call(self._source, [self._key, self._values])

    def result(self) -> Any:
        return self._values[0] if len(self._values) == 1 else self._reduced()


def _reduce(name: str, spec: Any, context: Context) -> Aggregate:
    given = named_arguments(name, spec, {"eval": FAILED_TO_PARSE, "data": FAILED_TO_PARSE}, ("scope",))
    source = source_of(given["eval"], "reduce").with_scope(given.get("scope") or {})
    scripts = Scripts(context)
    data_of = compile_expression(given["data"], context)
    assert not isinstance(data_of, Constant)
    return Aggregate(data_of, lambda scope, budget: _Reducing(scripts, source, budget))


define_aggregate("$accumulator", _accumulator)
define_aggregate("$_internalJsReduce", _reduce)
