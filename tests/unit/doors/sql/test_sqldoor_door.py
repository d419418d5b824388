"""The SQL door in process: signed requests in, answers out. For what no released Python client does, and for the
agreement of the route table with the table of actions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.clock import VirtualClock
from armillary.doors.sql import door as door_module
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.headers import PostMeaning
from armillary.doors.sql.routes import Route, RouteKind, parse_route
from armillary.storage.memory import MemoryEngine


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}})
    yield caller
    assert [problem async for problem in check_account(engine, clock)] == []
    await account.close()


async def test_a_whole_number_is_one_key_however_it_is_written(call: Caller) -> None:
    """The fixture checks at the end that sizes are right, whichever write was first."""
    for number in (0, 0.0, 5.0, 5):
        headers = {"x_ms_documentdb_is_upsert": "true", "x_ms_documentdb_partitionkey": f"[{number}]"}
        status, *_ = await call("POST", "/dbs/db/colls/c/docs", {"id": "1", "pk": number}, **headers)
        assert status in (200, 201)


async def test_client_encryption_keys(call: Caller) -> None:
    key = {
        "id": "key1",
        "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256",
        "wrappedDataEncryptionKey": "c2VjcmV0",
        "keyWrapMetadata": {"type": "kms", "name": "m", "value": "https://vault", "algorithm": "RSA-OAEP"},
    }
    status, made, _ = await call("POST", "/dbs/db/clientencryptionkeys", key)
    assert (status, made["keyWrapMetadata"]) == (201, key["keyWrapMetadata"])
    assert (await call("POST", "/dbs/db/clientencryptionkeys", key))[0] == 409
    assert (await call("GET", "/dbs/db/clientencryptionkeys/key1"))[1] == made
    status, listed, _ = await call("GET", "/dbs/db/clientencryptionkeys")
    assert (status, listed["ClientEncryptionKeys"], listed["_count"]) == (200, [made], 1)
    status, changed, _ = await call(
        "PUT", "/dbs/db/clientencryptionkeys/key1", {**key, "wrappedDataEncryptionKey": "bmV3"}
    )
    assert (status, changed["_rid"]) == (200, made["_rid"])
    assert changed["_etag"] != made["_etag"]
    bad: Any
    for bad in ({"id": "x"}, {**key, "id": "x", "more": 1}, {**key, "id": 7}, []):
        assert (await call("POST", "/dbs/db/clientencryptionkeys", bad))[0] == 400


async def test_conflicts_are_an_empty_list(call: Caller) -> None:
    status, listed, _ = await call("GET", "/dbs/db/colls/c/conflicts")
    assert (status, listed["Conflicts"]) == (200, [])
    assert (await call("GET", "/dbs/db/colls/c/conflicts/x"))[0] == 404
    assert (await call("DELETE", "/dbs/db/colls/c/conflicts/x"))[0] == 404
    query = {"query": "SELECT * FROM c"}
    headers = {"x_ms_documentdb_isquery": "true"}
    assert (await call("POST", "/dbs/db/colls/c/conflicts", query, **headers))[0] == 400
    headers["x_ms_documentdb_query_enablecrosspartition"] = "true"
    assert (await call("POST", "/dbs/db/colls/c/conflicts", query, **headers))[0] == 200


async def test_continuations_are_given_whole_whatever_their_length(call: Caller) -> None:
    """JavaScript's client allows 1 KB in every request; what the service leaves out beyond that is not needed."""
    for number in range(3):
        await call("POST", "/dbs/db/colls/c/docs", {"id": str(number), "pk": "a", "text": f"{number}" * 2000})
    query = {"query": "SELECT VALUE c.id FROM c ORDER BY c.text"}
    headers = {"x_ms_documentdb_isquery": "true", "x_ms_documentdb_partitionkey": '["a"]', "x_ms_max_item_count": "1"}
    for limit, expected in (("1", 200), ("0", 200), ("2", 200), ("-1", 400), ("x", 400)):
        headers["x_ms_documentdb_responsecontinuationtokenlimitinkb"] = limit
        status, _, response = await call("POST", "/dbs/db/colls/c/docs", query, **headers)
        assert status == expected, limit
        if status == 200:
            assert len(dict(response.headers)[b"x-ms-continuation"]) > 1024


async def changes(call: Caller, **headers: str) -> tuple[int, list[str], dict[bytes, bytes]]:
    path = headers.pop("path", "/dbs/db/colls/c/docs")
    status, body, response = await call("GET", path, a_im=headers.pop("a_im", "Incremental Feed"), **headers)
    return status, [each["id"] for each in body["Documents"]] if status == 200 else [], dict(response.headers)


async def test_change_feed(call: Caller) -> None:
    """Of a whole container, with no client that knows ranges."""
    status, _, headers = await changes(call)
    assert (status, headers[b"etag"], headers[b"x-ms-item-count"]) == (304, b'"0"', b"0")
    for name in "abc":
        await call("POST", "/dbs/db/colls/c/docs", {"id": name, "pk": name}, x_ms_documentdb_partitionkey=f'["{name}"]')
    status, found, headers = await changes(call, x_ms_max_item_count="2")
    assert (status, found, headers[b"etag"], headers[b"x-ms-item-count"]) == (200, ["a", "b"], b'"2"', b"2")
    assert headers[b"x-ms-session-token"] == b"0:1#3"
    assert b"x-ms-continuation" not in headers
    status, found, headers = await changes(call, if_none_match=headers[b"etag"].decode())
    assert (status, found, headers[b"etag"]) == (200, ["c"], b'"3"')
    status, _, headers = await changes(call, if_none_match="3")
    assert (status, headers[b"etag"], headers[b"x-ms-request-charge"]) == (304, b'"3"', b"1")
    assert (await changes(call, if_none_match="*"))[2][b"etag"] == b'"3"'
    assert (await changes(call, x_ms_documentdb_partitionkey='["b"]'))[1] == ["b"]
    assert (await changes(call, x_ms_documentdb_partitionkeyrangeid="0"))[1] == [*"abc"]
    assert (await changes(call, x_ms_documentdb_partitionkeyrangeid="7"))[0] == 410
    assert (await changes(call, if_modified_since="Thu, 01 Jan 1970 00:00:00 GMT"))[1] == [*"abc"]
    assert (await changes(call, if_modified_since="Fri, 01 Jan 2100 00:00:00 GMT"))[0] == 304


async def test_change_feed_of_latest_versions_with_metadata_beside_the_item(call: Caller) -> None:
    """As Java's change feed processor and Rust's client ask for it."""
    path, key = "/dbs/db/colls/c/docs", {"x_ms_documentdb_partitionkey": '["a"]'}
    _, item, _ = await call("POST", path, {"id": "1", "pk": "a", "n": 1}, **key)
    mode = {"a_im": "Incremental Feed", "x_ms_cosmos_changefeed_wire_format_version": "2021-09-15"}
    status, body, response = await call("GET", path, **mode)
    assert (status, body["_count"]) == (200, 1)
    assert body["Documents"] == [{"current": item, "metadata": {"lsn": 1, "crts": item["_ts"]}}]
    position = dict(response.headers)[b"etag"].decode()
    assert (await call("GET", path, if_none_match=position, **mode))[0] == 304


async def test_change_feed_of_all_versions(call: Caller) -> None:
    definition = {"id": "all", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    await call("POST", "/dbs/db/colls", definition | {"changeFeedPolicy": {"retentionDuration": 10}})
    path, key = "/dbs/db/colls/all/docs", {"x_ms_documentdb_partitionkey": '["a"]'}
    mode = {"a_im": "Full-Fidelity Feed", "x_ms_cosmos_changefeed_wire_format_version": "2021-09-15"}
    status, _, response = await call("GET", path, if_none_match="*", **mode)
    position = dict(response.headers)[b"etag"].decode()
    assert status == 304
    await call("POST", path, {"id": "1", "pk": "a", "n": 1}, **key)
    await call("PUT", f"{path}/1", {"id": "1", "pk": "a", "n": 2}, **key)
    await call("DELETE", f"{path}/1", **key)
    status, body, response = await call("GET", path, if_none_match=position, **mode)
    assert (status, body["_count"]) == (200, 3)
    created, replaced, deleted = body["Documents"]
    assert created.keys() == {"current", "metadata"}
    assert (created["current"]["n"], replaced["previous"]["n"], replaced["current"]["n"]) == (1, 1, 2)
    assert (deleted["current"], deleted["previous"]["n"]) == ({}, 2)
    assert [each["metadata"]["operationType"] for each in body["Documents"]] == ["create", "replace", "delete"]
    position = dict(response.headers)[b"etag"].decode()
    assert (await call("GET", path, if_none_match=position, **mode))[0] == 304


async def test_change_feed_of_several_partitions(call: Caller) -> None:
    definition = {"id": "wide", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    await call("POST", "/dbs/db/colls", definition, x_ms_offer_throughput="20000")
    for number in range(20):
        key = f"[{number}]"
        document = {"id": str(number), "pk": number}
        await call("POST", "/dbs/db/colls/wide/docs", document, x_ms_documentdb_partitionkey=key)
    seen: list[str] = []
    position: dict[str, str] = {}
    while True:
        status, found, headers = await changes(
            call, path="/dbs/db/colls/wide/docs", x_ms_max_item_count="3", **position
        )
        position = {"if_none_match": headers[b"etag"].decode()}
        seen += found
        if status == 304:
            break
    assert sorted(seen) == sorted(map(str, range(20)))
    assert len(headers[b"x-ms-session-token"].split(b",")) == 4


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"a_im": "Full-Fidelity Feed"}, "You must read the change feed from within the retention period."),
        ({"a_im": "Full-Fidelity Feed", "if_none_match": "*"}, "must be enabled"),
        (
            {"a_im": "Full-Fidelity Feed", "x_ms_cosmos_changefeed_wire_format_version": "2020"},
            "in the form 2021-09-15, not '2020'",
        ),
        ({"x_ms_cosmos_changefeed_wire_format_version": "2020"}, "in the form 2021-09-15, not '2020'"),
        ({"a_im": "Everything"}, "A-IM"),
        ({"if_none_match": '"57"'}, "ahead"),
        ({"if_none_match": '"x"'}, "If-None-Match"),
        ({"if_modified_since": "yesterday"}, "If-Modified-Since"),
        ({"if_modified_since": "Thu, 01 Jan 1970 00:00:00"}, "If-Modified-Since"),
        ({"x_ms_continuation": "3"}, "x-ms-continuation"),
    ],
)
async def test_change_feeds_that_are_refused(call: Caller, headers: dict[str, str], text: str) -> None:
    status, body, _ = await call("GET", "/dbs/db/colls/c/docs", **{"a_im": "Incremental Feed", **headers})
    assert status == 400
    assert text in body["message"]


async def test_lists_are_paged_in_the_order_of_creation(call: Caller) -> None:
    for number in range(5):
        await call("POST", "/dbs/db/users", {"id": f"user{number}"})
    seen, headers = [], {"x_ms_max_item_count": "2"}
    while True:
        _, page, response = await call("GET", "/dbs/db/users", **headers)
        seen += [user["id"] for user in page["Users"]]
        continuation = dict(response.headers).get(b"x-ms-continuation")
        if continuation is None:
            break
        headers["x_ms_continuation"] = continuation.decode()
    assert seen == [f"user{number}" for number in range(5)]
    assert (await call("GET", "/dbs/db/users", x_ms_continuation="nonsense!"))[0] == 400


async def test_head_and_options(call: Caller) -> None:
    status, _, response = await call("HEAD", "/dbs/db")
    assert (status, dict(response.headers)[b"etag"][:1]) == (200, b'"')
    status, _, response = await call("OPTIONS", "/dbs/db")
    assert (status, b"GET" in dict(response.headers)[b"allow"]) == (200, True)
    assert (await call("PUT", "/dbs/db", {}))[0] == 405


async def test_statistics_count_partition_keys(call: Caller) -> None:
    for number in range(5):
        await call("POST", "/dbs/db/colls/c/docs", {"id": str(number), "pk": number % 2})
    headers = {"x_ms_documentdb_populatepartitionstatistics": "True"}
    _, container, _ = await call("GET", "/dbs/db/colls/c", **headers)
    (statistics,) = container["statistics"]
    assert (statistics["documentCount"], statistics["sampledDistinctPartitionKeyCount"]) == (5, 2)


async def test_a_batch_refuses_what_it_would_not_do(call: Caller) -> None:
    batch = [{"operationType": "Create", "resourceBody": {"id": "1", "pk": "a"}}]
    headers = {
        "x_ms_cosmos_is_batch_request": "True",
        "x_ms_cosmos_batch_atomic": "True",
        "x_ms_documentdb_partitionkey": '["a"]',
    }
    for name, value in (("x_ms_documentdb_pre_trigger_include", "t"), ("x_ms_consistency_level", "Strong")):
        assert (await call("POST", "/dbs/db/colls/c/docs", batch, **headers, **{name: value}))[0] == 400
    assert (await call("GET", "/dbs/db/colls/c/docs"))[1]["_count"] == 0
    assert (await call("POST", "/dbs/db/colls/c/docs", batch, **headers))[0] == 200


async def test_a_container_by_rid(call: Caller) -> None:
    _, container, _ = await call("GET", "/dbs/db/colls/c")
    path = "/" + container["_self"].rstrip("/")
    assert (await call("GET", path))[1] == container
    status, item, _ = await call("POST", f"{path}/docs", {"id": "1", "pk": "a"})
    assert status == 201
    by_rid = await call("GET", "/" + item["_self"].rstrip("/"), x_ms_documentdb_partitionkey='["a"]')
    assert (by_rid[0], by_rid[1]) == (200, item)
    assert (await call("GET", "/" + item["_self"].rstrip("/"), x_ms_documentdb_partitionkey='["b"]'))[0] == 404


def test_every_verb_of_every_route_has_an_action() -> None:
    feeds = ["/dbs", "/offers"]
    feeds += [f"/dbs/d/{word}" for word in ("colls", "users", "clientencryptionkeys")]
    feeds += [f"/dbs/d/colls/c/{word}" for word in ("docs", "sprocs", "triggers", "udfs", "conflicts", "pkranges")]
    feeds.append("/dbs/d/users/u/permissions")
    routes: list[Route] = [parse_route(b"/"), parse_route(b"/dbs/d/colls/c/operations/partitionkeydelete")]
    routes += [parse_route(path.encode()) for path in feeds]
    routes += [parse_route(f"{path}/x".encode()) for path in feeds if not path.endswith("pkranges")]
    for route in routes:
        for verb in route.verbs:
            if verb == "POST" and route.kind is RouteKind.FEED:
                assert any((route.resource_type, meaning) in door_module._POSTS for meaning in PostMeaning), route
            else:
                kind = RouteKind.EXECUTE if verb == "POST" and route.kind is RouteKind.RESOURCE else route.kind
                assert (kind, route.resource_type, verb) in door_module._ACTIONS, (route, verb)
