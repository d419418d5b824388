"""Twenty thousand mutated heads through the connection itself: valid refusals or a clean end, never an exception."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import Any

import pytest

from armillary.clock import VirtualClock
from armillary.net.connection import Connection
from armillary.net.http import Request, Response
from armillary.net.service import Service

SEED = 20_251
COUNT = 20_000

HEADS = [
    b"GET /dbs/a/colls/b/docs/c HTTP/1.1\r\nHost: localhost:8081\r\nx-ms-date: Sat, 15 Nov 2025 10:00:00 GMT\r\n"
    b"authorization: type%3dmaster%26ver%3d1.0%26sig%3dabc%3d\r\nx-ms-version: 2020-07-15\r\n"
    b'x-ms-documentdb-partitionkey: ["a"]\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n',
    b"POST /dbs HTTP/1.1\r\nHost: [::1]:8081\r\nContent-Length: 12\r\nContent-Type: application/json\r\n\r\n"
    b'{"id":"abc"}',
    b"POST /dbs/x/colls HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET http://a:1/x?y=z HTTP/1.1\r\nHost: b\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
]
PIECES = [
    b"\r\n", b"\n", b"\r", b"\x00", b"\xff", b" ", b"\t", b":", b";", b",", b"%", b"\r\n\r\n", b"\r\n ", b"0\r\n\r\n",
    b"Host: x\r\n", b"Content-Length: 5\r\n", b"Content-Length: 4194305\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Expect: x\r\n", b"HTTP/1.0", b"HTTP/2.0",
    b"CONNECT", b"PRI", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"A: " + b"v" * 9000 + b"\r\n", b"/" * 20_000,
    b"-1", b"99999999999999999999", b"ffffffffffffffff\r\n", b"\x16\x03\x01", b"X: y\r\n" * 200,
]  # fmt: skip
ANSWER = re.compile(
    rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+\r\n(?:[A-Za-z-]+: [^\r\n]*\r\n)*?"
    rb"(?:Content-Length: (\d+)\r\n)?(?:Connection: [a-z-]+\r\n)?\r\n"
)


class Wire(asyncio.Transport):
    """The transport's end of a connection, in memory. Like a real one it tells of a loss later, not at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False
        self.is_held = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended, "written after the end"
        self.written += data

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        assert not self.is_held, "held twice"
        self.is_held = True

    def resume_reading(self) -> None:
        assert self.is_held, "released without being held"
        self.is_held = False

    def get_write_buffer_size(self) -> int:
        return 0


def mutate(dice: random.Random) -> bytes:
    wire = b"".join(dice.choices(HEADS, k=dice.choice((1, 1, 1, 2, 3))))
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        at = dice.randrange(len(wire) + 1)
        end = min(len(wire), at + dice.choice((0, 1, 1, 2, 20)))
        kind = dice.randrange(4)
        if kind == 0:
            new = dice.choice(PIECES)
        elif kind == 1:
            new = bytes([dice.randrange(256)])
        elif kind == 2:
            new = b""
        else:
            new = wire[dice.randrange(len(wire) + 1) :][: dice.randrange(60)]
        wire = wire[:at] + new + wire[end:]
    return wire


def statuses(written: bytes, methods: list[str]) -> list[int]:
    """The statuses of the answers that `written` consists of, without a byte left over."""
    found: list[int] = []
    at = 0
    while at < len(written):
        answer = ANSWER.match(written, at)
        assert answer is not None, written[at : at + 200]
        at = answer.end()
        status = int(answer[1])
        if status != 100:
            is_head = len(found) < len(methods) and methods[len(found)] == "HEAD"
            at += 0 if is_head else int(answer[2])
            found.append(status)
    assert at == len(written)
    return found


async def test_mutated_heads(caplog: pytest.LogCaptureFixture) -> None:
    print("seed", SEED)
    caplog.set_level(logging.WARNING)
    dice = random.Random(SEED)
    clock = VirtualClock()
    methods: list[str] = []

    async def answer(request: Request) -> Response:
        methods.append(request.method)
        assert request.target.startswith(b"/") or request.target == b"*"
        if len(request.target) % 3 == 0:
            await asyncio.sleep(0)
        return Response(200, (), b"ok")

    service = Service(answer, clock=clock)
    seen: dict[int, int] = {}
    for number in range(COUNT):
        wire = mutate(dice)
        methods.clear()
        transport = Wire()
        connection = Connection(service)
        connection.connection_made(transport)
        size = dice.choice((1, 10, 100, 1 << 20, 1 << 20))
        size = max(size, len(wire) // 200)
        for at in range(0, len(wire), size):
            for _ in range(1000):
                if not transport.is_held or transport.is_ended:
                    break
                await asyncio.sleep(0)
            else:
                raise AssertionError(f"input {number} is held for ever: {wire!r}")
            if transport.is_ended:
                break
            connection.data_received(wire[at : at + size])
        for _ in range(1000):
            if not connection_is_busy(connection):
                break
            await asyncio.sleep(0)
        else:
            raise AssertionError(f"input {number} hangs: {wire!r}")
        # Whatever is left incomplete ends by itself.
        for _ in range(3):
            clock.advance(130)
            service.sweep()
            await asyncio.sleep(0)
        assert transport.is_ended, (number, wire)
        connection.connection_lost(None)
        for status in statuses(transport.written, list(methods)):
            assert status == 200 or 400 <= status < 500, (number, status, wire)
            seen[status] = seen.get(status, 0) + 1
    assert service.connection_count == 0
    assert caplog.records == []
    # The mutations are no good if they reach nothing: every refusal is among the answers, and many requests survive.
    assert seen[200] > COUNT // 5
    assert {400, 405, 408, 413, 417, 431, 414} <= set(seen)


def connection_is_busy(connection: Connection) -> bool:
    return bool(connection._task is not None or connection._reader.waiting or connection._unparsed)
