"""One simulated run: clients, splits and merges, crashes, and the verdict."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from faults.elastic.actors import Actor, Follower, Keys, prepare
from faults.elastic.history import History
from faults.elastic.inside import InsidePort, Place
from faults.elastic.simulation import SimulatedClock, SimulatedEngine, SimulatedLoop
from faults.ledger import Violation

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput

DEFINITION = {"id": "items", "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}}
ACTORS, FOLLOWERS = 6, 2
BALLAST_BYTES = 300
T = TypeVar("T")


class World(logging.Handler):
    """Also hears what the product reports as an error: no log is read in a simulation."""

    def __init__(self, loop: SimulatedLoop, seed: int, settings: AccountSettings) -> None:
        super().__init__(logging.ERROR)
        self.seed = seed
        self.dice = random.Random(f"world/{seed}")
        self._settings = settings
        self.keys = Keys()
        self.clock = SimulatedClock(loop, seed)
        self.place = Place("db", "items")
        self.history = History(itertools.count(1).__next__)
        self.engine = SimulatedEngine(seed)
        self._stopping = asyncio.Event()
        self._own: set[asyncio.Task[Any]] = set()  # tasks that are not the product's

    def emit(self, record: logging.LogRecord) -> None:
        self.history.violations.append(Violation("log", self.format(record)))

    @property
    def account(self) -> Account:
        assert self.place.account is not None
        return self.place.account

    async def open(self, throughput_ru: int, *, is_empty: bool = False, **policies: Any) -> None:
        self._note_own()
        account = await Account.open(self.engine, self.clock, self._settings)
        database = await containers.create_database(account, {"id": "db"}, None)
        await containers.create_container(account, database, DEFINITION | policies, Throughput(throughput_ru))
        self.place.put(account)
        if not is_empty:
            await prepare(self.port(), self.history, self.seed, BALLAST_BYTES, self.keys)

    def port(self) -> InsidePort:
        return InsidePort(self.place, random.Random(f"port/{self.dice.random()}"))

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of the test: the product's die with it, this does not."""
        task = asyncio.create_task(coroutine)
        self._own.add(task)
        return task

    async def ask(self, asked: Coroutine[Any, Any, T]) -> T | None:
        """What an operator asks for; None: no server answered."""
        task, death = asyncio.create_task(asked), self.place.death
        waiting: set[asyncio.Future[Any]] = {task, death}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            task.cancel()
            return None
        return task.result()

    def _note_own(self) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._own.add(current)

    async def pause(self) -> None:
        await self.place.is_back.wait()
        await asyncio.sleep(self.dice.uniform(0, 0.01))

    # The plug.

    async def crash(self) -> None:
        self.pull_plug()
        await self.restart()

    def pull_plug(self) -> None:
        """Everything that is not durable is gone, in the middle of whatever was going on."""
        self._count_ranges(self.account)
        self.history.die()
        self.history.tally["crashes"] += 1
        self.engine = self.engine.crash(self.dice.getrandbits(32))
        self.place.die()
        for task in asyncio.all_tasks() - self._own:
            task.cancel()

    async def restart(self) -> None:
        await asyncio.sleep(self.dice.uniform(0, 0.05))
        self.place.put(await Account.open(self.engine, self.clock, self._settings))
        self.history.live()

    # A run.

    async def run(self, seconds: float, events: Callable[[World, asyncio.Event], Awaitable[None]]) -> None:
        """`events` happen while the clients are at work."""
        history, stopping = self.history, self._stopping
        names = [f"c{number}" for number in range(ACTORS)]
        actors = [
            Actor(name, self.port(), history, self.seed, pause=self.pause, ballast_bytes=BALLAST_BYTES, keys=self.keys)
            for name in names
        ]
        followers = [Follower(self.port(), history, self.pause) for _ in range(FOLLOWERS)]
        working = [self.start(each.run(stopping)) for each in actors]
        happening = self.start(self._events(events))
        following_end = asyncio.Event()
        following = [self.start(each.run(following_end)) for each in followers]
        await asyncio.sleep(seconds)
        stopping.set()
        await asyncio.gather(*working, happening)
        following_end.set()
        await asyncio.gather(*following)
        self._count_ranges(self.account)
        late = Follower(self.port(), history, self.pause)
        await late.run(following_end)
        begun = history.moment()
        listed = await self._all(self.port().feed(100))
        queried = await self._all(self.port().query("SELECT * FROM c", 50))
        history.verify(
            listed,
            begun,
            {"query": queried},
            {f"reader {number}": each.pages for number, each in enumerate((*followers, late))},
        )
        await self.account.close()
        await self.engine.close()
        problems = [str(problem) async for problem in check_account(self.engine, self.clock)]
        assert not history.violations and not problems, self.report(problems)

    def _count_ranges(self, account: Account) -> None:
        """How many ranges there have ever been: each but the first ones is of a split or a merge."""
        container = account.owner_container(*self.place.names)
        self.history.tally["ranges"] = container.state.next_range

    async def _events(self, events: Callable[[World, asyncio.Event], Awaitable[None]]) -> None:
        await events(self, self._stopping)

    async def _all(self, pages: Any) -> list[Any]:
        return [row async for page in pages for row in page]

    def report(self, problems: list[str]) -> str:
        told = [
            f"--seed {self.seed}: {dict(self.history.tally)}",
            *map(str, self.history.violations[:8]),
            *problems[:8],
        ]
        return "\n".join(told)


def simulate(seed: int, run: Callable[[World], Awaitable[None]], settings: AccountSettings | None = None) -> World:
    """A world of its own, from the beginning to the end."""
    loop = SimulatedLoop()
    worlds: list[World] = []

    async def whole() -> None:
        world = World(loop, seed, settings or AccountSettings())
        worlds.append(world)
        logging.getLogger("armillary").addHandler(world)
        try:
            await run(world)
        finally:
            logging.getLogger("armillary").removeHandler(world)

    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(whole())
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
    return worlds[0]
