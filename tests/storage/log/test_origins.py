"""Logs that continue from the state of a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage.log.conftest import OpenLog
from support.log_rows import all_rows, append, lead
from support.stopped import single_server, state_of_directory

from armillary.clock import SystemClock
from armillary.cluster.bootstrap import needs_bootstrap
from armillary.cluster.directories import init, leave, position_of, reset_log
from armillary.errors import Failure
from armillary.storage.log.replicated_log import LogMaker, LogRefused
from armillary.storage.log.rows import START, Place, Row, origin_row
from armillary.storage.replication.local_replica import start_of

FIRST, SECOND = b"first generation", b"other generation"
Made = tuple[LogMaker, OpenLog]


def origin(epoch: int, seq: int, chain: bytes) -> Row:
    return origin_row(Place(epoch, seq, chain * 16), time_us=7_000, transactions=40)


async def test_a_log_continues_from_a_state(log_maker: Made) -> None:
    maker, open_log = log_maker
    assert await maker.generation() is None
    base = origin(0, 2, b"x")
    await maker.make(FIRST, base, replaces=False)
    assert await maker.generation() == FIRST
    log = await open_log()
    state = await log.leader()
    assert (state.generation, state.epoch, state.node, state.confirmed) == (FIRST, 0, "", base.place)
    assert await log.newest() == base.place
    assert await log.lowest() == 2, "an empty replica, which would need row 1, cannot follow"
    assert await log.register("a") == 1
    taken = await log.take(state, "a", 5)
    assert taken is not None
    fence = taken[1]
    assert fence.follows(base.place)
    assert (fence.epoch, fence.time_us, fence.transactions) == (1, 7_000, 40), "time and count do not go back"
    last = await append(log, fence.place, b"x", b"y")
    assert [row.seq for row in await all_rows(log)] == [2, 3, 4, 5]
    assert await log.report("a", last.seq, last.seq)
    assert 2 <= await log.trim() <= last.seq
    await log.close()


async def test_a_log_that_exists_is_refused_and_making_one_can_be_repeated(log_maker: Made) -> None:
    maker, open_log = log_maker
    base = origin(0, 2, b"x")
    await maker.make(FIRST, base, replaces=False)
    with pytest.raises(LogRefused, match="already"):
        await maker.make(SECOND, origin(0, 2, b"y"), replaces=False)
    log = await open_log()
    _, fence = await lead(log)
    await append(log, fence.place, b"x")
    for replaces in (False, True):  # as after an attempt whose outcome is unknown
        await maker.make(FIRST, base, replaces=replaces)
        assert len(await all_rows(log)) == 3
    await log.close()


async def test_a_log_is_replaced(log_maker: Made) -> None:
    maker, open_log = log_maker
    await maker.make(FIRST, origin(0, 2, b"x"), replaces=False)
    log = await open_log()
    await log.register("b")
    _, fence = await lead(log)
    last = await append(log, fence.place, *[b"row"] * 9)
    await log.close()
    base = origin(5, last.seq + 3, b"y")
    await maker.make(SECOND, base, replaces=True)
    log = await open_log()
    assert (await log.leader()).generation == SECOND
    assert await all_rows(log) == [base]
    assert await log.replicas() == []
    state, fence = await lead(log)
    assert (state.epoch, fence.epoch) == (6, 6)
    await append(log, fence.place, *[b"row"] * 9)
    await log.close()


async def test_a_log_that_was_set_back_does_not_hold_a_place(log_maker: Made) -> None:
    maker, open_log = log_maker
    assert not await maker.holds(START)
    base = origin(0, 6, b"x")
    await maker.make(FIRST, base, replaces=False)
    log = await open_log()
    _, fence = await lead(log)
    assert await maker.holds(base.place)
    assert await maker.holds(fence.place)
    assert await maker.holds(Place(0, 3, b"a" * 16)), "it is below the first row: trimmed, for all that is known"
    assert not await maker.holds(fence.place._replace(chain=b"z" * 16))
    assert not await maker.holds(fence.place._replace(seq=fence.seq + 1))
    await log.close()


async def test_directories_and_a_log_on_each_kind_of_server(log_maker: Made, tmp_path: Path) -> None:
    """What `cluster init`, `leave` and `reset-log` do, from end to end."""
    maker, open_log = log_maker
    path, clock = tmp_path / "data", SystemClock()
    await single_server(path)
    state = state_of_directory(path)
    position = await init(maker, path, clock)
    log = await open_log()
    assert await needs_bootstrap(start_of(position.generation), log)
    assert not await needs_bootstrap(position, log)
    with pytest.raises(Failure, match="neither lost nor set back"):
        await reset_log(maker, path)
    _, fence = await lead(log)
    await append(log, fence.place, b"x")
    with pytest.raises(Failure, match="1 row of transactions"):
        await leave(path, log)
    await log.close()
    await reset_log(maker, path, accepts_loss=True)
    log = await open_log()
    assert [row.seq for row in await all_rows(log)] == [3]
    await lead(log)
    await log.register("a")
    left = await leave(path, log, "a")
    assert (left.missing_rows, left.is_removed) == (0, True)
    assert position_of(path) is None
    assert state_of_directory(path) == state
    await log.close()
