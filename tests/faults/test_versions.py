"""Folding the change feed of all versions from its start gives exactly what is there, over splits, merges, expiry and
crashes: each version once, in order per key. Simulated from seeds, and once with a real server that is killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from faults.elastic.folding import Document, Fold
from faults.elastic.port import Refused, Step, Unanswered
from faults.elastic.world import World, simulate
from faults.test_elastic_simulation import reshapes_and_crashes

from armillary.account.account import AccountSettings
from armillary.account.change_rows import change_row
from armillary.account.changes import ChangePage, read_changes
from armillary.account.check import check_account
from armillary.account.feeds import FeedOptions

POLICIES = {"changeFeedPolicy": {"retentionDuration": 10}, "defaultTtl": -1}
KEYS, ITEMS, WRITERS = 12, 4, 4
SEEDS = 5
EXPIRED_S = 5.0  # until what had a time to live is gone, and swept


async def write(world: World, name: str, stopping: asyncio.Event) -> None:
    """Whatever comes to mind, about few enough items that they are written again and again."""
    dice, port = random.Random(f"{name}/{world.seed}"), world.port()
    count = 0
    while not stopping.is_set():
        await world.pause()
        count += 1
        key, item = f"k{dice.randrange(KEYS)}", f"i{dice.randrange(ITEMS)}"
        document = {"id": item, "key": key, "n": f"{name}.{count}"}
        if dice.random() < 0.3:
            document["ttl"] = 1
        asked: Awaitable[Any]
        match dice.randrange(6):
            case 0:
                asked = port.create(key, document)
            case 1:
                asked = port.replace(key, item, document, None)
            case 2:
                asked = port.delete(key, item, None)
            case 3:
                made = [f"{name}.{count}.{number}" for number in range(dice.randint(2, 5))]
                steps = [Step("create", each, {"id": each, "key": key, "transaction": made[0]}) for each in made]
                asked = port.batch(key, steps)
            case _:
                asked = port.upsert(key, document)
        try:
            await asked
        except (Refused, Unanswered):
            continue


class Reader:
    """One position, or one for a key; it loses what it read when the connection ends, and asks again."""

    def __init__(self, world: World, key: str | None = None) -> None:
        self.fold = Fold()
        self._world = world
        self._key = key
        self._dice = random.Random(f"reader/{key}/{world.seed}")
        self._position = "0"
        self._pages = 0

    async def read(self) -> bool:
        """Whether that was all for now."""
        await self._world.place.is_back.wait()
        account = self._world.account
        container = account.owner_container(*self._world.place.names)
        options = FeedOptions(
            key=(self._key,) if self._key is not None else None,
            continuation=self._position,
            page_items=self._dice.choice((2, 10, 100)),
        )
        page: ChangePage | None = await self._world.ask(
            read_changes(account, container, options, has_all_versions=True)
        )
        if page is None:
            return False
        self._position = page.continuation
        self._pages += 1
        rows = [orjson.loads(change_row(each, container)) for each in page.items]
        self.fold.page(self._pages, rows)
        return page.is_end

    async def run(self, stopping: asyncio.Event) -> None:
        is_last = is_end = False
        while not (is_last and is_end):
            is_last = stopping.is_set()
            is_end = await self.read()
            await self._world.pause()


async def run(world: World, events: Callable[[World, asyncio.Event], Awaitable[None]]) -> list[Reader]:
    await world.open(world.dice.choice((400, 12_000)), **POLICIES)
    stopping, ended = asyncio.Event(), asyncio.Event()
    readers = [Reader(world), Reader(world, "k0"), Reader(world, "k1")]
    reading = [world.start(each.run(ended)) for each in readers]
    writing = [world.start(write(world, f"w{number}", stopping)) for number in range(WRITERS)]

    async def happen() -> None:
        await events(world, stopping)

    happening = world.start(happen())
    await asyncio.sleep(2.0)
    stopping.set()
    await asyncio.gather(*writing, happening)
    await asyncio.sleep(EXPIRED_S)
    ended.set()
    await asyncio.gather(*reading)
    late = Reader(world)
    await late.run(ended)
    listed: list[Document] = [row async for page in world.port().feed(100) for row in page]
    for reader in (readers[0], late):
        reader.fold.compare(listed)
    for key, reader in zip(("k0", "k1"), readers[1:], strict=True):
        reader.fold.compare([each for each in listed if each["key"] == key])
    await world.account.close()
    problems = [problem async for problem in check_account(world.engine, world.clock)]
    problems += [problem for reader in (*readers, late) for problem in reader.fold.problems]
    assert not problems and not world.history.violations, world.report(problems)
    assert all(late.fold.kinds.values()), late.fold.kinds
    return [*readers, late]


@pytest.mark.parametrize("number", range(SEEDS))
def test_folding_gives_the_final_state(seed: int, number: int) -> None:
    async def whole(world: World) -> None:
        await run(world, reshapes_and_crashes)

    world = simulate(seed + number, whole, AccountSettings())
    print(world.report([]))
    assert world.history.tally["ranges"] > 2 or world.history.tally["crashes"] > 2
