"""Words to stems, by language: what "sails", "sailed" and "sailing" have in common, and the words too frequent to look
for. English goes by M. F. Porter's rules of 1980; the other languages by light ones that take off the endings of
number, gender and the commonest inflections, and the accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final

from armillary import limits

_ENGLISH_STOP_WORDS: Final = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
_PORTUGUESE_STOP_WORDS: Final = frozenset(
    "a o as os e de da do das dos em na no nas nos um uma uns umas para por pelo pela com se que não ou ao à aos às "
    "mas como mais é são foi ser seu sua isso este esta".split()
)
STOP_WORDS: Final = {
    "en-US": _ENGLISH_STOP_WORDS,
    "de-DE": frozenset(
        "der die das den dem des ein eine einer eines einem einen und oder aber in im an am auf aus bei mit nach von "
        "vom zu zum zur für über unter ist sind war waren wird werden nicht kein keine es er sie wir ihr ich als auch "
        "wie so dass daß sich".split()
    ),
    "es-ES": frozenset(
        "el la los las un una unos unas y e o u de del al a en por para con sin se su sus lo le les que no es son fue "
        "era como más pero este esta esto ese esa".split()
    ),
    "fr-FR": frozenset(
        "le la les un une des du de au aux et ou en dans par pour sur avec sans ce cet cette ces se sa son ses il elle "
        "ils elles on ne pas que qui est sont était être mais comme plus à y".split()
    ),
    "it-IT": frozenset(
        "il lo la i gli le un uno una e ed o di del dello della dei degli delle a al allo alla ai agli alle da dal "
        "dalla in nel nella con su sul sulla per tra fra che non è sono era si suo sua come più ma questo "
        "questa".split()
    ),
    "pt-BR": _PORTUGUESE_STOP_WORDS,
    "pt-PT": _PORTUGUESE_STOP_WORDS,
}
ELISIONS: Final = frozenset(["fr-FR", "it-IT"])  # l'eau, dell'acqua


@lru_cache(maxsize=limits.STEMS_KEPT)
def stem(word: str, language: str) -> str:
    return _STEMMERS[language](word)


# English.

_VOWELS: Final = "aeiou"
_STEP_2: Final = [
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
]  # fmt: skip
_STEP_3: Final = [
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
]  # fmt: skip
_STEP_4: Final = (
    "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()
)  # the longest that fits counts
_STEP_4_BY_LENGTH: Final = sorted(_STEP_4, key=len, reverse=True)


def _is_consonant(word: str, place: int) -> bool:
    letter = word[place]
    if letter in _VOWELS:
        return False
    return letter != "y" or place == 0 or not _is_consonant(word, place - 1)


def _measure(word: str) -> int:
    """How many times a vowel is followed by a consonant: Porter's m."""
    kinds = [_is_consonant(word, place) for place in range(len(word))]
    return sum(not before and after for before, after in pairwise(kinds))


def _has_vowel(word: str) -> bool:
    return any(not _is_consonant(word, place) for place in range(len(word)))


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant, the last not w, x or y."""
    last = len(word) - 1
    return (
        last >= 2
        and _is_consonant(word, last)
        and not _is_consonant(word, last - 1)
        and _is_consonant(word, last - 2)
        and word[last] not in "wxy"
    )


def _english(word: str) -> str:
    if len(word) <= 2 or not word.isascii() or not word.isalpha() or len(word) > limits.STEMMED_CHARACTERS_MAX:
        return word
    word = _english_plural(word)
    word = _english_past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for endings in (_STEP_2, _STEP_3):
        word = _replaced(word, endings)
    for ending in _STEP_4_BY_LENGTH:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if _measure(rest) > 1 and (ending != "ion" or rest[-1:] in ("s", "t")):
                word = rest
            break
    if word.endswith("e"):
        rest = word[:-1]
        if _measure(rest) > 1 or (_measure(rest) == 1 and not _ends_short(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _english_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _english_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if not _has_vowel(rest):
                return word
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _ends_double(rest) and rest[-1] not in "lsz":
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest
    return word


def _replaced(word: str, endings: list[tuple[str, str]]) -> str:
    for ending, replacement in endings:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + replacement if _measure(rest) > 0 else word
    return word


# The others.


def _plain(word: str) -> str:
    """Without accents."""
    if word.isascii():
        return word
    parts = unicodedata.normalize("NFKD", word.replace("ß", "ss").replace("œ", "oe").replace("æ", "ae"))
    return "".join([part for part in parts if not unicodedata.combining(part)])


def _light(endings: str, replacements: dict[str, str] | None = None, least: int = 3) -> Callable[[str], str]:
    """Takes off the longest ending that leaves a stem of at least so many letters, after one replacement."""
    replaced = re.compile(f"(?:{'|'.join(sorted(replacements, key=len, reverse=True))})$") if replacements else None
    ordered = sorted(endings.split(), key=len, reverse=True)

    def light(word: str) -> str:
        word = _plain(word)
        if replaced is not None and replacements is not None:
            found = replaced.search(word)
            if found is not None and found.start() >= least - 1:
                word = word[: found.start()] + replacements[found[0]]
        for ending in ordered:
            if word.endswith(ending) and len(word) - len(ending) >= least:
                return word[: -len(ending)]
        return word

    return light


_german = _light("ern em en er es e", {"os": "o", "is": "i"})
_spanish = _light(
    "as os es a o e s", {"ces": "z", "aciones": "acion", "iones": "ion", "amente": "a", "mente": "", "ando": "ar",
    "iendo": "er"}
)  # fmt: skip
_french = _light(
    "ees ee es er ez e s x", {"aux": "al", "eux": "eu", "euses": "eu", "euse": "eu", "issements": "iss",
    "issement": "iss", "ements": "", "ement": "", "amment": "ant", "emment": "ent", "ives": "if", "ive": "if",
    "trices": "teur", "trice": "teur", "antes": "ant", "ante": "ant"}
)  # fmt: skip
_italian = _light(
    "are ere ire i e a o", {"chi": "c", "che": "c", "ghi": "g", "ghe": "g", "azioni": "azion", "azione": "azion",
    "amente": "", "mente": "", "ando": "", "endo": ""}
)  # fmt: skip
_portuguese = _light(
    "as os es a o e s", {"oes": "ao", "aes": "ao", "ais": "al", "eis": "el", "ois": "ol", "ns": "m", "res": "r",
    "amente": "a", "mente": "", "ando": "ar", "endo": "er", "indo": "ir"}
)  # fmt: skip

_STEMMERS: Final[dict[str, Callable[[str], str]]] = {
    "en-US": _english,
    "de-DE": _german,
    "es-ES": _spanish,
    "fr-FR": _french,
    "it-IT": _italian,
    "pt-BR": _portuguese,
    "pt-PT": _portuguese,
}
