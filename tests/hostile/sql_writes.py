"""Hostile writes to the SQL door: items as wide and as large as they may be, created, replaced, patched and deleted,
alone and in batches, and changes of the indexing policy over many such."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from hostile.sql_client import SqlClient

_KEY_HEADER = {"x-ms-documentdb-partitionkey": '["p"]'}
_EVERYTHING = {"includedPaths": [{"path": "/*"}], "excludedPaths": []}
_NOTHING = {"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]}
_CHANGED_SECONDS_MAX = 300.0


def _container(client: SqlClient, name: str, policy: dict[str, Any]) -> str:
    body = {"id": name, "partitionKey": _partition_key(), "indexingPolicy": policy}
    assert client.ask("POST", "dbs/db/colls", body)[0] == 201
    return f"dbs/db/colls/{name}"


def _partition_key() -> dict[str, Any]:
    return {"paths": ["/pk"], "kind": "Hash", "version": 2}


def _values(count: int, first: int) -> dict[str, Any]:
    """An array of numbers: one path, a term for each value."""
    return {"pk": "p", "id": "values", "a": list(range(first, first + count))}


def _paths(count: int, letter: str) -> dict[str, Any]:
    return {"pk": "p", "id": "paths", "o": {f"{letter}{number:x}": 1 for number in range(count)}}


def _wide(number: int, first: int) -> dict[str, Any]:
    return {"pk": "p", "id": f"w{number}", "a": list(range(first, first + 1_900))}


def _batch(client: SqlClient, container: str, kind: str, first: int) -> int:
    operations = []
    for number in range(100):
        item = _wide(number, first + number)
        operation = {"operationType": kind, "resourceBody": item}
        operations.append(operation if kind == "Create" else {**operation, "id": item["id"]})
    headers = {
        **_KEY_HEADER,
        "x-ms-cosmos-is-batch-request": "True",
        "x-ms-cosmos-batch-atomic": "True",
        "x-ms-cosmos-batch-ordered": "True",
    }
    return client.ask("POST", f"{container}/docs", operations, headers)[0]


def _change_policy(client: SqlClient, name: str, policy: dict[str, Any]) -> int:
    """Answered at once; what it sets off is waited for."""
    body = {"id": name, "partitionKey": _partition_key(), "indexingPolicy": policy}
    status = client.ask("PUT", f"dbs/db/colls/{name}", body)[0]
    ends_s = time.monotonic() + _CHANGED_SECONDS_MAX
    headers = {"x-ms-documentdb-populatequotainfo": "True"}
    while True:
        client.ask("GET", f"dbs/db/colls/{name}", None, headers)
        if client.headers[_PROGRESS] == "100":
            return status
        assert time.monotonic() < ends_s, "the items are indexed too slowly"
        time.sleep(0.05)


_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress"


def requests(client: SqlClient, suffix: str) -> Iterator[tuple[str, Callable[[], int]]]:
    def put(container: str, item: dict[str, Any]) -> int:
        return client.ask("PUT", f"{container}/docs/{item['id']}", item, _KEY_HEADER)[0]

    def post(container: str, item: dict[str, Any]) -> int:
        return client.ask("POST", f"{container}/docs", item, _KEY_HEADER)[0]

    def delete(container: str, item_id: str) -> int:
        return client.ask("DELETE", f"{container}/docs/{item_id}", None, _KEY_HEADER)[0]

    wide = _container(client, "wide" + suffix, _EVERYTHING)
    yield "create an item of 100,000 values", lambda: post(wide, _values(100_000, 0))
    yield "replace an item of 100,000 values", lambda: put(wide, _values(100_000, 200_000))
    yield "delete an item of 100,000 values", lambda: delete(wide, "values")
    yield "create an item of 180,000 paths", lambda: post(wide, _paths(180_000, "p"))
    yield "replace an item of 180,000 paths", lambda: put(wide, _paths(180_000, "q"))
    yield "delete an item of 180,000 paths", lambda: delete(wide, "paths")
    yield "batch of 100 wide items created", lambda: _batch(client, wide, "Create", 0)
    yield "batch of 100 wide items replaced", lambda: _batch(client, wide, "Replace", 1_000_000)

    many = _container(client, "many" + suffix, _NOTHING)
    for number in range(200):
        item = {"pk": "p", "id": f"m{number}", "a": list(range(number, number + 17_000))}
        assert post(many, item) == 201
    yield "policy change over 200 items of 118 KB", lambda: _change_policy(client, "many" + suffix, _EVERYTHING)

    large = _container(client, "large" + suffix, _NOTHING)
    for number in range(40):
        item = {"pk": "p", "id": f"l{number}", "s": [f"{number}-{place:07}" for place in range(115_000)]}
        assert post(large, item) == 201
    yield "policy change over 40 items of 1.5 MB", lambda: _change_policy(client, "large" + suffix, _EVERYTHING)
