"""Shared by the examples: connecting to the server, running `armillary` commands, and printing the sizes of a
container's partitions as bars.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient, DatabaseProxy

# The key that Microsoft published for its emulator; accepted on loopback only.
WELL_KNOWN_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
BAR_CHARACTERS = 40


def fresh_database(name: str) -> DatabaseProxy:
    """An empty database of this name; an existing one is deleted."""
    url = os.environ.get("ARMILLARY_URL", "http://127.0.0.1:8081")
    client = CosmosClient(url, os.environ.get("ARMILLARY_KEY", WELL_KNOWN_KEY))
    if any(each["id"] == name for each in client.list_databases()):
        client.delete_database(name)
    return client.create_database(name)


def armillary(*arguments: str) -> str:
    """The output of an `armillary` command. It finds the server by its data directory, which ARMILLARY_DATA may set."""
    environment = {name: value for name, value in os.environ.items() if name != "ARMILLARY_URL"}
    command = [sys.executable, "-m", "armillary", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"armillary {arguments[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def items_by_partition(container: ContainerProxy) -> dict[str, int]:
    """The number of items in each physical partition, by range id."""
    properties: dict[str, Any] = container.read(populate_partition_key_range_statistics=True)
    return {each["id"]: each["documentCount"] for each in properties["statistics"]}


def picture(title: str, counts: dict[str, int]) -> None:
    """A bar for each partition."""
    most = max(counts.values()) or 1
    print(title)
    for range_id, count in counts.items():
        print(f"  partition {range_id}  {'█' * round(BAR_CHARACTERS * count / most):{BAR_CHARACTERS}}  {count} items")
