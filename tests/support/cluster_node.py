"""A node of a cluster in the tests' own process, on a log in memory whose calls a test can hold up by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from support.replicas import local_replica

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.roles import AccountRoles
from armillary.clock import VirtualClock
from armillary.storage.disk_errors import closed
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.replicated_log import LogUnavailable
from armillary.storage.overlay import Layer
from armillary.storage.replication.freshness import RowSource
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
    """Notes only whether clients would find this node as the leader."""

    def __init__(self) -> None:
        self.is_primary = False

    async def lead(self) -> None:
        self.is_primary = True

    def cease(self) -> None:
        self.is_primary = False

    async def follow(self) -> None:
        return

    def adopt(self, layer: Layer, notes: bytes) -> None:
        return

    def apply_delay_s(self) -> float:
        return 0.0


class ThreadWork:
    """Counts what an event loop's threads have not finished yet: for a virtual clock this takes no time, and a test
    that let time pass meanwhile would depend on the machine's speed."""

    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadWork]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begin = loop.run_in_executor
        self._unfinished: set[asyncio.Future[Any]] = set()
        loop.run_in_executor = self._run  # type: ignore[assignment]

    @classmethod
    def of_running_loop(cls) -> ThreadWork:
        loop = asyncio.get_running_loop()
        if loop not in cls._of_loops:
            cls._of_loops[loop] = cls(loop)
        return cls._of_loops[loop]

    def _run(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        future = self._begin(executor, function, *arguments)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    async def settled(self) -> None:
        """Let everything happen that can without the clock."""
        for _ in range(30):
            await asyncio.sleep(0)
        while self._unfinished:
            await asyncio.wait(self._unfinished)
            for _ in range(30):
                await asyncio.sleep(0)


class ClusterNode:
    """A node that takes over, leads and follows by itself. Its account, if it has one, is in `roles`."""

    def __init__(
        self,
        path: Path,
        server: MemoryLogServer,
        clock: VirtualClock,
        name: str,
        *,
        has_account: bool = False,
        source: RowSource | None = None,
    ) -> None:
        ThreadWork.of_running_loop()
        self.gate = Gate()
        self.engine = ReplicatedEngine(local_replica(path, server), clock)
        self.roles = AccountRoles(self.engine, clock, AccountSettings())
        self.no_roles = NoRoles()  # of a node without an account
        roles = self.roles if has_account else self.no_roles
        log = MemoryLog(server, clock, self.gate)
        self.leadership = Leadership(name, self.engine, log, roles, clock, boot_time=clock.now_s, source=source)
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
    work = ThreadWork.of_running_loop()
    for _ in range(round(seconds / 0.05)):
        await work.settled()
        clock.advance(0.05)
    await work.settled()
