"""Nodes and logs of a cluster as the account's questions find them: a place is a log, and is asked at the node that
leads the log at the moment. What one node asks another as such, about the catalog for example, goes to the node by its
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from armillary import limits
from armillary.account.visits.elsewhere.place import Lost, Question, Told, Unreached, no_answer
from armillary.clock import Clock
from armillary.cluster.logs.leader_watch import LeaderWatch
from armillary.cluster.spread.node_connections import node_number
from armillary.errors import Failure, Kind
from armillary.processes.places import Places, ProcessPlace

_RUN_BYTES: Final = 8
_NO_RUN: Final = bytes(_RUN_BYTES)  # of a write for which no node was found yet


class NodePlace(ProcessPlace):
    """Another node."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.life = 0  # of the catalog, if it has it
        self.serves = False  # its account is open


class LogPlace(ProcessPlace):
    """The node that leads a log, looked up with each question."""

    def __init__(self, number: int, places: NodePlaces, watch: LeaderWatch, clock: Clock) -> None:
        super().__init__(number)
        self._places = places
        self._watch = watch
        self._clock = clock

    def node(self) -> NodePlace | None:
        """None: this node leads it, or none that is connected."""
        place = self._places.nodes.get(self._watch.leader(self.number).node)
        return place if place is not None and place.link is not None else None

    def new_write_id(self) -> bytes:
        node = self.node()
        return node.new_write_id() if node is not None else self._places.write_ids.next() + _NO_RUN

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        """A refusal of a node that has ceased to lead means that nothing was done: the next leader is asked. Raises
        Unreached if none is found for a while, or this node holds the partitions by then."""
        ends_s = self._clock.monotonic_s() + limit_s
        patience_s = self._clock.monotonic_s() + min(limit_s, limits.PLACE_FOUND_SECONDS)
        is_new = False  # whether the write has another id than the caller knows
        while True:
            version = self._watch.version
            node = self.node()
            if node is not None:
                asked = question
                write_id = question.write_id
                if write_id is not None and (is_new or write_id[-_RUN_BYTES:] == _NO_RUN):
                    is_new = True
                    asked = replace(question, id=node.new_write_id())  # type: ignore[type-var]
                try:
                    return await node.ask(asked, limit_s=max(0.0, ends_s - self._clock.monotonic_s()))
                except Lost:
                    if is_new:  # the caller would ask again under the id that it knows, and it could be done twice
                        raise no_answer(is_write=True) from None
                    raise
                except Failure as failure:
                    if failure.kind is not Kind.NOT_LEADER:
                        raise
                    is_new = write_id is not None
            elif self._places.holds(self.number):
                raise Unreached()  # its partitions are opened here by now
            left_s = patience_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise Unreached()
            await self._watch.changed(version, min(left_s, limits.FORWARD_RETRY_SECONDS))

    async def ask_connected(self, question: Question, limit_s: float) -> Any:
        return await self.ask(question, limit_s=limit_s)

    def tell(self, message: Told) -> None:
        node = self.node()
        if node is not None:
            node.tell(message)

    def tell_connected(self, message: Told) -> None:
        self.tell(message)


class NodePlaces(Places):
    """Of one node."""

    def __init__(self, node: str, log_count: int, watch: LeaderWatch, clock: Clock) -> None:
        super().__init__(node_number(node), log_count, clock)
        self.node = node
        self.nodes: dict[str, NodePlace] = {}  # the others, by name
        self.others = {}  # the same by number
        self.holds: Callable[[int], bool] = lambda log: False  # whether this node has opened the partitions of a log
        self._logs = {number: LogPlace(number, self, watch, clock) for number in range(limits.CLUSTER_LOGS_MAX)}
        self._watch = watch
        self._none = NodePlace(0)

    def know(self, names: Iterable[str]) -> None:
        """There are these nodes."""
        for name in names:
            if name != self.node and name not in self.nodes:
                place = NodePlace(node_number(name))
                self.nodes[name] = self.others[place.number] = place

    def __getitem__(self, number: int) -> ProcessPlace:
        """A log, or a node."""
        return self._logs[number] if number in self._logs else self.others[number]

    def holder(self, place: int) -> int:
        return node_number(self._watch.leader(place).node)

    @property
    def first(self) -> NodePlace:
        """The node that has the catalog, as far as one is connected."""
        having = [each for each in self.nodes.values() if each.life and each.connected is not None]
        return max(having, key=lambda each: each.life, default=self._none)
