"""A leader with data that another node is built from, and that node's side."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from support.direct_calls import DirectCalls
from support.replicas import leading_engine

from armillary.clock import Clock, SystemClock
from armillary.cluster.bootstrap import fetch
from armillary.cluster.bootstrap_source import BootstrapSource
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import Txn, View
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.rows import GENERATION_BYTES
from armillary.storage.replication.follower import Follower
from armillary.storage.replication.local_replica import LocalReplica, Position
from armillary.storage.replication.replicated_engine import ReplicatedEngine

ROWS = 400
GENERATION = b"g" * GENERATION_BYTES


class CopiedNode:
    def __init__(self, path: Path, server: MemoryLogServer, engine: ReplicatedEngine, clock: Clock) -> None:
        self.path = path
        self.server = server
        self.engine = engine
        self.clock = clock
        self.source = BootstrapSource(engine, clock)
        self.peers = DirectCalls("b", {"a": self.source.calls})
        self.log = MemoryLog(server, SystemClock())

    @classmethod
    async def open(cls, path: Path, clock: Clock | None = None) -> Self:
        server = MemoryLogServer(GENERATION)
        node = cls(path, server, await leading_engine(path / "a", server), clock or SystemClock())
        await node.log.register("a")
        await node.write(0)
        return node

    async def write(self, number: int, rows: int = ROWS) -> None:
        """More rows, in a table file of their own."""

        def run(txn: Txn) -> None:
            for row in range(rows):
                txn.put(b"%d-%05d" % (number, row), b"%d" % row * 100)

        await self.engine.store(1).write(run)
        assert self.engine.replica.database is not None
        self.engine.replica.database.flush()

    async def trim(self) -> None:
        """The log keeps nothing but its newest row for the replicas that there are."""
        flushed = (await self.engine.replica.sync()).place.seq
        await self.log.report("a", flushed, flushed)
        await self.log.trim()

    async def fetch(self, directory: DataDirectory, **options: Any) -> Position:
        return await fetch(
            self.peers.call,
            "a",
            directory,
            self.log,
            "b",
            GENERATION,
            self.clock,
            **options,
        )

    async def fetch_to(self, path: Path) -> Position:
        directory = DataDirectory.claim(path)
        try:
            return await self.fetch(directory)
        finally:
            directory.release()

    async def close(self) -> None:
        await self.source.close()
        await self.engine.close()


async def contents(engine: ReplicatedEngine) -> dict[bytes, bytes]:
    def run(view: View) -> dict[bytes, bytes]:
        return dict(view.scan(b"", b"\xff"))

    return await engine.store(1).read(run)


async def opened(path: Path, server: MemoryLogServer) -> tuple[ReplicatedEngine, Follower]:
    """The replica in a directory, and its follower, which a test steps."""
    replica = LocalReplica.open(DataDirectory.claim(path), GENERATION, reserve_bytes=0)
    clock = SystemClock()
    follower = Follower(replica, MemoryLog(server, clock), clock, lambda layer, notes: None)
    return ReplicatedEngine(replica, clock), follower
