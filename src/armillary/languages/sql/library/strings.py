"""String functions, REGEXMATCH included. Lengths and positions count UTF-16 code units, as the service does; a result
that would cut a surrogate pair in two has U+FFFD in place of the half. Upper and lower case are mapped character by
character, independent of any locale. Long strings are charged to the work budget before they are read or made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from armillary import limits
from armillary.languages.sql.library.numbers import ABSENT, count
from armillary.model.values import UNDEFINED, Value
from armillary.work import make, spend

if TYPE_CHECKING:
    from armillary.query.text.pattern_matching import Matcher

_LAST_SINGLE: Final = "\uffff"  # characters above it are two UTF-16 code units
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)
_LONG: Final = 1_024  # characters; reading shorter strings is not charged for
_READ_SHIFT: Final = 6  # log2 of the characters for one unit of work
_SMALL: Final = 64  # characters; memory of shorter strings is not counted
_STRING_BYTES: Final = 64  # memory of a short string
_PIECE: Final = 8_192  # characters mapped one by one between two charges to the work budget


def _read(text: str) -> str:
    if len(text) > _LONG:
        spend(len(text) >> _READ_SHIFT)
    return text


def _made(text: str) -> str:
    if len(text) > _SMALL:
        make(len(text))
    return text


# UTF-16.


def _is_simple(text: str) -> bool:
    if text.isascii():
        return True
    if len(text) > _LONG:
        return len(_read(text).encode("utf-16-le", "surrogatepass")) == 2 * len(text)
    return max(text) <= _LAST_SINGLE


def _units(text: str) -> str:
    """The string with one character for each UTF-16 code unit, so that Python's slicing and searching count as SQL
    does."""
    if _is_simple(_read(text)):
        return text
    if len(text) <= _PIECE:
        return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))
    make(4 * len(text))
    return "".join([_piece_units(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)])


def _piece_units(text: str) -> str:
    spend(len(text))
    return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))


def _joined(units: str) -> str:
    if units.isascii():
        return units
    if len(units) > _LONG:
        make(2 * len(units))
        spend(len(units) >> 3)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _slice(text: str, start: int, end: int) -> str:
    return _made(text[start:end] if _is_simple(text) else _joined(_units(text)[start:end]))


def length(text: Any) -> Value:
    if text.__class__ is not str:
        return UNDEFINED
    return len(text) if text.isascii() else len(_read(text).encode("utf-16-le", "surrogatepass")) // 2


def left(text: Any, size: Any) -> Value:
    units = count(size)
    if text.__class__ is not str or units is None:
        return UNDEFINED
    return _slice(text, 0, max(units, 0))


def right(text: Any, size: Any) -> Value:
    units = count(size)
    if text.__class__ is not str or units is None:
        return UNDEFINED
    whole_length: Any = length(text)
    return _slice(text, max(whole_length - max(units, 0), 0), whole_length)


def substring(text: Any, start: Any, size: Any) -> Value:
    first, units = count(start), count(size)
    if text.__class__ is not str or first is None or units is None:
        return UNDEFINED
    return _slice(text, first, first + units) if first >= 0 and units > 0 else ""


def index_of(text: Any, part: Any, start: Any = 0) -> Value:
    first = count(start)
    if text.__class__ is not str or part.__class__ is not str or first is None:
        return UNDEFINED
    return _units(text).find(_units(part), max(first, 0))


def last_index_of(text: Any, part: Any, start: Any = ABSENT) -> Value:
    """LASTINDEXOF searches backwards from `start`: a match ends there or before."""
    if text.__class__ is not str or part.__class__ is not str:
        return UNDEFINED
    units = _units(text)
    if start is ABSENT:
        return units.rfind(_units(part))
    last = count(start)
    if last is None:
        return UNDEFINED
    return units.rfind(_units(part), 0, last + 1) if last >= 0 else -1


def reverse(text: Any) -> Value:
    return _made(_read(text)[::-1]) if text.__class__ is str else UNDEFINED


# Case.


def lowered(text: str) -> str:
    return _cased(text, str.lower)


def raised(text: str) -> str:
    return _cased(text, str.upper)


def _cased(text: str, change: Callable[[str], str]) -> str:
    """Change the case of a string, in pieces if it is long."""
    if len(text) > _LONG:
        make(len(text))
        if not text.isascii() and len(text) > _PIECE:
            return "".join(
                [_piece_cased(text[start : start + _PIECE], change) for start in range(0, len(text), _PIECE)]
            )
    return _piece_cased(text, change)


def _piece_cased(text: str, change: Callable[[str], str]) -> str:
    if text.isascii():
        return change(_read(text))
    spend(len(text))
    # Characters whose counterpart is more than one character are kept.
    return "".join([one if len(one := change(character)) == 1 else character for character in text])


def lower(text: Any) -> Value:
    return lowered(text) if text.__class__ is str else UNDEFINED


def upper(text: Any) -> Value:
    return raised(text) if text.__class__ is str else UNDEFINED


# Comparison.


def _folded(text: Any, part: Any, ignore_case: Any) -> tuple[str, str] | None:
    if text.__class__ is not str or part.__class__ is not str or ignore_case.__class__ is not bool:
        return None
    if ignore_case:
        return lowered(text), lowered(part)
    if len(text) > _LONG:
        spend(len(text) >> _READ_SHIFT)
    return text, part


def starts_with(text: Any, prefix: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, prefix, ignore_case)
    return UNDEFINED if pair is None else pair[0].startswith(pair[1])


def ends_with(text: Any, suffix: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, suffix, ignore_case)
    return UNDEFINED if pair is None else pair[0].endswith(pair[1])


def contains(text: Any, part: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, part, ignore_case)
    return UNDEFINED if pair is None else pair[1] in pair[0]


def string_equals(first: Any, second: Any, ignore_case: Any = False) -> Value:
    pair = _folded(first, second, ignore_case)
    return UNDEFINED if pair is None else pair[0] == pair[1]


def _contains_all(text: Any, parts: tuple[Any, ...], ignore_case: bool) -> Value:
    found = [contains(text, part, ignore_case) for part in parts]
    if False in found:
        return False
    return UNDEFINED if UNDEFINED in found else True


def _contains_any(text: Any, parts: tuple[Any, ...], ignore_case: bool) -> Value:
    found = [contains(text, part, ignore_case) for part in parts]
    if True in found:
        return True
    return UNDEFINED if UNDEFINED in found else False


def contains_all_ignoring_case(text: Any, *parts: Any) -> Value:
    return _contains_all(text, parts, True)


def contains_all(text: Any, *parts: Any) -> Value:
    return _contains_all(text, parts, False)


def contains_any_ignoring_case(text: Any, *parts: Any) -> Value:
    return _contains_any(text, parts, True)


def contains_any(text: Any, *parts: Any) -> Value:
    return _contains_any(text, parts, False)


# Construction.


def concat(*parts: Any) -> Value:
    if not all(part.__class__ is str for part in parts):
        return UNDEFINED
    size = sum(map(len, parts))
    if size > limits.ITEM_BYTES_MAX:
        return UNDEFINED  # longer than the largest item
    if size > _SMALL:
        make(size)
    return "".join(parts)


def _trimmed(text: str, characters: str, *, is_left: bool, is_right: bool) -> str:
    if len(characters) <= _SMALL:
        _read(text)
        if is_left and is_right:
            return text.strip(characters)
        return text.lstrip(characters) if is_left else text.rstrip(characters)
    # Each character is searched among those to trim: quadratic at worst.
    make(len(text) + 100 * len(characters))
    spend(len(characters))
    trimmed = frozenset(characters)
    start, end = 0, len(text)
    while is_left and start < end and text[start] in trimmed:
        start += 1
        if start % _PIECE == 0:
            spend(_PIECE)
    while is_right and end > start and text[end - 1] in trimmed:
        end -= 1
        if end % _PIECE == 0:
            spend(_PIECE)
    return text[start:end]


def trim(text: Any, characters: Any = _BLANKS) -> Value:
    if text.__class__ is not str or characters.__class__ is not str:
        return UNDEFINED
    return _trimmed(text, characters, is_left=True, is_right=True)


def trim_left(text: Any, characters: Any = _BLANKS) -> Value:
    if text.__class__ is not str or characters.__class__ is not str:
        return UNDEFINED
    return _trimmed(text, characters, is_left=True, is_right=False)


def trim_right(text: Any, characters: Any = _BLANKS) -> Value:
    if text.__class__ is not str or characters.__class__ is not str:
        return UNDEFINED
    return _trimmed(text, characters, is_left=False, is_right=True)


def replace(text: Any, found: Any, replacement: Any) -> Value:
    if text.__class__ is not str or found.__class__ is not str or replacement.__class__ is not str or not found:
        return UNDEFINED
    grown = len(text) + _read(text).count(found) * (len(replacement) - len(found))
    if grown > limits.ITEM_BYTES_MAX:
        return UNDEFINED
    if grown > _SMALL:
        make(grown)
        spend(grown >> _READ_SHIFT)
    return text.replace(found, replacement)


def replicate(text: Any, times: Any) -> Value:
    if text.__class__ is not str or times.__class__ not in (int, float):
        return UNDEFINED
    # NaN fails the first comparison, the infinities the others.
    if not times >= 0 or times == float("inf") or len(text) * int(times) > limits.REPLICATED_CHARACTERS_MAX:
        return UNDEFINED
    size = len(text) * int(times)
    if size > _SMALL:
        make(size)
    return text * int(times) if text else ""


def string_join(array: Any, separator: Any) -> Value:
    if array.__class__ is not list or separator.__class__ is not str:
        return UNDEFINED
    if len(array) > _SMALL:
        spend(len(array))
    if not all(element.__class__ is str for element in array):
        return UNDEFINED
    size = sum(map(len, array)) + len(separator) * len(array)
    if size > limits.ITEM_BYTES_MAX:
        return UNDEFINED
    if size > _SMALL:
        make(size)
    return separator.join(array)


def string_split(text: Any, separator: Any) -> Value:
    if text.__class__ is not str or separator.__class__ is not str:
        return UNDEFINED
    if not separator:
        return [text]
    if len(text) > _LONG:
        parts = _read(text).count(separator) + 1
        make(parts * _STRING_BYTES + len(text))
        spend(parts)
    return text.split(separator)


# Regular expressions.

_REGEX_UNITS: Final = 40  # of work for each character of a pattern that is compiled
_REGEX_MODIFIERS: Final = frozenset("msix")


def regex_match(text: Any, pattern: Any, modifiers: Any = "") -> Value:
    """REGEXMATCH. The result of a malformed pattern is undefined; a pattern that uses an unsupported construct or would
    take too long is an error."""
    if text.__class__ is not str or pattern.__class__ is not str or modifiers.__class__ is not str:
        return UNDEFINED
    matcher = _matcher(pattern, modifiers)
    return UNDEFINED if matcher is None else matcher.occurs_in(text)


@lru_cache(maxsize=limits.PATTERNS_KEPT)
def _matcher(pattern: str, modifiers: str) -> Matcher | None:
    from armillary.query.text.pattern_matching import Matcher  # for the few queries that use RegexMatch
    from armillary.query.text.patterns import InvalidPattern, parse_pattern

    if not _REGEX_MODIFIERS.issuperset(modifiers) or len(pattern) > limits.PATTERN_CHARACTERS_MAX:
        return None
    spend(_REGEX_UNITS * (len(pattern) + 1))
    try:
        return Matcher(parse_pattern(pattern, modifiers))
    except InvalidPattern:
        return None
