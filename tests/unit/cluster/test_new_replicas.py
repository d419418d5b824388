"""The replica of a starting node: opened, built from another node, waited for. Nodes call each other on sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.copied_node import GENERATION, CopiedNode, contents
from support.limits import WithLimits
from support.peers import KEY, Certificate
from support.waiting import until

from armillary.clock import SystemClock
from armillary.cluster.bootstrap_source import BEGIN
from armillary.cluster.new_replicas import ReplicaOpening
from armillary.cluster.peers.calls import Peers
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.replication.replicated_engine import ReplicatedEngine


class Starting:
    """A leader that others can be built from, and a node that starts."""

    def __init__(self, leader: CopiedNode, path: Path, certificate: Certificate) -> None:
        self.leader = leader
        self._path = path
        self._certificate = certificate
        self.peers = {name: Peers(name, KEY, SystemClock()) for name in ("a", "b")}
        self.directory: DataDirectory

    async def announce(self, node: str = "a", region: str = "eu") -> None:
        peers = self.peers[node]
        port = await peers.listen("127.0.0.1", 0, *self._certificate)
        peers.handlers |= self.leader.source.calls
        addresses = {"peer": f"127.0.0.1:{port}", "peer_certificate": self._certificate[1].hex()}
        await self.leader.log.announce(node, region, addresses)

    async def open(self, name: str = "b") -> ReplicatedEngine:
        self.directory = DataDirectory.claim(self._path / name)
        peers = self.peers["b"]
        opening = ReplicaOpening("b", "eu", self.directory, self.leader.log, peers, SystemClock())
        return ReplicatedEngine(await opening.open(reserve_bytes=0), SystemClock())

    async def close(self) -> None:
        for peers in self.peers.values():
            await peers.close()
        await self.leader.close()


@pytest.fixture
async def starting(tmp_path: Path, certificate: Certificate, with_limits: WithLimits) -> AsyncIterator[Starting]:
    with_limits(BOOTSTRAP_RETRY_SECONDS=0.001, BOOTSTRAP_ATTEMPTS=1)
    made = Starting(await CopiedNode.open(tmp_path), tmp_path, certificate)
    yield made
    await made.close()


async def test_a_replica_that_can_follow_is_opened(starting: Starting) -> None:
    engine = await starting.open()
    assert engine.replica.position.place.seq == 0, "the log has everything"
    assert [each.node for each in await starting.leader.log.replicas()] == ["a", "b"]
    await engine.close()


async def test_a_new_replica_is_built_from_a_node_that_is_waited_for(
    starting: Starting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await starting.leader.trim()
    (tmp_path / "b" / "incoming").mkdir(parents=True)
    (tmp_path / "b" / "FORMAT").write_text("armillary 3\n")
    opening = asyncio.ensure_future(starting.open())
    await until(lambda: "No other node is running" in caplog.text, "the node tells that it waits")
    await starting.announce()
    engine = await opening
    assert await contents(engine) == await contents(starting.leader.engine)
    await engine.close()
    caplog.clear()
    engine = await starting.open()  # a restart
    assert "built from" not in caplog.text
    await engine.close()


async def test_another_node_is_copied_from_if_one_does_not_answer(
    starting: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    await starting.leader.trim()
    await starting.announce()
    gone = {"peer": "127.0.0.1:1", "peer_certificate": starting._certificate[1].hex()}
    await starting.leader.log.announce("0", "eu", gone)  # a follower of the same region, which is tried first
    engine = await starting.open()
    assert "built from node 0" in caplog.text
    assert await contents(engine) == await contents(starting.leader.engine)
    await engine.close()


async def test_a_directory_of_another_cluster_or_a_full_disk_is_refused(starting: Starting, tmp_path: Path) -> None:
    await starting.leader.trim()
    await starting.announce()
    engine = await starting.open()
    await engine.close()
    server = starting.leader.server
    state = server.state
    server.state = replace(state, generation=b"another cluster.")
    with pytest.raises(Failure, match="another log"):
        await starting.open()
    server.state = state

    async def full(node: str, head: dict[str, object], body: bytes) -> tuple[dict[str, object], bytes]:
        return {"id": "x", "format": 3, "seq": 9, "generation": GENERATION.hex()}, b'{"1.sst": %d}' % (1 << 60)

    starting.peers["a"].handlers[BEGIN] = full
    with pytest.raises(Failure) as caught:
        await starting.open("c")
    assert caught.value.kind is Kind.STORAGE_FULL
    starting.directory.release()
