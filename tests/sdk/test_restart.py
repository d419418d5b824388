"""A server that is stopped and started again on its directory has everything it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.cosmos import PartitionKey, ThroughputProperties
from sdk.clients import everything, one_page, refused
from support.process import ServerProcess


async def test_everything_is_kept(connect: Any, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    client = await connect(server.url)
    database = await client.create_database("db", offer_throughput=1000)
    unique = {"uniqueKeys": [{"paths": ["/u"]}]}
    container = await database.create_container(
        "c",
        PartitionKey(["/a", "/b"], kind="MultiHash"),
        offer_throughput=11_000,
        default_ttl=1000,
        unique_key_policy=unique,
    )
    scaled = await database.create_container(
        "auto", PartitionKey("/pk"), offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000)
    )
    user = await database.create_user({"id": "ann"})
    permission = await user.create_permission({"id": "p", "permissionMode": "All", "resource": "dbs/db/colls/auto"})
    items = [
        await container.create_item({"id": str(number), "a": number % 3, "b": "x", "u": number}) for number in range(20)
    ]
    await scaled.create_item({"id": "1", "pk": None})
    await container.delete_item("0", [0, "x"])
    token = items[-1].get_response_headers()["x-ms-session-token"]
    first, continuation = await one_page(scaled.read_all_items(max_item_count=1))
    assert len(first) == 1
    before = [await each.read() for each in (database, container, scaled)]
    ranges = await everything(container.read_feed_ranges())
    server.stop()

    again = start_server()
    client = await connect(again.url)
    database = client.get_database_client("db")
    container, scaled = database.get_container_client("c"), database.get_container_client("auto")
    assert [await each.read() for each in (database, container, scaled)] == before
    assert await everything(container.read_feed_ranges()) == ranges
    assert (await database.get_throughput()).offer_throughput == 1000
    assert (await container.get_throughput()).offer_throughput == 11_000
    assert (await scaled.get_throughput()).auto_scale_max_throughput == 4000
    for item in items[1:]:
        assert await container.read_item(item["id"], [item["a"], "x"]) == item
    with refused(404):
        await container.read_item("0", [0, "x"])
    with refused(409):
        await container.create_item({"id": "other", "a": 1, "b": "x", "u": 1})
    found = await everything(container.query_items("SELECT * FROM c WHERE c.u >= 17"))
    assert sorted(each["u"] for each in found) == [17, 18, 19]
    assert (await container.read_item("19", [1, "x"], session_token=token))["id"] == "19"
    newer = await container.create_item({"id": "20", "a": 1, "b": "x", "u": 20})
    assert newer["_rid"] not in {item["_rid"] for item in items}
    assert [each["id"] async for each in database.list_users()] == ["ann"]
    holder = await connect(again.url, {"dbs/db/colls/auto": permission.properties["_token"]})
    mine = holder.get_database_client("db").get_container_client("auto")
    assert (await mine.create_item({"id": "2", "pk": "b"}))["id"] == "2"
    if continuation:
        assert await one_page(scaled.read_all_items(max_item_count=1), continuation)
