"""Folding the change feed of all versions from its start gives exactly what is there, over splits, merges, expiry and
crashes: each version once, in order per key. Simulated from seeds, and once with a real server that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from faults.elastic.folding import Document, Fold
from faults.elastic.port import Refused, Step, Unanswered
from faults.elastic.world import World, simulate
from faults.test_elastic_simulation import reshapes_and_crashes
from support.portions import first
from support.process import KEY, ServerProcess
from support.server_operator import Operator

from armillary.account.changes.change_feed import ChangePage, change_row, read_changes
from armillary.account.check import check_account
from armillary.account.registry import AccountSettings
from armillary.account.visits.page_walk import FeedOptions
from armillary.model.key_values import Key

POLICIES: dict[str, Any] = {"changeFeedPolicy": {"retentionDuration": 10}, "defaultTtl": -1}
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
        document: dict[str, Any] = {"id": item, "key": key, "n": f"{name}.{count}"}
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
            key=Key((self._key,)) if self._key is not None else None,
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


@pytest.mark.parametrize("number", first(2, range(SEEDS)))
def test_folding_gives_the_final_state(seed: int, number: int) -> None:
    async def whole(world: World) -> None:
        await run(world, reshapes_and_crashes)

    world = simulate(seed + number, whole, AccountSettings())
    print(world.report([]))
    assert world.history.tally["ranges"] > 2 or world.history.tally["crashes"] > 2


class Client:
    """A released client at work and, with a token that outlives it, one that follows."""

    def __init__(self, dice: random.Random) -> None:
        self.fold = Fold()
        self._dice = dice
        self._token = ""
        self._pages = 0
        self._count = 0

    def write(self, container: Any) -> None:
        dice = self._dice
        key, item = f"k{dice.randrange(KEYS)}", f"i{dice.randrange(ITEMS)}"
        self._count += 1
        document: dict[str, Any] = {"id": item, "key": key, "n": self._count}
        match dice.randrange(5):
            case 0:
                with contextlib.suppress(CosmosResourceNotFoundError):
                    container.delete_item(item, key)
            case 1:
                made = [f"b{self._count}.{number}" for number in range(3)]
                batch = [("create", ({"id": each, "key": key, "transaction": made[0]},)) for each in made]
                container.execute_item_batch(batch, key)
            case 2:
                container.upsert_item(document | {"ttl": 1})
            case _:
                container.upsert_item(document)

    def follow(self, container: Any) -> None:
        options: dict[str, Any] = {"continuation": self._token} if self._token else {"mode": "AllVersionsAndDeletes"}
        pages = container.query_items_change_feed(max_item_count=self._dice.choice((3, 50)), **options).by_page()
        for page in pages:
            self._pages += 1
            self.fold.page(self._pages, list(page))
        self._token = container.client_connection.last_response_headers["etag"]


def test_with_a_server_that_is_killed(seed: int, start_server: Callable[..., ServerProcess]) -> None:
    print("--seed", seed)
    dice = random.Random(seed)
    follower = Client(dice)
    for turn in range(3):
        server = start_server("--durability", "relaxed")
        with CosmosClient(server.url, KEY) as client:
            if turn == 0:
                database = client.create_database("db")
                container = database.create_container(
                    "c", PartitionKey("/key"), default_ttl=-1, change_feed_policy={"retentionDuration": 60}
                )
                follower.follow(container)
            container = client.get_database_client("db").get_container_client("c")
            for _ in range(30):
                follower.write(container)
            operator = Operator(server)
            kind = "merge" if turn == 2 else "split"
            operator.command(kind, "db/c", *(["--no-wait"] if dice.random() < 0.5 else []))
            for _ in range(20):
                follower.write(container)
                if dice.random() < 0.3:
                    follower.follow(container)
            if turn < 2:
                server.kill()
                continue
            while True:  # until what has expired is swept away
                follower.follow(container)
                listed = list(container.read_all_items())
                if not any("ttl" in each for each in [*follower.fold.items.values(), *listed]):
                    break
            follower.fold.compare(listed)
    assert not follower.fold.problems, follower.fold.problems[:5]
    assert all(follower.fold.kinds.values()), follower.fold.kinds
