"""Snapshots and restorations of a server that runs and of one that does not, by the control API and by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from control.conftest import Start
from pymongo import MongoClient
from support.process import KEY
from support.server_operator import Operator

from armillary.tools.cli import main


class Console:
    """Commands, run in this process: starting one takes longer than all that most of them do."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.directory = ""

    def command(self, *arguments: str, code: int = 0) -> str:
        """What one prints; on standard error if it is refused."""
        self._capsys.readouterr()
        assert main([*arguments, "--data", self.directory]) == code
        output, errors = self._capsys.readouterr()
        return errors if code == 2 else output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.command(*arguments, "--json"))


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


def container_of(operator: Operator, name: str, throughput_ru: int = 400) -> ContainerProxy:
    client = CosmosClient(operator.server.url, KEY)
    database = client.create_database(name)
    return database.create_container("c", PartitionKey("/pk"), offer_throughput=throughput_ru)


def everything(container: ContainerProxy) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in container.read_all_items()}


def test_a_test_is_undone(operator: Operator, name: str) -> None:
    container = container_of(operator, name, 20_000)
    for number in range(20):
        container.create_item({"id": str(number), "pk": number % 3})
    before = everything(container)
    taken = operator.ask("POST", f"snapshots/{name}", {"database": name})
    assert (taken["items"], taken["containers"], taken["database"]) == (20, 1, name)
    for round_number in range(2):
        container.upsert_item({"id": "1", "pk": 1, "round": round_number})
        container.delete_item("2", 2)
        container.create_item({"id": "new", "pk": 1})
        operator.ask("POST", f"snapshots/{name}/restore")
        # The same client, with its session and its cached ranges.
        assert container.read_item("2", 2) == before["2"]
        assert everything(container) == before
    CosmosClient(operator.server.url, KEY).get_database_client(name).delete_container("c")
    operator.ask("POST", f"snapshots/{name}/restore")
    assert everything(container) == before
    assert [each["name"] for each in operator.ask("GET", "snapshots")["snapshots"]] == [name]
    operator.ask("DELETE", f"snapshots/{name}")
    assert operator.send("POST", f"snapshots/{name}/restore")[0] == 404


def test_what_is_wrong_is_refused(operator: Operator, name: str) -> None:
    assert operator.send("POST", f"snapshots/{name}", {"database": "nothing"})[0] == 404
    assert operator.send("POST", f"snapshots/{name}", {"container": "c"})[0] == 400
    assert operator.send("POST", f"snapshots/{name}", {"other": 1})[0] == 400
    assert operator.send("GET", f"snapshots/{name}/parts/0")[0] == 404
    assert operator.send("PUT", "restores/77/parts/0", {}, {"Content-Type": "application/octet-stream"})[0] == 404
    number = operator.ask("POST", "restores", {})["id"]
    assert operator.send("PUT", f"restores/{number}/parts/0", {"json": 1})[0] == 415
    assert (
        operator.send("PUT", f"restores/{number}/parts/1", {}, {"Content-Type": "application/octet-stream"})[0] == 400
    )
    status, body = operator.send("POST", f"restores/{number}/finish")
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
    assert operator.send("DELETE", f"restores/{number}")[0] == 404
    assert operator.send("DELETE", "checkpoints/..%2F..")[0] == 404


def test_files_of_a_server_that_runs(operator: Operator, console: Console, name: str, tmp_path: Path) -> None:
    console.directory = str(operator.directory)
    container = container_of(operator, name)
    for number in range(30):
        container.create_item({"id": str(number), "pk": number % 3, "text": "x" * 1_000})
    file = tmp_path / "file.snapshot"
    assert console.json("snapshot", name, str(file))["items"] == 30
    assert "already" in console.command("restore", str(file), code=2)
    assert console.json("restore", str(file), "--as", f"{name}-copy") == {"restored": [f"{name}-copy"], "items": 30}
    copy = CosmosClient(operator.server.url, KEY).get_database_client(f"{name}-copy").get_container_client("c")
    own = ("_rid", "_self")
    copied = {key: {k: v for k, v in item.items() if k not in own} for key, item in everything(copy).items()}
    assert copied == {
        key: {k: v for k, v in item.items() if k not in own} for key, item in everything(container).items()
    }
    container.create_item({"id": "since", "pk": 0})
    console.command("restore", str(file), "--replace")
    again = CosmosClient(operator.server.url, KEY).get_database_client(name).get_container_client("c")
    assert len(everything(again)) == 30
    assert operator.ask("GET", "snapshots")["snapshots"] == []
    assert file.read_bytes()[:9] == b"armillary"
    file.write_bytes(file.read_bytes()[:-1])
    assert "damaged" in console.command("restore", str(file), "--as", "x", code=2)
    assert list(tmp_path.iterdir()) == [file]


def test_files_without_a_server(start_operator: Start, console: Console, tmp_path: Path) -> None:
    operator = start_operator()
    console.directory = str(operator.directory)
    container = container_of(operator, "db")
    container.create_item({"id": "1", "pk": 1})
    mongo: MongoClient[Any]
    with MongoClient(operator.server.doors["mongo"], username="localhost", password=KEY) as mongo:
        documents: Any = mongo["m"]["docs"]
        documents.insert_one({"_id": 1, "exact": 2.0})
    operator.server.stop()
    file = tmp_path / "all.snapshot"
    assert console.json("snapshot", "/", str(file))["items"] == 2
    console.command("restore", str(file), "--replace")
    assert "names neither" in console.command("snapshot", "a/b/c", str(file), code=2)
    assert "does not exist" in console.command("snapshot", "nothing", str(file), code=2)
    assert console.json("restore", str(file), "--replace")["restored"] == ["db", "m"]
    console.directory = str(tmp_path / "no")
    assert "There is no data directory" in console.command("snapshot", "/", str(file), code=2)
    again = start_operator()
    assert container_read(again) == {"1"}
    with MongoClient(again.server.doors["mongo"], username="localhost", password=KEY) as mongo:
        found: Any = mongo["m"]["docs"].find_one({"_id": 1})
    assert found == {"_id": 1, "exact": 2.0}
    assert type(found["exact"]) is float


def container_read(operator: Operator) -> set[str]:
    client = CosmosClient(operator.server.url, KEY)
    return set(everything(client.get_database_client("db").get_container_client("c")))


def test_backups(start_operator: Start, console: Console, tmp_path: Path) -> None:
    operator = start_operator()
    console.directory = str(operator.directory)
    container = container_of(operator, "db")
    container.create_item({"id": "1", "pk": 1})
    backups = str(tmp_path / "backups")
    first = console.json("backup", "create", backups)
    container.create_item({"id": "2", "pk": 1})
    second = console.json("backup", "create", backups)
    third = console.json("backup", "create", backups)
    assert (first["number"], second["number"], third["number"]) == (1, 2, 3)
    assert 0 < third["copiedBytes"] < third["sizeBytes"]
    assert not any((operator.directory / "checkpoints").iterdir())
    operator.server.stop()
    assert console.json("backup", "create", backups)["number"] == 4
    assert "all is well" in console.command("backup", "verify", backups, "--number", "2")
    assert "is not empty" in console.command("backup", "restore", backups, "--to", backups, code=2)
    restored = tmp_path / "server-2"
    console.command("backup", "restore", backups, "--number", "1", "--to", str(restored))
    console.directory = str(restored)
    assert console.json("snapshot", "/", str(tmp_path / "x"))["items"] == 1
    assert console.json("backup", "prune", backups, "--keep", "1")["removed"] == 3
    assert [each["number"] for each in console.json("backup", "list", backups)["backups"]] == [4]
    assert "all is well" in console.command("backup", "verify", backups)
    largest = max((tmp_path / "backups" / "files").iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    assert "digest" in console.command("backup", "verify", backups, code=1)
    again = tmp_path / "server-3"
    assert "not what was backed up" in console.command("backup", "restore", backups, "--to", str(again), code=2)
    assert not again.exists()  # a part of a snapshot is never served
    assert "no backups" in console.command("backup", "list", str(tmp_path), code=2)
    assert "nothing in it was touched" in console.command("backup", "create", str(tmp_path), code=2)


@pytest.fixture(autouse=True)
def _nothing_left(operator: Operator) -> Any:
    yield
    for each in operator.ask("GET", "snapshots")["snapshots"]:
        operator.ask("DELETE", f"snapshots/{each['name']}")
