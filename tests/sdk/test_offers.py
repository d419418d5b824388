"""Throughput as a resource: manual, autoscale, shared by a database, changed."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from sdk.clients import refused


def no_offer() -> Any:
    """The client makes a 404 of an empty list, and 4.17 then stumbles over it itself."""
    return pytest.raises((CosmosResourceNotFoundError, AttributeError))


async def test_a_container_gets_400_when_nothing_is_said(container: Any) -> None:
    offer = await container.get_throughput()
    assert offer.offer_throughput == 400
    assert offer.auto_scale_max_throughput is None
    properties = offer.properties
    assert properties["resource"] == (await container.read())["_self"]
    assert properties["offerResourceId"] == (await container.read())["_rid"]
    assert properties["id"] == properties["_rid"]
    assert properties["_self"] == f"offers/{properties['_rid']}/"
    assert properties["offerVersion"] == "V2"


async def test_manual_throughput(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=1000)
    assert (await container.get_throughput()).offer_throughput == 1000
    replaced = await container.replace_throughput(2500)
    assert replaced.offer_throughput == 2500
    headers = replaced.get_response_headers()
    assert headers["x-ms-offer-replace-pending"].lower() == "false"
    assert int(headers["x-ms-cosmos-min-throughput"]) == 400
    assert (await container.get_throughput()).offer_throughput == 2500


async def test_autoscale(database: Any) -> None:
    wanted = ThroughputProperties(auto_scale_max_throughput=5000, auto_scale_increment_percent=0)
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=wanted)
    offer = await container.get_throughput()
    assert offer.auto_scale_max_throughput == 5000
    assert offer.auto_scale_increment_percent == 0
    wanted = ThroughputProperties(auto_scale_max_throughput=7000, auto_scale_increment_percent=20)
    await container.replace_throughput(wanted)
    offer = await container.get_throughput()
    assert offer.auto_scale_max_throughput == 7000
    assert offer.auto_scale_increment_percent == 20


async def test_a_database_shares_its_throughput(client: Any, name: str) -> None:
    database = await client.create_database(name, offer_throughput=600)
    shared = await database.create_container("shared", PartitionKey("/pk"))
    own = await database.create_container("own", PartitionKey("/pk"), offer_throughput=500)
    assert (await database.get_throughput()).offer_throughput == 600
    with no_offer():
        await shared.get_throughput()
    assert (await own.get_throughput()).offer_throughput == 500
    await database.replace_throughput(700)
    assert (await database.get_throughput()).offer_throughput == 700
    await client.delete_database(name)


async def test_a_database_with_autoscale(client: Any, name: str) -> None:
    wanted = ThroughputProperties(auto_scale_max_throughput=4000, auto_scale_increment_percent=10)
    database = await client.create_database(name, offer_throughput=wanted)
    offer = await database.get_throughput()
    assert (offer.auto_scale_max_throughput, offer.auto_scale_increment_percent) == (4000, 10)
    await client.delete_database(name)


async def test_a_database_without_throughput_has_no_offer(database: Any) -> None:
    with no_offer():
        await database.get_throughput()


@pytest.mark.parametrize("wanted", [300, 450, -200, 2_000_000])
async def test_throughput_that_is_refused(database: Any, wanted: int) -> None:
    with refused(400):
        await database.create_container("c", PartitionKey("/pk"), offer_throughput=wanted)
    with refused(404):
        await database.get_container_client("c").read()


@pytest.mark.parametrize("wanted", [300, 450, -200, 2_000_000])
async def test_replacements_that_are_refused(container: Any, wanted: int) -> None:
    with refused(400):
        await container.replace_throughput(wanted)
    assert (await container.get_throughput()).offer_throughput == 400


@pytest.mark.parametrize("wanted", [-200, 500, 1500])
async def test_autoscale_that_is_refused(database: Any, wanted: int) -> None:
    with refused(400):
        await database.create_container(
            "c", PartitionKey("/pk"), offer_throughput=ThroughputProperties(auto_scale_max_throughput=wanted)
        )


async def test_an_offer_goes_with_its_container(database: Any) -> None:
    await database.create_container("c", PartitionKey("/pk"), offer_throughput=900)
    await database.delete_container("c")
    container = await database.create_container("c", PartitionKey("/pk"))
    assert (await container.get_throughput()).offer_throughput == 400


async def test_more_than_the_partitions_carry_is_pending_until_they_are_split(container: Any) -> None:
    for number in range(20):
        await container.create_item({"id": "1", "pk": str(number)})
    replaced = await container.replace_throughput(11_000)
    assert replaced.offer_throughput == 11_000
    while (await container.get_throughput()).properties["content"].get("isOfferReplacePending", False):
        pass
    assert len([each async for each in container.read_feed_ranges()]) == 2
    assert len([each async for each in container.read_all_items()]) == 20
    with refused(400, text="less than required minimum throughput"):
        await container.replace_throughput(300)


async def test_scaling_up_leaves_a_floor_behind(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=90_000)
    with refused(400, text="Requested throughput 800 is less than required minimum throughput 900"):
        await container.replace_throughput(800)
    replaced = await container.replace_throughput(900)
    assert int(replaced.get_response_headers()["x-ms-cosmos-min-throughput"]) == 900
