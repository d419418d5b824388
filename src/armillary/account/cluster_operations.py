"""What an operator may see of a cluster and do with it, at any of its nodes. The control door offers it as requests;
`armillary.cluster` implements it. The account of a single server has none: `Account.operations` is None there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from armillary.storage.log.replicated_log import LogFigures


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node, as the node that was asked sees it. Figures are None where they are not known."""

    name: str
    region: str
    addresses: Mapping[str, str]  # of its doors
    is_alive: bool  # it has announced itself lately
    silent_s: float  # since it announced itself
    is_reached: bool  # it has answered a call of the node that was asked
    leads: bool
    is_drained: bool
    version: str | None  # of Armillary
    applied_seq: int | None
    flushed_seq: int | None  # survives a crash of its machine
    lag_rows: int | None  # of what is applied, behind the newest row of the log
    lag_transactions: int | None
    lag_s: float | None
    forwards: int | None  # requests that it has sent on to the leader since it started


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    node: str  # that was asked
    epoch: int
    leader: str | None
    regions: Sequence[str]  # that have live nodes: the write region first, then by priority
    priorities: Sequence[str]  # as they were set; empty: none were
    nodes: Sequence[NodeStatus]
    log: LogFigures | None  # None: it cannot be read, for this reason
    log_error: str | None
    slowest: str | None  # the replica whose place keeps the log from being trimmed


@dataclass(frozen=True, slots=True)
class OwnFigures:
    """What a node says of itself and of the log in its metrics."""

    leads: bool
    epoch: int
    is_drained: bool
    forwards: int
    node_count: int
    live_count: int
    lag_rows: int | None  # None: the log cannot be read
    lag_transactions: int | None
    lag_s: float | None
    slowest: tuple[str, int] | None  # the replica that keeps the log from being trimmed, and how many rows
    log: LogFigures | None


@dataclass(frozen=True, slots=True)
class NodeDigest:
    """Of a node's state at a mark of the log."""

    node: str
    is_reached: bool
    is_pending: bool  # it will be known later
    digest: str | None  # None without pending: the node has not passed the mark since it started, or keeps it no more


Body = dict[str, Any]


class PlacementOperations(Protocol):
    """Which nodes have replicas of which logs, in a cluster with several logs. Each answers what there is then, as the
    control API shows it: logs, nodes, the steps that are planned, under way and done."""

    async def show(self) -> Body: ...

    async def change_rules(self, *, replicas: int | None, is_balancing: bool | None, copies: int | None) -> Body:
        """None: it stays."""

    async def move(self, log: int, node: str) -> Body:
        """Let a node lead a log, now and until this is undone with an empty name."""

    async def empty(self, node: str, *, is_emptied: bool) -> Body:
        """A node gives up its replicas, and gets none until this is undone."""


class ClusterOperations(Protocol):
    @property
    def node(self) -> str:
        """That was asked."""

    @property
    def placement(self) -> PlacementOperations | None:
        """None: the cluster has one log, of which every node has a replica."""

    async def status(self) -> ClusterStatus: ...

    async def own_figures(self) -> OwnFigures: ...

    async def fail_over(self, successor: str) -> str:
        """Let another node lead: a named one, or with an empty name one of the preferred region. Returns the node that
        leads now."""

    async def fail_over_region(self, region: str) -> str:
        """Put a region first in the order of failover and let one of its nodes lead. Returns the node that leads."""

    async def drain(self, node: str) -> None:
        """A node gives up leading, and does not take over until `undrain`, also when it is started again."""

    async def undrain(self, node: str) -> None: ...

    async def remove(self, node: str) -> None:
        """Forget a node that is gone: the log keeps nothing for it any more."""

    async def begin_verification(self) -> int:
        """Have all nodes digest their states at the same place of the log. Returns the mark."""

    async def digests(self, mark: int) -> Sequence[NodeDigest]:
        """Of all nodes at a mark, as far as they are known."""
