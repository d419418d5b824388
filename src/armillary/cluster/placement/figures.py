"""What placement decides from: the nodes of a cluster, its logs, and which node has a replica of which log.

Log 0 has the catalog. Every node has a replica of it, so only its leader is decided about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class PlacedNode:
    name: str
    region: str
    is_alive: bool  # it has announced itself lately, and answers
    silent_s: float  # since it announced itself
    is_drained: bool  # it does not take over
    free_bytes: int  # of its disk


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    node: str
    is_whole: bool  # it follows its log, and is not leaving; False also: its copy is not complete
    lag_rows: int = 0


@dataclass(frozen=True, slots=True)
class PlacedLog:
    number: int
    leader: str  # empty: there is none now
    replicas: Sequence[PlacedReplica]
    units_per_s: float  # request units that were spent in its partitions, an average of the last seconds
    size_bytes: int  # of its partitions, on one node
    partitions: int


@dataclass(frozen=True)
class Figures:
    nodes: Sequence[PlacedNode]
    logs: Sequence[PlacedLog]
    # The order of failover. Leaders are in the first region where a log has a replica that may lead. Empty: anywhere.
    regions: Sequence[str] = field(default=())

    @cached_property
    def by_name(self) -> Mapping[str, PlacedNode]:
        return {each.name: each for each in self.nodes}

    def log(self, number: int) -> PlacedLog | None:
        return next((each for each in self.logs if each.number == number), None)
