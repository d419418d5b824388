"""The words of a text, for every language that searches in texts: in lower case, without stop words, reduced to their
stems (`stemming.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from armillary import limits
from armillary.query.stemming import ELISIONS, STOP_WORDS, stem

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ELIDED_MAX: Final = 4  # letters before the apostrophe of "l'eau", "dell'acqua"


def words_of(text: str, language: str) -> tuple[str, ...]:
    return _kept_words(text, language) if len(text) <= limits.TEXT_KEPT_CHARACTERS_MAX else _words(text, language)


def _words(text: str, language: str) -> tuple[str, ...]:
    stop_words = STOP_WORDS[language]
    has_elisions = language in ELISIONS
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if not word.isalnum():
            word = _without_apostrophe(word, has_elisions)
        if word not in stop_words:
            words.append(stem(word, language))
    return tuple(words)


# A filter with several terms asks for the words of the same text again, and for those of its terms with every item.
_kept_words = lru_cache(maxsize=limits.TEXTS_KEPT)(_words)


def _without_apostrophe(word: str, has_elisions: bool) -> str:
    before, _, after = word.replace("’", "'").partition("'")
    if has_elisions and len(before) <= _ELIDED_MAX:
        return after.replace("'", "")
    return before if after == "s" else before + after.replace("'", "")
