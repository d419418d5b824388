"""What nodes of a cluster ask of PostgreSQL and of each other while nothing is written: counted in a small cluster of
real nodes with several logs, and scaled up by what causes each call. And what each call costs PostgreSQL, with tables
as full as those of the large cluster.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from armillary import limits
from armillary.clock import SystemClock
from armillary.cluster.logs.log_replica import LogReplica, LogSettings
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.logs.replica_directories import NodeDirectories
from armillary.cluster.membership import Membership
from armillary.cluster.new_replicas import peer_addresses
from armillary.cluster.peers.calls import Peers
from armillary.cluster.peers.handshake import own_certificate
from armillary.storage.directory import DataDirectory
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_logs import PostgresLogs
from armillary.storage.log.rows import START
from armillary.storage.overlay import Layer
from armillary.tools.cluster.scratch_postgres import PostgresPrograms, PostgresServer
from bench.load import cpu_seconds

_NODES: Final = 3
_SETTLE_S: Final = 8.0  # from the start until roles are taken and first reports are done


@dataclass(frozen=True)
class Scale:
    """A cluster."""

    nodes: int
    logs: int
    replicas: int  # of each log but log 0, which every node has

    @property
    def carried(self) -> int:
        """Replicas in all."""
        return self.nodes + (self.logs - 1) * min(self.replicas, self.nodes)


# What causes the calls of each kind.
_CAUSES: Final[dict[str, tuple[str, Callable[[Scale], int]]]] = {
    "leaders": ("node", lambda scale: scale.nodes),
    "announce": ("node", lambda scale: scale.nodes),
    "nodes": ("node", lambda scale: scale.nodes),
    "renew": ("leader", lambda scale: scale.logs),
    "trim": ("leader", lambda scale: scale.logs),
    "report": ("replica", lambda scale: scale.carried),
    "read": ("follower", lambda scale: scale.carried - scale.logs),
    "newest": ("follower", lambda scale: scale.carried - scale.logs),
    "lowest": ("follower", lambda scale: scale.carried - scale.logs),
    "leader": ("follower", lambda scale: scale.carried - scale.logs),
    "tail": ("follower", lambda scale: scale.carried - scale.logs),
    "replicas": ("leader", lambda scale: scale.logs),
    "figures": ("leader", lambda scale: scale.logs),
    "call": ("follower", lambda scale: scale.carried - scale.logs),  # of one node by another
}


@dataclass(frozen=True)
class Asked:
    """A kind of call."""

    name: str
    cause: str  # what there is one of for each series of calls
    per_s: float  # for each of them
    scaled_per_s: float  # in the large cluster
    statements: float  # of one call; 0: it is not PostgreSQL that is asked
    cpu_us: float  # of PostgreSQL, for one call


class _NoRoles:
    """A node without an account. Implements Roles."""

    async def lead(self) -> None: ...
    def cease(self) -> None: ...
    async def follow(self) -> None: ...
    def adopt(self, layer: Layer, notes: bytes) -> None: ...
    def apply_delay_s(self) -> float:
        return 0.0


def start_postgres(directory: Path) -> tuple[PostgresPrograms, PostgresServer]:
    directory.mkdir(parents=True)
    for each in (directory, *directory.parents):
        if each.stat().st_uid == directory.stat().st_uid and each.name.startswith("armillary-bench-"):
            each.chmod(0o711)  # PostgreSQL does not run as root, and has to reach its own directory
    programs = PostgresPrograms(directory)
    server = PostgresServer(programs, "s0")
    server.start()
    server.wait_ready()
    return programs, server


async def asked(directory: Path, scale: Scale, *, logs: int, seconds: float) -> list[Asked]:
    """`logs`: of the small cluster."""
    programs, server = start_postgres(directory / "postgres")
    try:
        small = Scale(_NODES, logs, _NODES)
        counted = await _count(directory, server.url(), small, seconds)
        costs = await _costs(server, scale)
    finally:
        server.stop()
        programs.remove()
    found = []
    for name, count in sorted(counted.items()):
        cause, causes = _CAUSES[name]
        per_s = count / seconds / causes(small)
        statements, cpu_us = costs.get(name, (0.0, 0.0))
        found.append(Asked(name, cause, per_s, per_s * causes(scale), statements, cpu_us))
    return found


# Counting.


@asynccontextmanager
async def _counted(counts: Counter[str]) -> AsyncIterator[None]:
    """Counts the calls of the log's methods, and of nodes among each other."""

    def counting(owner: Any, name: str) -> Any:
        method = getattr(owner, name)

        async def call(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return await method(*given, **named)

        return patch.object(owner, name, call)

    patches = [counting(PostgresLogs, "leaders"), counting(Peers, "call")]
    patches += [counting(PostgresLog, name) for name in _CAUSES if name not in ("leaders", "call")]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


async def _count(directory: Path, url: str, small: Scale, seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    async with _counted(counts):
        nodes = [await _Node.start(f"n{number}", directory / f"n{number}", url, small) for number in range(small.nodes)]
        try:
            for each in nodes:
                await each.until_carrying(small.logs)
            await asyncio.sleep(_SETTLE_S)
            counts.clear()
            await asyncio.sleep(seconds)
            return counts.copy()
        finally:
            for each in nodes:
                await each.stop()


class _Node:
    """The parts of a node below its account."""

    def __init__(self) -> None:
        self.logs: NodeLogs
        self._tasks: list[asyncio.Task[None]] = []
        self._opened: PostgresLogs
        self._peers: Peers
        self._directory: DataDirectory

    @classmethod
    async def start(cls, name: str, path: Path, url: str, scale: Scale) -> _Node:
        self, clock = cls(), SystemClock()
        self._opened = await PostgresLogs.open(url, count=scale.logs, allows_single=True)
        self._peers = Peers(name, self._opened.cluster_key, clock)
        self._directory = DataDirectory.claim(path)
        context, fingerprint = own_certificate(path / "peers", clock)
        port = await self._peers.listen("127.0.0.1", 0, context, fingerprint)
        directories = NodeDirectories(path, self._directory, name, "eu", self._peers, clock, reserve_bytes=0)
        log = await self._opened.log(0)
        addresses = {"peer": f"127.0.0.1:{port}", "peer_certificate": fingerprint.hex()}
        await log.announce(name, "eu", addresses)
        self._peers.use(peer_addresses(await log.nodes()))
        settings = LogSettings(name, "eu", cast(Callable[[LogReplica], Any], lambda replica: _NoRoles()))
        self.logs = NodeLogs(self._opened, directories, self._peers, clock, settings)
        await self.logs.start()
        engine = self.logs.replicas[0].engine
        membership = Membership(
            name, "eu", log, engine, clock, lambda nodes: self._peers.use(peer_addresses(nodes)), self._peers.is_gone
        )
        membership.addresses = addresses
        membership.on_known = lambda is_drained: None
        self._tasks = [asyncio.create_task(membership.run())]
        self.logs.want(range(scale.logs))
        return self

    async def until_carrying(self, count: int) -> None:
        while len(self.logs.replicas) < count:
            await self.logs.changed(self.logs.version, limits.LOG_POLL_SECONDS)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.logs.stop()
        await self.logs.close()
        await self._peers.close()
        await self._opened.close()
        self._directory.release()


# Costs.


async def _costs(server: PostgresServer, scale: Scale) -> dict[str, tuple[float, float]]:
    """Statements and processor time in µs of PostgreSQL by the kind of call, in a database as full as that of the large
    cluster is."""
    import asyncpg

    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute("CREATE DATABASE large")
    finally:
        await connection.close()
    statements: Counter[str] = Counter()
    connect = asyncpg.connect

    async def connected(*given: Any, **named: Any) -> Any:
        made = await connect(*given, **named)
        made.add_query_logger(lambda query: statements.update(["all"]))
        return made

    with patch.object(asyncpg, "connect", connected):
        logs = await PostgresLogs.open(server.url("large"), count=scale.logs, allows_single=True)
        try:
            return await _measured(server, logs, scale, statements)
        finally:
            await logs.close()


def example_addresses(number: int) -> dict[str, str]:
    """What a node with all doors announces."""
    host = f"node{number}.cluster.example.internal"
    doors = {"sql": 8081, "table": 8902, "mongo": 10255, "gremlin": 8901, "management": 8904}
    return {door: f"https://{host}:{port}" for door, port in doors.items()} | {
        "peer": f"{host}:8903",
        "peer_certificate": f"{number:064x}",
    }


async def _measured(
    server: PostgresServer, logs: PostgresLogs, scale: Scale, statements: Counter[str]
) -> dict[str, tuple[float, float]]:
    first, last = await logs.log(0), await logs.log(scale.logs - 1)
    names = [f"node{number}.cluster" for number in range(scale.nodes)]
    for number, name in enumerate(names):
        await first.announce(name, "eu", example_addresses(number))
        await first.register(name)
    for number in range(1, scale.logs):
        log = await logs.log(number)
        for name in names[number : number + scale.replicas] or names[: scale.replicas]:
            await log.register(name)
    taken = await last.take(await last.leader(), names[0], 1)
    assert taken is not None
    state = taken[0]

    async def renew() -> None:
        nonlocal state
        renewed = await last.renew(state, START)
        assert renewed is not None
        state = renewed

    await last.register(names[0])
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "leaders": logs.leaders,
        "announce": lambda: first.announce(names[0], "eu", example_addresses(0)),
        "nodes": first.nodes,
        "renew": renew,
        "trim": last.trim,
        "report": lambda: last.report(names[0], 1, 1),
        "read": lambda: last.read(1, limits.LOG_READ_BYTES),
        "newest": last.newest,
        "lowest": last.lowest,
        "leader": last.leader,
        "replicas": last.replicas,
        "figures": last.figures,
    }
    costs = {}
    for name, call in calls.items():
        await call()
        before, before_s, begun_s, count = statements["all"], _server_cpu_s(server), time.monotonic(), 0
        while time.monotonic() - begun_s < 1.0:
            for _ in range(20):
                await call()
            count += 20
        cpu_us = (_server_cpu_s(server) - before_s) * 1e6 / count
        costs[name] = (statements["all"] - before) / count, cpu_us
    return costs


def _server_cpu_s(server: PostgresServer) -> float:
    total = 0.0
    for pid in server.processes():
        try:
            total += cpu_seconds(pid)
        except (OSError, RuntimeError):
            pass  # it has ended
    return total


def listed_bytes(scale: Scale) -> int:
    """Of the answer to one question for all nodes."""
    return sum(len(json.dumps(example_addresses(number))) + 40 for number in range(scale.nodes))
