"""The change feed through the account: folding it gives the final state, transactions are whole, positions hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson
import pytest
import support.house
from support.limits import WithLimits

from armillary.account.changes import feed_positions
from armillary.account.changes.change_feed import ChangePage, read_changes
from armillary.account.changes.feed_positions import Positions, Stretch
from armillary.account.container import Container
from armillary.account.faults import FaultRule
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.model.encoding import FORMAT_JSON, ItemHeader, pack_item, payload_of, unpack_header
from armillary.model.key_values import Key
from armillary.model.keys import SPACE_HIGH, SPACE_LOW
from armillary.partition.budget import Budget
from armillary.partition.history.log import LogTimes, Transaction
from armillary.partition.operations import Operation, Verb, draft


class House(support.house.House):
    async def put_together(self, container: Container, *documents: dict[str, Any]) -> None:
        """In one transaction. They are of one partition key."""
        key = container.key_of(documents[0])
        epk = container.effective_key(key)
        operations = [
            Operation(
                Verb.UPSERT, epk, key, each["id"], draft(container.schema, each, int(self.clock.now_s()), "Default")
            )
            for each in documents
        ]
        await container.partition_for(epk).write_all(operations)

    async def page(self, container: Container, continuation: str | None = None, **options: Any) -> ChangePage:
        start = {name: options.pop(name) for name in ("is_from_now", "since_s") if name in options}
        asked = FeedOptions(continuation=continuation, **options)
        return await read_changes(self.account, container, asked, **start)

    async def drain(self, container: Container, reader: Reader | None = None, **options: Any) -> Reader:
        """Read on to the end."""
        reader = reader or Reader()
        for _ in range(10_000):
            page = await self.page(container, reader.continuation, **options)
            reader.take(page)
            if not page.items and page.is_end:
                return reader
        raise AssertionError("it never ends")


@dataclass
class Reader:
    """Who folds a feed."""

    continuation: str | None = None
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)  # etags, as they came
    lsns: dict[bytes, int] = field(default_factory=dict)  # the last one of each key
    ids: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    def take(self, page: ChangePage) -> None:
        for lsn, stored, _ in page.items:
            item, header = orjson.loads(payload_of(stored)), unpack_header(stored)
            assert header.lsn == lsn
            assert lsn >= self.lsns.get(header.epk, 0), "changes of one key are out of order"
            self.lsns[header.epk] = lsn
            self.state[item["id"]] = item
            self.versions.append(item["_etag"])
            self.ids.append(item["id"])
        ids = [orjson.loads(payload_of(each.stored))["id"] for each in page.items]
        assert len(ids) == len(set(ids)), "a page has an item twice"
        self.pages.append(len(ids))
        self.continuation = page.continuation


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


def documents(*names: str, pk: str = "a", **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "pk": pk, **more} for name in names]


@pytest.mark.parametrize("seed", range(6))
async def test_folding(house: House, seed: int, with_limits: WithLimits) -> None:
    """Readers of every scope, each at its own pace, over random writes, deletes, batches and restarts."""
    print("seed", seed)
    dice = random.Random(seed)
    with_limits(CHANGES_BY_KEY_ITEMS=dice.choice([0, 5, 1000]))
    container = await house.container(dice.choice([400, 20_000]))
    keys = [f"k{number}" for number in range(6)]
    model: dict[str, dict[str, Any]] = {}
    deleted: set[str] = set()
    scopes: list[tuple[dict[str, Any], Any]] = [({}, lambda epk: True)]
    for key in keys[:2]:
        epk = container.effective_key(Key((key,)))
        scopes.append(({"key": (key,)}, lambda found, epk=epk: found == epk))
    for key_range in container.map.ranges:
        scopes.append(({"range_id": str(key_range.id)}, key_range.contains))
    middle = container.effective_key(Key((keys[3],)))
    scopes.append(({"epk_range": (SPACE_LOW, middle)}, lambda epk: epk < middle))
    scopes.append(({"epk_range": (middle, SPACE_HIGH)}, lambda epk: epk >= middle))
    readers = [Reader() for _ in scopes]
    for _ in range(120):
        for _ in range(dice.randrange(4)):
            pk = dice.choice(keys)
            if dice.random() < 0.3:
                batch: list[dict[str, Any]] = [
                    {"id": f"{pk}-{n}", "pk": pk, "v": dice.random()}
                    for n in dice.sample(range(12), dice.randrange(1, 8))
                ]
                await house.put_together(container, *batch)
            else:
                batch = [{"id": f"{pk}-{dice.randrange(12)}", "pk": pk, "v": dice.random()}]
                if batch[0]["id"] in model and dice.random() < 0.5:
                    await house.delete(container, batch[0])
                    deleted.add(batch[0]["id"])
                    del model[batch[0]["id"]]
                    continue
                await house.put(container, *batch)
            model.update({each["id"]: each for each in batch})
            house.clock.advance(dice.choice([0, 0, 1]))
        if dice.random() < 0.05:
            await house.reopen()
            container = house.account.container(container.database.name, "c")
        house.clock.step_s = dice.choice([0.0, 0.004, 0.02])
        at = dice.randrange(len(scopes))
        page = await house.page(
            container, readers[at].continuation, page_items=dice.choice([1, 2, 7, 100]), **scopes[at][0]
        )
        readers[at].take(page)
        _check_transactions(page)
    for (options, holds), reader in zip(scopes, readers, strict=True):
        await house.drain(container, reader, page_items=dice.choice([1, 5, 100]), **options)
        expected = {
            name: each["v"] for name, each in model.items() if holds(container.effective_key(container.key_of(each)))
        }
        alive = {name: each["v"] for name, each in reader.state.items() if name in model}
        assert alive == expected
        assert set(reader.state) - set(model) <= deleted
        assert len(reader.versions) == len(set(reader.versions)), "a version came twice"


def _check_transactions(page: ChangePage) -> None:
    """What is left of a batch comes together: items of one lsn lie side by side, whatever the page size."""
    lsns = [(unpack_header(each.stored).epk, each.lsn) for each in page.items]
    runs = [pair for at, pair in enumerate(lsns) if at == 0 or lsns[at - 1] != pair]
    assert len(runs) == len(set(runs))


async def test_transactions_are_whole(house: House) -> None:
    container = await house.container()
    await house.put(container, *documents("0"))
    await house.put_together(container, *documents(*"abcde"))
    await house.put(container, *documents("1"))
    choices: list[dict[str, Any]] = [{}, {"key": Key(("a",))}]
    for options in choices:
        assert (await house.drain(container, page_items=1, **options)).pages == [1, 5, 1, 0]
        assert (await house.drain(container, page_items=3, **options)).pages == [1, 5, 1, 0]
        assert (await house.drain(container, page_items=6, **options)).pages == [6, 1, 0]
    await house.put(container, *documents("c"))  # written again, it leaves its transaction
    assert (await house.drain(container, page_items=4)).ids == [*"0abde1c"]


async def test_transactions_are_whole_over_slices_and_sizes(house: House, with_limits: WithLimits) -> None:
    container = await house.container()
    for batch in range(20):
        await house.put_together(container, *documents(*[f"{batch}-{n}" for n in range(50)]))
    house.clock.step_s = 0.02  # every look at the clock ends a slice
    assert (await house.drain(container, page_items=1000)).pages == [1000, 0]
    house.clock.step_s = 1.0
    assert {pages % 50 for pages in (await house.drain(container, page_items=1000)).pages} == {0}
    house.clock.step_s = 0.0
    with_limits(PAGE_BYTES_MAX=15_000)
    pages = (await house.drain(container, page_items=1000)).pages
    assert {pages % 50 for pages in pages} == {0}
    assert len(pages) == 21


async def test_transactions_that_do_not_fit_wait_for_the_next_page(house: House) -> None:
    """Also where the page began in another partition."""
    container = await house.container(20_000)
    homes = {pk: container.map.find(container.effective_key(Key((pk,)))).id for pk in map(str, range(20))}
    first = next(pk for pk, home in homes.items() if home == 0)
    second = next(pk for pk, home in homes.items() if home == 1)
    await house.put(container, *documents(*"abc", pk=first))
    await house.put_together(container, *documents(*"vwxyz", pk=second))
    assert (await house.drain(container, page_items=6)).pages == [3, 5, 0]
    assert (await house.drain(container, page_items=8)).pages == [8, 0]


async def test_items_written_again_while_a_page_is_read(house: House) -> None:
    """The page ends where the log did when it began, however long it takes."""
    container = await house.container()
    names = [str(number) for number in range(500)]
    await house.put(container, *documents(*names))
    house.clock.step_s = 0.02  # every look at the clock ends a slice
    reading = asyncio.create_task(house.page(container, page_items=1000))
    for name in names[:5]:
        await asyncio.sleep(0)
        await house.put(container, *documents(name))
    assert not reading.done()
    reader = Reader()
    reader.take(await reading)
    assert reader.ids == names
    await house.drain(container, reader)
    assert reader.ids == names + names[:5]


async def test_starts(house: House) -> None:
    container = await house.container()
    empty = await house.page(container)
    assert (empty.items, empty.is_end, empty.charge_ru) == ([], True, 1.0)
    now = await house.page(container, is_from_now=True)
    assert now.items == []
    await house.put(container, *documents("1", "2"))
    assert (await house.drain(container, Reader(now.continuation))).ids == ["1", "2"]
    house.clock.advance(10)
    later_s = int(house.clock.now_s())
    await house.put(container, *documents("3"))
    assert (await house.drain(container, since_s=later_s)).ids == ["3"]
    assert (await house.drain(container, since_s=later_s - 1)).ids == ["3"]
    assert (await house.drain(container, since_s=later_s + 1)).ids == []
    assert (await house.drain(container, since_s=later_s - 10)).ids == ["1", "2", "3"]
    first = await house.page(container, page_items=1)
    assert (await house.drain(container, Reader(first.continuation), since_s=later_s)).ids == ["3"]
    assert (await house.drain(container)).pages == [3, 0]
    page = await house.page(container)
    assert page.charge_ru == 3.0
    assert page.lsns == [(0, container.partitions[0].lsn)]


async def test_clocks_that_go_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log knows no time but that of its items, and finds the place of a time without looking at all of them."""
    container = await house.container()
    partition = container.partitions[0]
    partition.times = LogTimes(every=3)
    start = int(house.clock.now_s())
    times = [start + 100, start + 200, start + 50, start + 300, start + 60, start + 61, start + 400, start + 10] * 5
    for number, time_s in enumerate(times):
        house.clock.set(time_s)
        await house.put(container, *documents(str(number)))
    for since_s in [*range(start, start + 450, 25), start + 201, start + 300]:
        expected = [str(number) for number, time_s in enumerate(times) if time_s >= since_s]
        assert (await house.drain(container, page_items=4, since_s=since_s)).ids == expected
    assert partition.times.older_until(start + 300) > 0


@pytest.mark.parametrize("seed", range(20))
def test_log_times(seed: int, with_limits: WithLimits) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    with_limits(LOG_TIMES_MAX=4)
    times = LogTimes(every=dice.choice([1, 3]))
    latest = [0, *[dice.randrange(1, 30) for _ in range(60)]]  # by lsn
    noted = 0
    for _ in range(100):
        after = dice.choice([0, noted, dice.randrange(60)])
        upto = dice.randrange(after, 61)
        found = [Transaction(lsn, [_item(latest[lsn])]) for lsn in range(after + 1, upto + 1)]
        assert list(times.noting(found, after)) == found
        if after <= noted:
            noted = max(noted, upto)
        since_s = dice.randrange(35)
        reached = times.older_until(since_s)
        assert all(each < since_s for each in latest[1 : reached + 1])
        assert reached <= noted


def _item(ts: int) -> bytes:
    return pack_item(ItemHeader(FORMAT_JSON, 0, 0, 0, ts, 0, b""), b"{}")


async def test_expired_items_are_not_in_it(house: House) -> None:
    container = await house.container(defaultTtl=-1)
    await house.put(container, *documents("1", ttl=5), *documents("2"))
    assert (await house.drain(container)).ids == ["1", "2"]
    house.clock.advance(6)
    assert (await house.drain(container)).ids == ["2"]
    assert (await house.drain(container, key=("a",))).ids == ["2"]


async def test_all_partitions_have_their_turn(house: House) -> None:
    """A reader that never comes to the end of one partition sees the others all the same."""
    container = await house.container(20_000)
    numbers = range(40)
    for number in numbers:
        await house.put(container, {"id": str(number), "pk": number})
    busy = next(number for number in numbers if container.map.find(container.effective_key(Key((number,)))).id == 0)
    reader = Reader()
    for _ in range(200):
        reader.take(await house.page(container, reader.continuation, page_items=2))
        await house.put(container, *[{"id": f"more{number}", "pk": busy} for number in range(2)])
    assert set(reader.ids) >= set(map(str, numbers))


async def test_scopes_without_a_partition(house: House) -> None:
    container = await house.container(20_000)
    await house.put(container, *documents("1"))
    epk = container.effective_key(Key(("a",)))
    other = next(each for each in container.map.ranges if not each.contains(epk))
    page = await house.page(container, range_id=str(other.id), key=("a",))
    assert (page.items, page.is_end) == ([], True)
    with pytest.raises(Failure) as caught:
        await house.page(container, range_id="77")
    assert caught.value.kind is Kind.RANGE_GONE


async def test_partitions_are_paid(house: House) -> None:
    """What is answered is what the meters of the partitions have counted."""
    container = await house.container(20_000)
    for number in range(20):
        await house.put(container, {"id": str(number), "pk": number})
    meters = [partition.meter for partition in container.partitions.values()]
    before = sum(meter.totals.charged for meter in meters)
    whole = await house.page(container)
    assert whole.charge_ru == 20.0
    nothing = await house.page(container, whole.continuation)
    assert nothing.charge_ru == 1.0
    key = await house.page(container, key=(7,))
    now = await house.page(container, is_from_now=True)
    with pytest.raises(Failure) as caught:
        await house.page(container, "999")
    answered = [whole.charge_ru, nothing.charge_ru, key.charge_ru, now.charge_ru, caught.value.charge_ru]
    assert sum(meter.totals.charged for meter in meters) - before == round(100 * sum(answered))


async def test_a_page_ends_before_a_partition_that_cannot_pay(house: House) -> None:
    container = await house.container(20_000)
    for number in range(20):
        await house.put(container, {"id": str(number), "pk": number})
    poor = container.partitions[1].meter
    poor.budget, poor.is_enforcing = Budget(int(house.clock.monotonic_s())), True
    poor.budget.set_limit(100)
    poor.admit(5000)  # in debt
    page = await house.page(container)
    assert not page.is_end
    assert {container.map.find(unpack_header(each.stored).epk).id for each in page.items} == {0}
    with pytest.raises(Failure) as caught:
        await house.page(container, page.continuation)
    assert caught.value.kind is Kind.THROTTLED
    poor.is_enforcing = False
    rest = await house.drain(container, Reader(page.continuation))
    assert len(rest.ids) + len(page.items) == 20


async def test_faults(house: House) -> None:
    container = await house.container()
    house.account.faults.add(FaultRule(operations=frozenset(("changes",)), kind=Kind.RANGE_GONE, range_id=0, count=1))
    with pytest.raises(Failure) as caught:
        await house.page(container)
    assert caught.value.kind is Kind.RANGE_GONE
    assert (await house.page(container)).is_end


async def test_positions_ahead_are_refused(house: House) -> None:
    container = await house.container()
    with pytest.raises(Failure) as caught:
        await house.page(container, "999")
    assert caught.value.kind is Kind.BAD_REQUEST
    assert "ahead" in caught.value.message


async def test_tokens(house: House) -> None:
    """Good for what they were given for, and for nothing else."""
    container = await house.container(20_000)
    for number in range(20):
        await house.put(container, {"id": str(number), "pk": number})
    token = (await house.page(container, page_items=3)).continuation
    assert token.isdigit()  # Python's client sends nothing else back
    assert len(token) > 18
    assert len((await house.drain(container, Reader(token))).ids) == 17
    epk_range = (SPACE_LOW, container.map.ranges[1].high)
    wrong_ones = (
        "",
        "x",
        token[:-1],
        token[:-3],
        token + "0",
        token + "000",
        "1" * 60,
        "9" * 60,
        "-1",
        "1.5",
        "é",
        "٣",
    )
    for wrong in wrong_ones:
        with pytest.raises(Failure) as caught:
            await house.page(container, wrong)
        assert caught.value.kind is Kind.BAD_REQUEST, wrong
    with pytest.raises(Failure):
        await house.page(container, token, epk_range=epk_range)


@pytest.mark.parametrize("seed", range(50))
def test_positions_are_written_and_read(seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    bounds = sorted({dice.randbytes(dice.randrange(1, 20)) for _ in range(dice.randrange(2, 12))})
    pairs = list(pairwise(bounds)) or [(b"", b"\xff")]
    stretches = [Stretch(low, high, dice.choice([0, 7, 2**50])) for low, high in pairs]
    turn = dice.randrange(len(stretches))
    positions = Positions((*stretches[turn:], *stretches[:turn]))
    token = positions.encode(b"secret", b"rid")
    low, high = pairs[0][0], pairs[-1][1]
    read = feed_positions.decode(token, b"secret", b"rid", low, high)

    def lsn_at(point: bytes, found: Positions) -> int:
        (lsn,) = [each.lsn for each in found.stretches if each.low <= point < each.high]
        return lsn

    for point in bounds[:-1]:
        assert lsn_at(point, read) == lsn_at(point, positions)
    if len(token) > 18:
        assert read.stretches[0].low == positions.stretches[0].low
