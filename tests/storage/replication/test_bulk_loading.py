"""Bulk copies through the log: they take turns with the writes of clients, and hold little of what they copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cluster_node import ClusterNode, settled

from armillary import limits
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.log.rows import Row
from armillary.storage.overlay import Pair

GENERATION = b"a log of a test."
PORTIONS = 12
APPEND_S, STEP_S = 0.2, 0.05
PORTION_BYTES = limits.LOG_ROW_BYTES_MAX // 2


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def portion(number: int) -> list[Pair]:
    return [(b"%04d" % number, bytes(PORTION_BYTES))]


def slow_appends(node: ClusterNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def before(call: str) -> None:
        if call == "append":
            await clock.sleep(APPEND_S)

    monkeypatch.setattr(node.gate, "before", before)


async def copy(node: ClusterNode, store: int = 7) -> int:
    """Returns how many portions were put."""
    loader = node.engine.store(store).loader()
    for number in range(PORTIONS):
        loader.put(portion(number))
        await loader.ready()
    await loader.finish()
    return PORTIONS


async def test_a_copy_does_not_run_ahead_of_the_log(tmp_path: Path, clock: VirtualClock) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock)
    loaders = [node.engine.store(store).loader() for store in (7, 8)]
    node.gate.close("before append")
    put = [0, 0]

    async def load(number: int) -> None:
        for each in range(PORTIONS):
            loaders[number].put(portion(each))
            put[number] += 1
            await loaders[number].ready()
        await loaders[number].finish()

    loading = asyncio.gather(load(0), load(1))
    await settled(clock, 1.0)
    assert sum(put) <= limits.LOAD_PORTIONS_MAX + 1, "both copies together"
    node.gate.open("before append")
    for _ in range(PORTIONS):
        await settled(clock, 0.5)
    await loading
    for store in (7, 8):
        assert len(await node.engine.store(store).read(lambda view: list(view.scan(b"", b"\xff")))) == PORTIONS
    await node.stop()


async def test_clients_have_their_share_of_the_appends(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MemoryLogServer(GENERATION)
    node = ClusterNode(tmp_path / "a", server, clock, "a")
    await settled(clock)
    slow_appends(node, clock, monkeypatch)
    copying = asyncio.ensure_future(copy(node))
    waited_s: list[float] = []

    async def write(name: bytes) -> None:
        while not copying.done():
            begun_s = clock.elapsed_s()
            await node.engine.store(1).write(lambda txn: txn.put(name, b"1"))
            waited_s.append(clock.elapsed_s() - begun_s)

    appended: list[int] = []  # bytes of each group
    add = server.add

    def note(rows: Sequence[Row]) -> bool:
        appended.append(sum(len(row.data) for row in rows))
        return add(rows)

    monkeypatch.setattr(server, "add", note)
    clients = asyncio.gather(*(write(b"%d" % number) for number in range(4)))
    for _ in range(600):
        if copying.done():
            break
        await settled(clock, 0.05)
    assert await copying == PORTIONS
    await settled(clock, 0.5)
    await clients
    with_copy = sum(size_bytes >= PORTION_BYTES for size_bytes in appended)
    assert with_copy <= len(appended) * limits.LOAD_SHARE
    assert max(waited_s) <= 2 * APPEND_S + STEP_S, "a write waits for the append in flight and its own"
    await node.stop()


async def test_a_copy_alone_is_not_held_up(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock)
    slow_appends(node, clock, monkeypatch)
    begun_s = clock.elapsed_s()
    copying = asyncio.ensure_future(copy(node))
    for _ in range(600):
        if copying.done():
            break
        await settled(clock, 0.05)
    assert clock.elapsed_s() - begun_s <= APPEND_S * (PORTIONS + 2)
    await node.stop()


async def test_a_copy_ends_with_its_leader(tmp_path: Path, clock: VirtualClock) -> None:
    node = ClusterNode(tmp_path / "a", MemoryLogServer(GENERATION), clock, "a")
    await settled(clock)
    loader = node.engine.store(7).loader()
    node.gate.close("before append")
    for number in range(limits.LOAD_PORTIONS_MAX):
        loader.put(portion(number))
    waiting = asyncio.ensure_future(loader.ready())
    await settled(clock, 0.1)
    assert not waiting.done()
    await node.stop()
    with pytest.raises(Failure):
        await waiting
