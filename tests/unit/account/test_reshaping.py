"""Splits and merges over the memory engine: what is stored, asked and written while they go on is compared with a plain
dictionary, they are stopped at every point and taken up again, and the self-check looks at everything in the end."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from support.house import AccountHouse
from support.limits import WithLimits
from support.merged_query import MergedQuery
from support.passing_time import passing_until

from armillary import limits
from armillary.account import containers
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.reshaping.split_and_merge import BEGUN, CAUGHT_UP, COPIED, COPYING, HELD, POINTS, SWITCHED
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model import layout
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.partition import check as partition_check
from armillary.partition.operations import Verb
from armillary.partition.reshaping import copying as transfers
from armillary.query.selection import Selection
from armillary.storage.memory import MemoryEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


@pytest.fixture(autouse=True)
def _small_steps(with_limits: WithLimits) -> None:
    """Other tasks get a turn after every few entries."""
    with_limits(
        COPY_SLICE_SECONDS=-1.0,
        COPY_PORTION_ENTRIES=7,
        CATCH_UP_ENTRIES=3,
        CATCH_UP_ENTRIES_MAX=10,
        CUT_OVER_ENTRIES=3,
        BRAKE_ENTRIES=5,
        BRAKE_OPEN_SECONDS=0.0,
        RESHAPE_POLL_SECONDS=0.0,
        RESHAPE_RETRY_SECONDS=0.0,
    )


class House(AccountHouse[VirtualClock]):
    engine: MemoryEngine

    @property
    def container(self) -> Container:
        return self.account.container("db", "c")

    async def quiet(self) -> None:
        """Until nothing is being reshaped."""
        reshaper = self.account.reshaper
        reshaper.pause(())
        await passing_until(self.clock, lambda: reshaper.is_idle, "no reshape is running")

    async def forget_parents(self) -> None:
        self.clock.advance(limits.RETIRED_SECONDS + 1)
        gc.collect()  # of who has read them
        await self.account.reshaper.keep_up()

    async def write(self, number: int, **properties: Any) -> None:
        document = {"id": str(number), "pk": number % 10, "n": number, **properties}
        await items.upsert(self.container, document, ItemOptions(), self.clock)

    async def fill(self, count: int, **properties: Any) -> None:
        for number in range(count):
            await self.write(number, **properties)

    async def everything(self) -> dict[str, dict[str, Any]]:
        """By the read feed, in small pages."""
        found: dict[str, dict[str, Any]] = {}
        continuation = None
        while True:
            options = FeedOptions(page_items=9, continuation=continuation)
            page = await item_pages.read_feed(self.account, self.container, options)
            for row in page.rows:
                item = orjson.loads(row)
                assert item["id"] not in found
                found[item["id"]] = item
            continuation = page.continuation
            if continuation is None:
                return found

    async def split(self, range_id: int, **options: Any) -> None:
        reshape = await self.account.reshaper.split(self.container, range_id, **options)
        await self.account.reshaper.finished(reshape)

    async def merge(self, low_id: int, high_id: int) -> None:
        reshape = await self.account.reshaper.merge(self.container, low_id, high_id)
        await self.account.reshaper.finished(reshape)

    @property
    def range_ids(self) -> list[int]:
        return [each.id for each in self.container.map.ranges]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.begin(MemoryEngine(), VirtualClock())
    yield house
    await house.quiet()
    await house.forget_parents()
    assert await house.problems() == []
    stores = {each.store for container in house.account.containers for each in container.map.ranges}
    for number, store in house.engine._stores.items():
        is_used = await store.read(lambda view: any(view.scan(b"", b"\xff")))
        assert not is_used or number in stores or number == 0, f"store {number} was left behind"
    await house.close()


def _numbers(house: House) -> set[int]:
    return {each.store for each in house.container.map.ranges}


async def _is_empty(house: House, number: int) -> bool:
    return not await house.engine.store(number).read(lambda view: any(view.scan(b"", b"\xff")))


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_stores_of_parents_are_emptied_while_upkeep_runs_twice(house: House, is_cancelled: bool) -> None:
    """As when the background upkeep has begun with it, or is cancelled in the middle."""
    await house.create()
    await house.fill(20)
    before = _numbers(house)
    await house.split(0)
    (parent,) = before - _numbers(house)
    house.clock.advance(limits.RETIRED_SECONDS + 1)
    gc.collect()
    assert not await _is_empty(house, parent)
    background = asyncio.create_task(house.account.reshaper.keep_up())
    await asyncio.sleep(0)
    if is_cancelled:
        background.cancel()
    await house.account.reshaper.keep_up()
    assert await _is_empty(house, parent)
    await asyncio.gather(background, return_exceptions=True)


def test_every_space_is_copied() -> None:
    assert set(transfers.COPIED_SPACES) == set(partition_check.SPACES)


async def test_a_split_leaves_everything_as_it_was(house: House) -> None:
    await house.create(uniqueKeyPolicy={"uniqueKeys": [{"paths": ["/u"]}]}, defaultTtl=-1)
    for number in range(60):
        await house.write(number, u=number, tags=["a", number], ttl=10_000 if number % 7 == 0 else -1)
    await items.delete(house.container, "7", ItemOptions(key=Key((7,))))
    before = await house.everything()
    parent = house.container.partitions[0]
    await house.split(0)
    assert house.range_ids == [1, 2]
    assert await house.everything() == before
    children = [house.container.partitions[each] for each in (1, 2)]
    assert [child.lsn for child in children] == [parent.lsn] * 2
    assert [child.range.parents for child in children] == [(0,), (0,)]
    assert sum(child.head.item_count for child in children) == 59
    # Etags, unique values and expiry go on.
    item = before["8"]
    options = ItemOptions(if_match=item["_etag"])
    answer = await items.replace(house.container, "8", {"id": "8", "pk": 8, "u": 8}, options, house.clock)
    assert answer.range_id in (1, 2)
    assert answer.item_lsn == parent.lsn + 1
    with pytest.raises(Failure) as caught:
        await items.create(house.container, {"id": "new", "pk": 8, "u": 18}, ItemOptions(), house.clock)
    assert caught.value.kind is Kind.CONFLICT
    house.clock.advance(10_001)
    assert "14" not in await house.everything()


async def test_a_merge_brings_two_logs_together(house: House) -> None:
    await house.create(throughput_ru=11_000)
    assert house.range_ids == [0, 1]
    for number in range(40):
        # Each partition numbers its index paths for itself, in the order in which it meets them.
        await house.write(number, **({"p": 1, "q": [2]} if number % 20 < 10 else {"q": 3, f"r{number}": 4}))
    before = await house.everything()
    lsns = [partition.lsn for partition in house.container.partitions.values()]
    with pytest.raises(Failure, match="needs all its partitions"):
        await house.merge(0, 1)
    await _scale(house, 6_000)
    await house.merge(1, 0)  # in whatever order they are named
    assert house.range_ids == [2]
    (merged,) = house.container.partitions.values()
    assert merged.lsn == max(lsns)
    assert merged.range.parents == (0, 1)
    assert await house.everything() == before
    await house.write(3, p=5)
    assert merged.lsn == max(lsns) + 1


async def _scale(house: House, ru: int) -> None:
    from armillary.account.throughput import offers

    offer = house.account.budgets.offer_of(house.container.record)
    assert offer is not None
    wanted = {**offer.to_json(), "content": {"offerThroughput": ru}}
    await offers.replace_offer(house.account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)


@pytest.mark.parametrize("is_merge", [False, True])
@pytest.mark.parametrize("point", POINTS)
async def test_stopped_at_every_point_and_taken_up_again(house: House, point: str, is_merge: bool) -> None:
    await house.create()
    await house.fill(50, text="t" * 100)
    if is_merge:
        await house.split(0)
    expected = await house.everything()
    reshaper = house.account.reshaper
    reshaper.pause([point])
    reshape = await (reshaper.merge(house.container, 1, 2) if is_merge else reshaper.split(house.container, 0))
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    assert reshape.point == point
    if point not in (HELD, SWITCHED):
        await house.write(3, changed=True)
        await items.delete(house.container, "4", ItemOptions(key=Key((4,))))
        del expected["4"]
    assert await house.problems() == [], "a half-done reshape is no damage"
    await house.reopen()
    assert await house.problems() == []
    await house.write(5, changed=True)
    expected |= {each: (await house.everything())[each] for each in ("3", "5")}
    await house.quiet()
    assert len(house.container.map.ranges) == (1 if is_merge else 2)
    assert await house.everything() == expected
    assert not house.container.state.reshapes


async def test_writers_wait_for_a_cut_over_and_go_on(house: House) -> None:
    await house.create()
    await house.fill(20)
    reshaper = house.account.reshaper
    reshaper.pause([HELD])
    reshape = await reshaper.split(house.container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    container, clock = house.container, house.clock
    members = [Member(Verb.CREATE, document={"id": "b", "pk": 1}), Member(Verb.READ, "1")]
    keyed = [
        Member(
            Verb.UPSERT, document={"id": str(number), "pk": number, "bulk": 1}, options=ItemOptions(key=Key((number,)))
        )
        for number in range(10)
    ]
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(items.create(container, {"id": "new", "pk": 1}, ItemOptions(), clock)),
        asyncio.create_task(items.delete(container, "2", ItemOptions(key=Key((2,))))),
        asyncio.create_task(items.batch(container, Key((1,)), members, ItemOptions(), clock)),
        asyncio.create_task(items.delete_by_key(container, Key((3,)))),
    ]
    bulk = asyncio.create_task(run_bulk(container, "0", keyed, clock))
    read = await items.read(container, "5", ItemOptions(key=Key((5,))))
    assert read.range_id == 0, "reading goes on"
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (*waiting, bulk))
    reshaper.pause(())
    created, deleted, batch, emptied = await asyncio.gather(*waiting)
    assert {created.range_id, deleted.range_id, batch.range_id, emptied.range_id} <= {1, 2}
    assert batch.is_done
    # Who names a range is told that it is gone.
    answer = await bulk
    assert all(isinstance(each, Failure) and each.kind is Kind.RANGE_GONE for each in answer.members)
    found = await house.everything()
    assert {"new", "b"} <= found.keys()
    assert not {"2", "3", "13"} & found.keys()


async def test_who_reads_a_parent_finishes_there(house: House) -> None:
    container = await house.create()
    await house.fill(300)
    slices = item_pages.selection_slices(house.account, container, Selection(), FeedOptions())
    await house.split(0)
    await house.write(250, n=-1)
    house.clock.advance(limits.RETIRED_SECONDS + 1)
    await house.account.reshaper.keep_up()
    page, _ = await slices[0].read(house.clock, 1000, limits.PAGE_BYTES_MAX)
    found = [orjson.loads(row)["n"] for row in page.rows]
    assert found == list(range(300)), "the parent is kept as long as a reader holds it"
    slices.clear()
    gc.collect()
    await house.account.reshaper.keep_up()
    assert not container.state.retired


async def test_who_reads_a_parent_for_too_long_is_told(house: House) -> None:
    container = await house.create()
    await house.fill(30)
    parent = container.partitions[0]
    await house.split(0)
    house.clock.advance(limits.RETIRED_SECONDS + limits.RETIRED_SECONDS_MAX + 1)
    await house.account.reshaper.keep_up()
    with pytest.raises(Failure) as caught:
        await parent.read(lambda view: view.get(b"x"))
    assert caught.value.kind is Kind.RANGE_GONE


@pytest.mark.parametrize("point", [BEGUN, COPYING, COPIED, CAUGHT_UP, HELD])
async def test_new_rules_overtake_a_reshape(house: House, point: str) -> None:
    await house.create()
    await house.fill(60, text="t" * 50)
    reshaper = house.account.reshaper
    reshaper.pause([point])
    reshape = await reshaper.split(house.container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    body = {"id": "c", "partitionKey": KEY, "indexingPolicy": {"excludedPaths": [{"path": "/text/*"}]}, "defaultTtl": 9}
    await containers.replace_container(house.account, house.container, body, None)
    reshaper.pause(())
    await house.write(3, text="new")
    await house.quiet()
    assert house.range_ids == [1, 2]
    assert house.container.schema.rules.number == 2
    await passing_until(house.clock, lambda: not house.container.is_restating, "all items follow the new policy")
    assert len(await house.everything()) == 60


@pytest.mark.parametrize("point", [BEGUN, COPYING, COPIED, CAUGHT_UP])
async def test_the_first_item_comes_while_an_empty_partition_is_split(house: House, point: str) -> None:
    await house.create()
    reshaper = house.account.reshaper
    reshaper.pause([point])
    reshape = await reshaper.split(house.container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await house.write(1)
    reshaper.pause(())
    await reshaper.finished(reshape)
    assert set(await house.everything()) == {"1"}


@pytest.mark.parametrize("point", POINTS)
async def test_a_container_is_deleted_meanwhile(house: House, point: str) -> None:
    container = await house.create()
    await house.fill(40)
    reshaper = house.account.reshaper
    reshaper.pause([point])
    reshape = await reshaper.split(container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    waiting = None
    if point == HELD:
        waiting = asyncio.create_task(items.create(container, {"id": "new", "pk": 1}, ItemOptions(), house.clock))
        await asyncio.sleep(0)
    await containers.delete_container(house.account, container, None)
    if waiting is not None:
        with pytest.raises(Failure) as caught:
            await waiting
        assert caught.value.kind is Kind.OWNER_NOT_FOUND
    assert reshaper.running() == []


@pytest.mark.parametrize("point", [BEGUN, COPYING, HELD])
async def test_taking_back_that_cannot_be_recorded(house: House, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The reshape goes on, and its range is free afterwards."""
    await house.create()
    await house.fill(40)
    reshaper = house.account.reshaper
    reshaper.pause({point})
    reshape = await reshaper.split(house.container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    change_state = house.account.catalog.change_state

    async def failing(*given: Any, **named: Any) -> None:
        raise Failure(Kind.STORAGE_FULL, "The disk of the data directory is nearly full; nothing was stored.")

    monkeypatch.setattr(house.account.catalog, "change_state", failing)
    with pytest.raises(Failure, match="nearly full"):
        await reshaper.cancel(reshape)
    monkeypatch.setattr(house.account.catalog, "change_state", change_state)
    (again,) = reshaper.running(house.container)
    assert again.parents == reshape.parents
    await house.quiet()
    assert len(house.container.partitions) == 2
    for key_range in house.container.map.ranges:
        await reshaper.finished(await reshaper.split(house.container, key_range.id))
    await house.quiet()
    assert len(house.container.partitions) == 4 and not reshaper._reserved
    assert await house.problems() == []


@pytest.mark.parametrize("point", [BEGUN, COPYING, COPIED, CAUGHT_UP, HELD])
async def test_taken_back(house: House, point: str) -> None:
    container = await house.create()
    await house.fill(40)
    before = await house.everything()
    reshaper = house.account.reshaper
    reshaper.pause([point])
    reshape = await reshaper.split(container, 0)
    while not reshaper.is_paused(reshape):  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.raises(Failure, match="already") as caught:
        await reshaper.split(container, 0)
    assert caught.value.kind is Kind.CONFLICT
    await reshaper.cancel(reshape)
    assert house.range_ids == [0]
    assert await house.everything() == before
    await house.write(1, again=True)
    reshaper.pause(())
    await house.split(0)
    assert house.range_ids == [1, 2]


async def test_the_check_sees_damaged_reshapes(house: House) -> None:
    container = await house.create(throughput_ru=11_000)
    reshaper = house.account.reshaper
    reshaper.pause([BEGUN])
    await reshaper.split(container, 0)
    await reshaper.split(container, 1)
    sound = container.record.state["reshapes"]

    async def problems(*entries: dict[str, Any]) -> str:
        await house.account.catalog.change_state(container.record, lambda state, _: {**state, "reshapes": [*entries]})
        return "; ".join(await house.problems())

    low, high = sound
    assert "not all of these ranges exist" in await problems({**low, "parents": [7]})
    assert "another one is about the same range" in await problems(low, {**high, "parents": [0]})
    assert "do not cover" in await problems({**low, "children": low["children"][:1]})
    assert "do not cover" in await problems({**low, "children": [low["children"][0], high["children"][1]]})
    assert "share a store" in await problems({**low, "children": [{**each, "store": 1} for each in low["children"]]})
    assert await problems(low, high) == ""


async def test_growth_splits_the_largest_first_and_is_remembered(house: House) -> None:
    container = await house.create(throughput_ru=18_000)
    assert house.range_ids == [0, 1, 2]
    reshaper = house.account.reshaper
    reshaper.pause([COPIED])
    await _scale(house, 80_000)
    assert reshaper.is_growing(container)
    while len(reshaper.running(container)) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await house.reopen()
    assert house.account.reshaper.is_growing(house.container)
    await house.account.reshaper.grown(house.container)
    await house.quiet()
    assert len(house.range_ids) == 8
    widths = {len(each.parents) for each in house.container.map.ranges}
    assert widths <= {1, 2}, "three ranges become eight in two generations"
    await asyncio.sleep(0)
    assert "wanted_ranges" not in house.container.record.state


async def test_growth_can_be_wished_away(house: House) -> None:
    container = await house.create()
    reshaper = house.account.reshaper
    reshaper.pause([BEGUN])
    await reshaper.grow(container, 4)
    await reshaper.grow(container, 1)
    await house.quiet()
    assert len(house.range_ids) <= 2
    assert not reshaper.is_growing(container)


async def test_a_partition_that_outgrows_its_storage_splits(house: House) -> None:
    house.settings = AccountSettings(partition_storage_bytes=40_000)
    await house.reopen()
    container = await house.create()
    for number in range(400):
        await house.write(number, pk=f"k{number % 61}", text="t" * 300)
        if number % 5 == 0:
            await house.quiet()
    assert len(house.range_ids) >= 4
    assert len(await house.everything()) == 400
    for each in container.partitions.values():
        assert each.head.size_bytes < 44_000


async def test_the_children_of_a_storage_split_are_balanced(house: House) -> None:
    container = await house.create()
    dice = random.Random(5)
    for number in range(200):
        key = int(dice.paretovariate(1.0))  # skewed
        await house.write(number, pk=f"key {key}", text="t" * dice.randrange(200))
    sizes: dict[str, int] = {}
    for item in (await house.everything()).values():
        sizes[item["pk"]] = sizes.get(item["pk"], 0) + len(orjson.dumps(item))
    await house.account.reshaper._split(container, 0, None, "storage", _reservation(house))
    await house.quiet()
    children = [partition.head.size_bytes for partition in container.partitions.values()]
    # The keys lie where their hashes are, so one that has half of everything decides how well it can be halved.
    slack = max(0.1, max(sizes.values()) / sum(sizes.values()) / 2 + 0.02)
    assert abs(children[0] / sum(children) - 0.5) <= slack


def _reservation(house: House) -> Any:
    from armillary.account.reshaping.reservations import Reservation

    return Reservation(house.account.reshaper._reserved, house.container, (0,))


async def test_one_key_does_not_split_and_is_refused_at_its_limit(house: House) -> None:
    house.settings = AccountSettings(partition_storage_bytes=20_000)
    await house.reopen()
    container = await house.create()
    refused = None
    for number in range(200):
        document = {"id": str(number), "pk": "one", "text": "t" * 300}
        try:
            await items.create(container, document, ItemOptions(), house.clock)
        except Failure as failure:
            refused = failure.kind
            break
    assert refused is Kind.KEY_FULL
    await house.quiet()
    assert house.range_ids == [0]
    size_bytes = container.partitions[0].head.size_bytes
    assert size_bytes <= 20_000
    # Reading, deleting and shrinking go on; what fits exactly is taken, and a byte more is not.
    shrunk = {"id": "0", "pk": "one", "text": ""}
    await items.replace(container, "0", shrunk, ItemOptions(key=Key(("one",))), house.clock)
    free_bytes = 20_000 - container.partitions[0].head.size_bytes
    for text_bytes, is_taken in ((free_bytes + 1, False), (free_bytes, True)):
        document = {"id": "0", "pk": "one", "text": "x" * text_bytes}
        if is_taken:
            await items.replace(container, "0", document, ItemOptions(key=Key(("one",))), house.clock)
        else:
            with pytest.raises(Failure) as caught:
                await items.replace(container, "0", document, ItemOptions(key=Key(("one",))), house.clock)
            assert caught.value.kind is Kind.KEY_FULL
            assert caught.value.message == "Partition key reached maximum size of 0.0190735 MB"
    assert container.partitions[0].head.size_bytes == 20_000
    await items.delete(container, "1", ItemOptions(key=Key(("one",))))
    # Another key makes the partition divisible.
    await items.create(container, {"id": "x", "pk": "other", "text": "t" * 1200}, ItemOptions(), house.clock)
    await items.create(container, {"id": "y", "pk": "other", "text": "t" * 1200}, ItemOptions(), house.clock)
    for _ in range(20):
        await asyncio.sleep(0)
    await house.quiet()
    assert len(house.range_ids) == 2


async def test_a_fixed_container_does_not_split(house: House) -> None:
    database = await containers.create_database(house.account, {"id": "db"}, None)
    container = await containers.create_container(house.account, database, {"id": "c"}, None, is_old_client=True)
    for attempt in (house.account.reshaper.split(container, 0), house.account.reshaper.grow(container, 2)):
        with pytest.raises(Failure, match="no partition key"):
            await attempt


async def test_what_cannot_be_split_or_merged_is_refused(house: House) -> None:
    container = await house.create(throughput_ru=18_000)
    reshaper = house.account.reshaper
    for attempt, kind, message in [
        (reshaper.split(container, 9), Kind.RANGE_GONE, "does not exist"),
        (reshaper.split(container, 0, b"\x3f"), Kind.BAD_REQUEST, "not inside"),
        (reshaper.merge(container, 0, 2), Kind.BAD_REQUEST, "not neighbours"),
        (reshaper.merge(container, 1, 1), Kind.BAD_REQUEST, "not neighbours"),
        (reshaper.merge(container, 1, 7), Kind.RANGE_GONE, "does not exist"),
    ]:
        with pytest.raises(Failure, match=message) as caught:
            await attempt
        assert caught.value.kind is kind
    with pytest.raises(Failure, match="no point"):
        reshaper.pause(["lunch"])


async def test_small_neighbours_are_merged_by_policy(house: House) -> None:
    house.settings = AccountSettings(merges_by_policy=True)
    await house.reopen()
    await house.create(throughput_ru=18_000)
    await house.fill(30)
    await house.account.reshaper.keep_up()
    await house.quiet()
    assert len(house.range_ids) == 3, "with 6,000 RU/s each they are busy"
    await _scale(house, 6_000)
    for _ in range(3):
        await house.account.reshaper.keep_up()
        await house.quiet()
    assert len(house.range_ids) == 2, "with 3,000 RU/s each they stay"
    await _scale(house, 400)
    for _ in range(3):
        await house.account.reshaper.keep_up()
        await house.quiet()
    assert len(house.range_ids) == 1
    assert len(await house.everything()) == 30


@pytest.mark.parametrize("version", [1, 2])
async def test_hash_versions_and_hierarchies(house: House, version: int) -> None:
    key = {"paths": ["/pk"], "kind": "Hash", "version": 1}
    if version == 2:
        key = {"paths": ["/t", "/pk"], "kind": "MultiHash", "version": 2}
    container = await house.create(partitionKey=key)
    for number in range(120):
        await house.write(number, t=f"tenant {number % 3}", text="t" * 50)
    before = await house.everything()
    for _ in range(3):
        for range_id in house.range_ids:
            await house.account.reshaper._split(container, range_id, None, "storage", _own(house, range_id))
        await house.quiet()
    assert len(house.range_ids) == 8
    assert await house.everything() == before


def _own(house: House, range_id: int) -> Any:
    from armillary.account.reshaping.reservations import Reservation

    return Reservation(house.account.reshaper._reserved, house.container, (range_id,))


# Everything at once.


@pytest.mark.parametrize("seed", range(6))
async def test_random_work_across_reshapes_equals_a_dictionary(house: House, seed: int) -> None:
    print("seed", seed)
    await RandomWork(house, random.Random(seed)).run(500)


class RandomWork:
    """A client that does one thing after the other, while partitions split and merge around it."""

    def __init__(self, house: House, dice: random.Random) -> None:
        self.house, self.dice = house, dice
        self.model: dict[tuple[int, str], dict[str, Any]] = {}
        self.expires: dict[tuple[int, str], float] = {}
        self.pages: list[Pages] = []
        self.reshapes = 0
        self.is_unique = False
        self.weights: dict[Callable[[], Awaitable[None]], float] = {
            self.put: 30,
            self.drop: 10,
            self.rename: 8,
            self.patch: 8,
            self.batch: 8,
            self.read: 15,
            self.time: 3,
            self.page: 15,
            self.split: 6,
            self.merge: 5,
            self.rules: 0.5,
            self.die: 1,
            self.turn: 20,
        }

    async def run(self, steps: int) -> None:
        house, dice = self.house, self.dice
        self.is_unique = dice.random() < 0.5
        unique = {"uniqueKeys": [{"paths": ["/u"]}] if self.is_unique else []}
        await house.create(defaultTtl=-1, uniqueKeyPolicy=unique)
        for number in range(40):  # that no client touches: pages over them must be exact
            await house.write(number, pk=f"still {number % 9}", u=number, still=True, rank=dice.randrange(12))
        for step in range(steps):
            await dice.choices(list(self.weights), list(self.weights.values()))[0]()
            if step % 100 == 99:
                await house.quiet()
                await self.compare()
                assert await house.problems() == []
        await house.quiet()
        await self.compare()
        for each in self.pages:
            await each.finish()
        print("ranges", house.range_ids, "reshapes", self.reshapes)

    @property
    def container(self) -> Container:
        return self.house.container

    def live(self) -> None:
        now_s = self.house.clock.now_s()
        for place in [place for place, when in self.expires.items() if when <= now_s]:
            self.model.pop(place, None)
            del self.expires[place]

    def document(self) -> dict[str, Any]:
        dice = self.dice
        document = {"id": f"i{dice.randrange(25)}", "pk": dice.randrange(7), "u": f"u{dice.randrange(40)}"}
        document["text"] = "t" * dice.randrange(60)
        for name in dice.sample("abcdef", dice.randrange(4)):
            document[name] = dice.randrange(4)
        if dice.random() < 0.2:
            document["ttl"] = dice.choice([5, 60])
        return document

    def put_in_model(self, document: dict[str, Any]) -> None:
        place = (document["pk"], document["id"])
        self.model[place] = document
        self.expires.pop(place, None)
        if "ttl" in document:
            self.expires[place] = int(self.house.clock.now_s()) + document["ttl"]

    def takes(self, document: dict[str, Any], but: tuple[int, str]) -> bool:
        """Whether its unique value is free in its logical partition."""
        if not self.is_unique:
            return True
        return not any(
            place[0] == document["pk"] and place != but and other["u"] == document["u"]
            for place, other in self.model.items()
        )

    async def put(self) -> None:
        self.live()
        document = self.document()
        place = (document["pk"], document["id"])
        is_new = self.dice.random() < 0.3
        call = items.create if is_new else items.upsert
        is_free = self.takes(document, place) and not (is_new and place in self.model)
        refused = await _refusal(call(self.container, dict(document), ItemOptions(), self.house.clock))
        assert refused is (None if is_free else Kind.CONFLICT)
        if is_free:
            self.put_in_model(document)

    async def drop(self) -> None:
        self.live()
        if self.model:
            place = self.dice.choice(sorted(self.model))
            await items.delete(self.container, place[1], ItemOptions(key=Key((place[0],))))
            del self.model[place]
            self.expires.pop(place, None)

    async def rename(self) -> None:
        self.live()
        if not self.model:
            return
        place = self.dice.choice(sorted(self.model))
        document = {**self.model[place], "id": f"i{self.dice.randrange(25)}"}
        new_place = (place[0], document["id"])
        if new_place != place and new_place in self.model:
            return
        etag = (await self._item(place))["_etag"]
        options = ItemOptions(if_match=etag)
        await items.replace(self.container, place[1], dict(document), options, self.house.clock)
        del self.model[place]
        self.expires.pop(place, None)
        self.put_in_model(document)

    async def _item(self, place: tuple[int, str]) -> dict[str, Any]:
        answer = await items.read(self.container, place[1], ItemOptions(key=Key((place[0],))))
        assert answer.payload is not None
        item: dict[str, Any] = orjson.loads(answer.payload)
        return item

    async def patch(self) -> None:
        self.live()
        if not self.model:
            return
        place = self.dice.choice(sorted(self.model))
        value = self.dice.randrange(9)
        changes = parse_patch({"operations": [{"op": "set", "path": "/a", "value": value}]})
        await items.patch(self.container, place[1], changes, ItemOptions(key=Key((place[0],))))
        self.put_in_model({**self.model[place], "a": value})

    async def batch(self) -> None:
        self.live()
        key = self.dice.randrange(7)
        documents = {document["id"]: document for document in (self.document() for _ in range(3))}
        for document in documents.values():
            document["pk"] = key
        members = [Member(Verb.UPSERT, document=dict(document)) for document in documents.values()]
        answer = await items.batch(self.container, Key((key,)), members, ItemOptions(), self.house.clock)
        if answer.is_done:
            for document in documents.values():
                self.put_in_model(document)

    async def read(self) -> None:
        self.live()
        place = (self.dice.randrange(7), f"i{self.dice.randrange(25)}")
        if place in self.model:
            item = await self._item(place)
            assert {name: value for name, value in item.items() if name[0] != "_"} == self.model[place]
        else:
            assert await _refusal(self._item(place)) is Kind.NOT_FOUND

    async def time(self) -> None:
        self.house.clock.advance(self.dice.choice([1, 4, 30]))
        if self.dice.random() < 0.5:
            await self.house.account.reshaper.keep_up()
            for partition in list(self.container.partitions.values()):
                sweep = self.house.account.rounds.keep_up_one(self.container, partition)
                assert await _refusal(sweep) in (None, Kind.RANGE_BUSY)

    async def page(self) -> None:
        if len(self.pages) < 4:
            self.pages.append(Pages(self.house, self.dice))
        each = self.dice.choice(self.pages)
        if await each.go_on():
            self.pages.remove(each)

    async def split(self) -> None:
        await self._begin(self.house.account.reshaper.split(self.container, self.dice.choice(self.house.range_ids)))

    async def merge(self) -> None:
        ids = self.house.range_ids
        if len(ids) > 1:
            at = self.dice.randrange(len(ids) - 1)
            await self._begin(self.house.account.reshaper.merge(self.container, ids[at], ids[at + 1]))

    async def _begin(self, beginning: Any) -> None:
        refused = await _refusal(beginning)
        assert refused in (None, Kind.CONFLICT, Kind.BAD_REQUEST)
        self.reshapes += refused is None

    async def rules(self) -> None:
        present = self.container.record.body
        path = f"/{self.dice.choice('abcdef')}/?"
        body = {**present, "indexingPolicy": {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": path}]}}
        await containers.replace_container(self.house.account, self.container, body, None)

    async def die(self) -> None:
        await self.house.reopen()

    async def turn(self) -> None:
        for _ in range(self.dice.randrange(30)):
            await asyncio.sleep(0)

    async def compare(self) -> None:
        self.live()
        assert await self._by_query() == self.model
        assert await self._by_feed() == self.model

    async def _by_feed(self) -> dict[tuple[int, str], dict[str, Any]]:
        found: dict[tuple[int, str], dict[str, Any]] = {}
        options = FeedOptions(page_items=1000)
        for row in (await item_pages.read_feed(self.house.account, self.container, options)).rows:
            item = {name: value for name, value in orjson.loads(row).items() if name[0] != "_"}
            if not item.get("still"):
                assert (item["pk"], item["id"]) not in found
                found[(item["pk"], item["id"])] = item
        return found

    async def _by_query(self) -> dict[tuple[int, str], dict[str, Any]]:
        bound = compile_query("SELECT * FROM c WHERE c.u >= 'u' ", ()).bind({}, self.container.query_context())
        found: dict[tuple[int, str], dict[str, Any]] = {}
        for row in await MergedQuery(self.house.account, self.container, bound, FeedOptions()).whole():
            item = {name: value for name, value in orjson.loads(row).items() if name[0] != "_"}
            assert (item["pk"], item["id"]) not in found
            found[(item["pk"], item["id"])] = item
        return found


async def _refusal(doing: Awaitable[object]) -> Kind | None:
    try:
        await doing
    except Failure as failure:
        return failure.kind
    return None


class Pages:
    """A feed or a query over items that no client touches, page by page, whatever happens in between."""

    def __init__(self, house: House, dice: random.Random) -> None:
        self.house = house
        self.kind = dice.choice(["feed", "filter", "key", "order"])
        self.size = dice.randrange(1, 7)
        self.key = f"still {dice.randrange(9)}"
        self.continuation: str | None = None
        self.rows: list[Any] = []
        self.is_done = False

    async def go_on(self) -> bool:
        """The next page; whether that was the last."""
        account, container = self.house.account, self.house.container
        options = FeedOptions(page_items=self.size, continuation=self.continuation)
        if self.kind == "feed":
            page = await item_pages.read_feed(account, container, options)
            self.rows += [row["n"] for row in map(orjson.loads, page.rows) if row.get("still")]
        else:
            text = "SELECT VALUE c.n FROM c WHERE c.still = true"
            if self.kind != "filter":
                options.key = Key((self.key,))
            if self.kind == "order":
                text += " ORDER BY c.rank DESC"
            bound = compile_query(text, ()).bind({}, container.query_context())
            page = await item_pages.query(account, container, bound, text.encode(), options)
            self.rows += map(orjson.loads, page.rows)
        self.continuation = page.continuation
        if self.continuation is not None:
            return False
        self.is_done = True
        of_key = [number for number in range(40) if f"still {number % 9}" == self.key]
        expected = list(range(40)) if self.kind in ("feed", "filter") else of_key
        assert sorted(self.rows) == expected, (self.kind, self.rows)
        return True

    async def finish(self) -> None:
        while not self.is_done:
            await self.go_on()


def test_layout_is_as_the_copy_assumes() -> None:
    assert layout.change_key(1, 2, 3)[-8:] == (3).to_bytes(8, "big")
    assert layout.expiry_key(1, 3)[-8:] == layout.term_key(1, b"x", 3)[-8:] == (3).to_bytes(8, "big")
