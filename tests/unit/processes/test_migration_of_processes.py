"""Migrations to another partition key over several processes, while all of them write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.server_processes import ServerProcesses, server_processes

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.migration import migration, moved_items
from armillary.account.migration.migration import MOVED, SWITCHED, Migration, Plan
from armillary.errors import Failure, Kind


@pytest.fixture
async def server() -> AsyncIterator[ServerProcesses]:
    async with server_processes() as server:
        await server.create()
        await server.put(*[item(number) for number in range(90)])
        yield server


def item(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"i{number}", "pk": f"k{number % 20}", "who": f"w{number % 7}", "n": number, **more}


async def finished(server: ServerProcesses, moving: Migration) -> None:
    while not moving.is_ended:
        server.clock.advance(0.01)
        await asyncio.sleep(0)


class Writers:
    """One in each process, which writes by the container's name and takes what clients take: an answer, or a refusal
    upon which they read the name again."""

    def __init__(self, server: ServerProcesses) -> None:
        self.model: dict[str, int] = {}
        self.is_over = False
        self.refused = 0
        self._tasks = [asyncio.create_task(self._write(server, each.number)) for each in server.processes]

    async def _write(self, server: ServerProcesses, process: int) -> None:
        n = 0
        while not self.is_over:
            n += 1
            number = process * 10_000 + n + 1_000  # each once, so none that is lost is hidden by a later one
            document = item(number, n=n)
            container = server[process].account.container("db", "c")
            try:
                await items.upsert(container, dict(document), ItemOptions(key=container.key_of(document)), server.clock)
            except Failure as failure:
                if failure.kind is not Kind.STALE_CONTAINER:
                    raise
                self.refused += 1
                await asyncio.sleep(0)
                continue
            self.model[document["id"]] = n
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.is_over = True
        await asyncio.gather(*self._tasks)


async def stored(server: ServerProcesses, name: str = "c") -> dict[str, int]:
    found = [orjson.loads(each) for each in await server.contents(name)]
    assert len({each["id"] for each in found}) == len(found)
    return {each["id"]: each["n"] for each in found}


async def test_a_container_of_all_processes_gets_another_key(server: ServerProcesses) -> None:
    writers = Writers(server)
    moving = await migration.begin(server.first, server.first.container("db", "c"), Plan("new", ("/who",)))
    await finished(server, moving)
    assert (moving.stage, moving.failure) == (SWITCHED, None)
    for _ in range(20):
        await asyncio.sleep(0)
    await writers.end()
    expected = {f"i{number}": number for number in range(90)} | writers.model
    assert await stored(server) == expected
    container = server.first.container("db", "c")
    assert {place_of_store(each.store) for each in container.map.ranges} == {0, 1, 2}
    for each in server.processes:
        assert each.account.container("db", "c").record.rid == container.record.rid
    # The former container can be written to again, in all processes, when late requests have arrived.
    server.clock.advance(limits.LINK_WAIT_SECONDS_MAX + limits.HOLD_ANSWER_SECONDS)
    for _ in range(20):
        await asyncio.sleep(0)
    for process in range(3):
        await server.put(*[item(number, n=-1) for number in range(20)], name="c-before", process=process)


async def test_chosen_items_get_a_container_of_their_own(server: ServerProcesses) -> None:
    plan = Plan("vip", ("/who",), switches=False, filter="c.who = 'w1'", removes=True)
    moving = await migration.begin(server.first, server.first.container("db", "c"), plan)
    await finished(server, moving)
    assert (moving.stage, moving.failure) == (MOVED, None)
    chosen = {f"i{number}": number for number in range(90) if number % 7 == 1}
    assert await stored(server, "vip") == chosen
    assert await stored(server) == {f"i{number}": number for number in range(90) if number % 7 != 1}
    for process in range(3):
        with pytest.raises(Failure):
            await server.put(item(1), process=process)
    await moved_items.lift_fence(server.first, server.first.container("db", "c"), "vip")
    for process in range(3):
        await server.put(item(1), process=process)


@pytest.mark.parametrize("victim", [1, 2])
async def test_a_process_that_ends_in_the_middle(server: ServerProcesses, victim: int) -> None:
    for stage in (migration.COPYING, migration.VERIFYING):
        name = "c" if stage == migration.COPYING else "d"
        if name == "d":
            await server.create("d")
            await server.put(*[item(number) for number in range(90)], name="d")
        moving = await migration.begin(server.first, server.first.container("db", name), Plan(f"new-{name}", ("/who",)))
        while moving.stage != stage or (stage == migration.COPYING and moving.copied < 20):
            server.clock.advance(0.01)
            await asyncio.sleep(0)
        await server.kill(victim)
        for _ in range(5):
            await asyncio.sleep(0)
        await server.start(victim)
        await finished(server, moving)
        assert (moving.stage, moving.failure) == (SWITCHED, None)
        assert await stored(server, name) == {f"i{number}": number for number in range(90)}
