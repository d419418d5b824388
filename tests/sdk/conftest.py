"""The released Python clients on a real server: every test that asks for `client` runs with both of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from sdk.clients import Blocking, open_client
from support.process import ServerProcess

_numbers = count(1)

Connect = Callable[..., Awaitable[Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The asynchronous client hands large bodies to aiohttp as they are; not ours to mend.
        item.add_marker(pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"))


@pytest.fixture(autouse=True)
def _impatient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose first request is refused asks three times more, half a second apart."""
    monkeypatch.setenv("AZURE_COSMOS_HEALTH_CHECK_RETRY_AFTER_MS", "10")


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"test-{next(_numbers)}"


@pytest.fixture(params=["sync", "aio"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def connect(flavour: str, server: ServerProcess) -> AsyncIterator[Connect]:
    """await connect(): another client of the shared server, or of `url`, with `credential` instead of the key."""
    opened: list[Any] = []

    async def open_one(url: str = server.url, credential: Any = server.key, **options: Any) -> Any:
        client = await open_client(flavour, url, credential, **options)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        closing = client.close()
        if not isinstance(client, Blocking):
            await closing


@pytest.fixture
async def client(connect: Connect) -> Any:
    return await connect()


@pytest.fixture
async def database(client: Any, name: str) -> AsyncIterator[Any]:
    yield await client.create_database(name)
    await client.delete_database(name)


@pytest.fixture
async def container(database: Any) -> Any:
    """Partitioned by /pk."""
    return await database.create_container("items", PartitionKey("/pk"))


@pytest.fixture(scope="session", autouse=True)
def aging_token(server: ServerProcess) -> Iterator[tuple[str, float]]:
    """A token of the shortest life, ten seconds, and when it ends: it grows old while the other tests run."""
    with CosmosClient(server.url, server.key) as client:
        database = client.create_database("aging")
        database.create_container("items", PartitionKey("/pk"))
        user = database.create_user({"id": "ann"})
        body = {"id": "p", "permissionMode": "Read", "resource": "dbs/aging/colls/items"}
        made = user.create_permission(body, resource_token_expiry_seconds=10)
        yield made.properties["_token"], time.time() + 10
        client.delete_database("aging")
