"""Plans of placement: what they lead to, and what holds after each of their steps."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from support.placed_cluster import GB, PlacedCluster, SimulatedNode, disturb, random_cluster

from armillary.cluster.placement.planner import Plan, plan
from armillary.cluster.placement.record import PlacementRecord, PlacementRules
from armillary.cluster.placement.steps import Action, Cause

RULES = PlacementRecord()


def nodes_of(*regions: str, disk_bytes: int = 1_000 * GB) -> dict[str, SimulatedNode]:
    return {f"n{number}": SimulatedNode(region, disk_bytes) for number, region in enumerate(regions)}


def carry_out(cluster: PlacedCluster, record: PlacementRecord = RULES) -> Plan:
    """Carry a plan out, step by step. Never are there fewer good replicas of a log than before or than are wanted."""
    found = plan(cluster.state(), record, steps_max=10_000)
    for step in found.steps:
        before = _good(cluster, step.log, record)
        cluster.do(step)
        assert _good(cluster, step.log, record) >= min(before, record.rules.replicas), step
        assert cluster.free_bytes(step.node) >= 0 or step.action is not Action.CARRY, step
    left = plan(cluster.state(), record)
    assert left.steps == ()
    assert left.unmet == found.unmet
    return found


def _good(cluster: PlacedCluster, log: int, record: PlacementRecord) -> int:
    return sum(
        is_whole and cluster.nodes[node].is_alive and node not in record.emptied
        for node, is_whole in cluster.logs[log].replicas.items()
    )


def test_a_new_cluster_is_spread() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu", "eu", "eu"), 13)
    found = carry_out(cluster)
    assert found.unmet == ()
    for number in range(1, 13):
        assert len(cluster.logs[number].replicas) == 3
    assert all(5 <= len(cluster.carried(name)) <= 7 for name in cluster.nodes)
    assert sorted(len(cluster.led(name)) for name in cluster.nodes) in ([2, 2, 2, 2, 2, 3], [2] * 5 + [3])
    assert cluster.logs[0].leader == "n0", "the leader of the catalog stays"


def test_few_nodes_carry_what_they_can() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu"), 4)
    found = carry_out(cluster)
    assert all(len(cluster.logs[number].replicas) == 2 for number in range(1, 4))
    assert found.unmet == tuple(
        f"Log {number} has 2 of 3 replicas: no other live node with room is there." for number in range(1, 4)
    )


def test_replicas_are_spread_over_regions_and_leaders_are_in_the_first_one() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "us", "us", "asia"), 7, regions=("us", "eu", "asia"))
    carry_out(cluster)
    for number in range(1, 7):
        regions = sorted(cluster.nodes[node].region for node in cluster.logs[number].replicas)
        assert regions == ["asia", "eu", "us"]
    assert {cluster.nodes[log.leader].region for log in cluster.logs.values()} == {"us"}


def test_the_region_of_leaders_has_a_replica_of_each_log() -> None:
    cluster = PlacedCluster(nodes_of("eu", "us", "asia", "us"), 5, regions=("asia",))
    carry_out(cluster, replace(RULES, rules=PlacementRules(replicas=2)))
    assert {log.leader for log in cluster.logs.values()} == {"n2"}
    assert all("n2" in log.replicas for log in cluster.logs.values())


def test_a_node_that_joins_gets_its_part() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu"), 9)
    for log in cluster.logs.values():
        log.size_bytes, log.units_per_s = 10 * GB, 1_000.0
    carry_out(cluster)
    assert len(cluster.carried("n0")) == 8
    cluster.add("n3", SimulatedNode())
    copied = cluster.copied_bytes
    found = carry_out(cluster)
    assert len(cluster.carried("n3")) in (5, 6)
    assert len(cluster.led("n3")) in (1, 2, 3)
    assert cluster.copied_bytes - copied == found.copied_bytes == 10 * GB * len(cluster.carried("n3")), "no detours"
    causes = {step.cause for step in found.steps}
    assert causes <= {Cause.LOAD, Cause.REPLICAS}


def test_an_emptied_node_ends_empty() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 9)
    carry_out(cluster)
    found = carry_out(cluster, RULES.emptying("n1", True))
    assert cluster.carried("n1") == set()
    assert cluster.led("n1") == set()
    assert found.unmet == ()
    assert all(len(cluster.logs[number].replicas) == 3 for number in range(1, 9))
    carry_out(cluster)
    assert len(cluster.carried("n1")) >= 5, "it is used again"


def test_a_node_is_not_emptied_below_the_number_of_replicas() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu"), 3)
    carry_out(cluster)
    found = carry_out(cluster, RULES.emptying("n0", True))
    assert cluster.carried("n0") == {1, 2}
    assert cluster.led("n0") == set()
    assert found.unmet[0] == "n0 cannot be emptied of 1, 2: no other node may have as many replicas."


def test_a_drained_node_leads_nothing_and_keeps_its_replicas() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 9)
    carry_out(cluster)
    carried = cluster.carried("n2")
    cluster.nodes["n2"].is_drained = True
    found = carry_out(cluster)
    assert cluster.led("n2") == set()
    assert cluster.carried("n2") == carried
    assert {step.action for step in found.steps} == {Action.HAND_OVER}


def test_replicas_of_a_node_that_is_gone_are_made_elsewhere_after_a_while() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu", "eu"), 11)
    carry_out(cluster)
    lost = cluster.carried("n3")
    cluster.kill("n3", silent_s=60.0)
    assert all(step.action is Action.HAND_OVER for step in carry_out(cluster).steps), "it may come back"
    cluster.nodes["n3"].silent_s = 1_000.0
    found = carry_out(cluster)
    assert cluster.carried("n3") == set()
    assert {step.log for step in found.steps if step.action is Action.CARRY} >= lost
    assert all(len(cluster.logs[number].replicas) == 3 for number in range(1, 11))


def test_leaders_follow_request_units_and_do_not_move_for_little() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu"), 7)
    carry_out(cluster)
    busiest = max(cluster.nodes, key=lambda name: len(cluster.led(name) - {0}))
    for number in cluster.led(busiest) - {0}:
        cluster.logs[number].units_per_s = 9_000.0
    found = carry_out(cluster)
    assert found.steps
    assert {step.action for step in found.steps} == {Action.HAND_OVER}
    assert "9,000 RU/s" in found.steps[0].reason
    spent = Counter({name: sum(cluster.logs[n].units_per_s for n in cluster.led(name)) for name in cluster.nodes})
    assert max(spent.values()) == 9_000.0
    for number, log in cluster.logs.items():
        log.units_per_s *= 1 + 0.05 * (-1) ** number
    assert plan(cluster.state(), RULES).steps == (), "a tenth is not worth a move"


def test_a_log_stays_that_was_moved_lately() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 9)
    everything = frozenset(range(9))
    found = plan(cluster.state(), RULES, resting=everything)
    assert found.steps
    assert Cause.LOAD not in {step.cause for step in found.steps}


def test_a_full_disk_gives_up_its_largest_log() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 4)
    for number in (1, 2, 3):
        cluster.logs[number].size_bytes = number * 10 * GB
        cluster.logs[number].replicas = {"n0": True, "n1": True, "n2": True}
    cluster.nodes["n0"].disk_bytes = 60 * GB
    found = carry_out(cluster)
    assert (found.steps[0].log, found.steps[0].node, found.steps[0].cause) == (3, "n3", Cause.ROOM)
    assert found.steps[0].copied_bytes == 30 * GB
    assert cluster.free_bytes("n0") > 0


def test_a_replica_is_only_put_where_there_is_room() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", disk_bytes=500 * GB), 2)
    cluster.add("n2", SimulatedNode(disk_bytes=10 * GB))
    cluster.logs[1].size_bytes = 20 * GB
    found = carry_out(cluster)
    assert cluster.carried("n2") == set()
    assert found.unmet == ("Log 1 has 2 of 3 replicas: no other live node with room is there.",)


def test_an_operator_chooses_a_leader() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 4)
    carry_out(cluster)
    chosen = next(name for name in cluster.nodes if name not in cluster.logs[2].replicas)
    record = RULES.led_by(2, chosen)
    found = carry_out(cluster, record)
    assert cluster.logs[2].leader == chosen
    assert len(cluster.logs[2].replicas) == 3
    assert found.steps[0].cause is Cause.OPERATOR
    cluster.logs[2].units_per_s = 50_000.0
    carry_out(cluster, record)
    assert cluster.logs[2].leader == chosen, "it stays"


def test_without_balancing_only_what_an_operator_asks_for_is_done() -> None:
    off = replace(RULES, rules=PlacementRules(is_balancing=False))
    cluster = PlacedCluster(nodes_of("eu", "us", "eu", "us"), 5)
    assert plan(cluster.state(), off).steps == ()
    found = carry_out(cluster, off.led_by(3, "n2"))
    assert {step.log for step in found.steps} == {3}
    assert cluster.logs[3].leader == "n2"
    assert cluster.logs[1].replicas == {"n0": True}
    cluster.kill("n3")
    assert plan(cluster.state(), off).steps == ()


def test_steps_do_not_count_on_copies_that_are_under_way() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu"), 4)
    carry_out(cluster)
    record = RULES.emptying("n1", True)
    under_way = []
    for step in plan(cluster.state(), record).steps:
        if step.action is Action.CARRY:
            under_way.append((step.log, step.node))
    later = plan(cluster.state(), record, under_way=under_way)
    assert all(step.action is Action.HAND_OVER for step in later.steps)
    assert all((step.log, step.node) not in under_way for step in later.steps)


def test_a_copy_that_failed_is_made_elsewhere() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu", "eu", "eu"), 2)
    carry_out(cluster)
    record = RULES.emptying("n1", True)
    first = next(step for step in plan(cluster.state(), record).steps if step.action is Action.CARRY)
    other = plan(cluster.state(), record, avoided=[(first.log, first.node)])
    carried = [step.node for step in other.steps if step.action is Action.CARRY]
    assert carried
    assert first.node not in carried


def test_a_copy_that_was_begun_is_resumed() -> None:
    cluster = PlacedCluster(nodes_of("eu", "eu", "eu"), 2)
    carry_out(cluster)
    cluster.logs[1].replicas["n2"] = False
    assert [(step.action, step.node) for step in carry_out(cluster).steps] == [(Action.CARRY, "n2")]


@pytest.mark.parametrize("turn", range(40))
def test_plans_of_random_clusters(turn: int) -> None:
    """Whatever happens, a plan leads to a state that needs none, over states in which nothing is lost."""
    chance = random.Random(turn)
    cluster = random_cluster(chance)
    record = replace(RULES, rules=PlacementRules(replicas=chance.randint(1, 4), is_balancing=chance.random() < 0.9))
    carry_out(cluster, record)
    for _ in range(6):
        emptied = disturb(cluster, chance)
        if emptied:
            record = record.emptying(emptied, emptied not in record.emptied)
        if chance.random() < 0.2 and len(cluster.logs) > 1:
            record = record.led_by(chance.randint(1, len(cluster.logs) - 1), chance.choice([*cluster.nodes, ""]))
        found = carry_out(cluster, record)
        for node in record.emptied:
            assert not cluster.carried(node) or found.unmet or not record.rules.is_balancing, node


def test_the_same_state_has_the_same_plan() -> None:
    first, second = (plan(random_cluster(random.Random(7)).state(), RULES) for _ in range(2))
    assert first == second
    assert first.steps
