"""Many items by their keys: what the clients make of point reads and queries."""

from __future__ import annotations

import random
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.partition_key import NonePartitionKeyValue
from sdk.clients import user_part


@pytest.mark.parametrize("throughput", [400, 20_000])
async def test_many(database: Any, throughput: int, seed: int) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=throughput)
    dice = random.Random(seed)
    # Not null: the client asks for undefined instead. Not both 1 and true: they are the same to its dictionary.
    items = [{"id": f"id {n}", "pk": dice.choice(["a", "b", "é", 1, 2.5]), "n": n} for n in range(60)]
    for item in items:
        await container.create_item(item, no_response=True)
    wanted = dice.sample(items, 40)
    asked = [(item["id"], item["pk"]) for item in wanted]
    found = await container.read_items([*asked, ("missing", "a"), ("missing too", "other")])
    assert [user_part(each) for each in found] == wanted
    assert float(found.get_response_headers()["x-ms-request-charge"]) > 0


async def test_one_and_none(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    assert [each["id"] for each in await container.read_items([("1", "a")])] == ["1"]
    assert await container.read_items([("2", "a")]) == []
    assert await container.read_items([]) == []


async def test_the_id_as_key(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/id"), offer_throughput=20_000)
    for number in range(20):
        await container.create_item({"id": str(number)}, no_response=True)
    asked = [(str(number), str(number)) for number in range(0, 40, 2)]
    found = await container.read_items(asked)
    assert [each["id"] for each in found] == [str(number) for number in range(0, 20, 2)]


async def test_missing_keys(container: Any) -> None:
    for number in range(4):
        await container.create_item({"id": str(number)})
        await container.create_item({"id": str(number), "pk": None})
    found = await container.read_items([(str(number), NonePartitionKeyValue) for number in range(4)])
    assert [user_part(each) for each in found] == [{"id": str(number)} for number in range(4)]


async def test_hierarchical(database: Any) -> None:
    key = PartitionKey(["/a", "/b"], kind="MultiHash")
    container = await database.create_container("c", key, offer_throughput=20_000)
    for a in "xyz":
        for b in range(5):
            await container.create_item({"id": f"{a}{b}", "a": a, "b": b}, no_response=True)
    asked = [(f"{a}{b}", [a, b]) for a in "xz" for b in (0, 3)]
    found = await container.read_items(asked)
    assert [(each["a"], each["b"]) for each in found] == [("x", 0), ("x", 3), ("z", 0), ("z", 3)]


async def test_a_thousand(container: Any) -> None:
    for start in range(0, 1000, 100):
        operations = [("create", ({"id": str(n), "pk": "a"},)) for n in range(start, start + 100)]
        await container.execute_item_batch(operations, "a")
    # One at a time: threads of the client share a dictionary of headers, and one may change it while another reads it.
    found = await container.read_items([(str(n), "a") for n in range(1200)], max_concurrency=1)
    assert [each["id"] for each in found] == [str(n) for n in range(1000)]
