"""Pages of queries that the server merges over partitions: the rows are those of one partition, whatever happens to the
partitions and the server between two pages; tokens are bounded, and partitions pay for what they did."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from support.house import AccountHouse, Hurried
from support.limits import WithLimits
from support.passing_time import passing_until

from armillary import limits
from armillary.account.container import Container
from armillary.account.queries.merged_queries import query
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import BoundQuery, compile_query
from armillary.storage.memory import MemoryEngine

COMPUTED = [{"name": "low", "query": "SELECT VALUE c.n % 10 FROM c"}]  # no index has its order
COMPOSITE = {"compositeIndexes": [[{"path": "/t"}, {"path": "/n", "order": "descending"}]]}
Between = Callable[[], Awaitable[None]]


@dataclass
class Answers:
    rows: list[Any] = field(default_factory=list)
    pages: list[PageAnswer] = field(default_factory=list)

    @property
    def charge_ru(self) -> float:
        return sum([page.charge_ru for page in self.pages])


class House(AccountHouse[Hurried]):
    documents: list[dict[str, Any]]

    @property
    def container(self) -> Container:
        return self.account.container("db", "c")

    async def fill(self, documents: list[dict[str, Any]], **policies: Any) -> None:
        self.documents = documents
        container = await self.create("c", 24_000, **policies)
        assert len(container.partitions) == 4
        await self.put(container, *documents)

    def bound(self, text: str) -> BoundQuery:
        container = self.container
        return compile_query(text, container.policies.computed_properties).bind({}, container.query_context())

    def expected(self, text: str) -> list[Any]:
        bound = self.bound(text)
        return [orjson.loads(orjson.dumps(row)) for row in bound.evaluate_over(self.documents)]

    async def page(self, text: str, **options: Any) -> PageAnswer:
        asked = FeedOptions(merges=True, **options)
        return await query(self.account, self.container, self.bound(text), text.encode(), asked)

    async def answers(self, text: str, page_items: int = 1000, between: Between | None = None, **more: Any) -> Answers:
        answers, continuation = Answers(), None
        while not answers.pages or continuation is not None:
            page = await self.page(text, page_items=page_items, continuation=continuation, **more)
            answers.pages.append(page)
            answers.rows += map(orjson.loads, page.rows)
            continuation = page.continuation
            assert len(answers.pages) < 1000, "it never ends"
            assert continuation is None or len(continuation) <= limits.CONTINUATION_BYTES_MAX
            if between is not None:
                await between()
        return answers

    async def split_one(self, dice: random.Random) -> None:
        chosen = dice.choice(self.container.map.ranges).id
        reshape = await self.account.reshaper.split(self.container, chosen)
        finished = self.account.reshaper.finished(reshape)
        await finished


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.begin(MemoryEngine(), Hurried())
    yield house
    house.clock.step_s = 0.0
    await passing_until(house.clock, lambda: house.account.reshaper.is_idle, "no reshape is running")
    await house.close()


def documents(count: int, seed: int = 0) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [
        {"id": f"{n}", "pk": f"k{n}", "n": n, "t": dice.randrange(7), "w": list(range(n % 4)), "s": "x" * (n % 5)}
        for n in range(count)
    ]


IN_ORDER = [
    "SELECT VALUE c.n FROM c ORDER BY c.n",
    "SELECT VALUE c.n FROM c WHERE c.t > 2 ORDER BY c.n DESC",
    "SELECT c.t, c.n FROM c ORDER BY c.t, c.n DESC",
    "SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 5 LIMIT 11",
    "SELECT TOP 13 VALUE c.n FROM c ORDER BY c.n",
    "SELECT DISTINCT VALUE c.t FROM c ORDER BY c.t DESC",
    "SELECT DISTINCT VALUE c.s FROM c ORDER BY c.s OFFSET 1 LIMIT 3",
    "SELECT VALUE {n: c.n, w: w} FROM c JOIN w IN c.w ORDER BY c.n",
    "SELECT VALUE c.low FROM c ORDER BY c.low DESC",
]
# Which rows come first is not said, so only counts and sets can be compared.
ANY_ORDER = [
    "SELECT DISTINCT VALUE c.t FROM c",
    "SELECT DISTINCT c.t, w FROM c JOIN w IN c.w",
    "SELECT c.t, COUNT(1) AS count, SUM(c.n) AS sum, MIN(c.s) AS least FROM c GROUP BY c.t",
    "SELECT VALUE COUNT(1) FROM c WHERE c.t = 3",
    "SELECT COUNT(1) AS count, AVG(c.n) AS average FROM c",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.t FROM c) s",
]


def by_text(rows: list[Any]) -> list[str]:
    return sorted([orjson.dumps(row, option=orjson.OPT_SORT_KEYS).decode() for row in rows])


@pytest.mark.parametrize("state_bytes", [limits.QUERY_STATE_BYTES_MAX, 0], ids=["state", "recomputed"])
async def test_rows_are_those_of_one_partition(
    house: House, with_limits: WithLimits, seed: int, state_bytes: int
) -> None:
    """Also if partitions are split and the server is restarted after every page."""
    with_limits(QUERY_STATE_BYTES_MAX=state_bytes)
    dice = random.Random(seed)
    await house.fill(documents(40, seed), indexingPolicy=COMPOSITE, computedProperties=COMPUTED)

    async def disturb() -> None:
        if len(house.container.partitions) < 12:
            await house.split_one(dice)
        await house.reopen()

    for text in IN_ORDER:
        for page_items in (1000, 3):
            between = disturb if page_items == 3 else None
            assert (await house.answers(text, page_items, between)).rows == house.expected(text), text
    for text in ANY_ORDER:
        for page_items in (1000, 2):
            found = (await house.answers(text, page_items, disturb if page_items == 2 else None)).rows
            assert by_text(found) == by_text(house.expected(text)), text
    for text in ("SELECT TOP 7 VALUE c.n FROM c", "SELECT VALUE c.n FROM c OFFSET 4 LIMIT 9"):
        rows = (await house.answers(text, 2, disturb)).rows
        assert len(set(rows)) == len(rows) == len(house.expected(text)), text


async def test_small_groups_are_carried_and_many_come_in_one_page(house: House) -> None:
    await house.fill(documents(50))
    answers = await house.answers("SELECT c.t, COUNT(1) AS x FROM c GROUP BY c.t", 3)
    assert [len(page.rows) for page in answers.pages] == [3, 3, 1]
    assert [page.counters.items_loaded > 0 for page in answers.pages] == [True, False, False]
    many = await house.answers(f"SELECT c.n, '{'y' * 400}' AS long, COUNT(1) AS x FROM c GROUP BY c.n, c.s", 3)
    assert [len(page.rows) for page in many.pages][:2] == [3, 3]
    wide = "SELECT c.n, MAKELIST(CONCAT(c.id, REPLICATE('z', 200))) AS all FROM c GROUP BY c.n"
    assert [len(page.rows) for page in (await house.answers(wide, 3)).pages] == [50]


async def test_distinct_reads_again_what_a_token_cannot_carry(house: House, with_limits: WithLimits) -> None:
    await house.fill(documents(40))
    text = "SELECT DISTINCT VALUE c.n FROM c"
    carried = await house.answers(text, 10)
    with_limits(QUERY_STATE_BYTES_MAX=100)
    again = await house.answers(text, 10)
    assert sorted(carried.rows) == sorted(again.rows) == list(range(40))
    assert sum([page.counters.items_loaded for page in again.pages]) > 40 + 10 + 20
    assert again.charge_ru > carried.charge_ru


async def test_long_computations_go_on_in_the_next_page(house: House) -> None:
    """A page without rows, whose token has the groups so far and how far each partition was read."""
    await house.fill(documents(2000))
    house.clock.step_s = limits.PAGE_SECONDS_MAX / 20
    text = "SELECT c.t, COUNT(1) AS count, SUM(c.n) AS sum FROM c WHERE c.n % 2 = 0 GROUP BY c.t"
    answers = await house.answers(text, between=house.reopen)
    assert len(answers.pages) > 1 and not answers.pages[0].rows
    assert by_text(answers.rows) == by_text(house.expected(text))


async def test_what_no_token_can_carry_has_a_minute(house: House) -> None:
    await house.fill(documents(300))
    house.clock.step_s = limits.QUERY_SECONDS_MAX / 2
    with pytest.raises(Failure) as caught:
        await house.answers("SELECT c.n, MAKELIST(REPLICATE(c.id, 99)) AS x FROM c GROUP BY c.n")
    assert caught.value.kind is Kind.TIMED_OUT


async def test_a_sort_that_takes_long_gives_rows_all_the_same(house: House) -> None:
    """It is lost with its page, so a page does not end before it has given a row."""
    await house.fill(documents(400), computedProperties=COMPUTED)
    house.clock.step_s = limits.PAGE_SECONDS_MAX / 9
    text = "SELECT TOP 30 VALUE c.low FROM c ORDER BY c.low"
    assert (await house.answers(text, 10)).rows == [0] * 30


async def test_a_short_answer_reads_little(house: House) -> None:
    await house.fill(documents(2000))
    first = await house.page("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n")
    assert first.rows == [b"0", b"1", b"2"] and first.counters.items_loaded <= 4 * 3
    assert (await house.page("SELECT TOP 3 VALUE c.n FROM c")).counters.items_loaded == 3
    page = await house.page("SELECT VALUE c.n FROM c ORDER BY c.n", page_items=100)
    assert page.counters.items_loaded < 2 * 100, "partitions read ahead about a page together"


async def test_partitions_share_the_charge_by_their_work(house: House) -> None:
    await house.fill(documents(400))
    page = await house.page("SELECT VALUE c.n FROM c ORDER BY c.n", page_items=1000, tells_shares=True)
    charged = [share.charged for share in page.shares]
    assert len(charged) == 4 and sum(charged) == round(100 * page.charge_ru)
    assert max(charged) < 2 * min(charged)
    assert sum([share.tally.returned for share in page.shares]) == 400
    first = await house.page("SELECT VALUE c.n FROM c ORDER BY c.n", page_items=20, tells_shares=True)
    assert sum([share.tally.returned for share in first.shares]) == 20
    grouped = await house.page("SELECT c.t, COUNT(1) AS x FROM c WHERE c.n >= 0 GROUP BY c.t", tells_shares=True)
    assert len(grouped.shares) == 4 and min([share.charged for share in grouped.shares]) > 0


async def test_pages_charge_about_what_one_page_charges(house: House) -> None:
    await house.fill(documents(100))
    for text in ("SELECT * FROM c ORDER BY c.n DESC", "SELECT DISTINCT c.pk FROM c", "SELECT TOP 90 * FROM c"):
        whole, pages = await house.answers(text), await house.answers(text, 10)
        assert by_text(whole.rows) == by_text(pages.rows) and len(pages.pages) >= 9
        assert pages.charge_ru == pytest.approx(whole.charge_ru, rel=0.1), text


async def test_a_token_has_the_order_once(house: House) -> None:
    """However many partitions there are: the places of all of them are at the row given last."""
    await house.fill([{"id": f"{n}", "pk": f"k{n}", "long": f"{'l' * 900}{n:03}"} for n in range(40)])
    text = "SELECT VALUE c.id FROM c ORDER BY c.long"
    for _ in range(2):
        for key_range in list(house.container.map.ranges):
            await house.account.reshaper.finished(await house.account.reshaper.split(house.container, key_range.id))
    assert len(house.container.partitions) == 16
    page = await house.page(text, page_items=20)
    assert page.continuation is not None and len(page.continuation) < 3500
    assert (await house.answers(text, 7)).rows == house.expected(text)


async def test_tokens_are_of_one_query_and_cannot_be_made(house: House) -> None:
    await house.fill(documents(30))
    texts = ("SELECT DISTINCT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT TOP 9 * FROM c")
    tokens = [(await house.page(text, page_items=2)).continuation for text in texts]
    for text in texts:
        for other, token in zip(texts, tokens, strict=True):
            assert token is not None
            for given in [token[:-4] + "AA" + token[-2:], *([token] if other != text else [])]:
                with pytest.raises(Failure, match="Invalid Continuation Token"):
                    await house.page(text, page_items=2, continuation=given)
    with pytest.raises(Failure, match="Invalid Continuation Token"):
        await house.page(texts[0], range_id="1", continuation=tokens[0])


@pytest.mark.parametrize(
    ("limit", "text", "part"),
    [
        ("QUERY_DISTINCT_MAX", "SELECT DISTINCT VALUE c.n FROM c", "DISTINCT finds more than 10 values"),
        ("QUERY_GROUPS_MAX", "SELECT c.n, COUNT(1) AS x FROM c GROUP BY c.n", "GROUP BY makes more than 10 groups"),
        ("QUERY_SORTED_MAX", "SELECT * FROM c ORDER BY c.low", "ORDER BY sorts more than 10 items"),
    ],
)
async def test_memory_is_bounded(house: House, with_limits: WithLimits, limit: str, text: str, part: str) -> None:
    await house.fill(documents(80), computedProperties=COMPUTED)
    with_limits(**{limit: 10})
    with pytest.raises(Failure, match=part):
        await house.answers(text)
