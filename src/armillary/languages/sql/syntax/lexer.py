"""Splits query text into tokens with one regular expression; the list ends with an "end" token.

A token's kind is what the parser asks for: a keyword in upper case ("SELECT"), a symbol ("<="), one of the literal
words ("true" "false" "null" "undefined"), or "name", "string", "number", "parameter", "udf", "end".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.work import spend

KEYWORDS = frozenset(
    "AND ARRAY AS ASC BETWEEN BY DESC DISTINCT ESCAPE EXISTS FALSE FROM GROUP IN JOIN LEFT LIKE LIMIT NOT NULL OFFSET "
    "OR ORDER RIGHT SELECT TOP TRUE UDF UNDEFINED VALUE WHERE".split()
)
# Lower case only; in any other case they are reserved words, which the grammar uses nowhere.
_LITERAL_WORDS = frozenset(["true", "false", "null", "undefined", "udf"])

# In the queries that clients send to each partition of an ordered query: clients replace it by a condition when they
# resume from a continuation, and by `true` in the first request. Java's azure-documentdb 1.9 leaves it there.
FILTER = "{documentdb-formattableorderbyquery-filter}"

# White space and comments, then one token, the end, or the rest of the text if no token matches. Quantifiers are
# possessive where backtracking could never help, so that matching takes linear time.
_UNIT_CHARACTERS = 10  # of text for one unit of work
_TOKENS_COUNTED, _TOKEN_UNITS = 256, 8  # tokens between two charges to the work budget, and the work for one
_TOKENS = re.compile(
    r"""
    ( (?: [ \t\r\n\f\v\u00a0\ufeff]++ | --[^\n]*+ | /\*.*?\*/ )*+ )
    (?:
      (
        [A-Za-z_][A-Za-z0-9_]*+
      | @[A-Za-z0-9_]++
      | (?: 0[xX][0-9A-Fa-f]++ | (?: [0-9]++(?:\.[0-9]*+)? | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? ) (?![A-Za-z0-9_])
      | "[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+" | '[^'\\\x00-\x1f]*+(?:\\.[^'\\\x00-\x1f]*+)*+'
      | \{documentdb-formattableorderbyquery-filter\}
      | >>> | << | >> | <= | >= | != | <> | \|\| | \?\? | (?!/\*)[-+*/%<>=&|^~?:.,(){}\[\]]
      )
    | (.+)
    | \Z
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_SYMBOLS = ">>> << >> <= >= != || ?? - + * / % < > = & | ^ ~ ? : . , ( ) { } [ ]".split()
_KINDS = (
    {symbol: symbol for symbol in _SYMBOLS}
    | {"<>": "!=", FILTER: "true"}
    | {keyword: keyword for keyword in KEYWORDS}
    | {word: word for word in _LITERAL_WORDS}
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"'": "'", '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Token(NamedTuple):
    kind: str
    text: str  # as written; the value of a string token
    start: int
    end: int


def query_error(code: str, message: str, start: int, end: int) -> Failure:
    """A query error in the service's form: the message is JSON, which clients parse."""
    error: dict[str, Any] = {
        "severity": "Error",
        "location": {"start": start, "end": end},
        "code": code,
        "message": message,
    }
    errors = {"errors": [error]}
    return Failure(Kind.BAD_REQUEST, orjson.dumps(errors).decode(), details=errors)


def unplaced_error(code: int, message: str) -> Failure:
    """A query error that the service answers with a bare number, without a place in the text."""
    error: dict[str, Any] = {"severity": "Error", "code": code, "message": message}
    errors = {"errors": [error]}
    return Failure(Kind.BAD_REQUEST, orjson.dumps(errors).decode(), details=errors)


def syntax_error(token: Token, expected: str) -> Failure:
    near = _excerpt(token.text, 0) if token.kind != "end" else "end of text"
    message = f"Syntax error, incorrect syntax near '{near}'. Expected {expected}."
    return query_error("SC1001", message, token.start, token.end)


def tokens_of(text: str) -> list[Token]:
    spend(len(text) // _UNIT_CHARACTERS)
    pieces = _TOKENS.findall(text)
    if len(pieces) > limits.QUERY_TOKENS_MAX:
        message = f"The query has more than {limits.QUERY_TOKENS_MAX} words and symbols; simplify it."
        raise query_error("SC1001", message, 0, len(text))
    tokens: list[Token] = []
    append, new = tokens.append, tuple.__new__  # three times as fast as calling Token
    known = _KINDS.copy()
    at = 0
    for blank, piece, strange in pieces:
        start = at + len(blank)
        at = start + len(piece)
        kind = known.get(piece)
        if kind is None:
            if strange.startswith("/*"):
                raise syntax_error(Token("*", "*", start + 1, start + 2), "'*/' at the end of the comment")
            if strange:
                message = f"Syntax error, invalid token near '{_excerpt(text, start)}'."
                raise query_error("SC1010", message, start, len(text))
            if not piece:
                break
            first = piece[0]
            if first in "\"'":
                kind, piece = "string", _string_value(piece, start)
            elif first == "@":
                kind = "parameter"
            elif first in "0123456789.":
                kind = "number"
            else:
                upper = piece.upper()
                kind = known[piece] = upper if upper in KEYWORDS else "name"
        append(new(Token, (kind, piece, start, at)))
        if not len(tokens) % _TOKENS_COUNTED:
            spend(_TOKENS_COUNTED * _TOKEN_UNITS)
    append(Token("end", "", len(text), len(text)))
    return tokens


def number_value(token: Token) -> int | float:
    """The value of a number token: an integer while it fits 64 bits, else a double."""
    text = token.text
    try:
        if text[:2] in ("0x", "0X"):
            integer = int(text, 16)
        elif len(text) < 20 and text.isdigit():
            integer = int(text)
        else:
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise OverflowError
            # 1e3 and 12. are written as integers in JSON.
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        return integer if _INT64_MIN <= integer <= _INT64_MAX else float(integer)
    except (OverflowError, ValueError):
        message = f"Syntax error, invalid numeric value token '{text[:40]}'."
        raise query_error("SC1010", message, token.start, token.end) from None


def _string_value(quoted: str, at: int) -> str:
    inner = quoted[1:-1]
    if "\\" not in inner:
        return _whole(inner, at, quoted)

    def replace(found: re.Match[str]) -> str:
        code, letter = found.groups()
        if code is not None:
            return chr(int(code, 16))
        if letter not in _ESCAPED:
            raise _bad_string(quoted, at)
        return _ESCAPED[letter]

    return _whole(_ESCAPE.sub(replace, inner), at, quoted)


def _whole(value: str, at: int, quoted: str) -> str:
    """Join surrogate pairs. Lone surrogates are refused: no item has them, and UTF-8 cannot encode them."""
    if value.isascii():
        return value
    try:
        value.encode()
        return value
    except UnicodeEncodeError:
        pass
    try:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _bad_string(quoted, at) from None


def _bad_string(quoted: str, at: int) -> Failure:
    message = f"Syntax error, invalid string literal token '{_excerpt(quoted, 0)}'."
    return query_error("SC1010", message, at, at + len(quoted))


def _excerpt(text: str, at: int) -> str:
    return text[at : at + 40].encode("utf-8", "replace").decode()


# Shapes.

_SHAPE_CHARACTERS_MAX: Final = 16_384
_CONSTANTS: Final = frozenset(("string", "number", "parameter"))


def shape_of(text: str) -> str:
    """The text of a query with its constants taken out: queries of one shape differ in values only. It is a text that
    can be read; what is too long for a person has no shape."""
    return _kept_shape(text) if len(text) <= _SHAPE_CHARACTERS_MAX else "a long query"


@lru_cache(1024)
def _kept_shape(text: str) -> str:
    words = ["?" if token.kind in _CONSTANTS else token.text for token in tokens_of(text) if token.kind != "end"]
    return " ".join(words)
