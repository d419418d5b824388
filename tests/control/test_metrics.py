"""Metrics against what the released client was told: request units, requests and items add up, to the hundredth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from support.process import KEY
from support.server_operator import Operator


class Bill:
    """Notes the charge of every answer."""

    def __init__(self) -> None:
        self.charges: list[float] = []
        self.items_ru = 0.0  # of requests about items; the client reads the account whenever it likes

    def note(self, response: Any) -> None:
        charge_ru = float(response.http_response.headers.get("x-ms-request-charge", 0))
        self.charges.append(charge_ru)
        if "/docs" in response.http_request.url:
            self.items_ru += charge_ru

    @property
    def total_ru(self) -> float:
        return round(sum(self.charges), 2)


@pytest.fixture
def bill() -> Bill:
    return Bill()


@pytest.fixture
def container(operator: Operator, name: str, bill: Bill) -> Iterator[ContainerProxy]:
    with CosmosClient(operator.server.url, KEY, raw_response_hook=bill.note) as client:
        database = client.create_database(name)
        yield database.create_container("items", PartitionKey("/pk"), offer_throughput=18_000)
        client.delete_database(name)


def test_charges_answered_are_charges_counted(
    operator: Operator, name: str, container: ContainerProxy, bill: Bill
) -> None:
    metadata_before_ru = operator.metric("metadata_charge_request_units_total")
    bill.charges.clear()
    for number in range(40):
        container.create_item({"id": str(number), "pk": f"k{number % 7}", "n": number, "text": "x" * 37 * number})
    for number in range(10):
        container.read_item(str(number), f"k{number % 7}")
    container.upsert_item({"id": "0", "pk": "k0", "n": 0})
    container.patch_item("1", "k1", [{"op": "incr", "path": "/n", "value": 1}])
    container.delete_item("2", "k2")
    container.execute_item_batch([("create", ({"id": "b", "pk": "k0"},)), ("read", ("0",))], "k0")
    for failing in (
        lambda: container.read_item("none", "k0"),
        lambda: container.create_item({"id": "0", "pk": "k0"}),
        lambda: container.execute_item_batch([("create", ({"id": "0", "pk": "k0"},))], "k0"),
    ):
        with suppress(CosmosHttpResponseError, CosmosBatchOperationError):
            failing()
    list(container.query_items("SELECT * FROM c WHERE c.n > 5 ORDER BY c.n", enable_cross_partition_query=True))
    list(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True))
    list(container.query_items("SELECT * FROM c", partition_key="k1", max_item_count=2))
    list(container.read_all_items(max_item_count=3))
    list(container.query_items_change_feed(start_time="Beginning"))
    labels = {"database": name, "container": "items"}
    charged_ru = operator.metric("charge_request_units_total", **labels)
    metadata_ru = operator.metric("metadata_charge_request_units_total") - metadata_before_ru
    assert charged_ru + metadata_ru == pytest.approx(bill.total_ru)
    assert operator.metric("partition_items", **labels) == 40
    shown = operator.json("partitions", f"{name}/items")
    assert sum(each["chargedRu"] for each in shown["partitions"]) == pytest.approx(charged_ru)


def test_totals_do_not_go_back_in_a_split(operator: Operator, name: str, container: ContainerProxy, bill: Bill) -> None:
    for number in range(30):
        container.create_item({"id": str(number), "pk": f"k{number}"})
    operator.command("split", f"{name}/items", "0")
    for number in range(30):
        container.read_item(str(number), f"k{number}")
    labels = {"database": name, "container": "items"}
    assert operator.metric("charge_request_units_total", **labels) == pytest.approx(bill.items_ru)
    assert operator.metric("partitions", **labels) == 4
