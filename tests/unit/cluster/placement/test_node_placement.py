"""The balancer with nodes that call each other on sockets of this machine: their logs are placed, a node is emptied,
one dies, and nothing that was written is missing at any replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.log_nodes import LogCluster, LogNode, log_servers
from support.peers import Certificate
from support.placement_settings import KeptSettings
from support.waiting import until

from armillary.clock import SystemClock
from armillary.cluster.placement.balancer import Balancer
from armillary.cluster.placement.node_placement import LedLoad, NodePlacement
from armillary.cluster.placement.planner import plan
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.replicated_log import NodeState

LOGS = range(4)
NAMES = "abcd"


class Placed:
    """`a` begins with all logs, and has the balancer."""

    def __init__(self, cluster: LogCluster, servers: Sequence[MemoryLogServer]) -> None:
        self.cluster = cluster
        self.servers = servers
        self.settings = KeptSettings()
        self.placements: dict[str, NodePlacement] = {}
        self.nodes: list[NodeState] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *names: str) -> None:
        for name in names:
            node = self.cluster[name]
            await node.start(LOGS if name == "a" else ())
            self.placements[name] = self._placement(node)
        if not self._tasks:
            self.balancer = Balancer(self.settings, self.placements["a"], SystemClock())
            self._tasks = [asyncio.create_task(self._keep_known()), asyncio.create_task(self.balancer.run())]

    def _placement(self, node: LogNode) -> NodePlacement:
        async def hand_over(log: int, successor: str) -> str:
            return await node.node.replicas[log].hand_over(successor)

        return NodePlacement(
            node.name,
            node.node,
            node.peers,
            SystemClock(),
            nodes=lambda: self.nodes,
            regions=tuple,
            led_loads=lambda: {number: LedLoad(100.0, 1_000, 2) for number in node.node.led},
            free_bytes=lambda: 1 << 40,
            hand_over=hand_over,
        )

    async def _keep_known(self) -> None:
        """As Membership and the catalog do."""
        log = await self.cluster["a"]._logs.log(0)
        while True:
            self.nodes = await log.nodes()
            for name, placement in self.placements.items():
                if self.cluster[name]._announcing is not None:
                    placement.follow(self.settings.record)
            await asyncio.sleep(0.02)

    async def settled(self) -> None:
        """Every node is known, and nothing is left to do."""
        for _ in range(600):
            figures = await self.placements["a"].figures()
            is_known = {each.name for each in figures.nodes if each.is_alive} >= self.placements.keys()
            if is_known and not plan(figures, self.settings.record, steps_max=1).steps and not self.balancer._copies:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the logs do not come to rest")

    def carried(self, name: str) -> set[int]:
        return {number for number in LOGS if name in self.servers[number].replicas}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.close()


@pytest.fixture
async def placed(tmp_path: Path, certificate: Certificate, with_limits: WithLimits) -> AsyncIterator[Placed]:
    with_limits(
        LEASE_RENEW_SECONDS=0.02, LOG_REPORT_SECONDS=0.05, LOG_WITHDRAW_SECONDS_MAX=1.0, BOOTSTRAP_RETRY_SECONDS=0.01
    )
    with_limits(PLACEMENT_PAUSE_SECONDS=0.05, PLACEMENT_STEP_SECONDS=0.01, PLACEMENT_RETRY_SECONDS=2.0)
    with_limits(PLACEMENT_REST_SECONDS=1.0)
    servers = log_servers(len(LOGS))
    cluster = LogCluster.of(tmp_path, certificate, servers, a=LOGS, b=(), c=(), d=())
    made = Placed(cluster, servers)
    yield made
    await made.stop()


async def test_logs_are_spread_and_a_node_is_emptied(placed: Placed) -> None:
    await placed.start(*NAMES)
    for number in LOGS:
        await placed.cluster.write(number, b"of %d" % number)
    await placed.settled()
    assert all(len(placed.servers[number].replicas) == 3 for number in LOGS[1:])
    assert {placed.cluster.leaders(number)[0] for number in LOGS} > {"a"}, "leaders are spread"
    figures = await placed.placements["b"].figures()
    assert [log.units_per_s for log in figures.logs] == [100.0] * len(LOGS), "each leader tells what it spends"
    await placed.balancer.change(lambda record: record.emptying("b", True))
    await placed.settled()
    await until(lambda: placed.carried("b") == {0}, "it has no other log")
    assert all(len(placed.servers[number].replicas) == 3 for number in LOGS[1:])
    for number in LOGS[1:]:
        for name in placed.servers[number].replicas:
            assert await placed.cluster.read(number, name) == {b"of %d" % number: b"x"}


async def test_a_node_that_is_gone_is_replaced_and_learns_it_when_it_is_back(
    placed: Placed, with_limits: WithLimits
) -> None:
    await placed.start("a", "b", "c")
    await placed.settled()
    assert placed.carried("c") == {0, 1, 2, 3}
    with_limits(NODE_SILENT_SECONDS=0.5, PLACEMENT_GONE_SECONDS=1.0)
    await placed.cluster["c"].kill()
    await placed.start("d")
    await until(lambda: placed.carried("d") == {0, 1, 2, 3}, "replicas were made elsewhere")
    await until(lambda: placed.carried("c") <= {0}, "the log counts those of the lost node no more")
    await placed.start("c")
    back = placed.cluster["c"]  # it may get replicas anew, since it has room
    await until(lambda: back.carried == back.node.wanted == placed.carried("c") | {0}, "it has what the logs count")
