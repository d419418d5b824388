"""The management door: who may ask, addresses, the forms of answers and refusals, and that nothing is accepted and
ignored. The requests of the real SDK are replayed by `tests/clients`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.management import ACCOUNT, CONTROL_KEY, READ_ONLY_KEY, SUBSCRIPTION, VERSION, ManagementHouse, error_of
from support.process import KEY
from support.topology import FakeTopology, following

from armillary import limits
from armillary.account.catalog.tables import is_table
from armillary.account.registry import AccountSettings
from armillary.account.reshaping.split_and_merge import POINTS
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.doors.management.door import ROUTES as ACTIONS
from armillary.doors.management.errors import REFUSALS, error_response
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType
from armillary.net.http import HANG_UP, Refusal, Request

KEYED = {"paths": ["/pk"], "kind": "Hash", "version": 2}
# A valid body for each PUT and POST that takes one, by the last word of its route.
DATABASE_BODY = {"properties": {"resource": {"id": "d"}, "options": {"throughput": 800}}}
THROUGHPUT_BODY = {"properties": {"resource": {"throughput": 900}}}


@pytest.fixture
async def house() -> AsyncIterator[ManagementHouse]:
    house = await ManagementHouse.open()
    yield house
    await house.close()


def path_of(route: str) -> str:
    """A route's path with names: `d` of databases, `c` of what they hold, `t` of tables."""
    names = iter("t" if route.startswith("tables") else "dc")
    return "/" + re.sub(r"\{\}", lambda _: next(names), route) if route else ""


async def furnish(house: ManagementHouse) -> None:
    await house.put("/sqlDatabases/d", {"id": "d"}, throughput=500)
    await house.put("/sqlDatabases/d/containers/c", {"id": "c", "partitionKey": KEYED}, throughput=600)
    await house.put("/tables/t", {"id": "t"}, throughput=700)


def body_of(route: str) -> Any:
    if route.endswith("throughputSettings/default"):
        return THROUGHPUT_BODY
    if route == "regenerateKey":
        return {"keyKind": "primary"}
    resource: dict[str, Any] = {"id": path_of(route).rpartition("/")[2]}
    if "/collections" in route:
        resource |= {"shardKey": {"pk": "Hash"}, "indexes": [{"key": {"keys": ["_id"]}, "options": {}}]}
    elif "/containers" in route or "/graphs" in route:
        resource |= {"partitionKey": KEYED, "indexingPolicy": {"indexingMode": "consistent"}}
    return {"properties": {"resource": resource, "options": {}}}


ROUTES = [(method, route) for method, route, _ in ACTIONS]
READING = {("POST", "readonlykeys"), ("POST", "listConnectionStrings")}


# Who may ask.


@pytest.mark.parametrize(("method", "route"), ROUTES)
async def test_every_route_works_with_the_control_key_and_reads_with_the_other(method: str, route: str) -> None:
    house = await ManagementHouse.open()
    await furnish(house)
    content = body_of(route) if method == "PUT" or route == "regenerateKey" else None
    reads = method == "GET" or (method, route) in READING
    before = [each.etag for each in house.account.catalog.of_type(ResourceType.DATABASE)]
    refused = await house.ask(method, path_of(route), content, key=READ_ONLY_KEY)
    assert refused.status == (200 if reads else 403), refused.body
    assert before == [each.etag for each in house.account.catalog.of_type(ResourceType.DATABASE)]
    for key in (KEY, "", "x"):
        assert error_of(await house.ask(method, path_of(route), content, key=key))[:2] == (
            401,
            "InvalidAuthenticationToken",
        )
    answer = await house.ask(method, path_of(route), content)
    assert answer.status == (204 if method == "DELETE" else 200), answer.body
    await house.close()


async def test_read_only_keys_are_all_that_the_read_only_control_key_is_told(house: ManagementHouse) -> None:
    for path in ("/readonlykeys", "/listConnectionStrings"):
        answer = await house.ask("POST", path, key=READ_ONLY_KEY)
        assert READ_ONLY_KEY.encode() in answer.body
        assert KEY.encode() not in answer.body
    keys = orjson.loads((await house.ask("POST", "/listKeys")).body)
    assert keys == {"primaryMasterKey": KEY, "primaryReadonlyMasterKey": READ_ONLY_KEY}


async def test_other_hosts_and_pages_are_refused(house: ManagementHouse) -> None:
    target = ACCOUNT + VERSION
    assert (await house.send("GET", target, {"host": "example.com"})).status == 403
    assert (await house.send("GET", target, {"origin": "https://example.com"})).status == 403
    assert (await house.send("GET", target)).status == 200


async def test_a_client_certificate_is_needed_where_the_control_api_needs_one() -> None:
    house = await ManagementHouse.open(needs_certificate=True)
    assert error_of(await house.ask("GET", ""))[:2] == (403, "AuthorizationFailed")
    await house.close()


async def test_failed_sign_ins_are_throttled(house: ManagementHouse) -> None:
    refused: list[str] = []

    class Throttle(SignInThrottle):
        async def refused(self, address: str) -> bool:
            refused.append(address)
            return len(refused) < 2

    house.door.throttle = Throttle(house.account.clock)
    assert (await house.ask("GET", "", key="wrong")).status == 401
    assert await house.ask("GET", "", key="wrong") is HANG_UP
    assert (await house.ask("GET", "")).status == 200
    assert refused == ["127.0.0.1"] * 2


async def test_long_bodies_of_strangers_are_not_read(house: ManagementHouse) -> None:
    request = Request("PUT", (ACCOUNT + VERSION).encode(), {b"host": b"localhost"}, b"", False, "127.0.0.1")
    refusal = house.door.screen(request)
    assert refusal is not None and refusal.status == 401


# Addresses.


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (ACCOUNT, 400, "MissingApiVersionParameter"),
        (f"{ACCOUNT}?api-version=2019-08-01", 400, "InvalidApiVersionParameter"),
        (f"{ACCOUNT}?api-version=latest", 400, "InvalidApiVersionParameter"),
        (f"{ACCOUNT}{VERSION}&$filter=x", 400, "BadRequest"),
        (f"{ACCOUNT}{VERSION}&api-version=2025-04-15", 400, "MissingApiVersionParameter"),
        (f"/subscriptions/mine/providers/Microsoft.DocumentDB/databaseAccounts{VERSION}", 400, "InvalidSubscriptionId"),
        (f"{ACCOUNT.replace('localhost', 'other')}{VERSION}", 404, "ResourceNotFound"),
        (f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Storage/storageAccounts{VERSION}", 404, "NotFound"),
        (f"{ACCOUNT}/cassandraKeyspaces{VERSION}", 404, "NotFound"),
        (f"{ACCOUNT}/sqlDatabases/%ff{VERSION}", 400, "BadRequest"),
        (f"/{VERSION}", 404, "NotFound"),
    ],
)
async def test_bad_addresses(house: ManagementHouse, target: str, status: int, code: str) -> None:
    assert error_of(await house.send("GET", target))[:2] == (status, code)


async def test_what_is_not_there_is_named(house: ManagementHouse) -> None:
    await furnish(house)
    for path in ("/sqlRoleDefinitions", "/sqlDatabases/d/containers/c/storedProcedures", "/services/x"):
        assert path.rpartition("/")[2] in error_of(await house.ask("GET", path))[2]
    for path in ("/sqlDatabases/none", "/mongodbDatabases/none/collections", "/gremlinDatabases/d/graphs/none"):
        status, code, message = error_of(await house.ask("GET", path))
        assert (status, code) == (404, "NotFound")
        assert "'none'" in message
    assert (await house.ask("PATCH", "/sqlDatabases/d")).status == 405
    assert (await house.ask("PUT", "", {})).status == 405, "an account is made by starting a server"


async def test_words_have_any_case_and_names_their_own(house: ManagementHouse) -> None:
    await house.put("/SQLDATABASES/Shop", {"id": "Shop"})
    found = await house.get("/sqldatabases/Shop")
    assert found["id"] == f"{ACCOUNT}/sqlDatabases/Shop"
    assert (await house.ask("GET", "/sqlDatabases/shop")).status == 404
    lower = ACCOUNT.lower().encode() + b"/sqlDatabases/Shop" + VERSION.encode()
    assert (await house.send("GET", lower)).status == 200


async def test_names_with_blanks_and_of_any_script(house: ManagementHouse) -> None:
    for name in ("two words", "Bücher", "a(b)"):
        path = f"/sqlDatabases/{name.encode().hex(' ').replace(' ', '%').join(['%', ''])}"
        assert (await house.put(path, {"id": name}))["id"] == name
        assert (await house.get(path))["name"] == name


async def test_an_account_is_in_every_subscription_and_group(house: ManagementHouse) -> None:
    everywhere = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.DocumentDB/databaseAccounts{VERSION}"
    (found,) = orjson.loads((await house.send("GET", everywhere)).body)["value"]
    assert found["id"] == ACCOUNT.replace("/group/", "/armillary/")
    (found,) = orjson.loads((await house.send("GET", ACCOUNT.rpartition("/")[0] + VERSION)).body)["value"]
    assert found["id"] == ACCOUNT
    assert found["properties"]["documentEndpoint"] == "http://localhost:8081/"
    names = "/providers/Microsoft.DocumentDB/databaseAccountNames/"
    assert (await house.send("HEAD", f"{names}localhost{VERSION}")).status == 200
    assert (await house.send("HEAD", f"{names}other{VERSION}")).status == 404


# Bodies.


def with_unknown(value: Any) -> list[Any]:
    """The value with a member too many, once in each of its objects."""
    if isinstance(value, list):
        return [
            [*value[:place], each, *value[place + 1 :]] for place, old in enumerate(value) for each in with_unknown(old)
        ]
    if not isinstance(value, dict):
        return []
    inside = [{**value, name: each} for name, old in value.items() for each in with_unknown(old)]
    return [{**value, "unknown": 1}, *inside]


@pytest.mark.parametrize("route", [route for method, route, _ in ACTIONS if method == "PUT"] + ["regenerateKey"])
async def test_unknown_members_are_refused_wherever_they_are(route: str) -> None:
    house = await ManagementHouse.open()
    await furnish(house)
    method = "POST" if route == "regenerateKey" else "PUT"
    # Policies of containers are checked as at the SQL door, which has tests of its own; keys of objects are names here.
    for content in with_unknown(body_of(route)):
        text = orjson.dumps(content).decode()
        answer = await house.ask(method, path_of(route), content)
        assert answer.status == 400, text
        assert "unknown" in error_of(answer)[2], text
    await house.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "properties"),
        ([], "JSON object"),
        ({"properties": {"options": {}}}, "properties.resource"),
        ({"properties": {"resource": {"id": "other"}}}, "'other'"),
        ({"properties": {"resource": {"id": 7}}}, "must be a string"),
        ({"properties": {"resource": {"id": "d", "createMode": "Restore"}}}, "createMode"),
        ({"properties": {"resource": {"id": "d", "restoreParameters": {}}}}, "restoreParameters"),
        ({"properties": {"resource": {"id": "d"}, "options": {"throughput": "400"}}}, "whole number"),
        ({"properties": {"resource": {"id": "d"}, "options": {"throughput": 450}}}, "increments"),
        (
            {
                "properties": {
                    "resource": {"id": "d"},
                    "options": {"throughput": 400, "autoscaleSettings": {"maxThroughput": 1000}},
                }
            },
            "not both",
        ),
        ({"location": "Mars", "properties": {"resource": {"id": "d"}}}, "location"),
        ({"tags": {"a": "b"}, "properties": {"resource": {"id": "d"}}}, "tags"),
        ({"identity": {}, "properties": {"resource": {"id": "d"}}}, "identity"),
        ({"id": "/other", "properties": {"resource": {"id": "d"}}}, "'id'"),
    ],
)
async def test_bad_bodies(house: ManagementHouse, content: Any, words: str) -> None:
    status, _, message = error_of(await house.ask("PUT", "/sqlDatabases/d", content))
    assert status == 400
    assert words in message
    assert (await house.get("/sqlDatabases"))["value"] == []


async def test_what_was_answered_can_be_sent_back(house: ManagementHouse) -> None:
    await furnish(house)
    for path in ("/sqlDatabases/d", "/sqlDatabases/d/containers/c", "/gremlinDatabases/d/graphs/c", "/tables/t"):
        found = await house.get(path)
        answer = await house.ask("PUT", path, {**found, "location": "Mars", "tags": {}})
        assert error_of(answer)[0] == 400 and "location" in error_of(answer)[2]
        answer = await house.ask("PUT", path, {**found, "location": limits.REGION.lower().replace(" ", "")})
        assert answer.status == 200, answer.body
        again = orjson.loads(answer.body)["properties"]["resource"]
        assert {**again, "_etag": "", "_ts": 0} == {**found["properties"]["resource"], "_etag": "", "_ts": 0}
    path = "/sqlDatabases/d/throughputSettings/default"
    found = await house.get(path)
    answer = await house.ask("PUT", path, {"properties": found["properties"]})
    assert answer.status == 200, answer.body


async def test_media_types_and_sizes(house: ManagementHouse, with_limits: Any) -> None:
    target = f"{ACCOUNT}/sqlDatabases/d{VERSION}"
    body = orjson.dumps(DATABASE_BODY)
    assert (await house.send("PUT", target, {"content-type": "text/plain"}, body)).status == 415
    assert (await house.send("PUT", target, {"content-type": "application/json"}, b"{")).status == 400
    with_limits(MANAGEMENT_BODY_BYTES_MAX=len(body) - 1)
    json = {"content-type": "application/json; charset=utf-8"}
    assert (await house.send("PUT", target, json, body)).status == 413
    with_limits(MANAGEMENT_BODY_BYTES_MAX=len(body))
    assert (await house.send("PUT", target, json, body)).status == 200
    for name in ("if-match", "if-none-match"):
        assert error_of(await house.send("DELETE", target, {name: "*"}))[:2] == (400, "NotSupported")
    answer = await house.send("POST", f"{ACCOUNT}/listKeys{VERSION}", json, b'{"a":1}')
    assert error_of(answer)[2] == "This request takes no body."


# Refusals.


def test_every_kind_has_a_status_and_a_code() -> None:
    assert set(REFUSALS) == set(Kind)
    for kind in Kind:
        answer = error_response(Failure(kind, "why", retry_after_ms=1500), [])
        assert isinstance(answer, Refusal) and answer.kind is kind
        assert error_of(answer) == (*REFUSALS[kind], "why")
        assert (b"retry-after", b"2") in answer.headers


async def test_request_ids(house: ManagementHouse) -> None:
    answer = await house.send("GET", ACCOUNT + VERSION, {"x-ms-client-request-id": "mine"})
    headers = dict(answer.headers)
    assert headers[b"x-ms-client-request-id"] == b"mine"
    assert re.fullmatch(rb"[0-9a-f-]{36}", headers[b"x-ms-request-id"])


# Databases, containers, tables.


async def test_databases_are_one_for_all_apis(house: ManagementHouse) -> None:
    await house.put("/mongodbDatabases/d", {"id": "d"})
    for kind in ("sqlDatabases", "mongodbDatabases", "gremlinDatabases"):
        (found,) = (await house.get(f"/{kind}"))["value"]
        assert found["id"] == f"{ACCOUNT}/{kind}/d"
        assert found["type"] == f"Microsoft.DocumentDB/databaseAccounts/{kind}"
        assert found["properties"]["resource"]["_rid"] == house.account.database("d").rid_text
    assert "_self" not in (await house.get("/mongodbDatabases/d"))["properties"]["resource"]


async def test_throughput_of_a_put_is_that_of_the_resource(house: ManagementHouse) -> None:
    await house.put("/sqlDatabases/d", {"id": "d"}, throughput=800)
    await house.put("/sqlDatabases/d", {"id": "d"})
    settings = "/sqlDatabases/d/throughputSettings/default"
    assert (await house.get(settings))["properties"]["resource"]["throughput"] == 800
    await house.put("/sqlDatabases/d", {"id": "d"}, throughput=1200)
    assert (await house.get(settings))["properties"]["resource"]["throughput"] == 1200
    answer = await house.ask(
        "PUT", settings, {"properties": {"resource": {"autoscaleSettings": {"maxThroughput": 4000}}}}
    )
    assert "migrateToAutoscale" in error_of(answer)[2]
    answer = await house.ask("POST", f"{settings}/migrateToAutoscale")
    found = orjson.loads(answer.body)
    assert found["id"].endswith("/throughputSettings/default/migrateToAutoscale")
    assert found["properties"]["resource"]["autoscaleSettings"] == {"maxThroughput": 2000}
    assert error_of(await house.ask("PUT", settings, THROUGHPUT_BODY))[0] == 400


async def test_throughput_that_needs_a_split_is_pending() -> None:
    house = await ManagementHouse.open()
    await house.put("/sqlDatabases/d", {"id": "d"})
    await house.put("/sqlDatabases/d/containers/c", {"id": "c", "partitionKey": KEYED}, throughput=400)
    settings = "/sqlDatabases/d/containers/c/throughputSettings/default"
    house.account.reshaper.pause(POINTS)
    answer = await house.ask("PUT", settings, {"properties": {"resource": {"throughput": 30_000}}})
    resource = orjson.loads(answer.body)["properties"]["resource"]
    assert resource["throughput"] == 30_000
    assert resource["offerReplacePending"] == "true"
    assert resource["instantMaximumThroughput"] == "10000"
    await house.close()


async def test_a_serverless_account_has_no_throughput() -> None:
    house = await ManagementHouse.open(AccountSettings(is_serverless=True))
    await house.put("/sqlDatabases/d", {"id": "d"})
    await house.put("/mongodbDatabases/d/collections/c", {"id": "c"})
    await house.put("/tables/t", {"id": "t"})
    assert "serverless" in error_of(await house.ask("GET", "/sqlDatabases/d/throughputSettings/default"))[2]
    assert (await house.ask("PUT", "/sqlDatabases/e", DATABASE_BODY)).status == 400
    assert (await house.get(""))["properties"]["capabilities"] == [{"name": "EnableServerless"}]
    await house.close()


async def test_an_update_leaves_what_the_api_has_no_word_for(house: ManagementHouse) -> None:
    given: dict[str, Any] = {"id": "c", "partitionKey": KEYED, "geospatialConfig": {"type": "Geometry"}}
    given |= {"changeFeedPolicy": {"retentionDuration": 10}, "defaultTtl": 100}
    await house.put("/sqlDatabases/d", {"id": "d"})
    await house.put("/sqlDatabases/d/containers/c", given)
    changed = await house.put("/sqlDatabases/d/containers/c", {"id": "c", "partitionKey": KEYED})
    assert changed["geospatialConfig"] == {"type": "Geometry"}
    assert changed["changeFeedPolicy"] == {"retentionDuration": 10}
    assert "defaultTtl" not in changed, "a PUT replaces the policies"


async def test_a_refused_put_changes_nothing(house: ManagementHouse) -> None:
    await house.put("/sqlDatabases/d", {"id": "d"})
    body = {"id": "c", "partitionKey": KEYED}
    await house.put("/sqlDatabases/d/containers/c", body, throughput=1000)
    for options in ({"throughput": 300}, {"autoscaleSettings": {"maxThroughput": 4000}}):
        content = {"properties": {"resource": {**body, "defaultTtl": 7}, "options": options}}
        assert (await house.ask("PUT", "/sqlDatabases/d/containers/c", content)).status == 400
    assert "defaultTtl" not in (await house.get("/sqlDatabases/d/containers/c"))["properties"]["resource"]
    resource = {
        "id": "m",
        "shardKey": {"a": "Hash"},
        "indexes": [{"key": {"keys": ["b"]}, "options": {"unique": True}}],
    }
    answer = await house.ask("PUT", "/mongodbDatabases/d/collections/m", {"properties": {"resource": resource}})
    assert "shard key" in error_of(answer)[2]
    assert (await house.ask("GET", "/mongodbDatabases/d/collections/m")).status == 404


async def test_a_container_without_partition_key_can_be_updated(house: ManagementHouse) -> None:
    """A client sends back the partition key that it is shown, without the member that is read-only to it."""
    await house.put("/sqlDatabases/d", {"id": "d"})
    await house.put("/mongodbDatabases/d/collections/plain", {"id": "plain"})
    shown = (await house.get("/sqlDatabases/d/containers/plain"))["properties"]["resource"]
    key = {name: value for name, value in shown["partitionKey"].items() if name != "systemKey"}
    changed = await house.put(
        "/sqlDatabases/d/containers/plain",
        {"id": "plain", "partitionKey": key, "indexingPolicy": shown["indexingPolicy"], "defaultTtl": 50},
    )
    assert changed["defaultTtl"] == 50


async def test_tables_are_those_of_the_table_door(house: ManagementHouse) -> None:
    await house.put("/tables/people", {"id": "people"})
    assert is_table(house.account.container("TablesDB", "people"))
    for name in ("Tables", "a(b)"):
        assert (await house.ask("PUT", f"/tables/{name}", {"properties": {"resource": {"id": name}}})).status == 400
    await house.put("/sqlDatabases/TablesDB/containers/other", {"id": "other", "partitionKey": KEYED})
    assert [each["name"] for each in (await house.get("/tables"))["value"]] == ["people"]
    assert (await house.ask("DELETE", "/tables/other")).status == 404


# In a cluster.


async def test_the_leader_answers_everything(house: ManagementHouse) -> None:
    house.account.topology = following()
    request = Request("GET", (ACCOUNT + VERSION).encode(), {b"host": b"localhost"}, b"", False, "127.0.0.1")
    assert house.door.needs_leader(request)
    answer = await house.ask("PUT", "/sqlDatabases/d", DATABASE_BODY)
    assert isinstance(answer, Refusal) and answer.kind is Kind.NOT_LEADER
    house.account.topology = FakeTopology()
    assert (await house.ask("PUT", "/sqlDatabases/d", DATABASE_BODY)).status == 200


@pytest.mark.parametrize(("key", "status"), [(None, 200), (READ_ONLY_KEY, 403)])
async def test_a_forwarded_request_has_the_rights_that_were_found(
    house: ManagementHouse, key: str | None, status: int
) -> None:
    target = (f"{ACCOUNT}/sqlDatabases/d{VERSION}").encode()
    headers = {b"host": b"localhost", b"content-type": b"application/json"}
    headers[b"authorization"] = b"Bearer " + (key or CONTROL_KEY).encode()
    request = Request("PUT", target, headers, orjson.dumps(DATABASE_BODY), False, "127.0.0.1")
    assert house.door.screen(request) is None
    found = {name: value for name, value in headers.items() if name != b"authorization"}
    forwarded = Request("PUT", target, found, request.body, False, "127.0.0.1")
    forwarded.is_known = True
    assert (await house.door.answer(forwarded)).status == status
