"""The security log of a real server: who was let in and turned away at each door, what was changed, and no secret in
any line of the whole log, whatever clients send."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.data.tables import TableClient, TableSasPermissions, TableServiceClient, generate_table_sas
from gremlin_python.driver.client import Client as GremlinClient
from gremlin_python.driver.protocol import GremlinServerError
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from support.process import ServerProcess

pytestmark = [
    # gremlinpython leaves the event loops of its connections to the collector.
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def key_of(word: str) -> str:
    return base64.b64encode(f"the {word} key of these tests".encode()).decode()


PRIMARY, SECONDARY, READ_ONLY, CONTROL, WRONG = map(key_of, ("primary", "second", "reading", "control", "wrong"))


class Driver:
    """Sends everything that the log is to tell of, and remembers every secret that was sent or received."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.hidden = {PRIMARY, SECONDARY, READ_ONLY, CONTROL, WRONG}

    def port(self, door: str) -> int:
        return int(self.server.doors[door].rpartition(":")[2])

    def send(self, method: str, target: str, headers: dict[str, str], body: Any = None, door: str = "sql") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port(door), timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, target, text, headers)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content.startswith(b"{") else content
        finally:
            connection.close()

    def signed(self, key: str, method: str, kind: str, link: str) -> dict[str, str]:
        date = formatdate(usegmt=True)
        text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256")).decode()
        self.hidden |= {signature, quote(signature, safe="")}
        return {"x-ms-date": date, "authorization": quote(f"type=master&ver=1.0&sig={signature}", safe="")}

    def control(self, method: str, path: str, body: Any = None, key: str = CONTROL) -> Any:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return self.send(method, f"/_armillary/{path}", headers, body)

    def sql(self) -> None:
        assert self.send("GET", "/dbs", self.signed(WRONG, "GET", "dbs", ""))[0] == 401
        assert self.send("GET", "/dbs", {})[0] == 401
        assert self.send("GET", "/dbs", self.signed(READ_ONLY, "GET", "dbs", ""))[0] == 200
        with CosmosClient(self.server.url, PRIMARY) as client:
            database = client.create_database("shop")
            database.create_container("orders", PartitionKey("/pk"))
            database.create_container("graph", PartitionKey("/pk"))
            user = database.create_user({"id": "ada"})
            permission = {"id": "reads", "permissionMode": "Read", "resource": "dbs/shop/colls/orders"}
            token = user.create_permission(permission).properties["_token"]
            database.delete_container("orders")
        signature = token.rpartition("sig=")[2]
        self.hidden |= {token, signature, quote(signature, safe="")}
        headers = {"authorization": quote(token, safe=""), "x-ms-date": formatdate(usegmt=True)}
        assert self.send("GET", "/dbs/shop/colls/orders", headers)[0] in (401, 403, 404)
        headers["authorization"] = quote(token[:-6] + "AAAAAA", safe="")
        assert self.send("GET", "/dbs/shop/colls/orders", headers)[0] == 401
        seal = base64.b64encode(hmac.digest(base64.b64decode(PRIMARY), b"cGF5bG9hZA==", "sha256")).decode()
        self.hidden.add(seal)
        headers["authorization"] = quote(f"type=sas&ver=1.0&sig={seal};cGF5bG9hZA==", safe="")
        assert self.send("GET", "/dbs", headers)[0] == 401

    def table(self) -> None:
        url = f"http://127.0.0.1:{self.port('table')}"
        wrong = AzureNamedKeyCredential("localhost", WRONG)
        with TableServiceClient(url, credential=wrong) as tables, pytest.raises(HttpResponseError):
            tables.create_table("denied")
        right = AzureNamedKeyCredential("localhost", PRIMARY)
        with TableServiceClient(url, credential=right) as tables:
            tables.create_table("parts").set_table_access_policy({})
        for key, is_good in ((PRIMARY, True), (WRONG, False)):
            expiry = datetime.now(UTC) + timedelta(hours=1)
            credential = AzureNamedKeyCredential("localhost", key)
            sas = generate_table_sas(credential, "parts", permission=TableSasPermissions(read=True), expiry=expiry)
            signature = next(part[4:] for part in sas.split("&") if part.startswith("sig="))
            self.hidden |= {signature, signature.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")}
            with TableClient(url, "parts", credential=AzureSasCredential(sas)) as table:
                if is_good:
                    assert list(table.list_entities()) == []
                else:
                    with pytest.raises(HttpResponseError):
                        list(table.list_entities())

    def mongo(self) -> None:
        client: MongoClient[Any]
        place = f"localhost:{self.port('mongo')}/?directConnection=true"
        wrong = f"mongodb://localhost:{quote_plus(WRONG)}@{place}"
        with MongoClient(wrong) as client, pytest.raises(OperationFailure):
            client["shop"]["goods"].find_one()
        # A password that was typed where the user belongs.
        swapped = f"mongodb://{quote_plus(PRIMARY)}:localhost@{place}"
        with MongoClient(swapped) as client, pytest.raises(OperationFailure):
            client["shop"]["goods"].find_one()
        plain = f"mongodb://localhost:{quote_plus(PRIMARY)}@{place}&tls=true&tlsAllowInvalidCertificates=true"
        with MongoClient(plain + "&authMechanism=PLAIN&authSource=$external") as client:
            client["shop"].create_collection("goods")
            client["shop"]["goods"].drop()

    def gremlin(self) -> None:
        for password, is_good in ((WRONG, False), (PRIMARY, True)):
            client = GremlinClient(
                f"{self.server.doors['gremlin']}/gremlin", "g", username="/dbs/shop/colls/graph", password=password
            )
            try:
                if is_good:
                    assert client.submit("g.V().count()").all().result(30) == [0]
                else:
                    with pytest.raises(GremlinServerError):
                        client.submit("g.V().count()").all().result(30)
            finally:
                client.close()

    def operate(self) -> None:
        assert self.control("GET", "databases", key=WRONG)[0] == 401
        assert self.control("POST", "faults", {"status": 503, "count": 1, "database": "shop"})[0] == 201
        assert self.control("DELETE", "faults")[0] == 200
        assert self.control("POST", "snapshots/before", {"database": "shop"})[0] == 201
        assert self.control("GET", "snapshots/before/parts/0")[0] == 200
        assert self.control("POST", "snapshots/before/restore", {})[0] == 200
        assert self.control("DELETE", "snapshots/before")[0] == 200
        assert self.control("POST", "checkpoints", {})[0] == 201
        assert self.control("GET", "account/keys")[0] == 200
        status, made = self.control("POST", "account/keys/secondary/regenerate", {})
        assert status == 200
        self.hidden.add(made["key"])
        with CosmosClient(self.server.url, made["key"]) as client:
            client.delete_database("shop")


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    directory: Path = tmp_path_factory.mktemp("security") / "data"
    server = ServerProcess.start(
        directory,
        *("--key", PRIMARY, "--secondary-key", SECONDARY, "--read-only-key", READ_ONLY, "--control-key", CONTROL),
        *("--log-level", "debug", "--log-format", "json"),
    )
    try:
        driver = Driver(server)
        for drive in (driver.sql, driver.table, driver.mongo, driver.gremlin, driver.operate):
            drive()
    finally:
        server.stop()
    return driver


def events(driver: Driver) -> list[dict[str, Any]]:
    lines = driver.server.log.splitlines()
    return [line for line in map(json.loads, lines) if line["logger"] == "armillary.security"]


def test_no_line_holds_a_secret(driven: Driver) -> None:
    log = driven.server.log
    assert "signin.refused" in log
    assert len(driven.hidden) > 12
    for secret in driven.hidden:
        assert secret not in log
        assert secret.rstrip("=") not in log


def test_sign_ins_are_told_by_door_and_address(driven: Driver) -> None:
    found = {
        (each["event"], each["door"], each["credential"])
        for each in events(driven)
        if each["event"].startswith("signin")
    }
    assert {each["address"] for each in events(driven) if "address" in each} == {"127.0.0.1"}
    assert {("signin.refused", door) for door in ("sql", "table", "mongo", "gremlin", "control")} == {
        each[:2] for each in found if each[0] == "signin.refused"
    }
    assert found >= {
        ("signin.granted", "sql", "key"),
        ("signin.granted", "sql", "read-only key"),
        ("signin.granted", "table", "key"),
        ("signin.granted", "table", "shared access signature"),
        ("signin.granted", "mongo", "key"),
        ("signin.granted", "gremlin", "key"),
        ("signin.granted", "control", "control key"),
    }


def test_changes_are_told_with_where_they_came_from(driven: Driver) -> None:
    found = [(each["event"], each.get("name"), each.get("door")) for each in events(driven)]
    wanted = [
        ("database.created", "shop", "sql"),
        ("container.created", "shop/orders", "sql"),
        ("user.created", "shop/ada", "sql"),
        ("permission.created", "shop/ada/reads", "sql"),
        ("container.deleted", "shop/orders", "sql"),
        ("container.created", "TablesDB/parts", "table"),
        ("table.policies-changed", None, "table"),
        ("container.created", "shop/goods", "mongo"),
        ("container.deleted", "shop/goods", "mongo"),
        ("fault.set", None, "control"),
        ("faults.removed", None, "control"),
        ("snapshot.taken", "before", "control"),
        ("snapshot.sent", "before", "control"),
        ("snapshot.restored", "before", "control"),
        ("snapshot.deleted", "before", "control"),
        ("backup.checkpoint", None, "control"),
        ("keys.read", None, "control"),
        ("key.regenerated", "secondary", "control"),
        ("database.deleted", "shop", "sql"),
    ]
    for event, name, door in wanted:
        assert any(each[0] == event and (name is None or each[1] == name) and each[2] == door for each in found), (
            f"{event} {name} {door} is not among {found}"
        )
    # What goes with its owner is not told again.
    assert not any(each[:2] == ("container.deleted", "shop/graph") for each in found)
