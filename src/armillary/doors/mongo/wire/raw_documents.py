"""BSON documents as bytes: taking elements out and putting some in without decoding the rest, so that what clients sent
is stored as they sent it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from armillary.model.bson.bson_elements import elements

_INT32: Final = Struct("<i")


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
