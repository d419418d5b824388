"""One log on one node: its replica in a data directory of its own, the engine over it, and the role that the node has
in this log. It is opened from the directory, or built from another node that carries the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.bootstrap_source import BootstrapSource
from armillary.cluster.logs.leader_watch import LeaderWatch
from armillary.cluster.membership import has_drained, is_alive
from armillary.cluster.peers.calls import Peers
from armillary.cluster.peers.row_pushing import PeerRowSource
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.log.replicated_log import (
    OTHER_LOG,
    LeaderState,
    LogRefused,
    LogUnavailable,
    ReplicaState,
    ReplicatedLog,
)
from armillary.storage.replication.freshness import RowSource
from armillary.storage.replication.group_commit import not_leader
from armillary.storage.replication.leadership import Leadership, Roles
from armillary.storage.replication.lease import BootTime, boot_time_s
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.log_upkeep import LogLimits
from armillary.storage.replication.replicated_engine import ReplicatedEngine

_log = logging.getLogger("armillary.cluster")

MakeRoles = Callable[["LogReplica"], Roles]  # called when its engine is there, and `leadership` is not


class LogSettings(NamedTuple):
    """What all replicas of a node have in common."""

    node: str
    region: str
    make_roles: MakeRoles
    patience: Callable[[int], float] = lambda number: 0.0  # seconds longer than needed, until it takes over a log
    kept: LogLimits = LogLimits()
    boot_time: BootTime = boot_time_s
    row_source: Callable[[int], RowSource] | None = None  # None: the leader is asked as a peer


class LogReplica:
    def __init__(
        self,
        number: int,
        log: ReplicatedLog,
        replica: LocalReplica,
        peers: Peers,
        watch: LeaderWatch,
        clock: Clock,
        settings: LogSettings,
        *,
        is_drained: bool = False,
    ) -> None:
        """`is_drained`: it follows, and does not take over before `drain(False)`."""
        self.number = number
        self.log = log
        self.engine = ReplicatedEngine(replica, clock)
        self.node = settings.node
        self.source = BootstrapSource(self.engine, clock)
        self._watch = watch
        self._clock = clock
        source = PeerRowSource(peers, self._leader_to_ask, number)
        self.leadership = Leadership(
            settings.node,
            self.engine,
            log,
            _ToldRoles(settings.make_roles(self), log, watch),
            clock,
            boot_time=settings.boot_time,
            patience=lambda: settings.patience(number),
            on_state=lambda state: watch.see(number, state.node, state.epoch),
            source=settings.row_source(number) if settings.row_source is not None else source,
            kept=settings.kept,
            look=self._look,
        )
        self.leadership.is_drained = is_drained

    async def run(self) -> None:
        """Follow and lead until cancelled. Raises a Failure if this replica cannot go on."""
        await self.leadership.run()

    async def close(self) -> None:
        """`run` has ended."""
        await self.source.close()
        await self.engine.close()
        self.log.rest()

    # Who leads.

    @property
    def leader(self) -> str:
        """The node that leads this log, as far as this one knows; empty: none."""
        return self._watch.leader(self.number).node

    @property
    def epoch(self) -> int:
        return self._watch.leader(self.number).epoch

    @property
    def leads(self) -> bool:
        return self.leadership.leads

    @property
    def takes_writes(self) -> bool:
        return self.leadership.takes_writes

    @property
    def may_answer_strongly(self) -> bool:
        """Whether this node leads the log and its lease holds: what is published here is the newest state."""
        return self.engine.may_answer_strongly

    @property
    def staleness(self) -> tuple[float, float]:
        return self.leadership.staleness if self.leadership.leads or self.leadership.follower else (inf, inf)

    def _leader_to_ask(self) -> str:
        return self.leader if self.leader != self.node else ""

    async def _look(self) -> LeaderState:
        state = await self._watch.look(self.number)
        if state.generation != self.engine.replica.position.generation:
            raise LogRefused(OTHER_LOG)
        return state

    # Handing over.

    async def hand_over(self, successor: str = "") -> str:
        """Let another node that carries this log lead, without a successor's name the live one that has applied most.
        Returns the leader when there is one. Refused on a node that does not lead, and if there is no such node."""
        if not self.leadership.takes_writes:
            raise not_leader()
        epoch = self.epoch
        try:
            others = await self.candidates()
        except LogUnavailable as error:
            raise Failure(
                Kind.UNAVAILABLE, f"The replicated log does not answer: {error}.", retry_after_ms=1_000
            ) from None
        names = [each.node for each in others]
        if successor and successor not in names:
            raise bad_request(
                f"There is no live node '{successor}' that carries log {self.number} and could take over; there are: "
                f"{', '.join(sorted(names)) or 'none'}."
            )
        if not names:
            raise bad_request(f"There is no other live node that carries log {self.number}.")
        self.leadership.hand_over(successor or names[0])
        return await self._next_leader(epoch)

    async def candidates(self) -> list[ReplicaState]:
        """Other live nodes that carry this log and may lead it; those that have applied most come first. Raises
        LogUnavailable."""
        may_lead = {each.node for each in await self.log.nodes() if is_alive(each) and not has_drained(each)}
        others = [each for each in await self.log.replicas() if each.node in may_lead and each.node != self.node]
        return sorted(others, key=lambda each: (-each.applied, each.node))

    def drain(self, is_drained: bool) -> None:
        """Give up leading, to any node, and do not take over until this is undone."""
        self.leadership.drain(is_drained)

    async def retire(self) -> None:
        """Hand over if this node leads, and do not take over again. Where no other node can, the record says so."""
        if self.leadership.takes_writes:
            try:
                await self.hand_over()
            except Failure as failure:
                _log.warning("log %d was not handed over: %s", self.number, failure.message)
        self.leadership.drain(True)
        await self._until(lambda: not self.leadership.leads)

    async def _next_leader(self, epoch: int) -> str:
        await self._until(lambda: self.epoch > epoch and self.leader != "")
        if self.epoch <= epoch:
            raise Failure(Kind.UNAVAILABLE, "No other node has taken over yet.", retry_after_ms=1_000)
        return self.leader

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """For a limited time."""
        until_s = self._clock.monotonic_s() + limits.HAND_OVER_SECONDS_MAX
        while not is_done() and (left_s := until_s - self._clock.monotonic_s()) > 0:
            await self._watch.changed(self._watch.version, min(left_s, limits.LOG_POLL_SECONDS))


class _ToldRoles:
    """The roles of a node, which has a connection for appends to this log only while it leads. Implements Roles."""

    def __init__(self, roles: Roles, log: ReplicatedLog, watch: LeaderWatch) -> None:
        self._roles = roles
        self._log = log
        self._watch = watch
        self.adopt = roles.adopt
        self.apply_delay_s = roles.apply_delay_s

    async def lead(self) -> None:
        self._watch.tell()
        await self._roles.lead()

    def cease(self) -> None:
        self._roles.cease()
        self._watch.tell()

    async def follow(self) -> None:
        self._log.rest()
        self._watch.tell()
        await self._roles.follow()
