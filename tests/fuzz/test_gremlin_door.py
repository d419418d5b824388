"""Bad messages into the Gremlin door, and bad bytes into its connections: only documented statuses, no crash, no hang,
and nothing stored by halves."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from typing import Any
from uuid import UUID

import orjson
import pytest
import uvloop
from conformance.gremlin_bytecode import bytecode
from conformance.test_gremlin import CASES, GRAPHS
from fuzz.mutation import mutated_bytes
from gremlin_python.driver.request import RequestMessage
from gremlin_python.driver.serializer import (
    GraphBinarySerializersV1,
    GraphSONSerializersV2d0,
    GraphSONSerializersV3d0,
)
from support.gremlin_house import GremlinHouse, Wire, asked, credentials, framed
from support.portions import Amount
from support.waiting import until

from armillary.account.check import check_account
from armillary.clock import SystemClock
from armillary.doors.gremlin.connection import Connection
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.net.service import Roster

MESSAGES = 20_000
CONNECTIONS = 4_000
STATUSES = {200, 204, 206, 401, 407, 429, 497, 498, 499, 500, 595, 597, 598, 599}
CODES = {200, 204, 206, 400, 401, 403, 404, 405, 409, 412, 413, 429, 500, 1001, 1003, 1004, 1009}
REQUEST_ID = UUID("41d2e28a-20a4-4ab0-b379-d810dede3786")
HURRY: dict[str, Any] = {"evaluationTimeout": 150}


def originals() -> list[bytes]:
    """Messages as the released client writes them, of scripts and bytecode."""
    found = [framed(credentials()), orjson.dumps(asked("g.V().count()"))]
    for case in CASES[::4]:
        arguments = {"gremlin": case["script"], "bindings": case.get("bindings") or {}, "aliases": {"g": "g"}, **HURRY}
        for form in ("application/json", "application/vnd.gremlin-v2.0+json", "application/vnd.gremlin-v3.0+json"):
            found.append(framed({"requestId": str(REQUEST_ID), "op": "eval", "processor": "", "args": arguments}, form))
        if "error" in case:
            continue
        sent = {"gremlin": bytecode(parse(case["script"], case.get("bindings"))[-1].traversal), "aliases": {"g": "g"}}
        for writer in (GraphSONSerializersV2d0(), GraphSONSerializersV3d0(), GraphBinarySerializersV1()):
            message = RequestMessage("traversal", "bytecode", {**sent, **HURRY})
            found.append(writer.serialize_message(str(REQUEST_ID), message))
    return found


def answered(message: bytes) -> tuple[int, int | None]:
    """Status and x-ms-status-code of an answer in whatever form."""
    if message[:1] == b"\x81":
        return struct.unpack(">i", message[18:22])[0], None
    status = orjson.loads(message)["status"]
    attributes = status["attributes"]
    if "@value" in attributes:
        flat = attributes["@value"]
        attributes = dict(zip(flat[::2], flat[1::2], strict=True))
    code = attributes.get("x-ms-status-code")
    return status["code"], code["@value"] if isinstance(code, dict) else code


def test_messages(caplog: pytest.LogCaptureFixture, seed: int, amount: Amount) -> None:
    uvloop.run(_messages(random.Random(seed), amount(MESSAGES)))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], f"--seed {seed}"


async def _messages(dice: random.Random, count: int) -> None:
    house = await GremlinHouse.open(creates="none")
    for script in GRAPHS["modern"]["scripts"]:
        await house.run(script)
    bases = originals()
    for number in range(count):
        message = mutated_bytes(dice, dice.choice(bases)) if number % 50 else dice.choice(bases)
        client = house.friend() if dice.random() < 0.95 else house.stranger()
        assert isinstance(client.line, Wire)
        await house.door.answer(client, message, dice.random() < 0.05)
        for sent in client.line.sent:
            status, code = answered(sent)
            assert status in STATUSES, (message, sent)
            assert code in CODES or code is None, (message, sent)
        if number % 5000 == 4999 and (await house.run("g.V().count()"))[0] > 300:
            await house.run("g.V().drop()")
    await house.account.close()
    assert [problem async for problem in check_account(house.engine, SystemClock())] == []
    await house.engine.close()


class Transport(asyncio.Transport):
    """The transport's end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


HEAD = (
    b"GET /gremlin HTTP/1.1\r\nHost: localhost:8901\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(content: bytes, opcode: int, *, is_last: bool = True) -> bytes:
    """Masked with zeros, as clients must mask."""
    head = bytes([opcode | (0x80 if is_last else 0)])
    size = len(content)
    head += bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return head + bytes(4) + content


def test_connections(caplog: pytest.LogCaptureFixture, seed: int, amount: Amount) -> None:
    uvloop.run(_connections(random.Random(seed), amount(CONNECTIONS)))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], f"--seed {seed}"


async def _connections(dice: random.Random, count: int) -> None:
    house = await GremlinHouse.open(creates="none")
    roster = Roster()
    question = framed(asked("g.inject(1)", **HURRY))
    parts = [
        frame(question, 2),
        frame(question[:20], 2, is_last=False) + frame(question[20:], 0),
        frame(framed(credentials()), 2),
        frame(orjson.dumps(asked("g.V()", **HURRY)), 1),
        frame(b"ping", 9),
        frame(b"", 10),
        frame(b"\x03\xe8bye", 8),
        frame(b"\xff\xfe", 1),
        frame(b"x" * 70, 3),
    ]
    for _ in range(count):
        sent = HEAD + b"".join(dice.choice(parts) for _ in range(dice.randrange(1, 6)))
        if dice.random() < 0.8:
            sent = mutated_bytes(dice, sent)
        connection, transport = Connection(house.door, roster), Transport()
        connection.connection_made(transport)
        at = 0
        while at < len(sent) and not transport.is_ended:
            step = dice.choice((1, 7, 50, 1000, 100_000))
            connection.data_received(sent[at : at + step])
            at += step
        if not transport.is_ended:
            connection.eof_received()
        await asyncio.sleep(0)
        connection.connection_lost(None)
        assert not transport.written or transport.written.startswith(b"HTTP/1.1 ")
    await until(lambda: roster.connection_count == 0, "no connection is left")
    await house.close()


def test_an_unbroken_conversation() -> None:
    """What the frames above are when nothing is wrong with them."""

    async def talk() -> None:
        house = await GremlinHouse.open(creates="none")
        connection, transport = Connection(house.door, Roster()), Transport()
        connection.connection_made(transport)
        question = framed(asked("g.inject(1)"))
        connection.data_received(HEAD + frame(question[:20], 2, is_last=False) + frame(question[20:], 0))
        connection.data_received(frame(framed(credentials()), 2) + frame(b"ping", 9))
        await asyncio.gather(*connection._tasks)
        assert transport.written.startswith(b"HTTP/1.1 101 ")
        assert b'"code":407' in transport.written and b"\x8a\x04ping" in transport.written
        connection.data_received(frame(b"\x03\xe8bye", 8))
        assert transport.is_ended and transport.written.endswith(b"\x88\x05\x03\xe8bye")
        await house.close()

    uvloop.run(talk())
