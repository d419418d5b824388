"""Hostile requests to a server process, one after the other, judged by the clock: the slowest point read of another
client meanwhile, the growth of memory, and that no answer says that the server failed. Prints what became of each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hostile import sql_requests
from hostile.harness import Bystander, Memory, Verdict, judged, table
from hostile.sql_client import BYSTANDER, ITEMS, KEY_HEADER, SqlClient
from support.process import ServerProcess

SIZE = 1_300_000  # bytes of the large items: 2 MB is the limit
GENERATED = 200
_CONTAINER = {
    "id": "c",
    "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
    "indexingPolicy": {"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]},
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/s", "language": "en-US"}]},
}


def _verdicts(server: ServerProcess, seed: int) -> list[Verdict]:
    client = SqlClient(server.port, server.key)
    functions = [("dbs/db/colls/c/udfs", {"id": name, "body": text}) for name, text in sql_requests.FUNCTIONS.items()]
    for path, body in (("dbs", {"id": "db"}), ("dbs/db/colls", _CONTAINER), *functions):
        assert client.ask("POST", path, body)[0] == 201
    for item in sql_requests.items(SIZE):
        assert client.ask("POST", ITEMS, {"pk": "p", **item}, KEY_HEADER)[0] == 201
    bystander = Bystander(BYSTANDER, str(server.port), server.key, ":".join(sys.path))
    memory = Memory(server.process.pid)
    verdicts = []
    for query in [*sql_requests.named(SIZE), *sql_requests.generated(seed, GENERATED)]:
        verdicts.append(judged(query.name, lambda query=query: client.query(query), bystander, memory))  # type: ignore[misc]
        print(table(verdicts[-1:]).splitlines()[1], flush=True)
    bystander.close()
    memory.close()
    return verdicts


@pytest.mark.soak
def test_queries(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    server = ServerProcess.start(tmp_path / "data")
    try:
        verdicts = _verdicts(server, seed)
    finally:
        server.stop()
    with capsys.disabled():
        print("\n" + table(verdicts))
    assert not [problem for verdict in verdicts for problem in verdict.problems]
