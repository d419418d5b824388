"""Accounts on nodes of a cluster: one leads, the others follow, and the roles change while containers are used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.cluster_node import ClusterNode, settled
from support.house import AccountHouse

from armillary.account.following import FollowingAccount
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.read_visits import ReadItem
from armillary.account.visits.visits import check_session, run
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.keys import Key
from armillary.partition.operations import Result
from armillary.storage.log.memory_log import MemoryLogServer

GENERATION = b"a log of a test."


def house_of(node: ClusterNode, clock: VirtualClock) -> AccountHouse[VirtualClock]:
    return AccountHouse(node.engine, node.account, clock, node.account.settings)


async def put(node: ClusterNode, clock: VirtualClock, name: str) -> None:
    await house_of(node, clock).put(node.account.container("db", "c"), {"id": name, "pk": "x"})


async def has(node: ClusterNode, name: str) -> bool:
    try:
        await items.read(node.account.container("db", "c"), name, ItemOptions(Key(("x",))))
    except Failure as failure:
        if failure.kind is not Kind.NOT_FOUND:
            raise
        return False
    return True


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_the_account_moves_with_the_leader(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a", has_account=True)
    await settled(clock, 0.2)
    b = ClusterNode(tmp_path / "b", server, clock, "b", has_account=True)
    await settled(clock, 0.5)
    assert not isinstance(a.account, FollowingAccount)
    assert isinstance(b.account, FollowingAccount)
    await house_of(a, clock).create()
    await put(a, clock, "1")
    await settled(clock, 1.0)
    assert await has(b, "1")
    with pytest.raises(Failure) as caught:
        await put(b, clock, "2")
    assert caught.value.kind is Kind.NOT_LEADER

    before = a.account.container("db", "c")
    a.gate.is_cut = True  # the leader loses the log, and the other node takes over
    await settled(clock, 4.0)
    assert not isinstance(b.account, FollowingAccount)
    await put(b, clock, "2")
    await house_of(b, clock).create("later")
    a.gate.is_cut = False
    await settled(clock, 2.0)
    assert isinstance(a.account, FollowingAccount)
    assert await has(a, "2")
    assert a.account.container("db", "later").name == "later"
    with pytest.raises(Failure) as caught:  # what a request still holds of the account that led
        await items.read(before, "1", ItemOptions(Key(("x",))))
    assert caught.value.kind is Kind.NOT_LEADER

    b.leadership.hand_over("a")
    await settled(clock, 1.0)
    await put(a, clock, "3")
    await settled(clock, 1.0)
    assert await has(b, "3")
    assert a.account.secret == b.account.secret
    await a.stop()
    await b.stop()


async def test_a_node_whose_account_cannot_be_opened_hands_over(tmp_path: Path, clock: VirtualClock) -> None:
    server = MemoryLogServer(GENERATION)
    a = ClusterNode(tmp_path / "a", server, clock, "a", has_account=True)
    await settled(clock, 0.2)
    b = ClusterNode(tmp_path / "b", server, clock, "b", has_account=True)
    await settled(clock, 0.5)
    await house_of(a, clock).create()
    await settled(clock, 1.0)

    async def fail() -> None:
        raise Failure(Kind.STORAGE_FULL, "The disk is full.")

    b.roles.lead = fail  # type: ignore[method-assign]
    a.leadership.hand_over("b")
    await settled(clock, 3.0)
    assert a.engine.is_leading
    assert not b.task.done()
    await put(a, clock, "1")
    await a.stop()
    await b.stop()


@pytest.mark.parametrize("verb", ["put", "delete"])
async def test_a_token_is_as_new_as_what_was_read_with_it(tmp_path: Path, clock: VirtualClock, verb: str) -> None:
    """Also before the writer goes on, and if its request was cancelled."""
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a", has_account=True)
    await settled(clock, 0.5)
    house = house_of(node, clock)
    container = await house.create()
    await put(node, clock, "1")
    [partition] = container.partitions.values()
    before = partition.lsn
    node.gate.close("after append")
    writing = asyncio.ensure_future(
        put(node, clock, "1") if verb == "put" else items.delete(container, "1", ItemOptions(Key(("x",))))
    )
    await settled(clock)
    writing.cancel()
    node.gate.open("after append")
    await settled(clock)

    assert partition.lsn == before + 1
    check_session(partition, {partition.range.id: before + 1})
    visit = ReadItem(container.effective_key(Key(("x",))), "1")
    answer = await run(container, visit)
    assert answer.result is (Result.READ if verb == "put" else Result.MISSING)
    assert answer.lsn == before + 1
    await node.stop()
