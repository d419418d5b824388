"""Defects that the simulation of a cluster must notice: each breaks one rule of the replicated log. Rules of PostgreSQL
and of doors have tests of their own: tests/storage/log, tests/unit/doors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.replicated_log import LeaderState
from armillary.storage.log.rows import Place, Row
from armillary.storage.replication import freshness, group_commit
from armillary.storage.replication.follower import Follower
from armillary.storage.replication.freshness import Freshness
from armillary.storage.replication.group_commit import Flight, GroupCommit
from armillary.storage.replication.lease import Lease, RivalLease
from armillary.storage.replication.local_replica import LocalReplica, Position
from armillary.storage.replication.replicated_engine import ReplicatedEngine
from armillary.storage.replication.rows_waiting import RowsWaiting

Planted = Any  # a context manager


def acknowledge_before_the_append() -> Planted:
    fly = GroupCommit._fly

    async def answer_first(self: GroupCommit, flight: Flight) -> None:
        group_commit._give(flight.answers)
        await fly(self, flight)

    return patch.object(GroupCommit, "_fly", answer_first)


def no_fence() -> Planted:
    async def take(self: MemoryLog, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        await self._begin("take")
        server = self._server
        if server.state != seen:
            return None
        server.state = state = replace(seen, epoch=seen.epoch + 1, node=node, renewals=seen.renewals + 1)
        if server.newest is None:
            server.add_fence(state.epoch, node, time_us)
        newest = server.newest
        assert newest is not None
        return state, newest

    def add(self: MemoryLogServer, rows: Sequence[Row]) -> bool:  # without a fence there is no epoch to compare
        newest = self.newest
        if newest is None or newest.seq >= rows[0].seq:
            return all(self.at(row.seq) == row for row in rows)
        self.rows.extend(rows)
        self._wake()
        return True

    both = ExitStack()
    both.enter_context(patch.object(MemoryLog, "take", take))
    both.enter_context(patch.object(MemoryLogServer, "add", add))
    return both


def a_fence_without_checking_the_epoch() -> Planted:
    async def take(self: MemoryLog, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        await self._begin("take")
        server = self._server
        if server.state != seen:
            return None
        server.state = state = replace(seen, epoch=seen.epoch + 1, node=node, renewals=seen.renewals + 1)
        await self._faults.after("take")
        await self._begin("fence")
        fence = server.add_fence(state.epoch, node, time_us)
        await self._acknowledged("fence", fence.seq)
        return state, fence

    return patch.object(MemoryLog, "take", take)


def a_confirmation_without_its_chain() -> Planted:
    def confirm(self: RowsWaiting, place: Place) -> None:
        if 0 <= place.seq - self._applied.seq - 1 < len(self._rows):
            self._confirmed = max(self._confirmed, place.seq)

    return patch.object(RowsWaiting, "confirm", confirm)


def lost_rows_are_kept() -> Planted:
    """Rows that wait are forgotten only if the log is shorter."""

    async def check_newest(self: Follower) -> None:
        if (await self._compare_newest()).seq < self._waiting.last_seq:
            self._waiting.forget()

    return patch.object(Follower, "_check_newest", check_newest)


def apply_unconfirmed_rows() -> Planted:
    receive = RowsWaiting.receive

    def trust(self: RowsWaiting, rows: Sequence[Row]) -> bool:
        did = receive(self, rows)
        self._confirmed = self.last_seq
        return did

    return patch.object(RowsWaiting, "receive", trust)


def trim_too_far() -> Planted:
    async def trim(self: MemoryLog) -> int:
        highest = max((each.applied for each in self._server.replicas.values()), default=0)
        return self._server.trim(highest)

    return patch.object(MemoryLog, "trim", trim)


def trim_the_newest_row() -> Planted:
    def trim(self: MemoryLogServer, seq: int) -> int:
        seq = min(seq + 1, self.rows[-1].seq) if self.rows else 0
        self.rows = [row for row in self.rows if row.seq > seq]
        self.trimmed = max(self.trimmed, seq)
        return self.trimmed + 1

    return patch.object(MemoryLogServer, "trim", trim)


def flushed_is_applied() -> Planted:
    async def sync(self: LocalReplica) -> Position:
        return self.position  # nothing was synced

    return patch.object(LocalReplica, "sync", sync)


def take_over_without_waiting() -> Planted:
    return patch.object(RivalLease, "is_over", lambda self, patience_s: True)


def a_lease_from_after_sending() -> Planted:
    renew = Lease.renew
    return patch.object(Lease, "renew", lambda self, sent_s: renew(self, self.now_s()))


def refusals_without_the_lease() -> Planted:
    proceed = GroupCommit._proceed

    def answer(self: GroupCommit) -> None:
        gathering = self._gathering
        if gathering.answers and gathering.layer.is_empty():
            group_commit._give(gathering.answers)
            gathering.answers = []
        proceed(self)

    return patch.object(GroupCommit, "_proceed", answer)


def memory_adopted_later() -> Planted:
    init = Follower.__init__

    def late(self: Follower, *arguments: Any) -> None:
        init(self, *arguments)
        adopt, loop = self._adopt, asyncio.get_running_loop()
        self._adopt = lambda layer, notes: (loop.call_later(0.05, adopt, layer, notes), None)[1]

    return patch.object(Follower, "__init__", late)


def strong_reads_without_the_lease() -> Planted:
    return patch.object(ReplicatedEngine, "may_answer_strongly", property(lambda self: self.is_leading))


def a_deposed_leaders_word_is_fresh() -> Planted:
    word = vars(GroupCommit)["word"].fget
    return patch.object(GroupCommit, "word", property(lambda self: word(self)._replace(is_leased=True)))


def fresh_since_the_answer() -> Planted:
    """Freshness is counted from after the leader was asked."""
    hear = Freshness.hear
    return patch.object(Freshness, "hear", lambda self, asked_s, word: hear(self, self.now_s(), word))


def fresh_before_it_is_applied() -> Planted:
    return patch.object(freshness, "_is_reached", lambda place, at: True)


def the_time_of_rows_in_flight_is_told() -> Planted:
    def now_us(self: GroupCommit) -> int:
        return max(self._replica.position.time_us, int(self._clock.now_s() * 1_000_000))

    return patch.object(GroupCommit, "_told_us", now_us)


DEFECTS: dict[str, Callable[[], Planted]] = {
    each.__name__: each
    for each in (
        acknowledge_before_the_append,
        no_fence,
        a_fence_without_checking_the_epoch,
        a_confirmation_without_its_chain,
        lost_rows_are_kept,
        apply_unconfirmed_rows,
        trim_too_far,
        trim_the_newest_row,
        flushed_is_applied,
        take_over_without_waiting,
        a_lease_from_after_sending,
        refusals_without_the_lease,
        strong_reads_without_the_lease,
        memory_adopted_later,
        a_deposed_leaders_word_is_fresh,
        fresh_since_the_answer,
        fresh_before_it_is_applied,
        the_time_of_rows_in_flight_is_told,
    )
}
