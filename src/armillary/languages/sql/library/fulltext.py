"""Full-text search: FullTextContains and its variants. A phrase matches where its words (`query/text/words.py`) occur
in sequence; with a distance, words match fuzzily by edit distance. Scores are in `scores.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from armillary import limits
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.numbers import whole
from armillary.model.values import UNDEFINED, Value
from armillary.query.text.words import words_of
from armillary.work import spend

_DISTANCE_MAX: Final = 2
_CHUNK: Final = 256  # words compared between two charges to the work budget


class Phrase(NamedTuple):
    words: tuple[str, ...]
    distance: int = 0  # maximum edit distance of each word


def contains(context: Context, path: str, text: Any, term: Any) -> Value:
    return _decide(context, path, text, (term,), all)


def contains_all(context: Context, path: str, text: Any, *terms: Any) -> Value:
    return _decide(context, path, text, terms, all)


def contains_any(context: Context, path: str, text: Any, *terms: Any) -> Value:
    return _decide(context, path, text, terms, any)


def _decide(
    context: Context, path: str, text: Any, terms: Sequence[Any], decide: Callable[[list[bool]], bool]
) -> Value:
    language = context.language_of(path)
    phrases = [phrase_of(term, language) for term in terms]
    if text.__class__ is not str:
        return UNDEFINED
    words = words_of(text, language)
    found = [count(words, phrase) > 0 for phrase in phrases if phrase is not None]
    if len(found) == len(phrases):
        return decide(found)
    # An invalid term is undefined; the result is defined if the other terms decide it.
    decisive = decide is any
    return decisive if decisive in found else UNDEFINED


def phrase_of(term: Any, language: str) -> Phrase | None:
    """A word or phrase, or `{"term": …, "distance": 0…2}`; None for anything else."""
    if term.__class__ is str:
        return Phrase(words_of(term, language))
    if term.__class__ is not dict or not term.keys() <= {"term", "distance"} or term.get("term").__class__ is not str:
        return None
    distance = whole(term.get("distance", 0))
    if distance is None or not 0 <= distance <= _DISTANCE_MAX:
        return None
    return Phrase(words_of(term["term"], language), distance)


def count(words: Sequence[str], phrase: Phrase) -> int:
    """How often a phrase occurs. A phrase of stop words alone never occurs."""
    wanted, distance = phrase
    size = len(wanted)
    if not size or size > len(words):
        return 0
    if size == 1 and not distance:
        if len(words) > _CHUNK:
            spend(len(words) >> 2)
        return words.count(wanted[0])
    found = 0
    for start in range(len(words) - size + 1):
        if start % _CHUNK == 0:
            spend((1 + size * bool(distance)) * min(_CHUNK, len(words) - start))
        if distance:
            found += all(is_near(words[start + place], word, distance) for place, word in enumerate(wanted))
        elif words[start] == wanted[0] and tuple(words[start : start + size]) == wanted:
            found += 1
    return found


def is_near(word: str, wanted: str, distance: int) -> bool:
    """Whether the edit distance (Levenshtein) of two words is at most `distance`."""
    if word == wanted:
        return True
    if abs(len(word) - len(wanted)) > distance or max(len(word), len(wanted)) > limits.FUZZY_CHARACTERS_MAX:
        return False
    row = list(range(len(wanted) + 1))
    spend(2 * len(wanted))
    for number, letter in enumerate(word, 1):
        above, row[0] = row[0], number
        for place, other in enumerate(wanted, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (letter != other))
        spend(3 * len(wanted))
        if min(row) > distance:
            return False
    return row[-1] <= distance
