"""A world in one process that runs from a seed: an engine whose writes become durable late and whose death loses
what was not, an event loop whose time passes at once, and a clock on it.

The engine has the promises of `storage/engine.py` and no others: functions run in line, readers see what is durable,
a crash keeps a beginning of what was written. What is asked of it is left to the tests.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from heapq import heappop, heappush
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from armillary.clock import VirtualClock
from armillary.storage.engine import Kept, Loader, Quick, Receiver, Store, T, Txn, View
from armillary.storage.memory import KeptMap, SortedMap
from armillary.storage.overlay import Layer, OverlayTxn, Pair
from armillary.work import Check

_NOTHING = Layer()
RUN_CHANCE, SYNC_CHANCE, READER_WAITS_CHANCE = 0.5, 0.4, 0.15
TICK_S_MAX = 0.002
READER_WAITS_S_MAX = 0.02
LOOK_S_MAX = 0.004  # how much time passes, at most, between two looks at the clock


class SimulatedLoop(asyncio.SelectorEventLoop):
    """When no task has anything to do before a certain time, it is that time. There are neither sockets nor threads,
    so a turn is without what asyncio's does for them, and timers are compared as tuples, which saves a seventh of a
    run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """asyncio's loops call it for each turn."""
        timers, ready = self._timers, cast("deque[asyncio.Handle]", self._ready)  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            assert timers, "everybody waits and nobody will ever go on"
            self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """No threads: they would run from no seed."""
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(TICK_S_MAX / 2, run)
        return future


class SimulatedClock(VirtualClock):
    """The loop's time; real work takes a little at every look."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(seed=seed)
        self._loop = loop
        self._worked_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self._loop.now_s

    def monotonic_s(self) -> float:
        return self._loop.now_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # on the simulated loop

    def elapsed_s(self) -> float:
        self._worked_s += self._random.uniform(0, LOOK_S_MAX)
        return self._loop.now_s + self._worked_s


class _Waiting(NamedTuple):
    parts: Sequence[tuple[int, Callable[[Txn], Any] | None]]  # None: drop the store
    future: asyncio.Future[Any]


class _Written(NamedTuple):
    layers: Sequence[tuple[int, Layer | None]]
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class SimulatedEngine:
    def __init__(self, seed: int, durable: dict[int, SortedMap] | None = None) -> None:
        self._dice = random.Random(f"engine/{seed}")
        self.durable: dict[int, SortedMap] = durable if durable is not None else {}
        self._newest = {number: _copy(each) for number, each in self.durable.items()}
        self._waiting: deque[_Waiting] = deque()
        self._unsynced: deque[_Written] = deque()
        self._is_ticking = False
        self.is_dead = False

    async def checkpoint(self) -> Path:
        raise NotImplementedError("no simulation takes a backup")

    async def drop_checkpoint(self, name: str) -> None:
        raise NotImplementedError("no simulation takes a backup")

    def figures(self) -> None:
        return None

    def store(self, number: int) -> Store:
        self.durable.setdefault(number, SortedMap())
        self._newest.setdefault(number, SortedMap())
        return SimulatedStore(self, number)

    async def drop(self, number: int) -> None:
        self.store(number)
        await self.enqueue([(number, None)])

    async def close(self) -> None:
        while self._waiting or self._unsynced:
            self._run()
            self._sync(len(self._unsynced))

    def crash(self, seed: int) -> SimulatedEngine:
        """The power goes. What comes back holds what was durable and some beginning of the rest."""
        self._sync(self._dice.randint(0, len(self._unsynced)), is_answering=False)
        self.is_dead = True
        return SimulatedEngine(seed, self.durable)

    async def reader_waits(self) -> None:
        if self.is_dead:
            await asyncio.get_running_loop().create_future()
        if self._dice.random() < READER_WAITS_CHANCE:
            await asyncio.sleep(self._dice.uniform(0, READER_WAITS_S_MAX))

    def at_hand(self, number: int) -> View | None:
        is_waiting = self.is_dead or self._dice.random() < READER_WAITS_CHANCE
        return None if is_waiting else self.durable[number]

    def keep(self, number: int) -> Kept:
        copied = _copy(self._newest[number] if self._dice.random() < 0.5 else self.durable[number])
        return KeptMap(copied)

    def load(self, number: int, pairs: Sequence[Pair]) -> None:
        if not self.is_dead:
            for maps in (self._newest, self.durable):
                for key, value in pairs:
                    maps[number].put(key, value)

    def falls(self) -> bool:
        return self._dice.random() < 0.5

    async def enqueue(self, parts: Sequence[tuple[int, Callable[[Txn], Any] | None]]) -> list[Any]:
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if not self.is_dead:
            self._waiting.append(_Waiting(parts, future))
            self._tick_later()
        return await future  # the dead never answer

    def _tick_later(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(self._dice.uniform(0, TICK_S_MAX), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        if self.is_dead:
            return
        if self._dice.random() < RUN_CHANCE:
            self._run()
        if self._unsynced and self._dice.random() < SYNC_CHANCE:
            self._sync(self._dice.randint(1, len(self._unsynced)))
        if self._waiting or self._unsynced:
            self._tick_later()

    def _run(self) -> None:
        while self._waiting:
            parts, future = self._waiting.popleft()
            layers: list[tuple[int, Layer | None]] = []
            results: list[Any] = []
            error: BaseException | None = None
            try:
                for number, fn in parts:
                    layer = None if fn is None else Layer()
                    layers.append((number, layer))
                    if fn is not None and layer is not None:
                        stored = self._newest[number]
                        results.append(fn(OverlayTxn(layer, _NOTHING, stored.get, stored.scan)))
            except Exception as raised:
                layers, error = [], raised
            _apply(self._newest, layers)
            self._unsynced.append(_Written(layers, future, results, error))

    def _sync(self, count: int, *, is_answering: bool = True) -> None:
        for _ in range(count):
            layers, future, result, error = self._unsynced.popleft()
            _apply(self.durable, layers)
            if is_answering and not future.done():
                future.set_result(result) if error is None else future.set_exception(error)


class SimulatedStore:
    def __init__(self, engine: SimulatedEngine, number: int) -> None:
        self._engine = engine
        self._number = number

    async def read(self, fn: Callable[[View], T]) -> T:
        await self._engine.reader_waits()
        return fn(self._engine.durable[self._number])

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        await self._engine.reader_waits()
        return await self._engine.durable[self._number].evaluate(fn, check)

    def at_hand(self) -> View | None:
        return self._engine.at_hand(self._number)

    async def keep(self) -> Kept:
        return self._engine.keep(self._number)

    async def pin(self) -> Kept:
        return await self.keep()

    def loader(self) -> Loader:
        return SimulatedLoader(self._engine, self._number)

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        (result,) = await self._engine.enqueue([(self._number, fn)])
        return cast(T, result)

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        raise NotImplementedError("no simulation asks by way of a connection")

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        return await self._engine.enqueue([(store._number, fn) for store, fn in parts])


class SimulatedLoader:
    """Part of what was put may be in the store before it is finished, and stays there if it never is."""

    def __init__(self, engine: SimulatedEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._pairs: list[Pair] = []

    def put(self, pairs: Sequence[Pair]) -> None:
        assert all(low < high for (low, _), (high, _) in pairwise(pairs)), "keys ascend"
        self._pairs += pairs
        if self._engine.falls():
            self._engine.load(self._number, self._pairs)
            self._pairs = []

    async def ready(self) -> None:
        pass

    async def finish(self) -> None:
        self._engine.load(self._number, self._pairs)

    def abandon(self) -> None:
        pass


def _apply(maps: dict[int, SortedMap], layers: Sequence[tuple[int, Layer | None]]) -> None:
    for number, layer in layers:
        if layer is None:
            maps[number] = SortedMap()
        else:
            maps[number] = maps[number].changed(layer)


def _copy(stored: SortedMap) -> SortedMap:
    copied = SortedMap()
    for key, value in stored.scan(b"", b"\xff" * 64):
        copied.put(key, value)
    return copied
