"""Documents of answers. A command gives a dictionary, or encoded fields where stored documents are sent unchanged; both
become one document here, ending with `ok` and the cluster time.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, NamedTuple

import bson
from bson.errors import InvalidDocument
from bson.timestamp import Timestamp

from armillary.doors.mongo.errors import error_document
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import CODEC, Document

_INT32: Final = Struct("<i")
_CURSOR_ID: Final = Struct("<q")
OK: Final = bson.encode({"ok": 1.0})[4:-1]
NOT_OPEN: Final = b"\x12id\x00" + _CURSOR_ID.pack(0)  # what a cursor says that has no more
_NUMBERS: Final = [str(number).encode() + b"\x00" for number in range(1001)]


class Elements(NamedTuple):
    """Fields of a document, encoded, without its length and end."""

    content: bytes


Reply = Document | Elements


def encode_elements(fields: Document) -> bytes:
    try:
        return bson.encode(fields, codec_options=CODEC)[4:-1]
    except (InvalidDocument, OverflowError, RecursionError) as error:
        raise Failure(Kind.INTERNAL, f"An answer could not be encoded: {error}"[:300]) from error


def document_of(content: bytes) -> bytes:
    return _INT32.pack(len(content) + 5) + content + b"\x00"


def finished(reply: Reply, extra: Document | None, time: bytes) -> bytes:
    """The whole answer to a command that went well."""
    content = reply.content if isinstance(reply, Elements) else encode_elements(reply)
    if extra:
        content += encode_elements(extra)
    return document_of(content + OK + time)


def refused(failure: Failure, labels: Iterable[str], extra: Document | None, time: bytes) -> bytes:
    return document_of(encode_elements({**error_document(failure, labels), **(extra or {})}) + time)


def cursor_reply(
    documents: list[bytes],
    *,
    cursor_id: int,
    namespace: str,
    is_first: bool,
    token: Any = None,
    time: Timestamp | None = None,
) -> Elements:
    """`{cursor: {firstBatch: […], id: …, ns: …}}` around documents that are encoded already. `time`: of the snapshot
    that they were read from."""
    batch = encode_array(documents)
    name = b"firstBatch" if is_first else b"nextBatch"
    ending = b""
    if token is not None:
        ending = encode_elements({"postBatchResumeToken": token})
    if time is not None:
        ending += encode_elements({"atClusterTime": time})
    cursor = (
        b"\x04" + name + b"\x00" + batch
        + b"\x12id\x00" + _CURSOR_ID.pack(cursor_id)
        + encode_elements({"ns": namespace})
        + ending
    )  # fmt: skip
    return Elements(b"\x03cursor\x00" + document_of(cursor))


def encode_array(documents: list[bytes]) -> bytes:
    pieces = []
    numbers = _NUMBERS
    for index, document in enumerate(documents):
        pieces.append(b"\x03" + (numbers[index] if index <= 1000 else str(index).encode() + b"\x00"))
        pieces.append(document)
    return document_of(b"".join(pieces))
