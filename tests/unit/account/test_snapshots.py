"""Snapshots in memory, on both engines: whatever is done after one was taken, bringing it back gives exactly the items,
scripts and policies of then, with their rids and etags, and the self-check finds nothing wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.kept_house import KeptHouse, document, fill, open_house
from support.limits import WithLimits

from armillary.account import containers
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.snapshots import restore
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.storage.engine import T, Txn
from armillary.storage.memory import MemoryEngine, MemoryStore


@pytest.fixture(params=["memory", "rocks"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeptHouse]:
    async with open_house(request.param, tmp_path / "data") as house:
        yield house


async def test_changes_are_undone(house: KeptHouse) -> None:
    container = await house.create(throughput_ru=20_000)
    await fill(house, container)
    before = await house.contents()
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    assert snapshot.counts()[0] == 40
    await house.put(container, {"id": "i3", "pk": "k3", "other": 1}, {"id": "new", "pk": "k1"})
    await house.delete(container, {"id": "i4", "pk": "k4"})
    await house.put(container, document(4, size=9))  # as another item
    outcome = await restore.restore(house.account, snapshot)
    assert (outcome.rewound, outcome.copied) == (1, 0)
    assert await house.contents() == before
    assert house.container() is container
    await house.put(container, {"id": "later", "pk": "k1"})
    await house.check()


async def test_a_second_time_is_like_the_first(house: KeptHouse) -> None:
    container = await house.create()
    await fill(house, container)
    before = await house.contents()
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    for round_number in range(3):
        await house.put(container, {"id": "i3", "pk": "k3", "round": round_number})
        await restore.restore(house.account, snapshot)
        assert await house.contents() == before
    await house.check()


async def test_much_is_copied(house: KeptHouse, with_limits: WithLimits) -> None:
    with_limits(REWIND_ENTRIES_MAX=5)
    container = await house.create(throughput_ru=20_000)
    await fill(house, container)
    before = await house.contents()
    lsn, ranges = house.account.highest_lsn, {each.id for each in container.map.ranges}
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    await house.put(container, *(document(number, size=5) for number in range(30, 60)))
    outcome = await restore.restore(house.account, snapshot)
    assert (outcome.rewound, outcome.copied) == (0, 1)
    assert await house.contents() == before
    assert house.container() is container
    assert min(each.lsn for each in container.partitions.values()) >= lsn
    assert ranges.isdisjoint(container.partitions)
    await house.check()
    # From now on there is less to do.
    await house.put(container, document(1, size=5))
    outcome = await restore.restore(house.account, snapshot)
    assert (outcome.rewound, outcome.copied) == (1, 0)
    assert await house.contents() == before
    await house.check()


async def test_writers_go_on_meanwhile(house: KeptHouse, with_limits: WithLimits) -> None:
    with_limits(REWIND_ENTRIES_MAX=0, COPY_PORTION_ENTRIES=5)
    container = await house.create(throughput_ru=20_000)
    await fill(house, container)
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    is_over = False

    async def write(key: str) -> int:
        count = last_lsn = 0
        while not is_over:
            options = ItemOptions(key=Key((key,)))
            answer = await items.upsert(container, {"id": f"w{count}", "pk": key}, options, house.clock)
            # Who was told of a write waits for nothing that is behind it.
            assert answer.lsn > last_lsn
            last_lsn = answer.lsn
            count += 1
            await asyncio.sleep(0)
        return count

    writers = [asyncio.create_task(write(f"k{number}")) for number in range(4)]
    for _ in range(3):
        await restore.restore(house.account, snapshot)
        await asyncio.sleep(0.01)
    is_over = True
    assert min(await asyncio.gather(*writers)) > 0
    ids = {orjson.loads(text)["id"] for text in await house.contents()}
    assert {f"i{number}" for number in range(40)} <= ids
    await restore.restore(house.account, snapshot)
    assert len(await house.contents()) == 40
    await house.check()


async def test_a_container_that_was_deleted_or_made_anew_is_back(house: KeptHouse) -> None:
    container = await house.create()
    await fill(house, container)
    rid, before = container.rid_text, await house.contents()
    snapshot = await house.account.snapshots.take("x", ("db",))
    await containers.delete_container(house.account, container, None)
    await restore.restore(house.account, snapshot)
    assert house.container().rid_text == rid
    assert await house.contents() == before
    await containers.delete_container(house.account, house.container(), None)
    await house.create()
    await house.create("other")
    await restore.restore(house.account, snapshot)
    assert (house.container().rid_text, await house.contents()) == (rid, before)
    with pytest.raises(Failure) as refused:
        house.container("other")
    assert refused.value.kind is Kind.NOT_FOUND
    await house.put(house.container(), {"id": "later", "pk": "k1"})
    await house.check()


async def test_a_database_that_was_deleted_is_back(house: KeptHouse) -> None:
    container = await house.create(throughput_ru=20_000)
    await fill(house, container)
    before = await house.contents()
    snapshot = await house.account.snapshots.take("x", ())
    inner = await house.account.snapshots.take("inner", ("db", "c"))
    await containers.delete_database(house.account, house.account.database("db"), None)
    with pytest.raises(Failure) as refused:
        await restore.restore(house.account, inner)
    assert refused.value.kind is Kind.NOT_FOUND
    await restore.restore(house.account, snapshot)
    assert await house.contents() == before
    assert len(house.account.catalog.of_type(ResourceType.OFFER)) == 1
    await house.check()


async def test_policies_scripts_and_throughput_are_back(house: KeptHouse) -> None:
    container = await house.create()
    await fill(house, container)
    catalog, body = house.account.catalog, dict(container.record.body)
    await catalog.create(ResourceType.PROCEDURE, container.record, "p", {"id": "p", "body": "function () {}"})
    before = await house.contents()
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    await containers.replace_container(
        house.account, container, {**body, "indexingPolicy": {"indexingMode": "none", "automatic": False}}, None
    )
    await house.account.restated(container)
    procedure = catalog.find(ResourceType.PROCEDURE, container.record.rid, "p")
    assert procedure is not None
    await catalog.delete(procedure)
    offer = catalog.offer_of(container.record)
    assert offer is not None
    await offers.set_throughput(house.account, offer, Throughput.manual(1_000))
    outcome = await restore.restore(house.account, snapshot)
    assert outcome.copied == 1  # the items' index is another one by now
    assert await house.contents() == before
    assert container.record.body == body
    assert catalog.find(ResourceType.PROCEDURE, container.record.rid, "p") is not None
    offer = catalog.offer_of(container.record)
    assert offer is not None
    assert offer.body["content"]["offerThroughput"] == 400
    await house.check()


async def test_splits_since_are_undone(house: KeptHouse) -> None:
    container = await house.create()
    await fill(house, container)
    before = await house.contents()
    snapshot = await house.account.snapshots.take("x", ("db", "c"))
    reshaper = house.account.reshaper
    await reshaper.finished(await reshaper.split(container, 0))
    assert len(container.partitions) == 2
    reshaper.pause(["held"])
    await reshaper.split(container, min(container.partitions))
    while not any(reshaper.is_paused(each) for each in reshaper.running(container)):  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    await restore.restore(house.account, snapshot)
    reshaper.pause([])
    assert len(container.partitions) == 1
    assert await house.contents() == before
    await house.put(container, {"id": "later", "pk": "k1"})
    await house.check()


async def test_there_is_an_end_to_their_number(house: KeptHouse, with_limits: WithLimits) -> None:
    with_limits(SNAPSHOTS_MAX=1)
    await house.create()
    snapshots = house.account.snapshots
    await snapshots.take("x", ("db",))
    await snapshots.take("x", ())
    with pytest.raises(Failure) as refused:
        await snapshots.take("y", ())
    assert refused.value.kind is Kind.CONFLICT
    snapshots.forget("x")
    with pytest.raises(Failure) as refused:
        snapshots.find("x")
    assert refused.value.kind is Kind.NOT_FOUND


class MoodyEngine(MemoryEngine):
    """One write of the catalog fails, before or after it took place."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = -1
        self.fails_after = False

    def store(self, number: int) -> MemoryStore:
        if number == CATALOG_STORE and number not in self._stores:
            self._stores[number] = MoodyStore(self)
        return super().store(number)


class MoodyStore(MemoryStore):
    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        engine = self._engine
        assert isinstance(engine, MoodyEngine)
        engine.writes_left -= 1
        if engine.writes_left == 0 and not engine.fails_after:
            raise Failure(Kind.UNAVAILABLE, "the disk is moody")
        result = await super().write(fn, is_freeing=is_freeing)
        if engine.writes_left == 0:
            raise Failure(Kind.UNAVAILABLE, "the disk is moody, and did it all the same")
        return result


@pytest.mark.parametrize("fails_after", [False, True])
async def test_a_disk_that_fails_at_any_write(with_limits: WithLimits, fails_after: bool) -> None:
    """What was restored is all there, or nothing is; and the next time goes well."""
    with_limits(REWIND_ENTRIES_MAX=0)
    for failing in range(1, 8):
        engine = MoodyEngine()
        engine.fails_after = fails_after
        house = await KeptHouse.begin(engine, VirtualClock())
        container = await house.create(throughput_ru=20_000)
        await fill(house, container)
        before = await house.contents()
        snapshot = await house.account.snapshots.take("x", ("db",))
        await house.put(container, {"id": "since", "pk": "k1"})
        after = await house.contents()
        engine.writes_left = failing
        try:
            await restore.restore(house.account, snapshot)
            assert await house.contents() == before
        except Failure:
            assert await house.contents() in (before, after)
        engine.writes_left = -1
        await house.put(container, {"id": "later", "pk": "k1"})
        await restore.restore(house.account, snapshot)
        assert await house.contents() == before
        await house.reopen()
        assert await house.contents() == before
        await house.check()
        await house.close()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_done_since(house: KeptHouse, with_limits: WithLimits, seed: int) -> None:
    """Any writes, any number of snapshots, in any order."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    with_limits(REWIND_ENTRIES_MAX=dice.choice([0, 5, 1_000]))
    policies: dict[str, Any] = {"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/u"]}]}, "defaultTtl": -1}
    container = await house.create(throughput_ru=20_000, **policies)
    kept: dict[str, list[bytes]] = {}
    for step in range(300):
        number = dice.randrange(25)
        key = f"k{number % 5}"
        try:
            match dice.choice(["put", "put", "put", "delete", "take", "restore", "pass"]):
                case "put":
                    ttl = {"ttl": dice.choice([5, 1_000])} if dice.random() < 0.3 else {}
                    await house.put(
                        container, {"id": f"i{number}", "pk": key, "u": dice.randrange(30), "s": step, **ttl}
                    )
                case "delete":
                    await house.delete(container, {"id": f"i{number}", "pk": key})
                case "take" if dice.random() < 0.2:
                    name = f"s{dice.randrange(3)}"
                    await house.account.snapshots.take(name, dice.choice([(), ("db",), ("db", "c")]))
                    kept[name] = await house.contents()
                case "restore" if kept and dice.random() < 0.3:
                    name = dice.choice(sorted(kept))
                    await restore.restore(house.account, house.account.snapshots.find(name))
                    assert await house.contents() == kept[name]
                case "pass":
                    house.clock.advance(dice.choice([0.5, 3]))
        except Failure as failure:
            if failure.kind not in (Kind.CONFLICT, Kind.NOT_FOUND):
                raise
    await house.check()
