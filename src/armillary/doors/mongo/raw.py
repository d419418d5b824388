"""BSON documents as bytes: taking elements out and putting some in without decoding the rest, so that what clients sent
is stored as they sent it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from armillary.doors.mongo.refusals import bad_message

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
_TEXTS: Final = (0x02, 0x0D, 0x0E)
_DOCUMENTS: Final = (0x03, 0x04)


def elements(document: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """Each element of a document that was decoded before: type, name, and where it begins and ends."""
    at, end = _INT32.size, len(document) - 1
    while at < end:
        begin = at
        kind = document[at]
        name_end = document.index(b"\x00", at + 1)
        name = document[at + 1 : name_end]
        at = name_end + 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind in _TEXTS:
            at += 4 + _INT32.unpack_from(document, at)[0]
        elif kind in _DOCUMENTS or kind == 0x0F:
            at += _INT32.unpack_from(document, at)[0]
        elif kind == 0x05:
            at += 5 + _INT32.unpack_from(document, at)[0]
        elif kind == 0x0C:
            at += 4 + _INT32.unpack_from(document, at)[0] + 12
        elif kind == 0x0B:
            at = document.index(b"\x00", document.index(b"\x00", at) + 1) + 1
        else:
            raise bad_message(22, f"Invalid BSON: the type {kind} is not known")
        yield kind, name, begin, at


def documents_at(document: bytes, field: str) -> list[bytes]:
    """The documents of an array, each as it is."""
    wanted = field.encode()
    for kind, name, begin, end in elements(document):
        if name == wanted and kind == 0x04:
            array = document[begin + 1 + len(name) + 1 : end]
            return [array[first + 2 + len(each) : last] for _, each, first, last in elements(array)]
    return []


def with_id_first(document: bytes, id_document: bytes) -> bytes:
    """The same document with this `_id` at its beginning."""
    pieces = [id_document[4:-1]]
    for _, name, begin, end in elements(document):
        if name != b"_id":
            pieces.append(document[begin:end])
    content = b"".join(pieces)
    return _INT32.pack(len(content) + 5) + content + b"\x00"
