"""Checkpoints of all processes of a server that runs: of one moment, complete, and without anything that is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from support.limits import WithLimits
from support.process_directories import whole_house
from support.server_processes import ServerProcesses, server_processes

from armillary.account.snapshots import restore
from armillary.errors import Failure, Kind
from armillary.storage.directory import process_directories, process_directory
from armillary.storage.rocks import RocksEngine
from armillary.tools.check import problems_in


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def server(directory: Path) -> AsyncIterator[ServerProcesses]:
    async def engine_of(number: int) -> RocksEngine:
        path = process_directory(directory, number) if number else directory
        return await RocksEngine.open(path, "relaxed", owner="further" if number else "first")

    async with server_processes(engine_of=engine_of) as server:
        yield server


def checkpoints(directory: Path) -> list[Path]:
    """Of all processes, or of one."""
    parents = [each / "checkpoints" for each in (directory, *process_directories(directory).values())]
    return [parent / name for parent in parents if parent.exists() for name in os.listdir(parent)]


async def test_a_write_is_there_only_with_what_it_follows(server: ServerProcesses) -> None:
    await server.create()
    is_over = False

    async def write(number: int) -> int:
        count = 0
        while not is_over:
            count += 1
            for key in (f"a{number}", f"b{number}"):
                await server.put({"id": "count", "pk": key, "n": count}, process=number % 3)
        return count

    async def make_containers() -> int:
        """The item of a container that was made before it is never there without it."""
        count = 0
        while not is_over:
            count += 1
            await server.create(f"c{count}", 400)
            await server.put({"id": "made", "pk": "made", "n": count}, process=1)
        return count

    writers = [asyncio.create_task(write(number)) for number in range(9)]
    maker = asyncio.create_task(make_containers())
    made = []
    for _ in range(3):
        made.append(await server.first.engine.checkpoint())
        await server.put({"id": "between", "pk": "k"})
    is_over = True
    assert min(await asyncio.gather(*writers, maker)) > 0
    sums = []
    for checkpoint in made:
        assert await problems_in(checkpoint) == []
        async with whole_house(checkpoint) as house:
            contents = [orjson.loads(text) for text in await house.contents()]
            found = {item["pk"]: item["n"] for item in contents if "n" in item}
            for number in range(9):
                assert found.get(f"b{number}", 0) <= found.get(f"a{number}", 0) <= found.get(f"b{number}", 0) + 1
            for number in range(1, found.get("made", 0) + 1):
                assert await house.contents(f"c{number}") == []
            sums.append(sum(found.values()))
    assert sums == sorted(sums)
    for checkpoint in made:
        await server.first.engine.drop_checkpoint(checkpoint.name)


async def test_a_process_that_does_not_answer_releases_the_others(
    server: ServerProcesses, with_limits: WithLimits, directory: Path
) -> None:
    with_limits(MOMENT_SECONDS_MAX=0.2, HOLD_ANSWER_SECONDS=0.3)
    await server.create()
    async with server[2].here.holding:
        with pytest.raises(Failure, match=r"Process [12]") as refused:  # 1: where this machine is busy
            await server.first.engine.checkpoint()
        assert refused.value.kind is Kind.UNAVAILABLE
        documents = [{"id": str(number), "pk": str(number)} for number in range(20)]
        await server.put(*documents, process=1)
        with pytest.raises(Failure):
            await server.first.snapshots.take("x", ())
    assert checkpoints(directory) == []
    with_limits(MOMENT_SECONDS_MAX=10.0)
    made = await server.first.engine.checkpoint()
    async with whole_house(made) as house:
        assert len(await house.contents()) == 20
    await server.first.engine.drop_checkpoint(made.name)
    assert checkpoints(directory) == []


async def test_processes_go_on_when_the_first_one_ends_in_the_middle(server: ServerProcesses, directory: Path) -> None:
    await server.create()
    async with server[2].here.holding:
        backup = asyncio.create_task(server.first.engine.checkpoint())
        while not server[1].here.checkpoint:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        assert checkpoints(process_directory(directory, 1))
        server.disconnect(0, 1)
        while checkpoints(process_directory(directory, 1)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await server[1].engine.store(1000).write(lambda txn: txn.put(b"a", b""))  # its writers are not held
        with pytest.raises(Failure, match="Process 1"):
            await backup


async def test_one_that_was_not_fetched_is_removed_with_the_next(server: ServerProcesses, directory: Path) -> None:
    """The first process was killed after another one had made its part."""
    await server.create()
    left = await server[1].engine.checkpoint()
    server[1].here.checkpoint = left.name
    made = await server.first.engine.checkpoint()
    assert not left.exists()
    assert checkpoints(directory) == [made]


async def test_large_restores_are_those_of_all_processes(server: ServerProcesses, with_limits: WithLimits) -> None:
    with_limits(REWIND_ENTRIES_MAX=5, COPY_PORTION_ENTRIES=7)
    await server.create()
    await server.put(*[{"id": str(number), "pk": str(number)} for number in range(100)])
    before = await server.contents()
    snapshot = await server.first.snapshots.take("x", ())
    await server.put(*[{"id": str(number), "pk": str(number), "is": "new"} for number in range(100)])
    outcome = await restore.restore(server.first, snapshot)
    assert (outcome.copied, await server.contents()) == (1, before)
    await server.put({"id": "1", "pk": "1", "is": "new"})
    outcome = await restore.restore(server.first, snapshot)
    assert (outcome.rewound, await server.contents()) == (1, before)
    made = await server.first.engine.checkpoint()
    assert await problems_in(made) == []
    await server.first.engine.drop_checkpoint(made.name)


async def test_the_catalog_is_unchanged_meanwhile(server: ServerProcesses) -> None:
    await server.create()
    owner = server[0].here.owner
    assert owner is not None
    async with server[2].here.holding:
        backup = asyncio.create_task(server.first.engine.checkpoint())
        while not server[1].here.checkpoint:  # noqa: ASYNC110
            await asyncio.sleep(0)
        version = owner.replica.version
        creating = asyncio.create_task(server.create("other", 400))
        for _ in range(50):
            await asyncio.sleep(0)
        assert owner.replica.version == version
        assert not creating.done()
    made = await backup
    assert (await creating).name == "other"
    async with whole_house(made) as house:
        assert [each.name for each in house.account.containers] == ["c"]
    await server.first.engine.drop_checkpoint(made.name)
