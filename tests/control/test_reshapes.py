"""Splits, merges and scaling by commands, while the released client goes on reading and writing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from control.conftest import Start
from support.process import KEY
from support.server_operator import Operator


@pytest.fixture
def container(operator: Operator, name: str) -> Iterator[ContainerProxy]:
    """A hundred items, on one partition."""
    with CosmosClient(operator.server.url, KEY) as client:
        made = client.create_database(name).create_container("items", PartitionKey("/pk"), offer_throughput=400)
        for number in range(100):
            made.create_item({"id": str(number), "pk": f"k{number % 20}"})
        yield made
        client.delete_database(name)


def everything(container: ContainerProxy) -> list[int]:
    return sorted(int(each["id"]) for each in container.read_all_items())


def test_split_and_merge(operator: Operator, name: str, container: ContainerProxy) -> None:
    told = operator.command("split", f"{name}/items")
    assert told.startswith(f"Partition 0 of {name}/items became 1 (") and " and 2 (" in told
    shown = operator.json("partitions", f"{name}/items")
    assert [(each["id"], each["parents"]) for each in shown["partitions"]] == [(1, [0]), (2, [0])]
    assert sum(each["items"] for each in shown["partitions"]) == 100
    assert everything(container) == list(range(100))
    before = operator.metric("requests_total", database=name)
    assert before >= 101
    container.create_item({"id": "100", "pk": "k1"})
    operator.json("merge", f"{name}/items")
    shown = operator.json("partitions", f"{name}/items")
    assert [(each["id"], each["items"]) for each in shown["partitions"]] == [(3, 101)]
    assert operator.metric("requests_total", database=name) >= before + 1
    assert everything(container) == list(range(101))
    assert "no two neighbouring partitions" in operator.command("merge", f"{name}/items", code=2)
    assert "does not exist" in operator.command("split", f"{name}/items", "77", code=2)


def test_a_paused_split_is_seen_and_taken_back(operator: Operator, name: str, container: ContainerProxy) -> None:
    operator.ask("PUT", "reshapes/pauses", {"points": ["copied"]})
    begun = operator.json("split", f"{name}/items", "--no-wait")
    assert begun["kind"] == "split"
    path = f"databases/{name}/containers/items"
    while not operator.ask("GET", f"{path}/reshapes")["reshapes"][0]["paused"]:
        pass
    drawn = operator.command("partitions", f"{name}/items")
    assert "A split of 0 goes on (request): copied, 100 of 100 items copied." in drawn
    container.create_item({"id": "100", "pk": "k1"})
    operator.ask("DELETE", f"{path}/reshapes/{begun['number']}")
    operator.ask("PUT", "reshapes/pauses", {"points": []})
    shown = operator.ask("GET", f"{path}/partitions")
    assert [(each["id"], each["items"]) for each in shown["partitions"]] == [(0, 101)]
    assert everything(container) == list(range(101))


def test_scaling_waits_for_its_splits(start_operator: Start) -> None:
    operator = start_operator("--partition-throughput", "1000")
    operator.command("containers", "create", "shop/orders", "--partition-key", "/pk", "--throughput", "600")
    with CosmosClient(operator.server.url, KEY) as client:
        container = client.get_database_client("shop").get_container_client("orders")
        for number in range(50):
            container.create_item({"id": str(number), "pk": f"k{number}"})
        told = operator.command("scale", "shop/orders", "3000")
        assert told == "shop/orders has 3,000 RU/s.\n"
        shown = operator.json("containers", "show", "shop/orders")
        assert (shown["partitionCount"], shown["throughput"]["pending"]) == (3, False)
        assert everything(container) == list(range(50))
