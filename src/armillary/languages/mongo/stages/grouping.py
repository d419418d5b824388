"""`$group` and the stages that count: `$sortByCount`, `$count`. Groups are told apart by equality of values whatever
their numeric type; a missing key is null. Groups are given in the order of their first documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulator_operators import Aggregate, compile_aggregate
from armillary.languages.mongo.expressions.accumulators import Accumulator
from armillary.languages.mongo.expressions.compiling import Constant, compile_expression
from armillary.languages.mongo.expressions.numbers import INT, integer
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.sort_keys import compile_sort_by
from armillary.languages.mongo.stages.sorting import Sorting
from armillary.languages.mongo.stages.stage import (
    Batch,
    Opened,
    Run,
    Stage,
    Step,
    Waiting,
    batches_of,
)
from armillary.model.bson.bson_values import MISSING, Document, shell_text

_DOCUMENT_UNITS = 10
_GROUP_BYTES = 400  # about, of a group and its accumulators

COUNT: Document = {"count": {"$sum": 1}}


def compile_outputs(name: str, outputs: Document, context: Context) -> list[tuple[str, Aggregate]]:
    compiled = []
    for field, spec in outputs.items():
        if "." in field:
            raise refusal(40235, f"The field name '{field}' cannot contain '.'")
        if field.startswith("$"):
            raise refusal(40236, f"The field name '{field}' cannot be an operator name")
        if type(spec) is not dict or (len(spec) == 1 and not next(iter(spec)).startswith("$")):
            raise refusal(40234, f"The field '{field}' must be an accumulator object")
        if len(spec) != 1:
            raise refusal(40238, f"The field '{field}' must specify one accumulator")
        operator, operand = next(iter(spec.items()))
        if type(operand) is list:
            raise refusal(40237, f"The {operator} accumulator is a unary operator")
        compiled.append((field, compile_aggregate(operator, operand, context)))
    return compiled


def _key(spec: Any, context: Context) -> Expression:
    """The key of a group. Missing is null, also as the only field of a compound key; one of several fields stays
    missing.
    """
    key_of = compile_expression(spec, context)
    if type(spec) is not dict or len(spec) != 1 or isinstance(key_of, Constant):
        return key_of
    ((name, value),) = spec.items()
    if name.startswith("$"):
        return key_of
    value_of = compile_expression(value, context)

    def evaluate(scope: Scope) -> Any:
        found = value_of(scope)
        return {name: None if found is MISSING else found}

    return evaluate


def group(name: str, spec: Any, context: Context) -> Stage:
    if type(spec) is not dict:
        raise refusal(15947, "a group's fields must be specified in an object")
    if "_id" not in spec:
        raise refusal(15955, "a group specification must include an _id")
    key_of = _key(spec["_id"], context)
    outputs = compile_outputs(name, {field: each for field, each in spec.items() if field != "_id"}, context)
    return Opened(lambda run: Grouping(name, key_of, outputs, context))


class Grouping(Waiting):
    def __init__(
        self,
        name: str,
        key_of: Expression,
        outputs: list[tuple[str, Aggregate]],
        context: Context,
        finish: Callable[[list[Any]], list[int]] | None = None,
    ) -> None:
        self._key_of, self._outputs, self._key = key_of, outputs, context.key
        self._scope, self._inner = context.scope({}), context.scope({})
        self._budget = Budget(name)
        self._places: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._states: list[list[Accumulator]] = []
        self._arranged = finish

    def keep(self, batch: Batch) -> None:
        scope, places, states, key_of, key = self._scope, self._places, self._states, self._key_of, self._key
        arguments = [aggregate.argument for _, aggregate in self._outputs]
        first = arguments[0] if len(arguments) == 1 else None
        for document in batch:
            work.spend(_DOCUMENT_UNITS * (1 + len(arguments)))
            scope[CURRENT] = scope[ROOT] = document
            value = key_of(scope)
            if value is MISSING:
                value = None
            hashed = key(value)
            place = places.get(hashed)
            if place is None:
                place = self._begin(hashed, value)
            if first is not None:
                states[place][0].add(first(scope))
                continue
            for state, argument in zip(states[place], arguments, strict=True):
                state.add(argument(scope))

    def _begin(self, hashed: Any, value: Any) -> int:
        self._budget.take_value(value)
        self._budget.take(_GROUP_BYTES)
        place = self._places[hashed] = len(self._keys)
        self._keys.append(value)
        self._inner[CURRENT] = self._inner[ROOT] = value if type(value) is dict else {}
        self._states.append([aggregate.begin(self._inner, self._budget) for _, aggregate in self._outputs])
        return place

    def finish(self) -> Iterable[Batch]:
        return batches_of(self._groups())

    def _groups(self) -> Iterator[Document]:
        names = [field for field, _ in self._outputs]
        order: Iterable[int] = range(len(self._keys)) if self._arranged is None else self._arranged(self._keys)
        for place in order:
            work.spend(_DOCUMENT_UNITS)
            made: Document = {"_id": self._keys[place]}
            for field, state in zip(names, self._states[place], strict=True):
                made[field] = state.result()
            yield made


# $sortByCount.


def check_group_by(spec: Any, code: int, what: str) -> None:
    """Refuses a constant where the stage needs an expression."""
    if type(spec) is str and spec.startswith("$") and spec != "$":
        return
    if type(spec) is dict and next(iter(spec), "").startswith("$"):
        return
    raise refusal(
        code, f"{what} must be specified as a $-prefixed path or an expression, but found: {shell_text(spec)}"
    )


def sort_by_count(name: str, spec: Any, context: Context) -> list[Stage]:
    check_group_by(spec, 40147 if type(spec) is dict else 40148, "the sortByCount field")
    return [group(name, {"_id": spec, **COUNT}, context), Sorting(compile_sort_by({"count": -1}, context.key))]


# $count.


class _Counting(Waiting):
    def __init__(self, field: str) -> None:
        self._field = field
        self._count = 0

    def keep(self, batch: Batch) -> None:
        self._count += len(batch)

    def finish(self) -> Iterable[Batch]:
        return [[{self._field: integer(self._count, INT)}]] if self._count else ()


def count(name: str, spec: Any, context: Context) -> Opened:
    if type(spec) is not str:
        raise refusal(40156, "the count field must be a non-empty string")
    if not spec:
        raise refusal(40157, "the count field must be a non-empty string")
    if spec.startswith("$"):
        raise refusal(40158, "the count field cannot be a $-prefixed path")
    if "\0" in spec:
        raise refusal(40159, "the count field cannot contain a null byte")
    if "." in spec:
        raise refusal(40160, "the count field cannot contain '.'")

    def make(run: Run) -> Step:
        return _Counting(spec)

    return Opened(make)
