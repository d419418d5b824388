"""Backups and snapshot files that are taken while clients write and the server is killed: each holds all that was
acknowledged before it began, and nothing that does not fit together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
from faults.client import Client, ConnectionLost, connected
from support.forked import Forked
from support.process import ServerProcess, clean_environment, run_armillary

WRITERS = 4
CONTAINER = "dbs/db/colls/c"
KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class Load:
    """Clients that count up items of their own, and what they were told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.acknowledged: dict[str, int] = {}
        self.is_over = False

    async def write(self, number: int) -> None:
        count = 0
        try:
            async with connected(self._port) as client:
                while not self.is_over:
                    count += 1
                    item = {"id": f"w{number}-{count % 50}", "pk": f"w{number}", "count": count, "text": "x" * 500}
                    key = {"x-ms-documentdb-partitionkey": f'["w{number}"]', "x-ms-documentdb-is-upsert": "true"}
                    answer = await client.request("POST", f"{CONTAINER}/docs", item, key, is_feed=True)
                    assert answer.status in (200, 201), answer.body
                    self.acknowledged[str(item["id"])] = count
        except ConnectionLost:
            pass


async def create(port: int) -> None:
    async with connected(port) as client:
        await client.request("POST", "dbs", {"id": "db"}, is_feed=True)
        body = {"id": "c", "partitionKey": KEY}
        answer = await client.request("POST", "dbs/db/colls", body, {"x-ms-offer-throughput": "20000"}, is_feed=True)
        assert answer.status == 201


def start_backup(directory: Path, backups: Path) -> Forked:
    command = ("armillary", "backup", "create", str(backups), "--data", str(directory))
    return Forked.start(*command, environment=clean_environment())


async def finished(process: Forked) -> str:
    with process.stdout as output:
        said = await asyncio.to_thread(output.read)
    await asyncio.to_thread(process.wait, 120)
    return said


async def counts(port: int) -> dict[str, int]:
    async with connected(port) as client:
        found: dict[str, int] = {}
        for number in range(WRITERS):
            found |= await counts_of(client, number)
        return found


async def counts_of(client: Client, number: int) -> dict[str, int]:
    headers = {"x-ms-documentdb-partitionkey": f'["w{number}"]', "x-ms-max-item-count": "1000"}
    answer = await client.request("GET", f"{CONTAINER}/docs", None, headers, is_feed=True)
    return {item["id"]: item["count"] for item in orjson.loads(answer.body)["Documents"]}


def check_holds(found: dict[str, int], acknowledged: dict[str, int]) -> None:
    for item_id, count in acknowledged.items():
        assert found[item_id] >= count, f"{item_id} is at {found[item_id]}, and {count} was acknowledged"


async def test_backups_under_load(start_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    directory, backups = tmp_path / "server", tmp_path / "backups"
    server = start_server()
    await create(server.port)
    load = Load(server.port)
    writers = [asyncio.create_task(load.write(number)) for number in range(WRITERS)]
    before: list[dict[str, int]] = []
    for _ in range(2):
        before.append(dict(load.acknowledged))
        process = start_backup(directory, backups)
        assert "Backup" in await finished(process)
    snapshot = tmp_path / "db.snapshot"
    before_snapshot = dict(load.acknowledged)
    outcome = await asyncio.to_thread(run_armillary, "snapshot", "db", str(snapshot), "--data", str(directory))
    assert outcome.returncode == 0, outcome.stderr
    # The last one goes on without its server.
    before.append(dict(load.acknowledged))
    known = set((backups / "files").iterdir())
    process = start_backup(directory, backups)
    while process.poll() is None and set((backups / "files").iterdir()) == known:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    server.kill()
    assert "Backup 3" in await finished(process)
    await asyncio.gather(*writers)
    assert min(map(len, before[1:])) > 0
    for number in (1, 3):
        outcome = await asyncio.to_thread(run_armillary, "backup", "verify", str(backups), "--number", str(number))
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    restored = tmp_path / "restored"
    run_armillary("backup", "restore", str(backups), "--to", str(restored))
    again = start_server(directory=restored)
    check_holds(await counts(again.port), before[2])
    # The file too, in a server of its own, killed right after.
    fresh = tmp_path / "fresh"
    third = start_server(directory=fresh)
    outcome = await asyncio.to_thread(run_armillary, "restore", str(snapshot), "--data", str(fresh))
    assert outcome.returncode == 0, outcome.stderr
    third.kill()
    fourth = start_server(directory=fresh)
    check_holds(await counts(fourth.port), before_snapshot)
    # And what was killed has lost nothing.
    fifth = start_server()
    assert not any((directory / "checkpoints").iterdir())
    check_holds(await counts(fifth.port), load.acknowledged)
