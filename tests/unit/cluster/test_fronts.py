"""Fronts of a node: which requests a follower answers itself, what it forwards, and what happens while roles change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.peers import Certificate, two_nodes
from support.waiting import until

from armillary.account.account import Account
from armillary.account.topology import Member, Staleness
from armillary.clock import VirtualClock
from armillary.cluster.forwarding import CALL, Forwarder
from armillary.cluster.fronts import HttpFront
from armillary.cluster.peers.calls import Answer, Peers
from armillary.doors.control.door import ControlDoor
from armillary.errors import Kind
from armillary.net.http import Refusal, Request, Response, refuse_as_json
from armillary.storage.memory import MemoryEngine


class Cluster:
    """A topology that a test changes by hand."""

    def __init__(self, name: str) -> None:
        self.name, self.region = name, "eu"
        self.version, self.epoch = 1, 1
        self.members = [Member(each, "eu", {}, True) for each in ("a", "b")]
        self.leader: Member | None = None
        self.leads = False
        self.regions = ["eu"]
        self.may_answer_strongly = self.is_silent = False
        self.staleness = Staleness(0, 0)
        self.reached_us = 0
        self._change = asyncio.Event()

    def change(self, *, leader: str | None, leads: bool = False) -> None:
        self.leader = next((each for each in self.members if each.name == leader), None)
        self.leads = leads
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def changed(self, version: int, limit_s: float) -> None:
        if self.version == version:
            await self._change.wait()

    async def refresh(self, limit_s: float) -> bool:
        return False

    async def keep_events(self, rid: bytes) -> None:
        raise NotImplementedError


class Door:
    """Answers with its name; `refusal`: refuses with that kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refusal: Kind | None = None
        self.asked: list[Request] = []
        self.is_closed_to_strangers = False

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        if self.refusal is not None:
            return Refusal(self.refusal, 403, ((b"x-from", self.name.encode()),), b"")
        return Response(200, ((b"x-from", self.name.encode()),), request.body, b"x-line: 1")

    def needs_leader(self, request: Request) -> bool:
        return request.method != "GET"

    def screen(self, request: Request) -> Response | None:
        return refuse_as_json(401, "no") if self.is_closed_to_strangers else None

    def refuse(self, status: int, message: str) -> Response:
        return refuse_as_json(status, message)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        raise NotImplementedError

    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool:
        return False


class Side:
    def __init__(self, name: str, peers: Peers, clock: VirtualClock) -> None:
        self.cluster = Cluster(name)
        self.door = Door(name)
        self.front = HttpFront("sql", Forwarder(name, peers, self.cluster, clock), self.cluster, clock)

        async def forwarded(caller: str, head: dict[str, Any], body: bytes) -> Answer:
            return await self.front.answer_forwarded(head, body)

        peers.handlers[CALL] = forwarded

    def take(self, *, leads: bool) -> None:
        self.front.use(self.door, is_leaders=leads)
        self.cluster.leads = leads


def request(method: str, body: bytes = b"") -> Request:
    return Request(method, b"/dbs/d\xff", {b"x-ms-date": b"t\xe9"}, body, False, "10.0.0.9")


def origin(response: Response) -> bytes:
    return dict(response.headers)[b"x-from"]


@pytest.fixture
async def sides(certificate: Certificate) -> AsyncIterator[tuple[Side, Side]]:
    clock = VirtualClock()
    nodes = await two_nodes(clock, certificate)
    yield Side("a", nodes[0], clock), Side("b", nodes[1], clock)
    for each in nodes:
        await each.close()


async def test_a_follower_forwards_writes_as_they_came_and_answers_reads(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.take(leads=True)
    b.take(leads=False)
    b.cluster.change(leader="a")
    body = bytes(range(256)) * 100
    answer = await b.front.answer(request("POST", body))
    assert (answer.status, origin(answer), answer.body, answer.lines) == (200, b"a", body, b"x-line: 1")
    arrived = a.door.asked[0]
    assert (arrived.target, arrived.headers, arrived.peer) == (b"/dbs/d\xff", {b"x-ms-date": b"t\xe9"}, "10.0.0.9")
    assert origin(await b.front.answer(request("GET"))) == b"b"


@pytest.mark.parametrize("kind", [Kind.SESSION_BEHIND, Kind.STALE_HERE, Kind.OWNER_NOT_FOUND, Kind.NOT_LEADER])
async def test_what_a_follower_cannot_know_is_asked_of_the_leader(sides: tuple[Side, Side], kind: Kind) -> None:
    a, b = sides
    a.take(leads=True)
    b.take(leads=False)
    b.cluster.change(leader="a")
    b.door.refusal = kind
    assert origin(await b.front.answer(request("GET"))) == b"a"
    b.door.refusal = Kind.PRECONDITION_FAILED
    assert origin(await b.front.answer(request("GET"))) == b"b"


async def test_requests_of_strangers_are_not_forwarded(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.take(leads=True)
    b.take(leads=False)
    b.cluster.change(leader="a")
    b.door.is_closed_to_strangers = True
    assert (await b.front.answer(request("POST"))).status == 401
    assert not a.door.asked


async def test_a_write_waits_for_the_next_leader(sides: tuple[Side, Side]) -> None:
    a, b = sides
    b.take(leads=False)
    asking = asyncio.ensure_future(b.front.answer(request("POST")))
    await asyncio.sleep(0)
    assert not asking.done()
    a.take(leads=True)
    b.cluster.change(leader="a")
    assert origin(await asking) == b"a"


async def test_a_write_that_met_the_end_of_a_role_goes_to_the_next_leader(sides: tuple[Side, Side]) -> None:
    a, b = sides
    b.take(leads=True)
    b.cluster.change(leader="b", leads=True)
    b.door.refusal = Kind.NOT_LEADER
    asking = asyncio.ensure_future(b.front.answer(request("POST")))
    await asyncio.sleep(0)
    assert not asking.done()  # not asked of itself again
    a.take(leads=True)
    b.front.close()
    b.cluster.change(leader="a")
    assert origin(await asking) == b"a"
    assert len(b.door.asked) == 1


async def test_a_node_that_was_asked_wrongly_says_so_and_the_next_is_tried(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.take(leads=False)  # b believes that a leads
    b.take(leads=False)
    b.cluster.change(leader="a")
    asking = asyncio.ensure_future(b.front.answer(request("POST")))
    await asyncio.sleep(0)
    b.take(leads=True)
    b.cluster.change(leader="b", leads=True)
    assert origin(await asking) == b"b"
    assert not a.door.asked


async def test_requests_wait_while_there_is_no_door(sides: tuple[Side, Side]) -> None:
    _, b = sides
    asking = asyncio.ensure_future(b.front.answer(request("GET")))
    await asyncio.sleep(0)
    b.take(leads=True)
    assert origin(await asking) == b"b"


async def test_a_broken_connection_leaves_a_write_unknown_and_repeats_a_read(sides: tuple[Side, Side]) -> None:
    a, b = sides
    a.take(leads=True)
    b.take(leads=False)
    b.cluster.change(leader="a")
    held = asyncio.Event()
    begun = 0

    async def hold(caller: str, head: dict[str, Any], body: bytes) -> Answer:
        nonlocal begun
        begun += 1
        if begun > 2:
            return await a.front.answer_forwarded(head, body)
        await held.wait()
        raise AssertionError

    a.front._forwarder._peers.handlers[CALL] = hold
    peers = a.front._forwarder._peers
    writing = asyncio.ensure_future(b.front.answer(request("POST")))
    await until(lambda: begun == 1, "the write arrives")
    for each in list(peers._connections):
        each.end("cut by the test")
    answer = await writing
    assert answer.status == 503 and b"not known" in answer.body
    b.door.refusal = Kind.SESSION_BEHIND
    reading = asyncio.ensure_future(b.front.answer(request("GET")))
    await until(lambda: begun == 2, "the read arrives")
    for each in list(peers._connections):
        each.end("cut by the test")
    while not reading.done():
        b.cluster.change(leader="a")  # what the passing of time does
        await asyncio.sleep(0)
    assert origin(reading.result()) == b"a"


async def test_a_node_without_a_role_is_alive_and_not_ready(nodes: tuple[Peers, Peers], clock: VirtualClock) -> None:
    cluster = Cluster("a")
    forwarder = Forwarder("a", nodes[0], cluster, clock)
    front = HttpFront("sql", forwarder, cluster, clock, control_prefix=b"/_armillary")
    health = Request("GET", b"/_armillary/health", {}, b"", False, "127.0.0.1", False)
    ready = Request("GET", b"/_armillary/ready", {}, b"", False, "127.0.0.1", False)
    assert (await front.answer(health)).status == 200
    assert (await front.answer(ready)).status == 503, "at once"
    front.use(Door("a"), is_leaders=False)
    assert (await front.answer(ready)).status == 200
    front.close()
    assert (await front.answer(ready)).status == 503


async def test_log_ins_of_a_node_are_good_for_what_the_leader_answers(sides: tuple[Side, Side]) -> None:
    """Log-ins live on one node: it tells the leader what they allow, and refuses what they do not before it asks."""
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    a, b = sides
    key = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
    leading, following = (_SqlPort(ControlDoor(account, key)) for _ in sides)
    a.front.use(leading, is_leaders=True)
    b.front.use(following, is_leaders=False)
    b.cluster.change(leader="a")

    async def send(method: str, path: str, content: Any = None, **headers: str) -> Response:
        given = {"host": "localhost", "content-type": "application/json"} | headers
        encoded = {name.replace("_", "-").encode(): value.encode() for name, value in given.items()}
        body = b"" if content is None else orjson.dumps(content)
        return await b.front.answer(Request(method, f"/_armillary/{path}".encode(), encoded, body, False, "10.0.0.9"))

    async def log_in(*, is_read_only: bool) -> dict[str, str]:
        response = await send("POST", "session", {"key": key, "readOnly": is_read_only})
        csrf = orjson.loads(response.body)["csrf"]
        return {"cookie": dict(response.headers)[b"set-cookie"].decode().partition(";")[0], "x_armillary_csrf": csrf}

    owner, reader = await log_in(is_read_only=False), await log_in(is_read_only=True)
    assert (await send("POST", "databases", {"name": "shop"}, **owner)).status == 201
    assert leading.targets == ["POST /_armillary/databases"]
    assert (await send("GET", "databases", **reader)).status == 200
    assert (await send("POST", "databases", {"name": "other"}, **reader)).status == 403
    assert (await send("GET", "databases", cookie=owner["cookie"] + "x")).status == 401
    assert leading.targets == ["POST /_armillary/databases", "GET /_armillary/databases"], "nothing else was forwarded"
    assert orjson.loads((await send("GET", "session", **owner)).body)["isLoggedIn"], "answered by the node itself"
    await account.close()
    await engine.close()


class _SqlPort(Door):
    """A port whose control door is real, and which notes what it is asked."""

    def __init__(self, control: ControlDoor) -> None:
        super().__init__("")
        self._control = control
        self.targets: list[str] = []

    async def answer(self, request: Request) -> Response:
        self.targets.append(f"{request.method} {request.target.decode()}")
        return await self._control.answer(request)

    def needs_leader(self, request: Request) -> bool:
        return self._control.needs_leader(request)

    def screen(self, request: Request) -> Response | None:
        return self._control.screen(request)
