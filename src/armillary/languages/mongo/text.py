"""`$text`: a search for words and phrases in the fields of a text index, and how well each document fits.

Words are compared by their stems, as `query/words.py` makes them, without case and accents. Scores follow the published
source of MongoDB: a word counts less the more often it has come before in the same text, and more in a short one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from armillary.languages.mongo import paths
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.stop_words import STOP_WORDS
from armillary.model.bson_values import Document, type_name
from armillary.query.words import words_of

_LANGUAGES: Final = {
    "en": "en-US", "english": "en-US", "de": "de-DE", "german": "de-DE", "es": "es-ES", "spanish": "es-ES",
    "fr": "fr-FR", "french": "fr-FR", "it": "it-IT", "italian": "it-IT", "pt": "pt-PT", "portuguese": "pt-PT",
    "none": "",
}  # fmt: skip
_PIECE: Final = re.compile(r'(-?)(?:"([^"]*)"|([^\s"]+))')
_WORD: Final = re.compile(r"[^\W_]+")
_FIELDS: Final = {"$search": str, "$language": str, "$caseSensitive": bool, "$diacriticSensitive": bool}
EVERY_FIELD: Final = "$**"


@dataclass(frozen=True, slots=True)
class TextIndex:
    """What is searched: paths with their weights; the path `$**` stands for every string of a document."""

    weights: Mapping[str, float]
    language: str = "english"


def text_index_of(definition: Document) -> TextIndex | None:
    """What a definition of an index says about words; None if it is about none."""
    fields = [path for path, kind in definition["key"].items() if kind == "text"]
    if not fields:
        return None
    weights = {EVERY_FIELD if path.endswith(EVERY_FIELD) else path: 1.0 for path in fields}
    weights |= {path: float(weight) for path, weight in (definition.get("weights") or {}).items()}
    return TextIndex(weights, definition.get("default_language", "english"))


def words_in(document: Document, index: TextIndex) -> set[str]:
    """The words that a document is found by."""
    language = language_of(index.language)
    return {word for text, _ in _texts(document, index) for word in _words(text, language)}


def language_of(name: str) -> str:
    found = _LANGUAGES.get(name.lower())
    if found is None:
        raise refusal(17262, f'unsupported language: "{name}" for text index version 3')
    return found


class TextQuery:
    def __init__(self, operand: Any, index: TextIndex) -> None:
        if type(operand) is not dict:
            raise bad_value("$text expects an object")
        for name, value in operand.items():
            if name not in _FIELDS:
                raise bad_value(f"unknown option to $text: {name}")
            if type(value) is not _FIELDS[name]:
                raise refusal(14, f'"{name}" had the wrong type: {type_name(value)}')
            if value is True:
                raise refusal(115, f"{name}: true is not supported")
        if "$search" not in operand:
            raise bad_value('Missing expected field "$search"')
        self._index = index
        self._language = language_of(operand.get("$language", index.language))
        self._terms: set[str] = set()
        self._phrases: list[str] = []
        self._unwanted: list[set[str]] = []
        self._unwanted_phrases: list[str] = []
        for sign, phrase, word in _PIECE.findall(operand["$search"]):
            self._read(sign == "-", phrase, word)

    @property
    def terms(self) -> frozenset[str]:
        """Words of which documents have at least one."""
        return frozenset(self._terms)

    @property
    def is_in_own_language(self) -> bool:
        return self._language == language_of(self._index.language)

    def _read(self, is_unwanted: bool, phrase: str, word: str) -> None:
        words = set(_words(phrase or word, self._language))
        if is_unwanted and phrase:
            self._unwanted_phrases.append(_bare(phrase))
        elif is_unwanted:
            self._unwanted.append(words)
        else:
            self._terms |= words
            if phrase:
                self._phrases.append(_bare(phrase))

    def matches(self, document: Document) -> bool:
        texts = [text for text, _ in _texts(document, self._index)]
        words = {word for text in texts for word in _words(text, self._language)}
        if not self._terms & words or any(unwanted and unwanted <= words for unwanted in self._unwanted):
            return False
        if not self._phrases and not self._unwanted_phrases:
            return True
        plain = [_bare(text) for text in texts]
        if any(phrase in text for text in plain for phrase in self._unwanted_phrases):
            return False
        return all(any(phrase in text for text in plain) for phrase in self._phrases)

    def score(self, document: Document) -> float:
        total = 0.0
        for text, weight in _texts(document, self._index):
            words = _words(text, self._language)
            counts = Counter(words)
            for term in self._terms:
                count = counts[term]
                if count:
                    frequency = sum(0.5**place for place in range(count))
                    exactness = 1.1 if _bare(text) == term else 1.0
                    total += weight * frequency * (0.5 * count / len(words) + 0.5) * exactness
        return total


def _texts(document: Document, index: TextIndex) -> Iterator[tuple[str, float]]:
    for path, weight in index.weights.items():
        if path == EVERY_FIELD:
            for text in _strings(document):
                yield text, weight
        else:
            for value in paths.values_at(document, paths.split(path)):
                if type(value) is str:
                    yield value, weight


def _strings(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        each = pending.pop()
        if type(each) is str:
            yield each
        elif type(each) is dict:
            pending.extend(reversed(each.values()))
        elif type(each) is list:
            pending.extend(reversed(each))


def _bare(text: str) -> str:
    """In lower case and without accents."""
    text = text.lower()
    if text.isascii():
        return text
    return "".join([each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)])


def _words(text: str, language: str) -> tuple[str, ...]:
    text = _bare(text)
    if not language:
        return tuple(_WORD.findall(text))
    left_out = STOP_WORDS.get(language)
    if left_out is not None:
        text = " ".join([word for word in _WORD.findall(text) if word not in left_out])
    return words_of(text, language)
