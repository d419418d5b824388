"""Hostile queries in process: every one gives way often enough, and is answered or refused with a reason."""

from __future__ import annotations

from typing import Any

import uvloop
from hostile import sql_requests
from hostile.harness import STALL_UNITS_MAX, watched
from support.caller import KEY, Caller
from support.limits import WithLimits

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

SIZE = 12_000  # bytes of the items: their squares are large enough
SIZE_GENERATED = 6_000
GENERATED = 40
_ITEMS = "/dbs/db/colls/c/docs"
_KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
_QUERY = {**_KEY, "x-ms-documentdb-isquery": "True", "x-ms-max-item-count": "-1"}
_CONTAINER = {
    "id": "c",
    "partitionKey": {"paths": ["/pk"]},
    "indexingPolicy": {"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]},
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/s", "language": "en-US"}]},
}


class House:
    def __init__(self, account: Account, call: Caller) -> None:
        self.account, self._call = account, call

    @classmethod
    async def open(cls, size: int) -> House:
        clock = VirtualClock()
        account = await Account.open(MemoryEngine(), clock)
        house = cls(account, Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock))
        await house.post("/dbs", {"id": "db"})
        await house.post("/dbs/db/colls", _CONTAINER)
        for name, body in sql_requests.FUNCTIONS.items():
            await house.post("/dbs/db/colls/c/udfs", {"id": name, "body": body})
        for item in sql_requests.items(size):
            await house.post(_ITEMS, {"pk": "p", **item}, **_KEY)
        return house

    async def post(self, path: str, body: Any, **headers: str) -> None:
        status, _, response = await self._call("POST", path, body, **headers)
        assert status == 201, response.body

    async def query(self, query: sql_requests.Query) -> tuple[int, Any]:
        parameters = [{"name": name, "value": value} for name, value in (query.parameters or {}).items()]
        status, body, _ = await self._call("POST", _ITEMS, {"query": query.text, "parameters": parameters}, **_QUERY)
        return status, body

    async def judge(self, query: sql_requests.Query) -> int:
        async with watched() as seen:
            status, body = await self.query(query)
        assert status < 500, (query.name, status, body)
        assert seen.units <= STALL_UNITS_MAX, f"{query.name}: {seen.units} units between two turns\n{query.text[:2000]}"
        return status


# Of the named ones, those that may be refused at this size, for what they ask.
_REFUSED = {
    "ARRAY of long strings": 413,  # 9 GB
    "three loops of 1,000": 400,
    "no row of a JOIN": 400,
    "EXISTS in EXISTS": 400,
    "ST_WITHIN of rings": 400,
    "a long OR": 400,
}


def test_named(with_limits: WithLimits) -> None:
    with_limits(QUERY_TUPLES_MAX=1_100_000)  # in place of a minute

    async def run() -> dict[str, int]:
        house = await House.open(SIZE)
        found = {query.name: await house.judge(query) for query in sql_requests.named(SIZE)}
        await house.account.close()
        return found

    statuses = uvloop.run(run())
    refused = {name: status for name, status in statuses.items() if status >= 300}
    assert refused.items() <= _REFUSED.items()


def test_generated(seed: int, with_limits: WithLimits) -> None:
    with_limits(QUERY_TUPLES_MAX=50_000)

    async def run() -> list[int]:
        house = await House.open(SIZE_GENERATED)
        found = [await house.judge(query) for query in sql_requests.generated(seed, GENERATED)]
        await house.account.close()
        return found

    statuses = uvloop.run(run())
    assert sum(status == 200 for status in statuses) > GENERATED // 2, "most are answered"
