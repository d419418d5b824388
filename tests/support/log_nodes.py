"""Nodes of a cluster with several logs in the tests' own process, on logs in memory. They call each other on sockets of
this machine, and keep their replicas on disk. Items are keys of the engines: what an account makes of them is left to
other tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from support.peers import Certificate
from support.waiting import until

from armillary.clock import SystemClock
from armillary.cluster.logs.log_replica import LogReplica, LogSettings
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.logs.replica_directories import NodeDirectories
from armillary.cluster.new_replicas import peer_addresses
from armillary.cluster.peers.calls import Peers
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import Txn, View
from armillary.storage.log.memory_log import MemoryLogs, MemoryLogServer
from armillary.storage.log.replicated_log import ReplicatedLogs
from armillary.storage.log.rows import GENERATION_BYTES
from armillary.storage.overlay import Layer

STORE = 1


def log_servers(count: int) -> list[MemoryLogServer]:
    return [MemoryLogServer(b"%d" % number * GENERATION_BYTES) for number in range(count)]


class KeptRoles:
    """Counts what a node is told of its role in a log. Implements Roles."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.adopted = 0

    async def lead(self) -> None:
        self.roles.append("leads")

    def cease(self) -> None:
        self.roles.append("ceases")

    async def follow(self) -> None:
        self.roles.append("follows")

    def adopt(self, layer: Layer, notes: bytes) -> None:
        self.adopted += 1

    def apply_delay_s(self) -> float:
        return 0.0


class LogNode:
    """A node that can be stopped, killed (`kill`), and started again."""

    def __init__(
        self, name: str, path: Path, logs: ReplicatedLogs, certificate: Certificate, prefers: Iterable[int] = ()
    ) -> None:
        """`prefers`: the logs that it takes over before other nodes do."""
        self.name = name
        self.path = path
        self.prefers = set(prefers)
        self.roles: dict[int, KeptRoles] = {}
        self._certificate = certificate
        self._clock = SystemClock()
        self._logs = logs
        self._announcing: asyncio.Task[None] | None = None
        self.peers: Peers
        self.node: NodeLogs

    async def start(self, wanted: Iterable[int] = (), *, is_drained: bool = False) -> None:
        self.peers = Peers(self.name, self._logs.cluster_key, self._clock)
        port = await self.peers.listen("127.0.0.1", 0, *self._certificate)
        self.addresses = {"peer": f"127.0.0.1:{port}", "peer_certificate": self._certificate[1].hex()}
        await self.exchange()
        self._announcing = asyncio.create_task(self._announce())
        self.directory = DataDirectory.claim(self.path)
        directories = NodeDirectories(
            self.path, self.directory, self.name, "eu", self.peers, self._clock, reserve_bytes=0
        )
        settings = LogSettings(
            self.name, "eu", self._roles_of, patience=lambda number: 0.0 if number in self.prefers else 1.0
        )
        self.node = NodeLogs(self._logs, directories, self.peers, self._clock, settings, is_drained=is_drained)
        await self.node.start()
        self.node.want({*self.node.wanted, *wanted})

    def _roles_of(self, replica: LogReplica) -> KeptRoles:
        return self.roles.setdefault(replica.number, KeptRoles())

    async def exchange(self) -> None:
        """As Membership does."""
        log = await self._logs.log(0)
        await log.announce(self.name, "eu", self.addresses)
        self.peers.use(peer_addresses(await log.nodes()))

    async def _announce(self) -> None:
        while True:
            await self._clock.sleep(0.05)
            await self.exchange()

    async def stop(self) -> None:
        await self.node.retire()
        await self.kill()
        log = await self._logs.log(0)
        await log.announce(self.name, "eu", self.addresses | {"stopped": "true"})

    async def kill(self) -> None:
        """Without handing over. The databases are closed."""
        if self._announcing is None:
            return
        self._announcing.cancel()
        await asyncio.gather(self._announcing, return_exceptions=True)
        self._announcing = None
        await self.node.stop()
        await self.node.close()
        await self.peers.close()
        self.directory.release()

    @property
    def carried(self) -> set[int]:
        return set(self.node.replicas)


class LogCluster:
    def __init__(self, nodes: Sequence[LogNode]) -> None:
        self.nodes = {each.name: each for each in nodes}

    @classmethod
    def of(
        cls, path: Path, certificate: Certificate, servers: Sequence[MemoryLogServer], **prefers: Iterable[int]
    ) -> LogCluster:
        clock = SystemClock()
        return cls(
            [
                LogNode(name, path / name, MemoryLogs(servers, clock), certificate, numbers)
                for name, numbers in prefers.items()
            ]
        )

    def __getitem__(self, name: str) -> LogNode:
        return self.nodes[name]

    def leaders(self, log: int) -> list[str]:
        running = (each for each in self.nodes.values() if each._announcing is not None)
        return [each.name for each in running if (r := each.node.replicas.get(log)) is not None and r.takes_writes]

    async def led_by(self, log: int, name: str) -> None:
        await until(lambda: self.leaders(log) == [name], f"{name} leads log {log}")

    async def write(self, log: int, key: bytes, value: bytes = b"x") -> None:
        """At the leader, as soon as there is one."""

        def run(txn: Txn) -> None:
            txn.put(key, value)

        while True:
            await until(lambda: bool(self.leaders(log)), f"a leader of log {log}")
            replica = self.nodes[self.leaders(log)[0]].node.replicas[log]
            try:
                await replica.engine.store(STORE).write(run)
                return
            except Failure as failure:
                if failure.kind is not Kind.NOT_LEADER:
                    raise

    async def read(self, log: int, name: str) -> dict[bytes, bytes]:
        def run(view: View) -> dict[bytes, bytes]:
            return dict(view.scan(b"", b"\xff"))

        return await self.nodes[name].node.replicas[log].engine.store(STORE).read(run)

    async def close(self) -> None:
        for each in self.nodes.values():
            await each.kill()
