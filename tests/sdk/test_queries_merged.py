"""--queries merge with the released client: the server merges also what azure-cosmos refuses, page by page, and a page
that was begun goes on after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from support.process import ServerProcess


@pytest.fixture
def merging(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess.start(tmp_path / "data", "--queries", "merge", "--durability", "relaxed")
    yield server
    server.stop()


def container_of(server: ServerProcess) -> ContainerProxy:
    database = CosmosClient(server.url, server.key).create_database_if_not_exists("db")
    return database.create_container_if_not_exists("c", PartitionKey("/pk"), offer_throughput=24_000)


def test_what_the_client_refuses_is_merged(merging: ServerProcess, tmp_path: Path) -> None:
    container = container_of(merging)
    assert len(list(container.read_feed_ranges())) == 4
    for n in range(20):
        container.create_item({"id": f"{n}", "pk": f"k{n}", "n": n, "even": n % 2 == 0})

    def rows(text: str) -> list[Any]:
        return list(container.query_items(text, enable_cross_partition_query=True, max_item_count=3))

    grouped = rows("SELECT c.even, COUNT(1) AS x FROM c GROUP BY c.even")
    assert sorted(grouped, key=str) == [{"even": False, "x": 10}, {"even": True, "x": 10}]
    assert rows("SELECT COUNT(1) AS x, MAX(c.n) AS y FROM c") == [{"x": 20, "y": 19}]
    assert rows("SELECT VALUE FLOOR(AVG(c.n)) FROM c") == [9]
    assert rows("SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 9") == list(range(3, 12))

    text = "SELECT VALUE c.n FROM c ORDER BY c.n DESC"
    pages = container.query_items(text, enable_cross_partition_query=True, max_item_count=7).by_page()
    begun = list(next(pages))
    token = pages.continuation_token  # type: ignore[attr-defined]
    merging.stop()
    again = ServerProcess.start(tmp_path / "data", "--queries", "auto", "--durability", "relaxed")
    try:
        asked = container_of(again).query_items(text, enable_cross_partition_query=True, max_item_count=50)
        rest: list[Any] = [row for page in asked.by_page(token) for row in page]
        assert [*begun, *rest] == list(range(19, -1, -1))
    finally:
        again.stop()
