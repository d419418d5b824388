"""What a node says to connections that are not of its cluster: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.peers import KEY, Certificate, Stranger, port_of, raw_frame, raw_head
from support.waiting import until

from armillary import limits
from armillary.clock import SystemClock, VirtualClock
from armillary.cluster.peers import handshake
from armillary.cluster.peers.calls import PeerGone, Peers
from armillary.cluster.peers.frames import FrameKind

Nodes = tuple[Peers, Peers]


async def test_a_node_with_another_key_is_cut_off(nodes: Nodes, clock: VirtualClock, certificate: Certificate) -> None:
    other = Peers("c", b"another key", clock)
    other.use({"a": (f"127.0.0.1:{port_of(nodes[0])}", certificate[1])})
    with pytest.raises(PeerGone, match="cannot be reached: the connection broke") as caught:
        await other.call("a", "echo", {}, limit_s=3)
    assert not caught.value.was_sent
    assert not nodes[0]._connections
    await other.close()


async def test_a_server_with_another_certificate_is_told_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """A third party that has taken an address, even one that knows the key."""
    a, b = nodes
    _, fingerprint = handshake.own_certificate(tmp_path / "peers", SystemClock())
    a.use({"b": (f"127.0.0.1:{port_of(b)}", fingerprint)})
    with pytest.raises(PeerGone, match="certificate is not the one"):
        await a.call("b", "echo", {}, limit_s=3)
    assert not b._connections


async def test_another_node_at_the_address_is_noticed(nodes: Nodes, certificate: Certificate) -> None:
    a, b = nodes
    a.use({"c": (f"127.0.0.1:{port_of(b)}", certificate[1])})
    with pytest.raises(PeerGone, match="another node answers"):
        await a.call("c", "echo", {}, limit_s=3)


async def test_a_proof_for_another_certificate_or_nonce_is_refused(nodes: Nodes, certificate: Certificate) -> None:
    for number in range(6):
        stranger = await Stranger.connected(port_of(nodes[0]))
        hello = await stranger.frame()
        assert hello is not None
        assert hello.kind is FrameKind.HELLO
        assert sorted(hello.head) == ["nonce", "versions"], "it says nothing of the node"
        good = handshake.proof(hello.head, KEY, certificate[1], "c")
        if number == 0:
            stranger.send(FrameKind.PROOF, good)
            welcome = await stranger.frame()
            assert welcome is not None
            assert welcome.kind is FrameKind.WELCOME
            stranger.close()
            continue
        bad = [
            handshake.proof(
                hello.head, KEY, bytes(32), "c"
            ),  # passed on by a third party with a certificate of its own
            handshake.proof({**hello.head, "nonce": "00" * 32}, KEY, certificate[1], "c"),  # of an earlier connection
            {**good, "node": "d"},
            {**good, "version": 2},
            {**good, "proof": good["proof"][:-2]},
        ]
        stranger.send(FrameKind.PROOF, bad[number - 1])
        assert await stranger.is_cut_off()


async def test_an_unknown_version_is_refused_with_a_sentence(
    nodes: Nodes, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes
    stranger = await Stranger.connected(port_of(a))
    hello = await stranger.frame()
    assert hello is not None
    nonce = bytes.fromhex(hello.head["nonce"])
    proof = handshake.authentication(KEY, nonce, certificate[1], "c", 7)
    stranger.send(FrameKind.PROOF, {"node": "c", "version": 7, "proof": proof.hex()})
    farewell = await stranger.frame()
    assert farewell is not None
    assert farewell.kind is FrameKind.FAREWELL
    assert "the other one offers 7, this one 1. Upgrade the older node" in farewell.head["message"]
    assert await stranger.is_cut_off()
    monkeypatch.setattr(handshake, "hello", lambda nonce: {"versions": [8, 9], "nonce": nonce.hex()})
    with pytest.raises(PeerGone, match="offers 8, 9, this one 1"):
        await b.call("a", "echo", {}, limit_s=3)


async def test_a_stranger_that_says_nothing_is_cut_off_soon(nodes: Nodes, clock: VirtualClock) -> None:
    a = nodes[0]
    stranger = await Stranger.connected(port_of(a))
    assert await stranger.frame() is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(a))  # not even TLS
    await until(lambda: len(a._strangers) == 2, "both are there")
    clock.advance(limits.PEER_GREETING_SECONDS + 0.1)
    assert await stranger.is_cut_off()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.transport.abort()
    await until(lambda: not a._strangers, "both are forgotten")


async def test_the_number_of_strangers_is_limited(nodes: Nodes, with_limits: WithLimits) -> None:
    a, b = nodes
    with_limits(PEER_STRANGERS_MAX=2)
    await b.call("a", "echo", {}, limit_s=3)
    strangers = [await Stranger.connected(port_of(a)) for _ in range(2)]
    await until(lambda: len(a._strangers) == 2, "both are there")
    with pytest.raises(OSError):
        await Stranger.connected(port_of(a))
    assert await b.call("a", "echo", {}, limit_s=3) == ({"caller": "b"}, b""), "known nodes are not disturbed"
    for each in strangers:
        each.close()
    await until(lambda: not a._strangers, "there is room again")
    another = await Stranger.connected(port_of(a))
    another.close()


@pytest.mark.parametrize(
    "sent",
    [
        raw_frame(0xFFFFFFFF, 2, 0),
        raw_frame(limits.PEER_GREETING_BYTES_MAX + 1, 2, 0),
        raw_frame(13, 2, 1),  # the head is longer than the frame
        raw_frame(0, 2, 0),
        raw_frame(13, 99, 0),
        raw_frame(13, FrameKind.CALL, 0),
        raw_frame(15, 2, 2, b"{]"),
        raw_head([1]),
        raw_head({}),
        raw_head({"node": 1, "version": "x", "proof": None}),
        raw_head({"node": "c", "version": 1, "proof": "zz"}),
        raw_head({"node": "c", "version": -1, "proof": "00" * 32}),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_hostile_greetings_are_cut_off(nodes: Nodes, sent: bytes) -> None:
    stranger = await Stranger.connected(port_of(nodes[0]))
    assert await stranger.frame() is not None
    stranger.send_bytes(sent)
    assert await stranger.is_cut_off()


async def test_garbage_is_cut_off_and_harms_no_other_connection(nodes: Nodes, seed: int) -> None:
    a, b = nodes
    dice = random.Random(seed)
    for _ in range(20):
        stranger = await Stranger.connected(port_of(a))
        stranger.send_bytes(dice.randbytes(dice.choice([17, 100, 10_000])))
        assert await stranger.frame() is not None
        assert await stranger.is_cut_off()
        assert await b.call("a", "echo", {}, limit_s=3) == ({"caller": "b"}, b"")


@pytest.mark.parametrize(
    "sent",
    [
        raw_frame(13 + limits.PEER_HEAD_BYTES_MAX + 1, FrameKind.CALL, limits.PEER_HEAD_BYTES_MAX + 1),
        raw_frame(13 + limits.PEER_BODY_BYTES_MAX + 1, FrameKind.CALL, 0),
        raw_frame(13, FrameKind.CALL, 0),
        raw_frame(13, FrameKind.HELLO, 0),
        raw_frame(13, 0, 0),
    ],
)
async def test_a_known_node_that_breaks_the_protocol_is_cut_off(
    nodes: Nodes, certificate: Certificate, sent: bytes
) -> None:
    stranger = await Stranger.connected(port_of(nodes[0]))
    hello = await stranger.frame()
    assert hello is not None
    stranger.send(FrameKind.PROOF, handshake.proof(hello.head, KEY, certificate[1], "c"))
    assert await stranger.frame() is not None
    stranger.send(FrameKind.CALL, {"name": "echo", "head": {}})
    answer = await stranger.frame()
    assert answer is not None
    assert answer.kind is FrameKind.ANSWER
    stranger.send(FrameKind.ANSWER, call=77)  # of a call that was never made: nothing happens
    stranger.send(FrameKind.CANCEL, call=77)
    stranger.send_bytes(sent)
    assert await stranger.is_cut_off()
