"""What a node does when its role in one of several logs changes. The account is opened, and its partitions are entered
and left, by `spread_node.py`, which is told; a log that is lost is followed again when the account has left it. Also
the clock of such a node.

Where nothing else was decided, logs are led by the live nodes in turns, by the order of the nodes' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.logs.log_replica import LogReplica
from armillary.storage.overlay import Layer


class Leading(Protocol):
    """The node, which is told of the logs that it leads."""

    def has_taken(self, log: int) -> None: ...
    def has_ceased(self, log: int) -> None: ...
    async def has_left(self, log: int) -> None:
        """Until nothing in the account uses the log as its leader."""


class LogRoles:
    """Implements `Roles` of leadership.py."""

    def __init__(self, log: int, node: Leading) -> None:
        self._number = log
        self._node = node

    async def lead(self) -> None:
        self._node.has_taken(self._number)

    def cease(self) -> None:
        self._node.has_ceased(self._number)

    async def follow(self) -> None:
        self._node.has_ceased(self._number)
        await self._node.has_left(self._number)

    def adopt(self, layer: Layer, notes: bytes) -> None:
        """No account reads at a follower."""

    def apply_delay_s(self) -> float:
        return 0.0


class SpreadClock:
    """The time by which items get their timestamps and expire: this machine's, and never behind the newest row of a log
    that is applied here, so timestamps do not go back when this node takes over. Implements Clock."""

    def __init__(self, machine: Clock, replicas: Callable[[], Mapping[int, LogReplica]]) -> None:
        self._machine_now_s = machine.now_s
        self._replicas = replicas
        self.monotonic_s = machine.monotonic_s
        self.elapsed_s = machine.elapsed_s
        self.sleep = machine.sleep
        self.random_bytes = machine.random_bytes
        self.guid = machine.guid

    def now_s(self) -> float:
        newest_us = max((each.engine.replica.position.time_us for each in self._replicas().values()), default=0)
        return max(self._machine_now_s(), newest_us / 1_000_000)


def preferred_leader(log: int, nodes: Sequence[str]) -> str:
    """Empty: there are no nodes."""
    return sorted(nodes)[log % len(nodes)] if nodes else ""


def patience_s(log: int, node: str, nodes: Sequence[str]) -> float:
    """How much longer than needed a node waits before it takes over a log: the preferred one is first."""
    ordered = sorted(nodes)
    if node not in ordered:
        return 0.0
    return (ordered.index(node) - log) % len(ordered) * limits.LEADERS_EVEN_PATIENCE_SECONDS
