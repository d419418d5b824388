"""Pages of other sites, and names that were made to point to this machine: every door turns their requests away,
whatever key or signature they bring, and goes on to serve clients that mean this server."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from urllib.parse import quote

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import CosmosClient, PartitionKey
from azure.data.tables import TableCorsRule, TableSasPermissions, TableServiceClient, generate_table_sas
from support.process import KEY, ServerProcess

FOREIGN_HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.7",
    "evil",
    "[2001:db8::1]",
)
OUR_HOSTS = ("localhost", "127.0.0.1", "[::1]", "127.8.8.8", "shop.localhost", "LocalHost.", "host.docker.internal")
FOREIGN_ORIGINS = ("https://evil.example", "null", "http://localhost:3000", "https://localhost.evil.example", "file://")
SIMPLE = (
    "text/plain",
    "text/plain;charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
)


def signed(method: str, kind: str, link: str) -> dict[str, str]:
    date = formatdate(usegmt=True)
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    return {"x-ms-date": date, "authorization": quote(f"type=master&ver=1.0&sig={signature}", safe="")}


def send(
    address: str, method: str, target: str, headers: dict[str, str], body: bytes | None = None
) -> tuple[int, bytes, dict[str, str]]:
    place = address.rpartition("/")[2]
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        connection.putrequest(method, target, skip_host="host" in {name.lower() for name in headers})
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def open_socket(address: str, **headers: str) -> int:
    """The status that a request to open a WebSocket is answered with."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    given = {"Host": f"localhost:{port}", **headers}
    key = base64.b64encode(bytes(16)).decode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall(
            f"GET /gremlin HTTP/1.1\r\n{lines}Connection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        return int(line.recv(4096).split()[1])


def test_requests_for_other_hosts(server: ServerProcess) -> None:
    port = server.port
    for host in FOREIGN_HOSTS:
        for named in (host, f"{host}:{port}"):
            headers = {**signed("GET", "dbs", ""), "Host": named}
            status, body, _ = send(server.url, "GET", "/dbs", headers)
            assert (status, b"Databases" in body) == (403, False), named
            assert send(server.doors["table"], "GET", "/Tables", {"Host": named})[0] == 403
            assert open_socket(server.doors["gremlin"], Host=named) == 403
            # The target's authority stands for the Host header.
            absolute = f"http://{named}/dbs"
            assert send(server.url, "GET", absolute, signed("GET", "dbs", ""))[0] == 403
    for host in OUR_HOSTS:
        headers = {**signed("GET", "dbs", ""), "Host": f"{host}:{port}"}
        assert send(server.url, "GET", "/dbs", headers)[0] == 200, host
        assert send(server.doors["table"], "GET", "/Tables", {"Host": host})[0] == 401
        assert open_socket(server.doors["gremlin"], Host=f"{host}:1") == 101
    for path in ("health", "ready"):
        assert send(server.url, "GET", f"/_armillary/{path}", {"Host": "monitor.example"})[0] == 200


def test_a_connection_that_was_good_for_one_host_is_not_for_another(server: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for host, status in (("localhost", 200), ("localhost", 200), ("evil.example", 403)):
        connection.request("GET", "/dbs", headers={**signed("GET", "dbs", ""), "Host": host})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()


def test_pages_of_other_origins(server: ServerProcess) -> None:
    own = f"http://localhost:{server.port}"
    host = {"Host": f"localhost:{server.port}"}
    for origin in FOREIGN_ORIGINS:
        headers = {**signed("GET", "dbs", ""), **host, "Origin": origin}
        status, _, answered = send(server.url, "GET", "/dbs", headers)
        assert status == 403 and "access-control-allow-origin" not in answered, origin
        preflight = {**host, "Origin": origin, "Access-Control-Request-Method": "POST"}
        for door in ("sql", "table"):
            _, _, answered = send(server.doors[door], "OPTIONS", "/dbs", preflight)
            assert not any(name.startswith("access-control") for name in answered)
        assert open_socket(server.doors["gremlin"], Origin=origin) == 403
    assert send(server.url, "GET", "/dbs", {**signed("GET", "dbs", ""), **host, "Origin": own})[0] == 200
    # Java's driver names the server itself as the origin.
    gremlin = server.doors["gremlin"].rpartition("/")[2].rpartition(":")[2]
    assert open_socket(server.doors["gremlin"], Origin=f"http://localhost:{gremlin}") == 101
    assert open_socket(server.doors["gremlin"]) == 101


def test_simple_requests_with_a_signature_in_the_address(server: ServerProcess, name: str) -> None:
    """What a page may send without a CORS preflight: a POST with a body of a simple type, or of none."""
    table = name.replace("-", "")
    credential = AzureNamedKeyCredential("localhost", KEY)
    with TableServiceClient(server.doors["table"], credential=credential) as service:
        entities = service.create_table(table)
        expires = datetime.now(UTC) + timedelta(hours=1)
        sas = generate_table_sas(credential, table, permission=TableSasPermissions(read=True, add=True), expiry=expires)
        entity = json.dumps({"PartitionKey": "p", "RowKey": "r"}).encode()
        target = f"/{table}?{sas}"
        for origin in FOREIGN_ORIGINS:
            for kind in (*SIMPLE, None):
                headers = {"Host": "localhost", "Origin": origin} | ({"Content-Type": kind} if kind else {})
                assert send(server.doors["table"], "POST", target, headers, entity)[0] in (403, 415), (origin, kind)
        for kind in SIMPLE:
            headers = {"Host": "localhost", "Content-Type": kind}
            assert send(server.doors["table"], "POST", target, headers, entity)[0] == 415
        assert list(entities.list_entities()) == []
        # A rule of the service's properties lets a page in.
        service.set_service_properties(cors=[TableCorsRule(["https://good.example"], ["POST"])])
        try:
            headers = {"Host": "localhost", "Content-Type": "application/json"}
            for origin, status in (("https://good.example", 201), ("https://evil.example", 403)):
                answered = send(server.doors["table"], "POST", target, {**headers, "Origin": origin}, entity)
                assert answered[0] == status
                assert ("access-control-allow-origin" in answered[2]) == (status == 201)
        finally:
            service.set_service_properties(cors=[])
            service.delete_table(table)


@pytest.mark.parametrize("kind", [*SIMPLE, "application/json", "application/query+json", None])
def test_bodies_need_their_type(server: ServerProcess, name: str, kind: str | None) -> None:
    """Clients that leave it out are served: .NET's does for some requests."""
    headers = {**signed("POST", "dbs", ""), "Host": "localhost"} | ({"Content-Type": kind} if kind else {})
    if kind == "application/query+json":
        headers["x-ms-documentdb-isquery"] = "true"
        body = b'{"query":"SELECT * FROM c"}'
    else:
        body = json.dumps({"id": name}).encode()
    status = send(server.url, "POST", "/dbs", headers, body)[0]
    assert status == (415 if kind in SIMPLE else 200 if kind == "application/query+json" else 201)
    if status == 201:
        assert send(server.url, "DELETE", f"/dbs/{name}", signed("DELETE", "dbs", f"dbs/{name}"))[0] == 204


def test_patches_have_any_type(server: ServerProcess, name: str) -> None:
    """Browsers ask before a page may send PATCH to another site. azure-cosmos up to 4.16 leaves the type out, and
    aiohttp then sends text/plain."""
    link = f"dbs/{name}/colls/items/docs/1"
    body = json.dumps({"operations": [{"op": "incr", "path": "/n", "value": 1}]}).encode()
    with CosmosClient(server.url, KEY) as client:
        items = client.create_database(name).create_container("items", PartitionKey("/pk"))
        items.create_item({"id": "1", "pk": "a", "n": 0})
        for kind in SIMPLE:
            headers = {"Content-Type": kind, "x-ms-documentdb-partitionkey": '["a"]', **signed("PATCH", "docs", link)}
            assert send(server.url, "PATCH", f"/{link}", headers, body)[0] == 200
        assert items.read_item("1", "a")["n"] == len(SIMPLE)
        client.delete_database(name)
