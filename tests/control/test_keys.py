"""Which key opens what: the control key nothing of the account, and the account's keys nothing of the control API."""

from __future__ import annotations

import http.client
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient
from fuzz.world import Signer
from support.process import KEY, ServerProcess
from support.server_operator import Operator

PATHS = ("databases", "containers", "metrics", "faults", "clock", "databases/x/containers/y/partitions", "nothing")


def test_the_accounts_keys_do_not_control(operator: Operator) -> None:
    signed = Signer(time.time()).request("GET", b"/", b"", {})
    headers = [
        {"Authorization": signed.headers[b"authorization"].decode(), "x-ms-date": formatdate(usegmt=True)},
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": KEY},
        {"Authorization": ""},
    ]
    for path in PATHS:
        for given in headers:
            assert operator.send("GET", path, headers=given)[0] == 401
            assert operator.send("POST", path, {"status": 429}, headers=given)[0] == 401
            assert operator.send("DELETE", path, headers=given)[0] == 401
    assert operator.ask("GET", "faults") == {"faults": []}


def test_the_control_key_does_not_open_the_account(operator: Operator) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", operator.server.port, timeout=60)
    for path in ("/", "/dbs", "/offers", "/dbs/x/colls/y/docs", "//_armillary/databases", "/%5Farmillary/databases"):
        for value in (f"Bearer {operator.key}", operator.key, f"type=master&ver=1.0&sig={operator.key}"):
            connection.request("GET", path, headers={"Authorization": value, "x-ms-date": formatdate(usegmt=True)})
            response = connection.getresponse()
            body = response.read()
            assert response.status in (400, 401, 404), (path, body)
            assert b"containerCount" not in body
    connection.close()
    with pytest.raises(HttpResponseError):
        CosmosClient(operator.server.url, operator.key)


def test_pages_of_other_sites_are_turned_away(operator: Operator) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        status, body = operator.send("GET", "databases", headers=headers)
        assert status == 403
        assert operator.key.encode() not in body


def test_a_given_key_is_not_written_down(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    key = "Z2l2ZW4gY29udHJvbCBrZXkgb2YgdGVzdHM="
    server = ServerProcess.start(directory, "--control-key", key)
    assert key not in (directory / "control.json").read_text()
    assert key not in server.log
    server.stop()
    ServerProcess.check(directory)


def test_health_needs_no_key(operator: Operator) -> None:
    for path in ("health", "ready"):
        status, body = operator.send("GET", path, headers={"Authorization": "", "Host": "probe.example"})
        assert status == 200
        assert body in (b'{"status":"ok"}', b'{"status":"ready"}')
