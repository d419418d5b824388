"""The placement of logs on nodes with accounts: an operator moves a log, empties a node, and lets the balancer place
the logs. All nodes answer for all partitions meanwhile and afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.log_nodes import log_servers
from support.peers import Certificate
from support.spread_nodes import QUICK, SpreadNodes, repeated, spread_nodes
from support.waiting import until

from armillary.account.cluster_operations import PlacementOperations
from armillary.errors import Failure

DOCUMENTS = [{"id": str(number), "pk": f"k{number}"} for number in range(20)]


@pytest.fixture
async def cluster(tmp_path: Path, certificate: Certificate, with_limits: WithLimits) -> AsyncIterator[SpreadNodes]:
    with_limits(
        **QUICK,
        LOG_REPORT_SECONDS=0.05,
        LOG_WITHDRAW_SECONDS_MAX=1.0,
        PLACEMENT_PAUSE_SECONDS=0.05,
        PLACEMENT_STEP_SECONDS=0.01,
        PLACEMENT_RETRY_SECONDS=0.5,
    )
    async with spread_nodes(tmp_path, certificate, log_servers(3)) as made:
        await made.create()
        for document in DOCUMENTS:
            await repeated(partial(made.put, "a", document))
        yield made


def placement(cluster: SpreadNodes, at: str) -> PlacementOperations:
    found = cluster[at].node.operations.placement
    assert found is not None
    return found


async def everything_is_there(cluster: SpreadNodes) -> None:
    for name in cluster.nodes:
        assert await repeated(partial(cluster.ids, name)) == sorted(each["id"] for each in DOCUMENTS)


def carried(cluster: SpreadNodes, name: str) -> set[int]:
    return set(cluster[name].node.logs.replicas)


async def test_a_log_is_moved(cluster: SpreadNodes) -> None:
    before, chosen = "b", "c"
    await until(lambda: cluster.holders(1) == [before], "leaders are in turns, by the order of names")
    content = await placement(cluster, "b").move(1, chosen)
    assert content["logs"][1]["chosenLeader"] == chosen
    assert sum(log["partitions"] for log in content["logs"]) == len(cluster.first.account.containers[0].map.ranges)
    await until(lambda: cluster.holders(1) == [chosen], "it leads")
    await everything_is_there(cluster)
    assert cluster.holders(1) == [chosen], "it stays there"
    await placement(cluster, "c").move(1, "")
    await until(lambda: cluster.holders(1) == [before], "leaders are in turns again")


async def test_a_node_is_emptied_and_the_balancer_uses_it_again(cluster: SpreadNodes) -> None:
    with pytest.raises(Failure, match="each log has 3 replicas, and there would be 2 live nodes for them"):
        await placement(cluster, "a").empty("c", is_emptied=True)
    await placement(cluster, "a").change_rules(replicas=2, is_balancing=None, copies=None)
    emptied = next(name for name in cluster.nodes if name != cluster.first.name)
    await placement(cluster, "b").empty(emptied, is_emptied=True)
    await until(lambda: carried(cluster, emptied) == {0}, "it has the catalog's log only")
    await cluster.served()
    await everything_is_there(cluster)
    await placement(cluster, "a").empty(emptied, is_emptied=False)
    content = await placement(cluster, "a").change_rules(replicas=3, is_balancing=True, copies=None)
    assert content["balancing"]
    await until(lambda: carried(cluster, emptied) == {0, 1, 2}, "it has replicas again")
    await until(lambda: len({cluster.holders(log)[0] for log in (1, 2) if cluster.holders(log)}) == 2, "two lead")
    await everything_is_there(cluster)


async def test_a_node_that_starts_again_carries_what_the_record_says(cluster: SpreadNodes) -> None:
    await placement(cluster, "a").change_rules(replicas=2, is_balancing=True, copies=None)
    await until(lambda: sum(len(carried(cluster, name)) for name in cluster.nodes) == 7, "two replicas of each log")
    again = next(name for name in cluster.nodes if name != cluster.first.name and carried(cluster, name) != {0, 1, 2})
    before = carried(cluster, again)
    await cluster[again].stop()
    await cluster[again].start()
    await cluster.served()
    assert carried(cluster, again) == before
    await everything_is_there(cluster)
