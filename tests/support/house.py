"""An account with a clock that tests move, and the few things that tests of `account/` do to it often."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import Clock, VirtualClock
from armillary.errors import Failure
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class Hurried(VirtualClock):
    """A clock that moves a little whenever work is measured by it, and can be set back. It does not pass while
    something sleeps: `passing_time.py` does that."""

    step_s = 0.0

    def elapsed_s(self) -> float:
        self.advance(self.step_s)
        return super().elapsed_s()

    def set(self, seconds: float) -> None:
        self._now_s = seconds


ClockT = TypeVar("ClockT", bound=Clock)


class AccountHouse(Generic[ClockT]):
    """An account on an engine, by a clock. Tests that do more to it extend this class."""

    def __init__(self, engine: Engine, account: Account, clock: ClockT, settings: AccountSettings) -> None:
        self.engine, self.account, self.clock, self.settings = engine, account, clock, settings

    @classmethod
    async def begin(cls, engine: Engine, clock: ClockT, settings: AccountSettings | None = None) -> Self:
        settings = settings or AccountSettings()
        return cls(engine, await Account.open(engine, clock, settings), clock, settings)

    async def close(self) -> None:
        await self.account.close()
        await self.engine.close()

    async def reopen(self) -> None:
        """As after a restart, in the middle of everything."""
        await self.account.close()
        self.account = await Account.open(self.engine, self.clock, self.settings)

    async def create(
        self, name: str = "c", throughput_ru: int = 400, *, database: str = "db", **policies: Any
    ) -> Container:
        """Partitioned by /pk."""
        found = self.account.catalog.find(ResourceType.DATABASE, b"", database)
        if found is None:
            found = await containers.create_database(self.account, {"id": database}, None)
        body = {"id": name, "partitionKey": KEY, **policies}
        return await containers.create_container(self.account, found, body, Throughput.manual(throughput_ru))

    async def put(self, container: Container, *documents: dict[str, Any]) -> None:
        for document in documents:
            options = ItemOptions(key=container.key_of(document))
            await items.upsert(container, dict(document), options, self.clock)

    async def delete(self, container: Container, document: dict[str, Any]) -> None:
        await items.delete(container, document["id"], ItemOptions(key=container.key_of(document)))

    async def problems(self) -> list[str]:
        return [problem async for problem in check_account(self.engine, self.clock)]


class MeteredHouse(AccountHouse[VirtualClock]):
    """For what is counted of load as time passes."""

    async def read(self, container: Container, key: str, times: int = 1) -> None:
        for _ in range(times):
            with suppress(Failure):  # there may be no such item, or no budget
                await items.read(container, "1", ItemOptions(key=Key((key,))))

    async def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.account.history.keep_up()


class House(AccountHouse[Hurried]):
    """In memory. Containers of different throughput are in different databases."""

    @classmethod
    async def open(cls) -> Self:
        return await cls.begin(MemoryEngine(), Hurried())

    async def container(self, throughput_ru: int = 400, **policies: Any) -> Container:
        return await self.create("c", throughput_ru, database=f"d{throughput_ru}", **policies)
