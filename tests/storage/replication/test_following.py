"""Which rows a follower applies, and when a replica must stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.replicas import leading_engine, local_replica, stepping_follower

from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import Txn
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.rows import START, Place, Row, RowKind, group_rows, new_row, read_group
from armillary.storage.overlay import Layer
from armillary.storage.replication.rows_waiting import RowsWaiting
from armillary.storage.rocks import RocksEngine

GENERATION = b"a log of a test."


def row(after: Place, data: bytes = b"", *, epoch: int = 1, confirmed: Place = START, is_last: bool = True) -> Row:
    return new_row(
        after,
        epoch,
        RowKind.GROUP,
        confirmed=confirmed,
        time_us=1,
        transactions=1,
        is_last=is_last,
        data=data,
    )


def test_only_confirmed_rows_are_applied() -> None:
    waiting = RowsWaiting(START)
    first = row(START)
    second = row(first.place)
    assert waiting.receive([first, second])
    assert waiting.next_group() == []
    waiting.confirm(first.place)
    assert waiting.next_group() == [first]
    waiting.applied([first])
    assert waiting.next_group() == []
    assert waiting.receive([row(second.place, confirmed=second.place)])
    assert waiting.next_group() == [second]


def test_a_confirmation_counts_for_its_own_chain_alone() -> None:
    waiting = RowsWaiting(START)
    lost, kept = row(START, b"lost"), row(START, b"kept", epoch=2)
    waiting.receive([lost])
    waiting.confirm(kept.place)
    assert waiting.next_group() == []
    assert not waiting.receive([row(kept.place, epoch=2)])  # they do not follow: what waited is forgotten
    assert waiting.last_seq == 0
    assert waiting.receive([kept, row(kept.place, confirmed=kept.place)])
    assert waiting.next_group() == [kept]


def test_a_group_of_several_rows_is_applied_whole() -> None:
    waiting = RowsWaiting(START)
    first = row(START, is_last=False)
    second = row(first.place)
    waiting.receive([first])
    waiting.confirm(first.place)
    assert waiting.next_group() == []
    waiting.receive([second])
    waiting.confirm(second.place)
    assert waiting.next_group() == [first, second]


def test_rows_that_do_not_follow_from_what_was_applied_stop_the_replica() -> None:
    applied = row(START, b"applied")
    waiting = RowsWaiting(applied.place)
    with pytest.raises(Failure, match="set back"):
        waiting.receive([row(row(START, b"other").place)])
    with pytest.raises(Failure, match="too far behind"):
        waiting.receive([row(row(applied.place).place)])


def test_large_groups_are_several_rows_and_arrive_as_they_were() -> None:
    layer = Layer()
    layer.clear(b"\0\0\0\1a", b"\0\0\0\1b")
    for number in range(300):
        layer.writes[b"%08d" % number] = b"x" * 10_000
    layer.writes[b"gone"] = None
    rows = group_rows(layer, after=START, epoch=3, confirmed=START, time_us=5, transactions=2, notes=b"note")
    assert len(rows) == 3
    assert [each.is_last for each in rows] == [False, False, True]
    sent = [Row.unpack(each.pack()) for each in rows]
    assert sent == rows
    read, notes = read_group(sent)
    assert (read.cleared, read.writes, notes) == (layer.cleared, layer.writes, b"note")
    assert all(each.follows(before) for each, before in zip(rows, [START, *(r.place for r in rows)], strict=False))


def test_rows_of_an_unknown_form_are_refused() -> None:
    packed = bytearray(row(START, b"").pack())
    for data in (b"", b"\2" + bytes(20), b"\1" + b"\xff" * 8):
        with pytest.raises(Failure) as caught:
            read_group([row(START, data)])
        assert caught.value.kind is Kind.UNSUPPORTED
    packed[-2] = 99  # the kind
    with pytest.raises(Failure, match="kind 99"):
        Row.unpack(bytes(packed))


async def put(engine_path: Path, server: MemoryLogServer, **pairs: bytes) -> None:
    engine = await leading_engine(engine_path, server)

    def run(txn: Txn) -> None:
        for key, value in pairs.items():
            txn.put(key.encode(), value)

    await engine.store(1).write(run)
    await engine.close()


async def test_a_follower_reaches_the_state_of_the_leader(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    await put(tmp_path / "a", server, x=b"1", y=b"2")
    follower, engine = stepping_follower(tmp_path / "b", server)
    await follower.step()
    assert await engine.store(1).read(lambda view: view.get(b"x")) is None, "the last row is not confirmed yet"
    await put(tmp_path / "a", server, y=b"3")
    await follower.step()
    assert await engine.store(1).read(lambda view: (view.get(b"x"), view.get(b"y"))) == (b"1", b"2")
    with pytest.raises(Failure) as caught:
        await engine.store(1).write(lambda txn: txn.put(b"x", b"9"))
    assert caught.value.kind is Kind.NOT_LEADER
    await engine.close()


async def test_a_log_that_was_set_back_is_noticed(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    await put(tmp_path / "a", server, x=b"1")
    await put(tmp_path / "a", server, x=b"2")
    follower, engine = stepping_follower(tmp_path / "b", server)
    await follower.step()
    assert engine.replica.position.place.seq > 1
    server.set_back(1)
    with pytest.raises(Failure, match="set back"):
        await follower.step()
    await engine.close()


async def test_a_replica_of_another_log_is_refused(tmp_path: Path) -> None:
    await put(tmp_path / "a", MemoryLogServer(GENERATION), x=b"1")
    with pytest.raises(Failure, match="another cluster"):
        local_replica(tmp_path / "a", MemoryLogServer(b"some other log.."))


async def test_trimming_keeps_what_an_unfinished_append_needs(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    await put(tmp_path / "a", server, x=b"1")
    log = MemoryLog(server, SystemClock())
    newest = await log.newest()
    await log.register("a")
    await log.report("a", newest.seq, newest.seq)
    assert await log.trim() == newest.seq, "the newest row stays"
    following = row(newest, b"more", epoch=newest.epoch)
    await log.append([following])
    await log.append([following])  # its answer was lost
    await log.report("a", following.seq, newest.seq)
    assert await log.trim() == newest.seq, "the row at the lowest flushed place stays"


async def test_replicas_and_directories_of_single_servers_are_not_mixed_up(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    await put(tmp_path / "replica", server, x=b"1")
    with pytest.raises(Failure, match="replica of a cluster"):
        await RocksEngine.open(tmp_path / "replica")
    engine = await RocksEngine.open(tmp_path / "single", "relaxed")
    await engine.store(1).write(lambda txn: txn.put(b"x", b"1"))
    await engine.close()
    with pytest.raises(Failure, match="single server"):
        local_replica(tmp_path / "single", server)
    replica = local_replica(tmp_path / "replica", server)  # both are left as they were, and unlocked
    replica.close()
    replica.directory.release()
    engine = await RocksEngine.open(tmp_path / "single", "relaxed")
    assert await engine.store(1).read(lambda view: view.get(b"x")) == b"1"
    await engine.close()


async def test_a_fence_that_was_followed_already_is_no_log_that_was_set_back(tmp_path: Path) -> None:
    """Between a node's fence and its catching up, another node may have taken over, and its rows may be applied."""
    server = MemoryLogServer(GENERATION)
    clock = SystemClock()
    log = MemoryLog(server, clock)
    follower, _ = stepping_follower(tmp_path / "a", server)
    taken = await log.take(await log.leader(), "a", 1)
    assert taken is not None
    fence = taken[1]
    later = await log.take(await log.leader(), "b", 2)
    assert later is not None
    await log.append([row(later[1].place, epoch=2, confirmed=fence.place)])
    while await follower.step():
        pass
    assert follower._replica.position.place == fence.place
    assert await follower.catch_up(fence), "the fence is the last row that is applied"
    await follower.step()
    await follower.confirm(later[1].place)
    assert not await follower.catch_up(fence), "another node leads"
    follower._replica.close()
    follower._replica.directory.release()


async def test_a_row_that_was_lost_is_forgotten_when_another_has_its_seq(tmp_path: Path) -> None:
    """Also if no further row comes."""
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)
    await leader.store(1).write(lambda txn: txn.put(b"x", b"1"))
    follower, engine = stepping_follower(tmp_path / "b", server)
    place = leader.replica.position.place
    await follower.step()
    await follower.confirm(place)
    assert engine.replica.position.place == place
    server.rows.append(row(place, b"", epoch=place.epoch))  # only the primary has it
    await follower.step()
    server.fail_over()
    log = MemoryLog(server, SystemClock())
    taken = await log.take(await log.leader(), "c", 2)
    assert taken is not None
    state, fence = taken
    assert fence.seq == place.seq + 1
    assert await log.renew(state, fence.place) is not None
    await follower.step()  # finds nothing above its last row, and a confirmation of another one
    await follower.step()
    await follower.step()
    assert engine.replica.position.place == fence.place
    await leader.close()
    await engine.close()


class FormerPrimary(MemoryLog):
    """Until it is asked for certain, it shows a row that it has not acknowledged and its successor does not have."""

    shown: Row | None = None

    async def read(self, after_seq: int, bytes_max: int, *, is_certain: bool = False) -> list[Row]:
        if self.shown is not None and not is_certain:
            return [self.shown]
        return await super().read(after_seq, bytes_max)


async def test_rows_of_a_former_primary_do_not_stop_a_follower(tmp_path: Path) -> None:
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)
    await leader.store(1).write(lambda txn: txn.put(b"x", b"1"))
    follower, engine = stepping_follower(tmp_path / "b", server)
    place = leader.replica.position.place
    await follower.step()
    await follower.confirm(place)
    follower._log = log = FormerPrimary(server, SystemClock())
    for log.shown in (row(Place(place.epoch, place.seq, bytes(16))), row(Place(1, place.seq + 4, bytes(16)))):
        await leader.store(1).write(lambda txn: txn.put(b"x", b"2"))
        await follower.step()
        await follower.confirm(leader.replica.position.place)
        assert engine.replica.position == leader.replica.position
    await leader.close()
    await engine.close()


async def test_a_follower_uses_room_that_a_leader_keeps_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits
) -> None:
    """With equal disks all nodes are full at the same time: what frees room at the leader must reach the others."""
    with_limits(FREE_DISK_CHECK_SECONDS=0.0)
    server = MemoryLogServer(GENERATION)
    leader = await leading_engine(tmp_path / "a", server)
    follower, engine = stepping_follower(tmp_path / "b", server)
    for each in (leader, engine):
        each.keep_free(1_000)
    await leader.store(1).write(lambda txn: txn.put(b"x", b"1"))
    await follower.step()
    monkeypatch.setattr(DataDirectory, "free_bytes", lambda self: 600)
    with pytest.raises(Failure) as full:
        await leader.store(1).write(lambda txn: txn.put(b"y", b"1"))
    assert full.value.kind is Kind.STORAGE_FULL
    await leader.drop(1)
    await follower.step()
    async with asyncio.timeout(5):
        await follower.confirm(leader.replica.position.place)
    assert await engine.store(1).read(lambda view: view.get(b"x")) is None
    await leader.close()
    await engine.close()
