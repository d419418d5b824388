"""Stages that map each document to another: `$project`, `$unset`, `$addFields`, `$set`, `$replaceRoot`, `$replaceWith`,
`$redact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.compiling import check_path, compile_expression
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.stages.stage import Piecewise
from armillary.model.bson.bson_values import MISSING, Document, is_number, shell_text, type_name
from armillary.work import paced, spend

Transform = Callable[[Document], Document]

_COLLISION: Final = 40176


def _refused(name: str, failure: Failure) -> Failure:
    """The failure with the name of the stage before its message."""
    if failure.kind in (Kind.TOO_LARGE, Kind.TIMED_OUT):
        return failure  # the failure is not about the stage's arguments
    details = dict(failure.details)
    return refusal(details.pop("code", 2), f"Invalid {name} :: caused by :: {failure.message}", **details)


# $project and $unset.


def project(name: str, spec: Any, context: Context) -> Transform:
    if type(spec) is not dict:
        raise refusal(15969, "$project specification must be an object")
    if not spec:
        raise refusal(51272, "Invalid $project :: caused by :: projection specification must have at least one field")
    try:
        _check_project(spec)
        return compile_projection(spec, context, is_stage=True)
    except Failure as failure:
        raise _refused(name, failure) from None


def _check_project(spec: Document) -> None:
    """Refuses operators of `find` that stages do not have."""
    for path, value in spec.items():
        if path == "$" or path.endswith(".$"):
            raise refusal(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
        if type(value) is not dict or not value:
            continue
        operator = next(iter(value))
        if operator == "$elemMatch":
            raise refusal(31325, "Unknown expression $elemMatch")
        if operator == "$slice":
            operand = value["$slice"]
            if type(operand) is not list or len(operand) < 2:
                raise refusal(
                    28667, "Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in."
                )
            if is_number(operand[0]):
                raise refusal(28724, "First argument to $slice must be an array, but is of type: a number")
        if not operator.startswith("$"):
            _check_project(value)


def unset(name: str, spec: Any, context: Context) -> Transform:
    names = [spec] if type(spec) is str else spec
    if type(names) is not list:
        raise refusal(31002, "$unset specification must be a string or an array")
    if not names:
        raise refusal(31119, "$unset specification must be a string or an array with at least one field")
    for each in names:
        if type(each) is not str:
            raise refusal(31120, "$unset specification must be a string or an array containing only string values")
    return project(name, dict.fromkeys(names, 0), context)


# $addFields and $set.


def add_fields(name: str, spec: Any, context: Context) -> Transform:
    if type(spec) is not dict:
        raise refusal(40272, f"{name} specification stage must be an object, got {type_name(spec)}")
    if not spec:
        raise refusal(40177, f"Invalid {name} :: caused by :: specification must have at least one field")
    added: list[tuple[list[str], Expression]] = []
    try:
        _read_added(spec, [], added, context)
    except Failure as failure:
        raise _refused(name, failure) from None
    return setter(added, context)


def _read_added(spec: Document, prefix: list[str], added: list[tuple[list[str], Expression]], context: Context) -> None:
    for path, value in spec.items():
        parts = [*prefix, *check_path(path)]
        spend(3 * len(added))
        for other, _ in added:
            size = min(len(other), len(parts))
            if other[:size] == parts[:size]:
                raise refusal(
                    _COLLISION, f"specification contains two conflicting paths: {'.'.join(parts)} and {'.'.join(other)}"
                )
        if type(value) is dict and not next(iter(value), "$").startswith("$"):
            _read_added(value, parts, added, context)
            continue
        added.append((parts, compile_expression(value, context)))


def setter(added: Sequence[tuple[Sequence[str], Expression]], context: Context) -> Transform:
    """A function that sets fields to the values of expressions on the whole document; missing removes the field."""
    scope = context.scope({})
    if all(len(parts) == 1 for parts, _ in added):
        flat = [(parts[0], expression) for parts, expression in added]

        def set_fields(document: Document) -> Document:
            scope[CURRENT] = scope[ROOT] = document
            made = dict(document)
            for field, expression in flat:
                value = expression(scope)
                if value is MISSING:
                    made.pop(field, None)
                else:
                    made[field] = value
            return made

        return set_fields

    def set_paths(document: Document) -> Document:
        scope[CURRENT] = scope[ROOT] = document
        made: Document = document
        for parts, expression in added:
            made = with_value(made, parts, expression(scope))
        return made

    return set_paths


# $replaceRoot and $replaceWith.


def replace_root(name: str, spec: Any, context: Context) -> Transform:
    if name == "$replaceRoot":
        if type(spec) is not dict:
            raise refusal(40229, f"expected an object as specification for $replaceRoot stage, got {type_name(spec)}")
        for each in spec:
            if each != "newRoot":
                raise refusal(40415, f"BSON field '$replaceRoot.{each}' is an unknown field.")
        if "newRoot" not in spec:
            raise refusal(40414, "BSON field '$replaceRoot.newRoot' is missing but a required field")
        spec = spec["newRoot"]
    expression = compile_expression(spec, context)
    scope = context.scope({})
    what = "'newRoot' expression " if name == "$replaceRoot" else "'replacement document' "

    def replace(document: Document) -> Document:
        scope[CURRENT] = scope[ROOT] = document
        value = expression(scope)
        if type(value) is not dict:
            raise refusal(
                40228,
                f"{what} must evaluate to an object, but resulting value was: "
                f"{'MISSING' if value is MISSING else shell_text(value)}. Type of resulting value: "
                f"'{type_name(value)}'. Input document: {shell_text(document)[:200]}",
            )
        return value

    return replace


# $redact.

_DECISIONS: Final = {"DESCEND": "descend", "PRUNE": "prune", "KEEP": "keep"}  # variables of `$redact` only


def redact(name: str, spec: Any, context: Context) -> Piecewise:
    inner, places = context.bind(*_DECISIONS)
    expression = compile_expression(spec, inner)
    scope = inner.scope({})
    for place, decision in zip(places, _DECISIONS.values(), strict=True):
        scope[place] = decision

    def shown(document: Document) -> Any:
        scope[ROOT] = document
        return _redacted(document, expression, scope)

    return Piecewise(lambda batch: [made for document in batch if (made := shown(document)) is not MISSING])


def _redacted(document: Document, expression: Expression, scope: Scope) -> Any:
    """MISSING if the whole document is hidden."""
    scope[CURRENT] = document
    spend(20)
    match expression(scope):
        case "keep":
            return document
        case "prune":
            return MISSING
        case "descend":
            made: Document = {}
            for field, value in paced(document.items(), 1):
                value = _redacted_value(value, expression, scope)
                if value is not MISSING:
                    made[field] = value
            return made
        case other:
            raise refusal(
                17053,
                "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and "
                f"$$PRUNE, but returned {'nothing' if other is MISSING else shell_text(other)}",
            )


def _redacted_value(value: Any, expression: Expression, scope: Scope) -> Any:
    if type(value) is dict:
        return _redacted(value, expression, scope)
    if type(value) is list:
        found = [_redacted_value(each, expression, scope) for each in paced(value, 1)]
        return [each for each in found if each is not MISSING]
    return value
