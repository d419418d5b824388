"""For which clients the server merges queries over several partitions, by the setting --queries. SDKs that merge get
the refusal with the plan, as from the service; others get rows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.merging_clients import QueryMode
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
QUERY = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "True",
}
FEATURES = "x-ms-cosmos-supported-query-features"

# What every client that merges has always merged, and what the oldest do not know.
FIRST = {
    "SELECT VALUE c.n FROM c ORDER BY c.n DESC": [5, 4, 3, 2, 1, 0],
    "SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n": [0, 1],
    "SELECT VALUE c.n FROM c ORDER BY c.list[0].x": [5, 4, 3, 2, 1, 0],
    "SELECT VALUE SUM(c.n) FROM c": [15],
}
LATER = {
    "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 1 LIMIT 2": [1, 2],
    "SELECT DISTINCT VALUE c.n % 2 FROM c ORDER BY c.n": [0, 1],
    "SELECT c.pk = 'k1' AS k, COUNT(1) AS x FROM c WHERE c.n = 1 GROUP BY c.pk = 'k1'": [{"k": True, "x": 1}],
    "SELECT COUNT(1) AS x, MAX(c.n) AS y FROM c": [{"x": 6, "y": 5}],
    "SELECT VALUE COUNT(1) + 1 FROM c": [7],
    "SELECT VALUE s FROM (SELECT VALUE MAX(c.n) FROM c) s": [5],
}
# A query that no SDK can merge is merged for all of them.
SUBQUERY = "SELECT VALUE s FROM (SELECT VALUE MAX(c.n) FROM c) s"

SDKS = [
    "azsdk-python-cosmos/4.14.0 Python/3.11.2 (Linux)",
    "azsdk-python-cosmos-async/4.14.0 Python/3.11.2",
    "azure-cosmos-js/4.4.1 (NODE-VERSION v20; linux)",
    "azsdk-java-cosmos/4.60.0 Linux/6.1 JRE/17",
    "cosmos-netstandard-sdk/3.46.0|1|X64|Linux|.NET 8|",
]
OLD_SDKS = [
    "linux/6.1 Nodejs/v20.20.2 documentdb-nodejs-sdk/1.15.3",
    "Linux/6.1 Python/3.11.2 documentdb-python-sdk/2.3.5",
    "Linux/6.1 Python/3.11.2 azure-cosmos/3.1.2",
]
OTHERS = ["azsdk-go-azcosmos/v1.4.0 (go1.22; linux)", "curl/8.5.0", "Ruby", "GuzzleHttp/7", ""]


class Doors:
    def __init__(self, account: Account, clock: VirtualClock) -> None:
        self.by_mode: dict[QueryMode, Caller] = {
            mode: Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False, queries=mode), clock)
            for mode in ("auto", "strict", "merge")
        }

    async def ask(self, mode: QueryMode, text: str, agent: str, **more: str) -> tuple[int, Any]:
        headers = {**QUERY, "user-agent": agent, **more}
        status, body, _ = await self.by_mode[mode]("POST", DOCS, {"query": text}, **headers)
        return status, body["Documents"] if status == 200 else body


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    doors = Doors(account, clock)
    call = doors.by_mode["auto"]
    await call("POST", "/dbs", {"id": "db"})
    made = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    await call("POST", "/dbs/db/colls", made, **{"x-ms-offer-throughput": "24000"})
    for n in range(6):
        headers = {"x-ms-documentdb-partitionkey": json.dumps([f"k{n}"])}
        await call("POST", DOCS, {"id": f"{n}", "pk": f"k{n}", "n": n, "list": [{"x": -n}, {"x": n}]}, **headers)
    yield doors
    await account.close()


def is_refused_with_a_plan(answer: tuple[int, Any]) -> bool:
    status, body = answer
    return status == 400 and "rewrittenQuery" in json.loads(body["additionalErrorInfo"])["queryInfo"]


@pytest.mark.parametrize("agent", OTHERS)
async def test_clients_that_announce_nothing_get_rows(doors: Doors, agent: str) -> None:
    for text, rows in (FIRST | LATER).items():
        assert await doors.ask("auto", text, agent) == (200, rows), text


@pytest.mark.parametrize("agent", SDKS)
async def test_sdks_that_merge_are_left_to_it(doors: Doors, agent: str) -> None:
    """So that what fails with the service fails here: with the plan, or without one if there is none."""
    for text in FIRST | LATER:
        if text == SUBQUERY:
            assert (await doors.ask("auto", text, agent))[0] == 200
            continue
        status, body = await doors.ask("auto", text, agent)
        if "+ 1" in text:
            assert status == 400 and "Compositions of aggregates" in body["message"]
        else:
            assert is_refused_with_a_plan((status, body)), text
            assert "start the server with --queries merge" in body["message"]


async def test_what_a_client_announces_it_merges(doors: Doors) -> None:
    text = next(iter(FIRST))
    for more in ({FEATURES: "OrderBy"}, {"x-ms-documentdb-query-parallelizecrosspartitionquery": "True"}):
        assert is_refused_with_a_plan(await doors.ask("auto", text, "own/1.0", **more))
    assert (await doors.ask("auto", text, "own/1.0", **{FEATURES: " "}))[0] == 200
    grouped = "SELECT c.n, COUNT(1) AS x FROM c GROUP BY c.n"
    plan = {"x-ms-cosmos-is-query-plan-request": "True", FEATURES: "Aggregate, OrderBy"}
    status, body = await doors.ask("auto", grouped, SDKS[0], **plan)
    assert status == 400 and "does not support: GroupBy. With --queries merge" in body["message"]


@pytest.mark.parametrize("agent", OLD_SDKS)
async def test_old_sdks_merge_what_they_know(doors: Doors, agent: str) -> None:
    """They would take the parts of other queries for their rows."""
    for text in FIRST:
        assert is_refused_with_a_plan(await doors.ask("auto", text, agent)), text
        assert is_refused_with_a_plan(await doors.ask("strict", text, agent)), text
    for text, rows in LATER.items():
        assert await doors.ask("auto", text, agent) == (200, rows), text
    status, body = await doors.ask("strict", "SELECT DISTINCT VALUE c.n FROM c", agent)
    assert status == 400 and "the calling client does not support: Distinct" in body["message"]


@pytest.mark.parametrize("agent", [SDKS[0], OLD_SDKS[0], OTHERS[0]])
async def test_strict_and_merge_are_for_all_clients(doors: Doors, agent: str) -> None:
    for text, rows in (FIRST | LATER).items():
        assert await doors.ask("merge", text, agent, **{FEATURES: "OrderBy"}) == (200, rows), text
        if text != SUBQUERY:
            assert (await doors.ask("strict", text, agent))[0] == 400, text


async def test_a_plan_needs_no_values_of_parameters(doors: Doors) -> None:
    """Go's client asks for the plan of a text before a query engine replaces the text (its emulator tests)."""
    plan = {"content-type": "application/query+json", "x-ms-cosmos-is-query-plan-request": "True", FEATURES: "OrderBy"}
    text = "SELECT * FROM c WHERE c.pk = @pk AND c.n > @n ORDER BY c.n"
    call = doors.by_mode["auto"]
    status, body, _ = await call("POST", DOCS, {"query": text}, **plan)
    assert status == 200 and "@pk" in body["queryInfo"]["rewrittenQuery"]
    assert [(each["min"], each["max"]) for each in body["queryRanges"]] == [("", "FF")]
    given = [{"name": "@pk", "value": "k1"}, {"name": "@n", "value": 0}]
    status, body, _ = await call("POST", DOCS, {"query": text, "parameters": given}, **plan)
    assert status == 200 and body["queryRanges"][0]["min"] == body["queryRanges"][0]["max"] != ""
    status, body = await doors.ask("auto", text, "curl/8")
    assert status == 400 and "Identifier '@pk' could not be resolved" in body["message"]


async def test_what_was_refused_for_other_reasons_is_refused(doors: Doors) -> None:
    for mode in doors.by_mode:
        for text, part in [
            ("SELECT * FROM c ORDER BY c.n, c.pk", "composite index"),
            ("SELECT DISTINCT c.n, c.pk FROM c ORDER BY c.n, c.pk", "composite index"),
            ("SELECT c.n, COUNT(1) FROM c", "GROUP BY"),
        ]:
            status, body = await doors.ask(mode, text, "curl/8")
            assert status == 400 and part in body["message"], text
        off = {"x-ms-documentdb-query-enablecrosspartition": "False"}
        status, body = await doors.ask(mode, "SELECT VALUE COUNT(1) FROM c", "curl/8", **off)
        assert status == 400 and "Cross partition query is required but disabled" in body["message"]
