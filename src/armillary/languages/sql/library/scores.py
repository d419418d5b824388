"""Scores of single items, as the queries of a plan ask for them: how well a text fits search terms, given the counts of
all texts, and how alike two vectors are. Greater is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.fulltext import Phrase, count, phrase_of
from armillary.languages.sql.library.numbers import ABSENT
from armillary.languages.sql.library.ranking import Statistics, bm25
from armillary.languages.sql.library.vectors import is_similarity, vector_distance
from armillary.model.values import UNDEFINED, Value
from armillary.query.text.words import words_of

_NUMBERS = (int, float)


def word_count(context: Context, path: str, text: Any) -> Value:
    """How many words of a text are searched."""
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
    """VectorDistance turned so that greater means more alike."""
    distance = vector_distance(context, path, first, second, is_exact, options)
    if distance.__class__ not in _NUMBERS:
        return UNDEFINED
    return distance if is_similarity(distance_name(context, path, options)) else -distance


def distance_name(context: Context, path: str, options: Any) -> str:
    """The distance function that a call of VectorDistance uses."""
    name = options.get("distanceFunction") if options.__class__ is dict else None
    return name if isinstance(name, str) else context.distance_function_of(path)
