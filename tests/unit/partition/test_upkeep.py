"""Background work goes in slices and in turns: few transactions for many items, none of them long, no container behind
another's backlog, and requests in between. What is slow is judged by transactions and turns of the loop, not by the
clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from support.house import KEY, House
from support.limits import WithLimits
from support.mongo_house import MongoHouse
from support.passing_time import passing_until

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.account.upkeep_rounds import Rounds
from armillary.clock import SystemClock, VirtualClock
from armillary.model import layout
from armillary.model.key_values import Key
from armillary.partition.history import log
from armillary.partition.operations import Verb
from armillary.partition.partition import Partition
from armillary.partition.upkeep import background_throttle, ttl_sweep, upkeep
from armillary.storage.engine import View
from armillary.storage.rocks import RocksEngine

WIDE = 15_000  # paths: some ten slices of work


def the_partition(container: Container) -> Partition:
    (partition,) = container.partitions.values()
    return partition


async def fill(house: House, container: Container, count: int, **more: Any) -> None:
    for first in range(0, count, limits.BATCH_OPERATIONS_MAX):
        numbers = range(first, min(count, first + limits.BATCH_OPERATIONS_MAX))
        documents = [{"id": str(number), "pk": "x", "ttl": 60, **more} for number in numbers]
        members = [Member(Verb.UPSERT, item_id=each["id"], document=each) for each in documents]
        assert (await items.batch(container, Key(("x",)), members, ItemOptions(), house.clock)).is_done


def tombstones(view: View) -> int:
    pairs = view.scan(layout.CHANGES, layout.space_end(layout.CHANGES))
    return sum(value != log.WRITTEN for _, value in pairs)


async def test_expired_items_leave_many_in_a_transaction() -> None:
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    await fill(house, container, 1_500)
    partition = the_partition(container)
    before = partition.lsn
    house.clock.advance(100)
    await house.account.rounds.keep_up()
    assert partition.head.item_count == 0
    assert partition.lsn - before <= 10, "transactions"
    await house.close()


@pytest.mark.parametrize(("step_s", "text", "most"), [(0.001, "", 4), (0.0, "x" * (limits.UPKEEP_BYTES // 2), 2)])
async def test_transactions_are_bounded_by_time_and_bytes(step_s: float, text: str, most: int) -> None:
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    await fill(house, container, 12, text=text)
    partition = the_partition(container)
    house.clock.advance(100)
    before, house.clock.step_s = partition.lsn, step_s
    await ttl_sweep.sweep_expired(partition, house.clock.now_s())
    assert partition.head.item_count == 0
    assert partition.lsn - before >= 12 / most
    await house.close()


async def test_a_sweep_begins_where_the_one_before_ended() -> None:
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    partition = the_partition(container)
    await fill(house, container, 5)
    house.clock.advance(30)
    last_s = int(house.clock.now_s()) + 60
    await house.put(container, {"id": "later", "pk": "x", "ttl": 60})
    house.clock.advance(40)
    assert await ttl_sweep.sweep_expired(partition, house.clock.now_s()) == 5
    assert partition.marks.expiry_from[:9] == layout.expiry_key(last_s, 0)[:9]
    house.clock.advance(30)
    assert await ttl_sweep.sweep_expired(partition, house.clock.now_s()) == 1
    assert partition.marks.expiry_from == layout.space_end(layout.EXPIRY)
    # A sweep by a clock that was ahead: what is written afterwards expires before its end, and is swept all the same.
    assert await ttl_sweep.sweep_expired(partition, house.clock.now_s() + 1000) == 0
    assert partition.marks.expiry_from > layout.expiry_key(int(house.clock.now_s()) + 1000, 0)
    await fill(house, container, 3)
    assert partition.marks.expiry_from <= layout.expiry_key(int(house.clock.now_s()) + 60, 1 << 63)
    house.clock.advance(100)
    assert await ttl_sweep.sweep_expired(partition, house.clock.now_s()) == 3
    assert partition.head.item_count == 0
    await house.close()


async def test_items_that_a_sweep_leaves_are_examined_again() -> None:
    """For example while their expiry keys are of rules with a shorter TTL."""
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    partition = the_partition(container)
    await fill(house, container, 3)
    end_s = house.clock.now_s() + 100
    assert await ttl_sweep.sweep_expired(partition, end_s) == 0, "examined too early"
    assert partition.marks.expiry_from == layout.EXPIRY
    house.clock.advance(100)
    assert await ttl_sweep.sweep_expired(partition, end_s) == 3
    await house.close()


async def test_no_container_waits_for_the_backlog_of_another(with_limits: WithLimits) -> None:
    with_limits(SWEEP_ITEMS_MAX=10)
    house = await House.open()
    large = await house.container(defaultTtl=-1)
    database = house.account.database("d400")
    body = {"id": "small", "partitionKey": KEY, "defaultTtl": -1}
    small = await containers.create_container(house.account, database, body, None)
    await fill(house, large, 1_000)
    await fill(house, small, 1)
    house.clock.advance(100)  # which wakes the account's own upkeep
    while the_partition(small).head.item_count:  # noqa: ASYNC110 - each turn of the loop counts
        await asyncio.sleep(0)
    assert the_partition(large).head.item_count > 500
    await passing_until(house.clock, lambda: the_partition(large).head.item_count == 0, "the backlog is swept")
    await house.close()


async def test_ttl_indexes_of_mongodb_are_swept_the_same_way() -> None:
    house = await MongoHouse.open()
    await house.ask({"create": "c"})
    index = {"key": {"at": 1}, "name": "at", "expireAfterSeconds": 10}
    await house.ask({"createIndexes": "c", "indexes": [index]})
    container = house.account.container("test", "c")
    await house.account.restated(container)
    when = DatetimeMS(int(house.account.clock.now_s() * 1000))
    await house.ask({"insert": "c", "documents": [{"_id": number, "at": when} for number in range(500)]})
    before = the_partition(container).lsn
    assert isinstance(house.account.clock, VirtualClock)
    house.account.clock.advance(60)
    await house.account.rounds.keep_up()
    assert the_partition(container).head.item_count == 0
    assert the_partition(container).lsn - before <= 2
    await house.close()


async def test_all_old_tombstones_leave_in_one_pass() -> None:
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    await fill(house, container, 1_500)
    partition = the_partition(container)
    house.clock.advance(100)
    await house.account.rounds.keep_up()
    assert await partition.read(tombstones) == 1_500
    house.clock.advance(limits.TOMBSTONE_SECONDS + 1)
    await house.account.rounds.keep_up()
    assert await partition.read(tombstones) == 0
    await house.close()


async def test_records_of_ended_sessions_leave_without_a_look_at_the_others() -> None:
    house = await House.open()
    partition = the_partition(await house.container())
    old, young = [int(house.clock.now_s() + later_s).to_bytes(4, "big") + b"\x05\0\0\0\0" for later_s in (0, 900)]
    keys = [layout.RECORDS + number.to_bytes(16, "big") + bytes(12) for number in range(40)]
    await partition.adopt_records([(key, young if number % 2 else old) for number, key in enumerate(keys)])
    await partition.open()  # as after a restart
    house.clock.advance(limits.MONGO_SESSION_SECONDS + 1)
    await upkeep.forget_records(partition, house.clock.now_s())
    left = await partition.read(lambda view: [key for key, _ in view.scan(layout.RECORDS, layout.space_end(b"r"))])
    assert left == keys[1::2]
    assert partition.records.ended_keys(house.clock.now_s(), 1) == []
    await house.close()


def test_portions_are_bounded_by_bytes() -> None:
    large = b"x" * (limits.UPKEEP_BYTES // 2)
    pairs = [(bytes([number]), large if number < 6 else b"") for number in range(20)]
    found = list(background_throttle.portions(pairs, 4))
    assert [pair for portion in found for pair in portion] == pairs
    assert max(sum(len(value) for _, value in portion) for portion in found) <= limits.UPKEEP_BYTES
    assert max(map(len, found)) <= 4


class Turns:
    """How often the event loop turns while something is done."""

    def __init__(self) -> None:
        self.count = 0

    async def during(self, doing: Any) -> int:
        self.count = 0
        counting = asyncio.create_task(self._count())
        try:
            await doing
        finally:
            counting.cancel()
        return self.count

    async def _count(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.soak
async def test_point_reads_while_a_wide_item_is_written_by_the_clock(tmp_path: Path) -> None:
    """The longest that a reader waits, in the time that this thread computes: other programs do not count."""
    clock = SystemClock()
    engine = await RocksEngine.open(tmp_path / "data", "relaxed")
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    container = await containers.create_container(account, database, {"id": "c", "partitionKey": KEY}, None)
    options = ItemOptions(key=Key(("x",)))
    await items.create(container, {"id": "read", "pk": "x"}, options, clock)
    longest_s = 0.0

    async def read() -> None:
        nonlocal longest_s
        while True:
            begun_s = time.thread_time()
            await items.read(container, "read", options)
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begun_s)

    document = {"id": "w", "pk": "x", **{f"p{number}": number for number in range(100_000)}}
    again = {**document, **{f"p{number}": -number for number in range(100_000)}}
    reading = asyncio.create_task(read())
    for each in (document, again):
        await items.upsert(container, each, options, clock)
    await items.delete(container, "w", options)
    reading.cancel()
    await account.close()
    await engine.close()
    assert longest_s < 0.1, f"{longest_s * 1000:.0f} ms"


async def test_requests_go_on_while_a_wide_item_is_written_and_restated(tmp_path: Path) -> None:
    """Creating, replacing, patching, restating and deleting an item with very many index terms: the loop turns often
    while each is done, and a reader sees the item as it was before or as it is afterwards."""
    clock = SystemClock()
    engine = await RocksEngine.open(tmp_path / "data", "relaxed")
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    container = await containers.create_container(account, database, {"id": "c", "partitionKey": KEY}, None)
    options = ItemOptions(key=Key(("x",)))
    turns = Turns()

    def wide(more: int) -> dict[str, Any]:
        return {"id": "w", "pk": "x", "a": {f"p{number}": number + more for number in range(WIDE)}}

    async def restate() -> None:
        body = {"id": "c", "partitionKey": KEY, "indexingPolicy": {"excludedPaths": [{"path": "/other/*"}]}}
        await containers.replace_container(account, container, body, None)
        await account.restated(container)

    counted = {
        "create": await turns.during(items.create(container, wide(0), options, clock)),
        "replace": await turns.during(items.upsert(container, wide(1), options, clock)),
        "restate": await turns.during(restate()),
        "delete": await turns.during(items.delete(container, "w", options)),
    }
    await account.close()
    await engine.close()
    assert min(counted.values()) > 8, counted


async def test_upkeep_of_many_partitions_holds_the_loop_for_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of the event loop so many partitions are looked at as a slice of time allows, and no more jobs
    go on than may be under way."""
    house = await House.open()
    container = await house.container(throughput_ru=1_000_000, defaultTtl=-1)
    count_all = len(container.partitions)
    assert count_all >= 100
    house.clock.step_s = 0.001
    rounds = house.account.rounds
    done = {"looked at": 0, "gone on": 0}
    due, step = Rounds._due, Rounds._step

    def count_due(self: Rounds, *given: Any) -> Any:
        done["looked at"] += 1
        return due(self, *given)

    async def count_step(self: Rounds, job: Any) -> bool:
        done["gone on"] += 1
        return await step(self, job)

    monkeypatch.setattr(Rounds, "_due", count_due)
    monkeypatch.setattr(Rounds, "_step", count_step)
    longest, before = dict.fromkeys(done, 0), dict(done)
    keeping_up = asyncio.create_task(rounds.keep_up())
    while not keeping_up.done():
        await asyncio.sleep(0)
        for name, count in done.items():
            longest[name], before[name] = max(longest[name], count - before[name]), count
        wake_s = house.clock.next_wake_s
        if wake_s is not None and wake_s <= limits.COPY_SLICE_SECONDS:  # the throttle sleeps
            house.clock.advance(wake_s)
    await keeping_up
    assert min(done.values()) >= count_all, done
    assert longest["looked at"] <= limits.COPY_SLICE_SECONDS / 0.001 + 1, longest
    assert longest["gone on"] <= limits.UPKEEP_AT_ONCE, longest
    await house.close()
