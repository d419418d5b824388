"""The Table door on nodes of a cluster: levels, the account's copy (`-secondary`), and what reads cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.replicas import Pair
from support.tables import TableHouse, error_of, header, new_table, put
from support.topology import FakeTopology, following

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.topology import Staleness
from armillary.doors.table.call import TableSettings
from armillary.errors import Kind
from armillary.net.http import Refusal, Request, Response
from armillary.storage.memory import MemoryEngine

ENTITY = "/people(PartitionKey='p',RowKey='r')"
ROW = {"PartitionKey": "p", "RowKey": "r", "Age": 7}
COPY = {"Host": "localhost-secondary.table.test"}
READS = (ENTITY, "/people", "/people?$filter=Age%20eq%207", "/Tables", "/people?comp=acl")


class Nodes:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.leading, self.following = FakeTopology(), following()
        pair.leader.topology, pair.follower.topology = self.leading, self.following
        self.leader, self.follower = _house(pair.leader), _house(pair.follower)


def _house(account: Account) -> TableHouse:
    return TableHouse(account, MemoryEngine(), TableSettings())  # the engine is that of the account


def kind_of(response: Response) -> Kind | None:
    return response.kind if isinstance(response, Refusal) else None


@pytest.fixture
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    settings = AccountSettings(consistency=getattr(request, "param", "Session"))
    pair = await Pair.open(tmp_path, settings)
    await put(pair.leader, await new_table(pair.leader), ROW)
    await pair.step()
    yield Nodes(pair)
    await pair.close()


strong = pytest.mark.parametrize("nodes", ["Strong"], indirect=True)
bounded = pytest.mark.parametrize("nodes", ["BoundedStaleness"], indirect=True)


def _needs_leader(house: TableHouse, method: str, target: str, **headers: str) -> bool:
    given = {name.encode(): value.encode() for name, value in {"host": "localhost", **headers}.items()}
    return house.door.needs_leader(Request(method, target.encode(), given, b"", False, "test"))


async def test_reads_are_answered_by_any_node_and_writes_by_the_leader(nodes: Nodes) -> None:
    for target in READS:
        assert not _needs_leader(nodes.follower, "GET", target)
        assert (await nodes.follower.ask("GET", target)).status == 200
    for method, target in (("POST", "/people"), ("PUT", ENTITY), ("DELETE", ENTITY), ("POST", "/$batch")):
        assert _needs_leader(nodes.follower, method, target)
        refused = await nodes.follower.ask(method, target, ROW, {"If-Match": "*"} if method == "DELETE" else {})
        assert (refused.status, kind_of(refused)) == (503, Kind.NOT_LEADER)
    assert not _needs_leader(nodes.follower, "OPTIONS", "/people")
    assert not _needs_leader(nodes.follower, "GET", "/people?nonsense=1")
    assert kind_of(await nodes.follower.ask("GET", "/none")) is Kind.STALE_HERE
    assert kind_of(await nodes.follower.ask("GET", "/people(PartitionKey='p',RowKey='no')")) is Kind.NOT_FOUND


@strong
async def test_strong_tables_are_read_at_the_leader(nodes: Nodes) -> None:
    for target in READS:
        assert _needs_leader(nodes.follower, "GET", target)
        assert kind_of(await nodes.follower.ask("GET", target)) is Kind.STALE_HERE
        assert (await nodes.leader.ask("GET", target)).status == 200
    nodes.leading.may_answer_strongly = False
    for target in (*READS, "/people(PartitionKey='p',RowKey='no')", "/none"):
        refused = await nodes.leader.ask("GET", target)
        assert (refused.status, kind_of(refused)) == (503, Kind.UNAVAILABLE)
        assert header(refused, "x-ms-retry-after-ms") is not None


@bounded
async def test_tables_of_bounded_staleness(nodes: Nodes) -> None:
    assert kind_of(await nodes.follower.ask("GET", ENTITY)) is Kind.STALE_HERE
    nodes.following.staleness = Staleness(300, 100_000)
    assert (await nodes.follower.ask("GET", ENTITY)).status == 200
    assert nodes.following.refreshes == 1


@pytest.mark.parametrize("level", ["Strong", "BoundedStaleness", "Session", "Eventual"])
async def test_strong_and_bounded_reads_cost_double(level: str) -> None:
    house = await TableHouse.open(account_settings=AccountSettings(consistency=level))
    await put(house.account, await new_table(house.account), ROW)
    factor = 2 if level in ("Strong", "BoundedStaleness") else 1
    explained = {"x-armillary-explain": "true"}
    point = await house.ask("GET", ENTITY, headers=explained)
    assert header(point, "x-ms-request-charge") == str(factor)
    page = await house.ask("GET", "/people", headers=explained)
    assert float(header(page, "x-ms-request-charge") or 0) == pytest.approx(2.85 * factor, abs=0.01)
    missing = await house.ask("GET", "/people(PartitionKey='p',RowKey='no')")
    assert header(missing, "x-ms-request-charge") == str(factor)
    await house.close()


# The account's copy.


@strong
@pytest.mark.parametrize("is_path", [False, True], ids=["host", "path"])
async def test_the_copy_is_read_at_any_node_and_takes_no_writes(nodes: Nodes, is_path: bool) -> None:
    prefix, headers = ("/localhost-secondary", {}) if is_path else ("", COPY)
    plain = {name.lower(): value for name, value in headers.items()}
    for target in READS:
        assert not _needs_leader(nodes.follower, "GET", prefix + target, **plain)
        answer = await nodes.follower.ask("GET", prefix + target, headers=headers)
        assert answer.status == 200
    point = await nodes.follower.ask("GET", prefix + ENTITY, headers=headers)
    assert header(point, "x-ms-request-charge") == "1", "it is an eventual read"
    for house in (nodes.follower, nodes.leader):
        for method, target in (("POST", "/people"), ("PUT", ENTITY), ("POST", "/Tables")):
            assert not _needs_leader(house, method, prefix + target, **plain)
            refused = await house.ask(method, prefix + target, ROW, headers)
            assert error_of(refused)[:2] == (403, "InsufficientAccountPermissions")


async def test_statistics_tell_how_far_the_node_has_come(nodes: Nodes) -> None:
    target = "/?restype=service&comp=stats"
    assert not _needs_leader(nodes.follower, "GET", target)
    before = (await nodes.follower.ask("GET", target, headers=COPY)).body
    assert b"<Status>unavailable</Status>" in before and b"<LastSyncTime" in before
    nodes.following.reached_us = 784_111_777_000_000
    after = (await nodes.follower.ask("GET", target, headers=COPY)).body
    assert b"<Status>live</Status><LastSyncTime>Sun, 06 Nov 1994 08:49:37 GMT</LastSyncTime>" in after


async def test_a_node_that_has_lost_the_cluster_answers_nothing(nodes: Nodes) -> None:
    nodes.following.is_silent = True
    for target in READS:
        assert (await nodes.follower.ask("GET", target)).status == 503
    refused = await nodes.follower.send("GET", b"/people", {b"host": b"localhost"})
    assert refused.status == 503


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/Tables"),
        ("DELETE", "/Tables('none')"),
        ("POST", "/people"),
        ("POST", "/none"),
        ("PUT", "/people(PartitionKey='p',RowKey='no')"),
        ("PUT", "/?restype=service&comp=properties"),
    ],
)
async def test_a_leader_without_its_lease_asks_the_log_first(nodes: Nodes, method: str, target: str) -> None:
    assert nodes.pair.leading_engine._commit is not None
    nodes.pair.leading_engine._commit._lease.end()
    nodes.leading.may_answer_strongly = False
    before = nodes.pair.leading_engine.replica.position.place
    body: object = (
        {"TableName": "people"} if target == "/Tables" else {**ROW, "RowKey": "no" if "no" in target else "r"}
    )
    answer = await nodes.leader.ask(method, target, body, {"If-Match": "*"} if method == "PUT" else {})
    assert 400 <= answer.status < 500
    assert nodes.pair.leading_engine.replica.position.place != before
