"""Who leads each log of the cluster, as a node knows it: the log's own records, read for all logs with one statement
each half second, and what new leaders tell before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock, within
from armillary.storage.log.replicated_log import LeaderState, LogUnavailable, ReplicatedLogs

_log = logging.getLogger(__name__)


class Leader(NamedTuple):
    node: str  # empty: none has led yet, or the last one has handed over to any node
    epoch: int


NO_LEADER = Leader("", 0)


class LeaderWatch:
    def __init__(self, logs: ReplicatedLogs, clock: Clock) -> None:
        self.version = 1  # grows when another node leads a log, or there is a new log
        self.leaders: Sequence[Leader] = ()  # by the number of the log
        self._logs = logs
        self._clock = clock
        self._looking: list[asyncio.Future[Sequence[LeaderState]]] = []  # for the next look
        self._change = asyncio.Event()
        self._is_ended = False

    async def run(self) -> None:
        """Until cancelled."""
        is_told = False
        try:
            while True:
                looking, self._looking = self._looking, []
                try:
                    states = await self._logs.leaders()
                    is_told = False
                except LogUnavailable as error:
                    if not is_told:
                        is_told = True
                        _log.warning("the leaders of the logs cannot be read: %s", error)
                    for each in looking:
                        _fail(each, error)
                else:
                    for number, state in enumerate(states):
                        self.see(number, state.node, state.epoch)
                    for each in looking:
                        if not each.done():
                            each.set_result(states)
                await self._clock.sleep(limits.LEASE_RENEW_SECONDS)
        finally:
            self._is_ended = True
            for each in (*looking, *self._looking):
                _fail(each, LogUnavailable("the log is closed"))

    async def look(self, log: int) -> LeaderState:
        """The record of a log, from a look that has begun after this call, so it takes up to half a second. Raises
        LogUnavailable."""
        if self._is_ended:
            raise LogUnavailable("the log is closed")
        found: asyncio.Future[Sequence[LeaderState]] = asyncio.get_running_loop().create_future()
        self._looking.append(found)
        return (await found)[log]

    def see(self, log: int, node: str, epoch: int) -> None:
        """A node leads a log in an epoch, or an empty name: its last leader has handed over to any node."""
        is_new = log >= len(self.leaders)
        known = NO_LEADER if is_new else self.leaders[log]
        if epoch < known.epoch or (not is_new and known == (node, epoch)):
            return
        leaders = [*self.leaders, *[NO_LEADER] * (log + 1 - len(self.leaders))]
        leaders[log] = Leader(node, epoch)
        self.leaders = leaders
        self.tell()

    def tell(self) -> None:
        """Something has changed."""
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    def leader(self, log: int) -> Leader:
        return self.leaders[log] if log < len(self.leaders) else NO_LEADER

    async def changed(self, version: int, limit_s: float) -> None:
        """Until something has changed since a version, at most for a while."""
        if self.version == version:
            with suppress(TimeoutError):
                await within(self._clock, limit_s, self._change.wait())


def _fail(looking: asyncio.Future[Sequence[LeaderState]], error: LogUnavailable) -> None:
    if not looking.done():
        looking.set_exception(error)
