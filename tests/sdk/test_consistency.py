"""Consistency levels: a request may ask for the account's level or a weaker one; strong reads cost double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import charge_of, everything, refused
from support.process import ServerProcess


@pytest.mark.parametrize("level", ["Session", "ConsistentPrefix", "Eventual"])
async def test_the_same_or_weaker(connect: Any, container: Any, name: str, level: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    other = (await connect(consistency_level=level)).get_database_client(name).get_container_client("items")
    read = await other.read_item("1", "a")
    assert charge_of(read) == 1
    await other.create_item({"id": "2", "pk": "a"})
    assert len(await everything(other.query_items("SELECT * FROM c"))) == 2


@pytest.mark.parametrize("level", ["Strong", "BoundedStaleness"])
async def test_a_stronger_one_is_refused(connect: Any, container: Any, name: str, level: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    other = (await connect(consistency_level=level)).get_database_client(name).get_container_client("items")
    for operation in (
        lambda: other.read_item("1", "a"),
        lambda: everything(other.query_items("SELECT * FROM c")),
        lambda: everything(other.read_all_items()),
    ):
        with refused(400, text=f"ConsistencyLevel {level}"):
            await operation()


async def test_strong_reads_cost_double(connect: Any, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--consistency", "Strong", "--durability", "relaxed")
    client = await connect(server.url)
    database = await client.create_database("db")
    container = await database.create_container("c", PartitionKey("/pk"))
    created = await container.create_item({"id": "1", "pk": "a"})
    assert 5 <= charge_of(created) < 6  # writes cost what they cost
    assert charge_of(await container.read_item("1", "a")) == 2
    with refused(404) as caught:
        await container.read_item("2", "a")
    assert float(caught.value.headers["x-ms-request-charge"]) == 2
    seen: list[float] = []
    query = "SELECT * FROM c WHERE c.id = 'none'"
    hook = lambda headers, _: seen.append(float(headers["x-ms-request-charge"]))  # noqa: E731
    assert await everything(container.query_items(query, partition_key="a", response_hook=hook)) == []
    assert seen == [5]
    weaker = await connect(server.url, consistency_level="Eventual")
    read = await weaker.get_database_client("db").get_container_client("c").read_item("1", "a")
    assert charge_of(read) == 1
