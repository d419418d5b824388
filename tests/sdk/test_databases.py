"""Databases: their life, their names, their lists."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, pages_of, refused

ODD_NAMES = [
    "a b",
    "!@$%^&*()-~`'_[]{}|;:,.<>",
    "Grüße",
    "数据库",
    "😀",
    "x" * 255,
    "50%25",
    "+a+b+",
    "x==",
    "AbCdEf==",
]


async def test_life(client: Any, name: str) -> None:
    database = await client.create_database(name)
    properties = await database.read()
    assert properties["id"] == name
    assert properties["_self"] == f"dbs/{properties['_rid']}/"
    assert len(properties["_rid"]) == 8
    assert properties["_rid"].endswith("==")
    assert properties["_colls"] == "colls/"
    assert properties["_users"] == "users/"
    assert isinstance(properties["_ts"], int)
    headers = properties.get_response_headers()
    assert headers["etag"] == properties["_etag"]
    assert properties["_etag"].startswith('"')
    with refused(409, text="(Conflict)"):
        await client.create_database(name)
    await client.delete_database(name)
    with refused(404, text="(NotFound)"):
        await database.read()
    with refused(404):
        await client.delete_database(name)


async def test_create_if_not_exists(client: Any, name: str) -> None:
    first = await client.create_database_if_not_exists(name)
    second = await client.create_database_if_not_exists(name)
    assert (await first.read())["_rid"] == (await second.read())["_rid"]
    await client.delete_database(name)


async def test_deleting_takes_everything_along(client: Any, name: str) -> None:
    database = await client.create_database(name)
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    old_rid = (await database.read())["_rid"]
    await client.delete_database(name)
    again = await client.create_database(name)
    assert (await again.read())["_rid"] != old_rid
    assert await everything(again.list_containers()) == []
    container = await again.create_container("c", PartitionKey("/pk"))
    with refused(404):  # and not 1002: the session of the old container, which the client still has, is no trouble
        await container.read_item("1", "a")
    await client.delete_database(name)


@pytest.mark.parametrize("odd", ODD_NAMES)
async def test_names_of_any_form(client: Any, odd: str) -> None:
    database = await client.create_database(odd)
    assert (await database.read())["id"] == odd
    container = await database.create_container(odd, PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    assert (await container.read_item("1", "a"))["id"] == "1"
    assert odd in [each["id"] async for each in client.list_databases()]
    await client.delete_database(odd)


@pytest.mark.parametrize("bad", ["x" * 256, "a\tb", "a\nb", "", " "])
async def test_names_that_no_database_has(client: Any, bad: str) -> None:
    with pytest.raises(Exception) as caught:
        await client.create_database(bad)
    assert getattr(caught.value, "status_code", 400) == 400


async def test_lists_and_queries(client: Any, name: str) -> None:
    names = [f"{name}-{letter}" for letter in "abcde"]
    for each in names:
        await client.create_database(each)
    listed = [each["id"] async for each in client.list_databases() if each["id"] in names]
    assert listed == names
    found = await everything(
        client.query_databases("SELECT * FROM root r WHERE r.id=@id", parameters=[{"name": "@id", "value": names[1]}])
    )
    assert [each["id"] for each in found] == [names[1]]
    pages = await pages_of(client.list_databases(max_item_count=2))
    assert all(len(page) <= 2 for page in pages)
    assert {each["id"] for page in pages for each in page} >= set(names)
    for each in names:
        await client.delete_database(each)
