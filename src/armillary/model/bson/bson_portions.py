"""Decoding and encoding of large BSON documents in portions. The C decoder holds the interpreter for 20 ms a megabyte,
so a message of 16 MB would stop every other request for a third of a second; the encoder for 10 ms a megabyte. Here a
run of adjacent elements is decoded or encoded as a document of its own, and work is counted before the next; large
embedded documents and arrays are taken apart recursively. The result, and the errors, are the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
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
_ENCODED_UNITS: Final = 2  # of 100 ns, to count and to encode one element
_TEXT_UNIT_CHARACTERS: Final = 256
_NAME_AT: Final = _INT32.size + len(b"\n")
_WRAPPED_AT: Final = _INT32.size + len(b"\3\0") + _INT32.size
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


# Encoding.


def encoding_units(value: dict[str, Any] | list[Any], units_max: int) -> int:
    """The work of encoding a document or an array, one unit for each element and more for long texts. Counting ends
    when it exceeds `units_max`."""
    units = 0
    pending: list[Any] = [value]
    while pending:
        holder = pending.pop()
        units += 1 + len(holder)
        if units > units_max:
            break
        for each in holder.values() if holder.__class__ is dict else holder:
            kind = each.__class__
            if kind is str:
                if len(each) > _TEXT_UNIT_CHARACTERS:
                    units += len(each) // _TEXT_UNIT_CHARACTERS
            elif kind is dict or kind is list:
                pending.append(each)
    return units


def encode_in_portions(document: dict[str, Any], codec: CodecOptions[dict[str, Any]]) -> bytes:
    """The result of `bson.encode`. May give way."""
    if "_id" in document and next(iter(document)) != "_id":  # the encoder writes it first
        document = {"_id": document["_id"], **document}
    encoder = _Encoder(codec)
    encoder.write(document)
    return b"".join(encoder.parts)


class _Encoder:
    """`parts` are joined once, at the end: a length is filled in when the content after it is written."""

    def __init__(self, codec: CodecOptions[dict[str, Any]]) -> None:
        self.parts: list[bytes] = []
        self._codec = codec

    def write(self, value: dict[str, Any] | list[Any]) -> int:
        """Write a document or an array that is too large to be encoded at once; returns its size."""
        length_at = len(self.parts)
        self.parts.append(b"")
        size_bytes = _EMPTY_BYTES
        names = value if isinstance(value, dict) else map(str, range(len(value)))
        elements = zip(names, value.values() if isinstance(value, dict) else value, strict=True)
        while batch := dict(islice(elements, limits.WORK_PORTION)):
            for portion, units in _portions(batch):
                size_bytes += (
                    self._write_large(portion)
                    if units > limits.WORK_AT_ONCE_BSON_ELEMENTS
                    else self._write_portion(portion)
                )
        self.parts.append(b"\0")
        self.parts[length_at] = _INT32.pack(size_bytes)
        return size_bytes

    def _write_portion(self, portion: dict[str, Any]) -> int:
        """As an embedded document: of a document on its own the encoder would write `_id` first."""
        encoded = bson.encode({"": portion}, codec_options=self._codec)[_WRAPPED_AT : -len(b"\0\0")]
        self.parts.append(encoded)
        return len(encoded)

    def _write_large(self, portion: dict[str, Any]) -> int:
        ((name, value),) = portion.items()
        if value.__class__ not in (dict, list):  # a long text
            return self._write_portion(portion)
        name_bytes = bson.encode({name: None})[_NAME_AT:-1]  # refused if it is no name
        self.parts.append(bytes([_ARRAY if value.__class__ is list else _DOCUMENT]) + name_bytes)
        return 1 + len(name_bytes) + self.write(value)


def _portions(batch: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Elements in portions that can be encoded at once, and single ones that cannot, each with its units."""
    pending = [batch]
    while pending:
        portion = pending.pop()
        units = encoding_units(portion, limits.WORK_AT_ONCE_BSON_ELEMENTS)
        spend(_ENCODED_UNITS * min(units, limits.WORK_AT_ONCE_BSON_ELEMENTS))
        if units <= limits.WORK_AT_ONCE_BSON_ELEMENTS or len(portion) == 1:
            yield portion, units
        else:
            elements = iter(portion.items())
            first = dict(islice(elements, len(portion) // 2))
            pending += [dict(elements), first]
