"""The corpora on accounts whose partitions other places hold: every page has the same rows, the same charge and the
same continuation as where the partitions are in the process that gathers it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conformance import test_sql, test_table
from conformance.test_recipes import READS, Page
from support.caller import KEY, Caller
from support.divided import INSIDE, Spread, divide, inside
from support.gremlin_house import GremlinHouse
from support.mongo_cases import decoded, load_cases
from support.mongo_house import MongoHouse
from support.portions import Amount, first
from support.tables import filtered, new_table, put

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages, item_walk, merged_queries, merged_slices, sorted_reading
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.partition.budget import Budget
from armillary.storage.memory import MemoryEngine


class Both:
    """The same requests with the partitions elsewhere, and with the partitions here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spread: Spread) -> None:
        self.spread = divide(monkeypatch, spread)
        self.found: list[Page] = []
        self.is_inside = False
        answer, charged = ItemWalk.answer, merged_slices.charged_page

        def noted(page: PageAnswer) -> PageAnswer:
            if INSIDE.get() == self.is_inside:  # and not the page of the place that was asked
                self.found.append((page.rows, page.charge_ru, page.continuation))
            return page

        async def charged_noted(*asked: Any) -> PageAnswer:
            return noted(await charged(*asked))

        monkeypatch.setattr(item_walk.ItemWalk, "answer", lambda walk: noted(answer(walk)))
        for module in (merged_queries, sorted_reading):
            monkeypatch.setattr(module, "charged_page", charged_noted)

    async def same(self, ask: Callable[[], Awaitable[Any]]) -> list[Page]:
        answers: list[tuple[str, list[Page]]] = []
        for self.is_inside in (False, True):
            self.found = []
            try:
                if self.is_inside:
                    with inside():
                        answer = await ask()
                else:
                    answer = await ask()
            except (Failure, test_sql.Refused) as failure:
                answer = repr(failure).partition("ActivityId")[0]
            answers.append((repr(answer), self.found))
        assert answers[0] == answers[1]
        return answers[0][1]


SPREADS = {
    "elsewhere": lambda: Spread(),
    "here and at two places": lambda: Spread(places=2, has_own=True),
    "frames come late and twice": lambda: Spread(places=2, dice=random.Random(20)),
}


def some(cases: list[dict[str, Any]], amount: Amount) -> list[dict[str, Any]]:
    """Of all groups of a corpus some cases; `make soak` takes all."""
    return cases[:: max(1, len(cases) // (2 * amount(len(cases))))]


@pytest.fixture(params=first(2, SPREADS))
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(monkeypatch, SPREADS[request.param]())


@pytest.mark.parametrize("page_items", [1000, 1])
async def test_sql_cases(both: Both, page_items: int, amount: Amount) -> None:
    clock, engine = VirtualClock(), MemoryEngine()
    account = await Account.open(engine, clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    house = test_sql.House(account, clock, database, call)
    for case in some(test_sql.CASES, amount):
        if "RAND()" in case["query"].upper():
            continue
        with inside():
            for is_merged in (False, True):
                await house.container(case, is_merged=is_merged)
        for run in (test_sql.run, test_sql.run_merged):
            await both.same(lambda: run(house, case, page_items))  # noqa: B023 (run at once)
    await account.close()
    await engine.close()
    assert both.spread.frames > amount(len(test_sql.CASES))


async def test_table_filters(both: Both, amount: Amount) -> None:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    table = await new_table(account, throughput_ru=30_000)
    with inside():
        await put(account, table, *test_table.ENTITIES)
    for case in some(test_table.CASES, amount):
        for page_items in (1000, 1):
            await both.same(lambda: filtered(account, table, case["filter"], page_items))  # noqa: B023
    await account.close()
    await engine.close()


@pytest.mark.parametrize("is_sharded", [False, True])
async def test_mongo_cases(both: Both, is_sharded: bool, amount: Amount) -> None:
    house = await MongoHouse.open(account=AccountSettings(partition_throughput_ru=100))
    kept: dict[str, Any] = {}
    for case in some([*load_cases(), *load_cases("own_find_cases")], amount):
        command = decoded(case["command"])
        text = repr(command)
        if next(iter(command)) not in READS or any(each in text for each in ("$out", "$merge'", "$sample", "$rand")):
            continue
        for name, documents in {"c": case["docs"], **case.get("other", {})}.items():
            if kept.get(name) != documents:
                kept[name] = documents
                with inside():
                    await house.ask({"drop": name})
                    if is_sharded:
                        shard = {"shardCollection": f"test.{name}", "key": {"_id": "hashed"}, "$db": "admin"}
                        assert (await house.ask(shard))["ok"] == 1.0
                        container = house.account.container("test", name)
                        assert len(container.partitions) > 3
                    if documents:
                        await house.ask({"insert": name, "documents": decoded(documents)})

        async def ask() -> Any:
            answer = await house.ask(command)  # noqa: B023 (run at once)
            for each in ("operationTime", "$clusterTime"):
                answer.pop(each, None)
            return {**answer, "cursor": {**answer["cursor"], "id": 0}} if "cursor" in answer else answer

        await both.same(ask)
    await house.close()


async def test_graphs(both: Both) -> None:
    house = await GremlinHouse.open(clock=VirtualClock())
    with inside():
        assert len((await house.graph(throughput_ru=30_000)).partitions) > 2
        for number in range(12):
            person = f"addV('person').property('id', '{number}').property('pk', 'p{number}').property('age', {number})"
            await house.run(f"g.{person}")
        await house.run("g.V('1').addE('knows').to(g.V('2')).property('since', 2020)")
    for script in (
        "g.V().has('age', gt(2)).values('age')",
        "g.V().hasLabel('person').has('age', within(1, 2)).id()",
        "g.V().limit(3).id()",
        "g.E().has('since', 2020).label()",
        "g.V().count()",
    ):
        await both.same(lambda: house.run(script))  # noqa: B023 (run at once)
    await house.close()


@pytest.mark.parametrize("both", list(SPREADS)[:2], indirect=True)  # a read that comes twice is charged twice
async def test_charges_reach_the_meters_of_their_partitions(both: Both) -> None:
    clock, engine = VirtualClock(), MemoryEngine()
    account = await Account.open(engine, clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}
    container = await containers.create_container(account, database, body, Throughput.manual(24_000))
    with inside():
        for number in range(40):
            await items.create(container, {"id": str(number), "pk": number, "n": number}, ItemOptions(), clock)

    def charged() -> list[int]:
        with inside():
            return [each.meter.totals.charged for each in container.partitions.values()]

    async def spent(text: str) -> list[int]:
        before = charged()
        query = {"query": text, "parameters": []}
        status, _, _ = await call("POST", "/dbs/d/colls/c/docs", query, **test_sql.MERGED_QUERY)
        assert status == 200
        for _ in range(9):
            await asyncio.sleep(0)  # what is told has no answer
        return [after - since for after, since in zip(charged(), before, strict=True)]

    for text in (
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.pk = 7",
        "SELECT VALUE c.n FROM c ORDER BY c.n",
        "SELECT c.n, COUNT(1) AS x FROM c GROUP BY c.n",
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT COUNT(1) AS x FROM (SELECT DISTINCT c.n FROM c)",
    ):
        divided = await spent(text)
        with inside():
            assert divided == await spent(text), text
        assert sum(divided)
    await account.close()
    await engine.close()


async def test_pages_over_a_split(both: Both) -> None:
    """A partition is split after the page has found it and before its place is asked: the page is begun anew."""
    clock, engine = VirtualClock(), MemoryEngine()
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}
    container = await containers.create_container(account, database, body, Throughput.manual(24_000))
    with inside():
        for number in range(40):
            await items.create(container, {"id": str(number), "pk": number, "n": number}, ItemOptions(), clock)
    for text in ("SELECT * FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT c.n FROM c GROUP BY c.n"):
        bound = compile_query(text).bind({}, container.query_context())
        page = asyncio.ensure_future(
            merged_queries.query(account, container, bound, b"", FeedOptions(merges=True, page_items=1000))
        )
        await asyncio.sleep(0)
        with inside():
            reshape = await account.reshaper.split(container, max(container.partitions))
            await account.reshaper.finished(reshape)
        found = (await page).rows
        if "SELECT *" not in text:
            assert len(found) == 40
        else:
            assert found
    await account.close()
    await engine.close()


@pytest.mark.parametrize("both", ["here and at two places"], indirect=True)
async def test_a_page_ends_before_a_partition_that_cannot_pay(both: Both) -> None:
    clock, engine = VirtualClock(), MemoryEngine()
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}
    container = await containers.create_container(account, database, body, Throughput.manual(24_000))
    with inside():
        for number in range(40):
            await items.create(container, {"id": str(number), "pk": number}, ItemOptions(), clock)
        poor = container.partitions[1].meter
    poor.budget, poor.is_enforcing = Budget(int(clock.monotonic_s())), True
    poor.budget.set_limit(100)
    poor.admit(5000)  # in debt
    options = FeedOptions(page_items=1000)

    async def ask() -> tuple[list[bytes], str | None]:
        page = await item_pages.read_feed(account, container, options)
        return page.rows, page.continuation

    before = poor.totals
    [(rows, _, continuation), *_] = await both.same(ask)
    assert rows and continuation is not None and poor.totals == before
    options.continuation = continuation
    with pytest.raises(Failure) as caught:
        await ask()
    assert caught.value.kind is Kind.THROTTLED and poor.totals.refused == before.refused + 1
    poor.is_enforcing = False
    [(rest, _, _), *_] = await both.same(ask)
    assert len(rows) + len(rest) == 40
    await account.close()
    await engine.close()
