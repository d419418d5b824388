"""Users, their permissions, and what a client may do that has only a permission's token."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, open_client, refused
from support.process import ServerProcess


async def test_users(database: Any) -> None:
    user = await database.create_user({"id": "ann"})
    properties = await user.read()
    assert properties["id"] == "ann"
    assert properties["_permissions"] == "permissions/"
    with refused(409):
        await database.create_user({"id": "ann"})
    await database.upsert_user({"id": "ann"})
    await database.upsert_user({"id": "ben"})
    assert [each["id"] async for each in database.list_users()] == ["ann", "ben"]
    found = await everything(
        database.query_users("SELECT * FROM root r WHERE r.id=@id", parameters=[{"name": "@id", "value": "ben"}])
    )
    assert [each["id"] for each in found] == ["ben"]
    renamed = await database.replace_user("ann", {"id": "anna"})
    assert (await renamed.read())["_rid"] == properties["_rid"]
    with refused(404):
        await database.get_user_client("ann").read()
    await database.delete_user("anna")
    with refused(404):
        await database.delete_user("anna")


async def test_permissions(database: Any, container: Any) -> None:
    user = await database.create_user({"id": "ann"})
    link = (await container.read())["_self"]
    made = await user.create_permission({"id": "p", "permissionMode": "Read", "resource": link})
    assert (made.id, made.permission_mode, made.resource_link) == ("p", "Read", link)
    assert made.properties["_token"].startswith("type=resource&ver=1&sig=")
    with refused(409):
        await user.create_permission({"id": "p", "permissionMode": "Read", "resource": link})
    read = await user.get_permission("p")
    assert read.properties["_rid"] == made.properties["_rid"]
    replaced = await user.replace_permission("p", {"id": "q", "permissionMode": "All", "resource": link})
    assert replaced.properties["_rid"] == made.properties["_rid"]
    assert replaced.permission_mode == "All"
    await user.upsert_permission({"id": "r", "permissionMode": "Read", "resource": "dbs/no/colls/such"})
    assert sorted([each["id"] async for each in user.list_permissions()]) == ["q", "r"]
    found = await everything(
        user.query_permissions("SELECT * FROM root r WHERE r.id=@id", parameters=[{"name": "@id", "value": "q"}])
    )
    assert [each["permissionMode"] for each in found] == ["All"]
    for bad in ({"permissionMode": "Write"}, {"permissionMode": None}, {"resource": 5}):
        with refused(400):
            await user.create_permission({"id": "bad", "permissionMode": "Read", "resource": link, **bad})
    await user.delete_permission("q")
    with refused(404):
        await user.get_permission("q")


async def _token(database: Any, mode: str, resource: str, **more: Any) -> str:
    user = await database.create_user({"id": f"{mode}-{abs(hash((resource, str(more))))}"})
    made = await user.create_permission({"id": "p", "permissionMode": mode, "resource": resource, **more})
    token: str = made.properties["_token"]
    return token


@pytest.mark.parametrize("form", ["name", "rid"])
async def test_a_token_that_reads(connect: Any, database: Any, container: Any, name: str, form: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    link = f"dbs/{name}/colls/items" if form == "name" else (await container.read())["_self"]
    token = await _token(database, "Read", link)
    reader = (await connect(credential={f"dbs/{name}/colls/items": token})).get_database_client(name)
    mine = reader.get_container_client("items")
    assert (await mine.read())["id"] == "items"
    assert (await mine.read_item("1", "a"))["id"] == "1"
    assert len(await everything(mine.read_all_items())) == 1
    assert len(await everything(mine.query_items("SELECT * FROM c WHERE c.id = '1'"))) == 1
    assert len(await everything(mine.query_items("SELECT * FROM c", partition_key="a"))) == 1
    with refused(403, text="(Forbidden)"):
        await mine.create_item({"id": "2", "pk": "a"})
    with refused(403):
        await mine.upsert_item({"id": "1", "pk": "a"})
    with refused(403):
        await mine.delete_item("1", "a")
    with refused(403):
        await mine.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 1}])
    with refused(403):
        await mine.execute_item_batch([("create", ({"id": "2", "pk": "a"},))], "a")
    with refused(403):
        await mine.delete_all_items_by_partition_key("a")
    with refused(403):
        await reader.delete_container("items")
    assert len(await everything(container.read_all_items())) == 1


async def test_a_token_that_may_do_all(connect: Any, database: Any, container: Any, name: str) -> None:
    other = await database.create_container("other", PartitionKey("/pk"))
    token = await _token(database, "All", f"dbs/{name}/colls/items")
    writer = (await connect(credential={f"dbs/{name}/colls/items": token})).get_database_client(name)
    mine = writer.get_container_client("items")
    await mine.create_item({"id": "1", "pk": "a", "n": 1})
    await mine.upsert_item({"id": "1", "pk": "a", "n": 2})
    await mine.replace_item("1", {"id": "1", "pk": "a", "n": 3})
    await mine.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}])
    await mine.execute_item_batch([("create", ({"id": "2", "pk": "a"},))], "a")
    assert (await mine.read_item("1", "a"))["n"] == 4
    await mine.delete_item("1", "a")
    # The same token for another container is of no use.
    thief = (await connect(credential={f"dbs/{name}/colls/other": token})).get_database_client(name)
    with refused(403):
        await thief.get_container_client("other").read_item("1", "a")
    await other.create_item({"id": "1", "pk": "a"})


async def test_a_token_for_one_partition_key(connect: Any, database: Any, container: Any, name: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "1", "pk": "b"})
    link = f"dbs/{name}/colls/items"
    token = await _token(database, "All", link, resourcePartitionKey=["a"])
    mine = (await connect(credential={link: token})).get_database_client(name).get_container_client("items")
    assert (await mine.read_item("1", "a"))["pk"] == "a"
    await mine.create_item({"id": "2", "pk": "a"})
    found = await everything(mine.query_items("SELECT * FROM c", partition_key="a"))
    assert len(found) == 2
    with refused(403):
        await mine.read_item("1", "b")
    with refused(403):
        await mine.create_item({"id": "3", "pk": "b"})
    with refused(403):
        await mine.delete_item("1", "b")
    with refused(403):
        await everything(mine.query_items("SELECT * FROM c", partition_key="b"))
    with refused(403):
        await everything(mine.query_items("SELECT * FROM c"))
    with refused(403):
        await everything(mine.read_all_items())
    with refused(403):
        await mine.execute_item_batch([("read", ("1",))], "b")


async def test_a_token_for_a_database(connect: Any, database: Any, container: Any, name: str) -> None:
    token = await _token(database, "All", f"dbs/{name}")
    mine = (await connect(credential={f"dbs/{name}": token})).get_database_client(name)
    assert (await mine.read())["id"] == name
    await mine.get_container_client("items").create_item({"id": "1", "pk": "a"})
    assert len(await everything(container.read_all_items())) == 1


@pytest.mark.parametrize("form", ["name", "rid"])
async def test_a_token_for_an_item(connect: Any, database: Any, container: Any, name: str, form: str) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "2", "pk": "a"})
    link = f"dbs/{name}/colls/items"
    resource = f"{link}/docs/1" if form == "name" else created["_self"]
    token = await _token(database, "Read", resource, resourcePartitionKey=["a"])
    mine = (await connect(credential={link: token})).get_database_client(name).get_container_client("items")
    assert (await mine.read_item("1", "a"))["id"] == "1"
    with refused(403):
        await mine.read_item("2", "a")


async def test_lifetimes_that_are_refused(database: Any, container: Any) -> None:
    user = await database.create_user({"id": "ann"})
    body = {"id": "p", "permissionMode": "Read", "resource": (await container.read())["_self"]}
    for seconds in (9, 86_401, "soon"):
        with refused(400):
            await user.create_permission(body, resource_token_expiry_seconds=seconds)
        with refused(404):
            await user.get_permission("p")


async def test_credentials_that_are_refused(connect: Any) -> None:
    with refused(401):
        await connect(credential={})
    with refused(401):
        await connect(credential="bm90IHRoZSBrZXkgb2YgdGhpcyBzZXJ2ZXI=")


async def test_a_token_that_is_still_good(connect: Any, database: Any, container: Any, name: str) -> None:
    user = await database.create_user({"id": "ann"})
    body = {"id": "p", "permissionMode": "Read", "resource": f"dbs/{name}/colls/items"}
    made = await user.create_permission(body, resource_token_expiry_seconds=1000)
    client = await connect(credential={f"dbs/{name}/colls/items": made.properties["_token"]})
    assert (await client.get_database_client(name).get_container_client("items").read())["id"] == "items"


async def test_a_token_that_has_expired(server: ServerProcess, flavour: str, aging_token: tuple[str, float]) -> None:
    token, ends_s = aging_token
    await asyncio.sleep(max(0.0, ends_s + 0.1 - time.time()))
    with refused(401, text="expired"):
        await open_client(flavour, server.url, {"dbs/aging/colls/items": token})
