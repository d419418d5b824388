"""Hostile commands and scripts to a server process, one after the other, judged by the clock: the slowest point read of
another client meanwhile, the growth of memory, and that no answer says that the server failed. Prints what became of
each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
import pytest
from gremlin_python.driver.client import Client
from gremlin_python.driver.protocol import GremlinServerError
from hostile import gremlin_requests, mongo_requests
from hostile.harness import Bystander, Holds, Memory, Verdict, judged, table
from pymongo.errors import OperationFailure, PyMongoError
from support.process import ServerProcess

SIZE = 100_000
VERTICES = 500
GENERATED = 150
_TIME_LIMIT_MS = 60_000
_OPTIONS: dict[str, Any] = {"retryReads": False, "retryWrites": False, "directConnection": True}
_BYSTANDER = """
import select, sys, time
sys.path[:0] = sys.argv[2].split(":")
import pymongo
items, slowest = pymongo.MongoClient("127.0.0.1", int(sys.argv[1]), directConnection=True)["t"]["seen"], 0.0
while True:
    if select.select([sys.stdin], [], [], 0.002)[0]:
        if not sys.stdin.readline():
            break
        print(slowest * 1000, flush=True)
        slowest = 0.0
    begun = time.perf_counter()
    assert items.find_one({"_id": 1}) is not None
    slowest = max(slowest, time.perf_counter() - begun)
"""


def _sent(database: Any, command: mongo_requests.Command) -> int:
    # A scan that evaluates for many minutes is legal; it need not be waited for.
    limit_ms = command.body.get("maxTimeMS", _TIME_LIMIT_MS)
    body = {
        **command.body,
        "maxTimeMS": limit_ms,
        **{name: list(given) for name, given in (command.sequences or {}).items()},
    }
    try:
        database.command(body)
    except OperationFailure as failure:
        return 500 if failure.code in (1, 8) else 400
    except PyMongoError:
        return 0  # the connection ended
    return 200


def _evaluated(client: Client, script: gremlin_requests.Script) -> int:
    options = {"evaluationTimeout": script.timeout_ms or 30_000}
    try:
        client.submit(script.text, request_options=options).all().result()
    except GremlinServerError as failure:
        return 500 if "its log tells" in str(failure) else 400
    return 200


def _judged(
    server: ServerProcess,
    holds: Holds,
    requests: Sequence[tuple[str, Callable[[], int]]],
    capsys: pytest.CaptureFixture[str],
) -> list[Verdict]:
    mongo_port = urlsplit(server.doors["mongo"]).port
    with pymongo.MongoClient("127.0.0.1", mongo_port, **_OPTIONS) as client:
        client["t"]["seen"].insert_one({"_id": 1})
    bystander = Bystander(_BYSTANDER, str(mongo_port), ":".join(sys.path))
    memory = Memory(server.process.pid)
    verdicts = []
    for name, send in requests:
        verdicts.append(judged(name, send, bystander, memory, holds))
        with capsys.disabled():
            print(table(verdicts[-1:]).splitlines()[1], flush=True)
    bystander.close()
    memory.close()
    return verdicts


def _report(verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + table(verdicts))
    assert not [problem for verdict in verdicts for problem in verdict.problems]


@pytest.mark.soak
def test_commands(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    holds = Holds(tmp_path)
    server = ServerProcess.start(tmp_path / "data", "--mongo-port", "0", "--mongo-auth", "off", program=holds.program)
    try:
        client: Any = pymongo.MongoClient("127.0.0.1", urlsplit(server.doors["mongo"]).port, **_OPTIONS)
        for name, documents in mongo_requests.collections(SIZE).items():
            client["t"][name].insert_many(documents)
        commands = [*mongo_requests.named(SIZE), *mongo_requests.generated(seed, GENERATED, SIZE)]
        requests = [(each.name, partial(_sent, client["t"], each)) for each in commands]
        verdicts = _judged(server, holds, requests, capsys)
        client.close()
    finally:
        server.stop()
    _report(verdicts, capsys)


@pytest.mark.soak
def test_scripts(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    holds = Holds(tmp_path)
    server = ServerProcess.start(
        *(tmp_path / "data", "--mongo-port", "0", "--mongo-auth", "off"),
        *("--gremlin-port", "0", "--gremlin-create", "/pk"),
        program=holds.program,
    )
    try:
        port = urlsplit(server.doors["gremlin"]).port
        client = Client(f"ws://127.0.0.1:{port}/", "g", username="/dbs/d/colls/g", password=server.key)
        for text in gremlin_requests.graph(VERTICES):
            client.submit(text).all().result()
        scripts = [*gremlin_requests.named(2_000), *gremlin_requests.generated(seed, GENERATED)]
        requests = [(each.name, partial(_evaluated, client, each)) for each in scripts]
        verdicts = _judged(server, holds, requests, capsys)
        client.close()
    finally:
        server.stop()
    _report(verdicts, capsys)
