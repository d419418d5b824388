"""A placement that a plan is tried on: which nodes have replicas of which logs, who leads them, and what that does to
the nodes. A plan's steps are applied to it one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from armillary import limits, work
from armillary.cluster.placement.figures import Figures, PlacedNode
from armillary.cluster.placement.loads import loads_of
from armillary.cluster.placement.record import PlacementRecord
from armillary.cluster.placement.steps import Action, Step

LogNode = tuple[int, str]
_UNITS_TARGET, _UNITS_CHOICE = 20, 300  # of work, to look at one node and to choose among replicas


class Draft:
    def __init__(
        self, figures: Figures, record: PlacementRecord, under_way: Collection[LogNode], avoided: Collection[LogNode]
    ) -> None:
        """`under_way`: copies to new replicas. `avoided`: replicas that nodes are not to get, or to lead, since it
        failed."""
        self.figures = figures
        self.record = record
        self.under_way = under_way
        self.avoided = avoided
        self.nodes = figures.by_name
        self.sizes = {each.number: each.size_bytes for each in figures.logs}
        self.lags = {(log.number, each.node): each.lag_rows for log in figures.logs for each in log.replicas}
        self.holders = {log.number: {each.node: each.is_whole for each in log.replicas} for log in figures.logs}
        self.leaders = {each.number: each.leader for each in figures.logs}
        self.logs = sorted(number for number in self.holders if number)  # whose replicas are placed
        self.loads = loads_of(figures.logs)
        self.free = {each.name: each.free_bytes for each in figures.nodes}
        self.carried: defaultdict[str, int] = defaultdict(int)  # loads of replicas by node
        self.led: defaultdict[str, int] = defaultdict(int)  # loads of leaders by node
        for log, node in under_way:
            self.holders[log].setdefault(node, False)
        for log in self.logs:
            for node, is_whole in self.holders[log].items():
                self.carried[node] += self.loads[log].replica
                if not is_whole:
                    self.free[node] = self.free.get(node, 0) - self.sizes[log]
        for log, node in self.leaders.items():
            self.led[node] += self.loads[log].leader
        ranks = {region: rank for rank, region in enumerate(figures.regions)}
        self._ranks = {each.name: ranks.get(each.region, len(ranks)) for each in figures.nodes}
        receiving = {node for _, node in under_way}
        self.targets = [each for each in figures.nodes if self.may_lead(each.name) and each.name not in receiving]

    # Nodes.

    def is_gone(self, name: str) -> bool:
        """Whether what it has is to be made elsewhere."""
        node = self.nodes.get(name)
        return node is None or (not node.is_alive and node.silent_s > limits.PLACEMENT_GONE_SECONDS)

    def is_alive(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.is_alive

    def is_emptied(self, name: str) -> bool:
        return name in self.record.emptied

    def may_lead(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.is_alive and not node.is_drained and not self.is_emptied(name)

    def is_short(self, name: str) -> bool:
        """Whether its disk is nearly full."""
        return self.is_alive(name) and self.free[name] < limits.PLACEMENT_RESERVE_BYTES

    def has_room(self, log: int, name: str) -> bool:
        return self.free[name] - self.sizes[log] >= 2 * limits.PLACEMENT_RESERVE_BYTES

    def rank(self, name: str) -> int:
        """The place of a node's region in the order of failover."""
        return self._ranks[name]

    # Replicas.

    def is_stuck(self, log: int, node: str) -> bool:
        """Whether a replica that is not whole is not to become so there."""
        place = log, node
        return place in self.avoided or (self.is_short(node) and place not in self.under_way)

    def kept(self, log: int) -> list[str]:
        """Nodes that have a replica which counts, or are getting it."""
        return [
            node
            for node, is_whole in self.holders[log].items()
            if not self.is_gone(node) and not self.is_emptied(node) and (is_whole or not self.is_stuck(log, node))
        ]

    def good(self, log: int) -> list[str]:
        """Those of them that are whole, on live nodes."""
        return [node for node in self.kept(log) if self.holders[log][node] and self.is_alive(node)]

    def may_lead_next(self, log: int) -> list[str]:
        """Nodes that could lead a log; the best come first."""
        work.spend(_UNITS_CHOICE)
        able = [
            node
            for node, is_whole in self.holders[log].items()
            if is_whole and self.may_lead(node) and (log, node) not in self.avoided
        ]

        def key(node: str) -> tuple[int, bool, int, str]:
            is_behind = self.lags.get((log, node), 0) > limits.PLACEMENT_LAG_ROWS_MAX
            return self.rank(node), is_behind, self.led[node], node

        return sorted(able, key=key)

    def pinned(self, log: int) -> str:
        """The node that an operator has chosen to lead it, if it can; else empty."""
        node = self.record.leaders.get(log, "")
        return node if self.may_lead(node) and (log, node) not in self.avoided else ""

    def crowding(self, nodes: Collection[str]) -> int:
        """How badly replicas are spread over regions. None in the region where leaders are to be is worst."""
        counts = Counter(self.nodes[node].region for node in nodes)
        first = min(map(self.rank, nodes), default=0)
        return sum(count * count for count in counts.values()) + first * limits.PLACEMENT_REPLICAS_MAX**3

    def is_target(self, node: str) -> bool:
        return any(each.name == node for each in self.targets)

    def may_get(self, log: int, node: str) -> bool:
        """Whether a target could get a replica."""
        return node not in self.holders[log] and (log, node) not in self.avoided and self.has_room(log, node)

    def open_targets(self, log: int) -> list[PlacedNode]:
        """Nodes that could get a replica; those with the least load come first."""
        work.spend(_UNITS_TARGET * len(self.targets))
        able = [each for each in self.targets if self.may_get(log, each.name)]
        return sorted(able, key=lambda each: (self.carried[each.name], each.name))

    def surplus(self, log: int) -> str:
        """Which of its good replicas could go best, if there is one too many."""
        work.spend(_UNITS_CHOICE)
        good, chosen = self.good(log), self.pinned(log)

        def key(node: str) -> tuple[int, int, bool, int, str]:
            rest = [each for each in good if each != node]
            next_leader = min((self.rank(each) for each in rest if self.may_lead(each)), default=len(self.nodes))
            return next_leader, self.crowding(rest), not self.is_short(node), -self.carried[node], node

        return min((each for each in good if each != chosen), key=key)

    # Changes.

    @contextmanager
    def with_replica(self, log: int, node: str) -> Iterator[None]:
        self.add(log, node)
        try:
            yield
        finally:
            self.remove(log, node)

    def add(self, log: int, node: str) -> None:
        if node not in self.holders[log]:
            self.carried[node] += self.loads[log].replica
            self.free[node] -= self.sizes[log]
        self.holders[log][node] = True

    def remove(self, log: int, node: str) -> None:
        del self.holders[log][node]
        self.carried[node] -= self.loads[log].replica
        if node in self.free:
            self.free[node] += self.sizes[log]

    def apply(self, step: Step) -> None:
        match step.action:
            case Action.CARRY:
                self.add(step.log, step.node)
            case Action.GIVE_UP:
                self.remove(step.log, step.node)
            case Action.HAND_OVER:
                load = self.loads[step.log].leader
                self.led[self.leaders[step.log]] -= load
                self.led[step.node] += load
                self.leaders[step.log] = step.node
