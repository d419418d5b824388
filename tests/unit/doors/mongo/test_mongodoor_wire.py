"""Frames of the MongoDB wire: read, written, compressed, checked; and what is no frame."""

from __future__ import annotations

import struct

import bson
import pytest

from armillary import limits
from armillary.doors.mongo.errors import MalformedMessage
from armillary.doors.mongo.wire import compression, messages
from armillary.errors import Failure

PING = bson.encode({"ping": 1, "$db": "admin"})


def message(*sections: bytes, flags: int = 0, request_id: int = 7) -> bytes:
    content = struct.pack("<I", flags) + b"".join(sections)
    if flags & messages.CHECKSUM:
        head = struct.pack("<iiii", 20 + len(content), request_id, 0, messages.OP_MSG)
        return head + content + struct.pack("<I", messages.crc32c(head + content))
    return struct.pack("<iiii", 16 + len(content), request_id, 0, messages.OP_MSG) + content


def sequence(name: str, *documents: bytes) -> bytes:
    inside = name.encode() + b"\x00" + b"".join(documents)
    return b"\x01" + struct.pack("<i", len(inside) + 4) + inside


def query(namespace: str, document: bytes) -> bytes:
    content = struct.pack("<i", 0) + namespace.encode() + b"\x00" + struct.pack("<ii", 0, -1) + document
    return struct.pack("<iiii", 16 + len(content), 9, 0, messages.OP_QUERY) + content


def packed(frame: bytes, compressor: int, size_bytes: int | None = None) -> bytes:
    _, request_id, _, op_code = struct.unpack_from("<iiii", frame)
    content = frame[16:]
    said = len(content) if size_bytes is None else size_bytes
    inner = struct.pack("<iiB", op_code, said, compressor) + compression.deflate(compressor, content)
    return struct.pack("<iiii", 16 + len(inner), request_id, 0, messages.OP_COMPRESSED) + inner


def test_a_body_and_sequences_in_any_order() -> None:
    documents = [bson.encode({"_id": number}) for number in range(3)]
    body = b"\x00" + bson.encode({"insert": "c", "$db": "d"})
    for sections in ((body, sequence("documents", *documents)), (sequence("documents", *documents), body)):
        request = messages.read_request(messages.open_frame(message(*sections)))
        assert request.body == {"insert": "c", "$db": "d"}
        assert request.sequences == {"documents": documents}


def test_the_handshake_of_older_drivers() -> None:
    envelope = messages.open_frame(query("admin.$cmd", bson.encode({"ismaster": 1, "helloOk": True})))
    assert messages.read_request(envelope).body == {"ismaster": 1, "helloOk": True, "$db": "admin"}
    wrapped = bson.encode({"$query": {"isMaster": 1}, "$readPreference": {"mode": "nearest"}})
    assert messages.read_request(messages.open_frame(query("admin.$cmd", wrapped))).body == {
        "isMaster": 1,
        "$db": "admin",
    }
    answer = messages.frame_answer(envelope, 5, bson.encode({"ok": 1.0}), compresses=False)
    size, number, to, op_code, flags, cursor, start, count = struct.unpack_from("<iiiiiqii", answer)
    assert (size, number, to, op_code) == (len(answer), 5, 9, messages.OP_REPLY)
    assert (flags, cursor, start, count) == (8, 0, 0, 1)


@pytest.mark.parametrize(
    ("namespace", "document"),
    [("admin.$cmd", {"find": "c"}), ("test.c", {"a": 1}), ("test.c", {"ismaster": 1}), ("admin.$cmd", {})],
)
def test_other_queries_of_old_are_refused(namespace: str, document: dict[str, object]) -> None:
    with pytest.raises(Failure) as caught:
        messages.read_request(messages.open_frame(query(namespace, bson.encode(document))))
    assert caught.value.details["code"] == 352


@pytest.mark.parametrize("compressor", [compression.NOOP, compression.SNAPPY, compression.ZLIB, compression.ZSTD])
def test_compressed_messages_are_answered_in_kind(compressor: int) -> None:
    envelope = messages.open_frame(packed(message(b"\x00" + PING), compressor))
    assert (envelope.compressor, envelope.request_id) == (compressor, 7)
    assert messages.read_request(envelope).body["ping"] == 1
    document = bson.encode({"ok": 1.0, "text": "x" * 5000})
    answer = messages.frame_answer(envelope, 3, document, compresses=True)
    assert struct.unpack_from("<iiii", answer)[3] == messages.OP_COMPRESSED
    assert compressor == compression.NOOP or len(answer) < 1000
    op_code, size, number = struct.unpack_from("<iiB", answer, 16)
    assert (op_code, number) == (messages.OP_MSG, compressor)
    assert compression.inflate(compressor, answer[25:], size) == struct.pack("<I", 0) + b"\x00" + document
    plain = messages.frame_answer(envelope, 3, document, compresses=False)
    assert struct.unpack_from("<iiii", plain)[3] == messages.OP_MSG


@pytest.mark.parametrize("compressor", [compression.SNAPPY, compression.ZLIB, compression.ZSTD])
@pytest.mark.parametrize("size_bytes", [-1, 0, 10, 20_000, limits.MONGO_MESSAGE_BYTES_MAX + 1])
def test_compressed_messages_have_the_size_they_say(compressor: int, size_bytes: int) -> None:
    bomb = message(b"\x00" + bson.encode({"ping": "0" * 10_000, "$db": "admin"}))
    with pytest.raises(MalformedMessage):
        messages.open_frame(packed(bomb, compressor, size_bytes))


def test_unknown_compressors_and_broken_ones() -> None:
    with pytest.raises(MalformedMessage):
        messages.open_frame(packed(message(b"\x00" + PING), compression.NOOP)[:24] + b"\x09" + b"x" * 20)
    for compressor in (compression.SNAPPY, compression.ZLIB, compression.ZSTD):
        inner = struct.pack("<iiB", messages.OP_MSG, 100, compressor) + b"\xff" * 40
        with pytest.raises(MalformedMessage):
            messages.open_frame(struct.pack("<iiii", 16 + len(inner), 1, 0, messages.OP_COMPRESSED) + inner)


def test_checksums() -> None:
    assert messages.crc32c(b"123456789") == 0xE3069283  # of the standard
    right = message(b"\x00" + PING, flags=messages.CHECKSUM)
    assert messages.read_request(messages.open_frame(right)).body["ping"] == 1
    with pytest.raises(MalformedMessage):
        messages.open_frame(right[:-1] + bytes([right[-1] ^ 1]))


def test_flags() -> None:
    with pytest.raises(MalformedMessage):
        messages.open_frame(message(b"\x00" + PING, flags=1 << 5))
    assert messages.open_frame(message(b"\x00" + PING, flags=messages.MORE_TO_COME)).wants_no_answer
    envelope = messages.open_frame(message(b"\x00" + PING, flags=messages.EXHAUST_ALLOWED | 1 << 20))
    assert envelope.allows_exhaust and not envelope.wants_no_answer


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ((b"\x00" + PING, b"\x00" + PING), 40430),
        ((sequence("documents", PING),), 40587),
        ((b"\x00" + PING, sequence("a", PING), sequence("a", PING)), 40431),
        ((b"\x00" + PING, sequence("ping", PING)), 40433),
        ((b"\x02" + PING,), 40432),
        ((b"\x00" + struct.pack("<i", 12) + b"\x02abcdef\x00",), 22),
    ],
)
def test_frames_that_are_whole_and_wrong_are_answered(sections: tuple[bytes, ...], code: int) -> None:
    with pytest.raises(Failure) as caught:
        messages.read_request(messages.open_frame(message(*sections)))
    assert caught.value.details["code"] == code


@pytest.mark.parametrize("op_code", [0, 1, 1000, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 9999])
def test_removed_messages_end_the_connection(op_code: int) -> None:
    with pytest.raises(MalformedMessage):
        messages.open_frame(struct.pack("<iiii", 36, 1, 0, op_code) + bytes(20))


def test_sections_that_do_not_fit() -> None:
    for section in (b"\x00", b"\x00\xff\xff\xff\x7f", b"\x01\x04\x00\x00\x00", b"\x01\x08\x00\x00\x00abcd"):
        with pytest.raises((MalformedMessage, Failure)):
            messages.read_request(messages.open_frame(message(section)))


def test_a_document_of_many_levels_is_refused() -> None:
    nested = b"\x05\x00\x00\x00\x00"
    for _ in range(3000):
        inside = b"\x03a\x00" + nested
        nested = struct.pack("<i", len(inside) + 5) + inside + b"\x00"
    with pytest.raises(Failure) as caught:
        messages.read_request(messages.open_frame(message(b"\x00" + nested)))
    assert caught.value.details["code"] in (15, 22)


@pytest.mark.parametrize("compressor", [compression.SNAPPY, compression.ZLIB, compression.ZSTD])
def test_messages_of_strangers_are_small_once_inflated(compressor: int) -> None:
    """A frame of some kilobytes may hold megabytes of nothing."""
    bomb = packed(message(b"\x00" + bson.encode({"hello": 1, "client": "0" * 3_000_000, "$db": "admin"})), compressor)
    assert len(messages.open_frame(bomb).content) > 3_000_000
    with pytest.raises(MalformedMessage):
        messages.open_frame(bomb, limits.MONGO_STRANGER_BYTES_MAX)
    # What it says about its size does not help it.
    with pytest.raises(MalformedMessage):
        messages.open_frame(bomb[:20] + struct.pack("<i", 100) + bomb[24:], limits.MONGO_STRANGER_BYTES_MAX)


def test_sequences_hold_as_many_documents_as_a_batch() -> None:
    most = limits.MONGO_BATCH_OPERATIONS_MAX
    body = b"\x00" + bson.encode({"insert": "c", "$db": "d"})
    documents = bson.encode({}) * most
    whole = messages.read_request(messages.open_frame(message(body, sequence("documents", documents))))
    assert len(whole.sequences["documents"]) == most
    with pytest.raises(Failure) as caught:
        messages.read_request(messages.open_frame(message(body, sequence("documents", documents, bson.encode({})))))
    assert caught.value.details["code"] == 16
