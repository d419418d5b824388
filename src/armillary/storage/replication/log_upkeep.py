"""Upkeep of the log by the nodes that use it: each tells how far its replica has come, and the leader has the rows
removed that every replica has. A replica that holds up the log for too long, or for too many bytes, is given up: its
rows go, and its node builds it anew from another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.storage.log.replicated_log import LogUnavailable, ReplicatedLog
from armillary.storage.replication.local_replica import LocalReplica

_log = logging.getLogger(__name__)


class LogLimits(NamedTuple):
    """What may be kept for replicas that are behind."""

    size_bytes: int = limits.LOG_BYTES_MAX
    seconds: float = limits.LOG_SECONDS_MAX


class LogUpkeep:
    def __init__(
        self,
        node: str,
        log: ReplicatedLog,
        replica: LocalReplica,
        clock: Clock,
        leads: Callable[[], bool],
        kept: LogLimits,
    ) -> None:
        self._node = node
        self._log = log
        self._replica = replica
        self._clock = clock
        self._leads = leads
        self._kept = kept

    async def register(self) -> None:
        """Have the log keep what this replica has not applied yet. Returns when it is so."""
        while True:
            try:
                await self._log.register(self._node)
                return
            except LogUnavailable as error:
                _log.warning("the replicated log does not answer: %s", error)
                await self._clock.sleep(limits.LOG_RETRY_SECONDS)

    async def run(self) -> None:
        """Until cancelled."""
        looked_s = self._clock.elapsed_s()
        while True:
            await self._clock.sleep(limits.LOG_REPORT_SECONDS)
            try:
                await self.report()
                if not self._leads():
                    continue
                if self._clock.elapsed_s() - looked_s >= limits.LOG_LIMITS_CHECK_SECONDS:
                    looked_s = self._clock.elapsed_s()
                    await self.give_up_slowest()
                await self._log.trim()
            except (LogUnavailable, Failure) as error:
                _log.info("the position of this replica cannot be told: %s", error)
            except Exception as error:
                # RocksDB refused: a stall, or a full disk. Without reports the log would be kept for this replica for
                # ever, so they go on when it takes writes again.
                _log.warning("the state of this replica cannot be made durable: %s", error)

    async def report(self) -> None:
        """Tell how far this replica has come."""
        flushed = await self._replica.sync()
        if not await self._log.report(self._node, self._replica.position.place.seq, flushed.place.seq):
            await self._log.register(self._node)

    async def give_up_slowest(self) -> None:
        """If the log is over a limit because of a replica that is behind this one, it is kept for that one no more."""
        replicas = await self._log.replicas()
        slowest = min(replicas, key=lambda each: each.flushed, default=None)
        if slowest is None or slowest.node == self._node:
            return
        here = next((each.flushed for each in replicas if each.node == self._node), 0)
        if slowest.flushed >= here:
            return
        size_bytes = (await self._log.figures()).size_bytes
        rows = await self._log.read(slowest.flushed, 1)
        behind_s = self._clock.now_s() - rows[0].time_us / 1_000_000 if rows else 0.0
        if size_bytes <= self._kept.size_bytes and behind_s <= self._kept.seconds:
            return
        _log.error(
            "the log has %d MB, and node %s has flushed nothing for %.0f s: the log is kept for it no more, and it has "
            "to be built anew",
            size_bytes // limits.MB,
            slowest.node,
            behind_s,
        )
        await self._log.remove(slowest.node)
