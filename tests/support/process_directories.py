"""Data directories of servers with several processes, made without starting any: an account whose partitions are in the
directories of several processes by turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.kept_house import KeptHouse, fill

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.records import Record
from armillary.account.registry import AccountSettings
from armillary.clock import SystemClock, VirtualClock
from armillary.processes.stopped.undivided_engine import UndividedAccount, UndividedEngine
from armillary.storage.directory import process_directory
from armillary.storage.rocks import RocksEngine

COUNT = 3


class SpreadAccount(UndividedAccount):
    def places_for(self, database: Record, count: int, planned: Sequence[int] = ()) -> Sequence[int]:
        return [number % COUNT for number in range(count)]


@asynccontextmanager
async def whole_house(directory: Path, *, is_new: bool = False) -> AsyncIterator[KeptHouse]:
    """The account of all processes, of which there are `COUNT` in a new directory."""
    if is_new:
        await (await RocksEngine.open(directory, "relaxed")).close()
        for number in range(1, COUNT):
            await (await RocksEngine.open(process_directory(directory, number), "relaxed", owner="further")).close()
    clock, settings = VirtualClock(), AccountSettings()
    engine = await UndividedEngine.open(directory, SystemClock())
    house = KeptHouse(engine, await SpreadAccount.open(engine, clock, settings), clock, settings)
    try:
        yield house
    finally:
        await house.close()


async def divided_directory(directory: Path) -> list[bytes]:
    """A container with items in every process. What is in it."""
    async with whole_house(directory, is_new=True) as house:
        container = await house.create(throughput_ru=20_000)
        await fill(house, container)
        assert {place_of_store(each.store) for each in container.map.ranges} == {0, 1, 2}
        assert all(partition.head.item_count for partition in container.partitions.values())
        return await house.contents()


async def contents(directory: Path) -> list[bytes]:
    """Of a sound directory."""
    async with whole_house(directory) as house:
        await house.check()
        return await house.contents()
