"""Calls between nodes: answers, refusals, deadlines, cancellation, broken connections."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest
from support.limits import WithLimits
from support.peers import KEY, Certificate, port_of
from support.tcp_proxy import TcpProxy
from support.waiting import until

from armillary import limits
from armillary.clock import VirtualClock
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.errors import Failure, Kind

Nodes = tuple[Peers, Peers]


class Held:
    """A call that is answered when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.go_on = asyncio.Event()

    async def __call__(self, node: str, head: dict[str, Any], body: bytes) -> Answer:
        self.begun += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return {}, b"done"


class Collecting(asyncio.Protocol):
    transport: asyncio.Transport
    received = b""
    is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def test_both_nodes_call_on_one_connection(nodes: Nodes) -> None:
    a, b = nodes
    body = bytes(range(256)) * 40_000  # much more than what is buffered
    head = {"x": [1, "ü", None]}
    assert await a.call("b", "echo", head, body, limit_s=5) == ({"caller": "a", **head}, body)
    assert await b.call("a", "echo", {}, limit_s=5) == ({"caller": "b"}, b"")
    assert len(a._connections) == len(b._connections) == 1


async def test_many_calls_at_once_each_get_their_answer(nodes: Nodes, seed: int, with_limits: WithLimits) -> None:
    with_limits(PEER_CALLS_MAX=16)
    a, b = nodes
    dice = random.Random(seed)
    most = running = 0

    async def slowly(node: str, head: dict[str, Any], body: bytes) -> Answer:
        nonlocal most, running
        running += 1
        most = max(most, running)
        for _ in range(head["turns"]):
            await asyncio.sleep(0)
        running -= 1
        return {"number": head["number"]}, body

    a.handlers["slowly"] = b.handlers["slowly"] = slowly
    wanted = [(number, dice.randint(0, 20), dice.randbytes(dice.choice([0, 10, 200_000]))) for number in range(400)]
    calls = []
    for number, turns, body in wanted:
        caller, called = (a, "b") if number % 3 else (b, "a")
        calls.append(caller.call(called, "slowly", {"number": number, "turns": turns}, body, limit_s=60))
    answers = await asyncio.gather(*calls)
    assert answers == [({"number": number}, body) for number, _, body in wanted]
    assert most <= 4 * 16  # two nodes, and two connections if both have connected at once


async def test_a_refusal_arrives_as_it_was_raised(nodes: Nodes) -> None:
    a, b = nodes

    async def refuse(node: str, head: dict[str, Any], body: bytes) -> Answer:
        raise Failure(Kind.THROTTLED, "Not so fast.", retry_after_ms=70)

    async def crash(node: str, head: dict[str, Any], body: bytes) -> Answer:
        raise ZeroDivisionError

    async def unwritable(node: str, head: dict[str, Any], body: bytes) -> Answer:
        return {"set": {1}}, b""

    b.handlers |= {"refuse": refuse, "crash": crash, "unwritable": unwritable}
    with pytest.raises(Failure) as caught:
        await a.call("b", "refuse", {}, limit_s=5)
    told = caught.value
    assert (told.kind, told.message, told.retry_after_ms) == (Kind.THROTTLED, "Not so fast.", 70)
    for name in ("crash", "unwritable"):
        with pytest.raises(Failure) as caught:
            await a.call("b", name, {}, limit_s=5)
        assert caught.value.kind is Kind.INTERNAL
    with pytest.raises(Failure, match="does not know the call 'other'") as caught:
        await a.call("b", "other", {}, limit_s=5)
    assert caught.value.kind is Kind.UNSUPPORTED
    assert (await a.call("b", "echo", {}, limit_s=5))[0] == {"caller": "a"}


async def test_a_message_that_is_too_large_is_refused_before_it_is_sent(nodes: Nodes, with_limits: WithLimits) -> None:
    a, b = nodes
    with_limits(PEER_BODY_BYTES_MAX=1_000, PEER_HEAD_BYTES_MAX=1_000)

    async def much(node: str, head: dict[str, Any], body: bytes) -> Answer:
        return {}, bytes(1_001)

    b.handlers["much"] = much
    for head, body in (({}, bytes(1_001)), ({"x": "y" * 1_000}, b"")):
        with pytest.raises(Failure) as caught:
            await a.call("b", "echo", head, body, limit_s=5)
        assert caught.value.kind is Kind.TOO_LARGE
    with pytest.raises(Failure) as caught:
        await a.call("b", "much", {}, limit_s=5)
    assert caught.value.kind is Kind.TOO_LARGE
    assert await a.call("b", "echo", {}, bytes(1_000), limit_s=5) == ({"caller": "a"}, bytes(1_000))


async def test_bodies_that_wait_for_their_answers_are_limited(nodes: Nodes, with_limits: WithLimits) -> None:
    a, b = nodes
    with_limits(PEER_BODIES_BYTES_MAX=1_000)
    b.handlers["held"] = held = Held()
    first = asyncio.ensure_future(a.call("b", "held", {}, bytes(900), limit_s=5))
    await until(lambda: held.begun == 1, "the call has begun")
    with pytest.raises(Failure, match="too many large requests"):
        await a.call("b", "held", {}, bytes(200), limit_s=5)
    held.go_on.set()
    assert await first == ({}, b"done")
    assert await a.call("b", "held", {}, bytes(1_000), limit_s=5) == ({}, b"done")


async def test_a_late_answer_is_not_waited_for(nodes: Nodes, clock: VirtualClock) -> None:
    a, b = nodes
    b.handlers["held"] = held = Held()
    late = asyncio.ensure_future(a.call("b", "held", {}, limit_s=3))
    await until(lambda: held.begun == 1, "the call has begun")
    clock.advance(2.9)
    await asyncio.sleep(0)
    assert not late.done()
    clock.advance(0.2)
    with pytest.raises(PeerGone, match="held within 3 s") as caught:
        await late
    assert caught.value.was_sent
    await until(lambda: held.cancelled == 1, "the other side has cancelled it")
    assert await a.call("b", "echo", {}, limit_s=5) == ({"caller": "a"}, b"")


async def test_a_cancelled_call_is_cancelled_there(nodes: Nodes) -> None:
    a, b = nodes
    b.handlers["held"] = held = Held()
    call = asyncio.ensure_future(a.call("b", "held", {}, limit_s=3))
    await until(lambda: held.begun == 1, "the call has begun")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: held.cancelled == 1, "the other side has cancelled it")


async def test_calls_above_the_limit_wait_for_their_turn(nodes: Nodes, with_limits: WithLimits) -> None:
    with_limits(PEER_CALLS_MAX=2)
    a, b = nodes
    b.handlers["held"] = held = Held()
    calls = [asyncio.ensure_future(a.call("b", "held", {}, limit_s=3)) for _ in range(5)]
    await until(lambda: held.begun == 2, "two have begun")
    calls[4].cancel()  # it waits
    calls[0].cancel()
    await until(lambda: held.begun == 3, "a third has begun")
    assert held.cancelled == 1
    held.go_on.set()
    assert await asyncio.gather(*calls[1:4]) == [({}, b"done")] * 3


async def test_a_connection_that_breaks_ends_its_calls(
    clock: VirtualClock, certificate: Certificate, nodes: Nodes
) -> None:
    b = nodes[1]
    b.handlers["held"] = held = Held()
    c = Peers("c", KEY, clock)
    async with TcpProxy.listening(port_of(b)) as proxy:
        c.use({"b": (f"127.0.0.1:{proxy.port}", certificate[1])})
        call = asyncio.ensure_future(c.call("b", "held", {}, limit_s=3))
        await until(lambda: held.begun == 1, "the call has begun")
    with pytest.raises(PeerGone, match="ended: the connection broke") as caught:
        await call
    assert caught.value.was_sent
    await until(lambda: held.cancelled == 1, "the other side has cancelled it")
    with pytest.raises(PeerGone, match="cannot be reached") as caught:
        await c.call("b", "held", {}, limit_s=3)
    assert not caught.value.was_sent
    c.use({"b": (f"127.0.0.1:{port_of(b)}", certificate[1])})
    held.go_on.set()
    assert await c.call("b", "held", {}, limit_s=3) == ({}, b"done")
    await c.close()


async def test_a_silent_node_is_noticed(nodes: Nodes, clock: VirtualClock) -> None:
    a, b = nodes
    b.handlers["held"] = held = Held()
    call = asyncio.ensure_future(a.call("b", "held", {}, limit_s=60))
    await until(lambda: held.begun == 1, "the call has begun")
    connection, other = next(iter(a._connections)), next(iter(b._connections))
    for _ in range(3 * limits.PEER_BEATS_MISSED_MAX):  # beats come: the call goes on
        clock.advance(limits.PEER_BEAT_SECONDS)
        await until(lambda: connection._missed_beats == 0 == other._missed_beats, "a beat has come")
    assert not call.done()
    assert other._beating is not None
    other._beating.cancel()
    for _ in range(limits.PEER_BEATS_MISSED_MAX + 1):
        clock.advance(limits.PEER_BEAT_SECONDS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(PeerGone, match="silent"):
        await call


async def test_connections_to_a_former_address_are_closed(nodes: Nodes, certificate: Certificate) -> None:
    a, b = nodes
    await a.call("b", "echo", {}, limit_s=3)
    address = f"127.0.0.1:{port_of(b)}"
    connection = next(iter(a._connections))
    a.use({"b": (address, certificate[1]), "c": ("127.0.0.1:1", certificate[1])})
    assert connection.is_open, "nothing has changed"
    a.use({"c": ("127.0.0.1:1", certificate[1])})
    assert not connection.is_open
    with pytest.raises(PeerGone, match="address is not known"):
        await a.call("b", "echo", {}, limit_s=3)
    with pytest.raises(PeerGone, match="cannot be reached") as caught:
        await a.call("c", "echo", {}, limit_s=3)
    assert not caught.value.was_sent
    a.use({"c": ("nowhere", certificate[1])})
    with pytest.raises(PeerGone, match="not HOST:PORT"):
        await a.call("c", "echo", {}, limit_s=3)


async def test_a_relayed_connection_carries_a_clients_bytes_and_no_calls(nodes: Nodes) -> None:
    a, b = nodes
    protocols: list[Collecting] = []

    def take(node: str, head: dict[str, Any]) -> asyncio.Protocol:
        if head["door"] != "mongo":
            raise Failure(Kind.UNSUPPORTED, "No such door.")
        protocols.append(Collecting())
        return protocols[-1]

    b.on_relay = take
    near = Collecting()
    await a.relay("b", {"door": "mongo"}, near, limit_s=3)
    assert not b._accepted, "it is not used for calls"
    assert await b.call("a", "echo", {}, limit_s=3) == ({"caller": "b"}, b"")
    near.transport.write(b"question")
    await until(lambda: protocols[0].received == b"question", "it has arrived")
    protocols[0].transport.write(b"answer")
    await until(lambda: near.received == b"answer", "it has arrived")
    with pytest.raises(Failure, match="No such door"):
        await a.relay("b", {"door": "other"}, Collecting(), limit_s=3)
    a.use({"b": ("127.0.0.1:1", bytes(32))})
    with pytest.raises(PeerGone, match="cannot be reached"):
        await a.relay("b", {"door": "mongo"}, Collecting(), limit_s=3)
    near.transport.abort()
    await until(lambda: protocols[0].is_lost, "the other side ends too")


async def test_closing_ends_the_calls_under_way(nodes: Nodes) -> None:
    a, b = nodes
    b.handlers["held"] = held = Held()
    call = asyncio.ensure_future(a.call("b", "held", {}, limit_s=3))
    await until(lambda: held.begun == 1, "the call has begun")
    await b.close()
    with pytest.raises(PeerGone, match="the node was closed"):
        await call
    await until(lambda: held.cancelled == 1, "it was cancelled")
    await a.close()
    with pytest.raises(PeerGone, match="being closed"):
        await a.call("b", "echo", {}, limit_s=3)


async def test_a_node_that_was_not_reached_counts_as_gone_until_it_is(nodes: Nodes, certificate: Certificate) -> None:
    a, b = nodes
    await a.call("b", "echo", {}, limit_s=5)
    assert not a.is_gone("b")
    port = port_of(b)
    await b.close()
    with pytest.raises(PeerGone):
        await a.call("b", "echo", {}, limit_s=5)
    with pytest.raises(PeerGone):
        await a.call("b", "echo", {}, limit_s=5)
    assert a.is_gone("b")
    again = Peers("b", KEY, VirtualClock())
    await again.listen("127.0.0.1", port, *certificate)
    again.handlers["echo"] = b.handlers["echo"]
    await a.call("b", "echo", {}, limit_s=5)
    assert not a.is_gone("b")
    await again.close()


async def test_a_port_that_is_taken_is_named(nodes: Nodes, certificate: Certificate) -> None:
    other = Peers("c", KEY, VirtualClock())
    taken = port_of(nodes[0])
    with pytest.raises(Failure, match=f"Port {taken} of 127.0.0.1 cannot be opened: .* choose another port"):
        await other.listen("127.0.0.1", taken, *certificate)
    await other.close()
