"""Who leads: a node follows until the leader's lease is over, takes over, leads until it is deposed, hands over or
fails, and follows again. Never two that acknowledge: what the log accepts decides, and leases only protect reads.

Taking over: raise the epoch and append a fence (`ReplicatedLog.take`), apply everything below the fence, open the
engine for writes. Stepping down: nothing has to be undone, since nothing is in RocksDB that the log has not
acknowledged. What the account does when the role changes is handed in as `Roles`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.log.replicated_log import LeaderState, LogUnavailable, ReplicatedLog
from armillary.storage.log.rows import Row
from armillary.storage.overlay import Layer
from armillary.storage.replication.follower import Follower
from armillary.storage.replication.freshness import Freshness, RowSource
from armillary.storage.replication.group_commit import GroupCommit, not_leader
from armillary.storage.replication.lease import BootTime, Lease, RivalLease, boot_time_s
from armillary.storage.replication.log_upkeep import LogLimits, LogUpkeep
from armillary.storage.replication.replicated_engine import ReplicatedEngine

_log = logging.getLogger(__name__)


class Roles(Protocol):
    """What is done with the account when the role of this node changes."""

    async def lead(self) -> None:
        """The engine takes writes: open the account as a leader's."""

    def cease(self) -> None:
        """The engine refuses writes from now on: clients must not be told any more that this node leads. Called before
        the first refusal, so that a client that looks for the leader after one does not find this node again."""

    async def follow(self) -> None:
        """The engine refuses writes: close the account, and open it as a follower's."""

    def adopt(self, layer: Layer, notes: bytes) -> None:
        """A group was published on this follower."""

    def apply_delay_s(self) -> float:
        """How long this follower holds back rows that it has received: 0 but for fault rules."""


class Leadership:
    def __init__(
        self,
        node: str,
        engine: ReplicatedEngine,
        log: ReplicatedLog,
        roles: Roles,
        clock: Clock,
        *,
        boot_time: BootTime = boot_time_s,
        patience: Callable[[], float] = lambda: 0.0,
        on_state: Callable[[LeaderState], None] = lambda state: None,
        source: RowSource | None = None,
        kept: LogLimits = LogLimits(),  # noqa: B008 - it does not change
        look: Callable[[], Awaitable[LeaderState]] | None = None,
    ) -> None:
        """`patience`: how many seconds longer than needed this node waits before it takes over, so that nodes of the
        preferred region are first. `on_state`: told of the record of the log whenever it was read. `source`: how the
        leader is asked for rows while this node follows. `look`: the record of the log at its next common look for all
        logs of a node, instead of one of its own each half second."""
        self.node = node
        self._engine = engine
        self._log = log
        self._roles = roles
        self._clock = clock
        self._boot_time = boot_time
        self._patience = patience
        self._on_state = on_state
        self._source = source
        self._look = look
        self._upkeep = LogUpkeep(node, log, engine.replica, clock, lambda: self.leads, kept)
        self.freshness = Freshness(engine.replica, clock, boot_time, source)
        self._rival = RivalLease(boot_time)
        self._successor: str | None = None  # the node to hand over to, if that was asked for
        self.is_drained = False
        self._stands_back_until_s = float("-inf")  # after handing over: others take over first
        self._wake = asyncio.Event()
        self.state: LeaderState | None = None  # as last seen
        self.follower: Follower | None = None
        self._commit: GroupCommit | None = None
        self.stop_reason: Failure | None = None

    async def run(self) -> None:
        """Follow and lead until cancelled. Raises a Failure if this node cannot go on."""
        await self._upkeep.register()
        upkeep = asyncio.ensure_future(self._upkeep.run())
        try:
            await self._roles.follow()
            while True:
                state, lease = await self._follow()
                await self._lead(state, lease)
                await self._roles.follow()
        except Failure as failure:
            self.stop_reason = failure
            self._engine.fail(failure)
            raise
        finally:
            upkeep.cancel()

    def hand_over(self, successor: str = "") -> None:
        """Finish what was accepted, and let another node take over at once. Refused on a node that does not lead."""
        if self._commit is None:
            raise not_leader()
        self._successor = successor
        self._wake.set()

    def drain(self, is_drained: bool) -> None:
        """Give up leading, and do not take over until this is undone."""
        self.is_drained = is_drained
        self._wake.set()

    @property
    def leads(self) -> bool:
        return self._commit is not None

    @property
    def takes_writes(self) -> bool:
        """Whether this node leads, and has not begun to give it up."""
        return self._commit is not None and self._commit.is_open

    @property
    def commit(self) -> GroupCommit | None:
        """What followers ask while this node leads."""
        return self._commit

    # How fresh the state of this node is.

    @property
    def staleness(self) -> tuple[float, float]:
        """Seconds and transactions that this node may be behind what was acknowledged; (0, 0) on a leader whose lease
        holds, infinite on one whose lease does not."""
        if self._commit is None:
            return self.freshness.staleness
        return (0.0, 0.0) if self._engine.may_answer_strongly else (inf, inf)

    @property
    def reached_us(self) -> int:
        """All rows up to this time, of the leader's clock, are applied here: so is every write that was acknowledged
        before it."""
        word = self._commit.word if self._commit is not None else None
        return word.time_us if word is not None and word.is_leased else self.freshness.reached_us

    @property
    def silent_s(self) -> float:
        """Seconds since this node has heard the log or the leader; 0 on a leader."""
        return self.freshness.silent_s if self._commit is None else 0.0

    async def refresh(self, limit_s: float) -> bool:
        """Ask the leader what is confirmed, and wait until it is applied here. False: that was not reached in time."""
        if self._commit is not None:
            return self._engine.may_answer_strongly
        return await self.freshness.refresh(limit_s)

    # Following.

    async def _follow(self) -> tuple[LeaderState, Lease]:
        """Until this node has taken over, and has applied everything up to its fence."""
        self._rival = RivalLease(self._boot_time)
        self._successor = None
        self.follower = follower = Follower(
            self._engine.replica, self._log, self._clock, self._roles.adopt, self._source, self.freshness
        )
        follower.apply_delay = self._roles.apply_delay_s
        running = asyncio.ensure_future(follower.run())
        try:
            while True:
                await self._watch_leader(running)
                lease = Lease(self._boot_time)
                taken = await self._take(lease)
                if taken is not None:
                    await follower.stop(running)
                    state, fence = taken
                    if await self._has_reached(follower, fence):
                        return state, lease
                    _log.warning("another node has taken over meanwhile")
                    running = asyncio.ensure_future(follower.run())
        finally:
            self.follower = None
            if not running.done():
                await follower.stop(running)

    async def _has_reached(self, follower: Follower, fence: Row) -> bool:
        """Apply everything up to this node's fence. False: another node has taken over since."""
        while True:
            try:
                return await follower.catch_up(fence)
            except LogUnavailable as error:
                _log.info("the replicated log does not answer while taking over: %s", error)
                await self._clock.sleep(limits.LOG_RETRY_SECONDS)

    async def _watch_leader(self, running: asyncio.Task[None]) -> None:
        """Until there is no leader whose lease may hold."""
        while True:
            if running.done():
                running.result()  # raises: the follower cannot go on
            try:
                state = self._see(await (self._log.leader() if self._look is None else self._look()))
                self._rival.observe(state)
                # A record that names this node is of an earlier run of it, or of an attempt that did not end: this
                # process does not lead, and no other process has this node's directory.
                is_free = state.node == "" and self._boot_time() >= self._stands_back_until_s
                is_due = is_free or state.node == self.node or self._rival.is_over(self._patience())
                if is_due and not self.is_drained:
                    return
            except LogUnavailable:
                pass  # the follower tells
            if self._look is None:
                await self._clock.sleep(limits.LEASE_RENEW_SECONDS)

    def _see(self, state: LeaderState) -> LeaderState:
        self.state = state
        self._on_state(state)
        return state

    async def _take(self, lease: Lease) -> tuple[LeaderState, Row] | None:
        assert self.state is not None
        sent_s = lease.now_s()
        try:
            taken = await self._log.take(self.state, self.node, int(self._clock.now_s() * 1_000_000))
        except LogUnavailable:
            await self._clock.sleep(limits.LOG_RETRY_SECONDS)
            return None
        if taken is not None:
            lease.renew(sent_s)
            self._see(taken[0])
            _log.warning("this node takes over: epoch %d, row %d", taken[0].epoch, taken[1].seq)
        return taken

    # Leading.

    async def _lead(self, state: LeaderState, lease: Lease) -> None:
        """Until this node has ceased to lead. The engine refuses writes then."""
        over = asyncio.Event()

        def end(reason: Failure) -> None:
            self._roles.cease()
            lease.end()
            over.set()
            self._wake.set()

        self._wake.clear()
        self._commit = commit = self._engine.lead(self._log, state.epoch, lease, end)
        opening = asyncio.ensure_future(self._roles.lead())  # may take longer than a lease
        opening.add_done_callback(lambda _: self._wake.set())
        try:
            while not over.is_set() and self._successor is None:
                if self.is_drained or (opening.done() and not _has_opened(opening)):
                    self._successor = ""
                    break
                sent_s = lease.now_s()
                try:
                    renewed = await self._log.renew(state, commit.confirmed.place)
                    if renewed is None:
                        _log.warning("another node leads now")
                        break
                    lease.renew(sent_s)
                    state = self._see(renewed)
                except LogUnavailable as error:
                    _log.info("the lease cannot be renewed: %s", error)
                await self._pause()
            if self._successor is not None and not over.is_set():
                self._roles.cease()
                await commit.end(_handing_over())
                lease.end()
                await self._resign(state, self._successor)
            elif commit.has_failed:  # the others need not wait for the end of the lease
                await self._resign(state, "")
        finally:
            if not opening.done():
                opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            lease.end()
            await commit.abandon(not_leader())
            self._commit = None
            self._engine.follow()

    async def _pause(self) -> None:
        """Until the next renewal is due, or something has to be done earlier."""
        pause = asyncio.ensure_future(self._clock.sleep(limits.LEASE_RENEW_SECONDS))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait([pause, wake], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            wake.cancel()
            self._wake.clear()

    async def _resign(self, state: LeaderState, successor: str) -> None:
        self._stands_back_until_s = self._boot_time() + limits.LEASE_SECONDS
        try:
            if await self._log.resign(state, successor):
                _log.warning("handed over to %s", successor or "any node")
        except LogUnavailable as error:  # the others wait for the end of the lease
            _log.info("handing over was not recorded: %s", error)


def _has_opened(opening: asyncio.Future[None]) -> bool:
    """Whether the account was opened. What keeps only this node from leading now is logged; other failures are
    raised."""
    failure = opening.exception()
    if failure is None:
        return True
    if isinstance(failure, Failure) and failure.kind in (Kind.NOT_LEADER, Kind.UNAVAILABLE, Kind.STORAGE_FULL):
        _log.warning("the account cannot be opened as the leader's, handing over: %s", failure.message)
        return False
    raise failure


def _handing_over() -> Failure:
    return Failure(
        Kind.NOT_LEADER,
        "This node hands over to another node of the cluster. Send the write again; nothing was stored.",
    )
