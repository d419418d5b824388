"""What an account on a node of a cluster knows of the cluster: the nodes with their regions and addresses, which one
leads, and how fresh the state of this node is. Doors answer by it; `armillary.cluster` implements it. The account of a
single server has none: `Account.topology` is None there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster, as it announced itself."""

    name: str
    region: str
    addresses: Mapping[str, str]  # URLs as clients reach them, by the name of the door: sql, table, mongo, gremlin
    is_alive: bool  # it has announced itself lately


class Staleness(NamedTuple):
    """How far this node may be behind what was acknowledged. Infinite: it has never asked the leader."""

    seconds: float  # since before this node last asked a leader under its lease whose answer it has applied
    transactions: float  # between what the leader had confirmed then and what is applied here


class Topology(Protocol):
    @property
    def name(self) -> str:
        """Of this node."""

    @property
    def region(self) -> str:
        """Of this node."""

    @property
    def version(self) -> int:
        """Grows with every change of members, leader or regions."""

    @property
    def members(self) -> Sequence[Member]:
        """All nodes, this one included, in the order of their names."""

    @property
    def leader(self) -> Member | None:
        """None: no node leads at the moment, as far as this one knows."""

    @property
    def leads(self) -> bool:
        """Whether this node leads."""

    @property
    def epoch(self) -> int:
        """Of the leader that is known last; it grows with every take-over."""

    @property
    def regions(self) -> Sequence[str]:
        """The regions that have nodes: the write region first, then by failover priority."""

    async def changed(self, version: int, limit_s: float) -> None:
        """Wait until the version is another than this one, at most for a while."""

    # How fresh this node's state is.

    @property
    def may_answer_strongly(self) -> bool:
        """Whether this node leads and its lease holds: what is published here is the newest acknowledged state."""

    @property
    def staleness(self) -> Staleness:
        """(0, 0) on a leader whose lease holds."""

    @property
    def reached_us(self) -> int:
        """Every write that was acknowledged before this moment, in microseconds of the leader's clock, is applied
        here."""

    @property
    def is_silent(self) -> bool:
        """Whether this node follows and has heard nothing of the cluster for so long that it must not answer: keys may
        have been revoked meanwhile."""

    async def refresh(self, limit_s: float) -> bool:
        """Ask the leader what is confirmed, and wait until it is applied here. False: that was not reached in time."""

    async def keep_events(self, rid: bytes) -> None:
        """Have the leader keep the change stream events of a container from now on. Raises a Failure if that is not
        known to be done."""
