"""TLS as operators set it up, on real server processes with released clients: a certificate with its chain, its reload,
TLS that is required, client certificates for the control API, and the names that the server is given."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import CosmosClient, PartitionKey
from azure.data.tables import TableServiceClient
from cryptography import x509
from gremlin_python.driver.client import Client as GremlinClient
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError
from support.certificates import Signed
from support.process import KEY, ServerProcess, run_armillary
from support.waiting import until

OWN_KEY = "b3duIGtleSBvZiB0aGUgdGVzdHMgb2YgdHJhbnNwb3J0IHNlY3VyaXR5"
CONTROL_KEY = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
# gremlinpython leaves the event loops of its connections to the collector.
pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
HOSTS = ("localhost", "127.0.0.1")


class Operator:
    """What an operator has: a root, an intermediate authority, and files that the server reads."""

    def __init__(self, directory: Path) -> None:
        self.root = Signed("Test root")
        self.middle = Signed("Test intermediate", self.root)
        self.root_file = directory / "root.pem"
        self.root_file.write_bytes(self.root.pem)
        self.certificate_file, self.key_file = directory / "server.pem", directory / "server-key.pem"
        self.renew()
        self.client_file = directory / "client.pem"
        client = Signed("operator", self.root, ("operator.example",))
        self.client_file.write_bytes(client.pem + client.key_pem())
        stranger = Signed("stranger", Signed("Other root"), ("operator.example",))
        self.stranger_file = directory / "stranger.pem"
        self.stranger_file.write_bytes(stranger.pem + stranger.key_pem())

    def renew(self, *hosts: str) -> int:
        """A new certificate in the same files; its serial number."""
        made = Signed("server", self.middle, hosts or HOSTS)
        made.write(self.certificate_file, self.key_file)
        return made.certificate.serial_number

    def trusting(self, client_certificate: Path | None = None) -> ssl.SSLContext:
        """A client that knows the root alone."""
        context = ssl.create_default_context(cafile=str(self.root_file))
        if client_certificate is not None:
            context.load_cert_chain(client_certificate)
        return context


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def secured(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With everything that TLS may have, on a host that counts as public."""
    started = ServerProcess.start(
        tmp_path_factory.mktemp("tls") / "data",
        *("--host", "0.0.0.0", "--key", OWN_KEY, "--control-key", CONTROL_KEY),
        *("--tls-certificate", str(operator.certificate_file), "--tls-key", str(operator.key_file)),
        *("--tls-client-ca", str(operator.root_file)),
    )
    yield started
    started.stop()


def port_of(secured: ServerProcess, door: str) -> int:
    return int(secured.doors[door].rpartition(":")[2])


def shown(port: int, context: ssl.SSLContext, host: str = "localhost") -> x509.Certificate:
    """The certificate that a door shows to a client that verifies it for `host`."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        assert secured.version() in ("TLSv1.2", "TLSv1.3")
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


def get(
    port: int, target: str, context: ssl.SSLContext | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        if context is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    )
    try:
        connection.request("GET", target, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_every_door_shows_the_certificate_with_its_chain(secured: ServerProcess, operator: Operator) -> None:
    wanted = x509.load_pem_x509_certificate(operator.certificate_file.read_bytes())
    for door in ("sql", "table", "mongo", "gremlin"):
        # Verified against the root alone: the intermediate authority came with the handshake.
        assert shown(port_of(secured, door), operator.trusting()) == wanted


@pytest.mark.parametrize("door", ["sql", "table", "mongo", "gremlin"])
def test_versions_before_1_2_are_refused(secured: ServerProcess, operator: Operator, door: str) -> None:
    old = operator.trusting()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shown(port_of(secured, door), old)


def test_released_clients_work_over_it(secured: ServerProcess, operator: Operator) -> None:
    root = str(operator.root_file)
    url = f"https://localhost:{secured.port}"
    with CosmosClient(url, OWN_KEY, connection_verify=root) as sql:
        database = sql.create_database("tls")
        items = database.create_container("items", PartitionKey("/pk"))
        items.create_item({"id": "1", "pk": "a"})
        assert items.read_item("1", "a")["pk"] == "a"
        database.create_container("graph", PartitionKey("/pk"))
    credential = AzureNamedKeyCredential("localhost", OWN_KEY)
    table_url = f"https://localhost:{port_of(secured, 'table')}"
    with TableServiceClient(table_url, credential=credential, connection_verify=root) as tables:
        assert tables.create_table("secured").table_name == "secured"
    address = f"mongodb://localhost:{quote_plus(OWN_KEY)}@localhost:{port_of(secured, 'mongo')}/?tls=true"
    mongo: MongoClient[Any]
    with MongoClient(address, tlsCAFile=root) as mongo:
        assert mongo["tls"]["items"].count_documents({}) == 1
    gremlin = GremlinClient(
        f"wss://localhost:{port_of(secured, 'gremlin')}/gremlin",
        "g",
        username="/dbs/tls/colls/graph",
        password=OWN_KEY,
        ssl_options=operator.trusting(),
    )
    try:
        assert gremlin.submit("g.V().count()").all().result(30) == [0]
    finally:
        gremlin.close()


def test_a_public_host_requires_tls_of_all_but_health_and_readiness(secured: ServerProcess) -> None:
    for target in ("/_armillary/health", "/_armillary/ready"):
        assert get(secured.port, target)[0] == 200
    for door, target in (("sql", "/"), ("sql", "/_armillary/databases"), ("table", "/Tables")):
        status, body = get(port_of(secured, door), target)
        assert status == 403, body
        assert b"TLS only" in body
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    status, body = get(
        port_of(secured, "gremlin"), "/gremlin", headers=upgrade | {"Sec-WebSocket-Key": "A" * 22 + "=="}
    )
    assert status == 403
    assert b"wss" in body
    address = f"mongodb://localhost:{quote_plus(OWN_KEY)}@localhost:{port_of(secured, 'mongo')}/?directConnection=true"
    mongo: MongoClient[Any]
    with MongoClient(address, serverSelectionTimeoutMS=300) as mongo, pytest.raises(ServerSelectionTimeoutError):
        mongo.admin.command("ping")


def test_the_control_api_needs_a_client_certificate(secured: ServerProcess, operator: Operator) -> None:
    bearer = {"Authorization": f"Bearer {CONTROL_KEY}"}
    status, body = get(secured.port, "/_armillary/databases", operator.trusting(), bearer)
    assert status == 403
    assert b"client certificate" in body
    with_certificate = operator.trusting(operator.client_file)
    assert get(secured.port, "/_armillary/databases", with_certificate, bearer)[0] == 200
    assert get(secured.port, "/_armillary/databases", with_certificate)[0] == 401
    assert get(secured.port, "/_armillary/health", operator.trusting())[0] == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(secured.port, "/_armillary/databases", operator.trusting(operator.stranger_file), bearer)


def test_commands_on_the_same_machine_find_the_server(secured: ServerProcess, operator: Operator) -> None:
    # The certificate is for localhost, the control file names 127.0.0.1: it is pinned, not verified by name.
    listed = ("databases", "list", "--json", "--data", str(secured.directory))
    environment = {"ARMILLARY_CONTROL_KEY": CONTROL_KEY, "ARMILLARY_KEY": OWN_KEY}
    refused = run_armillary(*listed, environment=environment)
    assert refused.returncode == 2
    assert "client certificate" in refused.stderr
    outcome = run_armillary(*listed, "--client-certificate", str(operator.client_file), environment=environment)
    assert outcome.returncode == 0, outcome.stderr
    json.loads(outcome.stdout)


def test_connection_strings_are_what_clients_read(secured: ServerProcess, operator: Operator) -> None:
    bearer = {"Authorization": f"Bearer {CONTROL_KEY}"}
    context = operator.trusting(operator.client_file)
    status, body = get(secured.port, "/_armillary/account/connection-strings", context, bearer)
    assert status == 200
    found = {each["door"]: each["value"] for each in json.loads(body)["connectionStrings"]}
    root = str(operator.root_file)
    with CosmosClient.from_connection_string(found["sql"], connection_verify=root) as sql:
        list(sql.list_databases())
    with TableServiceClient.from_connection_string(found["table"], connection_verify=root) as tables:
        list(tables.list_tables())
    mongo: MongoClient[Any]
    with MongoClient(found["mongo"], tlsCAFile=root) as mongo:
        assert mongo.admin.command("ping")["ok"] == 1
    assert found["gremlin"].startswith(f"AccountEndpoint=wss://127.0.0.1:{port_of(secured, 'gremlin')}/;AccountKey=")


async def test_a_new_certificate_is_taken_over_on_hangup(secured: ServerProcess, operator: Operator) -> None:
    doors = ("sql", "table", "mongo", "gremlin")

    def serials() -> set[int]:
        return {shown(port_of(secured, door), operator.trusting()).serial_number for door in doors}

    kept = http.client.HTTPSConnection("127.0.0.1", secured.port, timeout=30, context=operator.trusting())
    kept.request("GET", "/_armillary/health")
    assert kept.getresponse().read()
    renewed = operator.renew()
    assert serials() != {renewed}
    secured.process.send_signal(signal.SIGHUP)
    await until(lambda: serials() == {renewed}, "the new certificate")
    kept.request("GET", "/_armillary/health")  # open connections go on
    assert kept.getresponse().status == 200
    kept.close()
    # Files that do not fit: the server keeps what it has, and says so.
    key = operator.key_file.read_bytes()
    operator.key_file.write_bytes(Signed("other").key_pem())
    secured.process.send_signal(signal.SIGHUP)
    await until(
        lambda: "The certificate that was loaded before stays in use" in secured.log, "the refusal of the files"
    )
    assert "the key does not belong to the certificate" in secured.log
    assert serials() == {renewed}
    operator.key_file.write_bytes(key)


def test_a_server_without_a_usable_certificate_does_not_start(tmp_path: Path, operator: Operator) -> None:
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(Signed("other").key_pem())
    files = ("--tls-certificate", str(operator.certificate_file), "--tls-key", str(key_file))
    outcome = run_armillary("serve", "--memory", "--sql-port", "0", *files)
    assert outcome.returncode == 2
    assert "cannot be used: the key does not belong to the certificate" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_containers_may_allow_the_well_known_key(tmp_path: Path) -> None:
    refused = run_armillary("serve", "--memory", "--sql-port", "0", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "--allow-well-known-key" in refused.stderr
    server = ServerProcess.start(None, "--host", "0.0.0.0", "--allow-well-known-key")
    try:
        assert "ANYBODY WHO REACHES 0.0.0.0 OWNS THIS DATABASE" in server.log
        with CosmosClient(f"http://localhost:{server.port}", KEY) as client:  # plain, as in a container on one machine
            assert list(client.list_databases()) == []
    finally:
        server.stop()


def test_requiring_tls_is_for_the_operator_to_say(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path / "data", "--require-tls", "--table-port", "0", "--gremlin-port", "0")
    try:
        schemes = {door: address.partition(":")[0] for door, address in server.doors.items()}
        expected = {"sql": "https", "table": "https", "gremlin": "wss", "mongo": "", "portal": "https"}
        assert schemes | {"mongo": ""} == expected, schemes
        assert get(server.port, "/")[0] == 403
        # Commands find the development certificate with the data.
        assert run_armillary("databases", "list", "--data", str(server.directory)).returncode == 0
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"id": "1", "pk": "a"}\n')
        place = ("--data", str(server.directory), "--partition-key", "/pk")
        outcome = run_armillary("databases", "create", "shop", "--data", str(server.directory))
        assert outcome.returncode == 0, outcome.stderr
        outcome = run_armillary("import", str(rows), "shop/items", *place)
        assert outcome.returncode == 0, outcome.stderr
    finally:
        server.stop()
    server = ServerProcess.start(None, "--host", "0.0.0.0", "--key", OWN_KEY, "--no-require-tls")
    try:
        assert get(server.port, "/")[0] == 401
        assert "TLS is not required" in server.log
    finally:
        server.stop()


def test_what_is_advertised_is_what_clients_are_told(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path / "data", "--advertise", "db.example", "--host", "localhost")
    try:
        # The account document, and a Host that requests may be for.
        with CosmosClient(server.url.replace("127.0.0.1", "localhost"), KEY, connection_verify=False) as client:
            account = client.get_database_account()
        endpoint = f"http://db.example:{server.port}/"
        assert account.WritableLocations[0]["databaseAccountEndpoint"] == endpoint
        assert account.ReadableLocations[0]["databaseAccountEndpoint"] == endpoint
        assert get(server.port, "/", headers={"Host": "db.example"})[0] == 401
        assert get(server.port, "/", headers={"Host": "evil.example"})[0] == 403
        # The certificate.
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        shown(server.port, trusting)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "data" / "certificate.pem"))
        for host in ("db.example", "localhost", "127.0.0.1"):
            shown(server.port, trusting, host)
        listed = run_armillary("account-keys", "connection-strings", "--data", str(server.directory))
        assert f"AccountEndpoint=http://db.example:{server.port}/;AccountKey={KEY};" in listed.stdout
        assert f"TableEndpoint=http://db.example:{port_of(server, 'table')}/;" in listed.stdout
        # MongoDB's hello.
        mongo_port = port_of(server, "mongo")
        address = f"mongodb://localhost:{quote_plus(KEY)}@localhost:{mongo_port}/?directConnection=true"
        mongo: MongoClient[Any]
        with MongoClient(address) as mongo:
            assert mongo.admin.command("hello")["me"] == f"db.example:{mongo_port}"
    finally:
        server.stop()
