"""Operating a real server: requests counted at every door, read-only mode, logs, traces, signals, a full disk."""

from __future__ import annotations

import asyncio
import json
import lzma
import signal
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.data.tables import TableServiceClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pymongo.errors import OperationFailure
from support.process import KEY, ServerProcess, call_armillary, run_armillary
from support.server_operator import Operator
from support.stored_account import gremlin_answers, mongo_client
from support.waiting import until

from armillary.clock import SystemClock
from armillary.errors import Failure
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.tracing import begin_tracing, is_wanted
from armillary.tools.settings import Settings

Start = Callable[..., Operator]
SECRET = "hunter2-secret-value"


def wait_for(holds: Callable[[], bool], what: str = "what the test waits for") -> None:
    asyncio.run(until(holds, what))


def traced(header: str) -> Callable[[Any], None]:
    """A hook of the client that sends this context."""

    def add(request: Any) -> None:
        request.http_request.headers["traceparent"] = header

    return add


def container_of(operator: Operator, database: str = "shop") -> ContainerProxy:
    client = CosmosClient(operator.server.url, KEY)
    made = client.create_database_if_not_exists(database)
    return made.create_container_if_not_exists("orders", PartitionKey("/pk"))


def log_lines(server: ServerProcess, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    return [line for line in found if line.get("event") == event]


def test_requests_are_counted_by_door_operation_and_status(start_operator: Start) -> None:
    operator = start_operator("--storage-statistics")
    container = container_of(operator)
    for number in range(3):
        container.create_item({"id": str(number), "pk": "a"})
    with pytest.raises(CosmosHttpResponseError):
        container.create_item({"id": "0", "pk": "a"})
    list(container.query_items("SELECT * FROM c WHERE c.id = '1'", partition_key="a"))
    list(container.query_items("SELECT * FROM c WHERE c.id = '1'", partition_key="a"))
    metric = operator.metric
    created = {"door": "sql", "operation": "create_item"}
    assert metric("request_duration_seconds_count", **created) == 4
    assert metric("request_duration_seconds_bucket", **created, le="+Inf") == 4
    assert metric("request_duration_seconds_sum", **created) > 0
    assert metric("responses_total", **created, status="201") == 3
    assert metric("responses_total", **created, status="409") == 1
    assert metric("errors_total", door="sql", kind="conflict") == 1
    with mongo_client(operator.server) as mongo:
        mongo.db.things.insert_one({"_id": 1})
        assert mongo.db.things.find_one({"_id": 1}) == {"_id": 1}
        with pytest.raises(OperationFailure):
            mongo.db.command("noSuchCommand")
    assert metric("responses_total", door="mongo", operation="insert", status="ok") == 1
    assert metric("responses_total", door="mongo", operation="find", status="ok") == 1
    assert metric("responses_total", door="mongo", operation="other", status="59") == 1
    tables = TableServiceClient(operator.server.doors["table"], credential=AzureNamedKeyCredential("localhost", KEY))
    with tables:
        tables.create_table("things").create_entity({"PartitionKey": "a", "RowKey": "b"})
    assert metric("responses_total", door="table", operation="insert_entity") == 1
    assert metric("responses_total", door="control", operation="read_metrics", status="200") > 0
    with pytest.raises(HTTPError):  # on the port of the SQL door, and none of its requests
        urlopen(f"{operator.server.url}/_armillary/databases")
    assert metric("responses_total", door="control", operation="other", status="401") == 1
    assert metric("responses_total", door="sql", operation="other") == 0
    # What is measured when it is asked for.
    assert metric("disk_free_bytes") > metric("disk_reserve_bytes") > 0
    assert metric("cache_hits_total", cache="sql-queries") >= 1
    assert metric("storage_block_cache_capacity_bytes") > 0
    assert metric("connections", door="sql") >= 1
    assert metric("upkeep_backlog") >= 0
    _, page = operator.send("GET", "metrics")
    assert b"\nprocess_resident_memory_bytes " in page
    assert b'\narmillary_cache_misses_total{cache="block"} ' in page
    assert b"\narmillary_event_loop_lag_seconds_count " in page


def test_read_only_mode_refuses_writes_at_every_door(start_operator: Start) -> None:
    operator = start_operator("--gremlin-create", "/pk")
    container = container_of(operator, "graphs")
    container.create_item({"id": "0", "pk": "a"})
    graphs = CosmosClient(operator.server.url, KEY).get_database_client("graphs")
    graphs.create_container_if_not_exists("people", PartitionKey("/pk"))
    tables = TableServiceClient(operator.server.doors["table"], credential=AzureNamedKeyCredential("localhost", KEY))
    table = tables.create_table("things")
    mongo = mongo_client(operator.server)
    mongo.db.things.insert_one({"_id": 1})
    assert operator.ask("PUT", "runtime", {"readOnly": True})["readOnly"] is True
    with pytest.raises(CosmosHttpResponseError) as refused:
        container.upsert_item({"id": "1", "pk": "a"})
    assert (refused.value.status_code, "read-only mode" in str(refused.value)) == (403, True)
    assert container.read_item("0", "a")["id"] == "0"
    assert len(list(container.query_items("SELECT * FROM c", partition_key="a"))) == 1
    with pytest.raises(CosmosHttpResponseError):
        graphs.create_container("more", PartitionKey("/pk"))
    with pytest.raises(HttpResponseError) as table_refused:
        table.create_entity({"PartitionKey": "a", "RowKey": "b"})
    assert table_refused.value.status_code == 403
    assert list(table.list_entities()) == []
    with pytest.raises(OperationFailure) as mongo_refused:
        mongo.db.things.insert_one({"_id": 2})
    assert mongo_refused.value.code == 13
    with pytest.raises(OperationFailure):
        mongo.db.things.aggregate([{"$out": "copies"}])
    assert mongo.db.things.find_one({"_id": 1}) == {"_id": 1}
    assert gremlin_answers(operator.server, "g.V().count()") == [[0]]
    with pytest.raises(Exception, match="read-only mode"):
        gremlin_answers(operator.server, "g.addV('p').property('pk', 'a')")
    assert operator.send("POST", "databases", {"name": "other"})[0] == 403
    assert operator.send("POST", "faults", {"operations": "read", "count": 1, "delayMs": 1})[0] < 300
    assert operator.ask("GET", "ready") == {"status": "ready", "readOnly": True}
    assert operator.metric("read_only") == 1
    told = operator.command("containers", "create", "shop/more", "--partition-key", "/pk", code=2)
    assert "`armillary runtime --no-read-only`" in told
    assert operator.json("runtime", "--no-read-only")["readOnly"] is False
    assert "--log-requests must be one of off," in operator.command("runtime", "--log-requests", "2", code=2)
    container.upsert_item({"id": "1", "pk": "a"})
    status, body = operator.send("PUT", "runtime", {"logRequests": "2"})
    assert (status, b"a share from 0 to 1" in body) == (400, True)
    mongo.close()
    tables.close()


def test_the_log_of_requests_has_no_values(start_operator: Start) -> None:
    operator = start_operator("--log-format", "json", "--log-requests", "errors", "--log-level", "error")
    container = container_of(operator)
    container.create_item({"id": SECRET, "pk": SECRET, "n": 1})
    with pytest.raises(CosmosHttpResponseError):
        container.create_item({"id": SECRET, "pk": SECRET})
    # Errors alone, whatever the level of the log is.
    [line] = [each for each in log_lines(operator.server, "request") if each["operation"] == "create_item"]
    assert (line["status"], line["error"], line["container"]) == (409, "conflict", "orders")
    operator.ask("PUT", "runtime", {"logRequests": "off", "logSlowMs": 1})
    rule = operator.ask("POST", "faults", {"operations": "query", "delayMs": 20})
    text = f"SELECT * FROM c WHERE c.n = 1 AND c.pk = '{SECRET}' ORDER BY c.n"
    list(container.query_items(text, partition_key=SECRET))
    operator.ask("DELETE", f"faults/{rule['id']}")
    [slow] = [each for each in log_lines(operator.server, "slow.request") if each["operation"] == "query_items"]
    assert slow["ms"] >= 20
    assert slow["ru"] > 0
    assert slow["partitions"] == [0]
    assert slow["rows"] == 1
    assert "/n" in slow["search_equal"]
    assert slow["query"] == "SELECT * FROM c WHERE c . n = ? AND c . pk = ? ORDER BY c . n"
    operator.ask("PUT", "runtime", {"logRequests": "0.5", "logSlowMs": 0})
    for _ in range(10):
        container.read_item(SECRET, SECRET)
    reads = [each for each in log_lines(operator.server, "request") if each["operation"] == "read_item"]
    assert 4 <= len(reads) <= 6
    assert reads[0]["partitions"] == [0]
    assert SECRET not in operator.server.log


def test_lines_about_other_doors_have_no_values_either(start_operator: Start) -> None:
    operator = start_operator("--log-format", "json", "--log-requests", "all", "--gremlin-create", "/pk")
    server = operator.server
    CosmosClient(server.url, KEY).create_database("graphs").create_container("people", PartitionKey("/pk"))
    with mongo_client(server) as mongo:
        mongo.db.things.insert_one({"_id": 1, "name": SECRET})
        assert mongo.db.things.find_one({"name": SECRET}) is not None
    gremlin_answers(server, f"g.V().has('pk', '{SECRET}')")
    tables = TableServiceClient(server.doors["table"], credential=AzureNamedKeyCredential("localhost", KEY))
    with tables:
        table = tables.create_table("things")
        table.create_entity({"PartitionKey": SECRET, "RowKey": SECRET})
        table.get_entity(SECRET, SECRET)
    lines = {(line["door"], line["operation"]): line for line in log_lines(server, "request")}
    assert lines["mongo", "find"]["search_equal"] == ["/name"]
    assert lines["mongo", "find"]["query"] == '{"name":"?"}'
    assert lines["gremlin", "eval"]["query"] == "g.V().has('pk',?)"
    assert lines["table", "read_one"]["container"] == "things"
    assert SECRET not in server.log


class Receiver(HTTPServer):
    """An OTLP/HTTP receiver that keeps the spans."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.spans: list[Any] = []


class _Receiving(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        content = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in content.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        receiver.server_close()


def test_spans_continue_the_trace_of_the_client(start_operator: Start) -> None:
    with receiving() as receiver:
        operator = start_operator("--tracing", f"http://127.0.0.1:{receiver.server_port}/v1/traces")
        container = container_of(operator)
        container.create_item({"id": "1", "pk": "a"})
        trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        container.read_item("1", "a", raw_request_hook=traced(f"00-{trace}-{parent}-01"))
        container.read_item("1", "a", raw_request_hook=traced(f"00-{trace}-{parent}-00"))  # not sampled
        with pytest.raises(CosmosHttpResponseError):
            container.create_item({"id": "1", "pk": "a"})
        operator.server.stop()  # sends what is left
        spans = receiver.spans
    reads = [span for span in spans if span.name == "sql read_item"]
    assert [(span.trace_id.hex(), span.parent_span_id.hex()) for span in reads] == [(trace, parent)]
    attributes = {each.key: each.value for each in reads[0].attributes}
    assert attributes["armillary.ru"].double_value == 1
    assert attributes["db.response.status_code"].string_value == "200"
    assert attributes["db.collection.name"].string_value == "orders"
    assert reads[0].end_time_unix_nano > reads[0].start_time_unix_nano
    created = [span for span in spans if span.name == "sql create_item"]
    assert [span.status.code for span in created] == [0, 2]
    assert all(not span.parent_span_id for span in created)


def test_variables_of_opentelemetry_turn_tracing_on() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert is_wanted(Settings(), endpoint)
    assert not is_wanted(Settings(), {})
    assert not is_wanted(Settings(), endpoint | {"OTEL_SDK_DISABLED": "true"})
    assert not is_wanted(Settings(), endpoint | {"OTEL_TRACES_EXPORTER": "none"})


def test_tracing_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # what cannot be imported
    settings = Settings(tracing="http://127.0.0.1:4318/v1/traces")
    with ExitStack() as opened, pytest.raises(Failure, match=r"pip install 'armillary\[tracing\]'"):
        begin_tracing(settings, Runtime(settings, SystemClock()), opened)


def test_a_disk_that_becomes_full_is_warned_about(tmp_path: Path, start_operator: Start) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text('disk-reserve = "64MB"\nlog-requests = "off"\n')
    operator = start_operator("--config", str(file))
    container = container_of(operator)
    container.create_item({"id": "1", "pk": "a"})
    container_of(operator, "spare")
    free = int(operator.metric("disk_free_bytes"))

    def reserve(size_bytes: int) -> None:
        file.write_text(f"disk-reserve = {size_bytes}\n")
        before = operator.server.log.count("settings were read again")
        operator.server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: operator.server.log.count("settings were read again") > before)

    reserve(int(free * 0.7))
    assert operator.ask("GET", "ready")["disk"] == "nearly full"
    container.upsert_item({"id": "1", "pk": "a"})
    reserve(free * 2)
    with pytest.raises(CosmosHttpResponseError) as refused:
        container.upsert_item({"id": "2", "pk": "a"})
    assert (refused.value.status_code, refused.value.sub_status) == (403, 1005)
    assert container.read_item("1", "a")["id"] == "1"
    assert operator.ask("GET", "ready")["disk"] == "full"
    assert operator.metric("disk_full") == 1
    assert operator.metric("errors_total", kind="storage_full") == 1
    wait_for(lambda: "The disk of the data directory is full" in operator.server.log)
    CosmosClient(operator.server.url, KEY).delete_database("spare")  # frees space
    reserve(64_000_000)
    wait_for(lambda: operator.metric("disk_full") == 0)
    container.upsert_item({"id": "2", "pk": "a"})


def test_a_key_in_a_file_of_its_own_is_read_again(tmp_path: Path, start_operator: Start) -> None:
    file, other = tmp_path / "key", "b3RoZXIg" * 10
    file.write_text(KEY)
    operator = start_operator("--key-file", str(file))
    file.write_text(other + "\n")
    operator.server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "changed: key" in operator.server.log)
    assert [*CosmosClient(operator.server.url, other).list_databases()] == []
    with pytest.raises(CosmosHttpResponseError):
        CosmosClient(operator.server.url, KEY)


def test_keys_and_fixed_settings_on_a_reload(tmp_path: Path, start_operator: Start) -> None:
    file, other = tmp_path / "armillary.toml", "b3RoZXIg" * 10
    file.write_text(f'key = "{KEY}"\nconsistency = "Session"\n')
    operator = start_operator("--config", str(file))
    container_of(operator).create_item({"id": "1", "pk": "a"})
    file.write_text(f'key = "{other}"\nconsistency = "Eventual"\nlog-level = "debug"\n')
    operator.server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "need a restart: consistency" in operator.server.log)
    assert "changed: key, log-level" in operator.server.log
    assert other not in operator.server.log
    with pytest.raises(CosmosHttpResponseError):
        CosmosClient(operator.server.url, KEY)
    assert CosmosClient(operator.server.url, other).get_database_client("shop").read()["id"] == "shop"
    file.write_text("no-such-setting = 1\n")
    operator.server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "The settings stay as they are" in operator.server.log)
    assert CosmosClient(operator.server.url, other).get_database_client("shop").read()["id"] == "shop"


def test_the_service_manager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        server = ServerProcess.start(tmp_path / "data", "--durability", "relaxed")
        try:
            assert listening.recv(1000) == b"READY=1"
            server.process.send_signal(signal.SIGHUP)
            told = listening.recv(1000).decode().splitlines()
            assert told[0] == "RELOADING=1"
            assert told[1].startswith("MONOTONIC_USEC=")
            assert listening.recv(1000) == b"READY=1"
            server.stop()
            assert listening.recv(1000) == b"STOPPING=1"
        finally:
            if server.process.poll() is None:
                server.kill()


def test_an_upgrade_is_kept_until_it_is_committed(tmp_path: Path) -> None:
    """From the fixture that an earlier version has stored."""
    stored = Path(__file__).parents[1] / "fixtures" / "stored" / "data.tar.xz"
    with lzma.open(stored) as file, tarfile.open(fileobj=file) as packed:
        packed.extractall(tmp_path, filter="data")
        directory = tmp_path / packed.getnames()[0]
    files = {file.name: file.read_bytes() for file in (directory / "rocks").iterdir() if file.suffix == ".sst"}

    def upgrade(*arguments: str, code: int = 0) -> str:
        outcome = call_armillary("upgrade", str(directory), *arguments)
        assert outcome.returncode == code, outcome.stdout + outcome.stderr
        return outcome.stdout + outcome.stderr

    assert "No upgrade" in upgrade("--rollback", code=2)
    assert "upgraded from format 2 to 3" in upgrade()
    assert (directory / "FORMAT").read_text() == "armillary 3\n"
    assert "waits for its end" in upgrade(code=2)
    assert "back at format 2" in upgrade("--rollback")
    assert (directory / "FORMAT").read_text() == "armillary 2\n"
    now = {file.name: file.read_bytes() for file in (directory / "rocks").iterdir() if file.suffix == ".sst"}
    assert now == files
    upgrade()
    assert "is committed" in upgrade("--commit")
    assert not (directory / "before-upgrade").exists()
    assert "nothing to upgrade" in upgrade()
    ServerProcess.check(directory)
    (directory / "FORMAT").write_text("armillary 4\n")
    refused = run_armillary("serve", "--data", str(directory), "--sql-port", "0")
    assert (refused.returncode, "which a newer version of Armillary wrote" in refused.stderr) == (2, True)
    assert "which a newer version of Armillary wrote" in upgrade(code=2)
