"""A simulated cluster for tests of placement: nodes with disks, logs with replicas, and what the balancer has them do.
Each action checks what must hold: no replica twice, none removed before others are whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from armillary.clock import VirtualClock
from armillary.cluster.placement.figures import Figures, PlacedLog, PlacedNode, PlacedReplica
from armillary.cluster.placement.steps import Action, Step
from armillary.errors import Failure, Kind

GB = 1024**3
DISK = 1_000 * GB
COPY_BYTES_PER_S = 100 * 1024**2


@dataclass
class SimulatedNode:
    region: str = "eu"
    disk_bytes: int = DISK
    is_alive: bool = True
    silent_s: float = 0.0
    is_drained: bool = False


@dataclass
class SimulatedLog:
    leader: str
    replicas: dict[str, bool] = field(default_factory=dict)  # whole or not
    units_per_s: float = 0.0
    size_bytes: int = 0
    partitions: int = 1


class PlacedCluster:
    """Implements PlacementActions."""

    def __init__(
        self,
        nodes: dict[str, SimulatedNode],
        log_count: int,
        *,
        regions: tuple[str, ...] = (),
        clock: VirtualClock | None = None,
    ) -> None:
        """As a cluster begins: the first node carries and leads everything. `clock`: copies take time."""
        self.nodes = nodes
        self.clock = clock
        self.copying = 0
        self.copying_most = 0
        self.is_silent = False  # nothing is known of the nodes
        first = next(iter(nodes))
        self.regions = regions
        self.logs = {number: SimulatedLog(first, {first: True}) for number in range(log_count)}
        self.copied_bytes = 0
        self.done: list[tuple[Action, int, str]] = []
        self._join()

    def _join(self) -> None:
        self.logs[0].replicas |= dict.fromkeys(self.nodes, True)

    def add(self, name: str, node: SimulatedNode) -> None:
        self.nodes[name] = node
        self._join()

    def kill(self, name: str, silent_s: float = 10_000.0) -> None:
        """The logs that it leads are led by others, where they can be."""
        self.nodes[name].is_alive = False
        self.nodes[name].silent_s = silent_s
        for log in self.logs.values():
            if log.leader == name:
                able = sorted(each for each, is_whole in log.replicas.items() if is_whole and self.may_lead(each))
                log.leader = able[0] if able else ""

    def may_lead(self, name: str) -> bool:
        return self.nodes[name].is_alive and not self.nodes[name].is_drained

    def carried(self, name: str) -> set[int]:
        return {number for number, log in self.logs.items() if number and name in log.replicas}

    def led(self, name: str) -> set[int]:
        return {number for number, log in self.logs.items() if log.leader == name}

    def free_bytes(self, name: str) -> int:
        whole = (self.logs[number] for number in self.carried(name) if self.logs[number].replicas[name])
        return self.nodes[name].disk_bytes - sum(log.size_bytes for log in whole)

    def state(self) -> Figures:
        return Figures(
            [
                PlacedNode(name, node.region, node.is_alive, node.silent_s, node.is_drained, self.free_bytes(name))
                for name, node in self.nodes.items()
            ],
            [
                PlacedLog(
                    number,
                    log.leader,
                    [PlacedReplica(node, is_whole) for node, is_whole in log.replicas.items()],
                    log.units_per_s,
                    log.size_bytes,
                    log.partitions,
                )
                for number, log in self.logs.items()
            ],
            self.regions,
        )

    def do(self, step: Step) -> None:
        {Action.CARRY: self._carry, Action.HAND_OVER: self._hand_over, Action.GIVE_UP: self._give_up}[step.action](
            step.log, step.node
        )
        self.done.append((step.action, step.log, step.node))

    def _carry(self, log: int, node: str) -> None:
        assert log != 0
        if not self.nodes[node].is_alive:
            raise Failure(Kind.UNAVAILABLE, f"{node} does not answer.")
        assert not self.logs[log].replicas.get(node), "it has one"
        self.logs[log].replicas[node] = True
        self.copied_bytes += self.logs[log].size_bytes

    def _hand_over(self, log: int, node: str) -> None:
        if not self.nodes[node].is_alive or not self.nodes[self.logs[log].leader].is_alive:
            raise Failure(Kind.UNAVAILABLE, f"{node} does not answer.")
        assert self.logs[log].replicas[node], "it has no replica"
        assert self.may_lead(node)
        self.logs[log].leader = node

    def _give_up(self, log: int, node: str) -> None:
        assert log != 0
        assert self.logs[log].leader != node
        others = [each for each, is_whole in self.logs[log].replicas.items() if is_whole and each != node]
        assert any(self.nodes[each].is_alive for each in others), "the last one is kept"
        del self.logs[log].replicas[node]

    # As PlacementActions.

    async def figures(self) -> Figures:
        if self.is_silent:
            raise Failure(Kind.UNAVAILABLE, "The nodes do not answer.")
        return self.state()

    async def carry(self, log: int, node: str) -> None:
        assert log != 0
        if self.logs[log].replicas.get(node):
            return
        if self.clock is not None and self.nodes[node].is_alive:
            self.logs[log].replicas[node] = False
            self.copying += 1
            self.copying_most = max(self.copying, self.copying_most)
            try:
                await self.clock.sleep(1.0 + self.logs[log].size_bytes / COPY_BYTES_PER_S)
            finally:
                self.copying -= 1
        self._carry(log, node)
        self.done.append((Action.CARRY, log, node))

    async def hand_over(self, log: int, node: str) -> None:
        self._hand_over(log, node)
        self.done.append((Action.HAND_OVER, log, node))

    async def give_up(self, log: int, node: str) -> None:
        self._give_up(log, node)
        self.done.append((Action.GIVE_UP, log, node))


def random_cluster(chance: random.Random) -> PlacedCluster:
    """Of some nodes in some regions, with logs anywhere."""
    regions = chance.choice([("eu",), ("eu", "us"), ("eu", "us", "asia")])
    nodes = {
        f"n{number}": SimulatedNode(chance.choice(regions), chance.choice([20, 100, 1000]) * GB)
        for number in range(chance.randint(1, 9))
    }
    cluster = PlacedCluster(nodes, chance.randint(1, 24), regions=chance.choice([(), regions, regions[:1]]))
    names = list(nodes)
    for number, log in cluster.logs.items():
        log.size_bytes = int(chance.choice([0, 0.1, 1, 5]) * GB * chance.random())
        log.units_per_s = chance.choice([0, 0, 50, 2_000, 10_000]) * chance.random()
        if number:
            holders = chance.sample(names, chance.randint(1, min(4, len(names))))
            log.replicas = {name: index == 0 or chance.random() < 0.9 for index, name in enumerate(holders)}
            log.leader = holders[0]
        else:
            log.leader = chance.choice(names)
    return cluster


def disturb(cluster: PlacedCluster, chance: random.Random) -> str:
    """Something happens. Returns a node that is to be emptied, or an empty name."""
    names = list(cluster.nodes)
    name = chance.choice(names)
    match chance.choice(["join", "kill", "return", "drain", "undrain", "shift", "grow", "empty"]):
        case "join":
            cluster.add(f"n{len(names)}", SimulatedNode(chance.choice(["eu", "us"])))
        case "kill" if sum(each.is_alive for each in cluster.nodes.values()) > 1:
            cluster.kill(name, chance.choice([30.0, 10_000.0]))
        case "return":
            cluster.nodes[name] = replace(cluster.nodes[name], is_alive=True, silent_s=0.0)
            for log in cluster.logs.values():
                if not log.leader and name in log.replicas:
                    log.leader = name
        case "drain":
            cluster.nodes[name].is_drained = True
        case "undrain":
            cluster.nodes[name].is_drained = False
        case "shift":
            for log in cluster.logs.values():
                log.units_per_s = chance.choice([0, 500, 10_000]) * chance.random()
        case "grow":
            for log in cluster.logs.values():
                log.size_bytes = int(log.size_bytes * chance.uniform(0.8, 1.5))
        case "empty":
            return name
    return ""
