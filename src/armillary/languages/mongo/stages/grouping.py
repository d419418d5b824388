"""`$group` and the stages made of it: `$sortByCount`, `$bucket`. Groups are told apart by equality of values whatever
their numeric type; a missing key is null. They come in the order in which their first documents came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulator_operators import Aggregate, compile_aggregate
from armillary.languages.mongo.expressions.accumulators import Accumulator
from armillary.languages.mongo.expressions.compiling import Constant, compile_expression
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.sort_keys import compile_sort_by
from armillary.languages.mongo.stages.sorting import Sorting
from armillary.languages.mongo.stages.stage import Batch, Opened, Stage, Waiting, batches_of
from armillary.model.bson.bson_values import MISSING, Document, shell_text, type_class
from armillary.model.sorting import sorted_values

_DOCUMENT_UNITS = 10
_GROUP_BYTES = 400  # of a group's place and its accumulators, about

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
    """What is missing is null, also as the only field of a document; one of several fields stays missing."""
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
    return Opened(lambda run: _Grouping(name, key_of, outputs, context))


class _Grouping(Waiting):
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
    """Most stages that group want an expression, not a constant that was meant as one."""
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


# $bucket.


def bucket(name: str, spec: Any, context: Context) -> Stage:
    if type(spec) is not dict:
        raise refusal(40201, f"Argument to $bucket stage must be an object, but found: {shell_text(spec)}")
    for each in spec:
        if each not in ("groupBy", "boundaries", "default", "output"):
            raise refusal(40197, f"Unrecognized option to $bucket: {each}.")
    if "groupBy" not in spec or "boundaries" not in spec:
        raise refusal(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.")
    check_group_by(spec["groupBy"], 40202, "The $bucket 'groupBy' field")
    boundaries = _boundaries(spec["boundaries"], context)
    default = _default(spec, boundaries, context)
    outputs = spec.get("output", COUNT)
    if type(outputs) is not dict:
        raise refusal(40196, f"The $bucket 'output' field must be an object, but found: {shell_text(outputs)}")
    compiled = compile_outputs(name, outputs, context)
    keys = [context.key(value) for value in boundaries]
    value_of = compile_expression(spec["groupBy"], context)

    def lower_bound(scope: Scope) -> Any:
        key = context.key(value_of(scope))
        place = bisect_right(keys, key) - 1
        if 0 <= place < len(keys) - 1:
            return boundaries[place]
        if default is None:
            raise refusal(40066, "$switch could not find a matching branch for an input, and no default was specified.")
        return default.value

    def ascending(found: list[Any]) -> list[int]:
        return sorted_values(range(len(found)), lambda place: context.key(found[place]))

    return Opened(lambda run: _Grouping(name, lower_bound, compiled, context, ascending))


def _constant(spec: Any, context: Context, code: int, what: str) -> Any:
    expression = compile_expression(spec, context)
    if not isinstance(expression, Constant):
        raise refusal(code, f"{what} must be a constant, but found: {shell_text(spec)}")
    return expression.value


def _boundaries(spec: Any, context: Context) -> list[Any]:
    if type(spec) is not list:
        raise refusal(
            40200, f"The $bucket 'boundaries' field must be an array of values, but found: {shell_text(spec)}"
        )
    if len(spec) < 2:
        raise refusal(40192, "The $bucket 'boundaries' field must have at least 2 values, but found 1 value(s).")
    values = [_constant(each, context, 40191, "The $bucket 'boundaries' field's values") for each in spec]
    for lower, upper in pairwise(values):
        if type_class(lower) != type_class(upper):
            raise refusal(
                40193, "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting"
            )
        if context.key(lower) >= context.key(upper):
            raise refusal(40194, "The 'boundaries' option to $bucket must be sorted, but elements are not in order")
    return values


def _default(spec: Document, boundaries: list[Any], context: Context) -> Constant | None:
    if "default" not in spec:
        return None
    value = _constant(spec["default"], context, 40195, "The $bucket 'default' field")
    if context.key(boundaries[0]) <= context.key(value) < context.key(boundaries[-1]):
        raise refusal(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest "
            "boundary.",
        )
    return Constant(value)
