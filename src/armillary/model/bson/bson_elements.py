"""BSON documents as bytes: locating elements, and decoding only some fields. For documents that were decoded before or
are stored: the bytes are not validated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import Document, decode

_INT32: Final = Struct("<i")
_FIXED: Final = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    0x0A: 0,
    0x10: 4,
    0x11: 8,
    0x12: 8,
    0x13: 16,
    0xFF: 0,
    0x7F: 0,
}
_WORTH_BYTES: Final = 128  # average size of a field above which skipping it is faster than decoding it (measured)
_PAUSE: Final = 100
_TEXTS: Final = (0x02, 0x0D, 0x0E)
_DOCUMENTS: Final = (0x03, 0x04, 0x0F)


def elements(document: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """Each element: type, name, and where it begins and ends."""
    at, end = _INT32.size, len(document) - 1
    length_at = _INT32.unpack_from
    while at < end:
        begin = at
        kind = document[at]
        name_end = document.index(b"\x00", at + 1)
        name = document[at + 1 : name_end]
        at = name_end + 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind in _TEXTS:
            at += 4 + length_at(document, at)[0]
        elif kind in _DOCUMENTS:
            at += length_at(document, at)[0]
        elif kind == 0x05:
            at += 5 + length_at(document, at)[0]
        elif kind == 0x0C:
            at += 4 + length_at(document, at)[0] + 12
        elif kind == 0x0B:
            at = document.index(b"\x00", document.index(b"\x00", at) + 1) + 1
        else:
            raise Failure(Kind.CORRUPT, f"Invalid BSON: the type {kind} is not known.")
        yield kind, name, begin, at


class FieldDecoder:
    """Decodes documents with at least these fields. Small documents, and those of many small fields, are decoded whole,
    which takes no longer."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset([each.encode() for each in names])
        self._pause = 0  # documents to decode whole, after one where skipping was no gain

    def __call__(self, document: bytes) -> Document:
        size_bytes = len(document)
        if size_bytes < limits.MONGO_PARTIAL_BYTES_MIN:
            return decode(document)
        if self._pause:
            self._pause -= 1
            return decode(document)
        left = size_bytes // _WORTH_BYTES
        pieces = []
        for _, name, begin, end in elements(document):
            if name in self._names:
                pieces.append(document[begin:end])
            left -= 1
            if left < 0:
                self._pause = _PAUSE
                return decode(document)
        content = b"".join(pieces)
        return decode(_INT32.pack(len(content) + 5) + content + b"\x00")
