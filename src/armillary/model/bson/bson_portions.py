"""Decoding of large BSON documents in portions. The C decoder holds the interpreter for 20 ms a megabyte, so a message
of 16 MB would stop every other request for a third of a second. Here a run of adjacent elements is cut out of the
document and decoded as a document of its own, and work is counted before the next; large embedded documents and arrays
are decoded recursively. The result, and the errors, are the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import bson
from bson.codec_options import CodecOptions
from bson.errors import InvalidBSON

from armillary import limits
from armillary.work import spend

_UNIT_BYTES: Final = 5  # of small numbers, the slowest; about 100 ns
_INT32: Final = struct.Struct("<i")
_EMPTY_BYTES: Final = 5
_DOCUMENT, _ARRAY = 3, 4
# Elements whose type determines their size, many at a time: the regular expression is faster than a loop.
_FIXED: Final = re.compile(
    rb"(?:[\x01\x09\x11\x12][^\0]*+\0.{8}|\x10[^\0]*+\0.{4}|[\x06\x0a\x7f\xff][^\0]*+\0|\x08[^\0]*+\0."
    rb"|\x07[^\0]*+\0.{12}|\x13[^\0]*+\0.{16}){1,500}+",
    re.DOTALL,
)
# Bytes to add to the length that begins the value of other elements.
_BEYOND_LENGTH: Final = {2: 4, 3: 0, 4: 0, 5: 5, 12: 16, 13: 4, 14: 4, 15: 0}


class _Piece(NamedTuple):
    """Bytes [begin, end) of adjacent elements; `name` of the single element, if it is a large document or array."""

    begin: int
    end: int
    name: str | None = None
    value_at: int = 0


def decode_in_portions(encoded: bytes, codec: CodecOptions[dict[str, Any]]) -> dict[str, Any]:
    """The result of `bson.decode`. May give way."""
    if _INT32.unpack_from(encoded)[0] != len(encoded) or encoded[-1]:
        return bson.decode(encoded, codec)  # which raises before it reads any element
    return _document(encoded, 0, len(encoded), codec)


def _document(encoded: bytes, begin: int, end: int, codec: CodecOptions[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for piece in _pieces(encoded, begin, end):
        if piece.name is not None:
            made[piece.name] = _large(encoded, piece, codec)
        else:
            elements = encoded[piece.begin : piece.end]
            made.update(bson.decode(_INT32.pack(len(elements) + _EMPTY_BYTES) + elements + b"\0", codec))
    return made


def _array(encoded: bytes, begin: int, end: int, codec: CodecOptions[dict[str, Any]]) -> list[Any]:
    made: list[Any] = []
    for piece in _pieces(encoded, begin, end):
        if piece.name is not None:
            made.append(_large(encoded, piece, codec))
        else:
            made += _elements(encoded[piece.begin : piece.end], codec)
    return made


def _elements(elements: bytes, codec: CodecOptions[dict[str, Any]]) -> list[Any]:
    """As an array inside a document: names in arrays are ignored, and may repeat."""
    size_bytes = len(elements) + _EMPTY_BYTES
    whole = _INT32.pack(size_bytes + 8) + b"\4a\0" + _INT32.pack(size_bytes) + elements + b"\0\0"
    found = bson.decode(whole, codec)["a"]
    assert isinstance(found, list)
    return found


def _large(encoded: bytes, piece: _Piece, codec: CodecOptions[dict[str, Any]]) -> Any:
    if encoded[piece.begin] == _ARRAY:
        return _array(encoded, piece.value_at, piece.end, codec)
    if encoded.find(b"$ref\0", piece.value_at, piece.value_at + 32) >= 0:
        # A DBRef becomes an object of its own.
        return _elements(encoded[piece.begin : piece.end], codec)[0]
    return _document(encoded, piece.value_at, piece.end, codec)


def _pieces(encoded: bytes, begin: int, end: int) -> Iterator[_Piece]:
    """The elements of the document at [begin, end), cut into runs. A run with invalid bytes extends to the end, for the
    decoder to refuse."""
    if encoded[end - 1]:
        raise InvalidBSON("bad eoo")
    portion_bytes = limits.WORK_AT_ONCE_BSON_BYTES // 2
    last = end - 1
    at = first = begin + _INT32.size
    while at < last:
        kind = encoded[at]
        size_beyond = _BEYOND_LENGTH.get(kind)
        if size_beyond is not None:
            name_end = encoded.find(b"\0", at + 1, last)
            value_at = name_end + 1
            if name_end < 0 or value_at + _INT32.size > last:
                at = last
                break
            (size_bytes,) = _INT32.unpack_from(encoded, value_at)
            after = value_at + size_bytes + size_beyond
            if size_bytes < 0 or not value_at + _INT32.size <= after <= last:
                at = last
                break
            if size_bytes > portion_bytes and kind in (_DOCUMENT, _ARRAY):
                if at > first:
                    spend((at - first) // _UNIT_BYTES)
                    yield _Piece(first, at)
                yield _Piece(at, after, encoded[at + 1 : name_end].decode(), value_at)
                at = first = after
                continue
            at = after
        elif kind == 0x0B:
            for _ in range(3):  # its name, the expression, its options
                at = encoded.find(b"\0", at + 1, last)
                if at < 0:
                    break
            at = last if at < 0 else at + 1
        else:
            run = _FIXED.match(encoded, at, min(last, at + portion_bytes)) or _FIXED.match(encoded, at, last)
            if run is None:
                at = last
                break
            at = run.end()
        if at - first >= portion_bytes:
            spend((at - first) // _UNIT_BYTES)
            yield _Piece(first, at)
            first = at
    if at > first:
        spend((at - first) // _UNIT_BYTES)
        yield _Piece(first, at)
