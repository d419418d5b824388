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


async def test_clients_before_vector_tokens_get_numbers(call: Caller) -> None:
    """documentdb 1.15 for JavaScript (API version 2017-11-15) says "Invalid integer: 1#404", azure-documentdb 1.15 for
    Java throws a NumberFormatException."""
    old = {**_KEY, "x-ms-version": "2017-11-15"}
    tokens = []

    async def send(method: str, path: str, body: Any = None, **headers: str) -> int:
        status, _, response = await call(method, path, body, **old, **headers)
        lines = dict(line.split(b": ", 1) for line in response.lines.split(b"\r\n")) if response.lines else {}
        tokens.append((lines or dict(response.headers))[b"x-ms-session-token"])
        return status

    docs, item = "/dbs/db/colls/c/docs", {"id": "1", "pk": "k"}
    assert await send("POST", docs, item) == 201
    assert await send("GET", f"{docs}/1") == 200
    assert await send("GET", f"{docs}/2") == 404
    assert await send("POST", docs, item) == 409
    assert await send("GET", docs) == 200
    assert await send("GET", docs, **{"a-im": "Incremental feed"}) == 200
    query = {"query": "SELECT * FROM c"}
    assert await send("POST", docs, query, **{"x-ms-documentdb-isquery": "True"}) == 200
    batch = [{"operationType": "Read", "id": "1"}]
    flags = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
    assert await send("POST", docs, batch, **flags) == 200
    assert await send("GET", f"{docs}/1", **{"x-ms-session-token": tokens[-1].decode()}) == 200
    assert set(tokens) == {b"0:1"}


@pytest.mark.parametrize(
    ("agent", "is_one"),
    [
        ("azsdk-java-cosmos/4.81.0 Linux/6.1 JRE/17.0.15", True),
        ("documentdb-java-sdk/2.6.5 Linux/6.1 JRE/17.0.15", True),
        ("cosmos-netstandard-sdk/3.40.0", True),
        ("azsdk-python-cosmos/4.9.0 Python/3.11", False),
        ("azure-cosmos-js/4.4.1", False),
    ],
)
async def test_clients_that_read_the_token_of_one_range_never_get_a_list(agent: str, is_one: bool) -> None:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await call("POST", "/dbs", {"id": "db"})
    await call("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    docs, named = "/dbs/db/colls/c/docs", {"user-agent": agent, "x-ms-documentdb-partitionkeyrangeid": "0"}
    for number in range(12):
        key = {"x-ms-documentdb-partitionkey": f'["{number}"]'}
        await call("POST", docs, {"id": str(number), "pk": str(number), "n": number}, **key)
    query = {"query": "SELECT VALUE c.n FROM c ORDER BY c.n"}
    ask = {**named, "x-ms-documentdb-isquery": "True", "x-ms-max-item-count": "1"}
    _, page, response = await call("POST", docs, query, **ask)
    seen = page["Documents"]
    reshape = await account.reshaper.split(account.container("db", "c"), 0)
    await account.reshaper.finished(reshape)
    # The query has begun in range 0 and goes on there, now with rows of both children.
    ask |= {"x-ms-max-item-count": "100", "x-ms-continuation": dict(response.headers)[b"x-ms-continuation"].decode()}
    _, page, response = await call("POST", docs, query, **ask)
    assert seen + page["Documents"] == list(range(12))
    token = dict(response.headers)[b"x-ms-session-token"].decode()
    assert len(token.split(",")) == (1 if is_one else 2)
    if is_one:
        assert token.startswith("0:1#")
    # A change feed without a range is of both, too; and the token is taken back.
    feed = {"user-agent": agent, "a-im": "Incremental Feed", "x-ms-session-token": token}
    _, page, response = await call("GET", docs, **feed)
    assert len(page["Documents"]) == 12
    assert len(dict(response.headers)[b"x-ms-session-token"].split(b",")) == (1 if is_one else 2)
    await account.close()


async def test_a_filter_that_the_client_left_in_means_true(call: Caller) -> None:
    # Java's azure-documentdb 1.9.1 sends the rewritten query of the plan as it is in its first request.
    await call("POST", "/dbs/db/colls/c/docs", {"id": "1", "pk": "k", "n": 1}, **_KEY)
    asked = {"query": "SELECT c.id FROM c WHERE c.n > 0 ORDER BY c.n", "parameters": []}
    features = {"x-ms-cosmos-supported-query-features": "OrderBy", "x-ms-cosmos-is-query-plan-request": "True"}
    _, plan, _ = await call("POST", "/dbs/db/colls/c/docs", asked, **features)
    rewritten = plan["queryInfo"]["rewrittenQuery"]
    assert "{documentdb-formattableorderbyquery-filter}" in rewritten
    status, page, _ = await call("POST", "/dbs/db/colls/c/docs", {"query": rewritten}, **_QUERY)
    assert (status, [row["payload"] for row in page["Documents"]]) == (200, [{"id": "1"}])
    literal = "SELECT VALUE '{documentdb-formattableorderbyquery-filter}'"
    _, page, _ = await call("POST", "/dbs/db/colls/c/docs", {"query": literal}, **_QUERY)
    assert page["Documents"] == ["{documentdb-formattableorderbyquery-filter}"]


@pytest.mark.parametrize(("kind", "paths"), [("MultiHash", ["/a", "/b"]), ("Hash", ["/a"])])
async def test_versions_of_keys_may_be_named(call: Caller, kind: str, paths: list[str]) -> None:
    # Java's client sends the name of its enumeration.
    body = {"id": "named", "partitionKey": {"paths": paths, "kind": kind, "version": "V2"}}
    status, made, _ = await call("POST", "/dbs/db/colls", body)
    assert (status, made["partitionKey"]["version"]) == (201, 2)
    body["partitionKey"]["version"] = "V3"  # type: ignore[index]
    status, made, _ = await call("PUT", "/dbs/db/colls/named", body)
    assert status == 400
    assert "partitionKey.version 'V3' is not valid" in made["message"]


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
