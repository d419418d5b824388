"""`armillary processes`: partitions are moved between the processes of a stopped server, and nothing is lost wherever
that is interrupted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.forked import Forked
from support.house import KEY
from support.kept_house import KeptHouse, open_house
from support.process import call_armillary, clean_environment
from support.process_directories import contents, whole_house

from armillary.account import containers
from armillary.account.catalog.allocation import place_of_store, transactions_store
from armillary.account.catalog.container_state import ReshapeChild, ReshapeState
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import SystemClock
from armillary.model.resources import ResourceType
from armillary.processes.stopped.store_moves import POINTS, partitions_of
from armillary.processes.stopped.undivided_engine import UndividedEngine
from armillary.storage.directory import process_directories
from armillary.storage.rocks_loader import RocksLoader


async def loads(directory: Path) -> Counter[int]:
    """How many partitions each process holds."""
    engine = await UndividedEngine.open(directory, SystemClock())
    try:
        return Counter(each.place for each in await partitions_of(engine, SystemClock()))
    finally:
        await engine.close()


async def create_shared(house: KeptHouse, name: str) -> None:
    """A container whose throughput is that of its database."""
    account = house.account
    database = account.catalog.find(ResourceType.DATABASE, b"", "shared")
    if database is None:
        database = await containers.create_database(account, {"id": "shared"}, Throughput.manual(20_000))
    await containers.create_container(account, database, {"id": name, "partitionKey": KEY}, None)


def placed(directory: Path, count: int) -> str:
    outcome = call_armillary("processes", str(directory), "--count", str(count))
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


async def test_back_to_one_process_and_spread_again(directory: Path, stored: tuple[Path, list[bytes]]) -> None:
    before = await loads(directory)
    assert f"Moved {before[1] + before[2]} partitions" in placed(directory, 1)
    assert not (directory / "processes").exists()
    async with open_house("rocks", directory) as house:  # as a server with one process opens it
        await house.check()
        assert await house.contents() == stored[1]
        assert all(place_of_store(each.store) == 0 for each in house.container().map.ranges)
    assert "Moved 0 partitions" in placed(directory, 1)
    placed(directory, 2)
    assert list(process_directories(directory)) == [1]
    assert sorted((await loads(directory)).values()) == [before.total() // 2, before.total() - before.total() // 2]
    placed(directory, 4)
    spread = (await loads(directory)).values()
    assert len(spread) == min(4, before.total())
    assert max(spread) - min(spread) <= 1
    assert await contents(directory) == stored[1]
    assert "Moved 0 partitions" in placed(directory, 4)


async def test_where_partitions_are_is_shown(directory: Path) -> None:
    shown = json.loads(call_armillary("processes", str(directory), "--json").stdout)["partitions"]
    assert {each["place"] for each in shown} == {0, 1, 2}
    assert sum(each["item_count"] for each in shown) == 40
    assert "db/c" in call_armillary("processes", str(directory)).stdout


async def test_containers_that_share_throughput_stay_together(directory: Path) -> None:
    """What they may spend is counted where their partitions are."""
    placed(directory, 1)
    async with open_house("rocks", directory) as house:
        for name in ("one", "two"):
            await create_shared(house, name)
    placed(directory, 3)
    async with whole_house(directory) as house:
        one, two = (house.account.container("shared", name).map.ranges for name in ("one", "two"))
        assert [place_of_store(each.store) for each in one] == [place_of_store(each.store) for each in two]
        assert len(one) > 1


async def test_splits_that_are_under_way_are_refused(directory: Path) -> None:
    async with whole_house(directory) as house:
        parent = house.container().map.ranges[0]
        middle = bytes([parent.low[0] if parent.low else 0, 1])
        children = [(parent.low, middle), (middle, parent.high)]

        def begin(state, new_store):  # type: ignore[no-untyped-def]
            made = tuple([ReshapeChild(low, high, new_store(1)) for low, high in children])
            return replace(state, reshapes=(ReshapeState(1, (parent.id,), made, "test"),))

        await house.account.catalog.change_container(house.container().record, begin)
    outcome = call_armillary("processes", str(directory), "--count", "1")
    assert outcome.returncode == 2
    assert "'db/c' are being split or merged" in outcome.stderr


async def test_commits_that_are_not_whole_are_refused(directory: Path) -> None:
    """What a process has promised to a transaction is of the partitions where they are."""
    async with whole_house(directory) as house:
        store = house.engine.store(transactions_store(2))
        await store.write(lambda txn: txn.put(b"p" + bytes(16), bytes(2)))
    outcome = call_armillary("processes", str(directory), "--count", "1")
    assert outcome.returncode == 2
    assert "it completes the commit" in outcome.stderr
    async with whole_house(directory) as house:
        await house.engine.store(transactions_store(2)).write(lambda txn: txn.delete(b"p" + bytes(16)))
    assert call_armillary("processes", str(directory), "--count", "1").returncode == 0


@pytest.mark.parametrize("count", ["0", "65"])
def test_a_count_that_no_server_has_is_refused(directory: Path, count: str) -> None:
    outcome = call_armillary("processes", str(directory), "--count", count)
    assert outcome.returncode == 2
    assert f"--count is {count}" in outcome.stderr


async def test_a_copy_that_differs_is_not_used(
    directory: Path, stored: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the disk had lost something of it."""
    put = RocksLoader.put
    monkeypatch.setattr(RocksLoader, "put", lambda self, pairs: put(self, pairs[:-1]))
    outcome = call_armillary("processes", str(directory), "--count", "1")
    assert outcome.returncode == 2
    assert "is not what was copied" in outcome.stderr
    assert await contents(directory) == stored[1]


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_every_point(point: str, directory: Path, stored: tuple[Path, list[bytes]]) -> None:
    times = "1" if point == "left" else "2"
    trial = Forked.start("support.placement_trial", str(directory), "1", point, times, environment=clean_environment())
    assert await asyncio.to_thread(trial.wait, 60) == -9
    trial.stdout.close()
    assert await contents(directory) == stored[1]
    # Forward, or back.
    placed(directory, 1 if POINTS.index(point) % 2 else 3)
    assert await contents(directory) == stored[1]
