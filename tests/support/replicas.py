"""Nodes of a cluster in the tests' own process: engines on a log in memory."""

from __future__ import annotations

from pathlib import Path

from armillary.clock import SystemClock
from armillary.errors import Failure
from armillary.storage.directory import DataDirectory
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.overlay import Layer
from armillary.storage.replication.follower import Follower
from armillary.storage.replication.lease import Lease
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.replicated_engine import ReplicatedEngine


def local_replica(path: Path, server: MemoryLogServer) -> LocalReplica:
    return LocalReplica.open(DataDirectory.claim(path), server.state.generation, reserve_bytes=0)


async def leading_engine(path: Path, server: MemoryLogServer, node: str = "a") -> ReplicatedEngine:
    """An engine that leads, with a lease that does not end."""
    replica = local_replica(path, server)
    clock = SystemClock()
    log = MemoryLog(server, clock)
    engine = ReplicatedEngine(replica, clock)
    taken = await log.take(await log.leader(), node, int(clock.now_s() * 1_000_000))
    assert taken is not None
    state, fence = taken
    await Follower(replica, log, clock, _nothing).catch_up(fence)
    lease = Lease(seconds=1e9)
    lease.renew(lease.now_s())
    engine.lead(log, state.epoch, lease, _ended)
    return engine


def stepping_follower(path: Path, server: MemoryLogServer) -> tuple[Follower, ReplicatedEngine]:
    """A follower that reads the log when the test says so (`step`)."""
    replica = local_replica(path, server)
    clock = SystemClock()
    return Follower(replica, MemoryLog(server, clock), clock, _nothing), ReplicatedEngine(replica, clock)


def _nothing(layer: Layer, notes: bytes) -> None:
    return


def _ended(reason: Failure) -> None:
    return
