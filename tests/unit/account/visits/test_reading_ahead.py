"""Pages over many partitions of other places: the places are asked at the same time, no more of them than is
documented, and the pages are those of partitions that are all here."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.divided import Spread, divide, inside
from support.house import AccountHouse, Hurried

from armillary import limits
from armillary.account.queries import item_pages, merged_queries
from armillary.account.queries.elsewhere.slice_questions import ReadSlice
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.elsewhere import partition_elsewhere
from armillary.account.visits.elsewhere.place import ask
from armillary.account.visits.page_walk import FeedOptions
from armillary.languages.sql.compiling.compile import compile_query
from armillary.partition.budget import Budget
from armillary.storage.memory import MemoryEngine

FEED = "feed"
FIND = "find"  # rows of partitions one after the other, as for Table and MongoDB
PAGES = [
    (FEED, 1000),
    (FEED, 7),
    (FEED, 40),
    (f"{FIND} SELECT * FROM c WHERE c.n > 90", 1000),
    (f"{FIND} SELECT * FROM c WHERE c.n > 1000", 10),
    (f"{FIND} SELECT * FROM c WHERE c.t = 3", 9),
    ("SELECT VALUE c.n FROM c ORDER BY c.n", 1000),
    ("SELECT c.id FROM c ORDER BY c.n DESC", 11),
    ("SELECT TOP 13 VALUE c.n FROM c ORDER BY c.n", 1000),
    ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 30", 8),
    ("SELECT TOP 30 VALUE c.n FROM c", 20),
    ("SELECT VALUE c.n FROM c OFFSET 25 LIMIT 50", 20),
    ("SELECT DISTINCT VALUE c.t FROM c", 3),
    ("SELECT DISTINCT VALUE c.t FROM c ORDER BY c.t", 3),
    ("SELECT COUNT(1) AS many, SUM(c.n) AS sum FROM c", 1000),
    ("SELECT c.t, COUNT(1) AS many FROM c GROUP BY c.t", 4),
    ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.t FROM c)", 1000),
    ("SELECT TOP 5 c.id FROM c ORDER BY RANK FullTextScore(c.w, 'one', 'two')", 1000),
]
UNRANKED = PAGES[:-1]
DOCUMENTS = [
    {"id": f"{n}", "pk": f"k{n}", "n": n, "t": n % 7, "w": f"{'one ' * (n % 5)} {'two ' * (n % 3)} three"}
    for n in range(100)
]
TEXT_POLICY = {
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/w", "language": "en-US"}]},
    "indexingPolicy": {"fullTextIndexes": [{"path": "/w"}]},
}


class House(AccountHouse[Hurried]):
    @classmethod
    async def filled(cls, documents: list[dict[str, Any]], **policies: Any) -> House:
        house = await cls.begin(MemoryEngine(), Hurried())
        container = await house.create("c", 72_000, **policies)
        assert len(container.partitions) == 12
        await house.put(container, *documents)
        return house

    async def page(self, text: str, page_items: int, continuation: str | None = None) -> PageAnswer:
        account, container = self.account, self.account.container("db", "c")
        options = FeedOptions(merges=True, page_items=page_items, continuation=continuation)
        if text == FEED:
            return await item_pages.read_feed(account, container, options)
        computed = container.policies.computed_properties
        bound = compile_query(text.removeprefix(FIND), computed).bind({}, container.query_context())
        if text.startswith(FIND):
            return await item_pages.select(account, container, bound.selection, text.encode(), options)
        return await merged_queries.query(account, container, bound, text.encode(), options)

    async def pages(self, text: str, page_items: int) -> list[tuple[list[bytes], float, str | None, list[Any]]]:
        found: list[tuple[list[bytes], float, str | None, list[Any]]] = []
        while not found or found[-1][2] is not None:
            page = await self.page(text, page_items, found[-1][2] if found else None)
            found.append((page.rows, page.charge_ru, page.continuation, page.lsns))
        return found

    async def all_pages(self, wanted: list[tuple[str, int]]) -> list[Any]:
        return [await self.pages(*each) for each in wanted]

    async def rows(self, wanted: list[tuple[str, int]]) -> list[Any]:
        return [[orjson.loads(row) for rows, *_ in pages for row in rows] for pages in await self.all_pages(wanted)]


class Asked:
    """Slices that are asked of other places: how many, and how many of them at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.now = self.most = 0
        monkeypatch.setattr(partition_elsewhere, "ask_place", self._ask)

    async def _ask(self, place: Any, question: Any, clock: Any) -> Any:
        if not isinstance(question, ReadSlice):
            return await ask(place, question, clock)
        self.count += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await ask(place, question, clock)
        finally:
            self.now -= 1


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Callable[[Spread], Spread]:
    return lambda spread: divide(monkeypatch, spread)


@pytest.mark.parametrize("spread", [Spread(places=2), Spread(places=2, has_own=True)], ids=["elsewhere", "mixed"])
async def test_pages_are_those_of_partitions_that_are_here(
    monkeypatch: pytest.MonkeyPatch, divided: Callable[[Spread], Spread], spread: Spread
) -> None:
    house = await House.filled(DOCUMENTS, **TEXT_POLICY)
    expected = await house.all_pages(PAGES)
    await house.close()
    divided(spread)
    house = await House.filled(DOCUMENTS, **TEXT_POLICY)
    asked = Asked(monkeypatch)
    for each, pages in zip(PAGES, expected, strict=True):
        assert await house.pages(*each) == pages, each
    assert 2 < asked.most <= limits.SLICES_AHEAD_MAX + 1
    await house.close()


async def test_partitions_are_asked_at_the_same_time_only_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, divided: Callable[[Spread], Spread]
) -> None:
    divided(Spread(places=2))
    house = await House.filled(DOCUMENTS)

    async def most(text: str, page_items: int) -> tuple[int, int]:
        with monkeypatch.context() as patched:
            asked = Asked(patched)
            await house.page(text, page_items)
            assert asked.now == 0
            return asked.most, asked.count

    at_once = limits.SLICES_AHEAD_MAX + 1
    for text in ("SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT VALUE COUNT(1) FROM c"):
        assert await most(text, 1000) == (at_once, 12)
    assert await most(f"{FIND} SELECT * FROM c WHERE c.n > 1000", 10) == (at_once, 12), "nothing was found so far"
    assert (await most(FEED, 3))[0] == 1, "the first partition fills the page"
    found, asked = await most(FEED, 30)
    assert 1 < found < at_once
    assert asked <= 6, "few are asked in vain"
    await house.close()


async def test_what_does_not_fit_is_read_again(
    monkeypatch: pytest.MonkeyPatch, divided: Callable[[Spread], Spread]
) -> None:
    documents = [{"id": f"{n}", "pk": f"k{n}", "text": "x" * 150_000} for n in range(70)]
    house = await House.filled(documents)
    expected = await house.pages(FEED, 1000)
    assert len(expected) > 2
    await house.close()
    divided(Spread(places=2, has_own=True))
    house = await House.filled(documents)
    assert await house.pages(FEED, 1000) == expected
    await house.close()


async def test_reads_end_with_the_time_of_their_slice(
    monkeypatch: pytest.MonkeyPatch, divided: Callable[[Spread], Spread]
) -> None:
    """Rows are the same whatever the time slices are; partitions are read ahead beyond the first of them."""
    divided(Spread(places=2, has_own=True))
    house = await House.filled(DOCUMENTS)
    expected = await house.rows(UNRANKED)
    house.clock.step_s = limits.SLICE_SECONDS / 3
    asked = Asked(monkeypatch)
    assert await house.rows(UNRANKED) == expected
    assert asked.count > 300
    await house.close()


@pytest.mark.parametrize("refused", [3, 8])
async def test_a_partition_that_cannot_pay(
    monkeypatch: pytest.MonkeyPatch, divided: Callable[[Spread], Spread], refused: int
) -> None:
    """The page ends before it, although it was asked ahead; and only what was read is charged."""
    ends: list[Any] = []
    for is_divided in (False, True):
        if is_divided:
            divided(Spread(places=2))
        house = await House.filled(DOCUMENTS)
        container = house.account.container("db", "c")
        with inside():
            poor = container.partitions[container.map.ranges[refused].id].meter
        poor.budget, poor.is_enforcing = Budget(int(house.clock.monotonic_s())), True
        poor.budget.set_limit(100)
        poor.admit(5000)  # in debt
        page = await house.page(FEED, 1000)
        ends.append((page.rows, page.charge_ru, page.continuation))
        await house.close()
    assert ends[0] == ends[1]
    assert ends[0][2] is not None


async def test_places_that_answer_late_twice_or_never(divided: Callable[[Spread], Spread], seed: int) -> None:
    """Rows, charges and tokens stay."""
    house = await House.filled(DOCUMENTS)
    expected = await house.all_pages(UNRANKED)
    await house.close()
    spread = divided(Spread(places=2, has_own=True))
    house = await House.filled(DOCUMENTS)
    spread.dice = random.Random(seed)
    assert await house.all_pages(UNRANKED) == expected
    assert spread.lost
    await house.close()
