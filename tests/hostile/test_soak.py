"""Hostile requests to a server process, one after the other, judged by the clock: the slowest point read of another
client meanwhile, the growth of memory, and that no answer says that the server failed. Prints what became of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient
from hostile import sql_requests, sql_writes, table_requests
from hostile.harness import ATTEMPTS, Bystander, Holds, Memory, Verdict, judged, table
from hostile.sql_client import BYSTANDER, ITEMS, KEY_HEADER, SqlClient
from support.process import ServerProcess

SIZE = 1_300_000  # bytes of the large items: 2 MB is the limit
GENERATED = 200
TABLE_ENTITIES, TABLE_FILTERS, FILTER_CHARACTERS = 2_000, 60, 6_000

Requests = Iterator[tuple[str, Callable[[], int]]]
_CONTAINER = {
    "id": "c",
    "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
    "indexingPolicy": {"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]},
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/s", "language": "en-US"}]},
}


def _verdicts(
    server: ServerProcess,
    holds: Holds,
    requests: Requests,
    capsys: pytest.CaptureFixture[str],
    attempts: int = ATTEMPTS,
) -> list[Verdict]:
    bystander = Bystander(BYSTANDER, str(server.port), server.key, ":".join(sys.path))
    memory = Memory(server.process.pid)
    verdicts = []
    for name, send in requests:
        verdicts.append(judged(name, send, bystander, memory, holds, attempts))
        with capsys.disabled():
            print(table(verdicts[-1:]).splitlines()[1], flush=True)
    bystander.close()
    memory.close()
    return verdicts


def _prepared(server: ServerProcess) -> SqlClient:
    client = SqlClient(server.port, server.key)
    for path, body in (("dbs", {"id": "db"}), ("dbs/db/colls", _CONTAINER)):
        assert client.ask("POST", path, body)[0] == 201
    assert client.ask("POST", ITEMS, {"pk": "p", "id": "i0", "n": 0}, KEY_HEADER)[0] == 201
    return client


@contextmanager
def _serving(directory: Path, *arguments: str) -> Iterator[tuple[ServerProcess, SqlClient, Holds]]:
    holds = Holds(directory)
    server = ServerProcess.start(directory / "data", *arguments, program=holds.program)
    try:
        with closing(_prepared(server)) as client:
            yield server, client, holds
    finally:
        server.stop()


def _report(verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + table(verdicts))
    assert not [problem for verdict in verdicts for problem in verdict.problems]


@pytest.mark.soak
def test_queries(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    def requests(client: SqlClient) -> Requests:
        for name, text in sql_requests.FUNCTIONS.items():
            assert client.ask("POST", "dbs/db/colls/c/udfs", {"id": name, "body": text})[0] == 201
        for item in sql_requests.items(SIZE):
            if item["id"] != "i0":
                assert client.ask("POST", ITEMS, {"pk": "p", **item}, KEY_HEADER)[0] == 201
        for query in [*sql_requests.named(SIZE), *sql_requests.generated(seed, GENERATED)]:
            yield query.name, partial(client.query, query)

    with _serving(tmp_path) as (server, client, holds):
        verdicts = _verdicts(server, holds, requests(client), capsys)
    _report(verdicts, capsys)


@pytest.mark.soak
def test_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Writes of items as large and as wide as they may be, and changes of the indexing policy over such."""
    best: dict[str, Verdict] = {}
    with _serving(tmp_path) as (server, client, holds):
        for attempt in range(ATTEMPTS):  # all of them again, in new containers: a write cannot be sent twice
            for found in _verdicts(server, holds, sql_writes.requests(client, str(attempt)), capsys, attempts=1):
                best[found.name] = min(found, best.get(found.name, found), key=lambda verdict: verdict.stall_ms)
            if not any(verdict.is_unexplained for verdict in best.values()):
                break
    _report(list(best.values()), capsys)


@pytest.mark.soak
def test_filters(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    def requests(server: ServerProcess) -> Requests:
        address = server.doors["table"].replace("127.0.0.1", "localhost")
        credential = AzureNamedKeyCredential("localhost", server.key)
        with TableServiceClient(address, credential=credential, retry_total=0) as service:
            people = service.create_table("people")
            for entity in table_requests.entities(TABLE_ENTITIES):
                people.create_entity(entity)
            named = table_requests.named(FILTER_CHARACTERS)
            for asked in [*named, *table_requests.generated(seed, TABLE_FILTERS, FILTER_CHARACTERS)]:
                yield asked.name, partial(_filtered, people, asked)

    with _serving(tmp_path, "--table-port", "0") as (server, _client, holds):
        verdicts = _verdicts(server, holds, requests(server), capsys)
    _report(verdicts, capsys)


def _filtered(people: TableClient, asked: table_requests.Filter) -> int:
    select = asked.select.split(",") if asked.select else None
    try:
        pages = people.query_entities(asked.text, select=select) if asked.text else people.list_entities(select=select)
        for _page in pages.by_page():
            pass
    except HttpResponseError as refused:
        return refused.status_code or 0
    return 200
