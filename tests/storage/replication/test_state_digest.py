"""Marks of the log, and the digests of all nodes' states at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.cluster_node import ClusterNode, settled
from support.grown_account import grow
from support.replicas import Pair, leading_engine, stepping_follower
from support.waiting import until

from armillary import limits, work
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.storage.engine import Txn
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.rows import RowKind
from armillary.storage.overlay import Layer
from armillary.storage.replication.replicated_engine import ReplicatedEngine

GENERATION = b"a log of a test."


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = await Pair.open(tmp_path)
    yield made
    await made.close()


async def digest(engine: ReplicatedEngine, seq: int) -> bytes:
    await until(lambda: engine.digest_of(seq) is not None, f"the state at mark {seq} is digested")
    found = engine.digest_of(seq)
    assert found is not None
    return found


def plant(engine: ReplicatedEngine, key: bytes, value: bytes | None) -> None:
    """Change a replica behind the log's back."""
    database = engine.replica.database
    assert database is not None
    layer = Layer()
    layer.writes[key] = value
    database.write(database.batch(layer))


async def test_nodes_digest_the_same_state_at_a_mark(pair: Pair) -> None:
    await grow(pair.leader, pair.clock)
    first = await pair.leading_engine.mark()
    await grow_on(pair)
    second = await pair.leading_engine.mark()
    await grow_on(pair)
    await pair.step()  # the follower passes both, long after the leader
    digests = [
        [await digest(engine, mark.seq) for mark in (first, second)]
        for engine in (pair.leading_engine, pair.following_engine)
    ]
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[0][1]
    assert pair.leading_engine.digest_of(first.seq - 1) is None


async def grow_on(pair: Pair) -> None:
    await pair.leading_engine.store(900).write(lambda txn: txn.put(b"x", (txn.get(b"x") or b"") + b"1"))


@pytest.mark.parametrize("change", ["byte", "key", "gone", "added"])
async def test_a_planted_change_is_seen(pair: Pair, change: str) -> None:
    await grow(pair.leader, pair.clock)
    await pair.step()
    database = pair.following_engine.replica.database
    assert database is not None
    *_, (key, value) = database.scan(b"", b"\0\0\0\5", False, 0)
    if change in ("key", "gone"):
        plant(pair.following_engine, key, None)
    if change == "key":
        plant(pair.following_engine, key[:-1] + bytes([key[-1] ^ 1]), value)
    elif change == "byte":
        plant(pair.following_engine, key, value[:-1] + bytes([value[-1] ^ 1]) if value else b"\0")
    elif change == "added":
        plant(pair.following_engine, b"\0\0\0\4stray", b"")
    mark = await pair.leading_engine.mark()
    await pair.step()
    assert await digest(pair.leading_engine, mark.seq) != await digest(pair.following_engine, mark.seq)


async def test_a_mark_is_a_row_of_its_own_and_later_writes_are_not_in_its_digest(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)

    def fill(txn: Txn) -> None:
        for number in range(30_000):
            txn.put(b"%08d" % number, b"x" * 10)

    await leader.store(1).write(fill)
    writes = [asyncio.ensure_future(leader.store(1).write(lambda txn: txn.put(b"a", b"1"))) for _ in range(3)]
    marks = await asyncio.gather(leader.mark(), leader.mark())
    await asyncio.gather(*writes)
    kinds = {row.seq: row.kind for row in server.rows}
    assert {kinds[mark.seq] for mark in marks} == {RowKind.MARK}
    spent = work.longest_units
    for _ in range(3):  # while it is computed
        await leader.store(1).write(lambda txn: txn.put(b"a", (txn.get(b"a") or b"") + b"2"))
    assert leader.digest_of(marks[0].seq) is None, "it is computed in portions"
    follower, engine = stepping_follower(tmp_path / "b", server)
    while engine.replica.position.place != leader.replica.position.place:
        await follower.step()
        await follower.confirm(leader.replica.position.place)
    for mark in marks:
        assert await digest(leader, mark.seq) == await digest(engine, mark.seq)
    assert work.longest_units <= max(spent, 2 * limits.WORK_SLICE_UNITS)
    await leader.close()
    await engine.close()


async def test_digests_of_the_newest_marks_are_kept(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)
    await leader.store(1).write(lambda txn: txn.put(b"a", b"1"))
    marks = []
    for _ in range(limits.STATE_DIGESTS_MAX + 2):
        marks.append((await leader.mark()).seq)
        await digest(leader, marks[-1])
    assert [leader.digest_of(mark) is not None for mark in marks] == [False] * 2 + [True] * limits.STATE_DIGESTS_MAX
    # Closing while states are pinned and digested leaves nothing open.
    await leader.mark()
    await leader.mark()
    await leader.close()
    again = await leading_engine(tmp_path / "a", server)
    assert await again.store(1).read(lambda view: view.get(b"a")) == b"1"
    await again.close()


async def test_only_a_leader_marks_and_a_node_that_ends_refuses(tmp_path: Path) -> None:
    clock, server = VirtualClock(), MemoryLogServer(GENERATION)
    first = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    second = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock)
    with pytest.raises(Failure) as caught:
        await second.engine.mark()
    assert caught.value.kind is Kind.NOT_LEADER
    first.gate.close("before append")
    flying = asyncio.ensure_future(first.engine.store(1).write(lambda txn: txn.put(b"a", b"1")))
    waiting = asyncio.ensure_future(first.engine.mark())
    await settled(clock, limits.LOG_WAIT_SECONDS_MAX + 1)
    for each in (flying, waiting):
        with pytest.raises(Failure) as caught:
            await each
        assert caught.value.kind is Kind.UNAVAILABLE
    first.gate.open("before append")
    await first.stop()
    await second.stop()


async def test_a_mark_below_a_fence_is_passed_while_taking_over(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)
    await leader.store(1).write(lambda txn: txn.put(b"a", b"1"))
    mark = await leader.mark()
    expected = await digest(leader, mark.seq)
    await leader.close()
    other = await leading_engine(tmp_path / "b", server, "b")
    assert await digest(other, mark.seq) == expected
    await other.close()
