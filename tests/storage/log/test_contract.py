"""What every replicated log promises, whatever keeps it."""

from __future__ import annotations

import asyncio
import random

import pytest
from storage.log.conftest import OpenLog
from support.log_rows import all_rows, append, lead, next_rows

from armillary.storage.log.replicated_log import Deposed, LogUnavailable, ReplicaState
from armillary.storage.log.rows import START, RowKind


async def test_an_empty_log(open_log: OpenLog) -> None:
    log = await open_log()
    state = await log.leader()
    assert (state.epoch, state.node, state.renewals, state.confirmed) == (0, "", 0, START)
    assert len(state.generation) == 16
    assert len(log.cluster_key) == 32
    assert (await open_log()).cluster_key == log.cluster_key
    assert await log.newest() == START
    assert await log.read(0, 1_000) == []
    assert await log.trim() == 1
    assert await log.lowest() == 1
    assert (await (await open_log()).leader()) == state


async def test_rows_come_back_as_they_were_appended(open_log: OpenLog) -> None:
    log, other = await open_log(), await open_log()
    state, fence = await lead(log)
    assert (state.epoch, state.node) == (1, "a")
    assert (fence.seq, fence.epoch, fence.kind, fence.is_last, fence.time_us) == (1, 1, RowKind.FENCE, True, 1_000)
    assert fence.follows(START)
    one = next_rows(fence.place, b"one")
    group = next_rows(one[-1].place, b"", b"two" * 1000, bytes(range(256)) * 4000)
    await log.append(one)
    await log.append(group)
    assert await all_rows(other) == [fence, *one, *group]
    assert await other.newest() == group[-1].place


async def test_reading_is_bounded_by_bytes_and_gives_one_row_at_least(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    last = await append(log, fence.place, *[bytes(1_000)] * 10)
    assert [row.seq for row in await log.read(1, 2_500)] == [2, 3]
    assert [row.seq for row in await log.read(3, 10)] == [4]
    assert [row.seq for row in await log.read(3, 10, is_certain=True)] == [4]
    assert await log.read(11, 10) == []
    await append(log, last, bytes(1_000), b"small")
    assert [row.seq for row in await log.read(10, 1_500)] == [11], "a row behind one that is too large is not read"


async def test_an_append_is_repeated_without_effect(open_log: OpenLog) -> None:
    """As after an unknown outcome, also by a connection that was not there before."""
    log = await open_log()
    _, fence = await lead(log)
    rows = next_rows(fence.place, b"one", b"two", b"three")
    await log.append(rows)
    await log.append(rows)
    await (await open_log()).append(rows)
    assert (await all_rows(log))[1:] == rows


async def test_a_new_leader_deposes_the_old(open_log: OpenLog) -> None:
    old, new = await open_log(), await open_log()
    _, first = await lead(old, "old")
    last = await append(old, first.place, b"one")
    seen = await old.leader()
    state, fence = await lead(new, "new")
    assert (state.epoch, state.node) == (2, "new")
    assert fence.follows(last)
    for pieces in ([b"late"], [b"late", b"rows", b"of a group"]):
        with pytest.raises(Deposed):
            await old.append(next_rows(last, *pieces))
    assert await old.renew(seen, last) is None
    assert await old.take(seen, "old", 0) is None
    await append(new, fence.place, b"two")
    assert [row.epoch for row in await all_rows(old)] == [1, 1, 2, 2]


async def test_appending_behind_another_row_is_deposed(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    with pytest.raises(Deposed):
        await log.append(next_rows(fence.place._replace(chain=bytes(16)), b"x"))
    with pytest.raises(Deposed):
        await log.append(next_rows(fence.place._replace(seq=7), b"x"))
    assert await all_rows(log) == [fence]


async def test_the_lease_is_renewed_by_compare_and_set(open_log: OpenLog) -> None:
    log, other = await open_log(), await open_log()
    state, fence = await lead(log)
    renewed = await log.renew(state, fence.place)
    assert renewed is not None
    assert (renewed.epoch, renewed.renewals, renewed.confirmed) == (1, state.renewals + 1, fence.place)
    assert await other.leader() == renewed
    assert await log.renew(state, fence.place) is None
    assert await other.take(state, "b", 0) is None, "the leader has renewed since"
    assert await other.take(renewed, "b", 0) is not None


async def test_a_leader_resigns_in_favour_of_a_node(open_log: OpenLog) -> None:
    log, other = await open_log(), await open_log()
    state, fence = await lead(log)
    renewed = await log.renew(state, fence.place)
    assert renewed is not None
    assert not await log.resign(state, "b"), "it is the record before"
    assert await log.resign(renewed, "b")
    resigned = await other.leader()
    assert (resigned.epoch, resigned.node, resigned.renewals) == (1, "b", renewed.renewals + 1)
    assert await log.renew(renewed, fence.place) is None
    taken = await other.take(resigned, "b", 0)
    assert taken is not None and taken[0].epoch == 2


async def test_times_and_counts_do_not_go_back_at_a_fence(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    rows = next_rows(fence.place, b"x", b"y")
    await log.append(rows)
    taken = await log.take(await log.leader(), "b", 3)
    assert taken is not None
    assert (taken[1].time_us, taken[1].transactions) == (rows[-1].time_us, rows[-1].transactions)


async def test_trimming_leaves_what_a_replica_has_not_flushed(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    assert await log.register("a") == 0
    assert await log.register("b") == 0
    last = fence.place
    for number in range(22):
        last = await append(log, last, b"%d" % number)
    assert last.seq == 23, "the last of its table on PostgreSQL"
    assert await log.report("a", 23, 23)
    assert await log.report("b", 20, 9)
    assert await log.replicas() == [ReplicaState("a", 23, 23), ReplicaState("b", 20, 9)]
    lowest = await log.trim()
    assert 1 < lowest <= 9, "the row that all replicas have flushed stays, for an append that is repeated behind it"
    assert [row.seq for row in await all_rows(log)] == list(range(lowest, 24))
    assert await log.lowest() == lowest
    assert await log.register("c") >= lowest - 1
    assert await log.register("b") == 9, "a replica stays where it is"
    await log.remove("c")
    await log.remove("b")
    assert not await log.report("b", 23, 23)
    lowest = await log.trim()
    assert 9 < lowest <= 23, "the newest row stays"
    assert (await all_rows(log))[-1].place == last
    await append(log, last, b"goes on")


async def test_nothing_is_trimmed_without_replicas(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    await append(log, fence.place, *[b"x"] * 20)
    assert await log.trim() == 1


async def test_a_replica_withdraws_only_if_another_has_flushed_what_it_has(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log, "b")
    await append(log, fence.place, b"one", b"two")
    await log.register("a")
    assert not await log.withdraw("a", 3), "it is the only one"
    await log.register("b")
    await log.register("c")
    await log.report("b", 3, 2)
    assert not await log.withdraw("a", 3), "another has applied everything, and could lose it in a crash"
    await log.report("a", 3, 3)
    await log.report("b", 3, 3)
    assert not await log.withdraw("b", 3), "it leads"
    assert sorted(await asyncio.gather(log.withdraw("a", 3), log.withdraw("a", 3))) == [True, True], "repeated"
    assert [each.node for each in await log.replicas()] == ["b", "c"]
    await log.report("c", 3, 3)
    await log.resign(await log.leader(), "")
    assert sorted(await asyncio.gather(log.withdraw("b", 3), (await open_log()).withdraw("c", 3))) == [False, True]
    assert len(await log.replicas()) == 1


async def test_tail_returns_when_a_row_comes(open_log: OpenLog) -> None:
    log, other = await open_log(), await open_log()
    _, fence = await lead(log)
    await other.tail(0)
    waiting = asyncio.create_task(other.tail(1))
    await append(log, fence.place, b"x")
    await waiting
    assert [row.seq for row in await other.read(1, 100)] == [2]
    await other.tail(2)  # nothing comes: it returns after a while


async def test_a_closed_log_answers_nothing(open_log: OpenLog) -> None:
    log = await open_log()
    _, fence = await lead(log)
    await log.close()
    with pytest.raises(LogUnavailable):
        await log.leader()
    with pytest.raises(LogUnavailable):
        await log.append(next_rows(fence.place, b"x"))


async def test_rival_leaders(open_log: OpenLog, seed: int) -> None:
    """Four nodes depose each other and append meanwhile. No two append the same row, everything acknowledged is there,
    and nothing of an epoch comes after the next fence."""
    acknowledged: dict[int, tuple[int, bytes]] = {}
    deposed = 0

    async def node(name: str) -> None:
        nonlocal deposed
        dice = random.Random(f"{seed}-{name}")
        log = await open_log()
        for _ in range(5):
            try:
                taken = await log.take(await log.leader(), name, 0)
            except LogUnavailable:  # PostgreSQL has not seen yet that another session attached the fence's table
                continue
            if taken is None:
                continue
            last = taken[1].place
            try:
                for number in range(dice.randrange(1, 10)):
                    pieces = [f"{name}-{number}-{piece}".encode() for piece in range(dice.randrange(1, 4))]
                    rows = next_rows(last, *pieces)
                    await log.append(rows)
                    await asyncio.sleep(0)  # the log in memory answers at once: the others get their turn
                    last = rows[-1].place
                    for row in rows:
                        assert row.seq not in acknowledged
                        acknowledged[row.seq] = (row.epoch, row.data)
            except Deposed:
                deposed += 1

    await asyncio.gather(*[node(name) for name in "abcd"])
    rows = await all_rows(await open_log())
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert acknowledged.items() <= {row.seq: (row.epoch, row.data) for row in rows}.items()
    assert deposed, "the seed must bring leaders into each other's way"


async def test_figures(open_log: OpenLog) -> None:
    log = await open_log()
    empty = await log.figures()
    assert (empty.newest_seq, empty.newest_time_us, empty.newest_transactions, empty.lowest_seq) == (0, 0, 0, 1)
    _, fence = await lead(log)
    last = await append(log, fence.place, *[bytes(1_000)] * 10)
    await log.register("a")
    await log.report("a", last.seq, last.seq)
    lowest = await log.trim()
    full = await log.figures()
    assert (full.newest_seq, full.lowest_seq) == (last.seq, lowest)
    assert lowest > 1
    assert full.newest_time_us >= fence.time_us
    assert full.size_bytes >= 1_000
    assert full.dead_rows >= 0
