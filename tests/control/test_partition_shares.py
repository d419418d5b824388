"""The header that tells what each partition of a query page was charged: its entries add up to the charge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from support.process import KEY
from support.server_operator import Operator


class Pages:
    """The answers of query pages that carry the header."""

    def __init__(self) -> None:
        self.found: list[tuple[float, list[dict[str, Any]]]] = []  # charge and entries

    def note(self, headers: Any, _: Any) -> None:
        if "x-armillary-partitions" in headers:
            entries = json.loads(headers["x-armillary-partitions"])
            self.found.append((float(headers["x-ms-request-charge"]), entries))


@pytest.fixture
def container(operator: Operator, name: str) -> Iterator[ContainerProxy]:
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database(name)
        container = database.create_container("c", PartitionKey("/pk"), offer_throughput=40_000)
        for number in range(160):
            container.create_item({"id": str(number), "pk": f"k{number % 40}", "n": number, "text": "x" * 500})
        yield container
        client.delete_database(name)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.n > 100",
        "SELECT * FROM c ORDER BY c.n DESC",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT DISTINCT VALUE c.pk FROM c",
        "SELECT TOP 3 * FROM c",
        "SELECT VALUE t FROM (SELECT DISTINCT VALUE c.pk FROM c) AS t",
        "SELECT * FROM c WHERE c.pk = 'k3'",
        "SELECT * FROM c WHERE false",
        "SELECT 1",
    ],
)
def test_entries_add_up_to_the_charge(container: ContainerProxy, text: str) -> None:
    pages = Pages()
    list(
        container.query_items(
            text,
            enable_cross_partition_query=True,
            max_item_count=50,
            populate_query_metrics=True,
            response_hook=pages.note,
        )
    )
    assert pages.found
    for charge_ru, entries in pages.found:
        assert sum(each["ru"] for each in entries) == pytest.approx(charge_ru)
        assert [each["ru"] for each in entries] == sorted([each["ru"] for each in entries], reverse=True)
        assert {"id", "ru", "loaded", "returned", "bytes", "ms", "by"} <= entries[0].keys()


def test_one_partition_with_the_key_all_without(container: ContainerProxy) -> None:
    def visited(text: str, **options: Any) -> list[dict[str, Any]]:
        pages = Pages()
        rows = container.query_items(text, populate_query_metrics=True, response_hook=pages.note, **options)
        assert len(list(rows)) == 4
        return [entry for _, entries in pages.found for entry in entries]

    [pinned] = visited("SELECT * FROM c WHERE c.pk = 'k3'", partition_key="k3")
    assert (pinned["returned"], pinned["loaded"]) == (4, 4)
    assert pinned["by"] == "seek /pk"
    everywhere = visited("SELECT * FROM c WHERE c.n < 4", enable_cross_partition_query=True)
    assert len({each["id"] for each in everywhere}) == 7
    assert sum(each["returned"] for each in everywhere) == 4
    assert {each["by"] for each in everywhere if each["returned"]} == {"index scan /n"}


def test_without_metrics_there_is_no_header(container: ContainerProxy) -> None:
    pages = Pages()
    list(container.query_items("SELECT * FROM c", partition_key="k1", response_hook=pages.note))
    assert not pages.found
