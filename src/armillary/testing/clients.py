"""The clients of the four protocols, connected to a server for tests. Each package is imported when its client is made;
if it is not installed, the error names the command that installs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from armillary.testing.controls import Controls

if TYPE_CHECKING:
    from azure.cosmos import ContainerProxy, CosmosClient, DatabaseProxy
    from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
    from azure.data.tables import TableServiceClient
    from pymongo import MongoClient

_PACKAGES: Final = {
    "azure.cosmos": "azure-cosmos",
    "azure.cosmos.aio": "azure-cosmos aiohttp",
    "azure.data.tables": "azure-data-tables",
    "gremlin_python.driver": "gremlinpython",
    "pymongo": "pymongo",
}


_MODULE_OF_FIXTURE: Final = {
    "cosmos_client": "azure.cosmos",
    "table_service_client": "azure.data.tables",
    "gremlin_client": "gremlin_python.driver",
    "mongo_client": "pymongo",
}


class MissingClient(ImportError):
    """A client package is not installed."""


def load(module: str, what: str) -> Any:
    """A module of a client package. `what`: the fixture or method that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        packages = _PACKAGES[module]
        name = packages.split()[0]
        message = f"{what} needs {name}, which cannot be imported ({error}): pip install {packages}"
        raise MissingClient(message) from None


def preload(fixtures: Collection[str]) -> None:
    """Import what the clients of these fixtures need. What is missing is told when the fixture is made."""
    for fixture, module in _MODULE_OF_FIXTURE.items():
        if fixture in fixtures:
            with suppress(ImportError):
                importlib.import_module(module)


def cosmos_client(server: Controls, what: str = "cosmos_client", **options: Any) -> CosmosClient:
    client: CosmosClient = load("azure.cosmos", what).CosmosClient(server.url, server.key, **options)
    return client


def async_cosmos_client(server: Controls, what: str = "async_cosmos_client", **options: Any) -> AsyncCosmosClient:
    """To be used with `async with`."""
    load("azure.cosmos", what)
    client: AsyncCosmosClient = load("azure.cosmos.aio", what).CosmosClient(server.url, server.key, **options)
    return client


def create_container(
    database: DatabaseProxy,
    name: str,
    partition_key: str | list[str],
    *,
    throughput: int | None = None,
    **definition: Any,
) -> ContainerProxy:
    """`partition_key`: a path, or up to three of a hierarchical key. `definition`: as of azure-cosmos'
    `create_container`."""
    cosmos = load("azure.cosmos", "cosmos_container")
    if isinstance(partition_key, str):
        key = cosmos.PartitionKey(partition_key)
    else:
        key = cosmos.PartitionKey(path=partition_key, kind="MultiHash")
    if throughput is not None:
        definition["offer_throughput"] = throughput
    made: ContainerProxy = database.create_container(name, key, **definition)
    return made


def mongo_client(server: Controls, what: str = "mongo_client", **options: Any) -> MongoClient[dict[str, Any]]:
    client: MongoClient[dict[str, Any]] = load("pymongo", what).MongoClient(server.mongo_url, **options)
    return client


def table_service_client(server: Controls, what: str = "table_service_client") -> TableServiceClient:
    tables = load("azure.data.tables", what)
    client: TableServiceClient = tables.TableServiceClient.from_connection_string(server.connection_strings["table"])
    return client


def gremlin_client(
    server: Controls, database: str = "test", graph: str = "graph", what: str = "gremlin_client", **options: Any
) -> Any:
    """Of a graph that exists: a container with a partition key of one property."""
    driver = load("gremlin_python.driver", what)
    client = importlib.import_module(f"{driver.__name__}.client")
    serializer = importlib.import_module(f"{driver.__name__}.serializer")
    return client.Client(
        server.gremlin_url,
        "g",
        username=f"/dbs/{database}/colls/{graph}",
        password=server.key,
        message_serializer=serializer.GraphSONSerializersV2d0(),
        **options,
    )
