"""The logs that a node carries: a replica of each is opened, built from another node where it is new, and given up
where the node is to carry the log no more. Log 0, with the catalog, is carried by every node.

A replica is given up in this order: another node leads; another one has flushed everything that this one has; the log
counts this one no more (`ReplicatedLog.withdraw`, which decides); its files are removed. A stop in between is followed
by the same steps again, since what is in the directory is carried until the wish says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.bootstrap_source import BEGIN, DIGEST, END, PART
from armillary.cluster.logs.leader_watch import Leader, LeaderWatch
from armillary.cluster.logs.log_replica import LogReplica, LogSettings
from armillary.cluster.logs.replica_directories import ReplicaDirectories
from armillary.cluster.peers.calls import Handler, Peers
from armillary.cluster.peers.log_calls import answered_by_log
from armillary.cluster.peers.row_pushing import answer_followers
from armillary.errors import Failure, bad_request
from armillary.storage.disk_errors import closed
from armillary.storage.log.replicated_log import LogFigures, LogUnavailable, ReplicaState, ReplicatedLog, ReplicatedLogs
from armillary.storage.replication.group_commit import GroupCommit
from armillary.storage.replication.rows_waiting import CUT_OFF

_log = logging.getLogger("armillary.cluster")


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One log of the cluster, as its record and its rows say."""

    number: int
    leader: str
    epoch: int
    replicas: Sequence[ReplicaState]
    figures: LogFigures

    def lag_rows(self, replica: ReplicaState) -> int:
        return max(0, self.figures.newest_seq - replica.applied)


class NodeLogs:
    def __init__(
        self,
        logs: ReplicatedLogs,
        directories: ReplicaDirectories,
        peers: Peers,
        clock: Clock,
        settings: LogSettings,
        *,
        is_drained: bool = False,
    ) -> None:
        """`is_drained`: this node takes no log over before `drain(False)`."""
        self.logs = logs
        self.watch = LeaderWatch(logs, clock)
        self.is_drained = is_drained
        self._directories = directories
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._replicas: dict[int, LogReplica] = {}
        self._wanted: set[int] = set()
        self._wish = asyncio.Event()  # set when what is wanted has changed
        self._carrying: dict[int, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer_followers(peers, self._commit_of)
        peers.handlers |= answered_by_log((BEGIN, DIGEST, PART, END), self._source_of)

    # What this node carries.

    @property
    def replicas(self) -> Mapping[int, LogReplica]:
        """Those that are open, by their logs. `changed` tells of those that come and go, too."""
        return self._replicas

    @property
    def wanted(self) -> set[int]:
        """The logs that this node is to carry."""
        return set(self._wanted)

    @property
    def leaving(self) -> set[int]:
        """Logs that this node still carries, and is to carry no more."""
        return {number for number in self._carrying if number not in self._wanted}

    async def start(self) -> None:
        """Open the replicas that are in the directories, and return when that of log 0 is open. Raises a Failure."""
        self._watching = asyncio.create_task(self.watch.run())
        self.want(self._directories.present())
        while 0 not in self._replicas and not self._failed.done():
            await self.watch.changed(self.watch.version, limits.LOG_POLL_SECONDS)
        if self._failed.done():
            self._failed.result()

    def want(self, numbers: Iterable[int]) -> None:
        """Carry these logs, and log 0, and no others. Returns at once: a replica that is to come is in `replicas` when
        it can follow, and one that is to go as long as it is carried."""
        wanted = {0, *numbers}
        if not all(0 <= number < limits.CLUSTER_LOGS_MAX for number in wanted):
            raise bad_request(f"Logs have numbers from 0 to {limits.CLUSTER_LOGS_MAX - 1}.")
        if wanted == self._wanted:
            return
        self._wanted = wanted
        wish, self._wish = self._wish, asyncio.Event()
        wish.set()
        for number in sorted(wanted - self._carrying.keys()):
            self._carrying[number] = carrying = asyncio.create_task(self._carry(number))
            carrying.add_done_callback(self._note_end)

    async def until_failed(self) -> None:
        """Raises a Failure when a replica cannot go on."""
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """End following and leading. Engines stay open until `close`, so that what uses them can be closed before."""
        tasks = [*self._carrying.values(), *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._carrying.clear()

    async def close(self) -> None:
        """After `stop`. The connections to the logs stay open."""
        for number in sorted(self._replicas, reverse=True):
            await self._replicas.pop(number).close()
        if self._failed.done() and not self._failed.cancelled():
            self._failed.exception()  # it was told, or is not of interest any more
        self._failed.cancel()

    # Who leads.

    def leader_of(self, log: int) -> str:
        """The node that leads a log of the cluster, carried here or not; empty: none is known."""
        return self.watch.leader(log).node

    def epoch_of(self, log: int) -> int:
        return self.watch.leader(log).epoch

    @property
    def leaders(self) -> Sequence[Leader]:
        """Of all logs, by their numbers."""
        return self.watch.leaders

    @property
    def led(self) -> set[int]:
        """The logs that this node leads."""
        return {number for number, replica in self._replicas.items() if replica.leads}

    def see(self, log: int, node: str, epoch: int) -> None:
        """Another node has told that it leads a log."""
        self.watch.see(log, node, epoch)

    @property
    def version(self) -> int:
        return self.watch.version

    async def changed(self, version: int, limit_s: float) -> None:
        """Until a leader, a role of this node or `replicas` has changed since a version, at most for a while."""
        await self.watch.changed(version, limit_s)

    def drain(self, is_drained: bool) -> None:
        """Take no log over until this is undone, and give up those that this node leads."""
        self.is_drained = is_drained
        for number, replica in self._replicas.items():
            replica.drain(is_drained or number not in self._wanted)

    async def retire(self) -> None:
        """Hand over all logs that this node leads, before it stops."""
        self.is_drained = True
        await asyncio.gather(*(each.retire() for each in self._replicas.values()))

    # Figures.

    async def status(self) -> Sequence[LogStatus]:
        """Of all logs of the cluster. Raises LogUnavailable."""
        states = await self.logs.leaders()
        found = []
        for number, state in enumerate(states):
            log = await self.logs.log(number)
            found.append(LogStatus(number, state.node, state.epoch, await log.replicas(), await log.figures()))
        return found

    # One log.

    async def _carry(self, number: int) -> None:
        """From the opening of a log's replica until this node carries the log no more."""
        log = await self._log_of(number)
        is_carried = True
        while is_carried:
            local = await self._directories.open(number, log)
            replica = LogReplica(
                number, log, local, self._peers, self.watch, self._clock, self._settings, is_drained=self.is_drained
            )
            self._replicas[number] = replica
            self.watch.tell()
            await self._run(replica)
            await self._close(number)
            if number not in self._wanted and await self._has_withdrawn(number, log, local.position.place.seq):
                await self._directories.remove(number)
                _log.warning("this node does not carry log %d any more", number)
                is_carried = number in self._wanted
        del self._carrying[number]
        self.watch.tell()

    async def _run(self, replica: LogReplica) -> None:
        """Until it may be given up, or has to be opened anew. Raises a Failure if this node cannot go on."""
        running = asyncio.create_task(replica.run())
        reached: int | None = None  # when it began to leave
        try:
            while not running.done():
                wish = self._wish  # a change while `_may_leave` waits is looked at, too
                if replica.number in self._wanted:
                    reached = None
                    if replica.leadership.is_drained != self.is_drained:  # it was to leave
                        replica.drain(self.is_drained)
                else:
                    # What is written later is looked at when this replica is closed.
                    reached = replica.engine.replica.position.place.seq if reached is None else reached
                    if await self._may_leave(replica, reached):
                        return
                await self._next_wish(wish, running, is_leaving=replica.number not in self._wanted)
            running.result()
        except Failure as failure:
            if not failure.details.get(CUT_OFF) or replica.number == 0:
                raise
            _log.warning("log %d: %s", replica.number, failure.message)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _close(self, number: int) -> None:
        closing = asyncio.ensure_future(self._replicas.pop(number).close())
        self.watch.tell()
        try:
            await asyncio.shield(closing)
        finally:
            await closing  # half closed, it would keep the directory

    async def _may_leave(self, replica: LogReplica, reached: int) -> bool:
        """Whether other nodes can do without this replica: one has flushed the rows up to a seq. A leader hands over
        first; then this node takes the log over only while no other live node could."""
        try:
            if replica.takes_writes:
                await replica.hand_over()
            others = await replica.candidates()
        except (Failure, LogUnavailable) as error:
            _log.info("log %d is still carried here: %s", replica.number, error)
            return False
        replica.leadership.is_drained = self.is_drained or bool(others)
        has_other_leader = not replica.leads and replica.leader not in ("", replica.node)
        return has_other_leader and any(each.flushed >= reached for each in others)

    async def _has_withdrawn(self, number: int, log: ReplicatedLog, applied: int) -> bool:
        """Whether the log counts this node no more, which is tried for a while. False: it is to be carried on."""
        until_s = self._clock.monotonic_s() + limits.LOG_WITHDRAW_SECONDS_MAX
        while number not in self._wanted and self._clock.monotonic_s() < until_s:
            try:
                if await log.withdraw(self._settings.node, applied):
                    return True
            except LogUnavailable as error:
                _log.info("log %d is still carried here: %s", number, error)
            await self._next_wish(self._wish, None, is_leaving=True)
        return False

    async def _next_wish(self, wish: asyncio.Event, running: asyncio.Task[None] | None, *, is_leaving: bool) -> None:
        """Until the wish has changed or a replica has ended. While one is to leave, at most until others have told how
        far they have come."""
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(wish.wait())]
        if is_leaving:
            waiting.append(asyncio.ensure_future(self._clock.sleep(limits.LOG_REPORT_SECONDS)))
        try:
            await asyncio.wait([*waiting, *([running] if running else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _log_of(self, number: int) -> ReplicatedLog:
        is_told = False
        while True:
            try:
                if number >= self.logs.count:
                    await self.logs.leaders()  # it may have been added
                if number >= self.logs.count:
                    raise bad_request(
                        f"This node is to carry log {number}, and the cluster has {self.logs.count} logs: its data "
                        "directory is of another cluster, or the database was restored to an earlier point."
                    )
                return await self.logs.log(number)
            except LogUnavailable as error:
                if not is_told:
                    is_told = True
                    _log.warning("log %d does not answer: %s", number, error)
                await self._clock.sleep(limits.LOG_RETRY_SECONDS)

    def _note_end(self, carrying: asyncio.Task[None]) -> None:
        if carrying.cancelled() or carrying.exception() is None:
            return
        if not self._failed.done():
            self._failed.set_exception(carrying.exception() or closed())
        self.watch.tell()

    # Other nodes.

    def _commit_of(self, log: int) -> GroupCommit | None:
        replica = self._replicas.get(log)
        return replica.leadership.commit if replica is not None else None

    def _source_of(self, log: int) -> dict[str, Handler] | None:
        replica = self._replicas.get(log)
        return replica.source.calls if replica is not None else None
