"""Nodes of a cluster in the tests' own process: engines on a log in memory, and a pair of accounts of which one leads
and the other follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from armillary.account.account import Account
from armillary.account.following import FollowingAccount
from armillary.account.registry import AccountSettings
from armillary.clock import SystemClock, VirtualClock
from armillary.errors import Failure
from armillary.storage.directory import DataDirectory
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.rows import GENERATION_BYTES
from armillary.storage.overlay import Layer
from armillary.storage.replication.follower import Adopt, Follower
from armillary.storage.replication.group_commit import GroupCommit
from armillary.storage.replication.lease import Lease
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.replicated_engine import ReplicatedEngine


def local_replica(path: Path, server: MemoryLogServer) -> LocalReplica:
    return LocalReplica.open(DataDirectory.claim(path), server.state.generation, reserve_bytes=0)


async def leading_engine(path: Path, server: MemoryLogServer, node: str = "a") -> ReplicatedEngine:
    """An engine that leads, with a lease that does not end."""
    engine = ReplicatedEngine(local_replica(path, server), SystemClock())
    await lead(engine, server, node)
    return engine


async def lead(engine: ReplicatedEngine, server: MemoryLogServer, node: str = "a") -> GroupCommit:
    """Have an engine take over."""
    clock = SystemClock()
    log = MemoryLog(server, clock)
    taken = await log.take(await log.leader(), node, int(clock.now_s() * 1_000_000))
    assert taken is not None
    state, fence = taken
    assert await Follower(engine.replica, log, clock, _nothing).catch_up(fence)
    lease = Lease(seconds=1e9)
    lease.renew(lease.now_s())
    return engine.lead(log, state.epoch, lease, _ended)


def stepping_follower(path: Path, server: MemoryLogServer) -> tuple[Follower, ReplicatedEngine]:
    """A follower that reads the log when the test says so (`step`)."""
    replica = local_replica(path, server)
    clock = SystemClock()
    return Follower(replica, MemoryLog(server, clock), clock, _nothing), ReplicatedEngine(replica, clock)


class Pair:
    """An account that leads and one that follows. `step` lets the follower come to the leader's state; `on_group` is
    called for each group that it has adopted, in the same step of the event loop."""

    def __init__(self, server: MemoryLogServer, engines: tuple[ReplicatedEngine, ReplicatedEngine]) -> None:
        self.server = server
        self.leading_engine, self.following_engine = engines
        self.clock = VirtualClock()
        self.leader: Account
        self.follower: FollowingAccount
        self.adopt: Adopt = self._adopt
        self.on_group: Callable[[], None] = lambda: None
        self.groups = 0
        self._follower: Follower

    @classmethod
    async def open(cls, path: Path, settings: AccountSettings | None = None) -> Self:
        server = MemoryLogServer(b"g" * GENERATION_BYTES)
        following = ReplicatedEngine(local_replica(path / "b", server), SystemClock())
        pair = cls(server, (await leading_engine(path / "a", server), following))
        pair.leader = await Account.open(pair.leading_engine, pair.clock, settings)
        await pair.follow(settings)
        return pair

    async def follow(self, settings: AccountSettings | None = None) -> None:
        self.follower = await FollowingAccount.open(self.following_engine, self.clock, settings)
        log = MemoryLog(self.server, SystemClock())
        self._follower = Follower(self.following_engine.replica, log, SystemClock(), self._take)

    def _take(self, layer: Layer, notes: bytes) -> None:
        self.adopt(layer, notes)
        self.groups += 1
        self.on_group()

    def _adopt(self, layer: Layer, notes: bytes) -> None:
        self.follower.adopt(layer, notes)

    async def step(self) -> None:
        """Until the follower has what the leader has published."""
        while self.following_engine.replica.position.place != (place := self.leading_engine.replica.position.place):
            await self._follower.step()
            await self._follower.confirm(place)

    async def exchange(self, reason: Failure) -> None:
        """Both change their roles, on the same engines."""
        await self.step()
        await self.leader.close(reason)
        await self.follower.close(reason)
        assert self.leading_engine._commit is not None
        await self.leading_engine._commit.end(reason)
        self.leading_engine.follow()
        self.leading_engine, self.following_engine = self.following_engine, self.leading_engine
        await lead(self.leading_engine, self.server, "b")
        self.leader = await Account.open(self.leading_engine, self.clock)
        await self.follow()

    async def close(self) -> None:
        await self.leader.close()
        await self.follower.close()
        await self.leading_engine.close()
        await self.following_engine.close()


def _nothing(layer: Layer, notes: bytes) -> None:
    return


def _ended(reason: Failure) -> None:
    return
