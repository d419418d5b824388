"""Scores of full-text and vector search: BM25, similarity of vectors, and reciprocal rank fusion (RRF) of several
rankings; a greater score is better. Where ORDER BY RANK may ask for them is `syntax/order_by_rank.py`'s part; the
statistics over all items are collected by `compiling/score_ranking.py`, or by the client with a query of its plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.fulltext import Phrase, count, phrase_of
from armillary.languages.sql.library.numbers import ABSENT
from armillary.languages.sql.library.vectors import is_similarity, vector_distance
from armillary.model.values import UNDEFINED, Value
from armillary.query.text.words import words_of

_NUMBERS: Final = (int, float)
_SATURATION: Final = 1.2  # BM25's k1: how fast repeated words saturate
_LENGTH_SHARE: Final = 0.75  # BM25's b: weight of the normalization by length
_RANK_OFFSET: Final = 60  # RRF's k


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one path over all items searched. Those of several partitions are added number by number."""

    documents: int  # all items, whether or not they have a text at the path
    words: int  # in all these texts, without stop words
    holding: tuple[int, ...]  # for each term: how many documents contain it


def joined(statistics: Sequence[Statistics]) -> Statistics:
    return Statistics(
        sum(each.documents for each in statistics),
        sum(each.words for each in statistics),
        tuple(map(sum, zip(*[each.holding for each in statistics], strict=True))),
    )


def bm25(frequencies: Sequence[int], words: int, statistics: Statistics) -> float:
    """The BM25 score of one text. `frequencies`: how often each term occurs in it; `words`: its length."""
    if not statistics.documents or not statistics.words:
        return 0.0
    length = words * statistics.documents / statistics.words  # 1: of average length
    score = 0.0
    for frequency, holding in zip(frequencies, statistics.holding, strict=True):
        rarity = math.log(1 + (statistics.documents - holding + 0.5) / (holding + 0.5))
        damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length)
        score += rarity * frequency * (_SATURATION + 1) / (frequency + damping)
    return score


def ranks(scores: Sequence[float | None], is_reversed: bool = False) -> list[int]:
    """Dense ranks, as clients compute them: 1 for the highest score (reversed: for the lowest), equal scores share a
    rank, the next score has the next number. Items without a score come last."""
    sign = 1 if is_reversed else -1
    keys = [math.inf if score is None or score != score else sign * score for score in scores]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    found = [0] * len(keys)
    rank = 0
    for place, index in enumerate(order):
        if place == 0 or keys[index] != keys[order[place - 1]]:
            rank += 1
        found[index] = rank
    return found


def fused(components: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None) -> list[float]:
    """Reciprocal rank fusion: for each item the sum of weight / (60 + rank) over the components. A negative weight
    reverses the order of its component."""
    shares = weights if weights is not None else [1.0] * len(components)
    assert len(shares) == len(components)
    totals = [0.0] * (len(components[0]) if components else 0)
    for scores, weight in zip(components, shares, strict=True):
        for index, rank in enumerate(ranks(scores, weight < 0)):
            totals[index] += abs(weight) / (_RANK_OFFSET + rank)
    return totals


# Scores as functions of the query language.


def word_count(context: Context, path: str, text: Any) -> Value:
    """How many words of a text are searchable: stop words are not counted."""
    return len(words_of(text, context.language_of(path))) if text.__class__ is str else UNDEFINED


def full_text_score(
    context: Context, path: str, text: Any, terms: Any, documents: Any, words: Any, holding: Any = ABSENT
) -> Value:
    """`_FullTextScore(path, terms, documents, words, hits)`; the last two may also be one object, as the statistics
    query gives them."""
    if words.__class__ is dict and holding is ABSENT:
        words, holding = words.get("totalWordCount"), words.get("hitCounts")
    if text.__class__ is not str or terms.__class__ is not list or holding.__class__ is not list:
        return UNDEFINED
    if documents.__class__ not in _NUMBERS or words.__class__ not in _NUMBERS or len(terms) != len(holding):
        return UNDEFINED
    if any(each.__class__ not in _NUMBERS for each in holding):
        return UNDEFINED
    language = context.language_of(path)
    phrases = [phrase_of(term, language) for term in terms]
    frequencies, length = occurrences(text, [phrase for phrase in phrases if phrase is not None], language)
    if len(frequencies) != len(holding):
        return UNDEFINED
    return bm25(frequencies, length, Statistics(int(documents), int(words), tuple(map(int, holding))))


def occurrences(text: str, phrases: Sequence[Phrase], language: str) -> tuple[list[int], int]:
    """How often each phrase occurs in a text, and how many words the text has."""
    found = words_of(text, language)
    return [count(found, phrase) for phrase in phrases], len(found)


def vector_score(
    context: Context, path: str, first: Any, second: Any, is_exact: Any = False, options: Any = ABSENT
) -> Value:
    """VectorDistance with the sign that makes a greater score the more similar vector."""
    distance = vector_distance(context, path, first, second, is_exact, options)
    if distance.__class__ not in _NUMBERS:
        return UNDEFINED
    return distance if is_similarity(distance_name(context, path, options)) else -distance


def distance_name(context: Context, path: str, options: Any) -> str:
    """The distance function that a call of VectorDistance uses."""
    name = options.get("distanceFunction") if options.__class__ is dict else None
    return name if isinstance(name, str) else context.distance_function_of(path)
