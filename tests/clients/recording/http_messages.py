"""Messages of HTTP/1.1, read whole from a stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

HEAD_END = b"\r\n\r\n"
STREAM_BYTES_MAX = 1 << 24
_WITHOUT_BODY = (204, 304)


@dataclass
class Message:
    first_line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each.lower() == name), None)

    def encode(self) -> bytes:
        """With the length of the body in the place of chunks."""
        kept = [pair for pair in self.headers if pair[0].lower() not in ("transfer-encoding", "content-length")]
        if self.body or self.header("content-length") is not None or self.header("transfer-encoding") is not None:
            kept.append(("Content-Length", str(len(self.body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in kept)
        return f"{self.first_line}\r\n{lines}\r\n".encode("latin-1") + self.body


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
    """None: the client has closed the connection."""
    message = await _read_head(reader)
    if message is None:
        return None
    if (message.header("expect") or "").lower() == "100-continue":
        message.headers = [pair for pair in message.headers if pair[0].lower() != "expect"]
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    message.body = await _read_body(reader, message)
    return message


async def read_answer(reader: asyncio.StreamReader, method: str) -> Message | None:
    """None: the server has closed the connection without an answer."""
    message = await _read_head(reader)
    if message is not None and method != "HEAD" and status_of(message) not in _WITHOUT_BODY:
        message.body = await _read_body(reader, message)
    return message


def status_of(answer: Message) -> int:
    return int(answer.first_line.split(" ", 2)[1])


async def _read_head(reader: asyncio.StreamReader) -> Message | None:
    try:
        head = await reader.readuntil(HEAD_END)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1")[: -len(HEAD_END)].split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Message(first, [(name.strip(), value.strip()) for name, _, value in pairs], b"")


async def _read_body(reader: asyncio.StreamReader, message: Message) -> bytes:
    if (message.header("transfer-encoding") or "").lower() == "chunked":
        parts: list[bytes] = []
        while size_bytes := int((await reader.readline()).split(b";")[0], 16):
            parts.append((await reader.readexactly(size_bytes + 2))[:-2])
        while (await reader.readline()).strip():
            pass  # trailers
        return b"".join(parts)
    return await reader.readexactly(int(message.header("content-length") or 0))
