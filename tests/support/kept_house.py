"""An account on either engine, whose containers are filled, brought back and looked at as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.house import AccountHouse

from armillary.account.container import Container
from armillary.clock import VirtualClock
from armillary.model import documents, layout
from armillary.storage.engine import Engine, View
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine


class KeptHouse(AccountHouse[VirtualClock]):
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
        assert await self.problems() == []


@asynccontextmanager
async def open_house(kind: str, directory: Path) -> AsyncIterator[KeptHouse]:
    """`kind`: memory or rocks."""
    engine: Engine = MemoryEngine() if kind == "memory" else await RocksEngine.open(directory, "relaxed")
    house = await KeptHouse.begin(engine, VirtualClock())
    try:
        yield house
    finally:
        await house.close()


def document(number: int, size: int = 0) -> dict[str, Any]:
    return {"id": f"i{number}", "pk": f"k{number % 7}", "n": number, "text": "x" * size}


async def fill(house: KeptHouse, container: Container, count: int = 40) -> None:
    await house.put(container, *(document(number) for number in range(count)))
