"""Steps that change which nodes have a replica of a log, and which of them leads it. Each names its reason in words.
`cluster/spread` has real nodes carry them out, tests simulated ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from armillary.cluster.placement.figures import Figures


class Action(StrEnum):
    CARRY = "carry"  # the node gets a replica of the log
    HAND_OVER = "hand-over"  # the node, which has a replica, leads the log
    GIVE_UP = "give-up"  # the node's replica is removed


class Cause(StrEnum):
    OPERATOR = "operator"  # a move, or a node that is to be emptied
    REPLICAS = "replicas"  # there are too few, or more than the rules want
    REGIONS = "regions"
    ROOM = "room"  # on a node's disk
    LOAD = "load"  # loads of nodes are evened out


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    log: int
    node: str
    cause: Cause
    reason: str
    copied_bytes: int = 0

    @property
    def text(self) -> str:
        match self.action:
            case Action.CARRY:
                return f"copy log {self.log} to {self.node}"
            case Action.HAND_OVER:
                return f"let {self.node} lead log {self.log}"
            case Action.GIVE_UP:
                return f"remove the replica of log {self.log} on {self.node}"


class PlacementActions(Protocol):
    """Each may be repeated after its outcome was not known, and raises a Failure if it was not done."""

    async def figures(self) -> Figures: ...

    async def carry(self, log: int, node: str) -> None:
        """Returns when the node has a whole replica. Cancelled, the copy may go on."""

    async def hand_over(self, log: int, node: str) -> None:
        """Returns when the node leads."""

    async def give_up(self, log: int, node: str) -> None:
        """Returns when the log counts the node's replica no more. A live node withdraws by itself, which it refuses
        while no other replica has flushed what it has; the replica of a node that is gone is removed from the log."""
