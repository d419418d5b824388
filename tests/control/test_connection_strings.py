"""Connection strings of a real server: what the start, the command and the page without a portal say, and that the
released clients connect with it."""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient
from azure.data.tables import TableServiceClient
from control.conftest import Start
from control.test_portal import HTML, fetch
from gremlin_python.driver.client import Client as GremlinClient
from gremlin_python.driver.serializer import GraphSONSerializersV2d0
from pymongo import MongoClient
from support.certificates import Signed
from support.forked import Forked
from support.process import KEY, READY_S, ServerProcess, call_armillary, clean_environment
from support.server_operator import Operator
from support.waiting import until

from armillary.tools.exposure import STORAGE_KEY

OWN_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5IG9mIG91ciBvd24u"
AZURITE = ("--account", "devstoreaccount1", "--key", STORAGE_KEY, "--table-flavor", "storage")


def connect(strings: dict[str, str]) -> None:
    """With the released client of each API."""
    with CosmosClient.from_connection_string(strings["sql"]) as client:
        assert client.get_database_account().ConsistencyPolicy is not None
    with TableServiceClient.from_connection_string(strings["table"]) as tables:
        tables.create_table_if_not_exists("people")
    with MongoClient[dict[str, object]](strings["mongo"]) as mongo:
        assert mongo["shop"]["orders"].insert_one({"_id": 1}).acknowledged
        mongo.drop_database("shop")
    address = strings["gremlin"].removeprefix("AccountEndpoint=").partition(";")[0]
    graph = GremlinClient(
        address,
        "g",
        username="/dbs/graphs/colls/none",
        password=strings["gremlin"].partition("AccountKey=")[2].partition(";")[0],
        message_serializer=GraphSONSerializersV2d0(),
    )
    try:
        with pytest.raises(Exception, match="graphs"):  # signed in; there is no such graph
            graph.submit("g.V()").all().result()
    finally:
        graph.close()


def test_clients_connect_with_what_the_command_says(operator: Operator) -> None:
    content = operator.json("connection-strings")["connectionStrings"]
    strings = {each["door"]: each["value"] for each in content}
    assert list(strings) == ["sql", "table", "mongo", "gremlin"]
    assert {each["key"] for each in content} == {"primary"}
    connect(strings)
    said = operator.command("connection-strings")
    assert all(f"  {string}\n" in said for string in strings.values())
    for door, string in strings.items():
        assert operator.command("connection-strings", door) == f"{string}\n"
    every = operator.json("account-keys", "connection-strings")["connectionStrings"]
    assert [each for each in every if each["key"] == "primary"] == content
    assert "sql, table, mongo, gremlin" in operator.command("connection-strings", "cassandra", code=2)
    assert "no secondary key" in operator.command("connection-strings", "--key", "secondary", code=2)


def test_a_server_in_memory_is_found_by_its_address_whatever_directory_is_set(tmp_path: Path) -> None:
    """As in the image, which sets the directory and may be told to keep nothing there."""
    server = ServerProcess.start(None)
    try:
        variables = {"ARMILLARY_DATA": str(tmp_path)}
        found = call_armillary("connection-strings", "sql", "--url", server.url, environment=variables)
        assert found.stdout == f"AccountEndpoint={server.url}/;AccountKey={KEY};\n", found.stderr
        assert call_armillary("connection-strings", environment=variables).returncode == 2
    finally:
        server.stop()


def test_a_read_only_operator_is_told_the_read_only_key(start_operator: Start) -> None:
    looking = "bG9va2luZyBhdCB0aGUgY29udHJvbCBBUEk="
    server = start_operator("--read-only-key", OWN_KEY, "--control-read-only-key", looking).server
    (told,) = Operator(server, looking).ask("GET", "account/connection-strings")["connectionStrings"][:1]
    assert (told["key"], OWN_KEY in told["value"]) == ("primaryReadonly", True)
    assert Operator(server).command("connection-strings", "sql", "--key", "primaryReadonly").strip() == told["value"]


def started(arguments: tuple[str, ...], done: Callable[[bytes], bool]) -> tuple[str, str]:
    """The first line of standard output, and what a terminal shows as standard error until `done`."""
    terminal, errors = os.openpty()
    process = Forked.start(
        *("armillary", "serve", "--memory", "--sql-port", "0", *arguments),
        environment=clean_environment(),
        stderr=errors,
    )
    os.close(errors)
    shown = b""
    try:
        with process.stdout as output:
            line = output.readline()
            while not done(shown):
                shown += os.read(terminal, 4096)
            process.send_signal(15)
            assert output.read() == "", "more than one line on standard output"
        process.wait(READY_S)
    finally:
        if process.returncode is None:
            process.kill()
        os.close(terminal)
    return line, shown.decode().replace("\r\n", "\n")


def test_the_start_shows_the_strings_on_a_terminal() -> None:
    ready, shown = started((), lambda shown: b"shows this again." in shown)
    assert ready.startswith("ready sql=")
    addresses = dict(each.split("=", 1) for each in ready.split()[1:])
    assert f"  SQL (NoSQL)  AccountEndpoint={addresses['sql']}/;AccountKey={KEY};\n" in shown
    host = addresses["mongo"].removeprefix("mongodb://")
    assert f"  MongoDB      mongodb://localhost:{quote(KEY, safe='')}@{host}/?replicaSet=globaldb\n" in shown
    assert f"  Portal       {addresses['portal']}\n" in shown
    assert f"`armillary connection-strings --url {addresses['sql']}` shows this again.\n" in shown


def test_the_start_does_not_show_a_key_of_the_operators() -> None:
    _, shown = started(("--key", OWN_KEY), lambda shown: b"in the place of <key>." in shown)
    assert OWN_KEY not in shown
    assert re.search(r"AccountEndpoint=http://127\.0\.0\.1:\d+/;AccountKey=<key>;\n", shown)


async def test_without_a_terminal_the_log_names_the_command(operator: Operator) -> None:
    place = f"--data {operator.directory}"
    said = f"`armillary connection-strings {place}` shows what clients connect with"
    await until(lambda: said in operator.server.log, said)
    assert KEY not in operator.server.log


def test_the_page_without_a_portal_says_how_to_connect(start_operator: Start) -> None:
    off = start_operator("--portal", "off", "--key", OWN_KEY)
    for path in ("/", "/_explorer/index.html"):
        status, headers, _ = fetch(off.server, "GET", path, **HTML)
        assert (status, headers["location"]) == (302, "/_armillary/portal/")
    status, headers, body = fetch(off.server, "GET", "/_armillary/portal/", **HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert OWN_KEY not in body.decode() and off.key not in body.decode()
    strings = re.findall(r"<dd><code>(.*)</code></dd>", unescape(body.decode()))
    told = {each["door"]: each["value"] for each in off.json("connection-strings")["connectionStrings"]}
    for key in (OWN_KEY, quote(OWN_KEY, safe="")):
        told = {door: string.replace(key, "<key>") for door, string in told.items()}
    assert strings == list(told.values())
    assert fetch(off.server, "GET", "/_armillary/portal/containers", **HTML)[0] == 404
    assert fetch(off.server, "POST", "/_armillary/portal/", {}, **HTML)[0] == 404
    assert fetch(off.server, "GET", "/")[0] == 401, "a client without Accept: text/html"


def test_the_certificate_at_the_emulators_address(start_operator: Start, tmp_path: Path) -> None:
    kept = start_operator()
    status, headers, pem = fetch(kept.server, "GET", "/_explorer/emulator.pem")
    assert (status, headers["content-type"]) == (200, "application/x-pem-file")
    assert pem == (kept.directory / "certificate.pem").read_bytes() and b"PRIVATE" not in pem
    assert fetch(kept.server, "POST", "/_explorer/emulator.pem", {})[0] == 405
    in_memory = ServerProcess.start(None, "--portal", "off")
    try:
        pem = fetch(in_memory, "GET", "/_explorer/emulator.pem")[2]
        context = ssl.create_default_context(cadata=pem.decode())
        for door in ("sql", "mongo", "table", "gremlin"):  # one certificate for all of them
            port = int(in_memory.doors[door].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), READY_S) as plain:
                context.wrap_socket(plain, server_hostname="localhost").close()
    finally:
        in_memory.stop()


def test_the_certificate_of_an_operator_is_told_without_its_key(start_operator: Start, tmp_path: Path) -> None:
    signed = Signed("operator", hosts=("localhost",))
    both = tmp_path / "both.pem"
    both.write_bytes(signed.key_pem() + signed.pem)
    server = start_operator("--tls-certificate", str(both), "--tls-key", str(both), "--no-require-tls").server
    context = ssl.create_default_context(cadata=signed.pem.decode())
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=60, context=context)
    connection.request("GET", "/_explorer/emulator.pem")
    assert connection.getresponse().read().strip() == signed.pem.strip()
    connection.close()


def test_storage_clients_connect_as_to_their_own_emulator(start_server: Callable[..., ServerProcess]) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", 10002))
            port = "10002"
        except OSError:
            port = "0"
    server = start_server("--table-port", port, *AZURITE)
    endpoint = f"{server.doors['table']}/devstoreaccount1"
    explicit = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={STORAGE_KEY};"
    for string in (f"{explicit}TableEndpoint={endpoint};", *(["UseDevelopmentStorage=true"] if port != "0" else [])):
        with TableServiceClient.from_connection_string(string) as service:
            assert service.url.rstrip("/") == endpoint
            people = service.create_table_if_not_exists("people")
            people.upsert_entity({"PartitionKey": "Smith", "RowKey": "Ben", "Age": 39})
            assert [each["Age"] for each in people.query_entities("PartitionKey eq 'Smith'")] == [39]
            with pytest.raises(HttpResponseError) as caught:
                people.create_entity({"PartitionKey": "Smith", "RowKey": "Ben"})
            assert caught.value.status_code == 409
    if port == "0":
        pytest.skip("port 10002 is taken: only the explicit connection string was tried")


def test_the_key_of_the_storage_emulator_is_no_secret() -> None:
    outcome = call_armillary("serve", "--memory", "--sql-port", "0", "--host", "0.0.0.0", "--key", STORAGE_KEY)
    assert (outcome.returncode, "known publicly" in outcome.stderr) == (2, True)
    assert STORAGE_KEY not in outcome.stderr
