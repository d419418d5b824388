"""An account in memory with a clock that tests move, and the few things that tests of `account/` do to it often."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.storage.memory import MemoryEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class Hurried(VirtualClock):
    """A clock that moves a little whenever work is measured by it, and as far as a sleep needs; it can be set back."""

    step_s = 0.0

    def elapsed_s(self) -> float:
        self.advance(self.step_s)
        return super().elapsed_s()

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    def set(self, seconds: float) -> None:
        self._now_s = seconds


class House:
    def __init__(self, engine: MemoryEngine, account: Account, clock: Hurried) -> None:
        self.engine, self.account, self.clock = engine, account, clock

    @classmethod
    async def open(cls) -> Self:
        engine, clock = MemoryEngine(), Hurried()
        return cls(engine, await Account.open(engine, clock), clock)

    async def close(self) -> None:
        await self.account.close()
        await self.engine.close()

    async def reopen(self) -> None:
        """As after a restart."""
        await self.account.close()
        self.account = await Account.open(self.engine, self.clock)

    async def container(self, throughput_ru: int = 400, **policies: Any) -> Container:
        """Partitioned by /pk."""
        database = await containers.create_database(self.account, {"id": f"d{throughput_ru}"}, None)
        body = {"id": "c", "partitionKey": KEY, **policies}
        return await containers.create_container(self.account, database, body, Throughput.manual(throughput_ru))

    async def put(self, container: Container, *documents: dict[str, Any]) -> None:
        for document in documents:
            options = ItemOptions(key=container.key_of(document))
            await items.upsert(container, dict(document), options, self.clock)

    async def delete(self, container: Container, document: dict[str, Any]) -> None:
        await items.delete(container, document["id"], ItemOptions(key=container.key_of(document)))
