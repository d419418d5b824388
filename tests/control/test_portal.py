"""The portal of a real server: where browsers get in, and that clients notice nothing of it."""

from __future__ import annotations

import http.client
import json
from typing import Any

from azure.cosmos import CosmosClient
from control.conftest import Start
from support.process import KEY, ServerProcess, call_armillary
from support.server_operator import Operator

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def fetch(
    server: ServerProcess, method: str, path: str, content: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = None if content is None else json.dumps(content)
    try:
        connection.request(method, path, body, given | ({"Content-Type": "application/json"} if body else {}))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def test_browsers_come_to_the_portal_and_clients_to_the_account(operator: Operator) -> None:
    server = operator.server
    assert server.doors["portal"] == f"{server.url}/_armillary/portal/"
    for path in ("/", "/_explorer/index.html"):
        status, headers, _ = fetch(server, "GET", path, **HTML)
        assert (status, headers["location"]) == (302, "/_armillary/portal/")
    status, headers, page = fetch(server, "GET", "/_armillary/portal/", **HTML)
    assert status == 200 and headers["content-security-policy"].startswith("default-src 'none'")
    script = page.decode().partition('type="module" src="')[2].partition('"')[0]
    status, headers, _ = fetch(server, "GET", script)
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert fetch(server, "GET", "/")[0] == 401
    assert fetch(server, "GET", "/_explorer")[0] in (400, 401, 404)
    client = CosmosClient(server.url, KEY, connection_verify=False)
    assert isinstance(list(client.list_databases()), list)


def test_the_command_logs_in_by_a_ticket(operator: Operator) -> None:
    address = operator.command("portal", "--print").strip()
    place, _, ticket = address.partition("#ticket=")
    assert place == f"{operator.server.url}/_armillary/portal/"
    status, headers, body = fetch(operator.server, "POST", "/_armillary/session", {"ticket": ticket})
    assert status == 201, body
    cookie, csrf = headers["set-cookie"].partition(";")[0], json.loads(body)["csrf"]
    status, _, body = fetch(operator.server, "GET", "/_armillary/server", cookie=cookie)
    told = json.loads(body)
    assert (status, told["ready"], told["isReadOnly"]) == (200, True, False)
    sql = next(each for each in told["doors"] if each["name"] == "sql")
    assert sql["endpoints"] == [operator.server.url, operator.server.url.replace("http:", "https:")]
    assert CosmosClient.from_connection_string(
        sql["connectionString"].replace("<key>", KEY), connection_verify=False
    ).get_database_account()
    settings = {each["name"]: each for each in told["settings"]}
    assert (settings["sql-port"]["value"], settings["sql-port"]["from"]) == (0, "command line")
    assert (settings["key"]["value"], settings["key"]["isSecret"]) == (None, True)
    assert told["disk"]["usedBytes"] > 0 and told["memoryBytes"] > 1_000_000
    assert KEY not in body.decode() and operator.key not in body.decode()
    assert fetch(operator.server, "DELETE", "/_armillary/session", cookie=cookie)[0] == 403
    assert fetch(operator.server, "DELETE", "/_armillary/session", cookie=cookie, x_armillary_csrf=csrf)[0] == 200
    assert fetch(operator.server, "GET", "/_armillary/server", cookie=cookie)[0] == 401
    assert ticket not in operator.server.log and csrf not in operator.server.log


def test_no_client_can_claim_to_have_been_forwarded(operator: Operator) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", operator.server.port, timeout=60)
    connection.putrequest("GET", "/_armillary/databases")
    connection._buffer.append(b":access: owner")  # type: ignore[attr-defined]
    connection.endheaders()
    assert connection.getresponse().status in (400, 401)
    connection.close()


def test_the_setting(start_operator: Start) -> None:
    off = start_operator("--portal", "off")
    assert "portal" not in off.server.doors
    assert "--portal off" in off.command("portal", "--print", code=2)
    public = ("--host", "0.0.0.0", "--allow-well-known-key")
    outcome = call_armillary("serve", "--memory", "--sql-port", "0", "--portal", "open", *public)
    assert (outcome.returncode, "--portal login" in outcome.stderr) == (2, True)
