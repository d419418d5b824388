"""`$text`: searches for words and phrases in the fields of a text index, and the score of each document.

Words are compared by their stems (`query/text/words.py`), without case and accents. Scores follow the published source
of MongoDB: repetitions of a word in a text add less each time, and a word in a short text adds more.
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
from armillary.model.bson.bson_values import Document, type_name
from armillary.query.text.stemming import stem
from armillary.query.text.words import words_of
from armillary.work import spend

_LANGUAGES: Final = {
    "en": "en-US", "english": "en-US", "de": "de-DE", "german": "de-DE", "es": "es-ES", "spanish": "es-ES",
    "fr": "fr-FR", "french": "fr-FR", "it": "it-IT", "italian": "it-IT", "pt": "pt-PT", "portuguese": "pt-PT",
    "none": "",
}  # fmt: skip
_PART: Final = 32 * 1024  # characters of a text that are processed at once
_PIECE: Final = re.compile(r'(-?)(?:"([^"]*)"|([^\s"]+))')
_WORD: Final = re.compile(r"[^\W_]+")
_ENGLISH: Final = "en-US"
_ENGLISH_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")  # an apostrophe is part of an English word
_OVERRIDE: Final = "language"  # the default name of the field with the language of a document
_FIELDS: Final = {"$search": str, "$language": str, "$caseSensitive": bool, "$diacriticSensitive": bool}
EVERY_FIELD: Final = "$**"
# Words that a text index leaves out, because nearly every text has them: the lists of the Snowball project. In
# languages without a list every word is indexed.
_ENGLISH_STOP_WORDS: Final = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being
have has had having do does did doing would should could ought a an the and but if or because as until while of at by
for with about against between into through during before after above below to from up down in out on off over under
again further then once here there when where why how all any both each few more most other some such no nor not only
own same so than too very
"""
_ENGLISH_CONTRACTIONS: Final = """
i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll he'll
she'll we'll they'll isn't aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't won't wouldn't shan't
shouldn't can't cannot couldn't mustn't let's that's who's what's here's there's when's where's why's how's
"""
_GERMAN_STOP_WORDS: Final = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei bin bis
bist da damit dann das dass dein deine dem den der des derselbe desselben dich die dies diese diesem diesen dieser
dieses dir doch dort du durch ein eine einem einen einer eines er es etwas euer eure fur gegen gewesen hab habe haben
hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre im in indem ins ist jede jedem jeden jeder jedes jene
jetzt kann kein keine konnen machen man manche mein meine mich mir mit muss musste nach nicht nichts noch nun nur ob
oder ohne sehr sein seine selbst sich sie sind so solche soll sollte sondern sonst uber um und uns unser unter viel
vom von vor wahrend war waren warst was weg weil weiter welche wenn werde werden wie wieder will wir wird wirst wo
wollen wurde wurden zu zum zur zwar zwischen
"""
_STOP_WORDS: Final[dict[str, frozenset[str]]] = {
    "en-US": frozenset((_ENGLISH_STOP_WORDS + _ENGLISH_CONTRACTIONS).split()),
    "de-DE": frozenset(_GERMAN_STOP_WORDS.split()),
}


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The fields of a text index with their weights; the path `$**` stands for every string of a document."""

    weights: Mapping[str, float]
    language: str = "english"
    override: str = _OVERRIDE


def text_index_of(definition: Document) -> TextIndex | None:
    """The text index of an index definition; None if it is not a text index."""
    fields = [path for path, kind in definition["key"].items() if kind == "text"]
    if not fields:
        return None
    weights = {EVERY_FIELD if path.endswith(EVERY_FIELD) else path: 1.0 for path in fields}
    weights |= {path: float(weight) for path, weight in (definition.get("weights") or {}).items()}
    language = definition.get("default_language", "english")
    return TextIndex(weights, language, definition.get("language_override", _OVERRIDE))


def words_in(document: Document, index: TextIndex) -> set[str]:
    """The words under which a document is indexed."""
    language = _language_in(document, index)
    if language is None:
        raise refusal(17262, f"language override unsupported: {document[index.override][:64]}")
    return {word for text, _ in _texts(document, index) for word in _words(_bare(text), language)}


def language_of(name: str, code: int = 2) -> str:
    found = _LANGUAGES.get(name.lower())
    if found is None:
        raise refusal(code, f'unsupported language: "{name}" for text index version 3')
    return found


def _language_in(document: Document, index: TextIndex) -> str | None:
    """The language of a document: its own field, or the default of the index. None if it is not supported."""
    own = document.get(index.override)
    return _LANGUAGES.get((own if type(own) is str else index.language).lower())


class TextQuery:
    def __init__(self, operand: Any, index: TextIndex) -> None:
        if type(operand) is not dict:
            raise bad_value("$text expects an object")
        for name, value in operand.items():
            if name not in _FIELDS:
                raise bad_value(f"unknown option to $text: {name}")
            if type(value) is not _FIELDS[name]:
                raise refusal(14, f'"{name}" had the wrong type: {type_name(value)}')
        if "$search" not in operand:
            raise bad_value('Missing expected field "$search"')
        self._index = index
        self._language = language_of(operand.get("$language", index.language))
        self._keeps_case = operand.get("$caseSensitive", False)
        self._keeps_accents = operand.get("$diacriticSensitive", False)
        if (self._keeps_case or self._keeps_accents) and self._language not in ("", _ENGLISH):
            raise refusal(115, "$caseSensitive and $diacriticSensitive are supported for English and 'none' only")
        self._keys: set[str] = set()  # the terms in the form of the index
        self._terms: set[str] = set()
        self._phrases: list[str] = []
        self._unwanted: list[set[str]] = []
        self._unwanted_phrases: list[str] = []
        for sign, phrase, word in _PIECE.findall(operand["$search"]):
            self._read(sign == "-", phrase, word)

    @property
    def terms(self) -> frozenset[str]:
        """Words of which every matching document has at least one."""
        return frozenset(self._keys)

    def _folded(self, text: str) -> str:
        return _bare(text, keeps_case=self._keeps_case, keeps_accents=self._keeps_accents)

    def _read(self, is_unwanted: bool, phrase: str, word: str) -> None:
        words = set(_words(self._folded(phrase or word), self._language))
        if is_unwanted and phrase:
            self._unwanted_phrases.append(self._folded(phrase))
        elif is_unwanted:
            self._unwanted.append(words)
        else:
            self._keys |= set(_words(_bare(phrase or word), self._language))
            self._terms |= words
            if phrase:
                self._phrases.append(self._folded(phrase))

    def matches(self, document: Document) -> bool:
        texts = [self._folded(text) for text, _ in _texts(document, self._index)]
        language = _language_in(document, self._index) or ""
        wanted = self._terms.union(*self._unwanted)
        words: set[str] = set()
        for text in texts:
            for piece in _pieces(text):
                words.update(wanted.intersection(_words(piece, language)))
        if not self._terms & words or any(unwanted and unwanted <= words for unwanted in self._unwanted):
            return False
        if not self._phrases and not self._unwanted_phrases:
            return True
        if any(phrase in text for text in texts for phrase in self._unwanted_phrases):
            return False
        return all(any(phrase in text for text in texts) for phrase in self._phrases)

    def score(self, document: Document) -> float:
        total = 0.0
        language = _language_in(document, self._index) or ""
        for text, weight in _texts(document, self._index):
            text = self._folded(text)
            counts: Counter[str] = Counter()
            number = 0
            for piece in _pieces(text):
                words = _words(piece, language)
                number += len(words)
                counts.update([word for word in words if word in self._terms])
            for term in self._terms:
                count = counts[term]
                if count:
                    frequency = sum(0.5**place for place in range(count))
                    exactness = 1.1 if text == term else 1.0
                    total += weight * frequency * (0.5 * count / number + 0.5) * exactness
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
        spend(2)
        if type(each) is str:
            yield each
        elif type(each) is dict:
            pending.extend(reversed(each.values()))
        elif type(each) is list:
            pending.extend(reversed(each))


def _bare(text: str, *, keeps_case: bool = False, keeps_accents: bool = False) -> str:
    """The text in lower case and without accents, unless the search is sensitive to them."""
    if not keeps_case:
        text = text.lower()
    if keeps_accents or text.isascii():
        return text
    if len(text) > _PART:
        return "".join([_bare(piece, keeps_case=True) for piece in _pieces(text)])
    return "".join([each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)])


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that end between words, each some milliseconds of work."""
    first = 0
    while len(text) - first > _PART:
        spend(_PART)
        last = text.find(" ", first + _PART) + 1
        if not last:
            break
        yield text[first:last]
        first = last
    spend(min(len(text) - first, _PART))
    yield text[first:] if first else text


def _words(text: str, language: str) -> tuple[str, ...]:
    """The words of a text that is already folded."""
    if not language:
        return tuple(_WORD.findall(text))
    if language == _ENGLISH:
        words = _ENGLISH_WORD.findall(text.replace("\u2019", "'"))
        return tuple([stem(_owned(word), language) for word in words if word.lower() not in _STOP_WORDS[language]])
    left_out = _STOP_WORDS.get(language)
    if left_out is not None:
        text = " ".join([word for word in _WORD.findall(text) if word.lower() not in left_out])
    return words_of(text, language)


def _owned(word: str) -> str:
    """The word without a possessive ending and apostrophes."""
    return word.removesuffix("'s").replace("'", "")
