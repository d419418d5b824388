"""The state of a cluster as one node sees it: what the nodes announce and answer, and what the log says. It is read
when it is asked for, also while no node leads or PostgreSQL does not answer: what is not known is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from armillary import __version__, limits
from armillary.account.cluster_operations import ClusterStatus, NodeStatus, OwnFigures
from armillary.account.topology import Member
from armillary.clock import Clock, within
from armillary.cluster.forwarding import Forwarder
from armillary.cluster.membership import Membership
from armillary.cluster.peers.calls import Answer, Handler, PeerGone, Peers
from armillary.errors import Failure
from armillary.storage.log.replicated_log import LogFigures, LogUnavailable, ReplicaState, ReplicatedLog
from armillary.storage.replication.replicated_engine import ReplicatedEngine

_CALL: Final = "node-status"


@dataclass(frozen=True, slots=True)
class _LogState:
    figures: LogFigures | None
    replicas: Mapping[str, ReplicaState]
    error: str | None

    @property
    def slowest(self) -> ReplicaState | None:
        return min(self.replicas.values(), key=lambda each: each.flushed, default=None)


class Drained(Protocol):
    @property
    def is_drained(self) -> bool: ...


class StatusReader:
    def __init__(
        self,
        log: ReplicatedLog,
        engine: ReplicatedEngine,
        peers: Peers,
        membership: Membership,
        leadership: Drained,
        forwarder: Forwarder,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._log = log
        self._engine = engine
        self._peers = peers
        self._membership = membership
        self._leadership = leadership
        self._forwarder = forwarder
        self.calls: dict[str, Handler] = {_CALL: self._answer}

    async def status(self) -> ClusterStatus:
        membership = self._membership
        state = await self._log_state()
        members = membership.members
        answers = await asyncio.gather(*(self._ask(each.name) for each in members))
        silent_s = {each.node: each.silent_s for each in membership.nodes}
        leader = membership.leader
        slowest = state.slowest
        return ClusterStatus(
            node=membership.name,
            epoch=membership.epoch,
            leader=leader.name if leader is not None else None,
            regions=membership.regions,
            priorities=membership.priorities,
            nodes=[
                self._node_status(member, silent_s.get(member.name, 0.0), state, answer)
                for member, answer in zip(members, answers, strict=True)
            ],
            log=state.figures,
            log_error=state.error,
            slowest=slowest.node if slowest is not None else None,
        )

    async def own_figures(self) -> OwnFigures:
        """Asks no other node."""
        membership = self._membership
        state, own = await self._log_state(), self._own()
        lags = _lags(own, state.figures)
        slowest = state.slowest
        return OwnFigures(
            leads=membership.leads,
            epoch=membership.epoch,
            is_drained=self._leadership.is_drained,
            forwards=self._forwarder.count,
            node_count=len(membership.members),
            live_count=sum(each.is_alive for each in membership.members),
            lag_rows=lags[0],
            lag_transactions=lags[1],
            lag_s=lags[2],
            slowest=_distance(slowest, state.figures),
            log=state.figures,
        )

    async def most_applied(self, nodes: Sequence[str]) -> str:
        """Which of these nodes that may lead has applied most; empty if none of them answers."""
        found = [(int(answer["seq"]), node) for node, answer in await self._answers(nodes) if not answer["drained"]]
        return max(found)[1] if found else ""

    async def with_room(self, nodes: Sequence[str]) -> list[str]:
        """Those of these nodes whose disks take writes."""
        # A node of an earlier version does not say it.
        return [node for node, answer in await self._answers(nodes) if answer.get("has_room", True)]

    async def _answers(self, nodes: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
        """What those of these nodes say that answer."""
        answers = await asyncio.gather(*(self._ask(each) for each in nodes))
        return [(node, answer) for node, answer in zip(nodes, answers, strict=True) if answer is not None]

    def _node_status(
        self, member: Member, silent_s: float, state: _LogState, answer: Mapping[str, Any] | None
    ) -> NodeStatus:
        replica = state.replicas.get(member.name)
        rows, transactions, seconds = _lags(answer, state.figures)
        if answer is None and replica is not None and state.figures is not None:
            rows = max(0, state.figures.newest_seq - replica.applied)
        return NodeStatus(
            name=member.name,
            region=member.region,
            addresses=member.addresses,
            is_alive=member.is_alive,
            silent_s=silent_s,
            is_reached=answer is not None,
            leads=bool(answer["leads"]) if answer is not None else False,
            is_drained=self._membership.is_drained(member.name),
            version=str(answer["version"]) if answer is not None else None,
            applied_seq=int(answer["seq"]) if answer is not None else replica.applied if replica is not None else None,
            flushed_seq=replica.flushed if replica is not None else None,
            lag_rows=rows,
            lag_transactions=transactions,
            lag_s=seconds,
            forwards=int(answer["forwards"]) if answer is not None else None,
        )

    async def _log_state(self) -> _LogState:
        try:
            return await within(self._clock, limits.LEASE_SECONDS, self._read_log())
        except LogUnavailable as error:
            return _LogState(None, {}, str(error))
        except TimeoutError:
            return _LogState(None, {}, f"it has not answered within {limits.LEASE_SECONDS:g} s")

    async def _read_log(self) -> _LogState:
        await self._membership.exchange()  # nodes that have come or gone lately
        replicas = {each.node: each for each in await self._log.replicas()}
        return _LogState(await self._log.figures(), replicas, None)

    def _own(self) -> dict[str, Any]:
        position = self._engine.replica.position
        return {
            "leads": self._membership.leads,
            "drained": self._membership.is_draining,
            "seq": position.place.seq,
            "transactions": position.transactions,
            "time_us": position.time_us,
            "forwards": self._forwarder.count,
            "version": __version__,
            "has_room": self._engine.replica.has_room,
        }

    async def _ask(self, node: str) -> Mapping[str, Any] | None:
        """What a node says of itself; None: it does not answer."""
        if node == self._membership.name:
            return self._own()
        try:
            head, _ = await self._peers.call(node, _CALL, {}, limit_s=limits.NODE_STATUS_SECONDS)
        except (PeerGone, Failure):
            return None
        return head

    async def _answer(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return self._own(), b""


def _lags(answer: Mapping[str, Any] | None, log: LogFigures | None) -> tuple[int | None, int | None, float | None]:
    """Rows, transactions and seconds that a node is behind the newest row."""
    if answer is None or log is None:
        return None, None, None
    rows = max(0, log.newest_seq - int(answer["seq"]))
    if rows == 0:
        return 0, 0, 0.0
    transactions = max(0, log.newest_transactions - int(answer["transactions"]))
    return rows, transactions, max(0, log.newest_time_us - int(answer["time_us"])) / 1_000_000


def _distance(slowest: ReplicaState | None, log: LogFigures | None) -> tuple[str, int] | None:
    if slowest is None or log is None:
        return None
    return slowest.node, max(0, log.newest_seq - slowest.flushed)
