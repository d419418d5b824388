"""ORDER BY RANK and ORDER BY VectorDistance: items by scores that are known only when all items were seen.
FullTextScore needs the counts of all texts, RRF the ranks of all items; the best come first, items without a score
last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from armillary.errors import Failure
from armillary.languages.sql import tree
from armillary.languages.sql.lexer import query_error, unplaced_error
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.fulltext import Phrase, phrase_of
from armillary.languages.sql.library.ranking import Statistics, bm25, fused
from armillary.languages.sql.library.scores import occurrences
from armillary.languages.sql.paths import Scope, item_path
from armillary.languages.sql.walk import names_in, nodes_of
from armillary.model.index_paths import path_text
from armillary.model.values import Value

VECTOR, TEXT = "VECTORDISTANCE", "FULLTEXTSCORE"
_NOT_A_SCORE = "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call."


class Component(NamedTuple):
    """One score: a call of VectorDistance or FullTextScore."""

    call: tree.Call
    path: str  # that it is about

    @property
    def is_text(self) -> bool:
        return self.call.name == TEXT


def is_ranked(query: tree.Query) -> bool:
    """Whether a query is ordered by scores rather than by what items hold."""
    if query.is_ranked:
        return True
    first = query.order_by[0].expression if query.order_by else None
    return isinstance(first, tree.Call) and first.name == VECTOR and not first.is_user_defined


def components_of(query: tree.Query, scope: Scope) -> tuple[Component, ...]:
    """The scores of a ranked query, checked."""
    order = query.order_by[0]
    call = order.expression
    if query.is_ranked:
        _check_rank(query)
    elif order.has_direction:
        message = "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported."
        raise query_error("SC2213", message, order.start, order.end)
    if len(query.order_by) > 1:
        raise unplaced_error(2206, "Unsupported ORDER BY clause. A score cannot be combined with other ORDER BY items.")
    if not isinstance(call, tree.Call) or call.is_user_defined:
        raise _not_a_score(order)
    calls = call.arguments if call.name == "RRF" and query.is_ranked else (call,)
    if call.name == "RRF" and calls and not isinstance(calls[-1], tree.Call):
        calls = calls[:-1]
    if call.name == "RRF" and len(calls) < 2:
        message = "The RRF function requires at least 2 argument(s)."
        raise query_error("SC2050", message, call.start, call.end)
    return tuple([_component(each, order, scope) for each in calls])


def _component(call: tree.Expression, order: tree.Order, scope: Scope) -> Component:
    if not isinstance(call, tree.Call) or call.is_user_defined or call.name not in (VECTOR, TEXT):
        raise _not_a_score(order)
    least = 2
    if len(call.arguments) < least or (call.name == VECTOR and len(call.arguments) > 4):
        wanted = "2 to 4" if call.name == VECTOR else "at least 2"
        message = f"The {call.name} function requires {wanted} argument(s)."
        raise query_error("SC2050", message, call.start, call.end)
    paths = [path for argument in call.arguments if (path := item_path(argument, scope))]
    names = [name for argument in call.arguments for name in names_in(argument)]
    if not paths or any(scope.get(name.name) != () for name in names):
        raise unplaced_error(2206, "Unsupported ORDER BY clause. A score must be about a path of the item.")
    if call.name == TEXT and any(True for term in call.arguments[1:] for _ in names_in(term)):
        raise unplaced_error(2206, "Unsupported ORDER BY clause. FullTextScore looks for constants.")
    if call.name == TEXT and len(call.arguments) == 2 and isinstance(call.arguments[1], tree.ArrayLiteral):
        call = replace(call, arguments=(call.arguments[0], *call.arguments[1].elements))  # as it once was written
    return Component(call, path_text([step if isinstance(step, str) else None for step in paths[0]]))


def _check_rank(query: tree.Query) -> None:
    order = query.order_by[0]
    if order.has_direction:
        message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed."
        raise query_error("SC2222", message, order.start, order.end)
    source = query.sources[0] if query.sources else None
    if source is None:
        raise _not_a_score(order)
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


def _not_a_score(order: tree.Order) -> Failure:
    return query_error("SC2221", _NOT_A_SCORE, order.start, order.end)


def weights_of(call: tree.Call, count: int, value: Callable[[tree.Expression], Value]) -> list[float] | None:
    """The weights at the end of RRF; None: all weigh the same."""
    last = call.arguments[-1] if call.name == "RRF" else None
    if last is None or isinstance(last, tree.Call):
        return None
    weights = value(last)
    if (
        not isinstance(weights, list)
        or len(weights) != count
        or not all(type(each) in (int, float) for each in weights)
    ):
        message = f"The weights of RRF must be an array of {count} numbers, one for each component."
        raise query_error("SC2229", message, last.start, last.end)
    return [float(each) for each in weights]


class Ranker:
    """The scores of one execution. `read(item)` gives the arguments of each component: the text and the terms, or the
    score itself, greater being better."""

    def __init__(
        self,
        components: Sequence[Component],
        read: Callable[[Any], tuple[tuple[Any, ...], ...]],
        weights: list[float] | None,
        context: Context,
    ) -> None:
        self._components = components
        self._read = read
        self._weights = weights
        self._languages = [context.language_of(component.path) for component in components]
        self._phrases: list[list[Phrase] | None] = [None] * len(components)
        self._totals = [[0, 0] for _ in components]  # items, words; plans count all items too
        self._holding: list[list[int]] = [[] for _ in components]
        self.needs_all = any(component.is_text for component in components)

    def measure(self, document: Any) -> Any:
        """What must be kept of an item to score it at the end. Every item that is searched is measured, also those
        that a filter leaves out: they count in the statistics."""
        measures: list[Any] = []
        for place, (component, arguments) in enumerate(zip(self._components, self._read(document), strict=True)):
            measures.append(self._text(place, arguments) if component.is_text else _score(arguments[0]))
        return measures

    def _text(self, place: int, arguments: tuple[Any, ...]) -> tuple[list[int], int] | None:
        text, *terms = arguments
        language = self._languages[place]
        phrases = self._phrases[place]
        if phrases is None:
            found = [phrase_of(term, language) for term in terms]
            phrases = self._phrases[place] = [phrase for phrase in found if phrase is not None]
            self._holding[place] = [0] * len(phrases)
        self._totals[place][0] += 1
        if text.__class__ is not str:
            return None
        frequencies, words = occurrences(text, phrases, language)
        self._totals[place][1] += words
        for at, frequency in enumerate(frequencies):
            self._holding[place][at] += frequency > 0
        return frequencies, words

    def order(self, measured: Sequence[Any]) -> list[int]:
        """The places of the measures, the best first; equal ones as they are."""
        scores = [self._scores(place, [measures[place] for measures in measured]) for place in range(len(self._totals))]
        totals: Sequence[float | None] = scores[0] if len(scores) == 1 else fused(scores, self._weights)
        return sorted(range(len(measured)), key=lambda at: _key(totals[at]))

    def _scores(self, place: int, measures: list[Any]) -> list[float | None]:
        if not self._components[place].is_text:
            return measures
        texts, words = self._totals[place]
        statistics = Statistics(texts, words, tuple(self._holding[place]))
        return [None if each is None else bm25(each[0], each[1], statistics) for each in measures]


def _score(value: Any) -> float | None:
    return value if value.__class__ in (int, float) and value == value else None


def _key(total: float | None) -> tuple[bool, float]:
    return (True, 0.0) if total is None else (False, -total)
