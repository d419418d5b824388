"""Object operators: `$mergeObjects`, and `$getField`, `$setField` for field names with dots and dollar signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Function,
    Operator,
    compile_expression,
    named_arguments,
)
from armillary.languages.mongo.expressions.numbers import is_nullish
from armillary.languages.mongo.memory_budget import DOCUMENT_BYTES, MEMBER_BYTES
from armillary.model.bson.bson_values import MISSING, Document, shell_text, type_name


def merge_objects(*values: Any) -> Document:
    merged: Document = {}
    for value in values[0] if len(values) == 1 and type(values[0]) is list else values:
        if type(value) is dict:
            work.make(MEMBER_BYTES * len(value))
            work.spend(2 + len(value))
            merged.update(value)
        elif not is_nullish(value):
            raise refusal(
                40400,
                f"$mergeObjects requires object inputs, but input {shell_text(value)} is of type {type_name(value)}",
            )
    return merged


def _object_to_array(value: Any) -> Any:
    if is_nullish(value):
        return None
    if type(value) is not dict:
        raise refusal(40390, f"$objectToArray requires a document input, found: {type_name(value)}")
    work.make(len(value) * (DOCUMENT_BYTES + 2 * MEMBER_BYTES + 8))
    return [{"k": name, "v": each} for name, each in work.paced(value.items(), 1)]


def _field_name(name: str, spec: Any, context: Context) -> Expression:
    """The name of the field. Texts with a `$` prefix are refused, because `$literal` must mark them as a name."""
    is_written = type(spec) is not dict or next(iter(spec), "") in ("$literal", "$const")
    if name != "$getField" and not is_written:
        raise refusal(4161106, f"{name} requires 'field' to evaluate to a constant, but got a non-constant argument")
    if name != "$getField" and type(spec) is str and spec.startswith("$"):
        raise refusal(
            4161108,
            f"A field path reference which is not allowed in this context. Did you mean {{$literal: '{spec}'}}?",
        )
    expression = compile_expression(spec, context)
    if is_written and isinstance(expression, Constant) and type(expression.value) is not str:
        raise refusal(
            5654602 if name == "$getField" else 4161107,
            f"{name} requires 'field' to evaluate to a constant String, but got {type_name(expression.value)}",
        )
    return expression


def _text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise refusal(
            3041704 if name == "$getField" else 4161107,
            f"{name} requires 'field' to evaluate to type String, but got {type_name(value)}",
        )
    return value


def _get_field(name: str, spec: Any, context: Context) -> Expression:
    if type(spec) is dict and not next(iter(spec), "").startswith("$"):
        given = named_arguments(name, spec, {"field": 3041702}, ("input",), 3041701, 3041701)
        if "input" not in given:
            raise refusal(3041703, f"{name} requires 'input' to be specified")
        input_of = compile_expression(given["input"], context)
        field_of = _field_name(name, given["field"], context)
    else:
        input_of = compile_expression("$$CURRENT", context)
        field_of = _field_name(name, spec, context)

    def evaluate(scope: Scope) -> Any:
        field = _text(name, field_of(scope))
        value = input_of(scope)
        if is_nullish(value):
            return value
        return value.get(field, MISSING) if type(value) is dict else MISSING

    return evaluate


def _set_field(name: str, spec: Any, context: Context) -> Expression:
    required = {"field": 4161102, **({"value": 4161103} if name == "$setField" else {}), "input": 4161109}
    given = named_arguments(name, spec, required, (), 4161100, 4161101)
    field_of = _field_name(name, given["field"], context)
    input_of = compile_expression(given["input"], context)
    value_of = compile_expression(given["value"], context) if name == "$setField" else Constant(MISSING)

    def evaluate(scope: Scope) -> Any:
        field = _text(name, field_of(scope))
        if "\0" in field:
            raise refusal(9534700, f"{name} requires 'field' not to contain an embedded null byte")
        target = input_of(scope)
        if is_nullish(target):
            return None
        if type(target) is not dict:
            raise refusal(4161105, f"{name} requires 'input' to evaluate to type Object")
        value = value_of(scope)
        work.make(MEMBER_BYTES * len(target))
        made = dict(target)
        if value is MISSING:
            made.pop(field, None)
        else:
            made[field] = value
        return made

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {
    "$mergeObjects": Function(merge_objects, 0, None),
    "$objectToArray": Function(_object_to_array),
    "$getField": _get_field,
    "$setField": _set_field,
    "$unsetField": _set_field,
}
