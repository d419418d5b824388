"""Rows that a leader pushes, and how fresh a follower knows itself to be."""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster_node import ClusterNode, settled
from support.limits import WithLimits
from support.log_rows import next_rows

from armillary import limits
from armillary.account.faults import APPLY, FaultRule
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.rows import START, Place, Row, RowKind, pack_rows, unpack_rows
from armillary.storage.replication.freshness import Freshness, SourceUnavailable
from armillary.storage.replication.recent_rows import LeaderWord, Pushed, RecentRows, pushed

GENERATION = b"a log of a test."
STORE = 900_000  # that no account has
PLACES = [Place(1, seq, bytes([seq]) * 16) for seq in range(10)]


class DirectSource:
    """Asks a node of the same process."""

    def __init__(self) -> None:
        self.leader: ClusterNode | None = None
        self.changes: Any = lambda answer: answer
        self.asked = 0

    async def rows(self, after_seq: int, wait_s: float) -> Pushed:
        self.asked += 1
        try:
            answer = await self._commit().rows(after_seq, wait_s)
        except Failure as failure:
            raise SourceUnavailable(failure.message) from None
        changed: Pushed = self.changes(answer)
        return changed

    async def word(self, limit_s: float) -> LeaderWord:
        return cast(LeaderWord, self._commit().word)

    def _commit(self) -> Any:
        if self.leader is None or self.leader.leadership.commit is None:
            raise SourceUnavailable("no leader")
        return self.leader.leadership.commit


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Two:
    """A leader `a` and a follower `b`, which asks it for rows."""

    def __init__(self, path: Path, clock: VirtualClock, *, has_account: bool = False) -> None:
        self.clock = clock
        self.server = MemoryLogServer(GENERATION)
        self.source = DirectSource()
        self.a = ClusterNode(path / "a", self.server, clock, "a", has_account=has_account)
        self._path = path
        self._has_account = has_account

    async def start(self) -> None:
        await settled(self.clock)
        self.source.leader = self.a
        self.b = ClusterNode(
            self._path / "b", self.server, self.clock, "b", has_account=self._has_account, source=self.source
        )
        await settled(self.clock, 0.2)

    async def put(self, value: bytes) -> None:
        writing = asyncio.ensure_future(self.a.engine.store(STORE).write(lambda txn: txn.put(b"x", value)))
        await settled(self.clock)
        await writing

    async def seen(self) -> bytes | None:
        return await self.b.engine.store(STORE).read(lambda view: view.get(b"x"))

    async def stop(self) -> None:
        await self.b.stop()
        await self.a.stop()


@pytest.fixture
async def two(tmp_path: Path, clock: VirtualClock) -> Two:
    return Two(tmp_path, clock)


def rows_of(count: int, data: bytes = b"") -> list[Row]:
    return next_rows(START, *[data] * count)


def test_the_newest_rows_are_kept_up_to_a_size(with_limits: WithLimits) -> None:
    rows = rows_of(10, bytes(1_000))
    recent = RecentRows(0)
    recent.add(rows[:5])
    assert recent.above(0, 10_000) == rows[:5]
    assert recent.above(2, 2_500) == rows[2:4]
    assert recent.above(2, 1) == rows[2:3], "at least one"
    assert recent.above(5, 1) == []
    with_limits(RECENT_ROWS_BYTES_MAX=5_000)
    recent.add(rows[5:])
    assert recent.above(7, 10_000) == rows[7:]
    assert recent.above(0, 10_000) is None, "the log has them"
    word = LeaderWord(rows[-1].place, 10, 7, is_leased=True)
    assert pushed(recent, word, 0) == Pushed([], word.place, word, is_kept=False)
    assert pushed(recent, word, 10) == Pushed([], word.place, word, is_kept=True)
    assert RecentRows(3).above(2, 1) is None


async def test_a_question_waits_for_rows_for_a_while(clock: VirtualClock) -> None:
    rows = rows_of(2)
    recent = RecentRows(0)
    waits = [asyncio.ensure_future(recent.wait_above(seq, clock, 1.0)) for seq in (0, 1, 1)]
    await settled(clock)
    recent.add(rows[:1])
    await settled(clock)
    assert [each.done() for each in waits] == [True, False, False]
    clock.advance(1.1)
    await settled(clock)
    assert all(each.done() for each in waits)
    last = asyncio.ensure_future(recent.wait_above(1, clock, 1.0))
    await settled(clock)
    recent.end()
    await last


def test_rows_arrive_as_they_were_sent() -> None:
    rows = rows_of(3, b"some data")
    assert unpack_rows(pack_rows(rows)) == rows
    assert unpack_rows(b"") == []
    for cut in (1, 5, 60):
        with pytest.raises(Failure):
            unpack_rows(pack_rows(rows[:1])[:cut])


def freshness_at(clock: VirtualClock, seq: int, **more: Any) -> tuple[Freshness, Any]:
    position = SimpleNamespace(place=PLACES[seq], transactions=10 * seq, time_us=1_000 * seq)
    replica = SimpleNamespace(position=position)
    return Freshness(cast(Any, replica), clock, clock.now_s, more.get("source")), position


def word_at(seq: int, *, is_leased: bool = True, time_us: int = 0) -> LeaderWord:
    return LeaderWord(PLACES[seq], 10 * seq, time_us, is_leased)


def test_freshness_counts_from_before_the_question_whose_answer_is_applied(clock: VirtualClock) -> None:
    freshness, position = freshness_at(clock, 1)
    assert freshness.staleness == (inf, inf)
    first_s = clock.now_s()
    clock.advance(1.0)
    freshness.hear(first_s, word_at(3, time_us=3_500))
    assert freshness.staleness == (inf, inf), "what was told is not applied"
    assert freshness.reached_us == 1_000
    second_s = clock.now_s()
    clock.advance(1.0)
    freshness.hear(second_s, word_at(5, time_us=6_000))
    position.place, position.transactions, position.time_us = PLACES[3], 30, 3_000
    freshness.applied()
    assert freshness.staleness == (2.0, 20.0)
    assert freshness.reached_us == 3_500
    position.place, position.transactions, position.time_us = PLACES[7], 70, 7_000
    freshness.applied()
    assert freshness.staleness == (1.0, 0.0)
    assert freshness.reached_us == 7_000
    freshness.hear(first_s, word_at(3))  # a late answer
    assert freshness.staleness == (1.0, 0.0)


def test_a_word_without_a_lease_or_of_another_history_counts_for_nothing(clock: VirtualClock) -> None:
    freshness, _ = freshness_at(clock, 1)
    clock.advance(5.0)
    freshness.hear(clock.now_s(), word_at(1, is_leased=False, time_us=9_000))
    assert freshness.silent_s == 5.0
    freshness.hear(clock.now_s(), word_at(1, time_us=9_000)._replace(place=Place(1, 1, bytes(16))))
    assert (freshness.staleness, freshness.reached_us) == ((inf, inf), 1_000)
    assert freshness.silent_s == 0.0


def test_few_words_are_kept_while_a_follower_is_behind(clock: VirtualClock) -> None:
    freshness, position = freshness_at(clock, 1)
    for _ in range(1_000):
        clock.advance(1.0)
        freshness.hear(clock.now_s(), word_at(5))
    assert len(freshness._words) < 100
    position.place = PLACES[5]
    freshness.applied()
    assert freshness.staleness[0] == 0.0


async def test_rows_come_from_the_leader_while_the_log_cannot_be_read(two: Two, clock: VirtualClock) -> None:
    await two.start()
    for call in ("read", "tail", "newest"):
        two.b.gate.close(f"before {call}")
    for value in (b"1", b"2", b"3"):
        await two.put(value)
        assert await two.seen() == value
    seconds, transactions = two.b.leadership.staleness
    assert seconds <= limits.FOLLOWER_WAIT_SECONDS
    assert transactions == 0
    assert two.a.leadership.staleness == (0.0, 0.0)
    await settled(clock, 3.0)
    assert two.b.leadership.staleness[0] <= 2 * limits.FOLLOWER_WAIT_SECONDS + 0.1, "also while nothing is written"
    assert two.b.leadership.silent_s < 1.0
    assert two.b.leadership.reached_us <= two.a.leadership.reached_us
    for call in ("read", "tail", "newest"):
        two.b.gate.open(f"before {call}")
    await two.stop()


async def test_a_refreshed_follower_has_what_was_acknowledged(two: Two, clock: VirtualClock) -> None:
    await two.start()
    two.source.changes = lambda answer: answer._replace(is_kept=False)  # rows come from the log
    two.b.gate.close("before read")
    await two.put(b"1")
    refreshing = asyncio.ensure_future(two.b.leadership.refresh(5.0))
    await settled(clock, 0.5)
    assert not refreshing.done()
    two.b.gate.open("before read")
    await settled(clock, 1.0)
    assert await refreshing
    assert await two.seen() == b"1"
    assert await two.a.leadership.refresh(1.0)
    two.b.gate.close("before read")
    await two.put(b"2")
    late = asyncio.ensure_future(two.b.leadership.refresh(0.5))
    await settled(clock, 1.0)
    assert not await late
    two.b.gate.open("before read")
    await two.stop()


async def test_a_leader_without_its_lease_does_not_make_others_fresh(two: Two, clock: VirtualClock) -> None:
    await two.start()
    await two.put(b"1")
    two.a.gate.close("before renew")
    two.b.gate.is_cut = True  # it does not take over
    await settled(clock, limits.LEASE_SECONDS + 1.0)
    before = two.b.leadership.staleness[0]
    await settled(clock, 1.0)
    assert two.b.leadership.staleness[0] > before + 0.9
    assert two.b.leadership.silent_s > 1.0
    assert not await two.b.leadership.refresh(1.0)
    assert two.a.leadership.staleness == (inf, inf)
    await two.put(b"2")
    assert await two.seen() == b"2", "what it says to be acknowledged is"
    two.a.gate.open("before renew")
    two.b.gate.is_cut = False
    await two.stop()


async def test_rows_that_do_not_chain_are_read_from_the_log(two: Two, clock: VirtualClock) -> None:
    await two.start()

    def other(answer: Pushed) -> Pushed:
        rows = [row._replace(data=b"other", kind=RowKind.GROUP) for row in answer.rows]
        return answer._replace(rows=rows, confirmed=rows[-1].place if rows else answer.confirmed)

    two.source.changes = other
    await two.put(b"1")
    await two.put(b"2")
    await settled(clock, 2.0)
    assert await two.seen() == b"2"
    assert two.b.leadership.stop_reason is None
    asked = two.source.asked
    await settled(clock, 3.0)
    assert two.source.asked - asked < 10, "it is asked again now and then"
    await two.stop()


async def test_rows_that_the_leader_has_dropped_are_read_from_the_log(
    two: Two, clock: VirtualClock, with_limits: WithLimits
) -> None:
    with_limits(RECENT_ROWS_BYTES_MAX=700)
    await two.start()
    two.source.leader = None
    two.b.gate.close("before read")
    for number in range(10):
        await two.put(b"%d" % number)
    two.source.leader = two.a
    await settled(clock, 2.0)
    assert await two.seen() != b"9"
    two.a.gate.close("before renew")  # the leader's record does not confirm the last row
    two.b.gate.open("before read")
    await settled(clock, 0.2)
    assert await two.seen() == b"9", "confirmed by what the leader has said"
    two.a.gate.open("before renew")
    await two.stop()


async def test_a_log_that_was_set_back_is_noticed_while_rows_are_pushed(two: Two, clock: VirtualClock) -> None:
    await two.start()
    await two.put(b"1")
    await two.put(b"2")
    assert await two.seen() == b"2"
    two.server.set_back(1)
    await settled(clock, limits.FOLLOWER_CHECK_SECONDS + 3.0)
    assert two.b.leadership.stop_reason is not None
    assert "set back" in two.b.leadership.stop_reason.message
    await two.stop()


async def test_a_fault_rule_holds_back_rows_and_its_end_lets_them_go(tmp_path: Path, clock: VirtualClock) -> None:
    two = Two(tmp_path, clock, has_account=True)
    await two.start()
    await two.put(b"1")
    rules = two.b.account.faults
    rule = rules.add(FaultRule(operations=frozenset((APPLY,)), delay_ms=3_000))
    await two.put(b"2")
    await settled(clock, 1.0)
    await two.put(b"3")
    assert await two.seen() == b"1"
    await settled(clock, 1.0)
    seconds, transactions = two.b.leadership.staleness
    assert seconds >= 2.0
    assert transactions == 2
    assert not await refreshed(two, 0.5)
    await settled(clock, 1.2)
    assert await two.seen() == b"2", "each row waits for its own time"
    await settled(clock, 1.2)
    assert await two.seen() == b"3"
    await two.put(b"4")
    await settled(clock, 0.6)
    assert await two.seen() == b"3"
    rules.remove(rule.id)
    await settled(clock, 0.6)
    assert await two.seen() == b"4"
    assert await refreshed(two, 0.5)
    rules.add(FaultRule(operations=frozenset((APPLY,)), delay_ms=60_000))
    await two.put(b"5")
    two.a.leadership.hand_over("b")
    await settled(clock, 1.5)
    assert two.b.leadership.leads, "a node that takes over waits for nothing"
    assert await two.seen() == b"5"
    await two.stop()


async def refreshed(two: Two, limit_s: float) -> bool:
    asking = asyncio.ensure_future(two.b.leadership.refresh(limit_s))
    await settled(two.clock, limit_s + 0.1)
    return await asking


async def test_times_of_rows_grow_and_are_later_than_what_was_told(two: Two, clock: VirtualClock) -> None:
    await two.start()
    for _ in range(3):  # the clock stands still
        await two.put(b"1")
    times = [row.time_us for row in two.server.rows if row.kind is RowKind.GROUP]
    assert times == sorted(set(times))
    told = two.a.leadership.reached_us
    two.a.gate.close("before standby")
    writing = asyncio.ensure_future(two.put(b"2"))
    await settled(clock)
    row = two.server.rows[-1]
    assert row.time_us > told
    clock.advance(0.3)
    assert two.a.leadership.reached_us == row.time_us - 1, "the row in flight may be acknowledged later"
    two.a.gate.open("before standby")
    await settled(clock)
    await writing
    assert two.a.leadership.reached_us >= row.time_us
    await two.stop()


async def test_a_leader_that_hands_over_leaves_the_time_that_it_has_told(two: Two, clock: VirtualClock) -> None:
    await two.start()
    await two.put(b"1")
    clock.advance(0.3)
    told = two.a.leadership.reached_us
    assert two.server.rows[-1].time_us < told
    two.a.leadership.hand_over("b")
    await settled(clock, 1.0)
    assert two.b.leadership.leads
    *_, last, fence = two.server.rows
    assert (last.kind, fence.kind) == (RowKind.EMPTY, RowKind.FENCE)
    assert last.time_us > told
    await two.stop()
