"""The query corpus a third way: on four partitions of a real server, planned by it and merged by the released
azure-cosmos. What that client cannot merge is refused by the server or by the client itself, and counted here.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from conformance.test_sql import CASES, EXCEPTIONS, HERE, dataset, policies, same, same_set, without_system
from support.process import ServerProcess

# What the client leaves out of its list of features, or refuses by itself; each is a limit of that client.
CLIENT_LIMITS = (
    "which the calling client does not support",
    "Compositions of aggregates and other expressions are not allowed",
    "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates",
    "Executing a vector search query without TOP or LIMIT",
    "Executing a hybrid search query without Top or Limit",
)

# The cases that are refused for these reasons: as with the service, so that a query that works here works there.
REFUSED: list[str] = json.loads((HERE / "client_refusals.json").read_text("utf-8"))
MERGED_OTHERWISE: dict[str, str] = json.loads((HERE / "client_limits.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> CosmosClient:
    return CosmosClient(server.url, server.key)


@pytest.fixture(scope="module")
def container_for(client: CosmosClient) -> Any:
    database = client.create_database("conformance")

    @cache
    def made(data: str, given: str) -> ContainerProxy:
        given_policies = json.loads(given)
        container = database.create_container(
            f"c{made.cache_info().misses}",
            PartitionKey("/id"),
            indexing_policy=given_policies.get("indexingPolicy"),
            full_text_policy=given_policies.get("fullTextPolicy"),
            offer_throughput=24_000,
        )
        for item in json.loads(data):
            container.create_item(item)
        return container

    def find(case: dict[str, Any]) -> ContainerProxy:
        data = case["data"] if isinstance(case["data"], list) else dataset(case["data"])
        return made(json.dumps(data), json.dumps(policies(case), sort_keys=True))

    return find


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_merged_by_the_client(case: dict[str, Any], container_for: Any, request: pytest.FixtureRequest) -> None:
    if case["id"] in MERGED_OTHERWISE:
        # The rows of each partition are right; what the client makes of them is not.
        request.applymarker(pytest.mark.xfail(strict=True, reason=MERGED_OTHERWISE[case["id"]]))
    case = case | EXCEPTIONS.get(case["id"], {})
    container = container_for(case)
    parameters = [{"name": name, "value": value} for name, value in case.get("params", {}).items()]
    try:
        rows = list(container.query_items(case["query"], parameters, enable_cross_partition_query=True))
    except (CosmosHttpResponseError, ValueError) as error:
        text = str(error)
        if any(limit in text for limit in CLIENT_LIMITS):
            assert case["id"] in REFUSED, f"was answered before: {text}"
            return
        assert "error" in case, text
        assert isinstance(case["error"], int) or case["error"] in text
        return
    assert "error" not in case and case["id"] not in REFUSED, f"not refused: {rows}"
    rows = without_system(rows)
    is_met = same(rows, case["expect"]) if case["ordered"] else same_set(rows, case["expect"])
    assert is_met, f"{case['query']}\ngave     {rows}\nexpected {case['expect']}"
