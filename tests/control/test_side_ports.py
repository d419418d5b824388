"""The ports for health checks and for the portal alone, and `armillary health`, on real servers."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control.conftest import Start
from support.certificates import Signed
from support.process import ServerProcess, call_armillary
from support.waiting import until

TIMEOUT_S = 60


def ask(url: str, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    """At a port of a server; JSON is parsed."""
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    if url.startswith("https:"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, int(port), timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = None if content is None else json.dumps(content)
    try:
        connection.request(method, path, body, given | ({"Content-Type": "application/json"} if body else {}))
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(text) if is_json and text else text
    finally:
        connection.close()


async def test_health_is_asked_without_a_key_and_the_portal_is_used_at_its_port(start_operator: Start) -> None:
    operator = start_operator("--health-port", "0", "--portal-port", "0", "--require-tls")
    doors = operator.server.doors
    for url in (doors["health"], doors["health"].replace("http:", "https:")):  # also where TLS is required
        assert ask(url, "GET", "/alive")[::2] == (200, {"status": "ok"})
        assert ask(url, "GET", "/ready")[::2] == (200, {"status": "ready"})
        assert ask(url, "GET", "/status", host="db.example.org")[::2] == (200, {"alive": True, "ready": True})
        assert ask(url, "GET", "/_armillary/databases", authorization=f"Bearer {operator.key}")[0] in (403, 404)
        assert ask(url, "POST", "/ready", {})[0] == 405
    portal = doors["portal"]
    assert portal.startswith("https:") and f":{operator.server.port}/" not in portal
    assert ask(portal.replace("https:", "http:"), "GET", "/")[0] == 403, "TLS is required"
    status, headers, _ = ask(portal, "GET", "/")
    assert (status, headers["location"]) == (302, "/_armillary/portal/")
    assert b"<script" in ask(portal, "GET", "/_armillary/portal/")[2]
    origin = portal.removesuffix("/_armillary/portal/")
    status, headers, session = ask(portal, "POST", "/_armillary/session", {"key": operator.key}, origin=origin)
    assert status == 201, session
    cookie = headers["set-cookie"].partition(";")[0]
    told = ask(portal, "GET", "/_armillary/server", cookie=cookie)[2]
    assert {"health", "portal"} <= {each["name"] for each in told["doors"]}
    assert ask(portal, "GET", "/dbs")[0] == 404, "the account is not at this port"


def test_health_as_a_command(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--health-port", "0", "--control-key", "YSBjb250cm9sIGtleSBvZiBvdXIgb3duLg==")
    found = call_armillary("health", "--data", str(server.directory))
    assert (found.returncode, found.stdout) == (0, "ready\n"), "by the data directory, without a key"
    assert call_armillary("health", "--url", server.doors["health"]).stdout == "ready\n"
    port = server.doors["health"].rpartition(":")[2]
    assert call_armillary("health", environment={"ARMILLARY_HEALTH_PORT": port}).stdout == "ready\n"
    server.stop()
    outcome = call_armillary("health", environment={"ARMILLARY_HEALTH_PORT": port})
    assert (outcome.returncode, "No server answers" in outcome.stderr) == (2, True)


async def test_certificates_are_reloaded_at_these_ports_too(start_operator: Start, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    Signed("first", hosts=("localhost",)).write(certificate, key)
    operator = start_operator(
        *("--tls-certificate", str(certificate), "--tls-key", str(key), "--health-port", "0", "--portal-port", "0")
    )
    second = Signed("second", hosts=("localhost",))
    second.write(certificate, key)
    operator.server.process.send_signal(signal.SIGHUP)
    await until(lambda: "were read again" in operator.server.log, "the files are read again")
    for door in ("health", "portal", "sql"):
        address = operator.server.doors[door].partition("://")[2].partition("/")[0].rpartition(":")
        assert ssl.get_server_certificate((address[0], int(address[2]))).strip() == second.pem.decode().strip(), door
