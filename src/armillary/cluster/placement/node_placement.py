"""Placement at a node: it carries what the placement record says, tells what it has, and has other nodes hand over. The
balancer of the node that leads log 0 uses it as PlacementActions.

What is to be carried and given up a node reads in the record, which is written before. So the balancer only waits for
it, and a node that was away learns it when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.membership import has_drained, is_alive
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.cluster.placement.figures import Figures, PlacedLog, PlacedNode, PlacedReplica
from armillary.cluster.placement.record import PlacementRecord
from armillary.errors import Failure, Kind
from armillary.storage.log.replicated_log import LeaderState, LogUnavailable, NodeState, ReplicaState

_FIGURES: Final = "placement-figures"
_HAND_OVER: Final = "placement-hand-over"


class LedLoad(NamedTuple):
    """Of a log that this node leads."""

    units_per_s: float = 0.0
    size_bytes: int = 0
    partitions: int = 0


class _Told(NamedTuple):
    """What a node says of itself."""

    free_bytes: int
    applied: Mapping[int, int]  # the row that it has applied, by the logs that it follows and is to carry
    led: Mapping[int, LedLoad]


class NodePlacement:
    def __init__(
        self,
        name: str,
        logs: NodeLogs,
        peers: Peers,
        clock: Clock,
        *,
        nodes: Callable[[], Sequence[NodeState]],
        regions: Callable[[], Sequence[str]],
        led_loads: Callable[[], Mapping[int, LedLoad]],
        free_bytes: Callable[[], int],
        hand_over: Callable[[int, str], Awaitable[str]],
    ) -> None:
        """`nodes`: of the cluster, as they announce themselves. `regions`: where leaders are to be, the first one
        first; empty: anywhere. `hand_over`: of a log that this node leads to another one; returns the next leader."""
        self._name = name
        self._logs = logs
        self._peers = peers
        self._clock = clock
        self._nodes = nodes
        self._regions = regions
        self._led_loads = led_loads
        self._free_bytes = free_bytes
        self._hand_over = hand_over
        self._sizes: dict[int, LedLoad] = {}  # as they were told last, while no leader tells them
        peers.handlers |= {_FIGURES: self._answer_figures, _HAND_OVER: self._answer_hand_over}

    def follow(self, record: PlacementRecord) -> None:
        """Carry what the record says. Called with the record when the catalog was opened, and whenever it changed.
        While balancing is off, each node carries what the record does not name."""
        is_balancing = record.rules.is_balancing
        present = self._logs.wanted if is_balancing else set(range(self._logs.logs.count))
        self._logs.want(record.logs_of(self._name, present))

    # As PlacementActions.

    async def figures(self) -> Figures:
        nodes = self._nodes()
        states, replicas = await self._read(self._read_log)
        live = [each.node for each in nodes if is_alive(each)]
        answers = await asyncio.gather(*(self._ask(each) for each in live))
        told = {node: answer for node, answer in zip(live, answers, strict=True) if answer is not None}
        for answer in told.values():
            self._sizes.update(answer.led)
        return Figures(
            [self._placed_node(each, told.get(each.node)) for each in nodes],
            [self._placed_log(number, state, replicas[number], told) for number, state in enumerate(states)],
            self._regions(),
        )

    async def carry(self, log: int, node: str) -> None:
        """Copies take as long as they take, while the node answers."""
        newest = max((each.applied for each in (await self._read(self._read_log))[1][log]), default=0)
        silent_s = 0.0
        while True:
            told = await self._ask(node)
            if told is not None and told.applied.get(log, -1) >= newest:
                return
            silent_s = 0.0 if told is not None else silent_s + limits.LOG_REPORT_SECONDS
            if silent_s > limits.NODE_SILENT_SECONDS:
                raise Failure(Kind.UNAVAILABLE, f"The node {node} does not answer.", retry_after_ms=1_000)
            await self._clock.sleep(limits.LOG_REPORT_SECONDS)

    async def hand_over(self, log: int, node: str) -> None:
        leader = self._logs.leader_of(log)
        if leader == node:
            return
        if leader == self._name:
            led_by = await self._hand_over(log, node)
        else:
            answer = await self._called(leader, _HAND_OVER, {"log": log, "node": node})
            led_by = str(answer["leader"])
        if led_by != node:
            raise Failure(Kind.UNAVAILABLE, f"{led_by} leads log {log} now, and not {node}.", retry_after_ms=1_000)

    async def give_up(self, log: int, node: str) -> None:
        if not any(each.node == node and is_alive(each) for each in self._nodes()):
            await self._read(lambda: self._remove(log, node))
            return
        until_s = self._clock.monotonic_s() + limits.PLACEMENT_RETRY_SECONDS
        while any(each.node == node for each in (await self._read(self._read_log))[1][log]):
            if self._clock.monotonic_s() >= until_s:
                raise Failure(
                    Kind.UNAVAILABLE, f"The node {node} still has its replica of log {log}.", retry_after_ms=1_000
                )
            await self._clock.sleep(limits.LOG_REPORT_SECONDS)

    # The logs.

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await read()
        except LogUnavailable as error:
            raise Failure(
                Kind.UNAVAILABLE, f"The replicated log does not answer: {error}.", retry_after_ms=1_000
            ) from None

    async def _read_log(self) -> tuple[Sequence[LeaderState], list[list[ReplicaState]]]:
        states = await self._logs.logs.leaders()
        return states, [await (await self._logs.logs.log(number)).replicas() for number in range(len(states))]

    async def _remove(self, log: int, node: str) -> None:
        await (await self._logs.logs.log(log)).remove(node)

    def _placed_node(self, node: NodeState, told: _Told | None) -> PlacedNode:
        return PlacedNode(
            node.node,
            node.region,
            told is not None,
            node.silent_s,
            has_drained(node),
            told.free_bytes if told is not None else 0,
        )

    def _placed_log(
        self, number: int, state: LeaderState, replicas: Sequence[ReplicaState], told: Mapping[str, _Told]
    ) -> PlacedLog:
        newest = max((each.applied for each in replicas), default=0)
        load = self._sizes.get(number, LedLoad())
        return PlacedLog(
            number,
            state.node if state.node in told else "",
            [
                PlacedReplica(
                    each.node,
                    # A node that does not answer keeps what it has told the log.
                    number in told[each.node].applied if each.node in told else each.flushed > 0,
                    max(0, newest - each.applied),
                )
                for each in replicas
            ],
            *load,
        )

    # Other nodes.

    def _own(self) -> _Told:
        logs = self._logs
        applied = {
            number: replica.engine.replica.position.place.seq
            for number, replica in logs.replicas.items()
            if number in logs.wanted
        }
        return _Told(self._free_bytes(), applied, dict(self._led_loads()))

    async def _ask(self, node: str) -> _Told | None:
        """None: it does not answer."""
        if node == self._name:
            return self._own()
        try:
            head, _ = await self._peers.call(node, _FIGURES, {}, limit_s=limits.NODE_STATUS_SECONDS)
        except (PeerGone, Failure):
            return None
        return _Told(
            int(head["free"]),
            {int(log): int(seq) for log, seq in head["applied"].items()},
            {int(log): LedLoad(*load) for log, load in head["led"].items()},
        )

    async def _called(self, node: str, name: str, head: dict[str, Any]) -> dict[str, Any]:
        try:
            answer, _ = await self._peers.call(
                node, name, head, limit_s=limits.HAND_OVER_SECONDS_MAX + limits.LEASE_SECONDS
            )
        except PeerGone as gone:
            raise Failure(Kind.UNAVAILABLE, str(gone), retry_after_ms=1_000) from None
        return answer

    async def _answer_figures(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        own = self._own()
        return {
            "free": own.free_bytes,
            "applied": {str(log): seq for log, seq in own.applied.items()},
            "led": {str(log): list(load) for log, load in own.led.items()},
        }, b""

    async def _answer_hand_over(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return {"leader": await self._hand_over(int(head["log"]), str(head["node"]))}, b""
