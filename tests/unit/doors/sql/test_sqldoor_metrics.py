"""Query metrics, index metrics and query advice in the forms that each client parses."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from support.caller import Caller
from unit.doors.sql.test_sqldoor_door import call  # noqa: F401 (a fixture)

METRICS = "x_ms_documentdb_populatequerymetrics"


async def ask(call: Caller, text: str, **headers: str) -> dict[bytes, bytes]:  # noqa: F811
    status, _, response = await call(
        "POST",
        "/dbs/db/colls/c/docs",
        {"query": text},
        x_ms_documentdb_isquery="true",
        x_ms_documentdb_query_enablecrosspartition="true",
        **headers,
    )
    assert status == 200
    return dict(response.headers)


def pairs(header: bytes) -> dict[str, str]:
    return dict(piece.split("=", 1) for piece in header.decode().split(";"))


@pytest.fixture
async def filled(call: Caller) -> Caller:  # noqa: F811
    for number in range(10):
        item = {"id": f"{number}", "pk": "a" if number % 2 else "b", "n": number}
        headers = {"x_ms_documentdb_partitionkey": f'["{item["pk"]}"]'}
        assert (await call("POST", "/dbs/db/colls/c/docs", item, **headers))[0] == 201
    return call


async def test_nothing_is_told_unasked(filled: Caller) -> None:
    headers = await ask(filled, "SELECT * FROM c")
    assert not [name for name in headers if b"metrics" in name or b"utilization" in name or b"advice" in name]
    assert b"x-armillary-charge-details" not in headers


async def test_query_metrics(filled: Caller) -> None:
    headers = await ask(filled, "SELECT c.id FROM c WHERE c.n + 0 < 4", **{METRICS: "true"})
    metrics = pairs(headers[b"x-ms-documentdb-query-metrics"])
    assert len(metrics) == 17
    assert (metrics["retrievedDocumentCount"], metrics["outputDocumentCount"]) == ("10", "4")
    assert metrics["indexUtilizationRatio"] == "0.40"
    assert metrics["outputDocumentSize"] == str(4 * len('{"id":"0"}'))
    assert int(metrics["retrievedDocumentSize"]) > 1000
    assert all(float(value) >= 0 for value in metrics.values())


async def test_a_count_retrieves_nothing(filled: Caller) -> None:
    for scope in ({"x_ms_documentdb_partitionkeyrangeid": "0"}, {"x_ms_documentdb_partitionkey": '["a"]'}):
        headers = await ask(filled, "SELECT VALUE COUNT(1) FROM c", **{METRICS: "True"}, **scope)
        metrics = pairs(headers[b"x-ms-documentdb-query-metrics"])
        assert (metrics["retrievedDocumentCount"], metrics["retrievedDocumentSize"]) == ("0", "0")
        assert metrics["indexUtilizationRatio"] == "1.00"


@pytest.mark.parametrize("text", ["SELECT * FROM c WHERE c.n > 2", "SELECT * FROM c ORDER BY c.n", "SELECT VALUE 1"])
async def test_the_parts_of_the_charge_add_up(filled: Caller, text: str) -> None:
    headers = await ask(filled, text, x_ms_documentdb_partitionkeyrangeid="0", **{METRICS: "true"})
    parts = pairs(headers[b"x-armillary-charge-details"])
    assert parts["visit partitions"] == "2.2500"
    assert sum(map(float, parts.values())) == pytest.approx(float(headers[b"x-ms-request-charge"]), abs=0.01)


async def test_index_metrics_in_both_forms(filled: Caller) -> None:
    text, key = "SELECT * FROM c WHERE c.n = 1 AND c.m = 2", {"x_ms_documentdb_partitionkey": '["a"]'}
    headers = await ask(filled, text, x_ms_cosmos_populateindexmetrics="True", **key)
    first: dict[str, Any] = orjson.loads(base64.b64decode(headers[b"x-ms-cosmos-index-utilization"]))
    assert first["UtilizedSingleIndexes"][0] == {
        "FilterExpression": "",
        "IndexSpec": "/pk/?",
        "FilterPreciseSet": True,
        "IndexPreciseSet": True,
        "IndexImpactScore": "High",
    }
    assert [each["IndexSpec"] for each in first["UtilizedSingleIndexes"]] == ["/pk/?", "/n/?", "/m/?"]
    assert first["PotentialSingleIndexes"] == first["UtilizedCompositeIndexes"] == []
    assert first["PotentialCompositeIndexes"][0]["IndexSpecs"] == ["/n ASC", "/m ASC"]
    headers = await ask(filled, text, x_ms_cosmos_populateindexmetrics_v2="true", **key)
    assert orjson.loads(unquote(headers[b"x-ms-cosmos-index-utilization"].decode())) == {
        "UtilizedIndexes": {
            "SingleIndexes": [{"IndexSpec": "/pk/?"}, {"IndexSpec": "/n/?"}, {"IndexSpec": "/m/?"}],
            "CompositeIndexes": [],
        },
        "PotentialIndexes": {"SingleIndexes": [], "CompositeIndexes": [{"IndexSpecs": ["/n ASC", "/m ASC"]}]},
    }


async def test_query_advice(filled: Caller) -> None:
    asked = {"x_ms_cosmos_populatequeryadvice": "True"}
    headers = await ask(filled, "SELECT * FROM c WHERE CONTAINS(c.id, '1')", **asked)
    assert orjson.loads(unquote(headers[b"x-ms-cosmos-query-advice"].decode())) == [{"Id": "QA1002", "Params": []}]
    headers = await ask(filled, "SELECT * FROM c", **asked)
    assert headers[b"x-ms-cosmos-query-advice"] == b"%5B%5D"


UNINDEXED = {"indexingMode": "none", "automatic": False}
ONE, TREE = {"paths": ["/pk"]}, {"paths": ["/pk", "/n"], "kind": "MultiHash", "version": 2}


@pytest.mark.parametrize(
    ("key", "condition", "expected", "retrieved"),
    [
        (ONE, "c.pk = 'k1'", 20, 20),
        (ONE, "c.pk = 'k1' AND c.n >= 60", 10, 20),
        (ONE, "c.pk IN ('k1', 'k2', 'k7')", 40, 40),
        (ONE, "c.pk = 'k1' OR (c.pk = 'k2' AND c.n > 0)", 40, 40),
        (ONE, "NOT IS_DEFINED(c.pk)", 1, 1),
        (ONE, "c.n = 61", 1, 121),
        (TREE, "c.pk = 'k1' AND c.n = 61", 1, 1),
    ],
)
async def test_without_an_index_the_pinned_key_narrows(
    call: Caller,  # noqa: F811
    key: dict[str, Any],
    condition: str,
    expected: int,
    retrieved: int,
) -> None:
    body = {"id": "none", "partitionKey": key, "indexingPolicy": UNINDEXED}
    assert (await call("POST", "/dbs/db/colls", body, x_ms_offer_throughput="20000"))[0] == 201
    items = [{"id": f"{number}", "pk": f"k{number % 6}", "n": number} for number in range(120)] + [{"id": "x", "n": -1}]
    docs = "/dbs/db/colls/none/docs"
    for item in items:
        values = [item.get(path[1:], {}) for path in key["paths"]]
        status, _, _ = await call("POST", docs, item, x_ms_documentdb_partitionkey=orjson.dumps(values).decode())
        assert status == 201
    headers = {"x_ms_documentdb_isquery": "true", "x_ms_documentdb_query_enablecrosspartition": "true", METRICS: "true"}
    found: list[str] = []
    read, continuation = 0, None
    while True:
        if continuation is not None:
            headers["x_ms_continuation"] = continuation
        query = {"query": f"SELECT VALUE c.id FROM c WHERE {condition}"}
        status, page, response = await call("POST", docs, query, x_ms_max_item_count="7", **headers)
        assert status == 200, page
        found += page["Documents"]
        told = dict(response.headers)
        read += int(pairs(told[b"x-ms-documentdb-query-metrics"])["retrievedDocumentCount"])
        continuation = told.get(b"x-ms-continuation", b"").decode() or None
        if continuation is None:
            break
    assert (len(found), len(set(found)), read) == (expected, expected, retrieved)
