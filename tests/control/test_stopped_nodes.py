"""`armillary cluster init|leave|reset-log`: a single server's data becomes a cluster's and a single server's again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from support.postgres import PostgresPrograms, PostgresServer, unavailable
from support.process import KEY, ServerProcess, call_armillary

NODE = ("--cluster-single-postgres", "--cluster-port", "0")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    try:
        programs = PostgresPrograms()
        server = PostgresServer(programs, "single")
        server.start()
        server.wait_ready()
    except OSError as error:
        unavailable(error)
        raise
    yield server
    server.stop()
    programs.remove()


def command(*arguments: str, code: int = 0) -> str:
    outcome = call_armillary("cluster", *arguments)
    assert outcome.returncode == code, outcome.stdout + outcome.stderr
    return outcome.stdout if code == 0 else outcome.stderr


def write(server: ServerProcess, item: str) -> None:
    with CosmosClient(server.url, KEY) as client:
        database = client.create_database_if_not_exists("shop")
        orders = database.create_container_if_not_exists("orders", PartitionKey("/id"))
        orders.create_item({"id": item})


def items(server: ServerProcess) -> list[str]:
    with CosmosClient(server.url, KEY) as client:
        orders = client.get_database_client("shop").get_container_client("orders")
        return sorted(item["id"] for item in orders.read_all_items())


def test_a_server_becomes_a_cluster_and_a_server_again(tmp_path: Path, postgres: PostgresServer) -> None:
    data = tmp_path / "data"
    single = ServerProcess.start(data, "--processes", "1")  # that of several is refused
    write(single, "of the server")
    assert "is in use by process" in command("init", "--from", str(data), "--cluster", postgres.url(), NODE[0], code=2)
    single.stop()

    url = asyncio.run(postgres.new_database("first"))
    assert "no synchronous standby" in command("init", "--from", str(data), "--cluster", url, code=2)
    assert "Name the database" in command("init", "--from", str(data), code=2)
    assert "is the first replica" in command("init", "--from", str(data), "--cluster", url, NODE[0])
    node = ServerProcess.start(data, "--cluster", url, *NODE, "--node", "n1")
    assert items(node) == ["of the server"]
    write(node, "of the cluster")
    node.stop()

    # PostgreSQL is lost: the replica is the origin of another log.
    other = asyncio.run(postgres.new_database("second"))
    assert "What was acknowledged later is lost" in command(
        "reset-log", "--from", str(data), "--cluster", other, NODE[0]
    )
    node = ServerProcess.start(data, "--cluster", other, *NODE)
    assert items(node) == ["of the cluster", "of the server"]
    node.stop()

    assert "not known without its log" in command("leave", "--data", str(data), code=2)
    left = json.loads(command("leave", "--data", str(data), "--cluster", other, NODE[0], "--json"))
    assert (left["missingRows"], left["removed"]) == (0, True)
    assert asyncio.run(postgres.execute("SELECT count(*) FROM armillary.nodes", database="second")) == 0
    assert not (data / "node").exists()
    single = ServerProcess.start(data)
    assert items(single) == ["of the cluster", "of the server"]
    single.stop()
    ServerProcess.check(data)
