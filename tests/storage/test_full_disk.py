"""A disk that really fills up: writes are refused, reads go on, room makes everything work again, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disk import small_disk

from armillary.account.catalog.catalog import Catalog
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.limits import MB
from armillary.model.resources import ResourceType
from armillary.storage.engine import Store, Txn
from armillary.storage.rocks import Durability, RocksEngine

DISK_BYTES = 160 * MB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as path:
        yield path


def free_bytes(path: Path) -> int:
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def fill(disk: Path, but_bytes: int) -> None:
    """Let other files of the machine take the room."""
    with (disk / "ballast").open("wb") as file:
        while free_bytes(disk) > but_bytes:
            file.write(b"\0" * min(MB, free_bytes(disk) - but_bytes))
            file.flush()


def empty(disk: Path) -> None:
    (disk / "ballast").unlink()


class Journal:
    """Writes that count up, and which of them were acknowledged."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.acknowledged: set[bytes] = set()
        self.next = 0

    async def write(self, value_bytes: int = 50_000) -> None:
        self.next += 1
        key = b"%08d" % self.next
        value = random.Random(self.next).randbytes(value_bytes)

        def fn(txn: Txn) -> None:
            txn.put(key, value)
            txn.put(b"head", key)

        await self.store.write(fn)
        self.acknowledged.add(key)

    async def write_until_refused(self) -> Failure:
        for _ in range(10_000):
            results = await asyncio.gather(*(self.write() for _ in range(8)), return_exceptions=True)
            for result in results:
                if isinstance(result, Failure):
                    return result
                assert result is None
        raise AssertionError("the disk never filled")

    async def check(self) -> None:
        stored = await self.store.read(lambda view: {key for key, _ in view.scan(b"0", b"9")})
        assert self.acknowledged <= stored

    async def refusal(self) -> Failure:
        """Of the first write that the engine refuses: it looks at the disk every now and then."""
        while True:
            try:
                await self.write(100)
            except Failure as failure:
                return failure
            await asyncio.sleep(0.02)

    async def write_soon(self) -> None:
        """When there is room again: a write once the engine has found that out."""
        while True:
            try:
                return await self.write()
            except Failure:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_writes_are_refused_before_the_disk_is_full(disk: Path, durability: Durability) -> None:
    engine = await RocksEngine.open(disk / "store", durability, reserve_bytes=30 * MB)
    journal = Journal(engine.store(1))
    await Journal(engine.store(2)).write()
    catalog = Catalog(engine, SystemClock())
    await catalog.open()
    database = await catalog.create(ResourceType.DATABASE, None, "early", {"id": "early"})
    for _ in range(20):
        await journal.write()
    fill(disk, 20 * MB)
    refused = await journal.refusal()
    assert refused.kind is Kind.STORAGE_FULL
    assert "nothing was stored" in refused.message
    await journal.check()
    with pytest.raises(Failure, match="nothing was stored"):
        await catalog.create(ResourceType.DATABASE, None, "late", {"id": "late"})
    await catalog.delete(database)
    await engine.drop(2)  # what frees room is still allowed
    empty(disk)
    await journal.write_soon()
    await journal.check()
    await engine.close()
    engine = await RocksEngine.open(disk / "store", durability)
    journal.store = engine.store(1)
    await journal.check()
    assert await engine.store(2).read(lambda view: view.get(b"head")) is None
    await engine.close()


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("turn", range(2))
async def test_a_disk_that_fills_up_under_the_engine(disk: Path, durability: Durability, turn: int) -> None:
    engine = await RocksEngine.open(disk / "store", durability, reserve_bytes=0)
    journal = Journal(engine.store(1))
    for _ in range(50):
        await journal.write()
    fill(disk, 5 * MB * turn + 300_000)
    failure = await journal.write_until_refused()
    assert failure.kind is Kind.STORAGE_FULL
    assert str(disk) not in failure.message
    with pytest.raises(Failure) as caught:
        await journal.write()
    assert caught.value.kind is Kind.STORAGE_FULL
    await journal.check()  # reads go on
    await asyncio.sleep(0.3)
    await journal.check()
    empty(disk)
    await journal.write_soon()
    await journal.check()
    await engine.close()
    engine = await RocksEngine.open(disk / "store", durability)
    journal.store = engine.store(1)
    await journal.check()
    await journal.write()
    await engine.close()
