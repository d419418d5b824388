"""The refusal of HTTP/2, in its own frames, to clients that begin with its preface instead of asking by ALPN.

An answer in HTTP/1.1 would be read as a frame of 4 MB. HTTP_1_1_REQUIRED (RFC 9113, section 7) makes clients that can
do both use HTTP/1.1. Rust's azure_data_cosmos begins so everywhere. It falls back for the error of a stream only:
the end of a connection without streams it takes for an outage. So the refusal waits for the first request.
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_FRAME_HEAD_BYTES: Final = 9
# Types of frames.
_HEADERS: Final = 0x1
_RST_STREAM: Final = 0x3
_SETTINGS: Final = 0x4
_GOAWAY: Final = 0x7
_CONNECTION: Final = bytes(4)  # the stream of frames that are about all of them
_HTTP_1_1_REQUIRED: Final = bytes.fromhex("0000000d")


class Http2Refusal:
    """Reads a client's frames up to the first request. Holds no more of them than the head of one."""

    def __init__(self) -> None:
        self._head = b""
        self._skipped_bytes = len(PREFACE)

    def feed(self, data: bytes) -> bytes:
        """The refusal, once a request has come; until then nothing."""
        at = 0
        while True:
            skipped = min(self._skipped_bytes, len(data) - at)
            self._skipped_bytes -= skipped
            at += skipped
            missing = _FRAME_HEAD_BYTES - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) < _FRAME_HEAD_BYTES:
                return b""
            if self._head[3] == _HEADERS:
                return _refusal(self._head[5:9])
            self._skipped_bytes = int.from_bytes(self._head[:3], "big")
            self._head = b""


def _refusal(stream: bytes) -> bytes:
    """Ends the stream of the request, then the connection, of which it was the last stream."""
    ended = _frame(_RST_STREAM, stream, _HTTP_1_1_REQUIRED)
    return ended + _frame(_GOAWAY, _CONNECTION, stream + _HTTP_1_1_REQUIRED)


def _frame(kind: int, stream: bytes, content: bytes) -> bytes:
    """Without flags."""
    return len(content).to_bytes(3, "big") + bytes((kind, 0)) + stream + content


# The server's side of the preface, without changes: sent before anything else.
SETTINGS: Final = _frame(_SETTINGS, _CONNECTION, b"")
