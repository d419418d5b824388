"""Splits on the real engine when storage refuses: they wait for room, and ask storage what a failed sync has stored.

In this process, so that the moment can be chosen; what a kill leaves behind is tested with real processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.disk import fail_next_commit
from support.limits import WithLimits

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.reshaping.split_and_merge import CAUGHT_UP, COPIED, COPYING, HELD, Reshape
from armillary.clock import SystemClock
from armillary.model.key_values import Key
from armillary.storage.rocks import RocksEngine

DEFINITION = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
COUNT = 200


class House:
    def __init__(self, engine: RocksEngine, account: Account, container: Container) -> None:
        self.engine, self.account, self.container = engine, account, container
        self.clock = SystemClock()

    async def write(self, number: int) -> None:
        document = {"id": str(number), "pk": number % 20, "n": number}
        await items.upsert(self.container, document, ItemOptions(), self.clock)

    async def verify(self) -> None:
        for number in range(COUNT):
            await items.read(self.container, str(number), ItemOptions(key=Key((number % 20,))))
        assert [problem async for problem in check_account(self.engine, self.clock)] == []


@pytest.fixture
async def house(tmp_path: Path, with_limits: WithLimits) -> AsyncIterator[House]:
    with_limits(RESHAPE_RETRY_SECONDS=0.01, FREE_DISK_CHECK_SECONDS=0.0)
    engine = await RocksEngine.open(tmp_path)
    account = await Account.open(engine, SystemClock())
    database = await containers.create_database(account, {"id": "db"}, None)
    container = await containers.create_container(account, database, DEFINITION, None)
    house = House(engine, account, container)
    await asyncio.gather(*[house.write(number) for number in range(COUNT)])
    yield house
    await account.close()
    await engine.close()


@pytest.mark.parametrize("point", [COPYING, COPIED, CAUGHT_UP, HELD])
async def test_a_full_disk_is_waited_out(house: House, point: str) -> None:
    reserve_bytes = house.engine._reserve_bytes

    def fill_the_disk(_: Reshape, reached: str) -> None:
        if reached == point:
            house.account.reshaper.on_point = None
            house.engine._reserve_bytes = 1 << 60

    house.account.reshaper.on_point = fill_the_disk
    reshape = await house.account.reshaper.split(house.container, 0)
    while reshape.waits_for is None:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.001)
    assert "full" in reshape.waits_for
    assert [each.id for each in house.container.map.ranges] == [0]
    assert await items.read(house.container, "5", ItemOptions(key=Key((5,))))
    house.engine._reserve_bytes = reserve_bytes
    await house.write(5)  # writers are not held
    await house.account.reshaper.finished(reshape)
    assert [each.id for each in house.container.map.ranges] == [1, 2]
    await house.verify()


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_sync_fails_while_the_map_is_switched(
    house: House, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    waiting: list[asyncio.Task[None]] = []

    def break_the_disk(_: Reshape, reached: str) -> None:
        if reached == HELD:
            house.account.reshaper.on_point = None
            fail_next_commit(monkeypatch, "IO error: the disk went away", is_stored=is_stored)
            waiting.append(asyncio.create_task(house.write(7)))

    house.account.reshaper.on_point = break_the_disk
    reshape = await house.account.reshaper.split(house.container, 0)
    await house.account.reshaper.finished(reshape)
    assert reshape.is_done
    assert [each.id for each in house.container.map.ranges] == [1, 2]
    await asyncio.wait(waiting)
    await house.write(7)
    await house.verify()
    # What is stored says the same.
    stored = await Account.open(house.engine, house.clock)
    assert [each.id for each in stored.container("db", "c").map.ranges] == [1, 2]
    await stored.close()
