"""A replica is built from another node: resumed after breaks, checked, and refused where it does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.cluster_node import settled
from support.copied_node import GENERATION, CopiedNode, contents, opened
from support.direct_calls import gone
from support.limits import WithLimits
from support.waiting import until

from armillary.clock import SystemClock, VirtualClock
from armillary.cluster.bootstrap import Progress, drop_arrived, fetch, needs_bootstrap
from armillary.cluster.bootstrap_source import BEGIN, DIGEST, END, PART, BootstrapSource, checksum_of
from armillary.cluster.peers.calls import PeerGone
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.rows import START
from armillary.storage.replication.local_replica import Position, start_of


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CopiedNode]:
    made = await CopiedNode.open(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def quick(with_limits: WithLimits) -> WithLimits:
    with_limits(BOOTSTRAP_RETRY_SECONDS=0.0, BOOTSTRAP_PART_BYTES=4_000)
    return with_limits


async def catch_up(node: CopiedNode, path: Path) -> dict[bytes, bytes]:
    engine, follower = await opened(path, node.server)
    while engine.replica.position.place != (place := node.engine.replica.position.place):
        await follower.step()
        await follower.confirm(place)
    found = await contents(engine)
    await engine.close()
    return found


async def test_a_replica_is_copied_and_follows_from_there(node: CopiedNode, tmp_path: Path) -> None:
    await node.trim()
    assert await needs_bootstrap(start_of(GENERATION), node.log)
    progress: list[Progress] = []
    directory = DataDirectory.claim(tmp_path / "b")
    position = await node.fetch(directory, on_progress=progress.append)
    directory.release()
    assert position.place == node.engine.replica.position.place
    assert progress[-1].done_bytes == progress[-1].total_bytes > 0
    assert sorted(each.done_bytes for each in progress) == [each.done_bytes for each in progress]
    assert not (tmp_path / "b" / "incoming").exists()
    assert not list((tmp_path / "a" / "checkpoints").iterdir())
    await node.write(1)
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_only_replicas_whose_rows_are_gone_need_a_copy(node: CopiedNode) -> None:
    at = node.engine.replica.position
    await node.log.register("b")
    assert not await needs_bootstrap(start_of(GENERATION), node.log), "the log has everything"
    await node.log.remove("b")
    await node.write(1)
    await node.write(2)
    await node.trim()
    assert await needs_bootstrap(start_of(GENERATION), node.log)
    assert await needs_bootstrap(at, node.log), "it is cut off"
    assert not await needs_bootstrap(node.engine.replica.position, node.log)
    ahead = at._replace(place=at.place._replace(seq=10_000))
    assert not await needs_bootstrap(ahead, node.log), "the log was set back: its follower says so"


async def test_broken_connections_cost_only_what_had_not_arrived(
    node: CopiedNode, tmp_path: Path, quick: WithLimits
) -> None:
    quick(BOOTSTRAP_PARTS_AHEAD=1)
    await node.write(1)
    whole = CopiedNode(tmp_path, node.server, node.engine, node.clock)
    await whole.fetch_to(tmp_path / "whole")
    node.peers.breaks_at = {3, 4, 9, 15, 16, 25}
    await node.fetch_to(tmp_path / "b")
    again = node.peers.received(PART) - whole.peers.received(PART)
    assert node.peers.received(BEGIN) == 7
    tables = {head["file"] for name, head in node.peers.asked if name == PART and head["file"].endswith(".sst")}
    for table in tables:
        asked = [head["offset"] for name, head in node.peers.asked if name == PART and head["file"] == table]
        assert len(asked) - len(set(asked)) <= 3, "only the parts that broke are asked for again"
    assert again < 25
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_tables_are_kept_over_a_restart_and_a_new_checkpoint(
    node: CopiedNode, tmp_path: Path, quick: WithLimits
) -> None:
    quick(BOOTSTRAP_ATTEMPTS=1)
    await node.write(1, rows=1)
    assert node.engine.replica.database is not None
    node.engine.replica.database.compact(b"", b"\xff" * 5)  # so that RocksDB does not do it meanwhile
    directory = DataDirectory.claim(tmp_path / "b")
    tables = sorted(each.name for each in (tmp_path / "a" / "rocks").glob("*.sst"))
    assert tables
    # All tables arrive, and then the process stops.
    calls = node.peers.call

    async def stops_after_tables(*given: Any, **options: Any) -> Any:
        head = given[2]
        if given[1] == PART and not head["file"].endswith(".sst"):
            raise gone()
        return await calls(*given, **options)

    with pytest.raises(PeerGone):
        await fetch(stops_after_tables, "a", directory, node.log, "b", GENERATION, node.clock)
    directory.release()
    kept = {each.name for each in (tmp_path / "b" / "incoming").glob("*.sst")}
    assert kept == set(tables)
    await node.write(2)  # one more table, and a new checkpoint
    node.peers.asked.clear()
    await node.fetch_to(tmp_path / "b")
    assert {table: node.peers.received(PART, table) for table in tables} == dict.fromkeys(tables, 0)
    assert {table: node.peers.received(DIGEST, table) for table in tables} == dict.fromkeys(tables, 1)
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_files_that_are_not_what_the_source_has_are_received_again(
    node: CopiedNode, tmp_path: Path, quick: WithLimits
) -> None:
    """Left by a copy of another node, or by a stop of the machine before they were on the disk."""
    incoming = tmp_path / "b" / "incoming"
    directory = DataDirectory.claim(tmp_path / "b")
    incoming.mkdir()
    for table in (tmp_path / "a" / "rocks").glob("*.sst"):
        (incoming / table.name).write_bytes(bytes(table.stat().st_size - 10))
    (incoming / "CURRENT").write_bytes(b"MANIFEST-000999\n")
    (incoming / "999999.sst").write_bytes(b"of another node")
    (incoming / "of another node").mkdir()
    await node.fetch(directory)
    directory.release()
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_damaged_parts_are_asked_for_again(node: CopiedNode, tmp_path: Path, quick: WithLimits) -> None:
    node.peers.damages_at = {2, 3, 7}
    await node.fetch_to(tmp_path / "b")
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)
    node.peers.damages_at = set(range(1, 100_000))
    with pytest.raises(Failure, match="checksums") as caught:
        await node.fetch_to(tmp_path / "c")
    assert caught.value.kind is Kind.CORRUPT


async def test_a_source_that_has_started_again_is_asked_again(
    node: CopiedNode, tmp_path: Path, quick: WithLimits
) -> None:
    number = 0
    calls = node.peers.call

    async def call(*given: Any, **options: Any) -> Any:
        nonlocal number
        number += 1
        if number == 6:
            await node.source.close()
        return await calls(*given, **options)

    directory = DataDirectory.claim(tmp_path / "b")
    await fetch(call, "a", directory, node.log, "b", GENERATION, node.clock)
    directory.release()
    assert node.peers.received(BEGIN) == 2
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_a_source_that_stays_away_is_given_up(node: CopiedNode, tmp_path: Path, quick: WithLimits) -> None:
    node.peers.breaks_at = set(range(5, 1_000))
    with pytest.raises(PeerGone):
        await node.fetch_to(tmp_path / "b")
    assert len(list((tmp_path / "b" / "incoming").iterdir())) > 0
    node.peers.breaks_at = set()
    await node.fetch_to(tmp_path / "b")
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_a_cut_off_replica_is_replaced(node: CopiedNode, tmp_path: Path) -> None:
    await node.fetch_to(tmp_path / "b")
    await node.log.remove("b")
    for number in (1, 2, 3):
        await node.write(number)
    await node.trim()
    engine, follower = await opened(tmp_path / "b", node.server)
    assert await needs_bootstrap(engine.replica.position, node.log)
    with pytest.raises(Failure, match="too far behind"):
        await follower.step()
    engine.replica.close()
    await node.fetch(engine.replica.directory)
    await engine.close()
    assert not (tmp_path / "b" / "rocks.former").exists()
    assert await catch_up(node, tmp_path / "b") == await contents(node.engine)


async def test_copies_of_another_log_or_too_old_ones_are_refused(node: CopiedNode, tmp_path: Path) -> None:
    directory = DataDirectory.claim(tmp_path / "b")
    other = MemoryLog(MemoryLogServer(b"another cluster."), SystemClock())
    with pytest.raises(Failure, match="another log"):
        await fetch(node.peers.call, "a", directory, other, "b", b"another cluster.", node.clock)
    # The log has gone on where the source has not.
    ahead = MemoryLogServer(GENERATION)
    ahead.trimmed = node.engine.replica.position.place.seq + 5
    with pytest.raises(Failure, match="Copy from a node that is further"):
        await fetch(node.peers.call, "a", directory, MemoryLog(ahead, node.clock), "b", GENERATION, node.clock)
    directory.release()
    engine, _ = await opened(tmp_path / "b", node.server)
    assert engine.replica.position == Position(GENERATION, START, 0, 0)
    await engine.close()


@pytest.mark.parametrize("unwanted", ["../FORMAT", "/etc/hostname", "..", "", "a/b", ".hidden"])
async def test_names_lead_nowhere_else(node: CopiedNode, tmp_path: Path, unwanted: str) -> None:
    head, _ = await node.source.calls[BEGIN]("b", {"generation": GENERATION.hex()}, b"")
    for call in (PART, DIGEST):
        with pytest.raises(Failure, match="no such file"):
            await node.source.calls[call]("b", {"id": head["id"], "file": unwanted, "offset": 0, "length": 1}, b"")

    async def offer(node: str, name: str, head: dict[str, Any], body: bytes, *, limit_s: float) -> Any:
        assert name == BEGIN
        return {"id": "x", "format": 3, "seq": 9, "generation": GENERATION.hex()}, orjson.dumps({unwanted: 1})

    directory = DataDirectory.claim(tmp_path / "b")
    with pytest.raises(Failure) as caught:
        await fetch(offer, "a", directory, node.log, "b", GENERATION, node.clock)
    assert caught.value.kind is Kind.CORRUPT
    directory.release()


async def test_a_checkpoint_is_for_the_node_that_asked(node: CopiedNode) -> None:
    calls = node.source.calls
    head, _ = await calls[BEGIN]("b", {"generation": GENERATION.hex()}, b"")
    asked = {"id": head["id"], "file": "CURRENT", "offset": 0, "length": 5}
    answered, part = await calls[PART]("b", asked, b"")
    assert answered == {"checksum": checksum_of(part)} and len(part) == 5
    with pytest.raises(Failure, match="begin again"):
        await calls[PART]("c", asked, b"")
    for wrong in ({"offset": -1}, {"offset": 10_000}, {"length": 0}, {"length": 2 << 20}, {"offset": "0"}):
        with pytest.raises(Failure) as caught:
            await calls[PART]("b", {**asked, **wrong}, b"")
        assert caught.value.kind is Kind.BAD_REQUEST
    await calls[END]("b", {"id": head["id"]}, b"")
    with pytest.raises(Failure, match="begin again"):
        await calls[PART]("b", asked, b"")


async def test_few_nodes_are_served_at_a_time_and_silent_ones_are_forgotten(tmp_path: Path) -> None:
    clock = VirtualClock()
    node = await CopiedNode.open(tmp_path, clock)
    calls, asked = node.source.calls, {"generation": GENERATION.hex()}
    first, _ = await calls[BEGIN]("n0", asked, b"")
    for number in (1, 2, 3):
        await calls[BEGIN](f"n{number}", asked, b"")
    await calls[BEGIN]("n3", asked, b"")  # again: its first checkpoint is dropped
    checkpoints = tmp_path / "a" / "checkpoints"
    assert len(list(checkpoints.iterdir())) == 4
    with pytest.raises(Failure) as caught:
        await calls[BEGIN]("n4", asked, b"")
    assert caught.value.kind is Kind.UNAVAILABLE
    await settled(clock)
    clock.advance(200)
    await calls[DIGEST]("n0", {"id": first["id"], "file": "CURRENT"}, b"")
    clock.advance(200)
    while len(list(checkpoints.iterdir())) > 1:  # noqa: ASYNC110 - files are removed by a thread
        await asyncio.sleep(0)
    assert [each.name for each in checkpoints.iterdir()] == [first["id"]]
    await node.close()
    assert not list(checkpoints.iterdir())


async def test_a_checkpoint_that_is_not_waited_for_is_dropped(
    node: CopiedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_made, goes_on = asyncio.Event(), asyncio.Event()
    checkpoint = node.engine.checkpoint

    async def slow() -> Path:
        made = await checkpoint()
        is_made.set()
        await goes_on.wait()
        return made

    monkeypatch.setattr(node.engine, "checkpoint", slow)
    begun = asyncio.ensure_future(node.source.calls[BEGIN]("b", {"generation": GENERATION.hex()}, b""))
    await is_made.wait()
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    goes_on.set()
    await until(lambda: not list((tmp_path / "a" / "checkpoints").iterdir()), "the checkpoint is removed")


async def test_parts_are_paced(tmp_path: Path) -> None:
    clock = VirtualClock()
    node = await CopiedNode.open(tmp_path, clock)
    node.source = BootstrapSource(node.engine, clock, bytes_per_second=10)
    head, _ = await node.source.calls[BEGIN]("b", {"generation": GENERATION.hex()}, b"")
    asked = {"id": head["id"], "file": "CURRENT", "offset": 0, "length": 5}
    await node.source.calls[PART]("b", asked, b"")
    second = asyncio.ensure_future(node.source.calls[PART]("b", asked, b""))
    await settled(clock)
    clock.advance(0.4)
    await settled(clock)
    assert not second.done()
    clock.advance(0.2)
    await second
    await node.close()


async def test_what_has_arrived_can_be_dropped(node: CopiedNode, tmp_path: Path) -> None:
    directory = DataDirectory.claim(tmp_path / "b")
    drop_arrived(directory)
    (tmp_path / "b" / "incoming").mkdir()
    drop_arrived(directory)
    assert not (tmp_path / "b" / "incoming").exists()
    directory.release()
