"""A cluster of processes on PostgreSQL that begins with a single server's directory: `init`, a node that joins and is
built from the first, a node that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from faults.client import Client, connected
from support.process import ServerProcess, run_armillary
from support.stopped import state_of_directory

from armillary.clock import SystemClock
from armillary.cluster.directories import init, leave, position_of
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_log_maker import PostgresLogMaker

ITEMS = 30
CONTAINER = "dbs/db/colls/c"


async def put(client: Client, number: int) -> None:
    item = {"id": f"i{number}", "pk": "k", "text": "x" * 1_000}
    key = {"x-ms-documentdb-partitionkey": '["k"]'}
    answer = await client.request("POST", f"{CONTAINER}/docs", item, key, is_feed=True)
    assert answer.status == 201, answer.body


async def status_of(client: Client, number: int) -> int:
    key = {"x-ms-documentdb-partitionkey": '["k"]'}
    return (await client.request("GET", f"{CONTAINER}/docs/i{number}", None, key)).status


async def test_a_node_joins_and_leaves_a_cluster_made_of_a_single_server(
    database: str, tmp_path: Path, start_server: Callable[..., ServerProcess]
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    server = start_server("--durability", "relaxed", directory=first)
    async with connected(server.port) as client:
        await client.request("POST", "dbs", {"id": "db"}, is_feed=True)
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        assert (await client.request("POST", "dbs/db/colls", body, is_feed=True)).status == 201
        for number in range(ITEMS):
            await put(client, number)
    await asyncio.to_thread(server.stop)
    await init(PostgresLogMaker(database, allows_single=True), first, SystemClock())
    options = ("--cluster", database, "--cluster-single-postgres", "--cluster-port", "0")
    a = await asyncio.to_thread(start_server, *options, "--node", "a", directory=first)
    b = await asyncio.to_thread(start_server, *options, "--node", "b", directory=second)
    assert "built from node a" in b.log
    async with connected(a.port) as at_first, connected(b.port) as at_second:
        assert [await status_of(at_second, number) for number in range(ITEMS)] == [200] * ITEMS
        await put(at_second, ITEMS)  # forwarded to the leader
        assert await status_of(at_first, ITEMS) == 200
    await asyncio.to_thread(b.stop)
    b = await asyncio.to_thread(start_server, *options, directory=second)
    assert "built from" not in b.log, "a restarted node goes on with its replica"
    await asyncio.to_thread(a.stop)  # hands over
    async with connected(b.port) as at_second:
        await put(at_second, ITEMS + 1)
    await asyncio.to_thread(b.stop)
    position = position_of(second)
    assert position is not None
    log = await PostgresLog.open(database, generation=position.generation, allows_single=True)
    state = state_of_directory(second)
    left = await leave(second, log, "b")
    assert (left.missing_rows, left.is_removed) == (0, True)
    await log.close()
    assert state_of_directory(second) == state
    alone = await asyncio.to_thread(start_server, directory=second)
    async with connected(alone.port) as client:
        assert [await status_of(client, number) for number in (0, ITEMS, ITEMS + 1)] == [200] * 3
    refused = await asyncio.to_thread(run_armillary, "serve", "--sql-port", "0", "--data", str(first))
    assert refused.returncode == 2
    assert "armillary cluster leave" in refused.stderr
