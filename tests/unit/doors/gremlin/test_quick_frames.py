"""Messages that come whole, in one frame, against the library's parser: random frames in random pieces to two
connections, one of which has every frame parsed by the library. What they answer is compared byte for byte."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.gremlin_house import GremlinHouse, asked, credentials, framed

from armillary.clock import VirtualClock
from armillary.doors.gremlin.connection import Connection
from armillary.net.service import Roster

HEAD = (
    b"GET /gremlin HTTP/1.1\r\nHost: localhost:8901\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
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


async def test_frames_mean_what_the_library_takes_them_for(
    seed: int, amount: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, taken, quick = random.Random(seed), 0, Connection._take_message
    houses = [await GremlinHouse.open("none", clock=VirtualClock()) for _ in range(2)]
    rosters = [Roster(clock=house.account.clock) for house in houses]

    def take(connection: Connection, data: bytes) -> bool:
        nonlocal taken
        is_taken = connection._door is houses[0].door and quick(connection, data)
        taken += is_taken
        return is_taken

    monkeypatch.setattr(Connection, "_take_message", take)
    for _ in range(amount(5_000)):
        pieces = [HEAD, _frame(dice, framed(credentials()))] + [_sent(dice) for _ in range(dice.randrange(1, 8))]
        if dice.randrange(2):
            pieces = _cut(dice, pieces)
        transports = [Transport(), Transport()]
        connections = [Connection(house.door, roster) for house, roster in zip(houses, rosters, strict=True)]
        for connection, transport in zip(connections, transports, strict=True):
            connection.connection_made(transport)
        for piece in pieces:
            for connection, transport in zip(connections, transports, strict=True):
                if not transport.is_ended:
                    connection.data_received(piece)
                    while connection._tasks:
                        await asyncio.wait(connection._tasks)
                        await asyncio.sleep(0)
            first, second = (_shown(transport.written) for transport in transports)
            assert first == second and transports[0].is_ended == transports[1].is_ended, pieces
            states = [(each._unfinished_bytes, each._fragments, each.client.is_gone) for each in connections]
            assert states[0] == states[1], pieces
        for connection in connections:
            connection.connection_lost(None)
    assert taken > amount(5_000) // 2
    for house in houses:
        await house.close()


def _sent(dice: random.Random) -> bytes:
    """A message or some frames, in most cases as a driver sends it."""
    pad = " " * dice.choice((0, 0, 20, 70, 300, 70_000 if not dice.randrange(10) else 200))
    message = framed(asked(f"g.inject({dice.randrange(9)}){pad}"))
    kind = dice.randrange(14)
    if kind < 8:
        return _frame(dice, message)
    if kind == 8:
        return _frame(dice, message) + _frame(dice, message)
    if kind == 9:
        at = dice.randrange(len(message))
        between = dice.choice((b"", _frame(dice, b"ping", 0x89), _frame(dice, message)))
        return _frame(dice, message[:at], 0x02) + between + _frame(dice, message[at:], 0x80)
    if kind == 10:
        return _frame(dice, dice.choice((b'{"requestId":"r1","op":"close"}', b"\xff\xfe")), 0x81)
    if kind == 11:
        return _frame(dice, b"", dice.choice((0x82, 0x89, 0x8A, 0x02)))
    if kind == 12:
        whole = bytearray(_frame(dice, message))
        whole[dice.randrange(8)] ^= 1 << dice.randrange(8)
        return bytes(whole)
    return _frame(dice, b"\x03\xe8bye", 0x88) if dice.randrange(2) else _frame(dice, message)[: dice.randrange(9)]


def _frame(dice: random.Random, content: bytes, first: int = 0x82) -> bytes:
    mask, size = dice.choice((bytes(4), dice.randbytes(4))), len(content)
    head = bytes((first, 0x80 | size)) if size < 126 and dice.randrange(20) else bytes((first, 0xFE))
    if head[1] == 0xFE:
        head = head + size.to_bytes(2, "big") if size <= 0xFFFF else bytes((first, 0xFF)) + size.to_bytes(8, "big")
    return head + mask + bytes(each ^ mask[place % 4] for place, each in enumerate(content))


def _cut(dice: random.Random, pieces: list[bytes]) -> list[bytes]:
    """The same bytes in other pieces."""
    found = [pieces[0]] if dice.randrange(2) else []
    left = b"".join(pieces[len(found) :])
    while left:
        size = dice.choice((1, 2, 6, 50, 120, 200, 1_000, 100_000)) if len(left) < 1_000 else dice.randrange(1, 70_000)
        found.append(left[:size])
        left = left[size:]
    return found


def _shown(written: bytes) -> bytes:
    """Without the ids of requests, which are counted, and the time of the handshake."""
    plain = re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"", written)
    return re.sub(rb"Date: [^\r]*", b"", plain)
