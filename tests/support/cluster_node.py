"""A node of a cluster in the tests' own process, on a log in memory whose calls a test can hold up by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.replicas import local_replica

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.roles import AccountRoles
from armillary.clock import VirtualClock
from armillary.storage.disk_errors import closed
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.replicated_log import LogUnavailable
from armillary.storage.overlay import Layer
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.replicated_engine import ReplicatedEngine


class Gate:
    """Faults of a log that a test opens and closes by hand."""

    def __init__(self) -> None:
        self.is_open: dict[str, asyncio.Event] = {}
        self.is_cut = False

    def close(self, place: str) -> None:
        self.is_open[place] = asyncio.Event()

    def open(self, place: str) -> None:
        self.is_open.pop(place).set()

    async def _pass(self, place: str) -> None:
        if self.is_cut:
            raise LogUnavailable("cut")
        if place in self.is_open:
            await self.is_open[place].wait()

    async def before(self, call: str) -> None:
        await self._pass(f"before {call}")

    async def after(self, call: str) -> None:
        await self._pass(f"after {call}")


class NoRoles:
    async def lead(self) -> None:
        return

    async def follow(self) -> None:
        return

    def adopt(self, layer: Layer, notes: bytes) -> None:
        return


class ClusterNode:
    """A node that takes over, leads and follows by itself. Its account, if it has one, is in `roles`."""

    def __init__(
        self, path: Path, server: MemoryLogServer, clock: VirtualClock, name: str, *, has_account: bool = False
    ) -> None:
        self.gate = Gate()
        self.engine = ReplicatedEngine(local_replica(path, server), clock)
        self.roles = AccountRoles(self.engine, clock, AccountSettings())
        roles = self.roles if has_account else NoRoles()
        log = MemoryLog(server, clock, self.gate)
        self.leadership = Leadership(name, self.engine, log, roles, clock, boot_time=clock.now_s)
        self.task = asyncio.ensure_future(self.leadership.run())

    @property
    def account(self) -> Account:
        assert self.roles.account is not None
        return self.roles.account

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.roles.close(closed())
        await self.engine.close()


async def settled(clock: VirtualClock, seconds: float = 0.0) -> None:
    """Let everything happen that can, and time pass in small steps."""
    for _ in range(max(1, round(seconds / 0.05))):
        for _ in range(30):
            await asyncio.sleep(0)
        if seconds:
            clock.advance(0.05)
    for _ in range(30):
        await asyncio.sleep(0)
