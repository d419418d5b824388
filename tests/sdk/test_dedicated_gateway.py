"""The port of the dedicated gateway: released clients that are configured with its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from support.process import ServerProcess


def cache_hit(container: ContainerProxy) -> str | None:
    headers: Mapping[str, Any] = container.client_connection.last_response_headers
    return headers.get("x-ms-cosmos-cachehit")


def sending(name: str, value: str) -> Callable[[Any], None]:
    """Sets a header that the client would not send so."""

    def send(request: Any) -> None:
        request.http_request.headers[name] = value

    return send


def test_reads_are_fresh_and_say_so() -> None:
    server = ServerProcess.start(None, "--gateway-port", "0")
    try:
        with CosmosClient(server.doors["gateway"], server.key) as client, CosmosClient(server.url, server.key) as other:
            container = client.create_database("db").create_container("c", PartitionKey("/pk"))
            container.create_item({"id": "1", "pk": "a", "n": 1})
            assert cache_hit(container) is None  # a write
            item = container.read_item("1", "a", max_integrated_cache_staleness_in_ms=60_000)
            assert (item["n"], cache_hit(container)) == (1, "False")
            behind = other.get_database_client("db").get_container_client("c")
            behind.upsert_item({"id": "1", "pk": "a", "n": 2})
            assert container.read_item("1", "a", max_integrated_cache_staleness_in_ms=60_000)["n"] == 2
            assert cache_hit(container) == "False"
            rows = container.query_items("SELECT * FROM c", partition_key="a", max_integrated_cache_staleness_in_ms=500)
            assert [row["n"] for row in rows] == [2]
            assert cache_hit(container) == "False"
            behind.read_item("1", "a", max_integrated_cache_staleness_in_ms=500)
            assert cache_hit(behind) is None  # the other port has no dedicated gateway
            for name, value in (("max-age", "-1"), ("max-age", "9" * 30), ("bypass-cache", "maybe")):
                with pytest.raises(CosmosHttpResponseError, match="must be") as refused:
                    container.read_item("1", "a", raw_request_hook=sending(f"x-ms-dedicatedgateway-{name}", value))
                assert refused.value.status_code == 400
    finally:
        server.stop()
