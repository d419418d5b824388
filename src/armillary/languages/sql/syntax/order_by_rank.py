"""ORDER BY RANK and ORDER BY VectorDistance: reads and checks the scores that a query is ordered by, and the clauses
that may be combined with them. Scoring and ranking items is `compiling/score_ranking.py`'s part.

The container needs no full-text or vector policy: by default texts are English and vectors are compared by cosine. The
clients' own tests rank items of containers that have neither policy nor index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from armillary.errors import Failure
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.lexer import query_error, unplaced_error
from armillary.languages.sql.syntax.paths import Scope, item_path, source_alias
from armillary.languages.sql.syntax.walk import names_in, nodes_of
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import Value

VECTOR, TEXT, FUSION = "VECTORDISTANCE", "FULLTEXTSCORE", "RRF"
_NUMBERS = (int, float)
_CONSTANTS = (tree.Literal, tree.Parameter, tree.ArrayLiteral, tree.ObjectLiteral)

_UNMAPPED = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."
_NOT_A_SCORE = "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call."
_NO_TERMS = "The terms of the FullTextScore function must be string literals or parameters, at least one."


class Component(NamedTuple):
    """One score: a call of VectorDistance, or of FullTextScore with its terms one by one."""

    call: tree.Call
    path: str  # the index path of the text or vector; "" if it is computed

    @property
    def is_text(self) -> bool:
        return self.call.name == TEXT

    @property
    def subject(self) -> tree.Expression:
        """The expression that is evaluated for each item: the text, or the similarity of vectors (greater is
        better)."""
        return self.call.arguments[0] if self.is_text else replace(self.call, name="_VECTORSCORE")


def is_ranked(query: tree.Query) -> bool:
    """Whether a query is ordered by scores rather than by properties."""
    if query.is_ranked:
        return True
    first = query.order_by[0].expression if query.order_by else None
    return isinstance(first, tree.Call) and first.name == VECTOR and not first.is_user_defined


def components_of(query: tree.Query, scope: Scope) -> tuple[Component, ...]:
    """The scores of a ranked query that passed the checks."""
    call = query.order_by[0].expression
    assert isinstance(call, tree.Call)
    components = []
    for each in _parts(call)[0]:
        assert isinstance(each, tree.Call)
        paths = [path for argument in each.arguments if (path := item_path(argument, scope))]
        steps = [step if isinstance(step, str) else None for step in paths[0]] if paths else []
        if each.name == TEXT and len(each.arguments) == 2 and isinstance(each.arguments[1], tree.ArrayLiteral):
            # The older form, FullTextScore(path, [terms]).
            each = replace(each, arguments=(each.arguments[0], *each.arguments[1].elements))
        components.append(Component(each, path_text(steps) if steps else ""))
    return tuple(components)


def weights_of(call: tree.Call, count: int, value: Callable[[tree.Expression], Value]) -> list[float] | None:
    """The weights, RRF's last argument; None if there are none."""
    last = _parts(call)[1]
    if last is None:
        return None
    weights = value(last)
    if not isinstance(weights, list) or len(weights) != count or not all(type(each) in _NUMBERS for each in weights):
        message = f"The weights of RRF must be an array of {count} numbers, one for each component."
        raise query_error("SC2229", message, last.start, last.end)
    return [float(each) for each in weights]


def check_ranked(query: tree.Query, scope: Scope) -> tuple[tree.Expression, ...]:
    """Check the ORDER BY of a ranked query. Returns the expressions that must pass the general checks too: the scores,
    and the weights if there are any."""
    order = query.order_by[0]
    call = order.expression
    if query.is_ranked:
        _check_clauses(query)
    if len(query.order_by) > 1:
        raise unplaced_error(2206, _UNMAPPED)
    if not isinstance(call, tree.Call) or call.is_user_defined:
        raise _not_a_score(call)
    if not query.is_ranked:
        if order.has_direction:
            message = "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported."
            raise query_error("SC2213", message, order.start, order.end)
        _check_subject(call, query, scope)
        return (call,)
    calls, weights = _parts(call)
    if call.name == FUSION and len(calls) < 2:
        raise _not_a_score(call)
    for each in calls:
        _check_component(each, query, scope)
    return calls if weights is None else (*calls, weights)


def _parts(call: tree.Call) -> tuple[tuple[tree.Expression, ...], tree.Expression | None]:
    """The scores and weights of RRF; for any other call the call itself, without weights."""
    if call.name != FUSION:
        return (call,), None
    last = call.arguments[-1] if call.arguments else None
    if isinstance(last, (tree.ArrayLiteral, tree.Parameter)):
        return call.arguments[:-1], last
    return call.arguments, None


def _check_component(call: tree.Expression, query: tree.Query, scope: Scope) -> None:
    if not isinstance(call, tree.Call) or call.is_user_defined:
        raise _not_a_score(call)
    if call.name == FUSION:
        raise query_error("SC2005", "'RRF' is not a recognized built-in function name.", call.start, call.name_end)
    if call.name not in (VECTOR, TEXT):
        raise _not_a_score(call)
    if call.name == TEXT:
        if len(call.arguments) < 2:
            message = "The FULLTEXTSCORE function requires at least 2 argument(s)."
            raise query_error("SC2050", message, call.start, call.end)
        for term in call.arguments[1:]:
            is_empty = isinstance(term, tree.ArrayLiteral) and not term.elements
            if is_empty or not all(isinstance(node, _CONSTANTS) for node in nodes_of(term)):
                raise not_terms(term)
        if not _is_path(call.arguments[0], scope):
            raise unplaced_error(2206, _UNMAPPED)
    _check_subject(call, query, scope)


def _check_subject(call: tree.Call, query: tree.Query, scope: Scope) -> None:
    """The text or vector must be a path of the item, not a value that JOIN or a subquery produces."""
    first = source_alias(query.sources[0]) if query.sources else None
    is_plain = not any(name.name != first and name.name in scope for name in names_in(call))
    is_plain = is_plain and not any(isinstance(node, tree.Subquery) for node in nodes_of(call))
    if not is_plain or not any(_is_path(argument, scope) for argument in call.arguments):
        raise unplaced_error(2206, _UNMAPPED)


def _is_path(node: tree.Expression, scope: Scope) -> bool:
    """Whether an expression is a path of the item. A step may be a parameter, `c[@name]`."""
    steps = 0
    while isinstance(node, (tree.Member, tree.Index)):
        if isinstance(node, tree.Index) and not isinstance(node.index, (tree.Literal, tree.Parameter)):
            return False
        node = node.source
        steps += 1
    if not isinstance(node, tree.Name) or node.name not in scope:
        return isinstance(node, tree.Name)  # an unknown name is reported by the general checks
    prefix = scope[node.name]
    return prefix is not None and None not in prefix and steps + len(prefix) > 0


def _check_clauses(query: tree.Query) -> None:
    order = query.order_by[0]
    if order.has_direction:
        message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed."
        raise query_error("SC2222", message, order.start, order.end)
    if query.select.is_distinct:
        message = "The DISTINCT keyword is not allowed with the ORDER BY RANK clause."
        raise query_error("SC2227", message, query.select.start, query.select.end)
    source = query.sources[0] if query.sources else None
    if source is None:
        raise unplaced_error(2206, _UNMAPPED)
    for is_wrong, code, what in (
        (source.is_iterated, "SC2223", "FROM … IN"),
        (len(query.sources) > 1, "SC2224", "JOIN"),
        (isinstance(source.expression, tree.Subquery), "SC2225", "A subquery in FROM"),
    ):
        if is_wrong:
            message = f"{what} is not allowed with the ORDER BY RANK clause."
            raise query_error(code, message, query.sources[-1].start, query.sources[-1].end)
    subquery = next((node for node in nodes_of(order.expression) if isinstance(node, tree.Subquery)), None)
    if subquery is not None:
        message = "A subquery is not allowed in the ORDER BY RANK clause."
        raise query_error("SC2228", message, subquery.start, subquery.end)


def _not_a_score(node: tree.Expression) -> Failure:
    return query_error("SC2221", _NOT_A_SCORE, node.start, node.end)


def not_terms(node: tree.Expression) -> Failure:
    return query_error("SC2226", _NO_TERMS, node.start, node.end)
