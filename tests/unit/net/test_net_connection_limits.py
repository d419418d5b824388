"""Strangers are few, hold little and are cut off in time, over all doors; clients with a key are left alone."""

from __future__ import annotations

import asyncio
import base64
import hmac
import struct
from email.utils import formatdate
from urllib.parse import quote

import bson
import pytest
from support.gremlin_house import GremlinHouse, asked, credentials, framed

from armillary import limits
from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.gremlin.connection import Connection as GremlinConnection
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.mongo.wire.connection import Connection as MongoConnection
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.connection import Connection
from armillary.net.connection_limits import Crowd, Guest, group_of
from armillary.net.service import Roster, Service
from armillary.storage.memory import MemoryEngine

KEY = base64.b64encode(b"k" * 64).decode()


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("10.0.0.9", 5) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        self.is_ended = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


# Who is in the crowd.


class Party:
    def __init__(self, **limited: int) -> None:
        self.clock = VirtualClock()
        self.crowd = Crowd(clock=self.clock, **limited)
        self.gone: list[str] = []

    def come(self, name: str, address: str = "10.0.0.1") -> Guest:
        guest = self.crowd.enter(address, lambda: self.gone.append(name))
        assert guest is not None
        return guest


def test_of_one_address_the_silent_go_first_and_then_the_quiet() -> None:
    party = Party(per_address_max=3)
    guests = {name: party.come(name) for name in "abc"}
    party.come("elsewhere", "10.0.0.2")
    for name in "ab":
        guests[name].hear()
    party.clock.advance(5)
    guests["a"].hear()
    party.come("d")
    assert party.gone == ["c"]  # it has said nothing
    party.come("e")
    assert party.gone == ["c", "b"]  # nothing for longest, and the newest have just come
    party.come("f")
    assert party.gone == ["c", "b", "a"]
    party.come("g")
    assert party.gone == ["c", "b", "a", "d"]
    assert (party.crowd.count, party.crowd.stranger_count) == (4, 4)


def test_a_flood_never_keeps_a_client_with_a_key_out() -> None:
    """Whatever strangers of its address do, it comes in, and stays once it has shown its key."""
    party = Party(connections_max=8, per_address_max=6)
    for number in range(50):
        party.come(f"silent {number}")
        party.come(f"busy {number}").hear()
        if number % 10 == 0:
            newcomer = party.come(f"honest {number}")
            assert not newcomer.is_shed
            newcomer.recognise()
            party.clock.advance(0.01)
    assert not [name for name in party.gone if name.startswith("honest")]


def test_those_who_are_known_have_no_limit_for_an_address() -> None:
    """On loopback and behind proxies they all have one."""
    party = Party(per_address_max=2)
    for number in range(100):
        party.come(str(number)).recognise()
    party.clock.advance(100)
    party.come("a"), party.come("b")
    party.come("c")
    assert party.gone == ["a"]
    assert party.crowd.count == 102


def test_where_there_is_no_room_strangers_go_first_and_then_it_is_said() -> None:
    party = Party(connections_max=4)
    known = []
    for number in range(3):
        known.append(party.come(str(number)))
        known[-1].recognise()
    party.come("silent", "10.0.0.2")
    newcomer = party.come("newcomer")
    assert party.gone == ["silent"] and not newcomer.is_shed
    newcomer.recognise()
    assert party.come("late").is_shed
    for guest in (*known, newcomer):
        guest.leave()
        guest.leave()
    assert not party.come("next").is_shed


def test_of_what_is_begun_and_not_ended_the_oldest_goes() -> None:
    party = Party(unfinished_bytes_max=100)
    guests = {name: party.come(name) for name in "abcd"}
    guests["a"].hold(40)
    guests["b"].hold(40)
    guests["c"].hold(20)
    guests["b"].hold(0)  # it was ended
    guests["d"].hold(30)
    assert party.gone == [] and party.crowd.unfinished_bytes == 90
    guests["c"].hold(40)
    assert party.gone == ["a"] and party.crowd.unfinished_bytes == 70
    guests["c"].recognise()
    assert party.crowd.unfinished_bytes == 30
    guests["c"].hold(1_000_000)  # it may
    assert party.crowd.unfinished_bytes == 30
    guests["c"].estrange()
    guests["c"].hold(90)
    assert party.gone == ["a", "d"]
    guests["c"].leave()
    assert party.crowd.unfinished_bytes == 0


def test_a_network_counts_as_one_address() -> None:
    assert group_of("2001:db8::1") == group_of("2001:db8::ffff:1") != group_of("2001:db8:0:1::1")
    assert group_of("fe80::1%eth0") == group_of("fe80::2")
    assert group_of("10.0.0.1") != group_of("10.0.0.2")


# What each door holds of a stranger, and for how long.


def signed(clock: VirtualClock, method: str = "POST", kind: str = "dbs", link: str = "") -> bytes:
    date = formatdate(clock.now_s(), usegmt=True)
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    mac = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    return f"x-ms-date: {date}\r\nauthorization: {quote(f'type=master&ver=1.0&sig={mac}', safe='')}\r\n".encode()


class Http:
    """The SQL door with connections that have no sockets."""

    def __init__(self, account: Account, clock: VirtualClock) -> None:
        self.clock = clock
        self.door = SqlDoor(account, AccountKeys(KEY), accepts_aad=False, signing_clock=clock)
        self.service = Service(self.door.answer, refuse=self.door.refuse, screen=self.door.screen, clock=clock)
        self.crowd = self.service.crowd

    def connect(self) -> tuple[Connection, Wire]:
        connection, wire = Connection(self.service), Wire()
        connection.connection_made(wire)
        return connection, wire

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.service.sweep()


@pytest.fixture
async def http() -> Http:
    clock = VirtualClock()
    return Http(await Account.open(MemoryEngine(), clock), clock)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_long_bodies_of_strangers_are_not_read(http: Http, is_chunked: bool) -> None:
    size_bytes = 3_000_000
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % size_bytes
    piece = b"x" * 8_000
    head = b"POST /dbs HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % length
    for mark in (b"", b"authorization: type%3Dmaster%26ver%3D1.0%26sig%3DAAAA\r\n", signed(http.clock)):
        connection, wire = http.connect()
        connection.data_received(head + mark + b"\r\n")
        most = 0
        for _ in range(size_bytes // len(piece)):
            connection.data_received(b"1f40\r\n%b\r\n" % piece if is_chunked else piece)
            most = max(most, sum(map(len, connection._reader._body)))
            if wire.written:
                break
        if mark.startswith(b"x-ms-date"):
            connection.data_received(b"0\r\n\r\n")
            assert wire.written.startswith(b"HTTP/1.1 400 ")  # read whole, and no JSON
            assert connection.guest.is_known and most >= size_bytes - len(piece)
        else:
            assert wire.written.startswith(b"HTTP/1.1 401 ")
            assert most <= limits.STRANGER_BYTES_MAX + len(piece)
        connection.connection_lost(None)
    assert http.crowd.count == http.crowd.unfinished_bytes == 0


async def test_bodies_that_do_not_come_are_given_up_unless_they_are_signed(http: Http) -> None:
    head = b"POST /dbs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n"
    stranger, strange = http.connect()
    stranger.data_received(head + b"\r\n" + b"x" * 30_000)
    honest, wire = http.connect()
    honest.data_received(head + signed(http.clock) + b"\r\n" + b"x" * 30_000)
    assert http.crowd.unfinished_bytes >= 60_000
    http.wait(limits.BODY_SECONDS_GRACE + 1)
    assert strange.written.startswith(b"HTTP/1.1 401 ")
    assert wire.written == b"" and not wire.is_ended
    http.wait(15)  # slow, and faster than what is asked of it
    assert wire.written == b"" and not wire.is_ended
    honest.data_received(b"x" * 30_000)
    assert wire.written.startswith(b"HTTP/1.1 400 ")
    http.wait(120)
    assert strange.is_ended


async def test_connections_become_known_with_their_first_signature(http: Http) -> None:
    connection, wire = http.connect()
    connection.data_received(b"GET /dbs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.written.startswith(b"HTTP/1.1 401 ") and not connection.guest.is_known
    connection.data_received(b"GET /dbs HTTP/1.1\r\nHost: localhost\r\n" + signed(http.clock, "GET") + b"\r\n")
    assert b"HTTP/1.1 200 " in wire.written and connection.guest.is_known
    http.wait(limits.STRANGER_IDLE_SECONDS + 10)
    assert not wire.is_ended
    idle, unknown = http.connect()
    idle.data_received(b"GET /dbs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    http.wait(limits.STRANGER_IDLE_SECONDS + 1)
    assert unknown.is_ended and not wire.is_ended


async def test_all_unfinished_requests_have_one_budget(http: Http) -> None:
    http.service.crowd = http.crowd = Crowd(unfinished_bytes_max=1_000_000, clock=http.clock)
    connections = []
    for _ in range(200):
        connection, wire = http.connect()
        connection.data_received(b"POST /dbs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n")
        connection.data_received(b"x" * 15_000)
        connections.append((connection, wire))
    assert http.crowd.unfinished_bytes <= 1_000_000
    ended = [wire.is_ended for _, wire in connections]
    assert not any(ended[-60:]) and all(ended[:100])


# MongoDB.


def message(document: dict[str, object]) -> bytes:
    content = bytes(5) + bson.encode(document)
    return struct.pack("<iiii", 16 + len(content), 1, 0, 2013) + content


@pytest.mark.parametrize("needs_authentication", [True, False])
async def test_frames_of_strangers(needs_authentication: bool) -> None:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    settings = MongoSettings(needs_authentication=needs_authentication)
    door = MongoDoor(account, [KEY], [], settings, machine=clock)
    roster = Roster(clock=clock)

    def connect() -> tuple[MongoConnection, Wire]:
        connection, wire = MongoConnection(door, roster), Wire()
        connection.connection_made(wire)
        return connection, wire

    connection, wire = connect()
    assert connection.guest.is_known is not needs_authentication
    connection.data_received(message({"ping": 1, "$db": "admin"}))
    assert b"ok" in wire.written
    for size_bytes in (65_537, 1_000_000, 48_000_000):
        connection, wire = connect()
        connection.data_received(struct.pack("<iiii", size_bytes, 1, 0, 2013))
        assert wire.is_ended is needs_authentication
    connection, wire = connect()
    connection.data_received(struct.pack("<iiii", 60_000, 1, 0, 2013))
    begun_s = clock.monotonic_s()
    for _ in range(50):
        clock.advance(1)
        roster.sweep()
        if wire.is_ended:
            break
        connection.data_received(b"x" * 1_100)
        assert roster.crowd.unfinished_bytes == (len(connection._buffer) if needs_authentication else 0)
    assert wire.is_ended is needs_authentication
    assert (clock.monotonic_s() - begun_s <= limits.BODY_SECONDS_GRACE + 2) is needs_authentication
    await account.close()


# Gremlin.

HEAD = (
    b"GET /gremlin HTTP/1.1\r\nHost: localhost:8901\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(content: bytes, opcode: int = 2, *, is_last: bool = True, said_bytes: int | None = None) -> bytes:
    size = len(content) if said_bytes is None else said_bytes
    head = bytes([opcode | (0x80 if is_last else 0)])
    head += b"\xff" + struct.pack(">Q", size) if size > 0xFFFF else b"\xfe" + struct.pack(">H", size)
    return head + bytes(4) + content


class Gremlin:
    def __init__(self, house: GremlinHouse, clock: VirtualClock) -> None:
        self.house, self.clock = house, clock
        self.roster = Roster(clock=clock)

    def connect(self, sent: bytes = HEAD) -> tuple[GremlinConnection, Wire]:
        connection, wire = GremlinConnection(self.house.door, self.roster), Wire()
        connection.connection_made(wire)
        if sent:
            connection.data_received(sent)
        return connection, wire

    def trickle(self, connection: GremlinConnection, wire: Wire, content: bytes, seconds: int) -> float:
        """A byte a second. How long the connection lasted."""
        for at in range(seconds):
            if wire.is_ended:
                return at
            connection.data_received(content[at : at + 1])
            self.clock.advance(1)
            self.roster.sweep()
        return seconds


@pytest.fixture
async def gremlin() -> Gremlin:
    clock = VirtualClock()
    house = await GremlinHouse.open(clock=clock)
    await house.graph()
    return Gremlin(house, clock)


async def test_a_head_has_a_time_as_a_whole(gremlin: Gremlin) -> None:
    connection, wire = gremlin.connect(b"")
    assert gremlin.trickle(connection, wire, HEAD[:-4] + b"x" * 1000, 60) <= limits.HEAD_SECONDS_MAX + 1
    assert wire.is_ended


async def test_messages_of_strangers_are_short_and_come_soon(gremlin: Gremlin) -> None:
    connection, wire = gremlin.connect()
    connection.data_received(frame(b"x" * 10, said_bytes=10_000_000))
    assert wire.is_ended and b"\x88" in wire.written  # told that it is too long
    connection, wire = gremlin.connect()
    for _ in range(40):
        connection.data_received(frame(b"x" * 2_000, 2 if not connection._fragments else 0, is_last=False))
    assert wire.is_ended
    assert gremlin.roster.crowd.unfinished_bytes <= limits.GREMLIN_STRANGER_BYTES_MAX
    for half in (frame(b"x", said_bytes=60_000), frame(b"x" * 100, is_last=False)):
        connection, wire = gremlin.connect()
        connection.data_received(half)
        assert gremlin.trickle(connection, wire, b"x" * 100, 60) <= limits.HEAD_SECONDS_MAX + 1


async def test_whoever_has_shown_a_key_may_send_long_messages_slowly(gremlin: Gremlin) -> None:
    connection, wire = gremlin.connect()
    question = framed(asked("g.inject(1)"))
    connection.data_received(frame(question))
    assert b'"code":407' in wire.written
    assert gremlin.roster.crowd.unfinished_bytes >= len(question)
    connection.data_received(frame(framed(credentials())))
    await asyncio.gather(*connection._tasks)
    assert b'"code":200' in wire.written
    assert connection.guest.is_known and gremlin.roster.crowd.unfinished_bytes == 0
    long = framed(asked("g.inject('" + "x" * 50_000 + "').count()", bindings={"y": "z" * 300_000}))
    sent = frame(long)
    for at in range(0, len(sent), 20_000):
        connection.data_received(sent[at : at + 20_000])
        gremlin.clock.advance(5)
        gremlin.roster.sweep()
    await asyncio.gather(*connection._tasks)
    assert not wire.is_ended and wire.written.count(b'"code":200') == 2
