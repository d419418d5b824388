"""How fresh the state of a follower is, and the time of the cluster as a node knows it.

A leader's word counts if its lease held when it was given: then every write that was acknowledged before the follower
asked is at or before the place that the word names. When that place is applied here, this state is as fresh as the
moment before asking. A word without the lease counts for nothing: its leader may have been deposed.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final, NamedTuple, Protocol

from armillary.clock import Clock, within
from armillary.storage.log.rows import Place
from armillary.storage.replication.lease import BootTime
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.recent_rows import LeaderWord, Pushed

_WORDS_MAX: Final = 64  # that wait to be applied; above that, the last one is replaced


class SourceUnavailable(Exception):
    """The leader was not reached, does not lead, or has not answered. Rows are read from the log."""


class RowSource(Protocol):
    """The leader, as a follower asks it."""

    async def rows(self, after_seq: int, wait_s: float) -> Pushed:
        """The rows above a seq; where there are none, wait for one for a while. Raises SourceUnavailable."""

    async def word(self, limit_s: float) -> LeaderWord:
        """What the leader has applied now. Raises SourceUnavailable."""


class _Heard(NamedTuple):
    asked_s: float
    word: LeaderWord


class Freshness:
    """Of one replica, while it follows."""

    def __init__(self, replica: LocalReplica, clock: Clock, boot_time: BootTime, source: RowSource | None) -> None:
        self._replica = replica
        self._clock = clock
        self._source = source
        self.now_s = boot_time  # also runs while the machine is suspended
        self._words: list[_Heard] = []  # not applied yet
        self._newest: _Heard | None = None
        self._asked_s = -inf  # before the newest word that is applied
        self._reached_us = 0
        self._heard_s = boot_time()
        self.ahead_s = 0.0  # how far the leader's clock is ahead of this machine's, as far as this node knows
        self._waiting: list[tuple[Place, asyncio.Future[None]]] = []

    def heard(self) -> None:
        """The log has answered, or the leader under its lease."""
        self._heard_s = self.now_s()

    def hear(self, asked_s: float, word: LeaderWord) -> None:
        """The leader has answered a question that was sent after `asked_s`."""
        if not word.is_leased:
            return
        self.heard()
        self.ahead_s = word.time_us / 1_000_000 - self._clock.now_s()
        heard = _Heard(asked_s, word)
        if self._newest is None or asked_s > self._newest.asked_s:
            self._newest = heard
        if len(self._words) == _WORDS_MAX:
            self._words.pop()
        self._words.append(heard)
        self.applied()

    def applied(self) -> None:
        """The replica has come further, or there is a new word."""
        at = self._replica.position.place
        if self._words:
            for heard in self._words:
                if _is_reached(heard.word.place, at):
                    self._asked_s = max(self._asked_s, heard.asked_s)
                    self._reached_us = max(self._reached_us, heard.word.time_us)
            self._words = [each for each in self._words if each.word.place.seq > at.seq]
        if self._waiting:
            for place, reached in self._waiting:
                if _is_reached(place, at) and not reached.done():
                    reached.set_result(None)
            self._waiting = [each for each in self._waiting if not each[1].done()]

    @property
    def staleness(self) -> tuple[float, float]:
        """Seconds since before the leader was asked for what is applied here, and transactions that are missing of
        what it has told last. Infinite if it never was."""
        if self._newest is None or self._asked_s == -inf:
            return inf, inf
        missing = self._newest.word.transactions - self._replica.position.transactions
        return max(0.0, self.now_s() - self._asked_s), float(max(0, missing))

    @property
    def reached_us(self) -> int:
        """All rows up to this time, of the leader's clock, are applied here."""
        return max(self._reached_us, self._replica.position.time_us)

    @property
    def silent_s(self) -> float:
        """Seconds since the log, or the leader under its lease, was heard."""
        return self.now_s() - self._heard_s

    async def refresh(self, limit_s: float) -> bool:
        """Ask the leader now, and wait until what it has applied is applied here. False: not reached in time."""
        if self._source is None:
            return False
        try:
            await within(self._clock, limit_s, self._refresh(self._source, limit_s))
        except (SourceUnavailable, TimeoutError):
            return False
        return True

    async def _refresh(self, source: RowSource, limit_s: float) -> None:
        asked_s = self.now_s()
        word = await source.word(limit_s)
        self.hear(asked_s, word)
        if not word.is_leased:
            raise SourceUnavailable("the lease of the leader does not hold")
        if _is_reached(word.place, self._replica.position.place):
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((word.place, reached))
        await reached


class ClusterClock:
    """The time by which items get their timestamps and expire. It is the leader's: followers estimate it from what the
    leader tells them, since the clocks of machines differ. It never falls behind the newest row that is applied here,
    so timestamps do not go back when another node leads. Everything but the time of day is the machine's own.
    Implements Clock."""

    def __init__(self, machine: Clock, replica: LocalReplica) -> None:
        self._machine_now_s = machine.now_s
        self._replica = replica
        self._leader: Freshness | None = None  # None: this node leads
        self.monotonic_s = machine.monotonic_s
        self.elapsed_s = machine.elapsed_s
        self.sleep = machine.sleep
        self.random_bytes = machine.random_bytes
        self.guid = machine.guid

    def lead(self) -> None:
        """From now on this machine's clock counts."""
        self._leader = None

    def follow(self, leader: Freshness) -> None:
        """From now on the leader's clock counts, as it is heard."""
        self._leader = leader

    def now_s(self) -> float:
        now_s = self._machine_now_s()
        if self._leader is not None:
            now_s += self._leader.ahead_s
        applied_s = self._replica.position.time_us / 1_000_000
        return now_s if now_s > applied_s else applied_s


def _is_reached(place: Place, at: Place) -> bool:
    """Positions of all replicas are the ends of groups: a place that is named is passed exactly."""
    return place.seq < at.seq or place == at
