"""Splits a $filter text into words, constants and brackets. The grammar is in `parser.py`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import edm

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<typed>[A-Za-z]+)'(?P<typed_text>(?:[^']|'')*)'
    | '(?P<text>(?:[^']|'')*)'
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<suffix>[A-Za-z]*)
    | (?P<infinity>-INF)\b
    | (?P<word>[^\W\d]\w*)
    | (?P<bracket>[(),])
    | (?P<other>\S)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant and its EDM type number. Numbers of all types are compared by value."""

    kind: int
    value: bool | int | float | str | bytes  # a time as ticks, a guid as text

    @property
    def is_number(self) -> bool:
        return self.kind in (edm.INT32, edm.INT64, edm.DOUBLE)


_CONSTANTS = {
    "true": Literal(edm.BOOLEAN, True),
    "false": Literal(edm.BOOLEAN, False),
    "NaN": Literal(edm.DOUBLE, math.nan),
    "INF": Literal(edm.DOUBLE, math.inf),
}


class Token(NamedTuple):
    kind: str  # literal, word, bracket, end
    text: str
    literal: Literal | None
    at: int


def tokens_of(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        assert match is not None, "something other than blanks is left"
        begins, at = match.start() + len(match.group()) - len(match.group().lstrip()), match.end()
        found.append(_token(match, begins))
        if len(found) > limits.QUERY_TOKENS_MAX:
            raise filter_error(f"it has more than {limits.QUERY_TOKENS_MAX} words", at)
    found.append(Token("end", "", None, end))
    return found


def _token(match: re.Match[str], at: int) -> Token:
    whole = match.group().strip()
    if match["word"] is not None:
        literal = _CONSTANTS.get(whole)
        return Token("word" if literal is None else "literal", whole, literal, at)
    if match["bracket"] is not None:
        return Token("bracket", whole, None, at)
    if match["text"] is not None:
        return Token("literal", whole, Literal(edm.STRING, match["text"].replace("''", "'")), at)
    if match["typed"] is not None:
        return Token("literal", whole, _typed(match["typed"], match["typed_text"].replace("''", "'"), at), at)
    if match["number"] is not None:
        return Token("literal", whole, _number(match["number"], match["suffix"], at), at)
    if match["infinity"] is not None:
        return Token("literal", whole, Literal(edm.DOUBLE, -math.inf), at)
    if whole == "'":
        raise filter_error("a text does not end", at)
    raise filter_error(f"{whole!r} means nothing here", at)


def _typed(prefix: str, text: str, at: int) -> Literal:
    try:
        match prefix:
            case "datetime":
                return Literal(edm.DATETIME, edm.parse_ticks(text))
            case "guid":
                return Literal(edm.GUID, edm.parse_guid(text))
            case "X" | "x" | "binary":
                return Literal(edm.BINARY, bytes.fromhex(text))
    except ValueError:
        raise filter_error(f"{prefix}'{text[:40]}' is no value of that type", at) from None
    raise filter_error(f"the type {prefix[:20]!r} is not known; datetime, guid, X and binary are", at)


def _number(digits: str, suffix: str, at: int) -> Literal:
    is_whole = not any(each in digits for each in ".eE")
    if is_whole and suffix in ("", "L", "l"):
        kind = edm.INT64 if suffix or not edm.INT32_MIN <= int(digits[:30]) <= edm.INT32_MAX else edm.INT32
        try:
            return Literal(kind, edm.parse_int(digits, edm.INT64_MIN, edm.INT64_MAX))
        except ValueError:
            raise filter_error("a whole number has more than 64 bits", at) from None
    if suffix in ("", "D", "d"):
        number = float(digits)
        if math.isfinite(number):
            return Literal(edm.DOUBLE, number)
        raise filter_error("a number is beyond the range of Double", at)
    raise filter_error(f"a number cannot end in {suffix[:20]!r}", at)


def filter_error(reason: str, at: int) -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        f"One of the request inputs is not valid. The $filter cannot be read at character {at + 1}: {reason}.",
    )


def shape_of(text: str) -> str:
    """A filter with its constants taken out: filters of one shape differ in values only."""
    return " ".join(["?" if token.literal is not None else token.text for token in tokens_of(text)]).rstrip()
