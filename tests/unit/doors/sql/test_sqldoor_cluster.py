"""The SQL door on nodes of a cluster: which requests a node answers, leaves to the leader or refuses, and what its
answers tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.caller import KEY, Caller
from support.replicas import Pair
from support.topology import FakeTopology, following

from armillary.account import containers
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.topology import Staleness
from armillary.clock import SystemClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.session_tokens import SESSION_TOKEN
from armillary.errors import Kind
from armillary.net.http import Refusal, Request, Response
from armillary.storage.log.memory_log import MemoryLog

PK = {"paths": ["/pk"], "kind": "Hash", "version": 2}
DOCS = "/dbs/db/colls/c/docs"
PROCEDURE = "/dbs/db/colls/c/sprocs/p"
ITEM = {"id": "i", "pk": "k", "n": 1}
OF_ITEM = {"x_ms_documentdb_partitionkey": '["k"]'}
QUERY: dict[str, Any] = {"query": "SELECT * FROM c", "parameters": []}
AS_QUERY = {
    "content_type": "application/query+json",
    "x_ms_documentdb_isquery": "True",
    "x_ms_documentdb_query_enablecrosspartition": "True",
}


class Nodes:
    """A door at each node of a pair. The one that follows comes to the leader's state when it is told to, or when its
    door asks the leader."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.leading, self.following = FakeTopology(), following()
        pair.leader.topology, pair.follower.topology = self.leading, self.following
        self.leader_door = SqlDoor(pair.leader, AccountKeys(KEY), accepts_aad=False)
        self.follower_door = SqlDoor(pair.follower, AccountKeys(KEY), accepts_aad=False)
        self.at_leader = Caller(self.leader_door, pair.clock)
        self.at_follower = Caller(self.follower_door, pair.clock)

    def reach(self) -> None:
        """From now on the follower can ask the leader."""

        async def refresh() -> bool:
            await self.pair.step()
            self.following.staleness = Staleness(0, 0)
            return True

        self.following.on_refresh = refresh

    async def split(self) -> None:
        container = self.pair.leader.container("db", "c")
        reshape = await self.pair.leader.reshaper.split(container, 0)
        await self.pair.leader.reshaper.finished(reshape)

    async def put(self, **changes: Any) -> str:
        """Returns the session token."""
        status, _, response = await self.at_leader(
            "POST", DOCS, {**ITEM, **changes}, **OF_ITEM, x_ms_documentdb_is_upsert="True"
        )
        assert status in (200, 201)
        return headers_of(response)[SESSION_TOKEN.decode()]


def headers_of(response: Response) -> dict[str, str]:
    pairs = [(name.decode(), value.decode()) for name, value in response.headers]
    lines = [line.split(": ", 1) for line in response.lines.decode().split("\r\n") if line]
    found = dict([*pairs, *((name, value) for name, value in lines)])
    assert len(found) == len(pairs) + len(lines), "no header twice"
    return found


def kind_of(response: Response) -> Kind | None:
    return response.kind if isinstance(response, Refusal) else None


@pytest.fixture
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    settings = AccountSettings(consistency=getattr(request, "param", "Session"), staleness_s=5)
    pair = await Pair.open(tmp_path, settings)
    database = await containers.create_database(pair.leader, {"id": "db"}, None)
    body = {"id": "c", "partitionKey": PK}
    container = await containers.create_container(pair.leader, database, body, Throughput.manual(400))
    await items.create(container, dict(ITEM), ItemOptions(), pair.clock)
    await pair.step()
    yield Nodes(pair)
    await pair.close()


at_level = pytest.mark.parametrize("nodes", ["Strong", "BoundedStaleness"], indirect=True)
strong = pytest.mark.parametrize("nodes", ["Strong"], indirect=True)
bounded = pytest.mark.parametrize("nodes", ["BoundedStaleness"], indirect=True)


async def test_a_read_says_at_which_address_it_was_answered(nodes: Nodes) -> None:
    """azure-cosmos finds the region by it."""
    for caller, host in ((nodes.at_leader, "shop-west.test:8081"), (nodes.at_follower, "shop-east.test")):
        for given, scheme in (({}, "http"), ({"x_forwarded_proto": "https"}, "https")):
            _, _, response = await caller("GET", f"{DOCS}/i", **OF_ITEM, host=host, **given)
            assert headers_of(response)["content-location"] == f"{scheme}://{host}{DOCS}/i"


# Which node answers.

_WRITES: list[tuple[str, str, dict[str, str]]] = [
    ("POST", "/dbs", {}),
    ("POST", DOCS, {}),
    ("POST", DOCS, {"x-ms-documentdb-is-upsert": "True"}),
    ("POST", DOCS, {"x-ms-cosmos-is-batch-request": "True", "content-type": "application/json"}),
    ("PUT", f"{DOCS}/i", {}),
    ("PATCH", f"{DOCS}/i", {}),
    ("DELETE", f"{DOCS}/i", {}),
    ("POST", PROCEDURE, {}),
    ("POST", PROCEDURE, {"content-type": "application/query+json"}),
    ("POST", "/dbs/db/colls/c/operations/partitionkeydelete", {}),
    ("PUT", "/offers/x", {}),
]
_READS: list[tuple[str, str, dict[str, str]]] = [
    ("GET", f"{DOCS}/i", {}),
    ("HEAD", f"{DOCS}/i", {}),
    ("GET", DOCS, {"a-im": "Incremental Feed"}),
    ("POST", DOCS, {"x-ms-documentdb-isquery": "True"}),
    ("POST", DOCS, {"content-type": "application/query+json"}),
    ("POST", "/dbs", {"x-ms-documentdb-isquery": "True"}),
    ("GET", "/dbs/db/colls/c", {}),
    ("GET", "/dbs/db/colls/c/pkranges", {}),
]
_ANYWHERE: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "/", {}),
    ("GET", "", {}),
    ("OPTIONS", DOCS, {}),
    ("POST", DOCS, {"x-ms-cosmos-is-query-plan-request": "True"}),
    ("GET", "/nothing/here", {}),
    ("GET", f"{DOCS}/%zz", {}),
    ("POST", DOCS, {"x-ms-documentdb-isquery": "perhaps"}),
    ("GET", f"{DOCS}/i", {"x-ms-consistency-level": "Wobbly"}),
]


def _needs_leader(nodes: Nodes, cases: list[tuple[str, str, dict[str, str]]], **more: str) -> list[bool]:
    found = []
    for method, target, headers in cases:
        given = {name.encode(): value.encode() for name, value in {**headers, **more}.items()}
        request = Request(method, target.encode(), given, b"", False, "test")
        found.append(nodes.follower_door.needs_leader(request))
    return found


async def test_writes_need_the_leader_and_reads_do_not(nodes: Nodes) -> None:
    assert set(_needs_leader(nodes, _WRITES)) == {True}
    assert set(_needs_leader(nodes, _READS)) == {False}
    assert set(_needs_leader(nodes, _ANYWHERE)) == {False}


@strong
async def test_strong_reads_need_the_leader_unless_they_ask_for_less(nodes: Nodes) -> None:
    assert set(_needs_leader(nodes, _READS)) == {True}
    assert set(_needs_leader(nodes, _READS, **{"x-ms-consistency-level": "Eventual"})) == {False}
    assert set(_needs_leader(nodes, _ANYWHERE)) == {False}


async def test_reads_need_the_leader_if_they_ask_for_it(nodes: Nodes) -> None:
    strategy, region = "x-ms-cosmos-read-consistency-strategy", "x-ms-cosmos-hub-region-processing-only"
    for headers in ({strategy: "LatestCommitted"}, {strategy: "LatestCommittedWriteRegion"}, {region: "True"}):
        assert set(_needs_leader(nodes, _READS, **headers)) == {True}
        assert set(_needs_leader(nodes, _ANYWHERE, **headers)) == {False}
    for headers in ({strategy: "Eventual"}, {strategy: "Session"}, {region: "False"}):
        assert set(_needs_leader(nodes, _READS, **headers)) == {False}


# A node that follows.


async def test_a_write_at_a_follower_starts_endpoint_discovery(nodes: Nodes) -> None:
    for method, path, body in (("POST", DOCS, ITEM), ("DELETE", f"{DOCS}/none", None), ("POST", "/dbs", {"id": "db"})):
        status, _, response = await nodes.at_follower(method, path, body, **OF_ITEM)
        assert (status, headers_of(response)["x-ms-substatus"], kind_of(response)) == (403, "3", Kind.NOT_LEADER)


async def test_a_follower_answers_reads_and_tells_where(nodes: Nodes) -> None:
    nodes.following.regions, nodes.following.region = ("East US", "West US"), "West US"
    for method, path, body, headers in (
        ("GET", f"{DOCS}/i", None, OF_ITEM),
        ("GET", DOCS, None, {}),
        ("POST", DOCS, QUERY, AS_QUERY),
        ("GET", "/dbs/db/colls/c", None, {}),
    ):
        status, _, response = await nodes.at_follower(method, path, body, **headers)
        assert status == 200
        found = headers_of(response)
        assert found["x-ms-number-of-read-regions"] == "1"
        assert (found["x-armillary-region"], found["x-armillary-node"]) == ("West US", "b")
    assert nodes.following.refreshes == 0


_SESSION_READS: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", f"{DOCS}/i", None, OF_ITEM),
    ("GET", DOCS, None, {}),
    ("POST", DOCS, QUERY, AS_QUERY),
    ("POST", DOCS, {**QUERY, "query": "SELECT * FROM c ORDER BY c.n"}, {**AS_QUERY, **OF_ITEM}),
    ("GET", DOCS, None, {"a_im": "Incremental Feed"}),
]


@pytest.mark.parametrize("read", _SESSION_READS, ids=["point", "feed", "query", "ordered", "changes"])
async def test_a_session_reads_its_writes_at_a_follower(
    nodes: Nodes, read: tuple[str, str, Any, dict[str, str]]
) -> None:
    method, path, body, headers = read
    token = await nodes.put(n=2)
    status, _, response = await nodes.at_follower(method, path, body, **headers)
    assert status == 200  # without a token any state will do
    status, _, response = await nodes.at_follower(method, path, body, **headers, x_ms_session_token=token)
    assert (status, kind_of(response), nodes.following.refreshes) == (404, Kind.SESSION_BEHIND, 1)
    assert headers_of(response)["x-ms-substatus"] == "1002"
    weaker = {"x_ms_session_token": token, "x_ms_consistency_level": "Eventual"}
    status, _, _ = await nodes.at_follower(method, path, body, **headers, **weaker)
    assert status == 200
    nodes.reach()
    status, found, _ = await nodes.at_follower(method, path, body, **headers, x_ms_session_token=token)
    item = found if "n" in found else found["Documents"][0]
    assert (status, item["n"], nodes.following.refreshes) == (200, 2, 2)


async def test_a_token_of_a_range_that_the_follower_does_not_know_is_ahead(nodes: Nodes) -> None:
    await nodes.split()
    token = await nodes.put(n=2)
    assert not token.startswith("0:")
    for method, path, body, headers in _SESSION_READS:
        status, _, response = await nodes.at_follower(method, path, body, **headers, x_ms_session_token=token)
        assert (status, kind_of(response)) == (404, Kind.SESSION_BEHIND), path
    nodes.reach()
    status, found, _ = await nodes.at_follower("GET", f"{DOCS}/i", **OF_ITEM, x_ms_session_token=token)
    assert (status, found["n"]) == (200, 2)
    # The leader with its lease knows all ranges: a token that names others is of an earlier container.
    status, _, _ = await nodes.at_leader("GET", f"{DOCS}/i", **OF_ITEM, x_ms_session_token="99:1#7")
    assert status == 200


async def test_a_childs_token_that_is_ignored_is_noticed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted defect: a session whose token names only ranges that the node does not know would not see its write."""
    await nodes.split()
    token = await nodes.put(n=2)
    monkeypatch.setattr("armillary.doors.sql.consistency.check_known_ranges", lambda container, session: None)
    status, found, _ = await nodes.at_follower("GET", f"{DOCS}/i", **OF_ITEM, x_ms_session_token=token)
    assert (status, found["n"]) == (200, 1)


async def test_lists_of_ranges_do_not_go_back_at_a_follower(nodes: Nodes) -> None:
    await nodes.split()
    ranges = "/dbs/db/colls/c/pkranges"
    _, found, response = await nodes.at_leader("GET", ranges, a_im="Incremental Feed")
    etag, new_id = headers_of(response)["etag"], found["PartitionKeyRanges"][0]["id"]
    status, _, response = await nodes.at_follower("GET", ranges, a_im="Incremental Feed", if_none_match=etag)
    assert kind_of(response) is Kind.SESSION_BEHIND
    query = {**AS_QUERY, "x_ms_documentdb_partitionkeyrangeid": new_id}
    status, _, response = await nodes.at_follower("POST", DOCS, QUERY, **query)
    assert (status, kind_of(response)) == (503, Kind.STALE_HERE)
    nodes.reach()
    status, _, _ = await nodes.at_follower("POST", DOCS, QUERY, **query)
    assert status == 200
    status, _, _ = await nodes.at_follower("GET", ranges, a_im="Incremental Feed", if_none_match=etag)
    assert status == 304


async def test_change_feed_positions_ahead_of_a_follower_wait_for_it(nodes: Nodes) -> None:
    await nodes.put(n=2)
    _, _, response = await nodes.at_leader("GET", DOCS, a_im="Incremental Feed")
    position = {"a_im": "Incremental Feed", "if_none_match": headers_of(response)["etag"]}
    status, _, response = await nodes.at_follower("GET", DOCS, **position)
    assert (status, kind_of(response)) == (404, Kind.SESSION_BEHIND)
    nodes.reach()
    status, _, response = await nodes.at_follower("GET", DOCS, **position)
    assert status == 304
    assert headers_of(response)["etag"] == position["if_none_match"]


async def test_what_a_follower_does_not_find_in_the_catalog_is_asked_of_the_leader(nodes: Nodes) -> None:
    database = nodes.pair.leader.database("db")
    await containers.create_container(nodes.pair.leader, database, {"id": "new", "partitionKey": PK}, None)
    for method, path, body, headers in (
        ("GET", "/dbs/db/colls/new", None, {}),
        ("GET", "/dbs/db/colls/new/docs/i", None, OF_ITEM),
        ("POST", "/dbs/db/colls/new/docs", QUERY, AS_QUERY),
        ("POST", "/dbs/db/colls/new/docs", QUERY, {"x_ms_cosmos_is_query_plan_request": "True"}),
        ("GET", "/dbs/none", None, {}),
    ):
        status, _, response = await nodes.at_follower(method, path, body, **headers)
        assert (status, kind_of(response)) == (503, Kind.STALE_HERE), path
    status, _, response = await nodes.at_follower("GET", f"{DOCS}/none", **OF_ITEM)
    assert (status, kind_of(response)) == (404, Kind.NOT_FOUND), "an item's absence is told"


async def test_a_container_that_was_made_anew(nodes: Nodes) -> None:
    leader = nodes.pair.leader
    await containers.delete_container(leader, leader.container("db", "c"), None)
    made = await containers.create_container(leader, leader.database("db"), {"id": "c", "partitionKey": PK}, None)
    meant = {**OF_ITEM, "x_ms_cosmos_intended_collection_rid": made.rid_text}
    _, _, response = await nodes.at_follower("GET", f"{DOCS}/i", **meant)
    assert kind_of(response) is Kind.STALE_HERE
    nodes.reach()
    _, _, response = await nodes.at_follower("GET", f"{DOCS}/i", **meant)
    assert kind_of(response) is Kind.NOT_FOUND


@strong
async def test_strong_reads_at_a_follower_are_refused(nodes: Nodes) -> None:
    nodes.reach()
    for method, path, body, headers in (*_SESSION_READS, ("GET", "/dbs/db/colls/c", None, {})):
        _, _, response = await nodes.at_follower(method, path, body, **headers)
        assert kind_of(response) is Kind.STALE_HERE
        status, _, _ = await nodes.at_follower(method, path, body, **headers, x_ms_consistency_level="Session")
        assert status == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"x_ms_cosmos_read_consistency_strategy": "LatestCommitted"},
        {"x_ms_cosmos_hub_region_processing_only": "True"},
    ],
    ids=["strategy", "region"],
)
async def test_reads_that_ask_for_the_newest_state_are_not_a_followers(nodes: Nodes, asked: dict[str, str]) -> None:
    for method, path, body, headers in _SESSION_READS:
        _, _, response = await nodes.at_follower(method, path, body, **headers, **asked)
        assert kind_of(response) is Kind.STALE_HERE
        status, _, _ = await nodes.at_leader(method, path, body, **headers, **asked)
        assert status == 200
    nodes.leading.may_answer_strongly = False
    _, _, response = await nodes.at_leader("GET", f"{DOCS}/i", **OF_ITEM, **asked)
    assert kind_of(response) is Kind.UNAVAILABLE


async def test_strategies_of_reading(nodes: Nodes) -> None:
    async def charge(strategy: str, **more: str) -> tuple[int, str]:
        given = {"x_ms_cosmos_read_consistency_strategy": strategy}
        status, _, response = await nodes.at_leader("GET", f"{DOCS}/i", **OF_ITEM, **given, **more)
        return status, headers_of(response)["x-ms-request-charge"]

    assert await charge("Eventual") == await charge("Session") == (200, "1")
    assert await charge("LatestCommitted") == (200, "2"), "two replicas are asked, as for the level Strong"
    for strategy, more in (
        ("GlobalStrong", {}),
        ("latest", {}),
        ("Session", {"x_ms_consistency_level": "Session"}),
    ):
        assert (await charge(strategy, **more))[0] == 400
    token = await nodes.put(n=2)
    given = {"x_ms_session_token": token, "x_ms_cosmos_read_consistency_strategy": "Eventual"}
    status, found, _ = await nodes.at_follower("GET", f"{DOCS}/i", **OF_ITEM, **given)
    assert (status, found["n"]) == (200, 1), "no token counts"


@bounded
async def test_bounded_staleness_at_a_follower(nodes: Nodes) -> None:
    for method, path, body, headers in _SESSION_READS:
        nodes.following.staleness = Staleness(4.9, 100_000)
        status, _, _ = await nodes.at_follower(method, path, body, **headers)
        assert (status, nodes.following.refreshes) == (200, 0)
    nodes.following.staleness = Staleness(5.1, 0)
    _, _, response = await nodes.at_follower("GET", f"{DOCS}/i", **OF_ITEM)
    assert (kind_of(response), nodes.following.refreshes) == (Kind.STALE_HERE, 1)
    await nodes.put(n=2)
    nodes.reach()
    status, found, response = await nodes.at_follower("GET", f"{DOCS}/i", **OF_ITEM)
    assert (status, found["n"], nodes.following.refreshes) == (200, 2, 2)
    assert headers_of(response)["x-ms-request-charge"] == "2"


async def test_a_resource_token_that_the_follower_does_not_know_yet(nodes: Nodes) -> None:
    await nodes.at_leader("POST", "/dbs/db/users", {"id": "u"})
    _, made, _ = await nodes.at_leader(
        "POST", "/dbs/db/users/u/permissions", {"id": "p", "permissionMode": "Read", "resource": "dbs/db/colls/c"}
    )

    def request() -> Request:
        headers = {b"authorization": quote(made["_token"], safe="").encode(), b"x-ms-documentdb-partitionkey": b'["k"]'}
        return Request("GET", f"{DOCS}/i".encode(), headers, b"", False, "test")

    assert kind_of(await nodes.follower_door.answer(request())) is Kind.STALE_HERE
    assert nodes.follower_door.screen(request()) is None, "it is forwarded"
    await nodes.pair.step()
    assert (await nodes.follower_door.answer(request())).status == 200


# A node that leads.


@at_level
async def test_reads_of_a_leader_need_its_lease(nodes: Nodes) -> None:
    for method, path, body, headers in (*_SESSION_READS, ("GET", "/dbs/db/colls/c", None, {})):
        nodes.leading.may_answer_strongly = True
        status, _, response = await nodes.at_leader(method, path, body, **headers)
        assert status == 200
        if path.startswith(DOCS):
            charged = float(headers_of(response)["x-ms-request-charge"])
            weaker = {**headers, "x_ms_consistency_level": "Session"}
            _, _, response = await nodes.at_leader(method, path, body, **weaker)
            assert charged == pytest.approx(2 * float(headers_of(response)["x-ms-request-charge"]), abs=0.011)
        nodes.leading.may_answer_strongly = False
        status, _, response = await nodes.at_leader(method, path, body, **headers)
        assert (status, kind_of(response)) == (503, Kind.UNAVAILABLE)
        assert int(headers_of(response)["x-ms-retry-after-ms"]) > 0
        status, _, _ = await nodes.at_leader(method, path, body, **headers, x_ms_consistency_level="Eventual")
        assert status == 200
    for path in (f"{DOCS}/none", "/dbs/none", "/dbs/db/colls/none/docs/i"):
        status, _, response = await nodes.at_leader("GET", path, **OF_ITEM)
        assert kind_of(response) is Kind.UNAVAILABLE, "absence is a strong read"
    etag = nodes.pair.leader.container("db", "c").record.etag
    _, _, response = await nodes.at_leader("GET", "/dbs/db/colls/c", if_none_match=etag)
    assert kind_of(response) is Kind.UNAVAILABLE
    status, _, _ = await nodes.at_leader("GET", "/")
    assert status == 200


_READING = "function () { getContext().getResponse().setBody(1); }"
_BATCH = {"x_ms_cosmos_is_batch_request": "True"}
_ATOMIC = {**_BATCH, **OF_ITEM, "x_ms_cosmos_batch_atomic": "True"}
_BULK = {**_BATCH, "x_ms_documentdb_partitionkeyrangeid": "0", "x_ms_cosmos_batch_continue_on_error": "True"}
_READ_ITEM = {"operationType": "Read", "id": "i", "partitionKey": '["k"]'}
# Each is answered from what the node has in memory or in RocksDB, without a change of state.
_ANSWERED_FROM_STATE: list[tuple[str, str, Any, dict[str, str]]] = [
    ("POST", "/dbs", {"id": "db"}, {}),
    ("POST", "/dbs/db/colls", {"id": "c", "partitionKey": PK}, {}),
    ("POST", "/dbs/none/colls", {"id": "c", "partitionKey": PK}, {}),
    ("DELETE", "/dbs/none", None, {}),
    ("DELETE", "/dbs/db/colls/none", None, {}),
    ("DELETE", "/dbs/db/colls/c", None, {"if_match": '"other"'}),
    ("PUT", "/dbs/db/colls/none", {"id": "none", "partitionKey": PK}, {}),
    ("PUT", "/offers/none", {"content": {"offerThroughput": 400}}, {}),
    ("POST", "/dbs/db/users", {"id": "u"}, {}),
    ("PUT", "/dbs/db/users/none", {"id": "none"}, {}),
    ("DELETE", "/dbs/db/users/none", None, {}),
    ("POST", DOCS, ITEM, OF_ITEM),
    ("POST", "/dbs/db/colls/none/docs", ITEM, OF_ITEM),
    ("POST", DOCS, {"id": "j", "pk": "other"}, OF_ITEM),
    ("PUT", f"{DOCS}/none", {"id": "none", "pk": "k"}, OF_ITEM),
    ("PUT", f"{DOCS}/i", ITEM, {**OF_ITEM, "if_match": '"other"'}),
    ("PATCH", f"{DOCS}/none", [{"op": "set", "path": "/n", "value": 2}], OF_ITEM),
    ("PATCH", f"{DOCS}/i", {"condition": "FROM c WHERE c.n = 7", "operations": []}, OF_ITEM),
    ("DELETE", f"{DOCS}/none", None, OF_ITEM),
    ("DELETE", f"{DOCS}/i", None, {**OF_ITEM, "if_match": '"other"'}),
    ("POST", "/dbs/db/colls/c/operations/partitionkeydelete", None, {"x_ms_documentdb_partitionkey": '["none"]'}),
    ("POST", PROCEDURE, [], OF_ITEM),
    ("POST", "/dbs/db/colls/c/sprocs/none", [], OF_ITEM),
    ("POST", DOCS, [{"operationType": "Read", "id": "i"}], _ATOMIC),
    ("POST", DOCS, [{"operationType": "Read", "id": "none"}], _ATOMIC),
    ("POST", DOCS, [{"operationType": "Create", "resourceBody": ITEM}], _ATOMIC),
    ("POST", DOCS, [_READ_ITEM], _BULK),
    ("POST", DOCS, [{**_READ_ITEM, "id": "none"}], _BULK),
    ("POST", DOCS, [_READ_ITEM], {**_BULK, "x_ms_documentdb_partitionkeyrangeid": "77"}),
    ("POST", DOCS, ITEM, {**OF_ITEM, "x_ms_documentdb_pre_trigger_include": "none"}),
]


@pytest.mark.parametrize("number", range(len(_ANSWERED_FROM_STATE)))
async def test_a_deposed_leader_answers_no_request_that_may_write(nodes: Nodes, number: int) -> None:
    """Another node leads by now, and what it has written is not known here."""
    pair = nodes.pair
    await nodes.at_leader("POST", "/dbs/db/users", {"id": "u"})
    await nodes.at_leader("POST", "/dbs/db/colls/c/sprocs", {"id": "p", "body": _READING})
    log = MemoryLog(pair.server, SystemClock())
    assert await log.take(await log.leader(), "c", 0) is not None
    assert pair.leading_engine._commit is not None
    pair.leading_engine._commit._lease.end()
    nodes.leading.may_answer_strongly = False
    method, path, body, headers = _ANSWERED_FROM_STATE[number]
    status, _, response = await nodes.at_leader(method, path, body, **headers)
    assert kind_of(response) in (Kind.NOT_LEADER, Kind.UNAVAILABLE), (status, response.body)


async def test_a_leader_without_its_lease_writes_and_refuses_after_the_log_has_confirmed_it(nodes: Nodes) -> None:
    assert nodes.pair.leading_engine._commit is not None
    nodes.pair.leading_engine._commit._lease.end()
    nodes.leading.may_answer_strongly = False
    status, _, _ = await nodes.at_leader("POST", DOCS, {**ITEM, "id": "j"}, **OF_ITEM)
    assert status == 201
    before = nodes.pair.leading_engine.replica.position.place
    status, _, _ = await nodes.at_leader("POST", "/dbs", {"id": "db"})
    assert status == 409
    assert nodes.pair.leading_engine.replica.position.place != before


async def test_a_node_that_has_lost_the_cluster_answers_nothing(nodes: Nodes) -> None:
    nodes.following.is_silent = True
    for method, path, body, headers in (*_SESSION_READS, ("GET", "/", None, {}), ("POST", DOCS, ITEM, OF_ITEM)):
        status, _, response = await nodes.at_follower(method, path, body, **headers)
        assert (status, kind_of(response)) == (503, Kind.UNAVAILABLE)
    request = Request("GET", b"/dbs", {b"authorization": b"none"}, b"", False, "test")
    refused = await nodes.follower_door.answer(request)
    assert refused.status == 503, "the key may be a new one"
