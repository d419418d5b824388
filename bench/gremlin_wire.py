"""Requests of Gremlin's WebSocket protocol as drivers send them, and clients that send prepared messages only, so that
the server is measured and not the driver.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import uvloop

from bench.protocol import KEY

DATABASE, GRAPH = "bench", "graph"
PARTITION_KEY: Final = "region"
FORM: Final = b"application/vnd.gremlin-v3.0+json"
_OPEN: Final = (
    b"GET /gremlin HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_HEAD_END: Final = b"\r\n\r\n"
_RESULT_S: Final = 900.0


def frame(content: bytes) -> bytes:
    """One binary frame of a client. The mask is zero, so that the client need not apply it."""
    size = len(content)
    if size < 126:
        head = struct.pack("!BB", 0x82, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x82, 0xFE, size)
    else:
        head = struct.pack("!BBQ", 0x82, 0xFF, size)
    return head + bytes(4) + content


def request(script: str, bindings: dict[str, Any] | None = None, **arguments: Any) -> bytes:
    given = {"gremlin": script, "bindings": bindings or {}, "language": "gremlin-groovy", "aliases": {"g": "g"}}
    return _message("eval", given | arguments)


def credentials() -> bytes:
    user = f"/dbs/{DATABASE}/colls/{GRAPH}"
    return _message("authentication", {"sasl": base64.b64encode(f"\0{user}\0{KEY}".encode()).decode()})


def _message(operation: str, arguments: dict[str, Any]) -> bytes:
    request_id = {"@type": "g:UUID", "@value": str(uuid.uuid4())}
    body = {"requestId": request_id, "op": operation, "processor": "", "args": arguments}
    return frame(bytes((len(FORM),)) + FORM + json.dumps(body).encode())


def frame_end(received: bytes | bytearray) -> tuple[int, int] | None:
    """Start and end of the payload of a server's first frame; None: the frame is incomplete."""
    if len(received) < 2:
        return None
    begin, size = 2, received[1] & 0x7F
    if size == 126:
        begin, size = 4, int.from_bytes(received[2:4], "big")
    elif size == 127:
        begin, size = 10, int.from_bytes(received[2:10], "big")
    return (begin, begin + size) if len(received) >= begin + size and len(received) >= begin else None


class _Client(asyncio.Protocol):
    """A client with one request in flight. Answers are single frames."""

    def __init__(self, messages: Sequence[bytes], first: int) -> None:
        self._messages = messages
        self._at = first
        self._received = bytearray()
        self._is_open = False
        self.count = 0
        self.wrong = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]
        self._write(_OPEN)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_open:
            end = self._received.find(_HEAD_END)
            if end < 0:
                return
            del self._received[: end + len(_HEAD_END)]
            self._is_open = True
            self._send()
        while (place := frame_end(self._received)) is not None:
            content = bytes(self._received[place[0] : place[1]])
            del self._received[: place[1]]
            if b'"code":407' in content:
                self._write(credentials())
                continue
            self.count += 1
            if b'"code":200' not in content:
                self.wrong += 1
            self._send()

    def _send(self) -> None:
        self._at += 1
        self._write(self._messages[self._at % len(self._messages)])


def rate(port: int, messages: Sequence[bytes], *, connections: int, seconds: float) -> float:
    """Answers a second."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        clients = [_Client(messages, each * len(messages) // connections) for each in range(connections)]
        transports = [
            (await loop.create_connection(lambda client=client: client, "127.0.0.1", port))[0]  # type: ignore[misc]
            for client in clients
        ]
        before, begun_s = sum(each.count for each in clients), time.perf_counter()
        await asyncio.sleep(seconds)
        taken_s = time.perf_counter() - begun_s
        count = sum(each.count for each in clients) - before
        for transport in transports:
            transport.abort()
        if any(each.wrong for each in clients):
            raise RuntimeError("the server did not find what was asked for")
        return count / taken_s

    return uvloop.run(run())


def ask(port: int, script: str, **arguments: Any) -> list[Any]:
    """The results of one script, over a connection of its own, as plain JSON."""
    with socket.create_connection(("127.0.0.1", port), _RESULT_S) as connection:
        connection.sendall(_OPEN)
        received = bytearray()
        while _HEAD_END not in received:
            received += _some(connection)
        del received[: received.find(_HEAD_END) + len(_HEAD_END)]
        connection.sendall(request(script, **arguments))
        found: list[Any] = []
        while True:
            while (place := frame_end(received)) is None:
                received += _some(connection)
            answer = json.loads(received[place[0] : place[1]])
            del received[: place[1]]
            code = answer["status"]["code"]
            if code == 407:
                connection.sendall(credentials())
            elif code in (200, 204, 206):
                found += plain(answer["result"]["data"])
                if code != 206:
                    return found
            else:
                raise RuntimeError(answer["status"]["message"])


def plain(value: Any) -> Any:
    """GraphSON 3 without its types."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "@type" not in value:
        return {name: plain(each) for name, each in value.items()}
    content = value["@value"]
    if value["@type"] == "g:Map":
        return {str(plain(content[at])): plain(content[at + 1]) for at in range(0, len(content), 2)}
    return plain(content)


def _some(connection: socket.socket) -> bytes:
    piece = connection.recv(1 << 16)
    if not piece:
        raise RuntimeError("the server has closed the connection")
    return piece
