"""An account on either engine, whose containers are filled, brought back and looked at as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.model import documents, layout
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.storage.engine import Engine, View
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class KeptHouse:
    def __init__(self, engine: Engine, account: Account, clock: VirtualClock) -> None:
        self.engine, self.account, self.clock = engine, account, clock

    async def create(self, name: str = "c", throughput_ru: int = 400, **policies: Any) -> Container:
        database = self.account.catalog.find(ResourceType.DATABASE, b"", "db")
        if database is None:
            database = await containers.create_database(self.account, {"id": "db"}, None)
        body = {"id": name, "partitionKey": KEY, **policies}
        return await containers.create_container(self.account, database, body, Throughput.manual(throughput_ru))

    async def put(self, container: Container, *documents: dict[str, Any]) -> None:
        for document in documents:
            options = ItemOptions(key=container.key_of(document))
            await items.upsert(container, dict(document), options, self.clock)

    async def delete(self, container: Container, item_id: str, key: str) -> None:
        await items.delete(container, item_id, ItemOptions(key=Key((key,))))

    def container(self, name: str = "c") -> Container:
        return self.account.container("db", name)

    async def contents(self, name: str = "c", database: str = "db") -> list[bytes]:
        """All items as they are answered, with system properties."""
        container, found = self.account.container(database, name), []
        for partition in container.partitions.values():

            def all_items(view: View) -> list[bytes]:
                return [stored for _, stored in view.scan(layout.ITEMS, layout.space_end(layout.ITEMS))]

            stored = await partition.read(all_items)
            found += [documents.json_text(each, container.schema) for each in stored]
        return sorted(found)

    async def check(self) -> None:
        problems = [problem async for problem in check_account(self.engine, self.clock)]
        assert problems == []


@asynccontextmanager
async def open_house(kind: str, directory: Path) -> AsyncIterator[KeptHouse]:
    """`kind`: memory or rocks."""
    clock = VirtualClock()
    engine: Engine = MemoryEngine() if kind == "memory" else await RocksEngine.open(directory, "relaxed")
    account = await Account.open(engine, clock)
    try:
        yield KeptHouse(engine, account, clock)
    finally:
        await account.close()
        await engine.close()


def document(number: int, size: int = 0) -> dict[str, Any]:
    return {"id": f"i{number}", "pk": f"k{number % 7}", "n": number, "text": "x" * size}


async def fill(house: KeptHouse, container: Container, count: int = 40) -> None:
    await house.put(container, *(document(number) for number in range(count)))
