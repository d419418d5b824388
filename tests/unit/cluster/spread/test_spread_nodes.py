"""A cluster whose partitions are spread over several logs: every node answers for all partitions, and goes on when
leaders change and nodes die. Nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.log_nodes import log_servers
from support.peers import Certificate
from support.spread_nodes import QUICK, SpreadNodes, spread_nodes
from support.waiting import until

from armillary.account.catalog.allocation import place_of_store
from armillary.account.faults import FaultRule
from armillary.errors import Failure, Kind

DOCUMENTS = [{"id": str(number), "pk": f"k{number}"} for number in range(20)]


@pytest.fixture
async def cluster(tmp_path: Path, certificate: Certificate, with_limits: WithLimits) -> AsyncIterator[SpreadNodes]:
    with_limits(**QUICK, CUT_OFF_SECONDS=1.0, CUT_OFF_PATIENCE_SECONDS=3.0)
    async with spread_nodes(tmp_path, certificate, log_servers(3)) as made:
        yield made


async def test_every_node_answers_for_all_partitions(cluster: SpreadNodes) -> None:
    container = await cluster.create(at="b")
    assert {place_of_store(each.store) for each in container.map.ranges} == {0, 1, 2}
    for number, document in enumerate(DOCUMENTS):
        await cluster.put("abc"[number % 3], document)
    for name in "abc":
        for document in DOCUMENTS:
            found = await cluster.read(name, document)
            assert found is not None


class Writer:
    """Writes items at one node after the other, until it is stopped, and knows which were acknowledged."""

    def __init__(self, cluster: SpreadNodes) -> None:
        self._cluster = cluster
        self.acknowledged: list[dict[str, str]] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        for number in count():
            document = {"id": f"w{number}", "pk": f"w{number}"}
            running = self._cluster.running
            at = running[number % len(running)]
            try:
                if at.node.account is not None:
                    await self._cluster.put(at.name, document)
                    self.acknowledged.append(document)
            except Failure as failure:
                if failure.kind is not Kind.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.005)

    async def more(self, wanted: int = 20) -> None:
        reached = len(self.acknowledged) + wanted
        await until(lambda: len(self.acknowledged) >= reached or self._task.done(), "writes go on")
        assert not self._task.done(), self._task

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def lost(cluster: SpreadNodes, writer: Writer, at: str) -> list[str]:
    await writer.stop()
    found = set(await cluster.ids(at))
    return [each["id"] for each in writer.acknowledged if each["id"] not in found]


async def test_a_log_is_handed_over_while_clients_write(cluster: SpreadNodes) -> None:
    await cluster.create()
    writer = Writer(cluster)
    await writer.more()
    for successor in ("c", "a", "b"):
        await cluster.served()
        [holder] = cluster.holders(1)
        if holder != successor:
            with suppress(Failure):  # it may be handed over already, to the node that it falls to
                await cluster[holder].node.hand_over(1, successor)
        await writer.more()
    assert await lost(cluster, writer, "a") == []


async def test_a_node_is_killed_and_started_again(cluster: SpreadNodes) -> None:
    await cluster.create()
    writer = Writer(cluster)
    await writer.more()
    other = next(each for each in cluster.running if each is not cluster.first)
    await other.kill()
    await cluster.served()
    await writer.more()
    await cluster.create("after")
    await other.start()
    await cluster.served()
    await writer.more()
    assert await lost(cluster, writer, other.name) == []


async def test_the_node_with_the_catalog_is_killed(cluster: SpreadNodes) -> None:
    await cluster.create()
    writer = Writer(cluster)
    await writer.more()
    first = cluster.first
    await first.kill()
    await cluster.served()
    assert cluster.first is not first
    await writer.more()
    for each in cluster.running:
        await cluster.create(f"at-{each.name}", at=each.name)
    await first.start()
    await cluster.served()
    await writer.more()
    assert await lost(cluster, writer, first.name) == []


async def test_the_change_feed_goes_on_over_leaders(cluster: SpreadNodes) -> None:
    await cluster.create()
    found, token = await cluster.changes("a", None)
    for document in DOCUMENTS[:10]:
        await cluster.put("b", document)
    found, token = await cluster.changes("a", token)
    assert sorted(found) == sorted(each["id"] for each in DOCUMENTS[:10])
    [holder] = cluster.holders(2)
    successor = next(each.name for each in cluster.running if each.name != holder)
    with suppress(Failure):
        await cluster[holder].node.hand_over(2, successor)
    await cluster.served()
    for document in DOCUMENTS[10:]:
        await cluster.put("c", document)
    found, token = await cluster.changes("b", token)
    assert sorted(found) == sorted(each["id"] for each in DOCUMENTS[10:])


async def test_fault_rules_stay_when_the_catalog_moves(cluster: SpreadNodes) -> None:
    await cluster.create()
    first = cluster.first
    rule = first.account.faults.add(FaultRule(database="db", kind=Kind.THROTTLED))
    await first.account.spread_controls()
    await first.kill()
    await cluster.served()
    for each in cluster.running:
        assert list(each.account.faults.rules) == [rule.id]


async def test_a_node_that_is_cut_off_from_the_others_leads_nothing(cluster: SpreadNodes) -> None:
    await cluster.create()
    first = cluster.first
    others = [each.name for each in cluster.running if each is not first]
    cluster.cut_off(first.name)
    await until(lambda: not first.node.held - {0} and not first.node.membership.leads, "it hands over")
    await until(lambda: all(cluster.holders(log) in ([others[0]], [others[1]]) for log in range(3)), "others lead")
    for name in others:
        await cluster.put(name, *DOCUMENTS)
    cluster.heal()
    await cluster.served()
    assert await cluster.ids(first.name) == sorted(each["id"] for each in DOCUMENTS)
