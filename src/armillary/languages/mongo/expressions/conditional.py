"""Comparison, conditions and variables: `$eq`, `$lt` and so on, `$and`, `$cond`, `$switch`, `$let`, `$literal`,
`$meta`. Values of all types are comparable, arrays are compared as a whole, and null differs from missing. Branches
that are not taken are not evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import ROOT, SEARCH_META, Context, Expression, Scope
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Function,
    Operator,
    arguments,
    check_count,
    check_variable_name,
    compile_expression,
    folded,
    named_arguments,
)
from armillary.languages.mongo.expressions.numbers import is_nullish
from armillary.languages.mongo.filters.value_types import truth
from armillary.model.bson.bson_values import MISSING, Document, order_key, shell_text

KeyOf = Callable[[Any], Any]


# Comparison. Numbers and texts of the same type, the most common case, use Python's comparison.


def _compare(key: KeyOf, left: Any, right: Any) -> int:
    one, other = key(left), key(right)
    return int(one > other) - int(one < other)


def _comparison(compare: Callable[[Any, Any], bool]) -> Operator:
    def evaluate(key: KeyOf, left: Any, right: Any) -> bool:
        kind = type(left)
        if kind is type(right) and (kind is int or (kind is str and key is order_key)):
            return compare(left, right)
        return compare(key(left), key(right))

    return Function(evaluate, 2, 2, is_keyed=True)


# Boolean operators.


def _and(name: str, spec: Any, context: Context) -> Expression:
    parts = [compile_expression(each, context) for each in arguments(spec)]

    def evaluate(scope: Scope) -> bool:
        return all(truth(part(scope)) for part in parts)

    return folded(evaluate, parts)


def _or(name: str, spec: Any, context: Context) -> Expression:
    parts = [compile_expression(each, context) for each in arguments(spec)]

    def evaluate(scope: Scope) -> bool:
        return any(truth(part(scope)) for part in parts)

    return folded(evaluate, parts)


# Conditions.


def _cond(name: str, spec: Any, context: Context) -> Expression:
    if type(spec) is dict:
        given = named_arguments(name, spec, {"if": 17080, "then": 17081, "else": 17082}, (), 17083, 17083)
        chosen = [given["if"], given["then"], given["else"]]
    else:
        chosen = arguments(spec)
        check_count(name, len(chosen), 3, 3)
    condition, then, otherwise = [compile_expression(each, context) for each in chosen]
    if isinstance(condition, Constant):
        return then if truth(condition.value) else otherwise
    return lambda scope: then(scope) if truth(condition(scope)) else otherwise(scope)


def _if_null(name: str, spec: Any, context: Context) -> Expression:
    given = arguments(spec)
    if len(given) < 2:
        raise refusal(1257300, "$ifNull needs at least two arguments, had: 1")
    parts = [compile_expression(each, context) for each in given]
    *tried, last = parts
    if len(tried) == 1:
        only = tried[0]

        def of_two(scope: Scope) -> Any:
            value = only(scope)
            return last(scope) if is_nullish(value) else value

        return folded(of_two, parts)

    def evaluate(scope: Scope) -> Any:
        for each in tried:
            value = each(scope)
            if not is_nullish(value):
                return value
        return last(scope)

    return folded(evaluate, parts)


def _switch(name: str, spec: Any, context: Context) -> Expression:
    if type(spec) is not dict:
        raise refusal(40060, f"{name} requires an object as an argument")
    for each in spec:
        if each not in ("branches", "default"):
            raise refusal(40067, f"{name} found an unknown argument: {each}")
    given = spec.get("branches", [])
    if type(given) is not list:
        raise refusal(40061, f"{name} expected an array for 'branches'")
    branches = []
    for branch in given:
        if type(branch) is not dict:
            raise refusal(40062, f"{name} expected each branch to be an object")
        for each in branch:
            if each not in ("case", "then"):
                raise refusal(40063, f"{name} found an unknown argument to a branch: {each}")
        if "case" not in branch:
            raise refusal(40064, f"{name} requires each branch have a 'case' expression")
        if "then" not in branch:
            raise refusal(40065, f"{name} requires each branch have a 'then' expression.")
        branches.append((compile_expression(branch["case"], context), compile_expression(branch["then"], context)))
    if not branches:
        raise refusal(40068, f"{name} requires at least one branch.")
    otherwise = compile_expression(spec["default"], context) if "default" in spec else None
    if otherwise is None and all(isinstance(case, Constant) and not truth(case.value) for case, _ in branches):
        raise refusal(40069, "Cannot execute a switch statement where all cases are false and there is no default")

    def evaluate(scope: Scope) -> Any:
        for case, then in branches:
            if truth(case(scope)):
                return then(scope)
        if otherwise is None:
            raise refusal(40066, f"{name} could not find a matching branch for an input, and no default was specified.")
        return otherwise(scope)

    return evaluate


# Variables.


def _let(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"vars": 16876, "in": 16877}, (), 16874, 16875)
    variables = given["vars"]
    if type(variables) is not dict:
        raise refusal(10065, "invalid parameter: expected an object (vars)")
    for each in variables:
        check_variable_name(each)
    values = [compile_expression(each, context) for each in variables.values()]
    inner, places = context.bind(*variables)
    body = compile_expression(given["in"], inner)
    bound = list(zip(places, values, strict=True))

    def evaluate(scope: Scope) -> Any:
        for place, value in bound:
            scope[place] = value(scope)
        return body(scope)

    return evaluate


def _meta(name: str, spec: Any, context: Context) -> Expression:
    if spec in ("searchScore", "vectorSearchScore"):
        if not context.has_search_score:
            raise refusal(40218, f"query requires {spec} metadata, but it is not available")
        return lambda scope: _search_score(scope[ROOT])
    if spec != "textScore":
        raise refusal(17308, f"Unsupported argument to $meta: {shell_text(spec)}")
    score = context.score
    if score is None:
        raise refusal(40218, "query requires text score metadata, but it is not available")
    return lambda scope: score(scope[ROOT])


def _search_score(document: Document) -> Any:
    """The score of a vector search, unless a stage since then has removed it."""
    meta = document.get(SEARCH_META)
    return meta.get("score", MISSING) if type(meta) is dict else MISSING


def _literal(name: str, spec: Any, context: Context) -> Expression:
    return Constant(spec)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$cmp": Function(_compare, 2, 2, is_keyed=True),
    "$eq": _comparison(lambda one, other: one == other),
    "$ne": _comparison(lambda one, other: one != other),
    "$gt": _comparison(lambda one, other: one > other),
    "$gte": _comparison(lambda one, other: one >= other),
    "$lt": _comparison(lambda one, other: one < other),
    "$lte": _comparison(lambda one, other: one <= other),
    "$and": _and,
    "$or": _or,
    "$not": Function(lambda value: not truth(value)),
    "$cond": _cond,
    "$ifNull": _if_null,
    "$switch": _switch,
    "$let": _let,
    "$literal": _literal,
    "$const": _literal,
    "$meta": _meta,
}
