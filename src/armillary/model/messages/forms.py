"""What encoders and decoders of values share: their types, the numbers of the tags, and lengths."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias

from armillary import limits

Append: TypeAlias = Callable[[bytes], None]
Encode: TypeAlias = Callable[[Any, Append], None]
# Message, place behind the tag, and how much deeper values may be nested. Returns the value and the place behind it.
# A place behind the end is noticed by the caller of all.
Decode: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]

NONE, TRUE, FALSE, INT, FLOAT, STR, SURROGATES, BYTES, TUPLE, LIST, DICT, SET, FROZENSET = range(1, 14)
RECORD, MEMBER, UNDEFINED, KEY = range(32, 36)
INT64, OBJECT_ID, TIMESTAMP, BINARY, DECIMAL, DATETIME, DATETIME_MS = range(64, 71)
REGEX, CODE, MIN_KEY, MAX_KEY, DB_REF = range(71, 76)
SMALL: Final = 128  # and above: the integers from 0 on

_LONG: Final = 255  # the length follows in four bytes
_four = struct.Struct(">I")
_SHORT: Final = [bytes([size]) for size in range(_LONG)]
_length_at = _four.unpack_from


class Malformed(Exception):
    """Why a message cannot be read."""


def refuse_tag(message: bytes, at: int, depth: int) -> NoReturn:
    raise Malformed(f"the tag {message[at - 1]} is unknown")


def length(size: int) -> bytes:
    return _SHORT[size] if size < _LONG else b"\xff" + _four.pack(size)


def heads(tag: int) -> list[bytes]:
    """The tag with each short length."""
    return [bytes([tag]) + each for each in _SHORT]


def long_head(tag: int, size: int) -> bytes:
    return bytes([tag, _LONG]) + _four.pack(size)


def length_at(message: bytes, at: int) -> tuple[int, int]:
    """A length and the place behind it."""
    size = message[at]
    if size < _LONG:
        return size, at + 1
    return _length_at(message, at + 1)[0], at + 5


def count_at(message: bytes, at: int, depth: int) -> tuple[int, int]:
    """The same of values that are nested here."""
    if depth <= 0:
        raise Malformed("it is nested too deeply")
    count, at = length_at(message, at)
    if count > limits.MESSAGE_VALUES_MAX:
        raise Malformed("a list in it is too long")
    return count, at
