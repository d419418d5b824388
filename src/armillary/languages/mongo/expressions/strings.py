"""String operators: `$concat`, `$substrCP`, `$indexOfCP`, `$split`, `$trim`, regular expressions. Upper and lower case
apply to ASCII letters only; positions are UTF-8 bytes or code points, depending on the operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.regex import Regex
from bson.timestamp import Timestamp

from armillary import limits, work
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.calendar import date_of
from armillary.languages.mongo.expressions.compiling import Function, Named, Operator
from armillary.languages.mongo.expressions.date_texts import MONTHS, iso_text
from armillary.languages.mongo.expressions.numbers import RANKS, as_double, as_int32, double_text, is_nullish
from armillary.languages.mongo.filters.regexes import INVALID_PATTERN, regex_matcher
from armillary.model.bson.bson_values import MISSING, regex_options, shell_text, type_name
from armillary.query.text.pattern_matching import Matcher

_COUNTED: Final = 256  # characters; the work on shorter strings is not metered by size
_PIECE: Final = 16 * limits.KB
_PART_BYTES, _MATCH_BYTES = 64, 400
_TO_THE_END: Final = object()
_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_BLANKS: Final = "\0\t\n\v\f\r \u00a0\u1680" + "".join(chr(code) for code in range(0x2000, 0x200B))


def text_of(value: Any) -> str:
    """The text that older operators use for values which are not strings."""
    if is_nullish(value):
        return ""
    if isinstance(value, Code):
        return str(value)
    if type(value) is str:
        return value
    if type(value) is float:
        return double_text(value)
    if type(value) in RANKS:
        return str(value)
    if type(value) is DatetimeMS:
        return iso_text(int(value))
    if type(value) is Timestamp:
        _, month, day = date_of(value.time // 86_400)
        seconds = value.time % 86_400
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{MONTHS[month - 1][:3]} {day:2} {clock}:{value.inc}"  # as the MongoDB server formats timestamps
    raise refusal(16007, f"can't convert from BSON type {type_name(value)} to String")


def concat(*values: Any) -> Any:
    for value in values:
        if type(value) is not str:
            if is_nullish(value):
                return None
            raise refusal(16702, f"$concat only supports strings, not {type_name(value)}")
    length = sum([len(value) for value in values])
    if length > _COUNTED:
        check_length(length)
        work.make(length)
    return "".join(values)


def check_length(length: int) -> None:
    if length > limits.MONGO_DOCUMENT_BYTES_MAX:
        raise refusal(10334, f"$concat makes a string of {length} characters, more than a document holds")


def _translated(text: str, table: dict[int, int]) -> str:
    if len(text) <= _COUNTED:
        return text.translate(table)
    work.make(len(text))
    made = []
    for first in range(0, len(text), _PIECE):  # in pieces of some milliseconds of work, if the text is not ASCII
        work.spend(_PIECE // 4)
        made.append(text[first : first + _PIECE].translate(table))
    return "".join(made)


def _strcasecmp(left: Any, right: Any) -> int:
    one, other = _translated(text_of(left), _UPPER), _translated(text_of(right), _UPPER)
    return (one > other) - (one < other)


# Parts.


def _substr_bytes(value: Any, start: Any, length: Any) -> str:
    text = text_of(value)
    if len(text) > _COUNTED:
        work.make(2 * len(text))
    encoded = text.encode("utf-8", "surrogatepass")
    if type(start) not in RANKS:
        raise refusal(16034, f"$substrBytes:  starting index must be a numeric type (is BSON type {type_name(start)})")
    if type(length) not in RANKS:
        raise refusal(16035, f"$substrBytes:  length must be a numeric type (is BSON type {type_name(length)})")
    first, count = _clamped(start), _clamped(length)
    if first < 0:
        raise refusal(50752, f"$substrBytes:  starting index must be non-negative (got: {first})")
    if first >= len(encoded):
        return ""
    last = len(encoded) if count < 0 else min(len(encoded), first + count)
    if _continues(encoded, first):
        raise refusal(28656, "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.")
    if last < len(encoded) and _continues(encoded, last):
        raise refusal(28657, "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.")
    return encoded[first:last].decode("utf-8", "surrogatepass")


def _clamped(number: Any) -> int:
    """Limited to the range of positions; NaN is 0."""
    double = as_double(number)
    return 0 if double != double else int(min(max(double, -1e9), 1e9))


def _continues(encoded: bytes, place: int) -> bool:
    return encoded[place] & 0xC0 == 0x80


def _substr_cp(value: Any, start: Any, length: Any) -> str:
    text = text_of(value)
    if type(start) not in RANKS:
        raise refusal(34450, f"$substrCP: starting index must be a numeric type (is BSON type {type_name(start)})")
    first = as_int32(start)
    if first is None:
        raise refusal(34451, "$substrCP: starting index cannot be represented as a 32-bit integral value")
    if type(length) not in RANKS:
        raise refusal(34452, f"$substrCP: length must be a numeric type (is BSON type {type_name(length)})")
    count = as_int32(length)
    if count is None:
        raise refusal(34453, "$substrCP: length cannot be represented as a 32-bit integral value")
    if count < 0:
        raise refusal(34454, "$substrCP: length must be a nonnegative integer.")
    if first < 0:
        raise refusal(34455, "$substrCP: the starting index must be nonnegative integer.")
    if len(text) > _COUNTED:
        work.make(min(count, len(text)))
    return text[first : first + count]


def _length(name: str, code: int, measure: Callable[[str], int]) -> Callable[[Any], int]:
    def evaluate(value: Any) -> int:
        if type(value) is not str:
            raise refusal(code, f"{name} requires a string argument, found: {type_name(value)}")
        return measure(value)

    return evaluate


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def bound(name: str, value: Any, which: str) -> int:
    """The position where a search begins or ends."""
    number = as_int32(value)
    if number is None:
        raise refusal(40096, f"{name} requires an integral {which} index, found a value of type: {type_name(value)}")
    if number < 0:
        raise refusal(40097, f"{name} requires a nonnegative {which} index, found: {number}")
    return number


def _index_of(name: str, code: int, units: Callable[[str], Any]) -> Callable[..., Any]:
    def evaluate(text: Any, wanted: Any, start: Any = 0, end: Any = _TO_THE_END) -> Any:
        if is_nullish(text):
            return None
        if type(text) is not str:
            raise refusal(code, f"{name} requires a string as the first argument, found: {type_name(text)}")
        if type(wanted) is not str:
            raise refusal(code + 1, f"{name} requires a string as the second argument, found: {type_name(wanted)}")
        work.spend((len(text) + len(wanted)) // 100)
        within = units(text)
        first = bound(name, start, "starting")
        last = len(within) if end is _TO_THE_END else min(len(within), bound(name, end, "ending"))
        if first > last:
            return -1
        return within.find(units(wanted), first, last)

    return evaluate


def _split(text: Any, separator: Any) -> Any:
    if is_nullish(text) or is_nullish(separator):
        return None
    if type(text) is not str:
        raise refusal(
            40085,
            f"$split requires an expression that evaluates to a string as a first argument, found: {type_name(text)}",
        )
    if type(separator) is not str:
        raise refusal(
            40086,
            "$split requires an expression that evaluates to a string as a second argument, found: "
            f"{type_name(separator)}",
        )
    if not separator:
        raise refusal(40087, "$split requires a non-empty separator")
    work.make(len(text) + _PART_BYTES * (text.count(separator) + 1))
    work.spend(len(text) // 100)
    return text.split(separator)


def _trim(name: str, strip: Callable[[str, str], str]) -> Operator:
    def evaluate(text: Any, characters: Any) -> Any:
        if is_nullish(text) or characters is None:
            return None
        if type(text) is not str:
            raise refusal(
                50699,
                f"{name} requires its input to be a string, got {shell_text(text)} (of type {type_name(text)}) "
                "instead.",
            )
        if characters is MISSING:
            return None
        if type(characters) is not str:
            raise refusal(
                50700,
                f"{name} requires 'chars' to be a string, got {shell_text(characters)} "
                f"(of type {type_name(characters)}) instead.",
            )
        if len(text) > _COUNTED:
            work.make(len(text))
            work.spend(len(text) // 20)
        return strip(text, characters)

    return Named(evaluate, {"input": 50695}, ("chars",), 50696, 50694, defaults={"chars": _BLANKS})


def _replace(name: str, replace: Callable[[str, str, str], str]) -> Operator:
    def evaluate(text: Any, find: Any, replacement: Any) -> Any:
        for value, what, code in ((text, "input", 51746), (find, "find", 51745), (replacement, "replacement", 51744)):
            if not is_nullish(value) and type(value) is not str:
                raise refusal(code, f"{name} requires that '{what}' be a string, found: {shell_text(value)}")
        if is_nullish(text) or is_nullish(find) or is_nullish(replacement):
            return None
        work.spend(len(text) // 200)
        most = len(text) + (len(text) + 1 if not find else text.count(find)) * len(replacement)
        if most > limits.MONGO_DOCUMENT_BYTES_MAX:
            raise refusal(10334, f"{name} makes a string of {most} characters, more than a document holds")
        work.make(most)
        work.spend(most // 100)
        return replace(text, find, replacement)

    return Named(evaluate, {"input": 51749, "find": 51748, "replacement": 51747}, (), 51751, 51750)


# Regular expressions.


def _regex(name: str, evaluate: Callable[[Matcher, str], Any], otherwise: Callable[[], Any]) -> Operator:
    def run(text: Any, regex: Any, options: Any) -> Any:
        if not is_nullish(text) and type(text) is not str:
            raise refusal(51104, f"{name} needs 'input' to be of type string")
        if not is_nullish(options) and type(options) is not str:
            raise refusal(51106, f"{name} needs 'options' to be of type string")
        if is_nullish(regex) or is_nullish(text):
            return otherwise()
        return evaluate(_matcher(name, regex, "" if is_nullish(options) else options), text)

    return Named(run, {"input": 31022, "regex": 31023}, ("options",), 51103, 31024)


def _matcher(name: str, regex: Any, options: str) -> Matcher:
    if isinstance(regex, Regex):
        own = regex_options(regex)
        if own and options:
            raise refusal(51107, f"{name}: found regex option(s) specified in both 'regex' and 'option' fields")
        pattern = regex.pattern if isinstance(regex.pattern, str) else regex.pattern.decode()
        options = own or options
    elif type(regex) is str:
        pattern = regex
    else:
        raise refusal(51105, f"{name} needs 'regex' to be of type string or regex")
    if "\0" in pattern:
        raise refusal(51109, f"{name}: regular expression cannot contain an embedded null byte")
    if "\0" in options:
        raise refusal(51110, f"{name}: regular expression options cannot contain an embedded null byte")
    try:
        return regex_matcher(pattern, options)
    except Failure as failure:
        if failure.details.get("code") == INVALID_PATTERN:
            raise refusal(51111, f"Invalid Regex in {name}: {failure.message}") from None
        raise


def _found(match: re.Match[str]) -> dict[str, Any]:
    return {"match": match[0], "idx": match.start(), "captures": list(match.groups())}


def _find(matcher: Matcher, text: str) -> Any:
    match = matcher.search(text)
    return None if match is None else _found(match)


def _find_all(matcher: Matcher, text: str) -> list[Any]:
    """All matches. An empty match at the end of the text counts only if the text is empty."""
    found = []
    start = 0
    while start < max(len(text), 1):
        match = matcher.search(text, start)
        if match is None or (start and match.start() == len(text)):
            break
        work.make(_MATCH_BYTES + 2 * len(match[0]))
        work.spend(10 + (match.end() - start) // 10)
        found.append(_found(match))
        start = match.end() if match.end() > match.start() else match.end() + 1
    return found


OPERATORS: Final[Mapping[str, Operator]] = {
    "$concat": Function(concat, 0, None),
    "$indexOfBytes": Function(
        _index_of("$indexOfBytes", 40091, lambda text: text.encode("utf-8", "surrogatepass")), 2, 4
    ),
    "$indexOfCP": Function(_index_of("$indexOfCP", 40093, lambda text: text), 2, 4),
    "$trim": _trim("$trim", str.strip),
    "$ltrim": _trim("$ltrim", str.lstrip),
    "$rtrim": _trim("$rtrim", str.rstrip),
    "$split": Function(_split, 2, 2),
    "$strLenBytes": Function(_length("$strLenBytes", 34473, _byte_length)),
    "$strLenCP": Function(_length("$strLenCP", 34471, len)),
    "$strcasecmp": Function(_strcasecmp, 2, 2),
    "$substr": Function(_substr_bytes, 3, 3),
    "$substrBytes": Function(_substr_bytes, 3, 3),
    "$substrCP": Function(_substr_cp, 3, 3),
    "$toLower": Function(lambda value: _translated(text_of(value), _LOWER)),
    "$toUpper": Function(lambda value: _translated(text_of(value), _UPPER)),
    "$replaceOne": _replace("$replaceOne", lambda text, find, replacement: text.replace(find, replacement, 1)),
    "$replaceAll": _replace("$replaceAll", str.replace),
    "$regexMatch": _regex("$regexMatch", lambda matcher, text: matcher.occurs_in(text), lambda: False),
    "$regexFind": _regex("$regexFind", _find, lambda: None),
    "$regexFindAll": _regex("$regexFindAll", _find_all, list),
}
