"""The control door in this process: who may, what is answered, what is refused by name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from support.topology import following

from armillary import limits
from armillary.account.account import Account
from armillary.account.faults import FaultRule
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.clock import MovableClock, VirtualClock
from armillary.doors.control.door import ControlDoor
from armillary.doors.control.errors import STATUSES, error_response
from armillary.doors.control.routes import REQUESTS
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.net.hosts import HostNames
from armillary.net.http import Refusal, Request, Response
from armillary.storage.memory import MemoryEngine

KEY = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
ORDERS = "databases/shop/containers/orders"


class Desk:
    """A door with an account behind it, and how to speak to it."""

    def __init__(self, account: Account, clock: MovableClock) -> None:
        self.account = account
        self.door = ControlDoor(account, KEY, clock=clock)

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        given = {"host": "localhost:8081", "authorization": f"Bearer {KEY}", "content-type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = {name.encode(): value.encode() for name, value in given.items() if value}
        request = Request(method, f"/_armillary/{path}".encode(), encoded, body, False, "127.0.0.1")
        return await self.door.answer(request)

    async def ask(self, method: str, path: str, content: Any = None, status: int = 200) -> Any:
        response = await self.send(method, path, b"" if content is None else orjson.dumps(content))
        assert response.status == status, response.body
        return orjson.loads(response.body)

    async def refusal(self, method: str, path: str, content: Any = None, status: int = 400) -> str:
        error = (await self.ask(method, path, content, status))["error"]
        assert error.keys() == {"code", "message"}
        return str(error["message"])


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    engine, clock = MemoryEngine(), MovableClock()
    account = await Account.open(engine, clock)
    yield Desk(account, clock)
    await account.close()
    await engine.close()


@pytest.fixture
async def shop(desk: Desk) -> Desk:
    await desk.ask("POST", "databases", {"name": "shop"}, 201)
    body = {"name": "orders", "partitionKey": "/pk", "throughput": 20_000}
    await desk.ask("POST", "databases/shop/containers", body, 201)
    return desk


def test_every_kind_has_a_status() -> None:
    assert set(STATUSES) == set(Kind)
    for kind in Kind:
        response = error_response(Failure(kind, "It broke \ud800; mend it."))
        error = orjson.loads(response.body)["error"]
        assert (response.status, error["code"]) == (STATUSES[kind], kind.name.lower())
        assert error["message"] == "It broke ?; mend it."


def test_the_documentation_lists_every_request() -> None:
    text = (Path(__file__).parents[4] / "docs" / "control.md").read_text()
    documented = set(re.findall(r"`(GET|POST|PUT|DELETE) ([^`?]+)", text))
    documented = {(method, re.sub(r"{\w+}", "{}", path)) for method, path in documented}
    container = "databases/{}/containers/{}"
    for method, path in REQUESTS:
        short = re.sub(rf"^{re.escape(container)}(?=/|$)", "C", path)
        assert (method, short) in documented, f"docs/control.md does not list {method} {short}"


# Who may.


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": f"Bearer {KEY}x"}, 401),
        ({"authorization": f"Bearer {KEY[:-1]}"}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"authorization": f"bearer {KEY}"}, 200),
        ({"authorization": "type%3Dmaster%26ver%3D1.0%26sig%3DAAAA"}, 401),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "127.8.8.8:80"}, 200),
        ({"host": "[::1]:8081"}, 200),
        ({"host": "LOCALHOST."}, 200),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "evil.example:8081"}, 403),
        ({"host": "10.0.0.1"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://localhost:8081"}, 200),
        ({"origin": "https://localhost:8081"}, 200),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_only_with_the_key_and_from_here(desk: Desk, headers: dict[str, str], status: int) -> None:
    for path in ("databases", "metrics", "faults", "clock"):
        assert (await desk.send("GET", path, b"", **headers)).status == status


async def test_health_is_for_everybody_and_says_nothing(desk: Desk) -> None:
    for path, word in (("health", "ok"), ("ready", "ready")):
        for method in ("GET", "HEAD"):
            response = await desk.send(method, path, authorization="", host="monitor.example")
            assert (response.status, orjson.loads(response.body)) == (200, {"status": word})
        assert (await desk.send("POST", path, authorization="")).status == 401


async def test_without_a_key_there_is_only_health(desk: Desk) -> None:
    desk.door = ControlDoor(desk.account, None)
    for header in ("", "Bearer ", "Bearer None", f"Bearer {KEY}"):
        assert (await desk.send("GET", "databases", authorization=header)).status == 403
    assert (await desk.send("GET", "health", authorization="")).status == 200


async def test_a_public_server_takes_any_host_with_the_key(desk: Desk) -> None:
    desk.door = ControlDoor(desk.account, KEY, hosts=HostNames(is_public=True, is_key_known=False))
    assert (await desk.send("GET", "databases", host="db.internal:8081")).status == 200
    assert (await desk.send("GET", "databases", host="db.internal:8081", authorization="")).status == 401
    assert (await desk.send("GET", "databases", host="db.internal", origin="http://evil.example")).status == 403


# Paths and bodies.


async def test_what_is_not_there_is_said(shop: Desk) -> None:
    assert "lists what there is" in await shop.refusal("GET", "nothing", status=404)
    assert "lists what there is" in await shop.refusal("GET", "", status=404)
    assert "'nowhere' does not exist" in await shop.refusal("GET", "databases/nowhere", status=404)
    assert "'none' does not exist" in await shop.refusal("GET", "databases/shop/containers/none", status=404)
    response = await shop.send("PATCH", "databases")
    assert (response.status, dict(response.headers)[b"allow"]) == (405, b"GET, POST")
    assert await shop.refusal("GET", "databases?x=1") == "Unknown query parameter 'x'."
    assert await shop.refusal("GET", "databases?x=1&x=1")
    assert await shop.refusal("GET", "databases/%FF")
    assert await shop.refusal("GET", f"{ORDERS}/partitions?top=0")
    assert await shop.refusal("GET", f"{ORDERS}/keys?top=x")


async def test_bodies_are_small_json_objects_without_unknown_fields(desk: Desk) -> None:
    assert "Unknown field 'throughputs' in a database" in await desk.refusal(
        "POST", "databases", {"name": "x", "throughputs": 400}
    )
    assert await desk.refusal("POST", "databases", {}) == "'name' is missing in a database."
    assert await desk.refusal("POST", "databases", [])
    assert (await desk.send("POST", "databases", b"{")).status == 400
    assert (await desk.send("POST", "databases", b'{"name":"x"}', content_type="text/plain")).status == 415
    assert (await desk.send("POST", "databases", b'{"name":"x"}', content_type="")).status == 415
    large = b" " * limits.CONTROL_BODY_BYTES_MAX + b"{}"
    assert (await desk.send("POST", "databases", large)).status == 413
    assert (await desk.ask("GET", "databases"))["databases"] == []


# Databases, containers, throughput.


async def test_databases_and_containers_come_and_go(desk: Desk) -> None:
    made = await desk.ask("POST", "databases", {"name": "shop", "throughput": 1000}, 201)
    assert made["throughput"]["ru"] == 1000
    await desk.refusal("POST", "databases", {"name": "shop"}, 409)
    shared = await desk.ask("POST", "databases/shop/containers", {"name": "a b", "partitionKey": "/k"}, 201)
    assert shared["throughput"]["sharedByDatabase"] is True
    fixed = await desk.ask("POST", "databases/shop/containers", {"name": "fixed", "fixed": True}, 201)
    assert (fixed["fixed"], fixed["partitionKey"], fixed["partitionCount"]) == (True, None, 1)
    levels = {"name": "levels", "partitionKey": ["/t", "/u"], "autoscale": 4000, "definition": {"defaultTtl": 60}}
    made = await desk.ask("POST", "databases/shop/containers", levels, 201)
    assert made["partitionKey"] == ["/t", "/u"]
    assert (made["throughput"]["ru"], made["throughput"]["autoscale"]) == (4000, True)
    assert (await desk.ask("GET", "databases/shop/containers/a%20b"))["name"] == "a b"
    shown = await desk.ask("GET", "databases/shop/containers/levels")
    assert shown["definition"]["defaultTtl"] == 60
    listed = [each["name"] for each in (await desk.ask("GET", "databases/shop/containers"))["containers"]]
    assert listed == ["a b", "fixed", "levels"]
    assert len((await desk.ask("GET", "containers"))["containers"]) == 3
    assert await desk.ask("DELETE", "databases/shop/containers/fixed") == {"deleted": "shop/fixed"}
    assert (await desk.ask("GET", "databases/shop"))["containerCount"] == 2
    await desk.ask("DELETE", "databases/shop")
    assert (await desk.ask("GET", "databases"))["databases"] == []


async def test_a_container_says_how_it_is_partitioned(shop: Desk) -> None:
    for body in (
        {"name": "x"},
        {"name": "x", "fixed": True, "partitionKey": "/a"},
        {"name": "x", "partitionKey": "/a", "definition": {"partitionKey": {"paths": ["/b"]}}},
        {"name": "x", "partitionKey": "/a", "throughput": 400, "autoscale": 1000},
        {"name": "x", "partitionKey": "a"},
        {"name": "x", "partitionKey": "/a", "definition": {"unheard": 1}},
        {"name": "a/b", "partitionKey": "/a"},
    ):
        assert await shop.refusal("POST", "databases/shop/containers", body)


async def test_scaling(shop: Desk) -> None:
    path = f"{ORDERS}/throughput"
    assert (await shop.ask("PUT", path, {"throughput": 30_000}))["throughput"]["ru"] == 30_000
    scaled = (await shop.ask("PUT", path, {"autoscale": 25_000}))["throughput"]
    assert (scaled["ru"], scaled["autoscale"]) == (25_000, True)
    assert (scaled["minimumRu"], scaled["currentRu"], scaled["billedRu"]) == (3000, 2500, 2500)
    scaled = (await shop.ask("PUT", path, {"throughput": 10_000}))["throughput"]
    assert (scaled["ru"], scaled["autoscale"]) == (10_000, False)
    assert await shop.refusal("PUT", path, {})
    assert await shop.refusal("PUT", path, {"throughput": 450})
    assert "no throughput of its own" in await shop.refusal("PUT", "databases/shop/throughput", {"throughput": 400})


async def test_modes_and_buckets(shop: Desk) -> None:
    path = f"{ORDERS}/mode"
    assert (await shop.ask("GET", ORDERS))["mode"] == "observe"
    assert (await shop.ask("PUT", path, {"mode": "enforce"}))["mode"] == "enforce"
    container = shop.account.container("shop", "orders")
    assert all(each.meter.is_enforcing for each in container.partitions.values())
    assert (await shop.ask("PUT", path, {"mode": None}))["mode"] == "observe"
    assert await shop.refusal("PUT", path, {"mode": "strict"})
    path = f"{ORDERS}/buckets"
    assert (await shop.ask("PUT", path, {"1": 40, "5": 100}))["buckets"] == {"1": 40, "5": 100}
    assert await shop.refusal("PUT", path, {"1": 0})
    assert await shop.refusal("PUT", path, {"6": 10})
    assert (await shop.ask("PUT", path, {}))["buckets"] == {}


# Partitions.


async def test_partitions_and_the_keys_that_stand_out(shop: Desk) -> None:
    container = shop.account.container("shop", "orders")
    for key, count in (("big", 5), ("small", 1)):
        for number in range(count):
            document = {"id": str(number), "pk": key, "text": "x" * 1000}
            await items.create(container, document, ItemOptions(), shop.account.clock)
    await items.read(container, "0", ItemOptions(key=Key(("small",))))
    seen = await shop.ask("GET", f"{ORDERS}/partitions?top=1")
    partitions = seen["partitions"]
    assert [each["id"] for each in partitions] == [0, 1, 2, 3]
    assert (partitions[0]["low"], partitions[-1]["high"]) == ("", "FF")
    assert sum(each["items"] for each in partitions) == 6
    assert sum(each["requests"] for each in partitions) == 7
    assert seen["largestKeys"][0]["key"] == ["big"]
    assert seen["largestKeys"][0]["items"] == 5
    assert seen["busiestKeys"][0]["key"] == ["big"]
    keys = await shop.ask("GET", f"{ORDERS}/keys")
    assert [each["key"] for each in keys["largestKeys"]] == [["big"], ["small"]]
    total = sum(each["chargedRu"] for each in partitions)
    assert sum(each["chargedRu"] for each in keys["busiestKeys"]) == pytest.approx(total)


async def test_metrics_add_up(shop: Desk) -> None:
    container = shop.account.container("shop", "orders")
    await shop.ask("POST", "databases/shop/containers", {"name": 'q"uote', "partitionKey": "/pk"}, 201)
    charged = 0.0
    for number in range(10):
        answer = await items.create(container, {"id": "i", "pk": str(number)}, ItemOptions(), shop.account.clock)
        charged += answer.charge_ru
    text = (await shop.send("GET", "metrics")).body.decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = 'database="shop",container="orders"'
    assert float(found[f"armillary_charge_request_units_total{{{labels}}}"]) == pytest.approx(charged)
    assert found[f"armillary_requests_total{{{labels}}}"] == "10"
    counts = [int(value) for name, value in found.items() if name.startswith("armillary_partition_items{" + labels)]
    assert (len(counts), sum(counts)) == (4, 10)
    assert 'container="q\\"uote"' in text
    assert text.endswith("\n")


# Splits and merges.


async def finish(shop: Desk) -> None:
    for reshape in shop.account.reshaper.running():
        await shop.account.reshaper.finished(reshape)


async def test_a_split_step_by_step(shop: Desk) -> None:
    points = (await shop.ask("GET", "reshapes"))["points"]
    assert await shop.ask("PUT", "reshapes/pauses", {"points": points}) == {"pauses": points}
    begun = await shop.ask("POST", f"{ORDERS}/split", {"partition": 1}, 202)
    assert (begun["kind"], begun["partitions"], begun["reason"]) == ("split", [1], "request")
    assert await shop.refusal("POST", f"{ORDERS}/split", {"partition": 1}, 409)
    seen = []
    while shop.account.reshaper.running():
        await asyncio.sleep(0)
        found = (await shop.ask("GET", f"{ORDERS}/reshapes"))["reshapes"]
        if found and found[0]["paused"]:
            seen.append(found[0]["point"])
            number = found[0]["number"]
            assert await shop.ask("POST", f"{ORDERS}/reshapes/{number}/advance", {}) == {"advanced": 1}
    assert seen == [point for point in points if point in seen] and {"begun", "held"} <= set(seen)
    shown = await shop.ask("GET", f"{ORDERS}/partitions")
    assert [(each["id"], each["parents"]) for each in shown["partitions"]] == [
        (0, []),
        (4, [1]),
        (5, [1]),
        (2, []),
        (3, []),
    ]
    await shop.ask("PUT", "reshapes/pauses", {"points": []})
    assert await shop.refusal("PUT", "reshapes/pauses", {"points": ["nowhere"]})


async def test_a_merge_and_what_is_taken_back(shop: Desk) -> None:
    await shop.ask("PUT", f"{ORDERS}/throughput", {"throughput": 400})
    await shop.ask("PUT", "reshapes/pauses", {"points": ["begun"]})
    begun = await shop.ask("POST", f"{ORDERS}/merge", {"partitions": [2, 3]}, 202)
    assert begun["kind"] == "merge"
    number = begun["number"]
    assert await shop.ask("DELETE", f"{ORDERS}/reshapes/{number}") == {"cancelled": number}
    assert await shop.refusal("DELETE", f"{ORDERS}/reshapes/{number}", status=404)
    assert (await shop.ask("GET", ORDERS))["partitionCount"] == 4
    await shop.ask("PUT", "reshapes/pauses", {})
    await shop.ask("POST", f"{ORDERS}/merge", {}, 202)
    await finish(shop)
    assert (await shop.ask("GET", ORDERS))["partitionCount"] == 3
    for body in ({"partitions": [0]}, {"partitions": [0, 99]}, {"partitions": [True, 1]}, {"ranges": [0, 1]}):
        response = await shop.send("POST", f"{ORDERS}/merge", orjson.dumps(body))
        assert response.status in (400, 404)
    for split in ({"boundary": "xyz"}, {"boundary": "FF"}, {"partition": -1}, {"partition": 99}):
        response = await shop.send("POST", f"{ORDERS}/split", orjson.dumps(split))
        assert response.status in (400, 404)


# Faults and the clock.


async def test_fault_rules_come_and_go(shop: Desk) -> None:
    assert (await shop.ask("GET", "faults")) == {"faults": []}
    given = {
        "operations": ["write", "read"],
        "database": "shop",
        "container": "orders",
        "key": "K",
        "every": 7,
        "status": 429,
        "retryAfterMs": 20,
    }
    made = await shop.ask("POST", "faults", given, 201)
    assert {name: made[name] for name in ("id", "key", "every", "status", "subStatus", "retryAfterMs", "hits")} == {
        "id": 1,
        "key": ["K"],
        "every": 7,
        "status": 429,
        "subStatus": 3200,
        "retryAfterMs": 20,
        "hits": 0,
    }
    assert await shop.ask("GET", "faults/1") == made
    gone = await shop.ask("POST", "faults", {"range": 1, "count": 3, "status": 410, "subStatus": 1008}, 201)
    assert (gone["status"], gone["subStatus"]) == (410, 1008)
    lost = await shop.ask("POST", "faults", {"operations": "write", "drop": True, "after": True, "delayMs": 5}, 201)
    assert (lost["drop"], lost["after"], lost["delayMs"]) == (True, True, 5)
    assert shop.account.faults.rules[2].kind is Kind.RANGE_GONE
    await shop.ask("DELETE", "faults/1")
    await shop.refusal("GET", "faults/1", status=404)
    await shop.refusal("DELETE", "faults/x", status=404)
    assert await shop.ask("DELETE", "faults") == {"deleted": 2}
    assert shop.account.faults.armed is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"status": 200},
        {"status": 429, "drop": True},
        {"subStatus": 1002},
        {"status": 429, "operations": ["writes"]},
        {"status": 429, "operations": [1]},
        {"status": 429, "every": 0},
        {"status": 429, "count": 0},
        {"status": 429, "probability": 1.5},
        {"status": 429, "container": "orders"},
        {"status": 429, "key": [[1]]},
        {"status": 429, "key": {"a": 1}},
        {"status": 429, "retryAfterMs": -1},
        {"delayMs": limits.FAULT_DELAY_MS_MAX + 1},
        {"drop": True, "after": True},
        {"delayMs": 1, "after": True, "operations": "write"},
        {"status": 429, "rang": 1},
        {"delayMs": 1, "retryAfterMs": 5},
        {"drop": True, "retryAfterMs": 5},
        {"status": 429, "seed": 1},
    ],
)
async def test_fault_rules_that_are_none(desk: Desk, given: dict[str, Any]) -> None:
    assert await desk.refusal("POST", "faults", given)
    assert desk.account.faults.rules == {}


async def test_rules_that_hold_back_the_log_are_for_followers(desk: Desk) -> None:
    rule = {"operations": "apply", "delayMs": 500}
    assert "cluster" in await desk.refusal("POST", "faults", rule)
    desk.account.topology = cast(Any, SimpleNamespace(leads=True))
    assert "follow" in await desk.refusal("POST", "faults", rule)
    desk.account.topology = cast(Any, SimpleNamespace(leads=False))
    for more in ({"operations": ["apply", "read"]}, {"database": "shop"}, {"count": 1}, {"status": 503}, {"every": 2}):
        assert "nothing else" in await desk.refusal("POST", "faults", {**rule, **more})
    made = await desk.ask("POST", "faults", rule, 201)
    assert (made["operations"], made["delayMs"]) == (["apply"], 500)
    assert desk.account.faults.apply_delay_s == 0.5
    await desk.ask("DELETE", "faults")
    assert desk.account.faults.apply_delay_s == 0.0


def test_the_parts_of_a_rule_have_defaults_that_narrow_nothing() -> None:
    rule = FaultRule()
    assert (rule.every, rule.count, rule.probability, rule.kind) == (1, None, 1.0, None)


async def test_the_clock_moves(desk: Desk) -> None:
    frozen = await desk.ask("POST", "clock", {"frozen": True})
    assert (frozen["movable"], frozen["frozen"]) == (True, True)
    later = await desk.ask("POST", "clock", {"advanceSeconds": 90.5})
    assert later["nowSeconds"] == pytest.approx(frozen["nowSeconds"] + 90.5)
    assert desk.account.clock.now_s() == pytest.approx(later["nowSeconds"], abs=0.001)
    assert (await desk.ask("POST", "clock", {"frozen": False}))["frozen"] is False
    for body in ({}, {"advanceSeconds": -1}, {"advanceSeconds": "1"}, {"frozen": 1}, {"back": 1}):
        assert await desk.refusal("POST", "clock", body)
    for _ in range(8):  # ten years at once, up to the end of the century
        response = await desk.send("POST", "clock", orjson.dumps({"advanceSeconds": limits.CLOCK_ADVANCE_S_MAX}))
    assert response.status == 400


async def test_the_clock_is_not_said_to_be_later_than_it_is(desk: Desk) -> None:
    await desk.ask("POST", "clock", {"frozen": True})
    now_s = desk.account.clock.now_s()
    said = await desk.ask("POST", "clock", {"advanceSeconds": 1.9997 - now_s % 1})
    assert said["nowSeconds"] == int(now_s) + 1 + 0.999


async def test_the_machines_clock_does_not() -> None:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    door = ControlDoor(account, KEY)
    headers = {b"host": b"localhost", b"authorization": f"Bearer {KEY}".encode(), b"content-type": b"application/json"}
    request = Request("POST", b"/_armillary/clock", headers, b'{"advanceSeconds":1}', False, "")
    response = await door.answer(request)
    assert response.status == 400
    assert b"--clock movable" in response.body
    await account.close()
    await engine.close()


# Nodes of a cluster.


async def test_only_requests_about_a_node_or_the_cluster_are_answered_by_it(desk: Desk) -> None:
    def needs_leader(method: str, path: str) -> bool:
        return desk.door.needs_leader(Request(method, f"/_armillary/{path}".encode(), {}, b"", False, "test"))

    answered = {path.partition("/")[0] for method, path in REQUESTS if not needs_leader(method, path)}
    assert answered == {
        "health",
        "ready",
        "metrics",
        "faults",
        "clock",
        "checkpoints",
        "cluster",
        "session",
        "server",
        "watch",
        "runtime",
        "estimate",
        "simulations",
        "advice",
        "uploads",
        "jobs",
    }
    assert needs_leader("GET", "databases?x=1") and not needs_leader("GET", "metrics?x=1")


async def test_a_follower_refuses_changes(shop: Desk) -> None:
    shop.account.topology = following()
    for method, path in (("POST", "databases"), ("DELETE", "databases/none"), ("POST", f"{ORDERS}/split")):
        response = await shop.send(method, path, b"{}")
        assert isinstance(response, Refusal) and response.is_bare
        assert (response.status, response.kind) == (503, Kind.NOT_LEADER)
    assert (await shop.send("GET", ORDERS)).status == 200
    assert (await shop.send("GET", "faults")).status == 200


async def test_a_node_that_has_lost_the_cluster_answers_about_itself_only(shop: Desk) -> None:
    shop.account.topology = following(is_silent=True)
    assert (await shop.send("GET", "health")).status == 200
    assert (await shop.send("GET", "metrics")).status == 200
    for path in ("ready", "databases", ORDERS):
        assert (await shop.send("GET", path)).status == 503
