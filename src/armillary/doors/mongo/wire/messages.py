"""The bytes of the MongoDB wire protocol: OP_MSG with all its sections, the legacy handshake in OP_QUERY, OP_COMPRESSED
around either.

Knows no socket and no command: those are in `connection.py` and `doors/mongo/door.py`. Raises `MalformedMessage` where
the frame cannot be read, and Failures where an error can be answered.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from bson.errors import BSONError, InvalidBSON

from armillary import limits
from armillary.doors.mongo.errors import MalformedMessage
from armillary.doors.mongo.wire import compression
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, decode
from armillary.work import spend

OP_REPLY, OP_QUERY, OP_COMPRESSED, OP_MSG = 1, 2004, 2012, 2013

HEADER: Final = Struct("<iiii")
_COMPRESSED: Final = Struct("<iiB")
_UINT32: Final = Struct("<I")
_INT32: Final = Struct("<i")
_REPLY: Final = Struct("<iqii")
_AWAIT_CAPABLE, _QUERY_FAILURE = 8, 2

CHECKSUM, MORE_TO_COME, EXHAUST_ALLOWED = 1, 2, 1 << 16
_KNOWN_FLAGS: Final = CHECKSUM | MORE_TO_COME
_REQUIRED_FLAGS: Final = 0xFFFF

HEADER_BYTES: Final = HEADER.size
BODY_SECTION: Final = 0
ANSWER_BODY_AT: Final = HEADER_BYTES + _UINT32.size + 1  # behind the flags and the kind of the section
_EMPTY_BYTES: Final = 5  # of a document without fields


class Envelope(NamedTuple):
    """What answering needs to know of a message, whatever is in it."""

    request_id: int
    op_code: int
    compressor: int | None
    flags: int
    content: bytes  # behind header and flags

    @property
    def wants_no_answer(self) -> bool:
        return self.op_code == OP_MSG and bool(self.flags & MORE_TO_COME)

    @property
    def allows_exhaust(self) -> bool:
        return self.op_code == OP_MSG and bool(self.flags & EXHAUST_ALLOWED)


class Request(NamedTuple):
    body: Document
    raw_body: bytes
    sequences: dict[str, list[bytes]]  # documents that came beside the body, undecoded


def open_frame(frame: bytes, bytes_max: int = limits.MONGO_MESSAGE_BYTES_MAX) -> Envelope:
    """A whole frame, as long as its header says. `bytes_max`: of a message once it is inflated."""
    _, request_id, _, op_code = HEADER.unpack_from(frame)
    # Copied once, as what is left of it: a copy of the largest message takes 10 to 40 ms.
    whole, begin = frame, HEADER_BYTES
    compressor = None
    if op_code == OP_COMPRESSED:
        if len(frame) < HEADER_BYTES + _COMPRESSED.size:
            raise MalformedMessage("a compressed message is too short")
        op_code, size_bytes, compressor = _COMPRESSED.unpack_from(frame, HEADER_BYTES)
        if not 0 < size_bytes <= bytes_max:
            raise MalformedMessage(f"a compressed message of {size_bytes} bytes is not accepted")
        whole = compression.inflate(compressor, frame[HEADER_BYTES + _COMPRESSED.size :], size_bytes)
        begin = 0
    if op_code == OP_QUERY:
        return Envelope(request_id, op_code, compressor, 0, whole[begin:])
    if op_code != OP_MSG:
        raise MalformedMessage(f"messages of kind {op_code} are not served")
    content_at, end = begin + _UINT32.size, len(whole)
    if end < content_at:
        raise MalformedMessage("a message is too short")
    (flags,) = _UINT32.unpack_from(whole, begin)
    if flags & _REQUIRED_FLAGS & ~_KNOWN_FLAGS:
        raise MalformedMessage(f"the flags {flags:#x} of a message are not known")
    if flags & CHECKSUM:
        end -= _UINT32.size
        if end < content_at:
            raise MalformedMessage("a message is too short for its checksum")
        # Of the message as it would travel uncompressed, which only the uncompressed one has.
        if compressor is None and not _has_right_checksum(frame):
            raise MalformedMessage("the checksum of a message is wrong")
    return Envelope(request_id, op_code, compressor, flags, whole[content_at:end])


def read_request(envelope: Envelope, *, is_known: bool = True) -> Request:
    """`is_known`: its sender is. No command that others may run has documents beside its body: theirs are not read."""
    if envelope.op_code == OP_QUERY:
        return _read_query(envelope.content)
    return _read_sections(envelope.content, is_known=is_known)


def _read_sections(content: bytes, *, is_known: bool) -> Request:
    raw_body: bytes | None = None
    sequences: dict[str, list[bytes]] = {}
    at, end = 0, len(content)
    while at < end:
        kind = content[at]
        at += 1
        if end - at < _INT32.size:
            raise MalformedMessage("a section of a message is cut off")
        (size_bytes,) = _INT32.unpack_from(content, at)
        if size_bytes < _INT32.size or size_bytes > end - at:
            raise MalformedMessage("a section of a message is longer than the message")
        section_at, at = at, at + size_bytes
        if kind == BODY_SECTION:
            if raw_body is not None:
                raise refusal(40430, "Multiple body sections in message")
            raw_body = content[section_at:at]
        elif kind == 1:
            name, documents = _read_sequence(content, section_at, at) if is_known else ("", [])
            if name in sequences and is_known:
                raise refusal(40431, f"Duplicate document sequence: {name}")
            sequences[name] = documents
        else:
            raise refusal(40432, f"Unknown section kind {kind}")
    if raw_body is None:
        raise refusal(40587, "OP_MSG messages must have a body")
    body = decode_document(raw_body)
    for name in sequences:
        if name in body:
            raise refusal(40433, f"Duplicate field between body and document sequence {name}")
    return Request(body, raw_body, sequences)


def _read_sequence(content: bytes, begin: int, end: int) -> tuple[str, list[bytes]]:
    """The section at [begin, end). May give way."""
    name_end = content.find(b"\x00", begin + _INT32.size, end)
    if name_end < 0:
        raise MalformedMessage("the name of a document sequence is not ended")
    try:
        name = content[begin + _INT32.size : name_end].decode()
    except UnicodeDecodeError:
        raise MalformedMessage("the name of a document sequence is no text") from None
    documents: list[bytes] = []
    at = name_end + 1
    while at < end:
        if end - at < _EMPTY_BYTES:
            raise MalformedMessage("a document of a sequence is cut off")
        (size_bytes,) = _INT32.unpack_from(content, at)
        if size_bytes < _EMPTY_BYTES or size_bytes > end - at:
            raise MalformedMessage("a document of a sequence is longer than the sequence")
        if len(documents) == limits.MONGO_BATCH_OPERATIONS_MAX:
            most = limits.MONGO_BATCH_OPERATIONS_MAX
            raise refusal(16, f"Write batch sizes must be between 1 and {most}. There are more operations.")
        spend(3 + size_bytes // limits.WORK_UNIT_BYTES)
        documents.append(content[at : at + size_bytes])
        at += size_bytes
    return name, documents


def _read_query(content: bytes) -> Request:
    name_end = content.find(b"\x00", _INT32.size)
    at = name_end + 1 + 2 * _INT32.size
    if name_end < 0 or len(content) - at < _EMPTY_BYTES:
        raise MalformedMessage("a query is too short")
    (size_bytes,) = _INT32.unpack_from(content, at)
    if size_bytes < _EMPTY_BYTES or size_bytes > len(content) - at:
        raise MalformedMessage("the document of a query is longer than the query")
    try:
        database, _, collection = content[_INT32.size : name_end].decode().partition(".")
    except UnicodeDecodeError:
        raise MalformedMessage("the namespace of a query is no text") from None
    raw_body = content[at : at + size_bytes]
    body = decode_document(raw_body)
    first = next(iter(body), "")
    if first in ("$query", "query") and isinstance(body[first], dict):
        body = body[first]
        first = next(iter(body), "")
    if collection != "$cmd" or first.lower() not in ("ismaster", "hello"):
        raise refusal(352, f"Unsupported OP_QUERY command: {first[:100]}. The client driver may require an upgrade.")
    return Request({**body, "$db": database}, raw_body, {})


def decode_document(raw: bytes) -> Document:
    try:
        return decode(raw)
    except (InvalidBSON, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise refusal(22, f"Invalid BSON: {error}"[:300]) from None
    except RecursionError:
        raise refusal(15, "Document exceeds maximum nested object depth") from None


# Answers.


def frame_answer(envelope: Envelope, answer_id: int, document: bytes, *, compresses: bool, flags: int = 0) -> bytes:
    """One document as the answer to a message, in the message's own manner."""
    return frame(
        envelope.op_code,
        answer_id,
        envelope.request_id,
        document,
        compressor=envelope.compressor if compresses else None,
        flags=flags,
    )


def frame(
    op_code: int, answer_id: int, response_to: int, document: bytes, *, compressor: int | None, flags: int = 0
) -> bytes:
    if op_code == OP_QUERY:
        op_code = OP_REPLY
        head = _REPLY.pack(_AWAIT_CAPABLE | flags, 0, 0, 1)
    else:
        head = _UINT32.pack(flags) + b"\x00"
    content_bytes = len(head) + len(document)
    if compressor is None:
        return HEADER.pack(HEADER_BYTES + content_bytes, answer_id, response_to, op_code) + head + document
    packed = compression.deflate(compressor, head + document)
    inner = _COMPRESSED.pack(op_code, content_bytes, compressor)
    size_bytes = HEADER_BYTES + len(inner) + len(packed)
    return HEADER.pack(size_bytes, answer_id, response_to, OP_COMPRESSED) + inner + packed


def plain_answer(asked: bytes, answer_id: int, document: bytes) -> bytes:
    """The same for an OP_MSG without flags."""
    _, request_id, _, _ = HEADER.unpack_from(asked)
    return HEADER.pack(HEADER_BYTES + 5 + len(document), answer_id, request_id, OP_MSG) + bytes(5) + document


def failure_flags(envelope: Envelope) -> int:
    """What an OP_REPLY says beside an error document."""
    return _QUERY_FAILURE if envelope.op_code == OP_QUERY else 0


# Checksums (CRC-32C). Drivers send them only when configured to, so a slow implementation will do; messages longer than
# `MONGO_CHECKED_BYTES_MAX` are not checked, to bound the time on the event loop.

_POLYNOMIAL: Final = 0x82F63B78


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (_POLYNOMIAL if remainder & 1 else 0)
        table.append(remainder)
    return table


_CRC_TABLE: Final = _crc_table()


def crc32c(content: bytes) -> int:
    table = _CRC_TABLE
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder = table[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    return remainder ^ 0xFFFFFFFF


def _has_right_checksum(frame: bytes) -> bool:
    """Whether the last four bytes are the checksum of those before them."""
    if len(frame) > limits.MONGO_CHECKED_BYTES_MAX:
        return True
    return crc32c(frame[:-4]) == int.from_bytes(frame[-4:], "little")


# The first message of a connection. Clients behind a load balancer (`loadBalanced=true`) belong to no member of a
# replica set: a node that follows hands their connections to the leader, and has to know before it answers.

_OP_CODE_AT: Final = 12
_HANDSHAKES: Final = ("hello", "ismaster")


def wants_load_balancing(first_bytes: bytes) -> bool | None:
    """None: more bytes are needed, at most as many as a message before authentication may have. What is no handshake
    wants nothing: the door answers or refuses it."""
    if len(first_bytes) < _INT32.size:
        return None
    (size_bytes,) = _INT32.unpack_from(first_bytes)
    if not HEADER_BYTES <= size_bytes <= limits.MONGO_STRANGER_BYTES_MAX:
        return False
    if len(first_bytes) < HEADER_BYTES:
        return None
    if _INT32.unpack_from(first_bytes, _OP_CODE_AT)[0] not in (OP_MSG, OP_QUERY):
        return False  # drivers compress only after the handshake
    if len(first_bytes) < size_bytes:
        return None
    try:
        envelope = open_frame(bytes(first_bytes[:size_bytes]), limits.MONGO_STRANGER_BYTES_MAX)
        body = read_request(envelope, is_known=False).body
    except (MalformedMessage, Failure, BSONError, ValueError, RecursionError, OverflowError):
        return False
    return next(iter(body), "").lower() in _HANDSHAKES and body.get("loadBalanced") is True
