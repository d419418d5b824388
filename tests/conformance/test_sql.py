"""The query corpus: every case of sql/cases.jsonl on its dataset, in process. On one partition through the account, and
on four through the SQL door for a client that cannot merge; with all rows in one page, and with one row a page.

A case says which rows a query gives, in which order if that counts, or how it is refused. sql/exceptions.json names the
cases that are not met as they stand, each with the reason and with what is asked of them instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from support.caller import KEY, Caller

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.errors import error_response
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.storage.memory import MemoryEngine

HERE = Path(__file__).parent / "sql"
CASES = [json.loads(line) for line in (HERE / "cases.jsonl").read_text("utf-8").splitlines()]
EXCEPTIONS: dict[str, dict[str, Any]] = json.loads((HERE / "exceptions.json").read_text("utf-8"))

FULL_TEXT = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/body", "language": "en-US"}]}
MERGED_QUERY = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "true",
    "x-ms-documentdb-query-enablecrosspartition": "true",
}
SYSTEM = ("_rid", "_self", "_etag", "_ts", "_attachments")


@cache
def dataset(name: str) -> list[dict[str, Any]]:
    return json.loads((HERE / "datasets" / f"{name}.json").read_text("utf-8"))  # type: ignore[no-any-return]


def policies(case: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if "policy" in case:
        given["indexingPolicy"] = {
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": '/"_etag"/?'}],
            **case["policy"],
        }
    if case["group"] == "fulltext":
        given["fullTextPolicy"] = FULL_TEXT
    return given


@dataclass
class House:
    """The containers of the corpus, one for each dataset with its policies and partitions. Cases only read."""

    account: Account
    clock: VirtualClock
    database: Record
    call: Caller
    made: dict[str, Container] = field(default_factory=dict)

    async def container(self, case: dict[str, Any], *, is_merged: bool) -> Container:
        name = json.dumps([case["data"], policies(case), is_merged], sort_keys=True)
        if name in self.made:
            return self.made[name]
        body = {"id": f"c{len(self.made)}", "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2}}
        throughput = Throughput(24_000 if is_merged else 400)
        made = await containers.create_container(self.account, self.database, body | policies(case), throughput)
        assert len(made.partitions) == (4 if is_merged else 1)
        for item in case["data"] if isinstance(case["data"], list) else dataset(case["data"]):
            await items.create(made, dict(item), ItemOptions(key=made.key_of(item)), self.clock)
        self.made[name] = made
        return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[House]:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    yield House(account, clock, await containers.create_database(account, {"id": "d"}, None), call)
    await account.close()
    await engine.close()


class Refused(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


async def run(house: House, case: dict[str, Any], page_items: int) -> list[Any]:
    """The rows of a case on one partition, all pages joined."""
    account, container = house.account, await house.container(case, is_merged=False)
    house.clock.advance(60)  # until the request units of the cases before are there again
    rows: list[Any] = []
    continuation = None
    for _ in range(10_000):
        bound = compile_query(case["query"], container.policies.computed_properties).bind(
            case.get("params", {}), container.query_context()
        )
        options = FeedOptions(
            range_id=str(container.map.ranges[0].id), page_items=page_items, continuation=continuation
        )
        page = await item_pages.query(account, container, bound, case["query"].encode(), options)
        rows += [orjson.loads(row) for row in page.rows]
        continuation = page.continuation
        if continuation is None:
            return rows
    raise AssertionError("it never ends")


async def run_merged(house: House, case: dict[str, Any], page_items: int) -> list[Any]:
    """The same on four partitions, for a client that announces nothing and asks for page after page."""
    container = await house.container(case, is_merged=True)
    house.clock.advance(60)
    parameters = [{"name": name, "value": value} for name, value in case.get("params", {}).items()]
    headers = {**MERGED_QUERY, "x-ms-max-item-count": str(page_items)}
    rows: list[Any] = []
    for _ in range(10_000):
        status, body, response = await house.call(
            "POST",
            f"/dbs/d/colls/{container.name}/docs",
            {"query": case["query"], "parameters": parameters},
            **headers,
        )
        if status != 200:
            raise Refused(status, body["message"])
        rows += body["Documents"]
        continuation = dict(response.headers).get(b"x-ms-continuation")
        if continuation is None:
            return rows
        headers["x-ms-continuation"] = continuation.decode()
    raise AssertionError("it never ends")


def without_system(value: Any) -> Any:
    """Items come back with what the server adds to them; the cases do not say it."""
    if isinstance(value, dict):
        is_item = "_rid" in value and "_etag" in value
        return {name: without_system(inner) for name, inner in value.items() if not (is_item and name in SYSTEM)}
    return [without_system(inner) for inner in value] if isinstance(value, list) else value


def same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool) or first is None or second is None:
        return first is second
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    return type(first) is type(second) and bool(first == second)


def same_set(found: list[Any], expected: list[Any]) -> bool:
    rest = list(found)
    for row in expected:
        place = next((at for at, other in enumerate(rest) if same(row, other)), None)
        if place is None:
            return False
        del rest[place]
    return not rest


WAYS = {
    "one page": (1000, run),
    "a row a page": (1, run),
    "merged": (1000, run_merged),
    "merged, a row a page": (1, run_merged),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_case(house: House, case: dict[str, Any]) -> None:
    case = case | EXCEPTIONS.get(case["id"], {})
    for way, (page_items, run_it) in WAYS.items():
        try:
            rows = without_system(await run_it(house, case, page_items))
        except Failure as failure:
            status, _, body = error_response(failure, "activity")
            check_refusal(case, status, body.decode(), way)
        except Refused as refused:
            check_refusal(case, refused.status, refused.body, way)
        else:
            assert "error" not in case, way
            is_met = same(rows, case["expect"]) if case["ordered"] else same_set(rows, case["expect"])
            assert is_met, f"{way}: {case['query']}\ngave     {rows}\nexpected {case['expect']}"


def check_refusal(case: dict[str, Any], status: int, body: str, way: str) -> None:
    assert "error" in case, f"{way}: {case['query']} is refused: {body}"
    assert status == (case["error"] if isinstance(case["error"], int) else 400), way
    assert isinstance(case["error"], int) or case["error"] in body, way


def test_exceptions_are_cases() -> None:
    assert EXCEPTIONS.keys() <= {case["id"] for case in CASES}
    assert all(exception["reason"] for exception in EXCEPTIONS.values())
