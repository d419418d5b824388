"""A node of a cluster as a member of a replica set: what hello and the diagnostics tell, judged by PyMongo's own
classes for topologies and their selection of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo.hello import Hello
from pymongo.read_preferences import Nearest, Primary, Secondary, SecondaryPreferred
from pymongo.server_description import ServerDescription
from pymongo.server_type import SERVER_TYPE
from pymongo.synchronous.settings import TopologySettings
from pymongo.topology_description import (
    TOPOLOGY_TYPE,
    TopologyDescription,
    updated_topology_description,
)
from support.mongo_house import MongoHouse, mongo_at
from support.mongo_set import SetTopology, member

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.storage.memory import MemoryEngine

SECOND_US = 1_000_000


class Node:
    """A door whose topology the test sets."""

    def __init__(self, house: MongoHouse, topology: SetTopology) -> None:
        self.house, self.topology = house, topology

    @classmethod
    async def open(cls, name: str, leader: str | None) -> Node:
        account = await Account.open(MemoryEngine(), VirtualClock())
        topology = SetTopology(name, leader)
        account.topology = topology
        return cls(mongo_at(account), topology)

    async def hello(self, **fields: Any) -> dict[str, Any]:
        return await self.house.ask({"hello": 1, **fields}, database="admin")


@pytest.fixture
async def nodes() -> AsyncIterator[dict[str, Node]]:
    opened = {name: await Node.open(name, "a") for name in "abc"}
    yield opened
    for node in opened.values():
        await node.house.close()


def described(name: str, answer: dict[str, Any]) -> ServerDescription:
    """As a driver keeps it, which checked all members at the same moment."""
    decoded = bson.decode(bson.encode(answer))
    return ServerDescription((f"{name}.example", 27017), Hello(decoded), 0.01)


def new_topology(*seeds: str) -> TopologyDescription:
    settings = TopologySettings(seeds=[(f"{each}.example", 27017) for each in seeds], replica_set_name="globaldb")
    found: dict[tuple[str, int | None], ServerDescription] = {
        address: ServerDescription(address) for address in settings.seeds
    }
    return TopologyDescription(TOPOLOGY_TYPE.ReplicaSetNoPrimary, found, "globaldb", None, None, settings)


async def discovered(nodes: dict[str, Node]) -> TopologyDescription:
    known = new_topology("b")
    for name in ("b", "a", "c"):
        known = updated_topology_description(known, described(name, await nodes[name].hello()))
    return known


def names_of(found: list[ServerDescription]) -> list[str]:
    return sorted(each.address[0].partition(".")[0] for each in found)


# hello.


async def test_leader_is_primary_and_the_others_are_secondaries(nodes: dict[str, Node]) -> None:
    answers = {name: await node.hello() for name, node in nodes.items()}
    hosts = ["a.example:27017", "b.example:27017", "c.example:27017"]
    assert all(each["hosts"] == hosts and each["setName"] == "globaldb" for each in answers.values())
    assert all(each["primary"] == hosts[0] for each in answers.values())
    assert [each["me"] for each in answers.values()] == hosts
    assert [each["isWritablePrimary"] for each in answers.values()] == [True, False, False]
    assert [each["secondary"] for each in answers.values()] == [False, True, True]
    assert answers["b"]["tags"] == {"region": "us", "node": "b"}
    assert answers["a"]["electionId"] == ObjectId("7fffffff0000000000000003") and "electionId" not in answers["b"]
    old = await nodes["b"].house.ask({"isMaster": 1}, database="admin")
    assert old["ismaster"] is False and "isWritablePrimary" not in old


async def test_driver_finds_the_set_from_one_secondary(nodes: dict[str, Node]) -> None:
    known = await discovered(nodes)
    assert known.topology_type == TOPOLOGY_TYPE.ReplicaSetWithPrimary
    assert names_of(known.known_servers) == ["a", "b", "c"]
    assert names_of(known.apply_selector(Primary())) == ["a"]
    assert names_of(known.apply_selector(Secondary())) == ["b", "c"]
    assert names_of(known.apply_selector(Secondary(tag_sets=[{"node": "c"}]))) == ["c"]
    assert names_of(known.apply_selector(Nearest(tag_sets=[{"region": "us"}]))) == ["b", "c"]
    assert names_of(known.apply_selector(SecondaryPreferred(tag_sets=[{"region": "moon"}]))) == ["a"]


async def test_secondary_that_is_far_behind_is_not_selected_with_maximum_staleness(nodes: dict[str, Node]) -> None:
    now_us = int(nodes["a"].house.account.clock.now_s() * SECOND_US)
    for name, behind_s in (("a", 0), ("b", 5), ("c", 200)):
        nodes[name].topology.reached = now_us - behind_s * SECOND_US
    known = await discovered(nodes)
    assert names_of(known.apply_selector(Secondary(max_staleness=100))) == ["b"]
    assert names_of(known.apply_selector(Secondary())) == ["b", "c"]


async def test_driver_follows_the_new_leader_and_takes_the_old_one_for_stale(nodes: dict[str, Node]) -> None:
    known = await discovered(nodes)
    before = await nodes["a"].hello()
    for name in "bc":
        nodes[name].topology.change(leader="b")
    known = updated_topology_description(known, described("b", await nodes["b"].hello()))
    assert names_of(known.apply_selector(Primary())) == ["b"]
    # The deposed leader has not noticed yet: its epoch is lower.
    known = updated_topology_description(known, described("a", {**before, **await nodes["a"].hello()}))
    assert names_of(known.apply_selector(Primary())) == ["b"]
    assert known.server_descriptions()["a.example", 27017].server_type == SERVER_TYPE.Unknown


async def test_set_version_is_that_of_the_epoch(nodes: dict[str, Node]) -> None:
    node = nodes["a"]
    version = (await node.hello())["setVersion"]
    node.topology.change(leader="a", members=[member("a"), member("b")])
    answer = await node.hello()
    assert answer["hosts"] == ["a.example:27017", "b.example:27017"]
    other = nodes["b"]
    other.topology.change(leader="b")
    assert (await other.hello())["setVersion"] > answer["setVersion"] >= version


async def test_driver_keeps_a_primary_whose_door_is_made_anew_in_its_epoch(nodes: dict[str, Node]) -> None:
    """As by a leader that was cut off, followed for a moment, and leads again before another node took over."""
    node = nodes["a"]
    known = await discovered(nodes)
    for members in ("abc", "ab", "abc"):
        node.topology.change(leader="a", members=[member(name) for name in members])
        known = updated_topology_description(known, described("a", await node.hello()))
    again = Node(mongo_at(node.house.account), node.topology)
    node.topology.change(leader="a", members=[member(name) for name in "abc"])
    known = updated_topology_description(known, described("a", await again.hello()))
    assert names_of(known.apply_selector(Primary())) == ["a"]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("mongodb://db.example:10255", "db.example:10255"),
        ("mongodb://user:secret@db.example:10255/?tls=true", "db.example:10255"),
        ("mongodb://db.example", "db.example:27017"),
        ("mongodb://[::1]:10255", "[::1]:10255"),
        ("mongodb://[::1]", "[::1]:27017"),
        ("db.example:10255", "db.example:10255"),
    ],
)
async def test_hosts_are_taken_from_urls(nodes: dict[str, Node], url: str, host: str) -> None:
    nodes["a"].topology.change(leader="a", members=[member("a", url=url)])
    answer = await nodes["a"].hello()
    assert (answer["hosts"], answer["me"], answer["primary"]) == ([host], host, host)


async def test_members_without_a_mongodb_door_are_no_hosts(nodes: dict[str, Node]) -> None:
    without = member("b").__class__("b", "us", {"sql": "https://b.example:8081"}, True)
    nodes["a"].topology.change(leader="a", members=[member("a"), without])
    assert (await nodes["a"].hello())["hosts"] == ["a.example:27017"]
    nodes["b"].topology.change(leader="b", members=[without])
    answer = await nodes["b"].hello()
    assert answer["me"] == answer["primary"] == "127.0.0.1:10255"  # the address that the client has used


async def test_no_primary_is_named_while_no_node_leads(nodes: dict[str, Node]) -> None:
    nodes["b"].topology.change(leader=None)
    answer = await nodes["b"].hello()
    assert "primary" not in answer and answer["secondary"] is True


async def test_silent_follower_is_neither(nodes: dict[str, Node]) -> None:
    before = await nodes["b"].hello()
    nodes["b"].topology.silent = True
    answer = await nodes["b"].hello()
    assert Hello(answer).server_type == SERVER_TYPE.RSOther
    assert answer["topologyVersion"]["counter"] > before["topologyVersion"]["counter"]


# Waiting for changes.


async def test_awaitable_hello_is_answered_when_the_topology_changes(nodes: dict[str, Node]) -> None:
    node = nodes["b"]
    known = (await node.hello())["topologyVersion"]
    assert known["counter"] == Int64(node.topology.version)
    waiting = asyncio.ensure_future(node.hello(topologyVersion=known, maxAwaitTimeMS=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    node.topology.change(leader="b")
    answer = await waiting
    assert answer["isWritablePrimary"] is True and answer["topologyVersion"]["counter"] > known["counter"]


async def test_awaitable_hello_is_answered_when_the_node_falls_silent(nodes: dict[str, Node]) -> None:
    node = nodes["b"]
    known = (await node.hello())["topologyVersion"]
    waiting = asyncio.ensure_future(node.hello(topologyVersion=known, maxAwaitTimeMS=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    node.topology.silent = True
    await node.house.door.look_after()
    assert (await waiting)["secondary"] is False


async def test_awaitable_hello_ends_with_its_limit(nodes: dict[str, Node]) -> None:
    known = (await nodes["b"].hello())["topologyVersion"]
    answer = await nodes["b"].hello(topologyVersion=known, maxAwaitTimeMS=1)
    assert answer["topologyVersion"] == known


async def test_awaitable_hello_with_an_older_version_is_answered_at_once(nodes: dict[str, Node]) -> None:
    known = (await nodes["b"].hello())["topologyVersion"]
    older = {**known, "counter": Int64(known["counter"] - 1)}
    assert (await nodes["b"].hello(topologyVersion=older, maxAwaitTimeMS=60_000))["topologyVersion"] == known


# Behind a load balancer.


async def test_load_balanced_clients_are_told_the_service_of_the_leader(nodes: dict[str, Node]) -> None:
    first = await nodes["a"].hello(loadBalanced=True)
    assert isinstance(first["serviceId"], ObjectId)
    assert Hello(first).server_type == SERVER_TYPE.LoadBalancer
    again = await nodes["a"].house.ask(
        {"hello": 1, "loadBalanced": True}, database="admin", client=nodes["a"].house.visitor()
    )
    assert again["serviceId"] == first["serviceId"]
    assert "serviceId" not in await nodes["a"].hello()
    assert "serviceId" not in await nodes["b"].hello(loadBalanced=True)


# Diagnostics.


async def test_status_shows_each_member(nodes: dict[str, Node]) -> None:
    topology = nodes["b"].topology
    topology.change(leader="a", members=[member("a"), member("b"), member("c", is_alive=False)])
    answer = await nodes["b"].house.ask({"replSetGetStatus": 1}, database="admin")
    assert (answer["set"], answer["myState"], answer["term"]) == ("globaldb", 2, 3)
    shown = [(each["name"], each["stateStr"], each["health"], each.get("self")) for each in answer["members"]]
    assert shown == [
        ("a.example:27017", "PRIMARY", 1.0, None),
        ("b.example:27017", "SECONDARY", 1.0, True),
        ("c.example:27017", "(not reachable/healthy)", 0.0, None),
    ]
    own = answer["members"][1]
    assert int(own["optimeDate"]) * 1000 == topology.reached and own["optime"]["t"] == 3
    topology.silent = True
    answer = await nodes["b"].house.ask({"replSetGetStatus": 1}, database="admin")
    assert answer["code"] == 13436


async def test_configuration_and_server_status(nodes: dict[str, Node]) -> None:
    config = (await nodes["b"].house.ask({"replSetGetConfig": 1}, database="admin"))["config"]
    assert [each["host"] for each in config["members"]] == ["a.example:27017", "b.example:27017", "c.example:27017"]
    assert config["members"][2]["tags"] == {"region": "us", "node": "c"}
    assert config["version"] == (await nodes["b"].hello())["setVersion"]
    shown = (await nodes["b"].house.ask({"serverStatus": 1}))["repl"]
    assert (shown["secondary"], shown["isWritablePrimary"]) == (True, False)
    assert (shown["primary"], shown["me"]) == ("a.example:27017", "b.example:27017")
