"""`armillary import` and `armillary export` as processes, against real servers: every kind of endpoint, throughput that
does not suffice, and kill -9 in the middle."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import CosmosClient
from azure.data.tables import TableServiceClient
from bson.objectid import ObjectId
from control.conftest import Start
from pymongo import MongoClient
from support.process import KEY, call_armillary, clean_environment, run_armillary
from support.server_operator import Operator

from armillary.tools.transfer.endpoints.mongo_endpoint import MongoSource

ROWS = 2500


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [
        {"id": f"r{number}", "deviceId": f"device-{number % 50}", "date": 2016 + number % 3, "value": number / 4}
        for number in range(count)
    ]


def write_lines(path: Path, items: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def transfer(operator: Operator, directory: Path, *arguments: str, code: int = 0, key: str = KEY) -> Any:
    # A refused transfer leaves its files and connections to the end of the process.
    run = call_armillary if code < 2 else run_armillary
    done = run(
        *(*arguments, "--data", str(operator.directory), "--json"),
        environment={"ARMILLARY_REMOTE_KEY": key},
        directory=directory,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code < 2 else done.stderr


def stored(operator: Operator, name: str) -> list[dict[str, Any]]:
    database, _, container = name.partition("/")
    with CosmosClient(operator.server.url, KEY) as client:
        found = client.get_database_client(database).get_container_client(container).read_all_items()
        items = [{key: value for key, value in item.items() if not key.startswith("_")} for item in found]
    return sorted(items, key=lambda item: item["id"])


def expected(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: item["id"])


def test_synthetic_keys_bad_rows_and_the_way_back(operator: Operator, name: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", rows())
    with source.open("a") as file:
        file.write('{"broken\n{"deviceId": "d", "date": 1}\n{"id": "no-date", "deviceId": "d"}\n')
    # 4 partitions: each request goes to one of them.
    command = "--partition-key /pk --throughput 20000 --synthetic-key /pk={deviceId}-{date}"
    said = transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/readings", *command.split(), code=1)
    assert (said["rows"], said["badRows"], said["resumed"]) == (ROWS, 3, False)
    assert said["chargeRu"] > ROWS
    bad = [json.loads(line) for line in (tmp_path / said["badFile"]).read_text().splitlines()]
    assert [each["row"] for each in bad] == [ROWS + 1, ROWS + 2, ROWS + 3]
    assert "no 'id'" in bad[1]["reason"] and "'date' is needed" in bad[2]["reason"]
    wanted = [item | {"pk": f"{item['deviceId']}-{item['date']}"} for item in rows()]
    assert stored(operator, f"{name}/readings") == expected(wanted)
    assert not list(tmp_path.glob("*.state"))
    for ending in ("json", "csv"):
        told = transfer(operator, tmp_path, "export", f"{name}/readings", f"out.{ending}", "--drop", "pk")
        assert told["rows"] == ROWS
        transfer(operator, tmp_path, "import", f"out.{ending}", f"{name}/{ending}", "--partition-key", "/deviceId")
        assert stored(operator, f"{name}/{ending}") == expected(rows())
    # Once more: nothing is there twice.
    transfer(operator, tmp_path, "import", "out.csv", f"{name}/csv")
    assert len(stored(operator, f"{name}/csv")) == ROWS


def test_of_rows_with_one_key_the_last_one_stays(operator: Operator, name: str, tmp_path: Path) -> None:
    """In one page and over several, which are under way at once."""
    items = [{"id": f"{number % 7}", "deviceId": f"{number % 14}", "value": number} for number in range(2000)]
    more = [{"id": f"{number % 900}", "deviceId": "x", "value": number} for number in range(3000)]
    write_lines(tmp_path / "in.jsonl", items + more)
    said = transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/c", "--partition-key", "/deviceId")
    assert (said["rows"], said["badRows"]) == (5000, 0)
    last = {(item["deviceId"], item["id"]): item for item in items + more}
    found = {(item["deviceId"], item["id"]): item for item in stored(operator, f"{name}/c")}
    assert found == last


def test_another_endpoint(operator: Operator, start_operator: Start, name: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", rows(1100))
    transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/here", "--partition-key", "/deviceId")
    other = start_operator()
    here = f"cosmos:{operator.server.url}/{name}/here"
    transfer(other, tmp_path, "import", here, "far/there", "--partition-key", "/deviceId", "--throughput", "20000")
    assert stored(other, "far/there") == expected(rows(1100))
    operator.command("containers", "create", f"{name}/fixed", "--fixed")
    transfer(other, tmp_path, "export", "far/there", f"cosmos:{operator.server.url}/{name}/fixed")
    assert stored(operator, f"{name}/fixed") == expected(rows(1100))
    refused = transfer(other, tmp_path, "import", here, "far/there", code=2, key="d3Jvbmc=")
    assert "does not accept the account key" in refused
    refused = transfer(other, tmp_path, "import", f"{here}-not", "far/there", code=2)
    assert "Not Found" in refused or "does not exist" in refused


def test_mongodb_and_tables(operator: Operator, name: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", rows(600))
    transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/items", "--partition-key", "/deviceId")
    mongo = operator.server.doors["mongo"].replace(
        "://", f"://localhost:{KEY.replace('/', '%2F').replace('+', '%2B')}@"
    )
    address = f"{mongo}/{name}.copied?authSource=admin&directConnection=true"
    transfer(operator, tmp_path, "export", f"{name}/items", address)
    with MongoClient[Any](address) as client:
        found = list(client[name]["copied"].find({}, sort=[("_id", 1)]))
    assert found == [{"_id": item.pop("id"), **item} for item in expected(rows(600))]
    transfer(operator, tmp_path, "import", address, f"{name}/back", "--partition-key", "/deviceId")
    assert stored(operator, f"{name}/back") == expected(rows(600))

    # Ids of all types, from wherever the reader stops, to a collection with a shard key.
    ids = [each for number in range(700) for each in (number, f"s{number}", number + 0.5, {"a": number}, ObjectId())]
    with MongoClient[Any](address) as client:
        client[name]["mixed"].insert_many([{"_id": each, "key": f"k{n % 5}"} for n, each in enumerate(ids)])
        client.admin.command("shardCollection", f"{name}.sharded", key={"key": "hashed"})
        mixed = address.replace(".copied", ".mixed")
        assert asyncio.run(_read_in_pieces(mixed)) == len(ids)
        transfer(operator, tmp_path, "import", mixed, f"{name}/mixed-back", "--partition-key", "/key", "--bson-exact")
        transfer(
            operator, tmp_path, "export", f"{name}/mixed-back", address.replace(".copied", ".sharded"), "--bson-exact"
        )
        found = [each["_id"] for each in client[name]["sharded"].find()]
    assert sorted(map(repr, found)) == sorted(map(repr, ids))

    table = f"table:{operator.server.doors['table']}/localhost/{name.replace('-', '')}"
    transfer(operator, tmp_path, "export", f"{name}/items", table, "--rename", "deviceId=PartitionKey")
    with TableServiceClient(
        operator.server.doors["table"] + "/localhost", credential=AzureNamedKeyCredential("localhost", KEY)
    ) as service:
        entity = service.get_table_client(name.replace("-", "")).get_entity("device-7", "r7")
    assert (entity["date"], entity["value"]) == (2017, 1.75)
    changes = "--partition-key /deviceId --rename PartitionKey=deviceId --drop RowKey"
    transfer(operator, tmp_path, "import", table, f"{name}/entities", *changes.split())
    assert stored(operator, f"{name}/entities") == expected(rows(600))


async def _read_in_pieces(address: str) -> int:
    """How many rows there are if reading begins anew behind every page."""
    source = MongoSource(address, is_exact=True)
    position, count = None, 0
    while True:
        page = await anext(source.pages(position), None)
        if page is None:
            await source.close()
            return count
        count += len(page.rows)
        position = page.position


def test_throughput_that_does_not_suffice(operator: Operator, name: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", rows(300))
    operator.command("containers", "create", f"{name}/small", "--partition-key", "/deviceId", "--throughput", "600")
    operator.ask("PUT", f"databases/{name}/containers/small/mode", {"mode": "enforce"})
    said = transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/small")
    assert (said["rows"], said["badRows"]) == (300, 0)
    (partition,) = operator.json("partitions", f"{name}/small")["partitions"]
    assert said["refused"] == partition["refused"] > 0
    assert stored(operator, f"{name}/small") == expected(rows(300))
    # What was refused is reported apart: the charge is that of an import that nothing is refused of.
    operator.command("containers", "create", f"{name}/large", "--partition-key", "/deviceId", "--throughput", "600")
    free = transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/large")
    assert said["chargeRu"] == pytest.approx(free["chargeRu"], abs=0.05)
    assert free["refused"] == free["refusedRu"] == 0
    assert said["chargeRu"] + said["refusedRu"] == pytest.approx(partition["chargedRu"], abs=0.05)
    assert said["refused"] < 300, "requests are made smaller and fewer once some are refused"


def test_rows_without_the_partition_key_are_counted_and_said(operator: Operator, name: str, tmp_path: Path) -> None:
    lines = "id;deviceId;value\n1;a;x\n2;;x\n3;b;'y, z'\n"
    (tmp_path / "in.csv").write_text(lines)
    arguments = ("import", "in.csv", f"{name}/c", "--partition-key", "/deviceId")
    said = transfer(operator, tmp_path, *arguments)
    assert (said["rows"], said["rowsWithoutKey"]) == (3, 1)
    assert [each.get("deviceId") for each in stored(operator, f"{name}/c")] == ["a", None, "b"]
    told = call_armillary(*arguments, "--data", str(operator.directory), directory=tmp_path)
    assert "1 row has no value at the partition key (/deviceId): they share one logical partition" in told.stdout
    (tmp_path / "in.csv").write_text(lines.replace(";", "^"))
    said = transfer(operator, tmp_path, *arguments, "--delimiter", "^", "--restart")
    assert (said["rows"], said["rowsWithoutKey"]) == (3, 1)
    for wrong, expected_text in (
        (("--delimiter", "ab"), "--delimiter is 'ab'; expected one character, or tab."),
        (("--delimiter", ";", "--format", "jsonl"), "--delimiter is for CSV files"),
        (("--timeout", "0"), "--timeout is 0"),
        (("--key", "d3Jvbmcgd3Jvbmcgd3Jvbmc="), "does not accept the account key"),
        (("--url", "http://127.0.0.1:9"), "No server answers at http://127.0.0.1:9: Connection refused. Start it with"),
    ):
        assert expected_text in transfer(operator, tmp_path, *arguments, *wrong, code=2)


@pytest.mark.parametrize("direction", ["import", "export"])
def test_kill_in_the_middle_and_resume(operator: Operator, name: str, tmp_path: Path, direction: str) -> None:
    """The process is stopped as soon as it has kept a state, and killed; the same command then completes the work."""
    count = 8000
    write_lines(tmp_path / "in.jsonl", [*rows(count - 1), {"deviceId": "x"}])
    imported = ("import", "in.jsonl", f"{name}/c", "--partition-key", "/deviceId", "--parallel", "1")
    if direction == "export":
        transfer(operator, tmp_path, *imported, code=1)
    arguments = imported if direction == "import" else ("export", f"{name}/c", "out.jsonl")
    state = tmp_path / "run.state"
    process = subprocess.Popen(
        [sys.executable, "-c", _KEEPS_ITS_STATE, *arguments, "--state", str(state), "--data", str(operator.directory)],
        env=clean_environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == b"kept\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert state.exists()
    code = 1 if direction == "import" else 0
    said = transfer(operator, tmp_path, *arguments, "--state", str(state), code=code)
    assert said["resumed"]
    assert said["rows"] == count - 1
    if direction == "import":
        bad = (tmp_path / said["badFile"]).read_text().splitlines()
        assert said["badRows"] == len(bad) == 1 and json.loads(bad[0])["row"] == count
        assert stored(operator, f"{name}/c") == expected(rows(count - 1))
    else:
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert sorted(lines, key=lambda item: item["id"]) == expected(rows(count - 1))
    assert not state.exists()


# The command itself, but it keeps its state after every page and says so.
_KEEPS_ITS_STATE = """
import sys
from armillary.tools import cli
from armillary.tools.transfer import checkpoint

class Eager(checkpoint.Checkpoint):
    is_due = True
    def save(self):
        super().save()
        print("kept", flush=True)

from armillary.tools.transfer import command
command.Checkpoint = Eager
sys.exit(cli.main(sys.argv[1:]))
"""


def test_refusals(operator: Operator, name: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", rows(3))
    assert "does not exist" in transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/none", code=2)
    operator.command("containers", "create", f"{name}/there", "--partition-key", "/a")
    reader = operator.ask("POST", "account/keys/primaryReadonly/regenerate")["key"]
    assert "read-only key" in _refused(operator, tmp_path, "import", "in.jsonl", f"{name}/there", "--key", reader)
    other = transfer(operator, tmp_path, "import", "in.jsonl", f"{name}/there", "--partition-key", "/b", code=2)
    assert "the partition key /a" in other
    assert "needs a key" in _refused(operator, tmp_path, "import", f"cosmos:{operator.server.url}/a/b", "a/b")
    assert "--format" in _refused(operator, tmp_path, "import", "in.txt", "a/b")
    told = _refused(operator, tmp_path, "import", "a/b", "in.jsonl")
    assert "in the wrong order: write `armillary import " in told and "in.jsonl a/b`." in told
    assert "write `armillary export a/b " in _refused(operator, tmp_path, "export", "out.csv", "a/b")
    assert "cannot be read" in _refused(operator, tmp_path, "import", "none.jsonl", "a/b")
    assert "--parallel" in _refused(operator, tmp_path, "import", "in.jsonl", "a/b", "--parallel", "0")
    assert "No server answers" in _refused(
        operator, tmp_path, "import", "in.jsonl", "a/b", "--url", "http://127.0.0.1:9"
    )


def _refused(operator: Operator, directory: Path, *arguments: str) -> str:
    done = run_armillary(
        *[str(directory / each) if each.startswith(("in.", "none.")) else each for each in arguments],
        "--data",
        str(operator.directory),
    )
    assert done.returncode == 2 and not done.stdout
    return done.stderr


def test_one_partition_key_and_the_rows_of_a_query(operator: Operator, name: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", rows(600))
    command = "--partition-key /deviceId --partition-key /date --throughput 20000"
    transfer(operator, tmp_path, "import", str(source), f"{name}/c", *command.split())

    def exported(*arguments: str, code: int = 0) -> Any:
        told = transfer(operator, tmp_path, "export", f"{name}/c", "out.jsonl", *arguments, "--restart", code=code)
        return told if code else [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    of_key = exported("--partition-key-value", "device-7", "--partition-key-value", "2017")
    wanted = [row for row in rows(600) if row["deviceId"] == "device-7"]
    assert expected(of_key) == expected([row for row in wanted if row["date"] == 2017])
    assert expected(exported("--partition-key-value", "device-7")) == expected(wanted)
    assert exported("--partition-key-value", "7") == []  # a number, not a text
    # Merged over four partitions, in pages.
    query = 'SELECT c.id, c["value"] FROM c WHERE c.date > 2016 ORDER BY c["value"] DESC'
    chosen = [{"id": row["id"], "value": row["value"]} for row in rows(600) if row["date"] > 2016]
    assert exported("--query", query) == sorted(chosen, key=lambda row: row["value"], reverse=True)
    assert exported("--query", "SELECT VALUE {n: COUNT(1)} FROM c") == [{"n": 600}]
    narrowed = exported("--query", "SELECT c.id FROM c", "--partition-key-value", "device-7")
    assert expected(narrowed) == expected([{"id": row["id"]} for row in wanted])
    assert "no objects" in exported("--query", "SELECT VALUE c.id FROM c", code=2)
    assert "at most 2 times" in exported(*["--partition-key-value", "a"] * 3, code=2)


def test_a_server_with_its_own_key_is_asked_for_it(start_operator: Start, tmp_path: Path) -> None:
    """The control key of its data directory opens everything, so the account key need not be given."""
    operator = start_operator("--key", b64encode(b"own" * 20).decode())
    write_lines(tmp_path / "in.jsonl", rows(20))
    said = transfer(operator, tmp_path, "import", "in.jsonl", "shop/readings", "--partition-key", "/deviceId")
    assert said["rows"] == 20
    assert transfer(operator, tmp_path, "export", "shop/readings", "out.jsonl")["rows"] == 20


def test_the_first_bad_row_is_said(operator: Operator, name: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id;pk\n1;a\n2;b\n")
    arguments = ("import", "in.csv", f"{name}/rows", "--partition-key", "/pk", "--delimiter", ",")
    done = call_armillary(*arguments, "--data", str(operator.directory), directory=tmp_path)
    assert done.returncode == 1
    assert "The first is row 1: It has no 'id' that is a text; say with --id what the id is made of." in done.stdout
