"""Data directories that join and leave clusters: init, leave, reset-log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.replicas import lead, leading_engine, local_replica, stepping_follower
from support.stopped import problems_of, single_server, state_of_directory, two_replicas

from armillary.account.account import Account
from armillary.account.following import FollowingAccount
from armillary.clock import SystemClock, VirtualClock
from armillary.cluster.bootstrap import needs_bootstrap
from armillary.cluster.directories import init, leave, position_of, reset_log
from armillary.errors import Failure, Kind
from armillary.storage.log.memory_log import MemoryLog, MemoryLogMaker, MemoryLogServer
from armillary.storage.log.replicated_log import LogRefused, LogUnavailable
from armillary.storage.log.rows import Row
from armillary.storage.replication.local_replica import start_of
from armillary.storage.replication.replicated_engine import ReplicatedEngine
from armillary.storage.rocks import RocksEngine

CLOCK = SystemClock()


class UnsureMaker(MemoryLogMaker):
    """Its log is made, or not, and the answer is lost."""

    def __init__(self, error: LogUnavailable, *, is_made: bool) -> None:
        super().__init__()
        self._error: LogUnavailable | None = error
        self._is_made = is_made

    async def make(self, generation: bytes, origin: Row, *, replaces: bool) -> None:
        error, self._error = self._error, None
        if error is None or self._is_made:
            await super().make(generation, origin, replaces=replaces)
        if error is not None:
            raise error


def connection(server: MemoryLogServer) -> MemoryLog:
    return MemoryLog(server, CLOCK)


async def put(engine: ReplicatedEngine, value: bytes) -> None:
    await engine.store(900).write(lambda txn: txn.put(b"x", value))


async def test_a_cluster_begins_with_a_single_servers_directory(tmp_path: Path) -> None:
    path, maker = tmp_path / "a", MemoryLogMaker()
    await single_server(path)
    state = state_of_directory(path)
    position = await init(maker, path, CLOCK)
    assert maker.server is not None
    assert position_of(path) == position
    assert state_of_directory(path) == state
    with pytest.raises(Failure, match="replica of a cluster"):
        await RocksEngine.open(path)
    engine = await leading_engine(path, maker.server)
    account = await Account.open(engine, VirtualClock(engine.replica.position.time_us / 1e6))
    assert len(account.container("db", "c").partitions) == 2
    await account.close()
    assert await problems_of(engine) == []
    # An empty replica cannot follow from the log's first row: it needs a copy.
    follower, empty = stepping_follower(tmp_path / "b", maker.server)
    assert await needs_bootstrap(start_of(position.generation), connection(maker.server))
    with pytest.raises(Failure, match="too far behind"):
        await follower.step()
    await empty.close()
    await engine.close()


async def test_what_cannot_begin_a_cluster_is_refused(tmp_path: Path) -> None:
    await single_server(tmp_path / "a")
    await (await RocksEngine.open(tmp_path / "empty")).close()
    taken = MemoryLogMaker(MemoryLogServer(b"another cluster."))
    with pytest.raises(Failure, match="already"):
        await init(taken, tmp_path / "a", CLOCK)
    maker = MemoryLogMaker()
    with pytest.raises(Failure, match="no data directory"):
        await init(maker, tmp_path / "missing", CLOCK)
    with pytest.raises(Failure, match="no account"):
        await init(maker, tmp_path / "empty", CLOCK)
    assert not (tmp_path / "missing").exists()
    assert maker.server is None
    assert position_of(tmp_path / "a") is None, "nothing was changed"
    await init(maker, tmp_path / "a", CLOCK)
    assert maker.server is not None
    engine = await leading_engine(tmp_path / "a", maker.server)
    await put(engine, b"1")
    await engine.close()
    with pytest.raises(Failure, match="a cluster already"):
        await init(maker, tmp_path / "a", CLOCK)
    with pytest.raises(Failure, match="a cluster already"):
        await init(MemoryLogMaker(), tmp_path / "a", CLOCK)


@pytest.mark.parametrize("is_made", [False, True])
async def test_an_interrupted_beginning_is_continued(tmp_path: Path, is_made: bool) -> None:
    path, maker = tmp_path / "a", UnsureMaker(LogUnavailable("gone"), is_made=is_made)
    await single_server(path)
    with pytest.raises(Failure) as caught:
        await init(maker, path, CLOCK)
    assert caught.value.kind is Kind.UNAVAILABLE
    begun = position_of(path)
    assert await init(maker, path, CLOCK) == begun == position_of(path)
    assert maker.server is not None
    await (await leading_engine(path, maker.server)).close()


async def test_a_refused_log_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    maker = UnsureMaker(LogRefused("PostgreSQL has no synchronous standby."), is_made=False)
    await single_server(tmp_path / "a")
    with pytest.raises(Failure, match="no synchronous standby"):
        await init(maker, tmp_path / "a", CLOCK)
    await (await RocksEngine.open(tmp_path / "a")).close()


async def test_a_replica_leaves_with_everything(tmp_path: Path) -> None:
    server = await two_replicas(tmp_path)
    log = connection(server)
    await log.register("b")
    state = state_of_directory(tmp_path / "b")
    leader = await leading_engine(tmp_path / "a", server)  # a fence that writes nothing
    left = await leave(tmp_path / "b", log, "b")
    assert (left.missing_rows, left.is_removed) == (0, True)
    assert await log.replicas() == []
    assert state_of_directory(tmp_path / "b") == state
    alone = await RocksEngine.open(tmp_path / "b")
    account = await Account.open(alone, CLOCK)
    await account.close()
    assert await problems_of(alone) == []
    await alone.close()
    with pytest.raises(Failure, match="of a single server"):
        await leave(tmp_path / "b", log)
    with pytest.raises(Failure, match="of a single server"):
        local_replica(tmp_path / "b", server)
    await leader.close()


class ForgetsNothing:
    """The log does not answer when a node is to be forgotten."""

    async def before(self, call: str) -> None:
        if call == "forget":
            raise LogUnavailable("the connection broke")

    async def after(self, call: str) -> None:
        return


async def test_a_cluster_that_could_not_be_told_of_a_replica_that_left(tmp_path: Path) -> None:
    server = await two_replicas(tmp_path)
    left = await leave(tmp_path / "b", MemoryLog(server, CLOCK, ForgetsNothing()), "b")
    assert (left.missing_rows, left.is_removed) == (0, False)
    assert position_of(tmp_path / "b") is None, "it has left"


async def test_a_replica_that_may_lack_something_leaves_only_if_that_is_accepted(tmp_path: Path) -> None:
    server = await two_replicas(tmp_path)
    log, path = connection(server), tmp_path / "b"
    leader = await leading_engine(tmp_path / "a", server)
    await put(leader, b"1")
    await put(leader, b"2")
    with pytest.raises(Failure, match="2 rows of transactions"):
        await leave(path, log)
    with pytest.raises(Failure, match="without its log"):
        await leave(path, None)
    other = connection(MemoryLogServer(b"another cluster."))
    with pytest.raises(Failure, match="not the one of this replica"):
        await leave(path, other)
    rows = list(server.rows)
    server.trim(rows[-2].seq)
    with pytest.raises(Failure, match="has removed rows"):
        await leave(path, log)
    position = position_of(path)
    assert position is not None
    server.rows, server.trimmed = rows[: position.place.seq - 1], 0
    with pytest.raises(Failure, match="set back"):
        await leave(path, log)
    server.rows = [*rows[: position.place.seq - 1], rows[position.place.seq - 1]._replace(chain=b"x" * 16)]
    with pytest.raises(Failure, match="set back"):
        await leave(path, log)
    server.rows = rows
    assert position_of(path) == position
    left = await leave(path, log, accepts_loss=True)
    assert (left.position, left.missing_rows, left.is_removed) == (position, 2, False)
    await (await RocksEngine.open(path)).close()
    await leader.close()
    assert (await leave(tmp_path / "a", None, accepts_loss=True)).missing_rows is None


async def test_a_log_that_was_set_back_is_made_anew(tmp_path: Path) -> None:
    maker = MemoryLogMaker(await two_replicas(tmp_path))
    assert maker.server is not None
    leader = await leading_engine(tmp_path / "a", maker.server)
    await put(leader, b"1")
    await leader.close()
    former = position_of(tmp_path / "a")
    assert former is not None
    state = state_of_directory(tmp_path / "a")
    with pytest.raises(Failure, match="neither lost nor set back"):
        await reset_log(maker, tmp_path / "a")
    maker.server.set_back(former.place.seq - 1)
    reset = await reset_log(maker, tmp_path / "a")
    assert reset.former == former
    assert f"row {former.place.seq} of epoch {former.place.epoch}" in reset.sentence
    assert position_of(tmp_path / "a") == reset.position
    assert state_of_directory(tmp_path / "a") == state
    server = maker.server
    assert server.state.generation == reset.position.generation != former.generation
    with pytest.raises(Failure, match="before its log was reset"):
        local_replica(tmp_path / "b", server)
    engine = await leading_engine(tmp_path / "a", server)
    at = engine.replica.position
    assert (at.place.epoch, at.place.seq) > (former.place.epoch, former.place.seq)
    assert at.time_us >= former.time_us and at.transactions == former.transactions
    await put(engine, b"2")
    account = await FollowingAccount.open(engine, CLOCK)
    assert len(account.container("db", "c").partitions) == 2
    await account.close()
    await engine.close()
    with pytest.raises(Failure, match="another cluster, or one made anew"):
        await reset_log(maker, tmp_path / "b")


async def test_a_log_that_was_lost_is_made_anew(tmp_path: Path) -> None:
    await two_replicas(tmp_path)
    maker = UnsureMaker(LogUnavailable("gone"), is_made=True)
    with pytest.raises(Failure) as caught:
        await reset_log(maker, tmp_path / "b")
    assert caught.value.kind is Kind.UNAVAILABLE
    reset = await reset_log(maker, tmp_path / "b")  # the same again
    assert maker.server is not None and maker.server.state.generation == reset.position.generation
    engine = await leading_engine(tmp_path / "b", maker.server)
    await put(engine, b"1")
    await engine.close()
    # A replica with the very state that the log was made of is one of the new log too.
    await reset_log(maker, tmp_path / "a")
    follower, other = stepping_follower(tmp_path / "a", maker.server)
    while await follower.step():
        pass
    await follower.confirm(maker.server.rows[-1].place)
    await other.close()
    await (await leading_engine(tmp_path / "b", maker.server, "b")).close()
    assert state_of_directory(tmp_path / "a") == state_of_directory(tmp_path / "b")


async def test_losses_can_be_accepted(tmp_path: Path) -> None:
    maker = MemoryLogMaker(await two_replicas(tmp_path))
    assert maker.server is not None
    before = maker.server.state.generation
    await reset_log(maker, tmp_path / "b", accepts_loss=True)
    assert maker.server.state.generation != before
    maker.server.state = replace(maker.server.state, generation=b"another cluster.")
    await reset_log(maker, tmp_path / "a", accepts_loss=True)
    assert maker.server.state.generation != b"another cluster."
    await single_server(tmp_path / "c")
    with pytest.raises(Failure, match="of a single server"):
        await reset_log(maker, tmp_path / "c")
    engine = ReplicatedEngine(local_replica(tmp_path / "a", maker.server), CLOCK)
    await lead(engine, maker.server)
    await engine.close()
