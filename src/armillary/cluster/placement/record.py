"""The placement record of a cluster: its rules, what operators asked for, and which node is to have a replica of which
log. It is a setting of the catalog, so every node follows it.

The record decides for a node that was away while its replica was given up. A log that it does not name is carried as
the nodes' data directories have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import orjson

from armillary import limits
from armillary.errors import Failure, Kind, bad_request

SETTING: Final = "placement"  # of the catalog
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class PlacementRules:
    replicas: int = limits.PLACEMENT_REPLICAS  # of each log but log 0, which all nodes have
    is_balancing: bool = True  # False: only what operators ask for is done
    copies: int = limits.PLACEMENT_COPIES  # to new replicas, at a time

    def check(self) -> None:
        if not 1 <= self.replicas <= limits.PLACEMENT_REPLICAS_MAX:
            raise bad_request(f"A log has from 1 to {limits.PLACEMENT_REPLICAS_MAX} replicas.")
        if not 1 <= self.copies <= limits.PLACEMENT_COPIES_MAX:
            raise bad_request(f"From 1 to {limits.PLACEMENT_COPIES_MAX} replicas are copied at a time.")


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    rules: PlacementRules = field(default_factory=PlacementRules)
    carried: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # nodes by the log that they are to carry
    leaders: Mapping[int, str] = field(default_factory=dict)  # that operators have chosen
    emptied: tuple[str, ...] = ()  # nodes that are to carry no log but log 0

    @classmethod
    def unpack(cls, packed: bytes | None) -> Self:
        """None: nothing was decided yet, and balancing is off."""
        if packed is None:
            return cls(PlacementRules(is_balancing=False))
        stored = orjson.loads(packed)
        if stored["version"] != _VERSION:
            raise Failure(
                Kind.CORRUPT,
                f"The placement of the cluster's logs is recorded in version {stored['version']}, and this node knows "
                f"version {_VERSION}: upgrade Armillary on this node.",
            )
        return cls(
            PlacementRules(stored["replicas"], stored["balancing"], stored["copies"]),
            {int(log): tuple(nodes) for log, nodes in stored["carried"].items()},
            {int(log): node for log, node in stored["leaders"].items()},
            tuple(stored["emptied"]),
        )

    def pack(self) -> bytes:
        stored: dict[str, Any] = {
            "version": _VERSION,
            "replicas": self.rules.replicas,
            "balancing": self.rules.is_balancing,
            "copies": self.rules.copies,
            "carried": {str(log): list(nodes) for log, nodes in sorted(self.carried.items())},
            "leaders": {str(log): node for log, node in sorted(self.leaders.items())},
            "emptied": list(self.emptied),
        }
        return orjson.dumps(stored)

    def logs_of(self, node: str, present: set[int]) -> set[int]:
        """The logs that a node is to carry, of which it has replicas `present`."""
        named = {log for log, nodes in self.carried.items() if node in nodes}
        return {0} | named | {log for log in present if log not in self.carried}

    def carrying(self, log: int, nodes: tuple[str, ...]) -> PlacementRecord:
        return replace(self, carried={**self.carried, log: tuple(sorted(nodes))})

    def led_by(self, log: int, node: str) -> PlacementRecord:
        """An empty name: the balancer chooses the leader."""
        others = {number: chosen for number, chosen in self.leaders.items() if number != log}
        return replace(self, leaders={**others, log: node} if node else others)

    def emptying(self, node: str, is_emptied: bool) -> PlacementRecord:
        others = tuple(each for each in self.emptied if each != node)
        return replace(self, emptied=(*others, node) if is_emptied else others)
