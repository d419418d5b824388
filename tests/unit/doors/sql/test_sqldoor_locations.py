"""The account document of a cluster: what it tells of regions and endpoints, and what the Python client's own cache of
locations makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from azure.cosmos._location_cache import LocationCache
from azure.cosmos._request_object import RequestObject
from azure.cosmos.documents import ConnectionPolicy, DatabaseAccount, _OperationType
from azure.cosmos.http_constants import ResourceType
from support.caller import KEY, Caller
from support.topology import FakeTopology, member

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.topology import Member
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

EAST, WEST, NORTH = "East US", "West US", "North Europe"
MEMBERS = [member("a", EAST), member("b", EAST), member("c", WEST), member("d", WEST), member("e", NORTH)]
REGIONS = (EAST, NORTH, WEST)  # by failover priority

Document = dict[str, Any]


class Desk:
    def __init__(self, account: Account) -> None:
        self.account = account
        self.ask = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), VirtualClock())

    async def document(self, topology: FakeTopology | None, **headers: str) -> Document:
        self.account.topology = topology
        status, found, _ = await self.ask("GET", "/", **headers)
        assert status == 200
        document: Document = found
        return document


async def _open(settings: AccountSettings) -> AsyncIterator[Desk]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock(), settings)
    yield Desk(account)
    await account.close()
    await engine.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async for each in _open(AccountSettings()):
        yield each


def seen_by(name: str, leader: str | None = "b", members: Sequence[Member] = MEMBERS) -> FakeTopology:
    """The cluster as a node sees it."""
    here = next(each for each in members if each.name == name)
    found = next((each for each in members if each.name == leader), None)
    return FakeTopology(name, here.region, members=members, leader=found, regions=REGIONS)


def places(document: Document, which: str) -> list[tuple[str, str]]:
    return [(each["name"], each["databaseAccountEndpoint"]) for each in document[which]]


def at(name: str, scheme: str = "http") -> str:
    return f"{scheme}://{name}.test:8081/"


async def test_regions_and_endpoints(desk: Desk) -> None:
    document = await desk.document(seen_by("a"))
    assert places(document, "writableLocations") == [(EAST, at("a"))], "this node's: it forwards to the leader"
    wanted = [(EAST, at("a")), (NORTH, at("e")), (WEST, at("c"))]
    assert places(document, "readableLocations") == wanted, "this node's, and the first of each other region"
    document = await desk.document(seen_by("d"))
    assert places(document, "writableLocations") == [(EAST, at("d"))], "also in another region"
    assert places(document, "readableLocations") == [(EAST, at("a")), (NORTH, at("e")), (WEST, at("d"))]
    assert document["enableMultipleWriteLocations"] is False
    assert document["userReplicationPolicy"]["maxReplicasetSize"] == len(MEMBERS)
    assert document["userReplicationPolicy"]["asyncReplication"] is True


async def test_nodes_that_are_gone_are_not_named(desk: Desk) -> None:
    members = [replace(each, is_alive=each.name not in ("a", "e")) for each in MEMBERS]
    document = await desk.document(seen_by("c", members=members))
    assert places(document, "readableLocations") == [(EAST, at("b")), (WEST, at("c"))]


async def test_without_a_leader_the_write_region_is_named(desk: Desk) -> None:
    document = await desk.document(seen_by("c", leader=None))
    assert places(document, "writableLocations") == [(EAST, at("c"))]
    document = await desk.document(seen_by("b", leader=None))
    assert places(document, "writableLocations") == [(EAST, at("b"))]
    gone = [replace(each, is_alive=each.region != EAST) for each in MEMBERS]
    document = await desk.document(seen_by("c", leader=None, members=gone))
    assert places(document, "writableLocations") == [(EAST, at("c"))], "it forwards, once there is a leader"
    assert places(document, "readableLocations") == [(NORTH, at("e")), (WEST, at("c"))]


async def test_a_leader_that_does_not_answer_is_not_named(desk: Desk) -> None:
    """It is known to be gone before its announcement is old."""
    topology = seen_by("c", leader="a")
    assert topology.leader is not None
    topology.leader = replace(topology.leader, is_alive=False)
    document = await desk.document(topology)
    assert places(document, "writableLocations") == [(EAST, at("c"))], "it forwards to the next leader"
    assert places(document, "readableLocations")[0] == (EAST, at("b"))


async def test_before_nodes_have_announced_themselves_the_client_stays_where_it_is(desk: Desk) -> None:
    document = await desk.document(FakeTopology(region=WEST, members=(), regions=()))
    assert (
        places(document, "writableLocations") == places(document, "readableLocations") == [(WEST, "http://localhost/")]
    )
    nameless = [replace(MEMBERS[0], addresses={}), *MEMBERS[1:]]
    document = await desk.document(seen_by("a", members=nameless))
    assert places(document, "readableLocations")[0] == (EAST, "http://localhost/")


async def test_after_a_failover_the_leaders_region_is_the_write_region(desk: Desk) -> None:
    document = await desk.document(seen_by("a", leader="d"))
    assert places(document, "writableLocations") == [(WEST, at("a"))]
    assert [name for name, _ in places(document, "readableLocations")] == [WEST, EAST, NORTH]


async def test_endpoints_have_the_scheme_of_the_client(desk: Desk) -> None:
    document = await desk.document(seen_by("a"), x_forwarded_proto="https")
    assert places(document, "writableLocations") == [(EAST, at("a", "https"))]
    named = [replace(MEMBERS[0], addresses={"sql": "https://[2001:db8::1]:443"})]
    document = await desk.document(seen_by("a", "a", named))
    assert places(document, "readableLocations") == [(EAST, "http://[2001:db8::1]:443/")]


async def test_a_single_server_names_its_region_and_the_host_that_the_client_used() -> None:
    async for desk in _open(AccountSettings(region="Under the desk", consistency="BoundedStaleness", staleness_s=7)):
        document = await desk.document(None)
        only = [("Under the desk", "http://localhost/")]
        assert places(document, "writableLocations") == places(document, "readableLocations") == only
        assert document["userReplicationPolicy"]["maxReplicasetSize"] == 1
        assert document["userReplicationPolicy"]["asyncReplication"] is False
        assert document["userConsistencyPolicy"] == {
            "defaultConsistencyLevel": "BoundedStaleness",
            "maxStalenessPrefix": 100_000,
            "maxIntervalInSeconds": 7,
        }


# azure-cosmos.


def cache_of(document: Document, *preferred: str) -> Any:
    policy = ConnectionPolicy()
    policy.PreferredLocations = list(preferred)
    cache: Any = LocationCache("http://lb.test/", policy)
    account = DatabaseAccount()
    account._WritableLocations = document["writableLocations"]
    account._ReadableLocations = document["readableLocations"]
    account._EnableMultipleWritableLocations = document["enableMultipleWriteLocations"]
    cache.perform_on_database_account_read(account)
    return cache


def routed(cache: Any, operation: str) -> str:
    request = RequestObject(ResourceType.Document, operation, {})
    return str(cache.resolve_service_endpoint(request))


async def test_the_client_routes_by_its_preferred_locations(desk: Desk) -> None:
    document = await desk.document(seen_by("a"))
    cache = cache_of(document, WEST, NORTH)
    assert routed(cache, _OperationType.Read) == at("c")
    assert routed(cache, _OperationType.Create) == at("a"), "there is one write region"
    assert cache.get_ordered_read_locations() == [EAST, NORTH, WEST]
    cache.mark_endpoint_unavailable_for_read(at("c"), True)
    assert routed(cache, _OperationType.Read) == at("e")
    assert routed(cache_of(document, "westus"), _OperationType.Read) == at("c"), "names are compared without spaces"
    assert routed(cache_of(document), _OperationType.Read) == at("a")


async def test_the_client_follows_a_failover(desk: Desk) -> None:
    cache = cache_of(await desk.document(seen_by("a")), EAST, WEST)
    assert routed(cache, _OperationType.Create) == at("a")
    after = cache_of(await desk.document(seen_by("a", leader="d")), EAST, WEST)
    assert routed(after, _OperationType.Create) == routed(after, _OperationType.Read) == at("a")
    assert after.get_ordered_write_locations() == [WEST]
