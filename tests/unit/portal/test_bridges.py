"""Bridges of the portal: what a page asks of the SQL, MongoDB and Gremlin doors is answered, charged and refused as for
other clients, with the rights of the log-in.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.topology import following

import armillary
from armillary.account import overview
from armillary.account.account import Account
from armillary.account.faults import FaultRule
from armillary.clock import VirtualClock
from armillary.doors.control.door import ControlDoor
from armillary.doors.gremlin.authentication import Keys
from armillary.doors.gremlin.door import GremlinDoor, GremlinSettings
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Kind
from armillary.late import Late
from armillary.net.http import HANG_UP, Request, Response
from armillary.portal.bridges import Bridges
from armillary.portal.door import PortalDoor
from armillary.portal.language_bridges import LanguageBridges
from armillary.portal.static_files import StaticFiles
from armillary.storage.memory import MemoryEngine

KEY, READ_KEY = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz", "cmVhZC1vbmx5IGNvbnRyb2wga2V5IHRlc3Q="
ITEM = {"id": "1", "pk": "a", "n": 5}
JSON_KEY = {"x-ms-documentdb-partitionkey": '["a"]'}
QUERY = {"x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}


class Page:
    """A page that is logged in."""

    def __init__(self, account: Account) -> None:
        self.account = account
        clock, owners = account.clock, ("a2V5IG9mIHRoZSBhY2NvdW50", None)
        sql = SqlDoor(account, AccountKeys(owners[0]), accepts_aad=False)
        self.mongo = MongoDoor(account, owners, (), MongoSettings(), machine=clock)
        gremlin = GremlinDoor(account, Keys(owners, ()), GremlinSettings())
        control = ControlDoor(account, KEY, read_only_key=READ_KEY)
        languages = Late(lambda: LanguageBridges(self.mongo, gremlin))
        self.door = PortalDoor(control, StaticFiles(), Bridges(sql, languages))
        self.key = KEY
        self.log_ins = control.log_ins
        self.own: dict[str, str] = {}

    def log_in(self) -> None:
        """From now on with a log-in in the place of a key."""
        begun, value = self.log_ins.begin(is_read_only=False)
        cookie = self.log_ins.cookie(value, is_tls=False).decode().partition(";")[0]
        self.own = {"authorization": "", "cookie": cookie, "x-armillary-csrf": begun.csrf}

    def request(self, method: str, path: str, content: Any = None, **headers: str) -> Request:
        given = {"host": "localhost:8081", "authorization": f"Bearer {self.key}", "content-type": "application/json"}
        encoded = {name.encode(): value.encode() for name, value in (given | self.own | headers).items() if value}
        body = b"" if content is None else orjson.dumps(content)
        return Request(method, f"/_armillary/portal/{path}".encode(), encoded, body, False, "127.0.0.1")

    async def send(self, method: str, path: str, content: Any = None, **headers: str) -> Response:
        response = await self.door.answer(self.request(method, path, content, **headers))
        if response is not HANG_UP:
            assert dict(response.headers)[b"content-security-policy"].startswith(b"default-src 'none'")
        return response

    async def ask(self, path: str, content: Any, status: int = 200) -> Any:
        response = await self.send("POST", path, content)
        assert response.status == status, response.body
        return orjson.loads(response.body)

    async def command(self, **command: Any) -> Any:
        return await self.ask("mongo", {"database": "shop", "command": command})

    async def script(self, script: str, **bindings: Any) -> Any:
        return await self.ask("gremlin", {"database": "shop", "graph": "g", "script": script, "bindings": bindings})


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    page = Page(account)
    assert (await page.send("POST", "sql/dbs", {"id": "shop"})).status == 201
    for name in ("orders", "g"):
        container = {"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        assert (await page.send("POST", "sql/dbs/shop/colls", container)).status == 201
    yield page
    await page.mongo.close()
    await account.close()
    await engine.close()


async def test_sql_as_it_is(page: Page) -> None:
    made = await page.send("POST", "sql/dbs/shop/colls/orders/docs", ITEM, **JSON_KEY)
    assert made.status == 201 and orjson.loads(made.body)["n"] == 5
    read = await page.send("GET", "sql/dbs/shop/colls/orders/docs/1", **JSON_KEY)
    headers = dict(read.headers)
    assert (read.status, headers[b"x-ms-request-charge"]) == (200, b"1")
    assert headers[b"x-content-type-options"] == b"nosniff"
    asked = {"query": "SELECT VALUE c.n FROM c"}
    found = await page.send("POST", "sql/dbs/shop/colls/orders/docs", asked, **JSON_KEY, **QUERY)
    assert orjson.loads(found.body)["Documents"] == [5]
    assert (await page.send("GET", "sql/dbs/none")).status == 404
    assert orjson.loads((await page.send("GET", "sql/")).body)["_self"] == ""
    totals = overview.container_totals(page.account.container("shop", "orders"))
    assert (totals.requests, totals.charged_ru > 8) == (3, True), "metered as every request"
    assert (await page.send("GET", "sqlx")).status == 200, "a page, not the bridge"


async def test_faults_apply(page: Page) -> None:
    rule = page.account.faults.add(FaultRule(operations=frozenset(("read",)), kind=Kind.THROTTLED))
    assert (await page.send("GET", "sql/dbs/shop/colls/orders/docs/1", **JSON_KEY)).status == 429
    page.account.faults.remove(rule.id)
    page.account.faults.add(FaultRule(operations=frozenset(("read",)), kind=Kind.DROPPED))
    assert await page.send("GET", "sql/dbs/shop/colls/orders/docs/1", **JSON_KEY) is HANG_UP


async def test_mongo_in_extended_json(page: Page) -> None:
    typed = {"_id": {"$oid": "0" * 23 + "1"}, "pk": "a", "n": {"$numberLong": "9007199254740993"}}
    typed |= {"when": {"$date": {"$numberLong": "1700000000000"}}, "d": {"$numberDecimal": "1.10"}}
    made = await page.command(insert="orders", documents=[typed])
    assert made["reply"]["n"] == {"$numberInt": "1"} and made["chargeRu"] > 5 and made["ms"] >= 0
    found = await page.command(find="orders", filter={"pk": "a"})
    assert found["reply"]["cursor"]["firstBatch"] == [typed], "types are kept"
    refused = await page.command(find="orders", filter={"$no": 1})
    assert refused["reply"]["ok"] == {"$numberDouble": "0.0"} and "unknown" in refused["reply"]["errmsg"]
    assert page.mongo.connection_count == 0


async def test_cursors_of_mongo_last_over_requests(page: Page) -> None:
    many = [{"_id": {"$numberInt": str(number)}, "pk": "a"} for number in range(5)]
    await page.command(insert="orders", documents=many)
    first = await page.command(find="orders", filter={"pk": "a"}, batchSize={"$numberInt": "2"})
    cursor = first["reply"]["cursor"]
    assert len(cursor["firstBatch"]) == 2 and "$numberLong" in cursor["id"], "exact in JavaScript too"
    more = await page.command(getMore=cursor["id"], collection="orders")
    assert len(more["reply"]["cursor"]["nextBatch"]) == 3


async def test_cursors_of_mongo_are_of_one_log_in(page: Page) -> None:
    await page.command(insert="orders", documents=[{"pk": "a"}] * 5)
    page.log_in()
    first = await page.command(find="orders", filter={"pk": "a"}, batchSize=2)
    asked = {"getMore": first["reply"]["cursor"]["id"], "collection": "orders", "batchSize": 1}
    assert len((await page.command(**asked))["reply"]["cursor"]["nextBatch"]) == 1
    page.log_in()
    assert "errmsg" in (await page.command(**asked))["reply"]


async def test_gremlin(page: Page) -> None:
    for name in ("a", "b"):
        made = await page.script("g.addV('person').property('pk', 'x').property('id', name)", name=name)
        assert made["status"] == {"code": 200, "message": ""} and made["chargeRu"] > 1, made
    names = await page.script("g.V().id().order()")
    assert names["data"] == ["a", "b"] and names["ms"] >= 0 and "profile" not in names
    vertex = (await page.script("g.V('a')"))["data"][0]
    assert vertex["@type"] == "g:Vertex"
    profile = await page.script("g.V().executionProfile()")
    assert profile["profile"] == profile["data"][0]
    refused = await page.script("g.V(")
    assert refused["status"]["code"] >= 400 and refused["status"]["message"] and refused["data"] == []
    assert (await page.script("g.inject(1..2000).unfold()"))["data"][-1] == {"@type": "g:Int32", "@value": 2000}


async def test_read_only_rights_reach_the_doors(page: Page) -> None:
    await page.send("POST", "sql/dbs/shop/colls/orders/docs", ITEM, **JSON_KEY)
    page.key = READ_KEY
    assert (await page.send("GET", "sql/dbs/shop/colls/orders/docs/1", **JSON_KEY)).status == 200
    asked = {"query": "SELECT * FROM c"}
    assert (await page.send("POST", "sql/dbs/shop/colls/orders/docs", asked, **JSON_KEY, **QUERY)).status == 200
    for method, path in (
        ("POST", "sql/dbs/shop/colls/orders/docs"),
        ("PUT", "sql/dbs/shop/colls/orders/docs/1"),
        ("DELETE", "sql/dbs/shop/colls/orders"),
        ("POST", "sql/dbs"),
    ):
        assert (await page.send(method, path, ITEM, **JSON_KEY)).status == 403, path
    assert (await page.command(find="orders"))["reply"]["ok"] == {"$numberDouble": "1.0"}
    refused = await page.command(insert="orders", documents=[{"pk": "a"}])
    assert refused["reply"]["code"] == {"$numberInt": "13"}
    refused = await page.script("g.addV('person').property('pk', 'x')")
    assert refused["status"]["code"] >= 400, refused
    assert (await page.script("g.V().count()"))["status"]["code"] == 200


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("mongo", {"database": "shop"}, 400),
        ("mongo", {"database": "shop", "command": {}}, 400),
        ("mongo", {"database": "shop", "command": {"find": {"$oid": "no"}}}, 400),
        ("mongo", {"database": "shop", "command": {"ping": 1}, "other": 1}, 400),
        ("mongo?x=1", {"database": "shop", "command": {"ping": 1}}, 400),
        ("gremlin", {"database": "shop", "graph": "g"}, 400),
        ("gremlin", {"database": "shop", "graph": "g", "script": "g.V()", "bindings": 1}, 400),
    ],
)
async def test_what_cannot_be_read_is_refused(page: Page, path: str, content: Any, status: int) -> None:
    assert (await page.ask(path, content, status))["error"]["code"] == "bad_request"


async def test_who_may(page: Page) -> None:
    for path in ("sql/dbs", "mongo", "gremlin"):
        assert (await page.send("POST", path, {}, authorization="")).status == 401
        assert (await page.send("POST", path, {}, origin="https://evil.example")).status == 403
        refusal = page.door.screen(page.request("POST", path, authorization=""))
        assert refusal is not None and refusal.status == 401
    assert (await page.send("GET", "mongo")).status == 405
    assert (await page.send("POST", "mongo", {}, **{"content-type": "text/plain"})).status == 415


async def test_on_a_node_that_follows(page: Page) -> None:
    page.account.topology = following()
    for method, path in (("POST", "mongo"), ("POST", "gremlin"), ("POST", "sql/dbs")):
        assert page.door.needs_leader(page.request(method, path)), path
    for path in ("", "c/shop/orders/items", "static/x/app.js"):
        assert not page.door.needs_leader(page.request("GET", path)), path


def test_only_bridges_answer_for_others() -> None:
    """`answer_as` takes the sender's rights as given."""
    source = Path(armillary.__file__).parent
    calls = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\.answer_as\(", path.read_text("utf-8"))
    }
    assert calls == {"portal/bridges.py", "portal/language_bridges.py"}
