"""The requests that `Microsoft.Azure.Cosmos` for .NET sends in gateway mode, as its sources make them: no .NET runtime
is needed to try them. Its batches are in `test_sqldoor_dotnet_batches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.http import Response
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
# RequestInvokerHandler, GatewayStoreClient, CosmosHttpClientCore.
CLIENT = {
    "user-agent": "cosmos-netstandard-sdk/3.62.0|1|X64|Linux|.NET 8.0|N|F 00000001|",
    "x-ms-version": "2020-07-15",
    "x-ms-cosmos-sdk-supportedcapabilities": "25",
    "x-ms-activity-id": "6b5e7c64-3a65-4b2c-9c3c-0f4b5d7a8e9f",
    "cache-control": "no-cache",
    "accept": "application/json",
}
# QueryRequestOptions.PopulateRequestOptions, CosmosQueryClientCore.ExecuteItemQueryAsync.
QUERY = {
    **CLIENT,
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "True",
    "x-ms-documentdb-query-iscontinuationexpected": "False",
    "x-ms-documentdb-populatequerymetrics": "True",
    "x-ms-cosmos-supported-serialization-formats": "JsonText,CosmosBinary",
    "x-ms-cosmos-correlated-activityid": "11111111-2222-3333-4444-555555555555",
    "x-ms-cosmos-query-optimisticdirectexecute": "False",
    "x-ms-max-item-count": "1000",
}
# QueryPlanRetriever.SupportedQueryFeatures as its ToString() writes them.
FEATURES = (
    "Aggregate, CompositeAggregate, Distinct, GroupBy, MultipleAggregates, MultipleOrderBy, OffsetAndLimit, OrderBy, "
    "Top, NonValueAggregate, DCount, NonStreamingOrderBy, CountIf, HybridSearch, WeightedRankFusion, "
    "HybridSearchSkipOrderByRewrite"
)
PLAN = {
    **CLIENT,
    "content-type": "application/query+json",
    "x-ms-cosmos-is-query-plan-request": "True",
    "x-ms-cosmos-supported-query-features": FEATURES,
    "x-ms-cosmos-query-version": "1.0",
    "x-ms-cosmos-correlated-activityid": "11111111-2222-3333-4444-555555555555",
}


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    """A container of four ranges with eight items."""
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"}, **CLIENT)
    container = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    offered = {**CLIENT, "x-ms-offer-throughput": "24000"}
    assert (await caller("POST", "/dbs/db/colls", container, **offered))[0] == 201
    for n in range(8):
        item = {"id": f"{n}", "pk": f"p{n}", "n": n, "half": n % 2}
        status, _, _ = await caller("POST", DOCS, item, **CLIENT, **key(f"p{n}"))
        assert status == 201
    yield caller
    await account.close()


def key(value: str) -> dict[str, str]:
    return {"x-ms-documentdb-partitionkey": f'["{value}"]'}


def header(response: Response, name: bytes) -> bytes | None:
    lines = dict(line.split(b": ", 1) for line in response.lines.split(b"\r\n")) if response.lines else {}
    return lines.get(name, dict(response.headers).get(name))


async def ranges_of(call: Caller) -> tuple[str, list[dict[str, Any]], bytes]:
    """PartitionKeyRangeCache: the ranges by the container's rid, page after page until 304; the rid, the ranges and
    the last etag."""
    _, container, _ = await call("GET", "/dbs/db/colls/c", **CLIENT)
    path = f"/{container['_self']}pkranges"
    headers = {**CLIENT, "x-ms-max-item-count": "-1", "a-im": "Incremental Feed"}
    ranges: list[dict[str, Any]] = []
    for _ in range(10):
        status, page, response = await call("GET", path, **headers)
        etag = header(response, b"etag")
        assert etag is not None
        if status == 304:
            return container["_rid"], ranges, etag
        assert status == 200
        ranges += page["PartitionKeyRanges"]
        headers["if-none-match"] = etag.decode()
    raise AssertionError("the ranges do not end")


async def test_the_first_request_and_what_it_is_read_for(call: Caller) -> None:
    """AccountProperties: without locations for a thin client the SDK stays with the gateway."""
    status, account, _ = await call("GET", "/", **CLIENT)
    assert status == 200
    assert account["writableLocations"] and account["readableLocations"]
    assert account["userConsistencyPolicy"]["defaultConsistencyLevel"] == "Session"
    assert isinstance(account["queryEngineConfiguration"], str)
    assert not any(name.lower().startswith("thinclient") for name in account)


async def test_ranges_by_the_rid_of_the_container(call: Caller) -> None:
    rid, ranges, _ = await ranges_of(call)
    assert (len(ranges), ranges[0]["minInclusive"], ranges[-1]["maxExclusive"]) == (4, "", "FF")
    # GatewayAddressCache and queries name the range together with the container's rid.
    headers = {**QUERY, "x-ms-documentdb-partitionkeyrangeid": f"{rid},{ranges[0]['id']}"}
    assert (await call("POST", DOCS, {"query": "SELECT * FROM c"}, **headers))[0] == 200


async def merged(call: Caller, text: str) -> tuple[dict[str, Any], list[Any]]:
    """The plan from the gateway, as on every system but Windows, and the rows of each range."""
    status, plan, _ = await call("POST", DOCS, {"query": text}, **PLAN)
    assert status == 200
    rewritten = plan["queryInfo"]["rewrittenQuery"] or text
    rewritten = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true")
    rows = []
    rid, ranges, _ = await ranges_of(call)
    for each in ranges:
        # FeedRangeEpk: the range's id, and its bounds as effective partition keys.
        headers = {
            **QUERY,
            "x-ms-documentdb-partitionkeyrangeid": f"{rid},{each['id']}",
            "x-ms-read-key-type": "EffectivePartitionKeyRange",
            "x-ms-start-epk": each["minInclusive"],
            "x-ms-end-epk": each["maxExclusive"],
        }
        status, page, _ = await call("POST", DOCS, {"query": rewritten}, **headers)
        assert status == 200, page
        rows += page["Documents"]
    return plan, rows


async def test_query_plans_come_from_the_gateway(call: Caller) -> None:
    plan, rows = await merged(call, "SELECT c.id FROM c ORDER BY c.n DESC")
    assert plan["partitionedQueryExecutionInfoVersion"] == 2
    assert plan["queryInfo"]["orderBy"] == ["Descending"]
    assert sorted(row["orderByItems"][0]["item"] for row in rows) == list(range(8))
    plan, rows = await merged(call, "SELECT VALUE COUNT(1) FROM c")
    assert plan["queryInfo"]["aggregates"] == ["Count"]
    assert sum(row[0]["item"] for row in rows) == 8
    plan, rows = await merged(call, "SELECT c.half, COUNT(1) AS number FROM c GROUP BY c.half")
    assert plan["queryInfo"]["groupByAliasToAggregateType"] == {"half": None, "number": "Count"}
    assert {row["payload"]["half"] for row in rows} == {0, 1}
    plan, _ = await merged(call, "SELECT TOP 3 * FROM c WHERE c.pk = 'p1'")
    assert plan["queryInfo"]["top"] == 3
    assert len(plan["queryRanges"]) == 1


async def test_optimistic_direct_execution_needs_no_plan(call: Caller) -> None:
    """On one range the whole query is sent, and the range answers it as it is."""
    headers = {**QUERY, **key("p3"), "x-ms-cosmos-query-optimisticdirectexecute": "True"}
    del headers["x-ms-documentdb-query-enablecrosspartition"]
    text = "SELECT c.pk, COUNT(1) AS number FROM c GROUP BY c.pk ORDER BY c.pk"
    status, page, _ = await call("POST", DOCS, {"query": "SELECT VALUE MAX(c.n) FROM c"}, **headers)
    assert (status, page["Documents"]) == (200, [3])
    status, page, _ = await call("POST", DOCS, {"query": text.removesuffix(" ORDER BY c.pk")}, **headers)
    assert (status, page["Documents"]) == (200, [{"pk": "p3", "number": 1}])


async def test_a_query_over_several_ranges_is_not_merged_for_it(call: Caller) -> None:
    status, refused, _ = await call("POST", DOCS, {"query": "SELECT VALUE COUNT(1) FROM c"}, **QUERY)
    assert (status, "can not be directly served by the gateway" in refused["message"]) == (400, True)


async def test_read_many(call: Caller) -> None:
    """ReadManyQueryHelper: one query for each range, with all pairs of id and key on it."""
    text = (
        'SELECT * FROM c WHERE ( ( c.id = @param_id0 AND c["pk"] = @param_pk0 ) OR '
        '( c.id = @param_id1 AND IS_DEFINED(c["pk"]) = false ) )'
    )
    parameters = [
        {"name": "@param_id0", "value": "2"},
        {"name": "@param_pk0", "value": "p2"},
        {"name": "@param_id1", "value": "3"},
    ]
    rid, ranges, _ = await ranges_of(call)
    found = []
    for each in ranges:
        headers = {**QUERY, "x-ms-documentdb-partitionkeyrangeid": f"{rid},{each['id']}"}
        status, page, _ = await call("POST", DOCS, {"query": text, "parameters": parameters}, **headers)
        assert status == 200
        found += [item["id"] for item in page["Documents"]]
    assert found == ["2"]


async def test_patch(call: Caller) -> None:
    headers = {**CLIENT, **key("p1"), "content-type": "application/json-patch+json"}
    body = {"operations": [{"op": "incr", "path": "/n", "value": 5}], "condition": "from c where c.n = 1"}
    status, item, _ = await call("PATCH", f"{DOCS}/1", body, **headers)
    assert (status, item["n"]) == (200, 6)
    assert (await call("PATCH", f"{DOCS}/1", body, **headers))[0] == 412


async def test_writes_without_content(call: Caller) -> None:
    headers = {**CLIENT, **key("p1"), "prefer": "return=minimal", "x-ms-documentdb-is-upsert": "True"}
    status, body, response = await call("POST", DOCS, {"id": "1", "pk": "p1"}, **headers)
    assert (status, body) == (200, None)
    assert header(response, b"etag") and header(response, b"x-ms-session-token")


async def test_the_leases_of_a_change_feed_processor(call: Caller) -> None:
    """DocumentServiceLeaseStoreCosmos and DocumentServiceLeaseUpdaterCosmos, on a container with the key /id."""
    await call("POST", "/dbs/db/colls", {"id": "l", "partitionKey": {"paths": ["/id"], "kind": "Hash"}}, **CLIENT)
    leases = "/dbs/db/colls/l/docs"
    prefix = "p:localhost_rid_rid"
    lock, marker, lease = f"{prefix}.lock", f"{prefix}.info", f"{prefix}..0"
    assert (await call("GET", f"{leases}/{marker}", **CLIENT, **key(marker)))[0] == 404
    status, _, response = await call("POST", leases, {"id": lock, "ttl": 60}, **CLIENT, **key(lock))
    assert status == 201
    assert (await call("POST", leases, {"id": lock, "ttl": 60}, **CLIENT, **key(lock)))[0] == 409
    document = {"id": lease, "LeaseToken": "0", "version": 0, "Owner": None, "ContinuationToken": None}
    assert (await call("POST", leases, document, **CLIENT, **key(lease)))[0] == 201
    assert (await call("POST", leases, {"id": marker}, **CLIENT, **key(marker)))[0] == 201
    etag = header(response, b"etag")
    assert etag is not None
    released = {**CLIENT, **key(lock), "if-match": etag.decode()}
    assert (await call("DELETE", f"{leases}/{lock}", **released))[0] == 204
    query = {"query": f"SELECT * FROM c WHERE STARTSWITH(c.id, '{prefix}..')"}
    status, page, _ = await call("POST", leases, query, **QUERY)
    assert (status, [each["id"] for each in page["Documents"]]) == (200, [lease])
    owned = {**document, "Owner": "host"}
    known = {**CLIENT, **key(lease), "if-match": page["Documents"][0]["_etag"]}
    assert (await call("PUT", f"{leases}/{lease}", owned, **known))[0] == 200
    assert (await call("PUT", f"{leases}/{lease}", owned, **known))[0] == 412  # another host was faster


async def test_the_change_feed(call: Caller) -> None:
    """ChangeFeedModeIncremental and the start visitors: from the beginning, and on from the etag."""
    rid, ranges, _ = await ranges_of(call)
    seen = []
    for each in ranges:
        headers = {
            **CLIENT,
            "a-im": "Incremental Feed",
            "x-ms-documentdb-partitionkeyrangeid": f"{rid},{each['id']}",
            "x-ms-max-item-count": "100",
        }
        status, page, response = await call("GET", DOCS, **headers)
        while status == 200:
            seen += [item["id"] for item in page["Documents"]]
            etag = header(response, b"etag")
            assert etag is not None
            headers["if-none-match"] = etag.decode()
            status, page, response = await call("GET", DOCS, **headers)
        assert status == 304
    assert sorted(seen) == [f"{n}" for n in range(8)]


async def test_a_container_that_was_created_again(call: Caller) -> None:
    """The client names the rid that it has cached; 400/1024 makes it read the container again."""
    headers = {**CLIENT, **key("p1"), "x-ms-cosmos-intended-collection-rid": "AAAAAAAAAAA="}
    status, _, response = await call("GET", f"{DOCS}/1", **headers)
    assert (status, header(response, b"x-ms-substatus")) == (400, b"1024")


async def test_a_range_that_is_gone(call: Caller) -> None:
    rid, _, _ = await ranges_of(call)
    headers = {**QUERY, "x-ms-documentdb-partitionkeyrangeid": f"{rid},99"}
    status, _, response = await call("POST", DOCS, {"query": "SELECT * FROM c"}, **headers)
    assert (status, header(response, b"x-ms-substatus")) == (410, b"1002")


async def test_direct_mode_is_refused_in_words(call: Caller) -> None:
    """GatewayAddressCache asks for the addresses of replicas first, by the container's rid."""
    _, container, _ = await call("GET", "/dbs/db/colls/c", **CLIENT)
    feed = f"{container['_self']}docs".replace("/", "%2f").replace("=", "%3d")
    path = f"//addresses?$resolveFor={feed}&$filter=protocol%20eq%20rntbd&$partitionKeyRangeIds=0"
    status, refused, _ = await call("GET", path, **CLIENT)
    assert (status, "connection mode to Gateway" in refused["message"]) == (400, True)
