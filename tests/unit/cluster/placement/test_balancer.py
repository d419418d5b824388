"""The balancer with simulated nodes, whose copies take (virtual) time: what happens to a cluster under it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from support.placed_cluster import GB, PlacedCluster, SimulatedNode, disturb, random_cluster
from support.placement_settings import KeptSettings

from armillary.clock import VirtualClock
from armillary.cluster.placement.balancer import Balancer
from armillary.cluster.placement.planner import plan
from armillary.cluster.placement.record import PlacementRecord, PlacementRules
from armillary.cluster.placement.steps import Action
from armillary.errors import Failure, Kind


class Trial:
    def __init__(self, cluster: PlacedCluster, clock: VirtualClock, settings: KeptSettings) -> None:
        self.cluster = cluster
        self.clock = clock
        self.settings = settings
        self.balancer = Balancer(settings, cluster, clock)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        for _ in range(2_000):
            await self.pass_time(self.clock.next_wake_s or 0.0)
            if holds():
                return
        raise AssertionError(f"it did not come about: {what}")

    async def pass_time(self, seconds: float) -> None:
        for _ in range(20):  # what waits for each other
            await asyncio.sleep(0)
        self.clock.advance(seconds)

    async def settled(self) -> None:
        """The plan is empty, for the record as it is."""
        await self.until(self._is_settled, "nothing is left to do")

    def _is_settled(self) -> bool:
        return not self.cluster.copying and not plan(self.cluster.state(), self.settings.record, steps_max=1).steps


@asynccontextmanager
async def balanced(cluster: PlacedCluster, settings: KeptSettings | None = None) -> AsyncIterator[Trial]:
    assert cluster.clock is not None
    trial = Trial(cluster, cluster.clock, settings or KeptSettings())
    running = asyncio.create_task(trial.balancer.run())
    try:
        yield trial
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def cluster_of(*regions: str, logs: int, size_bytes: int = GB, **options: tuple[str, ...]) -> PlacedCluster:
    nodes = {f"n{number}": SimulatedNode(region) for number, region in enumerate(regions)}
    cluster = PlacedCluster(nodes, logs, clock=VirtualClock(), **options)
    for log in cluster.logs.values():
        log.size_bytes = size_bytes
    return cluster


async def test_a_node_joins_and_another_is_emptied() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", logs=7)) as trial:
        await trial.settled()
        cluster = trial.cluster
        assert cluster.copying_most == 2, "two copies at a time"
        cluster.add("n3", SimulatedNode())
        await trial.settled()
        assert len(cluster.carried("n3")) >= 3
        await trial.balancer.change(lambda record: record.emptying("n0", True))
        await trial.settled()
        assert cluster.carried("n0") == set()
        assert cluster.led("n0") == set()
        record = trial.settings.record
        for number in range(1, 7):
            assert set(record.carried[number]) == set(cluster.logs[number].replicas), "each node learns what it carries"
        assert record.logs_of("n0", {0, 1, 2}) == {0}
        state = await trial.balancer.state()
        assert state.plan.steps == ()
        assert {done.step.action for done in state.done} == set(Action)
        assert all(done.failure is None and done.step.reason for done in state.done)


async def test_a_leader_is_handed_over_while_copies_are_under_way() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", "eu", logs=5, size_bytes=10 * GB)) as trial:
        await trial.settled()
        cluster = trial.cluster
        led = cluster.led("n1")
        assert led
        await trial.balancer.change(lambda record: record.emptying("n1", True))
        await trial.until(lambda: cluster.copying == 2, "copies have begun")
        assert cluster.led("n1") == set(), "before copies are whole"
        await trial.settled()
        assert cluster.carried("n1") == set()


async def test_a_node_that_dies_is_replaced_after_a_while_and_comes_back() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", "eu", logs=6)) as trial:
        await trial.settled()
        cluster = trial.cluster
        cluster.kill("n2", silent_s=20.0)
        for _ in range(10):
            await trial.pass_time(5.0)
        assert len(cluster.carried("n2")) > 0, "a restart costs no copies"
        cluster.kill("n2")
        await trial.settled()
        assert cluster.carried("n2") == set()
        assert all(len(log.replicas) == 3 for number, log in cluster.logs.items() if number)
        assert trial.settings.record.logs_of("n2", {0, 1, 2, 3}) == {0}, "what it finds when it is back"
        cluster.nodes["n2"] = SimulatedNode()
        await trial.settled()
        assert len(cluster.carried("n2")) >= 2


async def test_leaders_follow_load() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", logs=7)) as trial:
        await trial.settled()
        cluster = trial.cluster
        busy = max(cluster.nodes, key=lambda name: len(cluster.led(name) - {0}))
        for number in cluster.led(busy) - {0}:
            cluster.logs[number].units_per_s = 5_000.0
        trial.clock.advance(400.0)  # what was moved at the start rests for a while
        copied = cluster.copied_bytes
        await trial.settled()
        spent = [sum(cluster.logs[number].units_per_s for number in cluster.led(name)) for name in cluster.nodes]
        assert max(spent) == 5_000.0
        assert cluster.copied_bytes == copied, "leaders move without copies"


async def test_a_log_that_was_moved_rests() -> None:
    """Load that comes and goes does not move logs to and fro."""
    async with balanced(cluster_of("eu", "eu", "eu", logs=7)) as trial:
        await trial.settled()
        trial.clock.advance(400.0)
        cluster = trial.cluster
        before = len(cluster.done)
        chance = random.Random(3)
        for _ in range(50):
            for log in cluster.logs.values():
                log.units_per_s = chance.choice([0.0, 20_000.0])
            await trial.pass_time(5.0)
        assert len(cluster.done) - before <= 6, "each log once in 250 s"


async def test_replicas_go_to_another_region_when_it_comes() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", logs=4, regions=("eu",))) as trial:
        await trial.settled()
        trial.cluster.add("n3", SimulatedNode("us"))
        await trial.settled()
        assert trial.cluster.carried("n3") == {1, 2, 3}
        assert trial.cluster.led("n3") == set()


async def test_a_node_that_cannot_copy_is_given_up_and_the_operator_sees_why() -> None:
    cluster = cluster_of("eu", "eu", "eu", logs=3)
    broken = {"n1"}
    carry = cluster.carry

    async def refusing(log: int, node: str) -> None:
        if node in broken:
            cluster.nodes[node].is_alive = False
        try:
            await carry(log, node)
        finally:
            cluster.nodes[node].is_alive = True

    cluster.carry = refusing  # type: ignore[method-assign]
    async with balanced(cluster) as trial:
        await trial.until(lambda: len(cluster.carried("n2")) == 2 and not cluster.copying, "the other one is used")
        await trial.until(lambda: len(trial.balancer._avoided) == 2, "it was tried often enough")
        state = await trial.balancer.state()
        assert cluster.carried("n1") == set()
        assert "Log 1 has 2 of 3 replicas: no other live node with room is there." in state.plan.unmet
        assert "n1 does not answer." in [done.failure for done in state.done]
        broken.clear()
        await trial.until(lambda: cluster.carried("n1") == {1, 2}, "it is tried again later")


async def test_what_an_operator_wants_is_done_while_balancing_is_off() -> None:
    settings = KeptSettings(PlacementRecord(PlacementRules(is_balancing=False)))
    async with balanced(cluster_of("eu", "eu", logs=4), settings) as trial:
        await trial.balancer.change(lambda record: record.led_by(2, "n1"))
        await trial.until(lambda: trial.cluster.logs[2].leader == "n1", "it leads")
        assert trial.cluster.carried("n1") == {2}
        rules = PlacementRules(replicas=2)
        await trial.balancer.change(lambda record: replace(record, rules=rules))
        await trial.settled()
        assert trial.cluster.carried("n1") == {1, 2, 3}


async def test_the_next_balancer_goes_on_with_copies() -> None:
    cluster = cluster_of("eu", "eu", logs=2, size_bytes=50 * GB)
    settings = KeptSettings()
    async with balanced(cluster, settings) as trial:
        await trial.until(lambda: cluster.copying == 1, "it is copied")
    assert cluster.copying == 0
    assert settings.record.carried == {1: ("n0", "n1")}
    assert cluster.logs[1].replicas == {"n0": True, "n1": False}
    async with balanced(cluster, settings) as trial:
        await trial.settled()
    assert cluster.logs[1].replicas == {"n0": True, "n1": True}


async def test_nothing_is_done_while_nothing_is_known() -> None:
    cluster = cluster_of("eu", "eu", logs=3)
    cluster.is_silent = True
    async with balanced(cluster) as trial:
        for _ in range(5):
            await trial.pass_time(5.0)
        assert cluster.done == []
        cluster.is_silent = False
        await trial.settled()


async def test_a_copy_to_a_node_that_is_emptied_is_ended() -> None:
    async with balanced(cluster_of("eu", "eu", "eu", "eu", logs=2, size_bytes=100 * GB)) as trial:
        cluster = trial.cluster
        await trial.until(lambda: cluster.copying == 2, "copies have begun")
        target = next(node for node, is_whole in cluster.logs[1].replicas.items() if not is_whole)
        await trial.balancer.change(lambda record: record.emptying(target, True))
        await trial.settled()
        assert cluster.carried(target) == set()
        assert len(cluster.logs[1].replicas) == 3
        assert trial.balancer._copies == {}


async def test_a_node_that_does_not_take_over_is_not_asked_for_ever() -> None:
    cluster = cluster_of("eu", "eu", "eu", logs=3)
    hand_over, asked = cluster.hand_over, Counter[str]()

    async def refusing(log: int, node: str) -> None:
        asked[node] += 1
        if node == "n1":
            raise Failure(Kind.UNAVAILABLE, "n0 leads log 1, and not n1.")
        await hand_over(log, node)

    cluster.hand_over = refusing  # type: ignore[method-assign]
    async with balanced(cluster) as trial:
        await trial.balancer.change(lambda record: record.emptying("n0", True).led_by(1, "n1"))
        await trial.until(lambda: asked["n1"] >= 3 and cluster.led("n0") <= {0}, "another node leads")
        assert cluster.logs[1].leader == "n2"
        assert asked["n1"] <= 9, "three times for each log"


@pytest.mark.parametrize("seed", range(12))
async def test_random_events(seed: int) -> None:
    """Nodes join, die, come back, are drained and emptied, loads shift, while copies are under way."""
    chance = random.Random(seed)
    cluster = random_cluster(chance)
    cluster.clock = VirtualClock()
    settings = KeptSettings(PlacementRecord(PlacementRules(replicas=chance.randint(1, 3))))
    async with balanced(cluster, settings) as trial:
        for _ in range(12):
            for _ in range(chance.randint(0, 20)):
                await trial.pass_time(chance.random() * 5)
            emptied = disturb(cluster, chance)
            if emptied:
                is_emptied = emptied not in settings.record.emptied
                await trial.balancer.change(lambda record, e=emptied, i=is_emptied: record.emptying(e, i))  # type: ignore[misc]
        await trial.settled()


def test_the_record_is_read_as_it_was_written() -> None:
    record = PlacementRecord(PlacementRules(2, False, 5), {1: ("a", "b"), 12: ("c",)}, {3: "a"}, ("d",))
    assert PlacementRecord.unpack(record.pack()) == record
    assert PlacementRecord.unpack(None) == PlacementRecord(PlacementRules(is_balancing=False))
    assert record.logs_of("a", {0, 1, 7, 12}) == {0, 1, 7}
