"""Stored procedures over kill -9 of the server: what was answered is there, what was not is there whole or not at all,
and no process and no directory of the jail outlives its server."""

from __future__ import annotations

import asyncio
import os
import random
import select
from collections.abc import Sequence
from pathlib import Path

from faults.client import Client, ConnectionLost
from support.process import ServerProcess

ROUNDS = 3
WORKERS = 4
ITEMS = 10
CONTAINER = "dbs/d/colls/c"
BULK = """function (documents) {
    var count = 0;
    next();
    function next() {
        if (count === documents.length) return __.response.setBody(count);
        if (!__.createDocument(__.getSelfLink(), documents[count], created)) throw new Error("not accepted");
    }
    function created(error) { if (error) throw error; count++; next(); }
}"""


async def test_procedures_are_whole(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    directory = tmp_path / "data"
    server = ServerProcess.start(directory)
    client = await Client.connect(server.port)
    for link, body in (
        ("dbs", {"id": "d"}),
        ("dbs/d/colls", {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}),
        (f"{CONTAINER}/sprocs", {"id": "bulk", "body": BULK}),
    ):
        assert (await client.request("POST", link, body, is_feed=True)).status == 201
    client.close()
    answered: set[str] = set()
    sent: set[str] = set()
    for turn in range(ROUNDS):
        keys = [[f"{turn}-{worker}-{number}" for number in range(500)] for worker in range(WORKERS)]
        work = [asyncio.create_task(insert(server.port, each, sent, answered)) for each in keys]
        wanted = len(answered) + dice.randrange(2, 20)
        while len(answered) < wanted:  # in the middle of whatever comes then
            await asyncio.wait(work, timeout=0.001)
        cells = children_of(server.process.pid)
        assert cells
        watched = [os.pidfd_open(process_id) for process_id in cells]
        server.kill()
        await asyncio.gather(*work)
        for each in watched:
            assert await asyncio.to_thread(select.select, [each], [], [], 30) == ([each], [], [])
            os.close(each)
        server = ServerProcess.start(directory)
    counts = await stored(server.port, sorted(sent))
    assert {count for key, count in counts.items() if key in answered} == {ITEMS}
    assert set(counts.values()) <= {0, ITEMS}
    assert server.stop() == 0
    ServerProcess.check(directory)


async def insert(port: int, keys: Sequence[str], sent: set[str], answered: set[str]) -> None:
    client = await Client.connect(port)
    try:
        for key in keys:
            documents = [{"id": str(number), "pk": key} for number in range(ITEMS)]
            sent.add(key)
            headers = {"x-ms-documentdb-partitionkey": f'["{key}"]'}
            answer = await client.request("POST", f"{CONTAINER}/sprocs/bulk", [documents], headers)
            assert (answer.status, answer.body) == (200, b"%d" % ITEMS)
            answered.add(key)
    except ConnectionLost:
        pass
    finally:
        client.close()


async def stored(port: int, keys: Sequence[str]) -> dict[str, int]:
    """How many items each key has."""
    client = await Client.connect(port)
    counts = {}
    for key in keys:
        headers = {"x-ms-documentdb-partitionkey": f'["{key}"]', "x-ms-documentdb-isquery": "True"}
        headers["Content-Type"] = "application/query+json"
        query = {"query": "SELECT VALUE COUNT(1) FROM c"}
        answer = await client.request("POST", f"{CONTAINER}/docs", query, headers, is_feed=True)
        [counts[key]] = answer.json["Documents"]
    client.close()
    return counts


def children_of(process_id: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]
