"""What an operator sees of placement and changes, at any node, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.peers import Certificate, two_nodes
from support.placed_cluster import GB, PlacedCluster, SimulatedNode
from support.placement_settings import KeptSettings

from armillary.account.cluster_operations import PlacementOperations
from armillary.clock import VirtualClock
from armillary.cluster.placement.balancer import Balancer
from armillary.cluster.placement.operations import Placement
from armillary.errors import Failure, Kind


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Cluster:
    """`a` leads log 0 and has the balancer, which is not running; `b` is another node."""

    def __init__(self, cluster: PlacedCluster, balancer: Balancer, placements: dict[str, PlacementOperations]) -> None:
        self.placed = cluster
        self.balancer = balancer
        self.placements = placements
        self.leader = "a"

    async def carry_out(self) -> None:
        while await self.balancer.round():
            await turns()


@pytest.fixture
async def cluster(certificate: Certificate) -> AsyncIterator[Cluster]:
    clock = VirtualClock()
    placed = PlacedCluster({name: SimulatedNode() for name in "abcd"}, 4)
    placed.logs[1].size_bytes = 3 * GB
    placed.logs[1].units_per_s = 1_250.0
    balancer = Balancer(KeptSettings(), placed, clock)
    peers = await two_nodes(clock, certificate)
    found = Cluster(placed, balancer, {})
    for name, each in zip("ab", peers, strict=True):
        found.placements[name] = Placement(
            name,
            each,
            lambda: found.leader,
            lambda name=name: balancer if found.leader == name == "a" else None,  # type: ignore[misc]
            clock,
        )
    yield found
    for each in peers:
        await each.close()


@pytest.mark.parametrize("name", ["a", "b"])
async def test_the_plan_is_shown_at_every_node(cluster: Cluster, name: str) -> None:
    content = await cluster.placements[name].show()
    assert (content["replicas"], content["copies"], content["balancing"]) == (3, 2, True)
    assert content["logs"][1] == {
        "log": 1,
        "leader": "a",
        "chosenLeader": None,
        "replicas": [{"node": "a", "whole": True, "lagRows": 0}],
        "unitsPerSecond": 1250.0,
        "bytes": 3 * GB,
        "partitions": 1,
    }
    assert [node["name"] for node in content["nodes"]] == list("abcd")
    assert content["steps"][0] == {
        "action": "carry",
        "log": 1,
        "node": "b",
        "cause": "replicas",
        "text": "copy log 1 to b",
        "reason": "log 1 has 1 of 3 replicas",
        "bytes": 3 * GB,
    }
    assert content["copiedBytes"] >= 6 * GB
    await cluster.carry_out()
    content = await cluster.placements[name].show()
    assert content["steps"] == []
    assert {each["text"] for each in content["done"]} >= {"copy log 1 to b"}
    assert all(each["failure"] is None for each in content["done"])


async def test_a_node_is_chosen_to_lead_a_log(cluster: Cluster) -> None:
    await cluster.carry_out()
    chosen = next(name for name in "abcd" if name not in cluster.placed.logs[2].replicas)
    content = await cluster.placements["b"].move(2, chosen)
    assert [step["log"] for step in content["steps"]] == [2] * len(content["steps"])
    assert content["logs"][2]["chosenLeader"] == chosen
    await cluster.carry_out()
    assert cluster.placed.logs[2].leader == chosen
    content = await cluster.placements["b"].move(2, "")
    assert content["logs"][2]["chosenLeader"] is None


async def test_a_node_is_emptied_and_used_again(cluster: Cluster) -> None:
    await cluster.carry_out()
    await cluster.placements["b"].empty("b", is_emptied=True)
    await cluster.carry_out()
    assert cluster.placed.carried("b") == set()
    with pytest.raises(Failure, match="'b' is to be emptied"):
        await cluster.placements["a"].move(1, "b")
    content = await cluster.placements["a"].empty("b", is_emptied=False)
    assert [node["emptied"] for node in content["nodes"]] == [False] * 4


async def test_rules_are_changed_one_by_one(cluster: Cluster) -> None:
    await cluster.placements["b"].change_rules(replicas=2, is_balancing=None, copies=None)
    content = await cluster.placements["b"].change_rules(replicas=None, is_balancing=False, copies=5)
    assert (content["replicas"], content["copies"], content["balancing"]) == (2, 5, False)
    assert content["steps"] == []


@pytest.mark.parametrize(
    ("verb", "arguments", "kind", "text"),
    [
        ("move", (0, "b"), Kind.BAD_REQUEST, "cluster failover NODE"),
        ("move", (9, "b"), Kind.BAD_REQUEST, "There is no log 9: the cluster has logs 0 to 3."),
        ("move", (1, "z"), Kind.NOT_FOUND, "The cluster has no node 'z'."),
        ("move", (1, "c"), Kind.CONFLICT, "The node 'c' is gone: it cannot lead."),
        ("move", (1, "d"), Kind.CONFLICT, "The node 'd' is drained: it cannot lead."),
        ("empty", ("z",), Kind.NOT_FOUND, "The cluster has no node 'z'."),
        ("empty", ("b",), Kind.CONFLICT, "each log has 3 replicas, and there would be 1 live nodes for them"),
    ],
)
async def test_refusals(cluster: Cluster, verb: str, arguments: Any, kind: Kind, text: str) -> None:
    cluster.placed.kill("c")
    cluster.placed.nodes["d"].is_drained = True
    for placement in cluster.placements.values():
        with pytest.raises(Failure) as refused:
            await (placement.move(*arguments) if verb == "move" else placement.empty(*arguments, is_emptied=True))
        assert refused.value.kind is kind
        assert text in refused.value.message


async def test_while_no_node_leads_log_0_it_is_waited_for(cluster: Cluster) -> None:
    cluster.leader = ""
    asking = asyncio.create_task(cluster.placements["b"].show())
    clock = cluster.placements["b"]._clock  # type: ignore[attr-defined]
    for _ in range(10):
        await turns()
        clock.advance(0.2)
    assert not asking.done()
    cluster.leader = "a"
    clock.advance(0.2)
    assert (await asking)["replicas"] == 3
