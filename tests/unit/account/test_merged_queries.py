"""Merged queries through the account: their charges, the partitions that they ask, and what happens when time is up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.merged_query import MergedQuery

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.queries.merged_queries import query
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind, Reason
from armillary.languages.sql.compiling.compile import BoundQuery, compile_query
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine

PARTITIONS = 4


class Hurried(VirtualClock):
    """A clock that moves a little whenever it is looked at."""

    step_s = 0.0

    def elapsed_s(self) -> float:
        self.advance(self.step_s)
        return super().elapsed_s()


class World:
    def __init__(self, account: Account, clock: Hurried) -> None:
        self.account, self.clock = account, clock
        self.container: Container

    async def create(self, documents: list[dict[str, Any]], paths: tuple[str, ...] = ("/pk",), **more: Any) -> None:
        database = await containers.create_database(self.account, {"id": "d"}, None)
        kind = "Hash" if len(paths) == 1 else "MultiHash"
        body = {"id": "c", "partitionKey": {"paths": list(paths), "kind": kind, "version": 2}, **more}
        self.container = await containers.create_container(self.account, database, body, Throughput(6000 * PARTITIONS))
        assert len(self.container.partitions) == PARTITIONS
        for document in documents:
            await items.create(
                self.container, dict(document), ItemOptions(key=self.container.key_of(document)), self.clock
            )

    def bound(self, text: str) -> BoundQuery:
        return compile_query(text).bind({}, self.container.query_context())

    def gather(self, text: str, **options: Any) -> MergedQuery:
        return MergedQuery(self.account, self.container, self.bound(text), FeedOptions(**options))

    async def all(self, text: str, **options: Any) -> tuple[list[Any], list[PageAnswer]]:
        gathering = self.gather(text, **options)
        pages = []
        while not gathering.is_done:
            pages.append(await gathering.page())
            assert len(pages) < 1000, "it never ends"
        return [orjson.loads(row) for page in pages for row in page.rows], pages


@pytest.fixture
async def world() -> AsyncIterator[World]:
    engine, clock = MemoryEngine(), Hurried()
    account = await Account.open(engine, clock)
    yield World(account, clock)
    await account.close()
    await engine.close()


def numbers(count: int) -> list[dict[str, Any]]:
    return [{"id": f"{number}", "pk": f"k{number}", "n": number} for number in range(count)]


async def test_every_partition_is_asked_and_paid_for(world: World) -> None:
    await world.create(numbers(40))
    rows, pages = await world.all("SELECT VALUE c.n FROM c ORDER BY c.n")
    assert rows == list(range(40)) and len(pages) == 1
    assert pages[0].work.partitions_begun == PARTITIONS
    assert [range_id for range_id, _ in pages[0].lsns] == [0, 1, 2, 3]
    assert pages[0].counters.items_loaded == 40 and pages[0].counters.items_missed == 0
    # Each partition's first page, an ordered walk in each, and forty small rows.
    assert pages[0].charge_ru == pytest.approx(4 * (2.25 + 0.25) + 40 * (0.6 + 0.075), rel=0.02)


async def test_pages_charge_together_what_one_page_charges(world: World) -> None:
    await world.create(numbers(40))
    for text in ("SELECT * FROM c ORDER BY c.n DESC", "SELECT * FROM c", "SELECT DISTINCT c.pk FROM c"):
        rows, pages = await world.all(text, page_items=1000)
        other_rows, other_pages = await world.all(text, page_items=3)
        assert rows == other_rows and len(other_pages) > len(pages)
        total = sum(page.charge_ru for page in other_pages)
        assert total == pytest.approx(sum(page.charge_ru for page in pages), rel=0.1), text


async def test_a_limit_costs_what_its_rows_cost_in_pages(world: World) -> None:
    await world.create(numbers(40))
    _, pages = await world.all("SELECT TOP 1000 * FROM c WHERE c.n < 20")
    text = "SELECT * FROM c WHERE c.n < 20"
    answers: list[PageAnswer] = []
    while not answers or answers[-1].continuation is not None:
        options = FeedOptions(continuation=answers[-1].continuation if answers else None)
        answers.append(
            await item_pages.query(world.account, world.container, world.bound(text), text.encode(), options)
        )
    assert len(answers) == PARTITIONS, "a page has rows of one partition"
    assert [page.rows for page in pages] == [[row for answer in answers for row in answer.rows]]
    assert pages[0].charge_ru == pytest.approx(sum(answer.charge_ru for answer in answers), rel=0.01)


async def test_only_partitions_that_can_answer_are_asked(world: World) -> None:
    await world.create(numbers(40))
    rows, pages = await world.all("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'k7'")
    assert rows == [1] and pages[0].work.partitions_begun == 1
    rows, pages = await world.all("SELECT VALUE COUNT(1) FROM c", range_id="2")
    assert pages[0].work.partitions_begun == 1 and 0 < rows[0] < 40
    rows, pages = await world.all("SELECT VALUE COUNT(1) FROM c WHERE false")
    assert rows == [0]
    rows, pages = await world.all("SELECT VALUE 1")
    assert rows == [1] and pages[0].charge_ru > 0


async def test_a_prefix_of_a_hierarchical_key(world: World) -> None:
    documents = [{"id": f"{n}", "a": f"a{n % 3}", "b": f"b{n}", "n": n} for n in range(60)]
    await world.create(documents, ("/a", "/b"))
    rows, _ = await world.all("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 3", key=Key(("a1",)))
    assert rows == [52, 49, 46]
    rows, _ = await world.all("SELECT VALUE COUNT(1) FROM c", key=Key(("a1",)))
    assert rows == [20]


async def test_expired_items_are_left_out(world: World) -> None:
    await world.create([{**each, "ttl": 10 if each["n"] % 2 else -1} for each in numbers(20)], defaultTtl=-1)
    assert (await world.all("SELECT VALUE COUNT(1) FROM c"))[0] == [20]
    world.clock.advance(11)
    assert (await world.all("SELECT VALUE COUNT(1) FROM c"))[0] == [10]
    assert (await world.all("SELECT VALUE c.n FROM c ORDER BY c.n"))[0] == list(range(0, 20, 2))


async def test_a_session_ahead_of_a_partition_is_refused(world: World) -> None:
    await world.create(numbers(4))
    with pytest.raises(Failure) as caught:
        await world.gather("SELECT * FROM c ORDER BY c.n", session={3: 10**9}).page()
    assert caught.value.kind is Kind.SESSION_BEHIND


async def test_what_cannot_be_ordered_is_refused_before_anything_is_read(world: World) -> None:
    await world.create(numbers(4))
    with pytest.raises(Failure, match="composite index"):
        await world.gather("SELECT * FROM c ORDER BY c.n, c.pk").page()


async def test_rows_come_as_far_as_there_is_time(world: World) -> None:
    await world.create(numbers(200))
    world.clock.step_s = limits.PAGE_SECONDS_MAX / 10
    rows, pages = await world.all("SELECT VALUE c.n FROM c ORDER BY c.n", page_items=1000)
    assert rows == list(range(200)) and len(pages) > 1


async def test_what_must_see_all_rows_has_a_minute(world: World) -> None:
    await world.create(numbers(200))
    world.clock.step_s = limits.PAGE_SECONDS_MAX / 10
    text = "SELECT c.n % 7 AS k, COUNT(1) AS n FROM c GROUP BY c.n % 7"
    rows, pages = await world.all(text)
    assert sum(row["n"] for row in rows) == 200 and len(pages) > 1
    text = "SELECT VALUE MAX(s.n) FROM (SELECT c.n % 7 AS k, COUNT(1) AS n FROM c GROUP BY c.n % 7) s"
    rows, pages = await world.all(text)
    assert rows == [29] and len(pages) == 1
    world.clock.step_s = limits.QUERY_SECONDS_MAX / 2
    with pytest.raises(Failure) as caught:
        await world.all(text)
    assert caught.value.kind is Kind.TIMED_OUT


async def test_a_feed_range_of_one_key_is_that_key(world: World) -> None:
    """Clients write it as a range of hashes, and go on with a continuation of the one in the other form."""
    await world.create([{"id": f"{n}", "pk": f"k{n % 3}", "n": n} for n in range(30)])
    definition = world.container.key
    assert definition is not None
    low = definition.effective_key(Key(("k1",)))
    high = (int.from_bytes(low, "big") + 1).to_bytes(len(low), "big")
    text = "SELECT VALUE c.n FROM c ORDER BY c.n"
    first = await item_pages.query(
        world.account, world.container, world.bound(text), b"q", FeedOptions(epk_range=(low, high), page_items=4)
    )
    rest = await item_pages.query(
        world.account,
        world.container,
        world.bound(text),
        b"q",
        FeedOptions(key=Key(("k1",)), continuation=first.continuation),
    )
    assert [orjson.loads(row) for row in first.rows + rest.rows] == list(range(1, 30, 3))
    count = world.bound("SELECT VALUE COUNT(1) FROM c")
    answer = await item_pages.query(world.account, world.container, count, b"q", FeedOptions(epk_range=(low, high)))
    assert answer.rows == [b"10"] and answer.counters.items_loaded == 0


async def test_rows_of_a_grouped_subquery_are_merged_for_whoever_asks(world: World) -> None:
    await world.create([{"id": f"{n}", "pk": f"k{n}", "n": n % 7, "m": n % 3} for n in range(60)])
    grouped = "(SELECT c.n, COUNT(1) AS x FROM c GROUP BY c.n)"
    for text, wanted in (
        ("SELECT VALUE s FROM (SELECT DISTINCT VALUE c.n FROM c) s WHERE s > 2", [3, 4, 5, 6]),
        (f"SELECT VALUE s.x FROM {grouped} s WHERE s.n IN (0, 6)", [9, 8]),
        (f"SELECT VALUE MAX(s.x) FROM {grouped} s", [9]),
    ):
        bound, options = world.bound(text), FeedOptions(page_items=2)
        page = await query(world.account, world.container, bound, text.encode(), options)
        assert sorted(map(orjson.loads, page.rows)) == sorted(wanted)
        assert page.continuation is None and page.charge_ru > 0 and len(page.lsns) == PARTITIONS
        # One range is a client's own business, and so is what clients can merge.
        one = await query(world.account, world.container, bound, text.encode(), FeedOptions(range_id="0"))
        assert len(one.lsns) == 1
        refused = FeedOptions(is_cross_partition_allowed=False)
        with pytest.raises(Failure) as caught:
            await query(world.account, world.container, bound, text.encode(), refused)
        assert caught.value.details["reason"] is Reason.CROSS_PARTITION_OFF
    text = "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c) s"
    with pytest.raises(Failure) as caught:
        await query(world.account, world.container, world.bound(text), text.encode(), FeedOptions())
    assert caught.value.kind is Kind.CROSS_PARTITION
