"""A node with several logs: each is led, followed, handed over, taken up and given up by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.log_nodes import LogCluster, log_servers
from support.peers import Certificate
from support.waiting import until

from armillary.errors import Failure, Kind
from armillary.storage.directory import log_directories, log_directory
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.replicated_log import ReplicaState


@pytest.fixture
def servers() -> list[MemoryLogServer]:
    return log_servers(3)


@pytest.fixture
async def cluster(
    tmp_path: Path, certificate: Certificate, servers: list[MemoryLogServer], with_limits: WithLimits
) -> AsyncIterator[LogCluster]:
    """`a` leads log 0, `b` log 1, `c` log 2; each carries all three."""
    with_limits(
        LEASE_RENEW_SECONDS=0.02, LOG_REPORT_SECONDS=0.05, LOG_WITHDRAW_SECONDS_MAX=1.0, BOOTSTRAP_RETRY_SECONDS=0.01
    )
    made = LogCluster.of(tmp_path, certificate, servers, a=[0], b=[1], c=[2], d=[])
    for name in "abc":
        await made[name].start([0, 1, 2])
    yield made
    await made.close()


async def spread(cluster: LogCluster) -> None:
    """Each log is led by the node that prefers it."""
    for log, name in enumerate("abc"):
        await until(lambda log=log: bool(cluster.leaders(log)), f"log {log} has a leader")  # type: ignore[misc]
        leader = cluster.leaders(log)[0]
        if leader != name:
            await until(lambda log=log, name=name: log in cluster[name].carried, "it is carried")  # type: ignore[misc]
            await cluster[leader].node.replicas[log].hand_over(name)
        await cluster.led_by(log, name)


async def same_everywhere(cluster: LogCluster, log: int, names: str) -> None:
    leader = cluster[cluster.leaders(log)[0]].node.replicas[log].engine.replica
    for name in names:
        replica = cluster[name].node.replicas[log].engine.replica
        await until(lambda r=replica: r.position.place == leader.position.place, f"{name} has followed")  # type: ignore[misc]
    first = await cluster.read(log, names[0])
    assert first
    for name in names[1:]:
        assert await cluster.read(log, name) == first


async def test_each_log_is_led_by_another_node(cluster: LogCluster) -> None:
    await spread(cluster)
    for log in range(3):
        await cluster.write(log, b"of %d" % log)
    for log in range(3):
        await same_everywhere(cluster, log, "abc")
        assert await cluster.read(log, "a") == {b"of %d" % log: b"x"}, "no log has rows of another one"
    for log, name in enumerate("abc"):
        for node in cluster.nodes.values():
            if node.name != "d":
                await until(lambda n=node, log=log, name=name: n.node.leader_of(log) == name, "it is known")  # type: ignore[misc]
        others = {other: cluster[name].roles[other].roles[-1] for other in range(3) if other != log}
        assert set(others.values()) == {"follows"}
        assert cluster[name].roles[log].roles[-1] == "leads"
        assert cluster[name].node.led == {log}


async def test_a_hand_over_of_one_log_leaves_the_others(cluster: LogCluster) -> None:
    await spread(cluster)
    epoch = cluster["a"].node.epoch_of(2)
    assert await cluster["b"].node.replicas[1].hand_over("c") == "c"
    await cluster.led_by(1, "c")
    assert cluster.leaders(0) == ["a"]
    assert cluster.leaders(2) == ["c"]
    assert cluster["a"].node.epoch_of(2) == epoch
    with pytest.raises(Failure) as caught:
        await cluster["b"].node.replicas[1].hand_over("a")
    assert caught.value.kind is Kind.NOT_LEADER
    with pytest.raises(Failure, match="no live node 'd' that carries log 1"):
        await cluster["c"].node.replicas[1].hand_over("d")


async def test_a_node_that_stops_hands_over_all_of_its_logs(cluster: LogCluster) -> None:
    await spread(cluster)
    await cluster["a"].node.replicas[0].hand_over("c")
    await cluster.led_by(0, "c")
    await cluster["c"].stop()
    for log in (0, 2):
        await until(lambda log=log: bool(cluster.leaders(log)), f"log {log} is taken over")  # type: ignore[misc]
        await cluster.write(log, b"later")


async def test_a_new_node_takes_up_a_log_that_was_trimmed_and_another_gives_it_up(
    cluster: LogCluster, servers: list[MemoryLogServer], tmp_path: Path
) -> None:
    await spread(cluster)
    for number in range(20):
        await cluster.write(1, b"%d" % number)
    await until(lambda: servers[1].trimmed > 5, "the log is trimmed")
    await cluster["d"].start([1])
    await until(lambda: 1 in cluster["d"].carried, "d carries log 1")
    assert cluster["d"].carried == {0, 1}
    await same_everywhere(cluster, 1, "abcd")

    cluster["b"].node.want({0, 2})  # it leads log 1
    await until(lambda: 1 not in cluster["b"].carried, "b does not carry log 1")
    await cluster.write(1, b"later")
    await until(lambda: not cluster["b"].node.leaving, "it is removed")
    assert set(log_directories(tmp_path / "b")) == {2}
    assert set(servers[1].replicas) == {"a", "c", "d"}
    await same_everywhere(cluster, 1, "acd")
    await cluster["b"].kill()
    await cluster["b"].start()
    assert cluster["b"].node.wanted == {0, 2}, "what is in the directory"


async def test_the_last_replica_does_not_leave(cluster: LogCluster, servers: list[MemoryLogServer]) -> None:
    await spread(cluster)
    await cluster.write(1, b"kept")
    for name in "ac":
        cluster[name].node.want({0, 2})
    await until(lambda: set(servers[1].replicas) == {"b"}, "the others leave")
    cluster["b"].node.want({0})
    await cluster.write(1, b"later")
    await until(lambda: 2 not in cluster["b"].carried, "it may leave the other log")
    assert cluster.leaders(1) == ["b"]
    await until(lambda: cluster["b"].node.leaving == {1}, "only log 1 is still carried")
    cluster["a"].node.want({0, 1, 2})
    await until(lambda: 1 not in cluster["b"].carried, "a substitute carries the log")
    await until(lambda: cluster.leaders(1) == ["a"], "it leads it")
    assert await cluster.read(1, "a") == {b"kept": b"x", b"later": b"x"}


async def test_files_of_a_replica_that_has_left_are_removed_at_the_next_start(
    cluster: LogCluster, tmp_path: Path
) -> None:
    await cluster["c"].kill()
    left = log_directory(tmp_path / "c", 1).with_suffix(".left")
    log_directory(tmp_path / "c", 1).rename(left)
    await cluster["c"].start()
    assert not left.exists()
    assert cluster["c"].node.wanted == {0, 2}


async def test_a_node_that_is_to_stay_after_all_leads_again(
    cluster: LogCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wish changes back while it is looked at whether others have what the replica has."""
    await spread(cluster)
    await cluster.write(1, b"x")
    replica = cluster["a"].node.replicas[1]
    asked, answered = asyncio.Event(), asyncio.Event()

    async def candidates() -> list[ReplicaState]:
        asked.set()
        await answered.wait()
        return [ReplicaState("b", 0, 0)]  # it has flushed less

    monkeypatch.setattr(replica, "candidates", candidates)
    cluster["a"].node.want({0, 2})
    await asked.wait()
    cluster["a"].node.want({0, 1, 2})
    answered.set()
    await until(lambda: not replica.leadership.is_drained, "it may lead again")
    assert await cluster["b"].node.replicas[1].hand_over("a") == "a"
    assert cluster["a"].node.replicas[1] is replica, "it was not opened anew"
