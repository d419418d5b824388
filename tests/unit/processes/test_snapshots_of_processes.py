"""Named snapshots over several processes: taken at one moment of all partitions, and restored wherever they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from support.limits import WithLimits
from support.server_processes import ServerProcesses, server_processes

from armillary.account import containers
from armillary.account.catalog.allocation import place_of_store
from armillary.account.snapshots import restore
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import take
from armillary.errors import Failure, Kind


@pytest.fixture
async def server() -> AsyncIterator[ServerProcesses]:
    async with server_processes() as server:
        yield server


async def filled(server: ServerProcesses, count: int = 60) -> list[bytes]:
    container = await server.create()
    assert {place_of_store(each.store) for each in container.map.ranges} == {0, 1, 2}
    await server.put(*[{"id": f"i{number}", "pk": f"k{number % 20}", "n": number} for number in range(count)])
    return await server.contents()


@pytest.mark.parametrize("is_copied", [False, True])
async def test_changes_are_undone(server: ServerProcesses, with_limits: WithLimits, is_copied: bool) -> None:
    before = await filled(server)
    if is_copied:
        with_limits(REWIND_ENTRIES_MAX=0)
    snapshot = await server.first.snapshots.take("x", ("db",))
    assert snapshot.counts()[0] == 60
    for round_number in range(2):
        changed = [{"id": f"i{number}", "pk": f"k{number % 20}", "round": round_number} for number in range(40)]
        await server.put(*changed, {"id": "new", "pk": "k1"}, process=round_number)
        await server.delete({"id": "i50", "pk": "k10"})
        outcome = await restore.restore(server.first, snapshot)
        assert (outcome.rewound, outcome.copied) == (0, 1) if is_copied else (1, 0)
        assert await server.contents() == before
        places = {place_of_store(each.store) for each in server.first.container("db", "c").map.ranges}
        assert places == {0, 1, 2}
    # All processes write to what was restored.
    for process in range(3):
        await server.put(*[{"id": f"w{process}-{key}", "pk": f"k{key}"} for key in range(9)], process=process)
    assert len(await server.contents()) == 60 + 27


async def test_a_container_that_was_deleted_is_back_in_all_processes(server: ServerProcesses) -> None:
    before = await filled(server)
    snapshot = await server.first.snapshots.take("x", ())
    await containers.delete_container(server.first, server.first.container("db", "c"), None)
    await server.create()
    await restore.restore(server.first, snapshot)
    assert await server.contents() == before
    await server.put({"id": "later", "pk": "k3"}, process=2)
    assert len(await server.contents()) == 61


async def test_a_write_is_there_only_with_what_it_follows(server: ServerProcesses) -> None:
    """Writers in all processes write to one partition, and then to another one. A snapshot never has the second alone,
    and so neither has what it is restored to."""
    await filled(server)
    is_over = False

    async def write(number: int) -> int:
        count = 0
        while not is_over:
            count += 1
            for key in (f"a{number}", f"b{number}"):
                await server.put({"id": "count", "pk": key, "n": count}, process=number % 3)
        return count

    writers = [asyncio.create_task(write(number)) for number in range(9)]
    snapshots = []
    for number in range(10):
        snapshots.append(await server.first.snapshots.take(f"s{number}", ("db",)))
        for _ in range(20):
            await asyncio.sleep(0)
    is_over = True
    assert min(await asyncio.gather(*writers)) > 0
    counts = []
    for snapshot in snapshots:
        await restore.restore(server.first, snapshot)
        found = {item["pk"]: item["n"] for item in map(orjson.loads, await server.contents()) if item["id"] == "count"}
        for number in range(9):
            assert found.get(f"b{number}", 0) <= found.get(f"a{number}", 0) <= found.get(f"b{number}", 0) + 1
        counts.append(sum(found.values()))
    assert counts == sorted(counts)


async def test_writers_go_on_while_it_is_restored(server: ServerProcesses, with_limits: WithLimits) -> None:
    """Those that wait for the exchange of partitions go on in the new ones."""
    with_limits(REWIND_ENTRIES_MAX=0, COPY_PORTION_ENTRIES=5)
    await filled(server)
    snapshot = await server.first.snapshots.take("x", ("db", "c"))
    is_over = False

    async def write(number: int) -> int:
        count = 0
        while not is_over:
            count += 1
            await server.put({"id": f"w{number}", "pk": f"k{count % 20}", "n": count}, process=number)
        return count

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    for _ in range(3):
        outcome = await restore.restore(server.first, snapshot)
        assert outcome.copied == 1
    is_over = True
    assert min(await asyncio.gather(*writers)) > 0
    ids = {orjson.loads(text)["id"] for text in await server.contents()}
    assert {f"i{number}" for number in range(60)} <= ids
    await restore.restore(server.first, snapshot)
    assert len(await server.contents()) == 60


async def test_what_is_read_from_a_file_is_spread(server: ServerProcesses) -> None:
    before = await filled(server)
    snapshot = await take(server.first, ("db",))
    made = b"".join([part async for part in parts(snapshot)])
    snapshot.release()
    arrival = SnapshotImport(server.first, ("copy",))
    for at in range(0, len(made), 1000):
        await arrival.feed(made[at : at + 1000])
    await arrival.finish()
    copied = server.first.container("copy", "c")
    assert {place_of_store(each.store) for each in copied.map.ranges} == {0, 1, 2}
    ids = [orjson.loads(text)["id"] for text in await server.contents(database="copy")]
    assert sorted(ids) == sorted(orjson.loads(text)["id"] for text in before)


async def test_a_process_that_ends_lets_the_others_go(server: ServerProcesses) -> None:
    await filled(server)
    snapshot = await server.first.snapshots.take("x", ("db",))
    await server.put({"id": "i1", "pk": "k1", "n": -1})
    await server.end(2)
    for attempt in (restore.restore(server.first, snapshot), server.first.snapshots.take("y", ("db",))):
        with pytest.raises(Failure) as refused:
            await attempt
        assert refused.value.kind is Kind.UNAVAILABLE
    assert [each.name for each in server.first.snapshots.all] == ["x"]
    container = server.first.container("db", "c")
    for number in range(20):
        document = {"id": "after", "pk": f"k{number}"}
        key = container.effective_key(container.key_of(document))
        if place_of_store(container.map.find(key).store) != 2:
            await server.put(document, process=1)
