"""Connections that a follower relays to the leader, byte for byte, and connections that end with the role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from support.peers import Certificate, two_nodes
from support.waiting import until
from unit.cluster.test_fronts import Cluster

from armillary.clock import VirtualClock
from armillary.cluster.connection_fronts import ConnectionFront
from armillary.cluster.peers.calls import Peers
from armillary.net.connection_limits import Guest
from armillary.net.listen import Listener, listen_for_frames
from armillary.net.service import Roster


class Echo(asyncio.Protocol):
    """A door's connection: sends back what it gets, behind the name of the door."""

    def __init__(self, roster: Roster, guest: Guest | None, door: str) -> None:
        self.guest = guest or roster.crowd.seat()
        self._roster = roster
        self._door = door.encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._roster.admit(self)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._door + b":" + data if len(data) < 100 else data)

    def connection_lost(self, exception: Exception | None) -> None:
        self._roster.forget(self)

    def sweep(self, now_s: float) -> None:
        return

    def retire(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class Side:
    def __init__(self, name: str, peers: Peers) -> None:
        self.name = name
        self.cluster = Cluster(name)
        self.front = ConnectionFront("mongo", peers, self.cluster, Echo, _wants_relay)
        peers.on_relay = lambda caller, head: self.front.accept_relayed(head)
        self.listener: Listener

    async def open(self) -> None:
        roster = Roster()
        self.listener = await listen_for_frames(
            "127.0.0.1", 0, roster, lambda guest: self.front.connect(roster, guest), tls=None
        )
        self.front.serve(roster)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)


def _wants_relay(first: bytes) -> bool | None:
    return None if len(first) < 3 else first.startswith(b"lb!")


@pytest.fixture
async def sides(certificate: Certificate) -> AsyncIterator[tuple[Side, Side]]:
    nodes = await two_nodes(VirtualClock(), certificate)
    both = Side("a", nodes[0]), Side("b", nodes[1])
    for each in both:
        await each.open()
    both[0].front.use("a", is_leaders=True)
    both[1].front.use("b", is_leaders=False)
    both[1].cluster.change(leader="a")
    yield both
    for each in both:
        await each.front.close()
        await each.listener.close(0)
    for peers in nodes:
        await peers.close()


async def test_a_relayed_connection_carries_bytes_both_ways(sides: tuple[Side, Side]) -> None:
    reader, writer = await sides[1].connect()
    writer.write(b"lb!")
    assert await reader.readexactly(5) == b"a:lb!"
    body = bytes(range(256)) * 20_000  # more than is buffered on the way
    writer.write(body)
    assert await reader.readexactly(len(body)) == body
    writer.close()
    roster = sides[0].front._roster
    assert roster is not None
    await until(lambda: roster.connection_count == 0, "the leader's connection ends")


async def test_other_connections_stay_at_the_follower(sides: tuple[Side, Side]) -> None:
    reader, writer = await sides[1].connect()
    writer.write(b"h")
    await writer.drain()
    writer.write(b"ello")
    received = b""
    while len(received) < 7:
        received += await reader.read(100)
    assert received in (b"b:hello", b"b:hel" + b"b:lo")
    writer.close()


async def test_connections_end_with_the_role(sides: tuple[Side, Side]) -> None:
    ends: list[Any] = []
    for first in (b"lb!", b"own"):
        reader, writer = await sides[1].connect()
        writer.write(first)
        await reader.read(100)
        ends.append((reader, writer))
    await sides[1].front.close()
    for reader, writer in ends:
        assert await _has_ended(reader)
        writer.close()
    reader, writer = await sides[1].connect()  # between two roles
    writer.write(b"own")
    assert await _has_ended(reader)
    writer.close()


async def test_the_end_of_the_leaders_role_ends_relayed_connections(sides: tuple[Side, Side]) -> None:
    reader, writer = await sides[1].connect()
    writer.write(b"lb!")
    await reader.read(100)
    await sides[0].front.close()
    assert await _has_ended(reader)
    writer.close()


async def _has_ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True
