"""Recipes of selections: over the corpora of all languages, every selection that is made can be sent to another
process, and the one that is compiled from what arrives gives the same rows, in the same pages, for the same charge.
"""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from conformance import test_sql, test_table
from support.caller import KEY, Caller
from support.gremlin_house import GremlinHouse
from support.mongo_cases import decoded, load_cases
from support.mongo_house import MongoHouse
from support.tables import filtered, new_table, put

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import item_walk, merged_queries, merged_slices, recipe_compiler, sorted_reading
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure
from armillary.query.recipes import recipe_of
from armillary.query.selection import Recipe, Selection
from armillary.storage.memory import MemoryEngine

Page = tuple[list[bytes], float, str | None]


class Pages:
    """The pages of all doors, with the selections as they are, or as they arrive in another process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[Page] = []
        self.recipes: set[type[Recipe]] = set()
        self.are_sent = False
        begin, answer, charged = ItemWalk.__init__, ItemWalk.answer, merged_slices.charged_page

        def begin_with_sent(
            walk: ItemWalk,
            account: Account,
            container: Container,
            options: FeedOptions,
            selection: Selection,
            text: bytes,
            **others: Any,
        ) -> None:
            if self.are_sent:
                selection = self._arrived(account, container, selection)
            begin(walk, account, container, options, selection, text, **others)

        def noted(page: PageAnswer) -> PageAnswer:
            self.found.append((page.rows, page.charge_ru, page.continuation))
            return page

        async def charged_noted(*asked: Any) -> PageAnswer:
            return noted(await charged(*asked))

        monkeypatch.setattr(item_walk.ItemWalk, "__init__", begin_with_sent)
        monkeypatch.setattr(Container, "is_divided", True)  # so that filters need not run in this process
        monkeypatch.setattr(item_walk.ItemWalk, "answer", lambda walk: noted(answer(walk)))
        for module in (merged_queries, sorted_reading):
            monkeypatch.setattr(module, "charged_page", charged_noted)

    def _arrived(self, account: Account, container: Container, selection: Selection) -> Selection:
        recipe = recipe_of(selection)
        self.recipes.add(type(recipe))
        return recipe_compiler.compile_now(account, container, pickle.loads(pickle.dumps(recipe))).selection

    async def same(self, ask: Callable[[], Awaitable[Any]]) -> list[Page]:
        """Ask for pages twice, with selections as they are and as they arrive. Returns the pages."""
        both: list[tuple[str, list[Page]]] = []
        for self.are_sent in (False, True):
            self.found = []
            try:
                answer = await ask()
            except (Failure, test_sql.Refused) as failure:
                answer = repr(failure).partition("ActivityId")[0]
            both.append((repr(answer), self.found))
        assert both[0] == both[1]
        return both[0][1]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    return Pages(monkeypatch)


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    yield account
    await account.close()
    await engine.close()


async def test_sql_cases(pages: Pages, account: Account) -> None:
    clock = account.clock
    assert isinstance(clock, VirtualClock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    house = test_sql.House(account, clock, database, call)
    count = 0
    for case in test_sql.CASES:
        if "RAND()" not in case["query"].upper():
            count += len(await pages.same(lambda: test_sql.run_merged(house, case, 7)))  # noqa: B023 (run at once)
    assert count > len(test_sql.CASES)
    assert {each.__name__ for each in pages.recipes} == {"QueryRecipe", "PartialRecipe", "ItemsRecipe"}


async def test_user_functions_and_bulk_deletes(pages: Pages, account: Account) -> None:
    clock = account.clock
    assert isinstance(clock, VirtualClock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await call("POST", "/dbs", {"id": "d"})
    await call("POST", "/dbs/d/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    body = "function (n) { return n * 2; }"
    await call("POST", "/dbs/d/colls/c/udfs", {"id": "twice", "body": body})
    for number in range(5):
        key = {"x_ms_documentdb_partitionkey": '["k"]'}
        await call("POST", "/dbs/d/colls/c/docs", {"id": str(number), "pk": "k", "n": number}, **key)

    async def ask() -> Any:
        text = "SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > @least"
        query = {"query": text, "parameters": [{"name": "@least", "value": 3}]}
        status, answer, _ = await call("POST", "/dbs/d/colls/c/docs", query, **test_sql.MERGED_QUERY)
        return status, answer["Documents"]

    assert [len(rows) for rows, _, _ in await pages.same(ask)] == [3]
    procedure = "/dbs/d/colls/c/sprocs/__.sys.commonDelete"
    arguments = [{"rootSymbol": "c", "filterExpr": "c.n = 2", "orderByExpr": None, "limit": 10}]
    pages.are_sent = True
    headers = {"x_ms_documentdb_partitionkeyrangeid": "0"}
    status, answer, _ = await call("POST", procedure, arguments, **headers)
    assert (status, answer["count"]) == (200, 1)
    assert {each.__name__ for each in pages.recipes} == {"QueryRecipe", "FilterRecipe"}


READS = ("find", "aggregate", "count", "distinct")


async def test_mongo_cases(pages: Pages) -> None:
    house = await MongoHouse.open()
    kept: dict[str, Any] = {}
    count = 0
    for case in [*load_cases(), *load_cases("own_find_cases")]:
        command = decoded(case["command"])
        text = repr(command)
        if next(iter(command)) not in READS or any(each in text for each in ("$out", "$merge'", "$sample", "$rand")):
            continue
        for name, documents in {"c": case["docs"], **case.get("other", {})}.items():
            if kept.get(name) != documents:
                kept[name] = documents
                await house.ask({"drop": name})
                if documents:
                    await house.ask({"insert": name, "documents": decoded(documents)})

        async def ask() -> Any:
            answer = await house.ask(command)  # noqa: B023 (run at once)
            for each in ("operationTime", "$clusterTime"):
                answer.pop(each, None)
            return {**answer, "cursor": {**answer["cursor"], "id": 0}} if "cursor" in answer else answer

        count += len(await pages.same(ask))
    await house.close()
    assert count > 500
    assert {each.__name__ for each in pages.recipes} == {"DocumentsRecipe", "PartialRecipe"}


async def test_mongo_commands_of_their_own(pages: Pages) -> None:
    """What the corpus has not: orders of an index, bounds, variables, collations, JavaScript."""
    house = await MongoHouse.open()
    documents = [{"_id": number, "n": number % 5, "name": "Anna" if number % 2 else "BERT"} for number in range(20)]
    await house.ask({"insert": "c", "documents": documents})
    await house.ask({"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1"}]})
    caseless = {"locale": "en", "strength": 2}
    for command in (
        {"find": "c", "filter": {"n": {"$gt": 1}}, "sort": {"n": -1}, "limit": 7},
        {"find": "c", "filter": {"n": {"$gt": 1}}, "hint": "n_1", "min": {"n": 1}, "max": {"n": 3}},
        {"find": "c", "filter": {"n": {"$gte": 3}}, "limit": 3},
        {"find": "c", "filter": {"name": "anna"}, "collation": caseless},
        {"find": "c", "filter": {"$expr": {"$eq": ["$n", "$$wanted"]}}, "let": {"wanted": 2}},
        {"find": "c", "filter": {"$expr": {"$lt": ["$n", "$$NOW"]}, "$where": "this.n > 2"}},
        {"aggregate": "c", "pipeline": [{"$match": {"n": 2}}, {"$project": {"name": 1}}], "cursor": {}},
    ):

        async def ask() -> Any:
            answer = await house.ask(command)  # noqa: B023 (run at once)
            assert answer["ok"] == 1.0, answer
            return answer["cursor"]["firstBatch"]

        found = await pages.same(ask)
        assert found and sum([len(rows) for rows, _, _ in found]), command
    await house.close()


async def test_table_filters(pages: Pages, account: Account) -> None:
    table = await new_table(account, throughput_ru=18_000)
    await put(account, table, *test_table.ENTITIES)
    count = 0
    for case in test_table.CASES:
        count += len(await pages.same(lambda: filtered(account, table, case["filter"], 3)))  # noqa: B023
    assert count > len(test_table.CASES)
    assert {each.__name__ for each in pages.recipes} == {"FilterSource"}


async def test_graphs(pages: Pages) -> None:
    house = await GremlinHouse.open(clock=VirtualClock())
    await house.graph()
    for number in range(6):
        await house.run(f"g.addV('person').property('id', '{number}').property('pk', 'x').property('age', {number})")
    await house.run("g.V('1').addE('knows').to(g.V('2')).property('since', 2020)")
    for script in (
        "g.V().has('age', gt(2)).values('age')",
        "g.V().hasLabel('person').has('age', within(1, 2)).id()",
        "g.E().has('since', 2020).label()",
        "g.V().count()",
    ):
        await pages.same(lambda: house.run(script))  # noqa: B023
    await house.close()
    assert {each.__name__ for each in pages.recipes} == {"ItemsRecipe"}
