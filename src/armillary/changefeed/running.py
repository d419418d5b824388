"""A worker as a program of its own: connects, reads until it is told to stop, and leaves in order."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from armillary.changefeed.consumer import Consumer, OnChanges

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_consumer(url: str, credential: Any, feed: str, leases: str, on_changes: OnChanges, **options: Any) -> None:
    """Read the change feed of `feed`, a `database/container`, until SIGINT or SIGTERM comes. `leases` is another
    container, which is made if it does not exist; the options are those of `Consumer`. For programs that are not
    asynchronous otherwise: call it in the main thread."""
    asyncio.run(_run(url, credential, feed, leases, on_changes, options))


async def _run(
    url: str, credential: Any, feed: str, leases: str, on_changes: OnChanges, options: dict[str, Any]
) -> None:
    stopping = asyncio.Event()
    for each in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    async with CosmosClient(url, credential) as client:
        feed_database, feed_name = _names(feed)
        lease_database, lease_name = _names(leases)
        lease_container = await client.get_database_client(lease_database).create_container_if_not_exists(
            lease_name, PartitionKey("/id")
        )
        feed_container = client.get_database_client(feed_database).get_container_client(feed_name)
        async with Consumer(feed_container, lease_container, on_changes, **options):
            await stopping.wait()


def _names(path: str) -> tuple[str, str]:
    database, _, container = path.partition("/")
    if not database or not container:
        raise ValueError(f"{path!r} must be a database and a container: database/container")
    return database, container
