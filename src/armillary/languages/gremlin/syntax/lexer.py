"""The lexer: a script to words (names, texts, numbers and signs), each with its position for error messages; and values
that are written as calls, such as datetime('…'), UUID('…') and new Date(…).

Numbers and texts become values here; names are resolved by `grammar`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import compilation, syntax
from armillary.languages.gremlin.values.dates import from_milliseconds, parse_date
from armillary.languages.gremlin.values.elements import Vertex
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Short, Uuid, parse_uuid
from armillary.work import spend

_WORD: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*|/\*.*?\*/)
  | (?P<text>'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<number>
        0[xX][0-9a-fA-F_]+[lLbBsSiInN]?
      | (?:[0-9](?:[0-9_]*[0-9])?)(?:\.[0-9](?:[0-9_]*[0-9])?)?(?:[eE][+-]?[0-9]+)?[lLbBsSiInNfFdDmMgG]?
      | \.[0-9](?:[0-9_]*[0-9])?(?:[eE][+-]?[0-9]+)?[fFdDmM]?
    )
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<sign>\.\.|->|[().,;\[\]{}:+\-=<>!&|?*/%@^~])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "'": "'", "\\": "\\", "$": "$"}
_ESCAPE: Final = re.compile(r"\\(u+[0-9a-fA-F]{4}|[0-3]?[0-7]{1,2}|\r?\n|.)", re.DOTALL)

_KEPT_CHARACTERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Word:
    kind: str  # name, text, number, sign, end
    value: Any
    at: int  # offset in the script, in characters
    is_after_line: bool  # whether it is the first word of its line


def known_words(text: str) -> list[Word]:
    """As `words`, with a cache for scripts that are sent again with other bindings."""
    return _kept_words(text) if len(text) <= _KEPT_CHARACTERS_MAX else words(text)


def words(text: str) -> list[Word]:
    """All words of a script, and a last one of kind "end"."""
    found: list[Word] = []
    at, size = 0, len(text)
    is_after_line = False
    while at < size:
        spend(20)
        match = _WORD.match(text, at)
        if match is None:
            raise syntax(f"Unexpected {text[at : at + 10]!r} at {place(text, at)}.")
        kind = match.lastgroup or ""
        piece = match.group()
        if kind == "blank":
            is_after_line = is_after_line or "\n" in piece
        else:
            value: Any = piece
            if kind == "text":
                value = _unquoted(piece, text, at)
            elif kind == "number":
                value = _number(piece, text, at)
            found.append(Word(kind, value, at, is_after_line))
            is_after_line = False
            if len(found) > limits.GREMLIN_WORDS_MAX:
                raise syntax(f"A script has at most {limits.GREMLIN_WORDS_MAX} words.")
        at = match.end()
    found.append(Word("end", "the end of the script", size, is_after_line))
    return found


_kept_words = lru_cache(limits.QUERY_CACHE_ENTRIES)(words)


def place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def _unquoted(piece: str, text: str, at: int) -> str:
    quotes = 3 if len(piece) >= 6 and piece[:3] in ("'''", '"""') else 1
    inner = piece[quotes:-quotes]
    if "\\" not in inner:
        return inner

    def character(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] == "u" and len(code) > 4:
            return chr(int(code.lstrip("u"), 16))
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[-1] == "\n":
            return ""
        plain = _ESCAPES.get(code)
        if plain is None:
            raise syntax(f"Unknown escape '\\{code}' at {place(text, at)}.")
        return plain

    result = _ESCAPE.sub(character, inner)
    # Surrogate pairs written as two escapes, as in JSON and Java.
    if any("\ud800" <= each <= "\udfff" for each in result):
        try:
            result = result.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise syntax(f"Half of a character at {place(text, at)}.") from None
    return result


def _number(piece: str, text: str, at: int) -> Any:
    digits = piece.replace("_", "")
    suffix = ""
    is_hexadecimal = digits[:2].lower() == "0x"
    letters = "lsin" if is_hexadecimal else "lbsinfdmg"
    if digits[-1].lower() in letters:
        digits, suffix = digits[:-1], digits[-1].lower()
    try:
        if is_hexadecimal:
            return integer(int(digits, 16), suffix)
        if "." not in digits and "e" not in digits.lower() and suffix not in ("f", "d", "m"):
            if len(digits) > limits.GREMLIN_DIGITS_MAX:
                raise syntax(f"A number has at most {limits.GREMLIN_DIGITS_MAX} digits, at {place(text, at)}.")
            return integer(int(digits, 8) if _is_octal(digits) else int(digits), suffix)
        if suffix == "m":
            return Decimal(digits)
        if suffix == "f":
            return Float32(digits)
        if suffix in ("", "d"):
            return float(digits)
    except (ValueError, InvalidOperation):
        pass
    raise syntax(f"{piece!r} at {place(text, at)} is not a number.")


def _is_octal(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0" and all(digit in "01234567" for digit in digits)


def integer(value: int, suffix: str) -> int:
    """A whole number of the type that its suffix or its size gives."""
    if suffix == "l":
        return Long(value)
    if suffix == "b":
        return Byte(value)
    if suffix == "s":
        return Short(value)
    if suffix in ("n", "g"):
        return BigInt(value)
    if suffix == "i" or -(2**31) <= value < 2**31:
        return value
    return Long(value) if -(2**63) <= value < 2**63 else BigInt(value)


# Values that are written as calls.

CALLED: Final = frozenset({"datetime", "DateTime", "UUID"})


def called(name: str, arguments: list[Any]) -> datetime | Uuid:
    """The value of a call of one of CALLED."""
    if not arguments:
        raise compilation(f"{name}() without arguments is not supported: give its value as a text.")
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise compilation(f"{name}() takes a text.")
    if name != "UUID":
        return parse_date(arguments[0])
    found = parse_uuid(arguments[0])
    if found is None:
        raise compilation(f"{arguments[0][:40]!r} is not a UUID.")
    return found


def constructed(name: str, arguments: list[Any]) -> Any:
    """The value of `new …`; strategies are parsed by `grammar`."""
    if name in ("Vertex", "ReferenceVertex"):
        if len(arguments) != 2 or not isinstance(arguments[1], str):
            raise compilation(f"new {name}() takes an id and a label.")
        return Vertex(arguments[0], arguments[1])
    if name == "Date":
        if len(arguments) == 1 and isinstance(arguments[0], int):
            return from_milliseconds(arguments[0])
        if len(arguments) == 1 and isinstance(arguments[0], str):
            return parse_date(arguments[0])
        raise compilation("new Date() takes milliseconds since 1970 or a text here.")
    raise compilation(f"'new {name}' is not supported.")
