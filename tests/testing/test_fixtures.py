"""The fixtures of the pytest plugin, used as an application's tests use them. Tests of one name in a row use the same
names of databases: none may see what another has left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, DatabaseProxy
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from azure.data.tables import TableClient
from pymongo import MongoClient

from armillary.errors import Failure
from armillary.testing import ServerProcess
from armillary.testing.clients import async_cosmos_client

MakeContainer = Callable[..., ContainerProxy]
ENFORCED = pytest.mark.armillary(throughput="enforce")
TWICE = pytest.mark.parametrize("time", [1, 2])


@TWICE
def test_a_container_is_new_in_each_test(cosmos_container: MakeContainer, time: int) -> None:
    """The second time with another key: nothing of the first container is remembered, by the client neither."""
    orders = cosmos_container("orders", "/customer" if time == 1 else "/country", throughput=400)
    assert list(orders.read_all_items()) == []
    orders.create_item({"id": "1", "customer": "ada", "country": "uk"})
    assert orders.read_item("1", partition_key="ada" if time == 1 else "uk")["customer"] == "ada"
    assert orders.get_throughput().offer_throughput == 400


def test_definitions_are_those_of_the_client(cosmos_container: MakeContainer) -> None:
    made = cosmos_container("orders", ["/tenant", "/user"], default_ttl=60).read()
    assert made["partitionKey"]["paths"] == ["/tenant", "/user"]
    assert made["defaultTtl"] == 60


@TWICE
def test_a_database_is_new_in_each_test(cosmos_client: CosmosClient, cosmos_database: DatabaseProxy, time: int) -> None:
    assert [each["id"] for each in cosmos_client.list_databases()] == [cosmos_database.id]
    cosmos_client.create_database("another")


@TWICE
def test_documents(mongo_client: MongoClient[dict[str, Any]], time: int) -> None:
    people = mongo_client.shop.people
    assert people.count_documents({}) == 0
    people.insert_one({"_id": 1, "name": "Ben"})
    assert people.find_one({"name": "Ben"}) == {"_id": 1, "name": "Ben"}


@TWICE
def test_entities(table_client: TableClient, armillary: ServerProcess, time: int) -> None:
    assert list(table_client.list_entities()) == []
    table_client.create_entity({"PartitionKey": "Smith", "RowKey": "Ben"})
    assert [each["items"] for each in armillary.partitions(table_client)] == [1]


@TWICE
def test_vertices(gremlin_client: Any, time: int) -> None:
    assert gremlin_client.submit("g.V().count()").all().result() == [0]
    gremlin_client.submit("g.addV('city').property('id', 'rome').property('pk', 'it')").all().result()
    assert gremlin_client.submit("g.V(['it', 'rome']).label()").all().result() == ["city"]


def test_all_protocols_in_one_test(
    cosmos_container: MakeContainer, mongo_client: MongoClient[dict[str, Any]], gremlin_client: Any
) -> None:
    cosmos_container("orders", "/customer").create_item({"id": "1", "customer": "ada"})
    found = mongo_client.test.orders.find_one({"customer": "ada"})
    assert found is not None and found["_id"] == "1"
    assert gremlin_client.submit("g.V().count()").all().result() == [0]


async def test_an_asynchronous_client(armillary: ServerProcess) -> None:
    async with async_cosmos_client(armillary) as client:
        await client.create_database("shop")
        assert [each["id"] async for each in client.list_databases()] == ["shop"]


# Faults


def test_throttled_requests_are_repeated_by_the_client(
    armillary: ServerProcess, cosmos_container: MakeContainer
) -> None:
    orders = cosmos_container("orders", "/customer")
    with armillary.throttle(2, retry_after_ms=1, container=orders, operations="create") as rule:
        orders.create_item({"id": "1", "customer": "ada"})
        assert rule.hits == 2
    with pytest.raises(Failure):
        _ = rule.hits


@TWICE
def test_faults_end_with_the_test(armillary: ServerProcess, cosmos_container: MakeContainer, time: int) -> None:
    orders = cosmos_container("orders", "/customer")
    orders.create_item({"id": "1", "customer": "ada"})
    rule = armillary.fail(429, retry_after_ms=1, container="test/orders", key="ada", operations=["read"], every=2)
    late = armillary.delay(1, container="test/orders")
    for _ in range(3):
        orders.read_item("1", "ada")  # the client asks again
    assert rule.hits > 0 and late.hits > 0


def test_an_answer_is_lost(armillary: ServerProcess, cosmos_container: MakeContainer) -> None:
    orders = cosmos_container("orders", "/customer")
    armillary.drop(count=1, after=True, operations="create")
    with pytest.raises(Exception, match=r"onnection|aborted|closed"):
        orders.create_item({"id": "1", "customer": "ada"})
    assert orders.read_item("1", "ada")["id"] == "1"


def test_unknown_selections_are_refused(armillary: ServerProcess) -> None:
    with pytest.raises(Failure, match="select requests by 'conut'"):
        armillary.throttle(conut=3)
    with pytest.raises(Failure, match="names no container"):
        armillary.partitions("orders")
    with pytest.raises(Failure, match="int names no container"):
        armillary.partitions(5)


# Partitions, charges, changes


def test_splits_charges_and_changes(armillary: ServerProcess, cosmos_container: MakeContainer) -> None:
    orders = cosmos_container("orders", "/customer", throughput=400)
    for number in range(8):
        orders.create_item({"id": str(number), "customer": f"c{number}"})
    before = armillary.partitions(orders)
    after = armillary.split(orders)
    assert (len(before), len(after)) == (1, 2)
    assert sum(each["items"] for each in after) == 8
    assert len(armillary.merge(orders)) == 1
    assert len(armillary.scale(orders, 20_000)) > 1
    with armillary.charges(orders) as charged:
        orders.read_item("1", "c1")
    assert (charged.ru, charged.requests, charged.refused) == (1.0, 1, 0)
    assert len(armillary.wait_for_changes(orders, 8)) == 8
    with pytest.raises(TimeoutError, match=r"for 9 changes; the feed has 8"):
        armillary.wait_for_changes(orders, 9, timeout_s=0)


@TWICE
def test_a_paused_split_ends_with_the_test(
    armillary: ServerProcess, cosmos_container: MakeContainer, time: int
) -> None:
    orders = cosmos_container("orders", "/customer")
    for number in range(4):
        orders.create_item({"id": str(number), "customer": f"c{number}"})
    assert len(armillary.partitions(orders)) == 1
    armillary.pause_splits("copied")
    armillary.split(orders, waits=False)
    assert orders.read_item("1", "c1")["id"] == "1"


# Settings


@pytest.mark.armillary(clock="movable", throughput="off")
class TestSettings:
    """The marker of a test comes before that of its class."""

    @ENFORCED
    def test_items_expire(self, armillary: ServerProcess, cosmos_container: MakeContainer) -> None:
        orders = cosmos_container("orders", "/customer", default_ttl=3600)
        orders.create_item({"id": "1", "customer": "ada"})
        armillary.stop_clock()
        before_s = armillary.now_s
        assert armillary.advance_clock(timedelta(hours=1, seconds=1)) == pytest.approx(before_s + 3601)
        with pytest.raises(CosmosResourceNotFoundError):
            orders.read_item("1", "ada")

    @ENFORCED
    def test_the_clock_goes_on_in_the_next_test(self, armillary: ServerProcess) -> None:
        assert armillary.control.get("clock")["frozen"] is False

    @ENFORCED
    def test_budgets_are_enforced(self, armillary: ServerProcess, cosmos_container: MakeContainer) -> None:
        orders = cosmos_container("orders", "/customer", throughput=400)
        armillary.stop_clock()
        with CosmosClient(armillary.url, armillary.key, retry_throttle_total=1) as client:
            hasty = client.get_database_client("test").get_container_client("orders")
            with armillary.charges(orders) as charged, pytest.raises(CosmosHttpResponseError) as caught:  # noqa: PT012
                for number in range(100):
                    hasty.create_item({"id": str(number), "customer": "ada"})
            assert caught.value.status_code == 429
            assert charged.refused == 2  # the client asks once more
            armillary.set_mode(orders, "off")
            hasty.create_item({"id": "last", "customer": "ada"})
