"""Frames of a connection between nodes: a length, a kind, the number of a call, a JSON head and a body of bytes.

    length (4 bytes, of everything behind it) | kind (1) | call (8) | length of the head (4) | head | body

A parser takes bytes as they come and gives whole frames. Lengths are checked when they arrive, before anything is
gathered for them. What the frames mean is left to `handshake.py` and `connection.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

import orjson

from armillary import limits
from armillary.errors import Failure, Kind

_HEADER: Final = struct.Struct(">IBQI")
_LENGTH_BYTES: Final = 4
_BEHIND_LENGTH: Final = _HEADER.size - _LENGTH_BYTES


class FrameKind(IntEnum):
    HELLO = 1  # of the accepting node: versions and a nonce
    PROOF = 2  # of the connecting node: its name, the version, and the proof that it knows the key
    WELCOME = 3  # the proof was right
    FAREWELL = 4  # why the connection is ended, as a sentence
    CALL = 5
    ANSWER = 6
    REFUSAL = 7  # a Failure
    CANCEL = 8  # the answer of a call is not waited for any more
    BEAT = 9  # a sign of life
    RELAY = 10  # from here on the connection carries the bytes of a client's; sent back, it means agreed


class Frame(NamedTuple):
    kind: FrameKind
    call: int
    head: dict[str, Any]
    body: bytes


class BadFrame(Exception):
    """What came is no frame of this protocol. The connection is ended."""


def packed(kind: FrameKind, call: int = 0, head: dict[str, Any] | None = None, body: bytes = b"") -> list[bytes]:
    """A frame, as pieces to be written one after the other. Raises a Failure if it is too large."""
    try:
        head_bytes = orjson.dumps(head) if head else b""
    except TypeError as error:  # a defect of the caller, or a value of a document that JSON does not have
        raise Failure(Kind.INTERNAL, f"A message to another node cannot be written as JSON: {error}.") from error
    if len(head_bytes) > limits.PEER_HEAD_BYTES_MAX or len(body) > limits.PEER_BODY_BYTES_MAX:
        raise Failure(
            Kind.TOO_LARGE,
            f"A message to another node has {len(head_bytes):,} + {len(body):,} bytes, more than the "
            f"{limits.PEER_HEAD_BYTES_MAX:,} + {limits.PEER_BODY_BYTES_MAX:,} that nodes send each other.",
        )
    length = _BEHIND_LENGTH + len(head_bytes) + len(body)
    first = _HEADER.pack(length, kind, call, len(head_bytes)) + head_bytes
    return [first, body] if body else [first]


class FrameParser:
    """Gathers the bytes of one direction of a connection."""

    def __init__(self) -> None:
        self._gathered = bytearray()
        self.is_greeting = True  # only small frames are taken until the other side is known

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises BadFrame. What `is_greeting` is set to while iterating counts for the
        next frame."""
        gathered = self._gathered
        gathered += data
        at = 0
        try:
            while len(gathered) - at >= _HEADER.size:
                length, kind, call, head_bytes = _HEADER.unpack_from(gathered, at)
                self._check(length, head_bytes)
                end = at + _LENGTH_BYTES + length
                if len(gathered) < end:
                    return
                head_end = at + _HEADER.size + head_bytes
                with memoryview(gathered) as view:
                    head, body = bytes(view[at + _HEADER.size : head_end]), bytes(view[head_end:end])
                at = end
                yield Frame(_kind_of(kind), call, _head_of(head), body)
        finally:
            del gathered[:at]

    def rest(self) -> bytes:
        """What has come and is no frame, when the connection goes on with another protocol."""
        rest, self._gathered = bytes(self._gathered), bytearray()
        return rest

    def _check(self, length: int, head_bytes: int) -> None:
        body_bytes = length - _BEHIND_LENGTH - head_bytes
        if body_bytes < 0:
            raise BadFrame("the head of a frame is longer than the frame")
        if self.is_greeting and length > limits.PEER_GREETING_BYTES_MAX:
            raise BadFrame(f"a frame of {length:,} bytes came before the connection was accepted")
        if head_bytes > limits.PEER_HEAD_BYTES_MAX or body_bytes > limits.PEER_BODY_BYTES_MAX:
            raise BadFrame(f"a frame of {head_bytes:,} + {body_bytes:,} bytes is over the limit")


def _kind_of(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError:
        raise BadFrame(f"frames of kind {number} are not known") from None


def _head_of(text: bytes) -> dict[str, Any]:
    if not text:
        return {}
    try:
        head = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadFrame("the head of a frame is not JSON") from None
    if not isinstance(head, dict):
        raise BadFrame("the head of a frame is no object")
    return head


def failure_head(failure: Failure) -> dict[str, Any]:
    return {"kind": failure.kind.name, "message": failure.message, "retry_after_ms": failure.retry_after_ms}


def read_failure(head: dict[str, Any]) -> Failure:
    """A refusal of another node, as it was raised there. A kind of a newer version arrives as UNAVAILABLE."""
    kind = Kind.__members__.get(str(head.get("kind")), Kind.UNAVAILABLE)
    retry_after_ms = head.get("retry_after_ms")
    return Failure(
        kind,
        str(head.get("message", "")),
        retry_after_ms=retry_after_ms if isinstance(retry_after_ms, int) else None,
    )
