"""What each SDK does not announce that it merges, and the refusals that follow: a query over several partitions that
fails with the service fails here, for the same SDK. Every feature that the server can ask for is tried with every SDK,
and every case of the query corpus.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest
import pytest_asyncio
from clients.recording.exchanges import FOLDER, SUFFIX, read_recording
from conformance.test_sql import CASES, FULL_TEXT, HERE, MERGED_QUERY
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.planning.partition_queries import Feature
from armillary.languages.sql.planning.plan import merged_features, query_plan
from armillary.model.keys import PartitionKeyDefinition
from armillary.storage.memory import MemoryEngine

ANNOUNCED = "x-ms-cosmos-supported-query-features"
DOCS = "/dbs/db/colls/c/docs"
KEY_OF_ITEMS = PartitionKeyDefinition.parse({"paths": ["/id"], "kind": "Hash", "version": 2})

# Per SDK: its User-Agent and the features that its request for a plan announces. Those with a recording are the words
# of the recording; .NET's are QueryPlanRetriever.SupportedQueryFeatures of its sources of August 2026.
RECORDED = {
    "Python": "azure_cosmos-http",
    "JavaScript": "azure_cosmos_js-http",
    "Java": "java-azure-cosmos-http",
    "Rust": "rust-azure-data-cosmos-text",
}
SDKS = {
    "Python": (
        "azsdk-python-cosmos/4.17.1 Python/3.11.7 (Linux)",
        "Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,NonStreamingOrderBy,"
        "HybridSearch,CountIf,WeightedRankFusion",
    ),
    "JavaScript": (
        "Node.js/20.20.2 (linux; x64) azure-cosmos-js/4.10.1",
        "NonValueAggregate,Aggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,CompositeAggregate,GroupBy,"
        "MultipleAggregates,NonStreamingOrderBy,ListAndSetAggregate,CountIf,HybridSearch,WeightedRankFusion,"
        "HybridSearchSkipOrderByRewrite",
    ),
    "Java": (
        "azsdk-java-cosmos/4.81.0 Linux JRE/17.0.15",
        "Aggregate, CompositeAggregate, MultipleOrderBy, MultipleAggregates, OrderBy, OffsetAndLimit, Distinct, "
        "GroupBy, Top, DCount, NonValueAggregate, NonStreamingOrderBy, HybridSearch, WeightedRankFusion",
    ),
    ".NET": (
        "cosmos-netstandard-sdk/3.60.0|1|X64|Linux 6.1|.NET 8.0|N|",
        "Aggregate, Distinct, GroupBy, MultipleAggregates, MultipleOrderBy, OffsetAndLimit, OrderBy, Top, "
        "NonValueAggregate, DCount, NonStreamingOrderBy, CountIf, HybridSearch, WeightedRankFusion, "
        "HybridSearchSkipOrderByRewrite",
    ),
    "Rust": (
        "azsdk-rust-cosmos/1.0.0 (drv=1.0.0; linux; x86_64; 1.95.0; ft=Eg)",
        "Distinct,MultipleOrderBy,NonStreamingOrderBy,OffsetAndLimit,OrderBy,Top",
    ),
}

# For each feature that the server can ask for, queries that need it, and what else they need.
EXAMPLES: dict[Feature, dict[str, set[Feature]]] = {
    "Aggregate": {"SELECT VALUE COUNT(1) FROM c": set(), "SELECT VALUE AVG(c.n) FROM c WHERE c.n > 1": set()},
    "CountIf": {"SELECT VALUE COUNTIF(c.n > 1) FROM c": {"Aggregate"}},
    "DCount": {"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c)": {"Distinct"}},
    "Distinct": {"SELECT DISTINCT VALUE c.n FROM c": set()},
    "GroupBy": {
        "SELECT c.n FROM c GROUP BY c.n": set(),
        "SELECT c.n, COUNT(1) AS x FROM c GROUP BY c.n": set(),
        "SELECT VALUE c.n FROM c GROUP BY c.n": set(),
    },
    "HybridSearch": {
        "SELECT TOP 2 * FROM c ORDER BY RANK FullTextScore(c.body, 'a')": set(),
        "SELECT TOP 2 * FROM c ORDER BY RANK RRF(FullTextScore(c.body, 'a'), VectorDistance(c.v, [1, 0]))": set(),
    },
    "ListAndSetAggregate": {
        "SELECT VALUE MAKELIST(c.n) FROM c": {"Aggregate"},
        "SELECT VALUE MAKESET(c.n) FROM c": {"Aggregate"},
        "SELECT c.n, MAKESET(c.id) AS x FROM c GROUP BY c.n": {"GroupBy"},
    },
    "MultipleAggregates": {
        "SELECT COUNT(1) AS x, SUM(c.n) AS y FROM c": {"NonValueAggregate"},
        "SELECT c.n, COUNT(1) AS x, MAX(c.n) AS y FROM c GROUP BY c.n": {"GroupBy"},
    },
    "MultipleOrderBy": {"SELECT * FROM c ORDER BY c.a, c.b": {"OrderBy"}},
    "NonStreamingOrderBy": {"SELECT TOP 2 * FROM c ORDER BY VectorDistance(c.v, [1, 0])": {"Top"}},
    "NonValueAggregate": {"SELECT COUNT(1) AS x FROM c": set(), "SELECT MAX(c.n) FROM c": set()},
    "OffsetAndLimit": {"SELECT * FROM c OFFSET 1 LIMIT 2": set()},
    "OrderBy": {"SELECT * FROM c ORDER BY c.n": set(), "SELECT c.id FROM c ORDER BY c.n DESC": set()},
    "Top": {"SELECT TOP 2 * FROM c": set()},
    "WeightedRankFusion": {
        "SELECT TOP 2 * FROM c ORDER BY RANK RRF(FullTextScore(c.body, 'a'), FullTextScore(c.title, 'b'), [2, 1])": {
            "HybridSearch"
        },
    },
}
QUERIES = [(text, {feature, *others}) for feature, texts in EXAMPLES.items() for text, others in texts.items()]

# Per case of the corpus, what SDKs lack for it. A query that is answered to one of them from now on is in this list.
REFUSED: dict[str, dict[str, list[str]]] = json.loads((HERE / "sdk_refusals.json").read_text("utf-8"))


def words(announced: str) -> set[str]:
    return {name.strip() for name in announced.split(",")}


def missing_of(answer: tuple[int, Any, Any]) -> set[str]:
    status, body, _ = answer
    if status == 200:
        return set()
    told = re.search(r"the calling client does not support: ([A-Za-z, ]+)\. With --queries merge", body["message"])
    assert status == 400 and told is not None, body
    return words(told[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    made = {
        "id": "c",
        "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2},
        "indexingPolicy": {
            "compositeIndexes": [[{"path": "/a"}, {"path": "/b"}]],
            "fullTextIndexes": [{"path": "/body"}, {"path": "/title"}],
        },
        "fullTextPolicy": {**FULL_TEXT, "fullTextPaths": [{"path": path} for path in ("/body", "/title")]},
        "vectorEmbeddingPolicy": {
            "vectorEmbeddings": [
                {"path": "/v", "dataType": "float32", "dimensions": 2, "distanceFunction": "cosine"},
            ]
        },
    }
    status, body, _ = await caller("POST", "/dbs/db/colls", made, **{"x-ms-offer-throughput": "24000"})
    assert status == 201, body
    status, body, _ = await caller("GET", "/dbs/db/colls/c/pkranges")
    assert len(body["PartitionKeyRanges"]) == 4
    yield caller
    await account.close()


@pytest.mark.parametrize("sdk", RECORDED)
def test_sdks_announce_what_is_said_here(sdk: str) -> None:
    _, exchanges = read_recording(FOLDER / f"{RECORDED[sdk]}{SUFFIX}")
    headers = [exchange["headers"] for exchange in exchanges if exchange.get("api") == "sql"]
    assert {each[ANNOUNCED] for each in headers if ANNOUNCED in each} == {SDKS[sdk][1]}
    name = SDKS[sdk][0].partition("/")[0].rpartition(" ")[2]
    assert {name in each["user-agent"] for each in headers if "user-agent" in each} == {True}


def test_every_feature_has_an_example() -> None:
    assert EXAMPLES.keys() == set(get_args(Feature))


def test_examples_need_what_they_say() -> None:
    for text, needed in QUERIES:
        assert merged_features(compile_query(text).bind({})) == needed, text


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("sdk", SDKS)
async def test_what_is_not_announced_is_refused(call: Caller, sdk: str) -> None:
    """By name in the request for a plan. Without it, every example is refused with its plan: no rows of parts."""
    agent, announced = SDKS[sdk]
    for text, needed in QUERIES:
        plan = {"x-ms-cosmos-is-query-plan-request": "True", "x-ms-documentdb-query-enablecrosspartition": "True"}
        plan |= {ANNOUNCED: announced, "user-agent": agent, "content-type": "application/query+json"}
        assert missing_of(await call("POST", DOCS, {"query": text}, **plan)) == needed - words(announced), text
        status, body, _ = await call(
            "POST", DOCS, {"query": text}, **MERGED_QUERY, **{"user-agent": agent, ANNOUNCED: announced}
        )
        assert status == 400 and "additionalErrorInfo" in body, text


def refusals(case: dict[str, Any]) -> dict[str, list[str]]:
    """What each SDK lacks for a case. Empty for a query that is refused to everyone, or that no client can merge."""
    try:
        bound = compile_query(case["query"]).bind(case.get("params", {}))
        merged_features(bound)
    except Failure:
        return {}
    found = {}
    for sdk, (_, announced) in SDKS.items():
        try:
            query_plan(bound, KEY_OF_ITEMS, announced)
        except Failure as failure:
            found[sdk] = sorted(missing_of((400, {"message": failure.message}, None)))
    return found


def test_corpus() -> None:
    found = {case["id"]: refusals(case) for case in CASES}
    assert {name: lacking for name, lacking in found.items() if lacking} == REFUSED
