"""Captures of requests: the released clients of all protocols on a real server, what is recorded of each request, and
the commands."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.data.tables import TableServiceClient, UpdateMode
from control.conftest import Start
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from support.server_operator import Operator

from armillary.insight.captures import Captured, read_capture
from armillary.insight.planning.workload import parse_workload

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RESULT_S = 90


class Taped:
    """A container whose requests are recorded."""

    def __init__(self, operator: Operator, database: str, container: str, **options: Any) -> None:
        self.operator = operator
        self.path = f"databases/{database}/containers/{container}"
        self._charged_ru = self._charged()
        self.id: str = operator.ask("POST", f"{self.path}/captures", options)["id"]

    def _charged(self) -> float:
        found = self.operator.ask("GET", f"{self.path}/partitions?keys=none")
        return float(sum(each["chargedRu"] for each in found["partitions"]))

    def stop(self) -> dict[str, Any]:
        stopped: dict[str, Any] = self.operator.ask("POST", f"{self.path}/captures/{self.id}/stop", {})
        return stopped

    def file(self) -> bytes:
        parts: list[bytes] = []
        while (answer := self.operator.send("GET", f"{self.path}/captures/{self.id}/parts/{len(parts)}"))[0] == 200:
            parts.append(answer[1])
        assert answer[0] == 204
        return b"".join(parts)

    def lines(self) -> list[Captured]:
        """All that was recorded; its charges are those of the meters."""
        spent_ru = self._charged() - self._charged_ru
        stopped = self.stop()
        head, records = read_capture(BytesIO(self.file()))
        found = list(records)
        assert head.requests == stopped["requests"] == len(found)
        assert sum(each.charge_ru for each in found) == pytest.approx(spent_ru)
        return found


@pytest.fixture
def sql(operator: Operator) -> Iterator[CosmosClient]:
    with CosmosClient(operator.server.url, operator.server.key) as client:
        yield client


@pytest.fixture
def container(sql: CosmosClient, name: str) -> Iterator[ContainerProxy]:
    """Of two partitions."""
    database = sql.create_database(name)
    yield database.create_container("c", PartitionKey("/pk"), offer_throughput=12_000)
    sql.delete_database(name)


def test_sql(operator: Operator, container: ContainerProxy, name: str) -> None:
    container.scripts.create_stored_procedure(
        {
            "id": "two",
            "body": "function () { const c = getContext().getCollection(), l = c.getSelfLink();"
            "c.createDocument(l, {id: 's1', pk: 'k1'}); c.createDocument(l, {id: 's2', pk: 'k1'}); }",
        }
    )
    tape = Taped(operator, name, "c")
    for number in range(4):
        container.create_item({"id": f"i{number}", "pk": f"k{number % 2}", "n": number, "deep": {"a": {"b": "same"}}})
    container.read_item("i1", "k1")
    with pytest.raises(CosmosHttpResponseError):
        container.read_item("missing", "k1")
    with pytest.raises(CosmosHttpResponseError):
        container.create_item({"id": "i1", "pk": "k1"})
    container.upsert_item({"id": "i1", "pk": "k1", "n": 7})
    container.replace_item("i1", {"id": "i1", "pk": "k1", "n": 1, "when": 2.0})
    container.patch_item("i1", "k1", [{"op": "set", "path": "/n", "value": 3}])
    container.delete_item("i3", "k1")
    container.execute_item_batch([("create", ({"id": "b1", "pk": "k1"},)), ("read", ("i1",))], "k1")
    container.scripts.execute_stored_procedure("two", "k1")
    one = "SELECT * FROM c WHERE c.n = 2 AND c.pk = @pk AND (c.a = 1 OR c.b = 1)"
    list(container.query_items(one, parameters=[{"name": "@pk", "value": "k0"}], enable_cross_partition_query=True))
    list(container.query_items("SELECT * FROM c WHERE c.n = 2", partition_key="k0"))
    both = "SELECT * FROM c WHERE c.n > 0 AND c.x IN (1, 2) ORDER BY c.n DESC"
    list(container.query_items(both, enable_cross_partition_query=True))
    list(container.query_items("SELECT * FROM c WHERE c.n = 1 OR c.m = 1", enable_cross_partition_query=True))
    list(container.read_all_items())
    found = tape.lines()
    assert {each.door for each in found} == {"sql"}

    creates = [each for each in found if each.operation == "create" and each.group is None]
    assert [each.status for each in creates] == [201] * 4 + [409]
    first, second = creates[:2]
    assert set(first.leaf) == {"/id", "/pk", "/n", "/deep/a/b"}
    assert first.leaf["/deep/a/b"] == second.leaf["/deep/a/b"] != first.leaf["/pk"] == (first.key or ())[0]
    assert first.partitions != second.partitions, "k0 and k1 are in two partitions"
    assert creates[-1].leaf == {}, "what was not stored has no leaves"

    read, missing, *_ = [each for each in found if each.operation == "read"]
    assert (read.status, read.rows, read.charge_ru, read.key, read.item_id) == (
        200,
        1,
        1.0,
        second.key,
        second.item_id,
    )
    assert (missing.status, missing.rows) == (404, 0)
    changed = {each.operation: each for each in found if each.operation in ("upsert", "replace", "patch", "delete")}
    assert {name: each.status for name, each in changed.items()} == {
        "upsert": 200,
        "replace": 200,
        "patch": 200,
        "delete": 204,
    }
    assert changed["patch"].leaf["/n"] == creates[3].leaf["/n"], "3 and 3 are equal"
    assert changed["replace"].leaf["/when"] == creates[2].leaf["/n"], "2.0 and 2 are equal"

    groups: dict[str, list[str]] = {}
    for each in found:
        if each.group is not None:
            groups.setdefault(each.group, []).append(each.operation)
    assert list(groups.values()) == [["create", "read"], ["execute", "create", "create"]]

    pinned, keyed, *rest = [each for each in found if each.is_query]
    assert pinned.equal == {"/n": creates[2].leaf["/n"], "/pk": creates[0].leaf["/pk"]}
    assert (pinned.partitions, pinned.rows, pinned.loaded) == (creates[0].partitions, 0, 1)
    assert pinned.shape == "SELECT * FROM c WHERE c . n = ? AND c . pk = ? AND ( c . a = ? OR c . b = ? )"
    assert keyed.equal == pinned.equal
    ordered = [each for each in rest if each.order]
    assert ordered[0].ranges == ("/n",) and ordered[0].order == (("/n", True),)
    assert ordered[0].lists["/x"].total == 2
    assert {part for each in ordered for part in each.partitions} == {0, 1}
    assert len({each.run for each in ordered}) == 1, "the requests of one query have one run"
    either = [each for each in rest if " OR " in (each.shape or "")]
    assert either and not any(each.equal or each.lists for each in either)
    assert [each.operation for each in found if each.operation == "feed"]


def test_mongo(operator: Operator, name: str) -> None:
    server = operator.server
    secret = quote_plus(server.key)
    url = server.doors["mongo"].replace("://", f"://localhost:{secret}@") + "/?replicaSet=globaldb"
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(url) as client:
        client.admin.command("enableSharding", name)
        client.admin.command("shardCollection", f"{name}.c", key={"pk": "hashed"})
        people: pymongo.collection.Collection[dict[str, Any]] = client[name]["c"]
        tape = Taped(operator, name, "c")
        people.insert_many([{"_id": number, "pk": f"k{number % 3}", "n": number} for number in range(6)])
        people.find_one({"_id": 1, "pk": "k1"})
        list(people.find({"n": {"$gt": 1}, "pk": "k0", "$or": [{"a": 1}, {"b": 2}]}))
        list(people.find({"pk": {"$in": ["k0", "k1"]}}).sort("n", -1))
        people.insert_many([{"_id": number, "pk": "many"} for number in range(100, 1_300)])
        list(people.find({}, batch_size=500))
        people.update_one({"_id": 1, "pk": "k1"}, {"$set": {"n": 4}})
        people.delete_one({"_id": 2, "pk": "k2"})
        with client.start_session() as session, session.start_transaction():
            people.insert_one({"_id": 10, "pk": "k1"}, session=session)
            people.insert_one({"_id": 11, "pk": "k1"}, session=session)
        client.drop_database(name + "-none")
        found = tape.lines()
        client.drop_database(name)
    assert {each.door for each in found} == {"mongo"}
    creates = [each for each in found if each.operation == "create"]
    assert len(creates) == 1_208 and set(creates[0].leaf) == {"/id", "/pk", "/_id", "/n"}
    assert len({each.run for each in creates[:6]}) == 1 and not any(each.group for each in creates[:6])
    assert creates[-2].group == creates[-1].group is not None
    [read] = [each for each in found if each.operation == "read"]
    assert (read.key, read.item_id) == (creates[1].key, creates[1].item_id)
    ranged, listed, *pages = [each for each in found if each.is_query]
    assert ranged.equal == {"/pk": creates[0].leaf["/pk"]} and ranged.ranges == ("/n",)
    assert ranged.shape == '{"n":{"$gt":"?"},"pk":"?","$or":[{"a":"?"},{"b":"?"}]}'
    assert listed.lists["/pk"].digests == (creates[0].leaf["/pk"], creates[1].leaf["/pk"])
    assert listed.order == (("/n", True),)
    assert len(pages) > 1 and len({each.run for each in pages}) == 1, "pages of one cursor"
    [changed] = [each for each in found if each.operation == "replace"]
    assert changed.leaf["/n"] == creates[4].leaf["/n"] and changed.item_id == creates[1].item_id
    assert [each.status for each in found if each.operation == "delete"] == [204]


def test_gremlin(operator: Operator, container: ContainerProxy, name: str) -> None:
    tape = Taped(operator, name, "c")
    client = Client(
        operator.server.doors["gremlin"],
        "g",
        username=f"/dbs/{name}/colls/c",
        password=operator.server.key,
        message_serializer=serializer.GraphSONSerializersV2d0(),
        pool_size=1,
    )
    with closing(client):
        for script in (
            "g.addV('person').property('id', 'ann').property('pk', 'secretA').property('age', 30)",
            "g.addV('person').property('id', 'bob').property('pk', 'b')",
            "g.V('ann').addE('knows').to(g.V('bob'))",
            "g.V().has('pk', 'secretA').has('age', gt(20))",
            "g.V(['secretA', 'ann'])",
            "g.V(['secretA', 'ann']).out('knows')",
        ):
            client.submit(script).all().result(RESULT_S)
        found = tape.lines()
    assert {each.door for each in found} == {"gremlin"}
    ann = next(each for each in found if each.operation == "create")
    assert ann.leaf["/pk"] == (ann.key or ())[0]
    by_key = next(each for each in found if each.shape == "g.V().has('pk',?).has('age',gt(?))")
    assert by_key.equal["/pk"] == ann.leaf["/pk"] and by_key.partitions == ann.partitions
    reads = [each for each in found if each.operation == "read"]
    assert (ann.key, ann.item_id) in [(each.key, each.item_id) for each in reads]
    assert "secretA" not in "".join(each.shape or "" for each in found)


def test_tables(operator: Operator, name: str) -> None:
    server, table = operator.server, name.replace("-", "")
    address = server.doors["table"].replace("127.0.0.1", "localhost")
    with TableServiceClient(address, credential=AzureNamedKeyCredential("localhost", server.key)) as service:
        people = service.create_table(table)
        tape = Taped(operator, "TablesDB", table)
        people.create_entity({"PartitionKey": "p", "RowKey": "r1", "age": 5})
        people.upsert_entity({"PartitionKey": "p", "RowKey": "r1", "size": 5}, UpdateMode.MERGE)
        people.get_entity("p", "r1")
        list(people.query_entities("PartitionKey eq 'p' and age gt 3"))
        entities = [{"PartitionKey": "p", "RowKey": f"b{number}"} for number in range(2)]
        people.submit_transaction([("create", each) for each in entities])
        found = tape.lines()
        people.delete_table()
    assert {each.door for each in found} == {"table"}
    create, merge, read, query, *batch = found
    assert [create.operation, merge.operation, read.operation, query.operation] == ["create", "patch", "read", "query"]
    assert create.leaf["/$pk"] == query.equal["/$pk"] == (read.key or ())[0]
    assert "/size/$v" in set(merge.leaf) - set(create.leaf), "what a merge has kept and added"
    assert query.shape == "PartitionKey eq ? and age gt ?"
    assert [each.operation for each in batch] == ["create", "create"] and len({each.group for each in batch}) == 1


def test_nothing_can_be_read_without_values(operator: Operator, container: ContainerProxy, name: str) -> None:
    """Hostile items too: names and values of every kind, deep ones and large ones."""
    deep: dict[str, Any] = {"x": "planted-deep"}
    for _ in range(100):
        deep = {"in": deep}
    items: list[dict[str, Any]] = [
        {"id": "planted-id", "pk": "planted-key", 'a/"b"': "planted-value", "": "planted", "list": ["planted"]},
        {"id": "planted-deep", "pk": "planted-key", "d": deep, "long": "planted" * 30},
        {"id": "wide", "pk": "planted-key", **{f"p{number}": number for number in range(5_000)}},
        {"id": "large", "pk": "planted-key", "body": "planted" * 100_000},
    ]
    hidden, shown = Taped(operator, name, "c"), Taped(operator, name, "c", values=True)
    for item in items:
        container.upsert_item(item)
    query = 'SELECT * FROM c WHERE c.pk = "planted-key" AND c["name"] = \'planted\''
    list(container.query_items(query, enable_cross_partition_query=True))
    lines = hidden.lines()
    assert b"planted" not in gzip.decompress(hidden.file())
    assert '/"a/\\"b\\""' in lines[0].leaf
    assert max(len(each.leaf) for each in lines) == 64 and {"/id", "/pk"} <= set(lines[2].leaf)
    assert not any(path.count("/in") >= 5 for path in lines[1].leaf)

    readable = shown.lines()
    head, _ = read_capture(BytesIO(shown.file()))
    assert head.has_values and not read_capture(BytesIO(hidden.file())).head.has_values
    first = readable[0]
    assert first.values[first.leaf["/pk"]] == "planted-key" and first.values[first.item_id or ""] == "planted-id"
    assert first.leaf["/pk"] != lines[0].leaf["/pk"], "each capture has a secret of its own"
    assert readable[1].leaf["/long"] not in readable[1].values, "values of more than 128 bytes are not kept"
    told = operator.ask("POST", f"{shown.path}/captures/{shown.id}/secret", {})["secret"]
    assert read_capture(BytesIO(shown.file())).digests(told).of("planted-key") == first.leaf["/pk"]


def test_bounds(operator: Operator, container: ContainerProxy, name: str) -> None:
    few = Taped(operator, name, "c", limit=3)
    none = Taped(operator, name, "c", share=0.0001)
    for number in range(5):
        container.upsert_item({"id": str(number), "pk": "a"})
    assert len(read_capture(BytesIO(few.file())).head.key) == 1
    shown = operator.ask("GET", f"{few.path}/captures/{few.id}")
    assert (shown["state"], shown["requests"], shown["reason"]) == (
        "stopped",
        3,
        "it has as many requests as it may",
    )
    assert none.stop()["requests"] <= 1
    kinds = [each["kind"] for each in operator.ask("GET", "events")["events"] if each.get("capture") == few.id]
    assert kinds == ["capture-begun", "capture-ended"]
    captures = f"databases/{name}/containers/c/captures"
    for body in ({"seconds": 0}, {"seconds": 86_401}, {"share": 0}, {"limit": 1_000_001}, {"values": 1}, {"speed": 1}):
        status, answer = operator.send("POST", captures, body)
        assert status == 400, answer
    assert b"speed" in answer
    assert operator.send("GET", f"{captures}/{few.id}?speed=1")[0] == 400
    for wrong in ("nothing", "..%2F..%2Fcontrol", "0" * 12):
        assert operator.send("GET", f"{captures}/{wrong}")[0] == 404
    running = Taped(operator, name, "c")
    assert operator.send("GET", f"{captures}/{running.id}/parts/0")[0] == 409
    assert operator.send("GET", f"{captures}/{few.id}/parts/x")[0] == 400
    status, answer = 201, b""
    while status == 201:
        status, answer = operator.send("POST", captures, {})
    assert status == 409 and b"8 captures are kept" in answer
    for each in operator.ask("GET", captures)["captures"]:
        operator.ask("DELETE", f"{captures}/{each['id']}")
    assert operator.ask("GET", captures) == {"captures": []}


def test_a_split_and_throttling(start_operator: Start, name: str) -> None:
    operator = start_operator("--throughput", "enforce", "--clock", "movable")
    with CosmosClient(operator.server.url, operator.server.key) as client:
        client.client_connection.connection_policy.RetryOptions._max_retry_attempt_count = 0
        container = client.create_database(name).create_container("c", PartitionKey("/pk"), offer_throughput=400)
        operator.ask("POST", "clock", {"frozen": True})
        tape = Taped(operator, name, "c")
        container.create_item({"id": "a", "pk": "a", "large": "x" * 1_500_000})  # costs more than a second's budget
        with pytest.raises(CosmosHttpResponseError):
            container.delete_item("a", "a")
        operator.ask("POST", "clock", {"advanceSeconds": 10})
        container.upsert_item({"id": "a", "pk": "a"})
        operator.command("split", f"{name}/c")
        container.read_item("a", "a")
        tape.stop()
        created, refused, before, after = read_capture(BytesIO(tape.file())).records
    assert (refused.operation, refused.status, refused.sub, refused.rows) == ("delete", 429, 3200, 0)
    assert before.t_ms >= created.t_ms + 10_000
    assert created.key == before.key == after.key
    assert before.partitions == (0,) and after.partitions in ((1,), (2,))


def test_captures_survive_a_restart(start_operator: Start, tmp_path: Path, name: str) -> None:
    """Of a server that is killed, what was written until then; the rest is cut off."""
    operator = start_operator()
    with CosmosClient(operator.server.url, operator.server.key) as client:
        database = client.create_database(name)
        container = database.create_container("c", PartitionKey("/pk"))
        other = database.create_container("other", PartitionKey("/pk"))
        ended, running, gone = (Taped(operator, name, each) for each in ("c", "c", "other"))
        for number in range(3):
            container.upsert_item({"id": str(number), "pk": "a"})
        other.upsert_item({"id": "1", "pk": "a"})
        assert len(ended.lines()) == 3
        operator.ask("POST", f"{gone.path}/captures/{gone.id}/stop", {})
        database.delete_container("other")
    directory = operator.directory / "captures"
    files = [path for path in directory.iterdir() if gone.id not in path.name]  # which are being deleted
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory, *files))
    operator.server.kill()
    with (directory / f"{running.id}.gz").open("ab") as body:
        body.write(b"half a member")
    again = start_operator()
    for tape in (ended, running):
        tape.operator = again
    shown = {each["id"]: each for each in again.ask("GET", f"{ended.path}/captures")["captures"]}
    assert shown[ended.id]["state"] == "stopped" and shown[running.id]["state"] == "interrupted"
    assert len(list(read_capture(BytesIO(ended.file())).records)) == 3
    assert len(list(read_capture(BytesIO(running.file())).records)) == shown[running.id]["requests"]
    assert not (directory / f"{gone.id}.json").exists()


def test_commands(operator: Operator, container: ContainerProxy, name: str, tmp_path: Path) -> None:
    said = operator.command("capture", "start", f"{name}/c", "--for", "15m", "--values")
    assert "runs for 900 seconds" in said and "kept readable" in said
    for number in range(10):
        container.upsert_item({"id": str(number), "pk": f"k{number % 2}", "n": number})
    for _ in range(20):
        container.read_item("0", "k0")
    by_key = "SELECT * FROM c WHERE c.pk = 'k0' AND c.n = 1"
    list(container.query_items(by_key, enable_cross_partition_query=True))
    [listed] = [each for each in operator.json("capture", "list")["captures"] if each["container"] == f"{name}/c"]
    assert listed["state"] == "running"
    file, secret, workload = tmp_path / "c.gz", tmp_path / "secret", tmp_path / "w.toml"
    assert "running" in operator.command("capture", "save", f"{name}/c", listed["id"], str(file), code=2)
    assert not file.exists()
    assert "31 requests" in operator.command("capture", "stop", f"{name}/c")
    assert "No captures" in operator.command("capture", "stop", f"{name}/c", code=2)
    operator.command("capture", "save", f"{name}/c", listed["id"], str(file), "--secret", str(secret))
    capture = read_capture(file.open("rb"))
    assert capture.head.requests == 31 and len(list(capture.records)) == 31
    assert len(bytes.fromhex(secret.read_text())) == 32 and secret.stat().st_mode & 0o077 == 0
    operator.command("capture", "save", f"{name}/c", listed["id"], str(workload), "--as-workload")
    assert len(parse_workload(workload.read_text(), str).operations) == 3
    made = tomllib.loads(workload.read_text())
    assert made["container"] == {"partition_key": ["/pk"], "throughput": 12_000}
    operations = {each["kind"]: each for each in made["operations"]}
    assert operations["read"]["keys"] == {"explicit": {"k0": 20.0}}
    assert operations["upsert"]["keys"] == {"explicit": {"k0": 5.0, "k1": 5.0}}
    rates = {kind: each["rate"] for kind, each in operations.items()}  # a second, rounded
    assert rates["read"] == pytest.approx(2 * rates["upsert"], rel=0.01)
    assert rates["read"] == pytest.approx(20 * rates["query"], rel=0.01)
    assert operations["query"]["filter"] == ["/n", "/pk"]
    assert "Deleted" in operator.command("capture", "delete", f"{name}/c", listed["id"], "--yes")
    assert "There are no captures" in operator.command("capture", "list", f"{name}/c")
    assert "expected a time" in operator.command("capture", "start", f"{name}/c", "--for", "an hour", code=2)
    assert json.loads(operator.command("capture", "list", f"{name}/c", "--json")) == {"captures": []}
