"""What released clients leave to the service, or send to one partition when they merge. Their own tests show it; those
of Python's client do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

_KEY = {"x-ms-documentdb-partitionkey": '["k"]'}
_QUERY = {**_KEY, "x-ms-documentdb-isquery": "True", "content-type": "application/query+json"}
_ENVELOPE = 'SELECT c._rid, [{"item": c.n}] AS orderByItems, c.id AS payload FROM c WHERE %s ORDER BY c.n'


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    yield caller
    await account.close()


async def test_a_key_that_says_no_version_is_hashed_by_the_first(call: Caller) -> None:
    # JavaScript's client sends none. Its tests want A and 5 in different ranges, and they are with version 1 only.
    body = {"id": "halves", "partitionKey": {"paths": ["/pk"]}}
    status, made, _ = await call("POST", "/dbs/db/colls", body, **{"x-ms-offer-throughput": "12000"})
    assert (status, made["partitionKey"]) == (201, {"paths": ["/pk"], "kind": "Hash", "version": 1})
    for text, key in (('["A"]', "A"), ("[5]", 5)):
        headers = {"x-ms-documentdb-partitionkey": text}
        assert (await call("POST", "/dbs/db/colls/halves/docs", {"id": "1", "pk": key}, **headers))[0] == 201
    for range_id in ("0", "1"):
        headers = {"x-ms-documentdb-partitionkeyrangeid": range_id}
        _, read, _ = await call("GET", "/dbs/db/colls/halves/docs", None, **headers)
        assert len(read["Documents"]) == 1
    multi = {"id": "m", "partitionKey": {"paths": ["/a", "/b"], "kind": "MultiHash"}}
    assert (await call("POST", "/dbs/db/colls", multi))[1]["partitionKey"]["version"] == 2


async def test_a_replacement_may_leave_the_version_of_the_key_out(call: Caller) -> None:
    for version in (1, 2):
        await call(
            "POST", "/dbs/db/colls", {"id": f"v{version}", "partitionKey": {"paths": ["/pk"], "version": version}}
        )
        body = {"id": f"v{version}", "partitionKey": {"paths": ["/pk"]}, "defaultTtl": 5}
        status, kept, _ = await call("PUT", f"/dbs/db/colls/v{version}", body)
        assert (status, kept["partitionKey"]["version"], kept["defaultTtl"]) == (200, version, 5)


async def test_who_merges_goes_on_with_another_filter(call: Caller) -> None:
    """A continuation of such a client holds the order keys of the last row and the partition's own continuation. It
    goes on with both, the keys as a filter: JavaScript's with query control, and those of .NET and Java."""
    for n in range(20):
        await call("POST", "/dbs/db/colls/c/docs", {"id": f"{n}", "pk": "k", "n": n // 3, "x": n % 2}, **_KEY)
    everything = [f"{n}" for n in range(20)]
    for begun, going_on in [
        ("(c.x < @x) AND (true)", "(c.x < @x) AND ((c.n >= 2))"),
        ("(true)", "((c.n >= 2 AND c.n >= 0))"),
        ("((c.x = 0 OR c.x = 1)) AND (true)", "((c.x = 0 OR c.x = 1)) AND (c.n >= 2)"),
    ]:
        status, first, token = await _page(call, _ENVELOPE % begun)
        assert (status, len(first), token is None) == (200, 7, False)
        status, rest, last = await _page(call, _ENVELOPE % going_on, token)
        assert (status, first + rest, last) == (200, everything, None)


async def test_another_order_or_other_rows_are_another_query(call: Caller) -> None:
    for n in range(20):
        await call("POST", "/dbs/db/colls/c/docs", {"id": f"{n}", "pk": "k", "n": n}, **_KEY)
    begun = _ENVELOPE % "(true)"
    _, _, token = await _page(call, begun)
    for other in (f"{begun} DESC", begun.replace("c.id AS", "c.n AS"), begun.replace("ORDER BY c.n", "ORDER BY c.id")):
        assert (await _page(call, other, token))[0] == 400
    plain = "SELECT * FROM c WHERE %s ORDER BY c.n"
    _, _, token = await _page(call, plain % "true")
    assert (await _page(call, plain % "c.n >= 2", token))[0] == 400


async def _page(call: Caller, text: str, token: str | None = None) -> tuple[int, list[Any], str | None]:
    headers = {**_QUERY, "x-ms-max-item-count": "7"}
    if token is not None:
        headers |= {"x-ms-continuation": token, "x-ms-max-item-count": "100"}
    body = {"query": text, "parameters": [{"name": "@x", "value": 2}]}
    status, answer, response = await call("POST", "/dbs/db/colls/c/docs", body, **headers)
    rows = [row.get("payload") for row in answer["Documents"]] if status == 200 else []
    following = dict(response.headers).get(b"x-ms-continuation")
    return status, rows, following.decode() if following is not None else None
