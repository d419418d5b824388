"""Executes ORDER BY RANK: collects statistics over all items, then scores and ranks them. A BM25 score depends on
statistics of all texts, and RRF on the scores of all items, so each item is measured first and scored when all were
read. The best come first, items without a score last; by a Euclidean distance alone, which ascends, they come first, as
undefined values do in every ascending order (the service's clients merge them so). Which scores a query asks for is
`syntax/order_by_rank.py`'s part, the formulas are in `library/scores.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.fulltext import Phrase, phrase_of
from armillary.languages.sql.library.scores import Statistics, bm25, distance_name, fused, occurrences
from armillary.languages.sql.library.vectors import is_similarity
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.order_by_rank import Component, not_terms, weights_of
from armillary.model.values import UNDEFINED, Value
from armillary.work import sorted_values

Read = Callable[[Any], tuple[Any, ...]]  # evaluates the subjects of all components for an item
_NUMBERS = (int, float)
_NO_HIT = 0


class Search(NamedTuple):
    """The search terms of a FullTextScore."""

    language: str
    phrases: tuple[Phrase, ...]


class ScoreRanking:
    """The ranking of one bound query. Immutable: each execution has its own Scorer."""

    def __init__(
        self,
        call: tree.Call,
        components: Sequence[Component],
        read: Read,
        parameters: Mapping[str, Value],
        context: Context,
    ) -> None:
        def value(node: tree.Expression) -> Any:
            return _constant(node, parameters)

        self.read = read
        self.searches = [_search(component, value, context) for component in components]
        self.weights = weights_of(call, len(components), value)
        self.needs_all = any(search is not None for search in self.searches)
        self.unscored = -math.inf
        if len(components) == 1 and not components[0].is_text:
            arguments = components[0].call.arguments
            options = value(arguments[3]) if len(arguments) > 3 else None
            if not is_similarity(distance_name(context, components[0].path, options)):
                self.unscored = math.inf

    def begin(self) -> Scorer:
        return Scorer(self)


class Scorer:
    """The statistics of one execution. Items with equal measures have equal scores."""

    def __init__(self, ranking: ScoreRanking) -> None:
        self._ranking = ranking
        self._documents = 0
        self._words = [0] * len(ranking.searches)
        self._holding = [[0] * len(search.phrases) if search is not None else [] for search in ranking.searches]
        self.is_final = not ranking.needs_all and len(ranking.searches) == 1

    def measure(self, document: Any) -> tuple[Any, ...]:
        """Measure an item: term frequencies and lengths, or similarities. Items that the filter excludes are measured
        too: they count in the statistics, as they do for clients, whose statistics query has no filter."""
        self._documents += 1
        subjects = self._ranking.read(document)
        return tuple(
            [
                _score(subject) if search is None else self._found(place, subject, search)
                for place, (subject, search) in enumerate(zip(subjects, self._ranking.searches, strict=True))
            ]
        )

    def _found(self, place: int, text: Any, search: Search) -> Any:
        """The term frequencies and the length of a text; None if the value is not a text."""
        if text.__class__ is not str:
            return None
        frequencies, words = occurrences(text, search.phrases, search.language)
        self._words[place] += words
        if not any(frequencies):
            return _NO_HIT
        holding = self._holding[place]
        for at, frequency in enumerate(frequencies):
            holding[at] += frequency > 0
        return tuple(frequencies), words

    def order(self, measures: Sequence[tuple[Any, ...]]) -> list[int]:
        """The indices of the measures, best first; the order of equal ones is kept."""
        scores = [self._scores(place, [each[place] for each in measures]) for place in range(len(self._words))]
        totals = scores[0] if len(scores) == 1 else fused(scores, self._ranking.weights)
        unscored = self._ranking.unscored
        keys = [unscored if total is None else total for total in totals]
        return sorted_values(range(len(keys)), keys.__getitem__, is_reversed=True)

    def _scores(self, place: int, measures: list[Any]) -> list[float | None]:
        if self._ranking.searches[place] is None:
            return measures
        statistics = Statistics(self._documents, self._words[place], tuple(self._holding[place]))
        return [each if each.__class__ is not tuple else bm25(each[0], each[1], statistics) for each in measures]


def _score(value: Any) -> float | None:
    return value if value.__class__ in _NUMBERS and value == value else None


def _search(component: Component, value: Callable[[tree.Expression], Any], context: Context) -> Search | None:
    if not component.is_text:
        return None
    language = context.language_of(component.path)
    phrases: list[Phrase] = []
    for term in component.call.arguments[1:]:
        phrase = phrase_of(value(term), language)
        if phrase is None:
            raise not_terms(term)
        phrases.append(phrase)
    return Search(language, tuple(phrases))


def _constant(node: tree.Expression, parameters: Mapping[str, Value]) -> Any:
    match node:
        case tree.Literal():
            return node.value
        case tree.Parameter():
            return parameters[node.name]
        case tree.ArrayLiteral():
            return [_constant(element, parameters) for element in node.elements]
        case tree.ObjectLiteral():
            return {name: _constant(value, parameters) for name, value in node.pairs}
    return UNDEFINED
