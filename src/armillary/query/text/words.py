"""The words of a text, for every language that searches in texts: in lower case, without stop words, reduced to their
stems (`stemming.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from armillary import limits
from armillary.query.text.stemming import ELISIONS, STOP_WORDS, stem
from armillary.work import current, make, spend

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CHUNK: Final = 256  # words that are reduced before the event loop may have its turn
_LONG: Final = 2_048  # characters
_WORD_UNITS: Final = 15  # of work for each
_WORD_BYTES: Final = 80  # of memory for each
_ELIDED_MAX: Final = 4  # letters before the apostrophe of "l'eau", "dell'acqua"


def words_of(text: str, language: str) -> tuple[str, ...]:
    if len(text) <= limits.TEXT_KEPT_CHARACTERS_MAX:
        return _kept_words(text, language)
    # The conditions on a longer text share its words while its item is evaluated.
    run = current()
    key = ("words", id(text), language)
    known = run.derived.get(key) if run.derived is not None else None
    if known is not None:
        return known[1]  # type: ignore[no-any-return]
    words = _words(text, language)
    if run.made_bytes:
        run.derived = run.derived or {}
        run.derived[key] = (text, words)
    return words


def _words(text: str, language: str) -> tuple[str, ...]:
    stop_words = STOP_WORDS[language]
    has_elisions = language in ELISIONS
    words: list[str] = []
    if len(text) > _LONG:
        make(len(text))
        found: Iterable[str] = _long(text)
    else:
        found = _WORD.findall(text.lower())
    for word in found:
        if not word.isalnum():
            word = _without_apostrophe(word, has_elisions)
        if word not in stop_words:
            words.append(stem(word, language))
    return tuple(words)


def _long(text: str) -> Iterator[str]:
    for place, found in enumerate(_WORD.finditer(text.lower())):
        if place % _CHUNK == 0:
            make(_WORD_BYTES * _CHUNK)
            spend(_WORD_UNITS * _CHUNK)
        yield found[0]


# A filter with several terms asks for the words of the same text again, and for those of its terms with every item.
_kept_words = lru_cache(maxsize=limits.TEXTS_KEPT)(_words)


def _without_apostrophe(word: str, has_elisions: bool) -> str:
    before, _, after = word.replace("’", "'").partition("'")
    if has_elisions and len(before) <= _ELIDED_MAX:
        return after.replace("'", "")
    return before if after == "s" else before + after.replace("'", "")
