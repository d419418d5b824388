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

from armillary import limits
from armillary.doors.mongo.errors import error_document
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import CODEC, Document
from armillary.work import spend

_INT32: Final = Struct("<i")
_EMPTY_BYTES: Final = 5  # of a document without fields
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


def document_of(*content: bytes) -> bytes:
    """A document around its encoded fields. They are copied once: a copy of the largest answer takes 10 ms."""
    return b"".join((_INT32.pack(sum(map(len, content)) + _EMPTY_BYTES), *content, b"\x00"))


def finished(reply: Reply, extra: Document | None, time: bytes) -> bytes:
    """The whole answer to a command that went well."""
    content = reply.content if isinstance(reply, Elements) else encode_elements(reply)
    spend(len(content) // limits.WORK_UNIT_BYTES)
    return document_of(content, encode_elements(extra) if extra else b"", OK, time)


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
    name = b"firstBatch" if is_first else b"nextBatch"
    ending = b""
    if token is not None:
        ending = encode_elements({"postBatchResumeToken": token})
    if time is not None:
        ending += encode_elements({"atClusterTime": time})
    ending = b"\x00\x12id\x00" + _CURSOR_ID.pack(cursor_id) + encode_elements({"ns": namespace}) + ending
    # The lengths are computed first, so that the documents are copied once.
    batch = _elements_of_array(documents)
    batch_bytes = sum(map(len, batch)) + _EMPTY_BYTES
    spend(batch_bytes // limits.WORK_UNIT_BYTES)
    beginning = b"\x04" + name + b"\x00" + _INT32.pack(batch_bytes)
    cursor_bytes = len(beginning) + batch_bytes + len(ending)
    return Elements(b"".join((b"\x03cursor\x00" + _INT32.pack(cursor_bytes) + beginning, *batch, ending + b"\x00")))


def _elements_of_array(documents: list[bytes]) -> list[bytes]:
    pieces = []
    numbers = _NUMBERS
    for index, document in enumerate(documents):
        pieces.append(b"\x03" + (numbers[index] if index <= 1000 else str(index).encode() + b"\x00"))
        pieces.append(document)
    return pieces
