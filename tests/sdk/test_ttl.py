"""Time to live: the container's default, the item's own, and that an expired item is gone at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, refused
from sdk.conftest import Connect
from support.process import ServerProcess
from support.server_operator import Operator

LIFE_S = 100


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Of a server whose time stands still until it is moved."""
    directory = tmp_path_factory.mktemp("expiring") / "data"
    server = ServerProcess.start(directory, "--durability", "relaxed", "--clock", "movable")
    operator = Operator(server)
    operator.ask("POST", "clock", {"frozen": True})
    yield operator
    server.stop()
    ServerProcess.check(directory)


@pytest.fixture
async def client(connect: Connect, operator: Operator) -> Any:
    return await connect(operator.server.url)


def move(operator: Operator, seconds: int) -> None:
    operator.ask("POST", "clock", {"advanceSeconds": seconds})


async def test_expiry(database: Any, operator: Operator) -> None:
    """One move of the clock for all that can be seen after it."""
    default = await database.create_container("default", PartitionKey("/pk"), default_ttl=LIFE_S)
    on = await database.create_container("on", PartitionKey("/pk"), default_ttl=-1)
    off = await database.create_container("off", PartitionKey("/pk"))
    unique = {"uniqueKeys": [{"paths": ["/u"]}]}
    taken = await database.create_container("unique", PartitionKey("/pk"), default_ttl=LIFE_S, unique_key_policy=unique)
    for container in (default, on, off):
        await container.create_item({"id": "plain", "pk": "a"})
        await container.create_item({"id": "short", "pk": "a", "ttl": LIFE_S})
        await container.create_item({"id": "long", "pk": "a", "ttl": 1000})
        await container.create_item({"id": "never", "pk": "a", "ttl": -1})
    await taken.create_item({"id": "1", "pk": "a", "u": 1})
    assert len(await everything(default.read_all_items())) == 4
    move(operator, LIFE_S - 1)
    assert len(await everything(default.read_all_items())) == 4
    move(operator, 1)
    assert await _ids(default) == ["long", "never"]
    assert await _ids(on) == ["long", "never", "plain"]
    assert await _ids(off) == ["long", "never", "plain", "short"]
    for item_id in ("plain", "short"):
        with refused(404):
            await default.read_item(item_id, "a")
        with refused(404):
            await default.replace_item(item_id, {"id": item_id, "pk": "a"})
    with refused(404):
        await default.patch_item("plain", "a", [{"op": "set", "path": "/n", "value": 1}])
    with refused(404):
        await default.delete_item("short", "a")
    found = await everything(default.query_items("SELECT * FROM c WHERE c.id = 'plain'"))
    assert found == []
    assert [each["id"] for each in await default.read_items([("plain", "a"), ("long", "a")])] == ["long"]
    # An expired item does not conflict with a new one.
    await default.create_item({"id": "plain", "pk": "a", "ttl": 1000, "n": 2})
    assert (await default.read_item("plain", "a"))["n"] == 2
    await taken.create_item({"id": "2", "pk": "a", "u": 1})


async def test_a_write_starts_the_time_anew(database: Any, operator: Operator) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), default_ttl=LIFE_S)
    await container.create_item({"id": "1", "pk": "a"})
    move(operator, LIFE_S - 1)
    await container.upsert_item({"id": "1", "pk": "a", "n": 1})
    move(operator, LIFE_S - 1)
    assert (await container.read_item("1", "a"))["n"] == 1
    move(operator, 1)
    with refused(404):
        await container.read_item("1", "a")


async def test_a_default_that_comes_later(database: Any, operator: Operator) -> None:
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a", "ttl": LIFE_S})
    await container.create_item({"id": "2", "pk": "a"})
    move(operator, LIFE_S)
    assert await _ids(container) == ["1", "2"]
    await database.replace_container("c", PartitionKey("/pk"), default_ttl=-1)
    assert await _ids(container) == ["2"]
    with refused(404):
        await container.read_item("1", "a")


@pytest.mark.parametrize("ttl", [0, -2, None, "5", 1.5, True, 2**31])
async def test_refused(container: Any, ttl: Any) -> None:
    with refused(400):
        await container.create_item({"id": "1", "pk": "a", "ttl": ttl})
    with refused(404):
        await container.read_item("1", "a")


async def _ids(container: Any) -> list[str]:
    return sorted([each["id"] async for each in container.read_all_items()])
