"""Collations: comparison of strings by the rules of a language, and with it of all values.

Letters are compared without case and accents first, then by accents, then by case, up to the strength of the collation.
This is right for languages that order letters as English does, and for the few whose additional letters are listed
here; other languages are refused instead of being sorted wrongly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.filters.value_types import number_of
from armillary.model.bson import bson_values
from armillary.model.bson.bson_values import CLASS_ARRAY, CLASS_OBJECT, CLASS_STRING, Key
from armillary.work import make, spend

_UNKNOWN_FIELD, _MISSING_FIELD, _OTHER_VERSION = 40415, 40414, 161
_VERSION: Final = "57.1"  # the version of ICU's rules that MongoDB reports

_ENGLISH: Final[dict[str, str]] = {}
# Letters that a language has in addition to those of English, each after the letter that it follows.
_DANISH: Final = {"æ": "za", "ä": "za", "ø": "zb", "ö": "zb", "å": "zc"}
_SWEDISH: Final = {"å": "za", "ä": "zb", "æ": "zb", "ö": "zc", "ø": "zc"}
_TAILORED: Final[dict[str, dict[str, str]]] = {
    **dict.fromkeys("en de fr it nl pt ga id ms sw zu af ca eu gl lb mt".split(), _ENGLISH),
    "es": {"ñ": "n~"},
    **dict.fromkeys(("sv", "fi"), _SWEDISH),
    **dict.fromkeys(("da", "nb", "nn", "no"), _DANISH),
}
_LOCALE: Final = re.compile(r"([a-z]{2})(?:_[A-Z][A-Za-z]*)*(@.*)?")
_LONG: Final = 256  # characters; the work on shorter texts is not metered by size
_KEY_BYTES: Final = 120  # memory of a key for each character of the text
_DIGITS: Final = re.compile(r"(\d+)")
_FIELDS: Final = frozenset(
    "locale strength caseLevel caseFirst numericOrdering alternate maxVariable backwards normalization version".split()
)
_CHOICES: Final = {
    "caseFirst": ("off", "upper", "lower"),
    "alternate": ("non-ignorable", "shifted"),
    "maxVariable": ("punct", "space"),
}


@dataclass(frozen=True, slots=True)
class Collation:
    locale: str
    strength: int = 3
    has_case_level: bool = False
    upper_first: bool = False
    is_numeric: bool = False
    ignores: str = ""  # "": nothing; "space": blanks; "punct": blanks and punctuation
    is_backwards: bool = False

    def text_key(self, text: str) -> tuple[Any, ...]:
        tailored = _TAILORED[self.locale[:2]]
        if len(text) > _LONG:
            make(len(text) * _KEY_BYTES)
        spend(8 * min(len(text), _LONG))
        primary: list[tuple[int, Any]] = []
        accents: list[str] = []
        cases: list[bool] = []
        for part in _DIGITS.split(text) if self.is_numeric else (text,):
            if self.is_numeric and part.isdecimal():
                primary.append((_DIGIT, int(part)))
                accents.append("")
                cases.append(False)
                continue
            for place, letter in enumerate(unicodedata.normalize("NFC", part)):
                if place % _LONG == _LONG - 1:
                    spend(8 * _LONG)
                small = letter.lower()
                base = tailored.get(small)
                marks = ""
                if base is None:
                    base, marks = _taken_apart(small)
                rank = _rank(base[0])
                if self._is_ignored(rank):
                    continue
                primary.extend([(rank, each) for each in base])
                accents.append(marks)
                cases.append((letter != small) != self.upper_first)
        key: tuple[Any, ...] = (tuple(primary),)
        if self.strength > 1:
            key += (tuple(reversed(accents)) if self.is_backwards else tuple(accents),)
        if self.strength > 2 or self.has_case_level:
            key += (tuple(cases),)
        return (*key, text) if self.strength > 4 else key

    def _is_ignored(self, rank: int) -> bool:
        return (rank == _BLANK and self.ignores != "") or (rank == _PUNCTUATION and self.ignores == "punct")

    def folded(self, value: Any) -> Any:
        """The value with its strings folded, so that strings which are equal under this collation become the same
        string.
        """
        kind = type(value)
        if kind is str:
            return repr(self.text_key(value))
        if kind is dict:
            return {name: self.folded(each) for name, each in value.items()}
        return [self.folded(each) for each in value] if kind is list else value

    def order_key(self, value: Any) -> Key:
        """As `bson_values.order_key`, with all strings in the order of this collation."""
        kind = type(value)
        if kind is str:
            return (CLASS_STRING, self.text_key(value))
        if kind is dict:
            spend(3 + 6 * len(value))
            fields = [(name, self.order_key(each)) for name, each in value.items()]
            return (CLASS_OBJECT, tuple([(key[0], name, key) for name, key in fields]))
        if kind is list:
            return (CLASS_ARRAY, tuple(bson_values.list_keys(value, self.order_key)))
        return bson_values.order_key(value)


def key_function(collation: Collation | None) -> Callable[[Any], Key]:
    """The function from values to keys that sorting, grouping and equality use under a collation."""
    return bson_values.order_key if collation is None else collation.order_key


def collation_of(key: Callable[[Any], Key]) -> Collation | None:
    """The collation whose `key_function` this is."""
    owner = getattr(key, "__self__", None)
    return owner if isinstance(owner, Collation) else None


def parse_collation(given: Any) -> Collation | None:
    """None for the simple collation, which compares strings by their bytes."""
    if given is None or given == {}:
        return None
    if type(given) is not dict:
        raise refusal(14, "The collation must be an object.")
    for name in given:
        if name not in _FIELDS:
            raise refusal(_UNKNOWN_FIELD, f"BSON field 'collation.{name}' is an unknown field.")
    locale = given.get("locale")
    if type(locale) is not str:
        raise refusal(_MISSING_FIELD, "BSON field 'collation.locale' is missing but a required field")
    if locale == "simple":
        if set(given) - {"locale", "version"}:
            raise bad_value("The simple collation takes no other fields.")
        return None
    found = _LOCALE.fullmatch(locale)
    if found is None or found[1] not in _TAILORED or found[2]:
        raise bad_value(
            f"Field 'locale' is invalid in: {bson_values.shell_text(given)}. Known are languages whose letters are "
            f"ordered as here: {', '.join(sorted(_TAILORED))}."
        )
    if given.get("version", _VERSION) != _VERSION:
        raise refusal(
            _OTHER_VERSION, f"Requested collation version '{given['version']}', but the only one is '{_VERSION}'"
        )
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            raise bad_value(f"The collation's {name} must be one of {', '.join(choices)}.")
    strength = given.get("strength", 3)
    if not bson_values.is_number(strength):
        raise refusal(14, f"BSON field 'collation.strength' is the wrong type '{bson_values.type_name(strength)}'.")
    if not 0 <= number_of(strength) <= 5:
        raise refusal(51024, f"BSON field 'strength' value must be >= 0 and <= 5, actual value '{strength}'")
    if strength not in (1, 2, 3, 4, 5):
        raise bad_value(f"Field 'strength' must be an integer 1 through 5. Got: {strength}")
    backwards = _flag(given, "backwards", default=locale.startswith("fr_CA"))
    _flag(given, "normalization")  # no effect: texts are always compared in their normal form
    shifted = given.get("alternate") == "shifted"
    return Collation(
        locale,
        int(strength),
        _flag(given, "caseLevel"),
        given.get("caseFirst") == "upper",
        _flag(given, "numericOrdering"),
        given.get("maxVariable", "punct") if shifted and strength < 4 else "",
        backwards,
    )


def whole_collation(given: dict[str, Any]) -> dict[str, Any]:
    """The collation with all options and their defaults, as `listIndexes` shows it."""
    shown = {
        "locale": given["locale"],
        "caseLevel": False,
        "caseFirst": "off",
        "strength": 3,
        "numericOrdering": False,
        "alternate": "non-ignorable",
        "maxVariable": "punct",
        "normalization": False,
        "backwards": given["locale"].startswith("fr_CA"),
        "version": _VERSION,
    }
    return shown | given


def _flag(given: dict[str, Any], name: str, *, default: bool = False) -> bool:
    value = given.get(name, default)
    if type(value) is not bool:
        raise refusal(14, f"BSON field 'collation.{name}' is the wrong type '{bson_values.type_name(value)}'.")
    return value


_BLANK, _PUNCTUATION, _SYMBOL, _DIGIT, _LETTER = range(5)


def _rank(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] in "ZC":
        return _BLANK
    return {"P": _PUNCTUATION, "S": _SYMBOL, "N": _DIGIT}.get(category[0], _LETTER)


def _taken_apart(letter: str) -> tuple[str, str]:
    """A letter without its accents, and the accents."""
    if letter.isascii():
        return letter, ""
    parts = unicodedata.normalize("NFKD", letter.replace("ß", "ss").replace("æ", "ae").replace("œ", "oe"))
    bare = "".join([part for part in parts if not unicodedata.combining(part)])
    return (bare or letter), "".join([part for part in parts if unicodedata.combining(part)])
