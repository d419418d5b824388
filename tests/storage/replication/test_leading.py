"""What a leader acknowledges and answers, and when it stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from support.cluster_node import ClusterNode, settled

from armillary import limits
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.storage.engine import Txn
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.replication.lease import Lease, RivalLease

GENERATION = b"a log of a test."


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_a_write_is_acknowledged_after_the_log_and_seen_after_it(tmp_path: Path, clock: VirtualClock) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock)
    assert node.engine.is_leading
    assert node.engine.may_answer_strongly
    store = node.engine.store(1)
    node.gate.close("before standby")
    first = asyncio.ensure_future(store.write(lambda txn: txn.put(b"x", b"1")))
    await settled(clock)
    assert not first.done()
    assert await store.read(lambda view: view.get(b"x")) is None
    assert node.engine.replica.database is not None
    assert node.engine.replica.database.get(b"\0\0\0\1x") is None, "nothing is in RocksDB before the log has it"
    second = asyncio.ensure_future(store.write(lambda txn: txn.get(b"x")))  # runs over the group in flight
    await settled(clock)
    assert not second.done(), "an answer waits for the groups that it saw"
    node.gate.open("before standby")
    await settled(clock)
    assert await second == b"1"
    assert await store.read(lambda view: view.get(b"x")) == b"1"
    await node.stop()


async def test_answers_that_write_nothing_need_the_lease(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    node = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    store = node.engine.store(1)
    assert await store.write(lambda txn: txn.get(b"x")) is None
    count = len(server.rows)
    node.gate.close("before renew")
    await settled(clock, limits.LEASE_SECONDS + 0.5)
    assert not node.engine.may_answer_strongly
    assert await store.write(lambda txn: txn.get(b"x")) is None
    assert len(server.rows) == count + 1, "an empty row shows that this node still leads"
    node.gate.open("before renew")
    await node.stop()


async def test_a_lease_is_counted_from_before_the_renewal_was_sent(tmp_path: Path, clock: VirtualClock) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock, 0.2)
    node.gate.close("after renew")
    await settled(clock, limits.LEASE_RENEW_SECONDS + limits.LEASE_SECONDS + 1.0)
    assert not node.engine.may_answer_strongly
    node.gate.open("after renew")
    for _ in range(3):
        await asyncio.sleep(0)
    assert not node.engine.may_answer_strongly, "the answer is older than the lease"
    await node.stop()


def test_rivals_wait_for_the_lease_and_a_margin() -> None:
    time_s = 100.0
    server = MemoryLogServer(GENERATION)
    rival = RivalLease(lambda: time_s)
    rival.observe(server.state)
    for _ in range(int((limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS) / limits.LEASE_RENEW_SECONDS)):
        time_s += limits.LEASE_RENEW_SECONDS
        rival.observe(server.state)
        assert not rival.is_over()
    time_s += 0.01
    rival.observe(server.state)
    assert rival.is_over()
    assert not rival.is_over(patience_s=0.5)
    lease = Lease(lambda: time_s)
    lease.renew(time_s - limits.LEASE_SECONDS)
    assert not lease.holds


def test_rivals_do_not_count_the_time_in_which_the_log_did_not_answer() -> None:
    """A leader cannot renew its lease then: it has the time for it when the log answers again."""
    time_s = 100.0
    server = MemoryLogServer(GENERATION)
    rival = RivalLease(lambda: time_s)
    rival.observe(server.state)
    time_s += 60.0
    rival.observe(server.state)
    assert not rival.is_over()
    time_s += limits.LEASE_RENEW_SECONDS
    rival.observe(server.state)
    assert not rival.is_over()
    for _ in range(3):  # the log answers, and it is not renewed
        time_s += limits.LEASE_RENEW_SECONDS
        rival.observe(server.state)
    assert rival.is_over()


async def test_a_leader_keeps_leading_when_the_log_was_silent_for_longer_than_its_lease(
    tmp_path: Path, clock: VirtualClock
) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock, 0.2)
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 1.0)
    a.gate.is_cut = b.gate.is_cut = True
    await settled(clock, 10.0)
    b.gate.is_cut = False  # the follower is the first that is answered
    await settled(clock, limits.LEASE_RENEW_SECONDS)
    a.gate.is_cut = False
    await settled(clock, 3.0)
    assert a.engine.is_leading and a.engine.may_answer_strongly
    assert not b.engine.is_leading
    await a.stop()
    await b.stop()


async def test_another_node_takes_over_and_the_deposed_one_answers_nothing(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    await a.engine.store(1).write(lambda txn: txn.put(b"x", b"1"))
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 1.0)
    assert not b.engine.is_leading
    a.gate.is_cut = True
    late = asyncio.ensure_future(a.engine.store(1).write(lambda txn: txn.put(b"x", b"late")))
    await settled(clock, 4.0)
    assert b.engine.is_leading
    assert not a.engine.may_answer_strongly
    assert await b.engine.store(1).write(lambda txn: txn.get(b"x")) == b"1"
    await b.engine.store(1).write(lambda txn: txn.put(b"x", b"2"))
    a.gate.is_cut = False
    await settled(clock, 2.0)
    with pytest.raises(Failure) as caught:
        await late
    assert caught.value.kind in (Kind.NOT_LEADER, Kind.UNAVAILABLE)
    assert not a.engine.is_leading
    assert await a.engine.store(1).read(lambda view: view.get(b"x")) == b"2", "it follows now"
    await a.stop()
    await b.stop()


async def test_handing_over_is_at_once_and_loses_nothing(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 0.2)
    writes = [
        asyncio.ensure_future(a.engine.store(1).write(lambda txn, n=number: txn.put(b"%d" % n, b"1")))  # type: ignore[misc]
        for number in range(20)
    ]
    a.leadership.hand_over("b")
    await settled(clock, 1.0)
    assert b.engine.is_leading
    await asyncio.gather(*writes)
    assert len(await b.engine.store(1).read(lambda view: list(view.scan(b"", b"\xff")))) == 20
    await a.stop()
    await b.stop()


async def test_an_append_goes_on_when_its_leader_steps_down(tmp_path: Path, clock: VirtualClock) -> None:
    """To cancel it would make PostgreSQL answer with a success that only the primary has."""
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    a.gate.close("before standby")
    write = asyncio.ensure_future(a.engine.store(1).write(lambda txn: txn.put(b"x", b"1")))
    await settled(clock)
    server.state = replace(server.state, renewals=server.state.renewals + 7, node="b")  # another node renews
    await settled(clock, 1.0)
    assert not a.engine.is_leading
    with pytest.raises(Failure, match="not known"):
        await write
    a.gate.open("before standby")
    await settled(clock, 5.0)  # no node b comes, so this one takes over again
    assert a.engine.is_leading
    assert await a.engine.store(1).read(lambda view: view.get(b"x")) == b"1", "its row is in the log"
    await a.stop()


@pytest.mark.parametrize("is_deposed", [True, False])
async def test_no_write_is_refused_while_clients_still_find_the_node_as_leader(
    tmp_path: Path, clock: VirtualClock, is_deposed: bool
) -> None:
    """Drivers look for the leader after a refusal, and repeat a write only once: they must not find this node again,
    however long handing over takes."""
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock, 0.2)
    a.gate.close("before standby")  # what was accepted takes its time
    accepted = asyncio.ensure_future(a.engine.store(1).write(lambda txn: txn.put(b"x", b"1")))
    await settled(clock)
    if is_deposed:
        server.state = replace(server.state, renewals=server.state.renewals + 7, node="b")
    else:
        a.leadership.hand_over("b")
    refusal: Failure | None = None
    while refusal is None:
        assert a.no_roles.is_primary or not a.leadership.takes_writes
        try:  # refused at once, or waits behind the accepted one
            a.engine.submit(b"", lambda txn: txn.put(b"y", b"1")).add_done_callback(lambda done: done.exception())
        except Failure as failure:
            refusal = failure
        else:
            await settled(clock, 0.05)
    assert refusal.kind is Kind.NOT_LEADER
    assert not a.no_roles.is_primary
    assert is_deposed or not accepted.done(), "refused while what was accepted is still under way"
    a.gate.open("before standby")
    await asyncio.gather(accepted, return_exceptions=True)
    await a.stop()


async def test_a_leader_that_cannot_store_a_confirmed_group_hands_over(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 0.2)
    database = a.engine.replica.database
    assert database is not None

    def stall(batch: object) -> None:
        raise Exception("Result incomplete: Write stall")

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", stall)
        write = asyncio.ensure_future(a.engine.store(1).write(lambda txn: txn.put(b"x", b"1")))
        await settled(clock, limits.LEASE_SECONDS + 4 * limits.LEASE_RENEW_SECONDS)
        with pytest.raises(Failure, match="not known"):
            await write
        assert b.engine.is_leading, "sooner than the lease ends: it was renewed while RocksDB was waited for"
        assert await b.engine.store(1).read(lambda view: view.get(b"x")) == b"1"
        assert await a.engine.store(1).read(lambda view: view.get(b"x")) is None, "nothing of it is shown"
    await settled(clock, 1.0)
    assert await a.engine.store(1).read(lambda view: view.get(b"x")) == b"1"
    await a.stop()
    await b.stop()


async def test_only_a_leader_hands_over(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 0.2)
    with pytest.raises(Failure) as caught:
        b.leadership.hand_over()
    assert caught.value.kind is Kind.NOT_LEADER
    await a.stop()
    await b.stop()


async def test_writes_wait_for_a_slow_log_and_are_refused_in_the_end(tmp_path: Path, clock: VirtualClock) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock)
    store = node.engine.store(1)
    node.gate.close("before append")
    flying = asyncio.ensure_future(store.write(lambda txn: txn.put(b"x", b"1")))
    await settled(clock)
    gathered = asyncio.ensure_future(store.write(lambda txn: txn.put(b"y", b"1")))
    await settled(clock, limits.LOG_WAIT_SECONDS_MAX - 1)
    assert not flying.done()
    await settled(clock, 3.0)
    for write, is_known in ((flying, False), (gathered, True)):
        with pytest.raises(Failure) as caught:
            await write
        assert caught.value.kind is Kind.UNAVAILABLE
        assert ("not known" in caught.value.message) is not is_known
        if is_known:
            assert caught.value.retry_after_ms
    with pytest.raises(Failure):
        await store.write(lambda txn: txn.put(b"z", b"1"))
    node.gate.open("before append")
    await settled(clock, 1.0)
    assert await store.read(lambda view: (view.get(b"x"), view.get(b"y"))) == (b"1", None)
    await store.write(lambda txn: txn.put(b"z", b"2"))
    await node.stop()


async def test_a_transaction_larger_than_a_row_is_one_transaction(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    node = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)

    def fill(txn: Txn) -> None:
        for number in range(30_000):
            txn.put(b"%06d" % number, b"v" * 100)

    writing = asyncio.ensure_future(node.engine.store(1).write(fill))
    while not writing.done():
        await settled(clock)
    assert [row.is_last for row in server.rows[-4:]] == [False, False, False, True]
    b = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock, 2.0)
    assert len(await b.engine.store(1).read(lambda view: list(view.scan(b"", b"\xff")))) == 30_000
    await node.stop()
    await b.stop()


async def test_a_drained_leader_hands_over_and_does_not_take_over_again(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    first = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    second = ClusterNode(tmp_path / "b", server, clock, "b")
    await settled(clock)
    assert (first.engine.is_leading, second.engine.is_leading) == (True, False)
    first.leadership.drain(True)
    await settled(clock, limits.LEASE_RENEW_SECONDS * 2)
    assert (first.engine.is_leading, second.engine.is_leading) == (False, True), "sooner than the lease ends"
    await second.stop()
    await settled(clock, (limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS) * 3)
    assert not first.engine.is_leading
    first.leadership.drain(False)
    await settled(clock, limits.LEASE_RENEW_SECONDS * 2)
    assert first.engine.is_leading
    await first.stop()


async def test_a_node_goes_on_to_report_after_its_storage_has_refused(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MemoryLogServer(GENERATION)
    node = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    await node.engine.store(1).write(lambda txn: txn.put(b"x", b"1"))
    database = node.engine.replica.database
    assert database is not None

    def refuse() -> None:
        raise Exception("IO error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(database, "sync", refuse)
        await settled(clock, limits.LOG_REPORT_SECONDS + 0.5)
    assert server.replicas["a"].flushed == 0
    await settled(clock, limits.LOG_REPORT_SECONDS + 0.5)
    assert server.replicas["a"].flushed == node.engine.replica.position.place.seq
    await node.stop()
