"""`$map`, `$filter` and `$reduce`: an expression is evaluated with a variable for each element of an array. Work is
metered for each element by the parts of the expression; of the memory used only that of the result stays counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from armillary import limits, work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.arrays import LONG, NUMBER_BYTES, concat_arrays
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Operator,
    check_variable_name,
    compile_expression,
    named_arguments,
    weight,
)
from armillary.languages.mongo.expressions.numbers import as_int32, is_nullish
from armillary.languages.mongo.expressions.strings import check_length, concat
from armillary.languages.mongo.filters.value_types import truth
from armillary.languages.mongo.memory_budget import LIST_BYTES, check_growth, settle
from armillary.model.bson.bson_values import INT64_MAX, MISSING, shell_text, type_name

_WORTH_CHECKING_BYTES: Final = 64 * limits.KB
_SHORT: Final = 16  # elements; the work of shorter arrays is metered at once


class _Loop(NamedTuple):
    """Shared by `$map` and `$filter`: the array, the index of the variable, and the expression."""

    array_of: Expression
    place: int
    body: Expression
    units: int  # work units for each element
    name: str
    code: int  # error code if the value is not an array

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any], body: str, context: Context, code: int) -> _Loop:
        array_of = compile_expression(given["input"], context)
        inner, (place,) = context.bind(check_variable_name(given.get("as", "this")))
        return cls(array_of, place, compile_expression(given[body], inner), weight(given[body]), name, code)

    def refuse(self, array: Any) -> None:
        """The result for a value that is not an array: null for null and missing, otherwise an error."""
        if is_nullish(array):
            return None
        raise refusal(self.code, f"input to {self.name} must be an array not {type_name(array)}")


def _filter(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"input": 28648, "cond": 28650}, ("as", "limit"), 28646, 28647)
    loop = _Loop.of(name, given, "cond", context, 28651)
    array_of, place, condition, units, *_ = loop
    limit_of = compile_expression(given["limit"], context) if "limit" in given else Constant(None)

    def evaluate(scope: Scope) -> Any:
        array = array_of(scope)
        if type(array) is not list:
            return loop.refuse(array)
        limit = limit_of(scope)
        most = INT64_MAX if is_nullish(limit) else as_int32(limit)
        if most is None:
            raise refusal(327391, f"$filter: limit must be represented as a 32-bit integral value: {shell_text(limit)}")
        if most < 1:
            raise refusal(327392, f"$filter: limit must be greater than 0: {most}")
        kept: list[Any] = []
        run = work.current()
        before_bytes = run.made_bytes
        is_short = len(array) <= _SHORT
        if is_short:
            work.spend(units * len(array))
        for each in array:
            if not is_short:
                work.spend(units)
            scope[place] = each
            if truth(condition(scope)):
                kept.append(each)
                if len(kept) == most:
                    break
            if run.made_bytes != before_bytes:
                run.made_bytes = before_bytes
        work.release(before_bytes)
        work.make(LIST_BYTES + 8 * len(kept))
        return kept

    return evaluate


def _map(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"input": 16880, "in": 16882}, ("as",), 16878, 16879)
    loop = _Loop.of(name, given, "in", context, 16883)
    array_of, place, body, units, *_ = loop

    def evaluate(scope: Scope) -> Any:
        array = array_of(scope)
        if type(array) is not list:
            return loop.refuse(array)
        made = []
        work.make(LIST_BYTES + NUMBER_BYTES * len(array))
        run = work.current()
        before_bytes = run.made_bytes
        is_short = len(array) <= _SHORT
        if is_short:
            work.spend(units * len(array))
        for each in array:
            if not is_short:
                work.spend(units)
            scope[place] = each
            value = body(scope)
            if run.made_bytes != before_bytes:
                settle(before_bytes, value)
                before_bytes = run.made_bytes
            made.append(None if value is MISSING else value)
        return check_growth(made) if len(made) > 1 and type(made[0]) in (str, list, dict) else made

    return evaluate


def _reduce(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"input": 40077, "initialValue": 40078, "in": 40079}, (), 40075, 40076)
    array_of = compile_expression(given["input"], context)
    initial = compile_expression(given["initialValue"], context)
    inner, (this, so_far) = context.bind("this", "value")
    body = compile_expression(given["in"], inner)
    units = weight(given["in"])
    joined = _joined_part(given["in"])
    added = None if joined is None else (joined[0], compile_expression(joined[1], inner))

    def evaluate(scope: Scope) -> Any:
        array = array_of(scope)
        if is_nullish(array):
            return None
        if type(array) is not list:
            raise refusal(40080, f"$reduce requires that 'input' be an array, found: {shell_text(array)}")
        value = initial(scope)
        before_bytes = work.made()
        checked_bytes = 0
        for place, each in enumerate(array):
            work.spend(units)
            if added is not None and type(value) is added[0]:
                return _lengthened(value, array[place:], added[1], scope, this, units)
            scope[this], scope[so_far] = each, value
            value = body(scope)
            counted_bytes = work.made() - before_bytes
            if type(value) is not list and type(value) is not dict:
                settle(before_bytes, value)
            elif counted_bytes > 2 * checked_bytes + _WORTH_CHECKING_BYTES:
                # Measured only when it may have doubled in size, because measuring a long array at every step would be
                # quadratic.
                check_growth(value)
                settle(before_bytes, value)
                checked_bytes = work.made() - before_bytes
        return value

    return evaluate


_VALUE: Final = re.compile(r"\$\$value\b")


def _joined_part(body: Any) -> tuple[type, Any] | None:
    """If a `$reduce` only appends to an array or a string: which of the two, and the expression that is appended."""
    for operator, kind in (("$concatArrays", list), ("$concat", str)):
        parts = body.get(operator) if type(body) is dict else None
        if type(parts) is list and len(parts) == 2 and parts[0] == "$$value" and not _VALUE.search(repr(parts[1])):
            return kind, parts[1]
    return None


def _lengthened(value: Any, array: list[Any], added: Expression, scope: Scope, this: int, units: int) -> Any:
    """Runs such a `$reduce` by appending to one list, instead of copying the array or string for each element."""
    is_text = type(value) is str
    parts: list[Any] = [value] if is_text else list(value)
    length = len(value)
    for each in array:
        work.spend(units)
        scope[this] = each
        part = added(scope)
        if is_text:
            if concat(part) is None:
                return None
            length += len(part)
            check_length(length)
            parts.append(part)
        else:
            more = concat_arrays(part)
            if more is None:
                return None
            parts += more
    if is_text:
        work.make(length)
        return "".join(parts)
    return check_growth(parts) if len(parts) > LONG else parts


OPERATORS: Final[Mapping[str, Operator]] = {
    "$filter": _filter,
    "$map": _map,
    "$reduce": _reduce,
}
