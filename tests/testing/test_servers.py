"""Servers for tests without pytest's fixtures: in the test's own process, in a process of its own, in a container."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from support.process import ServerProcess as PlainProcess
from support.process import clean_environment

from armillary.errors import Failure
from armillary.testing import Server, ServerProcess
from armillary.testing.clients import MissingClient, gremlin_client, load, mongo_client, table_service_client
from armillary.testing.containers import ArmillaryContainer
from armillary.testing.server_settings import secret_settings, server_arguments


def databases(server: Any) -> list[str]:
    return [each["name"] for each in server.control.get("databases")["databases"]]


# In one process


def test_a_server_in_the_tests_own_process() -> None:
    server = Server(clock="movable", account="mine")
    with server, CosmosClient(server.url, server.key) as client:
        orders = client.create_database("shop").create_container("orders", PartitionKey("/customer"), default_ttl=60)
        orders.create_item({"id": "1", "customer": "ada"})
        body = "function () { getContext().getResponse().setBody('done') }"  # runs in a child process of this thread's
        orders.scripts.create_stored_procedure({"id": "p", "body": body})
        assert orders.scripts.execute_stored_procedure("p", partition_key="ada") == "done"
        assert len(server.split(orders)) == 2
        server.advance_clock(61)
        assert list(orders.read_all_items()) == []
        assert list(server.connection_strings) == ["sql", "table", "mongo", "gremlin"]
        assert server.connection_strings["gremlin"].startswith(f"AccountEndpoint={server.gremlin_url};AccountKey=")
        assert repr(server) == f"<Server {server.url}>"
        with mongo_client(server) as documents, table_service_client(server) as tables:
            assert documents.list_database_names() == ["shop"]
            assert [each.name for each in tables.list_tables()] == []
    for each in ("url", "connection_strings"):
        with pytest.raises(Failure, match="is not running"):
            getattr(server, each)
    with server:  # again, and empty
        assert databases(server) == []


def test_threads_share_a_server() -> None:
    with Server() as server, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: server.control.post("databases", body={"name": name}), "abcd"))
        assert sorted(databases(server)) == list("abcd")
        rule = server.throttle(1)
        assert pool.submit(lambda: rule.hits).result() == 0
        with pytest.raises(RuntimeError, match="already"):
            server.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "armillary"]


async def test_a_server_for_asyncio() -> None:
    from azure.cosmos.aio import CosmosClient as AsyncClient

    async with Server() as one, Server() as other, AsyncClient(one.url, one.key) as client:
        await client.create_database("shop")
        assert (databases(one), databases(other)) == (["shop"], [])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"thruput": "off"}, "Did you mean throughput?"),
        ({"cluster": "postgresql://here"}, "no node of a cluster"),
        ({"require_tls": True}, "every port serves TLS"),
        ({"key_file": "key"}, "give the secret itself"),
        ({"data": "/tmp"}, "in memory"),
        ({"throughput": "most"}, "expected one of enforce, observe, off"),
        ({"mongo_auth": 5}, "expected one of on, off"),
    ],
)
def test_settings_are_refused_before_a_server_starts(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Failure) as caught:
        Server(**settings)
    assert words in caught.value.message


def test_secrets_are_not_on_the_command_line_of_a_server() -> None:
    settings = {"key": "QXJtaWxsYXJ5IHRlc3Qga2V5", "read_only_key": None, "throughput": "off"}
    assert server_arguments(settings) == ["--throughput=off"]
    assert secret_settings(settings) == {"ARMILLARY_KEY": settings["key"]}
    with ServerProcess(**settings) as server, CosmosClient(server.url, str(settings["key"])) as client:
        assert list(client.list_databases()) == []


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(Failure, match=r"did not start(.|\n)*needs --tls-key as well"):
        ServerProcess(tls_certificate="nowhere.pem").start()
    with pytest.raises(Failure, match="nowhere"):
        Server(tls_certificate="nowhere.pem", tls_key="nowhere.pem").start()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        for module, call in (("gremlin_python.driver", gremlin_client), ("pymongo", mongo_client)):
            monkeypatch.setitem(sys.modules, module, None)
            with pytest.raises(MissingClient, match=r"pip install (gremlinpython|pymongo)$"):
                call(server)
    monkeypatch.setitem(sys.modules, "azure.cosmos.aio", None)
    with pytest.raises(MissingClient, match=r"pip install azure-cosmos aiohttp$"):
        load("azure.cosmos.aio", "it")


# In containers

DOCKER = """
    class DockerContainer:  # the part of testcontainers' that is used
        def __init__(self, image): self.image, self.variables, self.ports = image, {}, ()
        def with_env(self, name, value): self.variables[name] = value
        def with_exposed_ports(self, *ports): self.ports = ports
        def start(self): pass
        def stop(self): pass
        def get_container_host_ip(self): return "127.0.0.1"
        def get_exposed_port(self, port): return PORTS[port]
"""


def test_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings that it would be started with, in place of a container a process."""
    with pytest.raises(ImportError, match=r"pip install testcontainers$"):
        ArmillaryContainer()
    module = type(sys)("testcontainers.core.container")
    for name in ("testcontainers", "testcontainers.core"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("if True:" + DOCKER, vars(module))
    container = ArmillaryContainer("armillary:9", throughput="enforce", burst=True, partition_storage="1MB")
    assert container.container.image == "armillary:9"
    assert set(container.container.ports) == {8081, 8901, 8902, 10255}
    variables = container.container.variables
    assert variables.pop("ARMILLARY_CONTROL_KEY") == container.control_key
    assert variables == {
        "ARMILLARY_HOST": "0.0.0.0",
        "ARMILLARY_ALLOW_WELL_KNOWN_KEY": "true",
        "ARMILLARY_THROUGHPUT": "enforce",
        "ARMILLARY_BURST": "true",
        "ARMILLARY_PARTITION_STORAGE": "1MB",
    }
    server = PlainProcess.start(tmp_path / "data", "--control-key", container.control_key)
    try:
        names = {8081: "sql", 8901: "gremlin", 8902: "table", 10255: "mongo"}
        vars(module)["PORTS"] = {port: server.doors[door].rpartition(":")[2] for port, door in names.items()}
        with container:
            container.control.post("databases", body={"name": "shop"})
            with mongo_client(container) as client:
                assert client.list_database_names() == ["shop"]
    finally:
        server.stop()


# The end of servers


def test_a_server_stops_when_its_standard_input_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "armillary", "serve", "--data", str(tmp_path / "data"), "--sql-port", "0"]
    process = subprocess.Popen(
        [*command, "--stop-with-stdin"],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    process.stdin.write("what is written is no reason\n")
    process.stdin.flush()
    assert process.poll() is None
    _, errors = process.communicate(timeout=90)  # closes standard input
    assert process.returncode == 0
    assert "stopped" in errors
