"""Processes of one account whose places change their holders, all in this one: each place is a log in memory, which one
of the processes leads at a time. Messages between processes are delivered in the steps of the event loop, and time is
virtual (`passing_time.py`), so a run with a seed is always the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from support.house import KEY

from armillary.account import containers
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import Question, Told, Unreached
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType
from armillary.processes.catalog_owner import CatalogOwner
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.places import Places, ProcessHere, ProcessPlace
from armillary.processes.shared_locks import LockTable
from armillary.storage.engine import Kept, Quick, Receiver, T, Txn, View
from armillary.storage.memory import KeptMap, MemoryEngine, MemoryStore, SortedMap
from armillary.storage.replication.group_commit import not_leader
from armillary.work import Check

_PEERS = 100  # the numbers of processes, which no place has


class SharedLog:
    """What is stored in a place, and which epoch may write."""

    def __init__(self, dice: random.Random) -> None:
        self.engine = MemoryEngine()
        self.epoch = 0  # whose writes are accepted
        self.leased = 0  # that may answer reads; 0: none
        self.dice = dice
        self.led: LedEngine | None = None
        self.unknown_share = 0.0  # of the writes that are stored, and not answered

    def lead(self) -> LedEngine:
        """Depose the former leader."""
        if self.led is not None:
            self.led.end()
        self.epoch += 1
        self.leased = self.epoch
        self.led = LedEngine(self, self.epoch)
        return self.led

    async def pass_some(self) -> None:
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)


class LedEngine:
    """An Engine: a log as one leader has it."""

    def __init__(self, shared: SharedLog, epoch: int) -> None:
        self._shared = shared
        self._epoch = epoch
        self._left: dict[int, SortedMap] | None = None  # what it has of the log when others write on

    def end(self) -> None:
        self._left = {number: store._map for number, store in self._shared.engine._stores.items()}
        for state in self._left.values():
            state._evaluations += 1  # as while it is pinned: what is written next is written to a copy

    def state(self, number: int) -> SortedMap:
        if self._left is None:
            return self._shared.engine.store(number)._map
        return self._left.get(number, SortedMap())

    @property
    def leads(self) -> bool:
        return self._shared.leased == self._epoch

    def check(self) -> None:
        if self._shared.epoch != self._epoch:
            raise not_leader()

    def store(self, number: int) -> LedMemoryStore:
        return LedMemoryStore(self, self._shared, self._shared.engine.store(number), number)

    async def drop(self, number: int) -> None:
        self.check()
        await self._shared.engine.drop(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared.engine, name)


class LedMemoryStore:
    """A Store."""

    def __init__(self, engine: LedEngine, shared: SharedLog, store: MemoryStore, number: int) -> None:
        self._engine, self._shared, self._bare, self._number = engine, shared, store, number

    async def read(self, fn: Callable[[View], T]) -> T:
        return fn(self._engine.state(self._number))

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        return await self._engine.state(self._number).evaluate(fn, check)

    def at_hand(self) -> View | None:
        return self._engine.state(self._number)

    async def keep(self) -> Kept:
        return KeptMap(self._engine.state(self._number))

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        await self._shared.pass_some()

        def run(txn: Txn) -> T:
            result = fn(txn)
            self._engine.check()
            return result

        self._engine.check()
        result = await self._bare.write(run, is_freeing=is_freeing)
        await self._shared.pass_some()
        if self._shared.dice.random() < self._shared.unknown_share:
            raise Failure(Kind.UNAVAILABLE, "Whether this was stored is not known.")
        return result

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        self._shared.engine.deliver(self.write(fn), receiver)

    async def write_together(self, parts: Any) -> Any:
        def checked(fn: Callable[[Txn], Any]) -> Callable[[Txn], Any]:
            def run(txn: Txn) -> Any:
                self._engine.check()
                return fn(txn)

            return run

        return await self._bare.write_together([(store._bare, checked(fn)) for store, fn in parts])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bare, name)


class LogPlace:
    """A place as one process asks it: the process that leads its log."""

    def __init__(self, number: int, one: OneOf) -> None:
        self.number = number
        self._one = one

    def _leader(self) -> ProcessPlace:
        found = self._one.among.seen_leader(self.number, self._one)
        if found is None or found is self._one:
            raise Unreached()
        return self._one.here.places.others[found.number]

    def new_write_id(self) -> bytes:
        return self._leader().new_write_id()

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        return await self._leader().ask(question, limit_s=limit_s)

    async def ask_connected(self, question: Question, limit_s: float) -> Any:
        return await self._leader().ask_connected(question, limit_s)

    def tell(self, message: Told) -> None:
        try:
            self._leader().tell(message)
        except Unreached:
            pass

    tell_connected = tell


class _Places(Places):
    def __init__(self, one: OneOf, clock: VirtualClock) -> None:
        super().__init__(one.number, one.among.count, clock)
        peers = range(_PEERS, _PEERS + one.among.processes_count)
        self.others = {each: ProcessPlace(each) for each in peers if each != one.number}
        self._of_logs = {each: LogPlace(each, one) for each in range(one.among.count)}

    def __getitem__(self, number: int) -> Any:
        return self.others[number] if number >= _PEERS else self._of_logs[number]

    @property
    def first(self) -> Any:
        return self._of_logs[0]


class OneOf:
    """One of the processes."""

    def __init__(self, among: MovingPlaces, number: int, engines: dict[int, LedEngine], clock: VirtualClock) -> None:
        self.among, self.number = among, number
        self.replica = CatalogReplica()
        self.here = ProcessHere(_Places(self, clock), self.replica, clock)
        self.engine = DividedEngine(self.replica, {})
        for place, engine in engines.items():
            self.engine.enter(place, engine, lambda engine=engine: engine.leads)  # type: ignore[misc]
        self.engine.drop_elsewhere = self.here.drop_store
        self.account = DividedAccount(self.engine, clock, AccountSettings(), self.here)

    def container(self, name: str = "c") -> Container:
        return self.account.container("db", name)


class MovingPlaces:
    """Made by `moving_places`."""

    def __init__(self, processes: int, places: int, seed: int) -> None:
        self.clock = VirtualClock(seed=seed)
        self.dice = random.Random(seed)
        self.count, self.processes_count = places, processes
        self.logs = [SharedLog(self.dice) for _ in range(places)]
        self.leaders: list[OneOf | None] = [None] * places
        self.stale: dict[tuple[int, int], OneOf | None] = {}  # by process and place: whom it still takes for the leader
        self.processes: list[OneOf] = []
        self.moves = 0

    def seen_leader(self, place: int, by: OneOf) -> OneOf | None:
        return self.stale.get((by.number, place), self.leaders[place])

    async def open(self) -> None:
        first = OneOf(self, _PEERS, {0: self.logs[0].lead()}, self.clock)
        first.here.owner = await CatalogOwner.open(self.logs[0].engine.store(CATALOG_STORE), first.replica)
        first.here.owner.spread = first.here.spread_change
        first.here.locks = LockTable()
        self.leaders[0] = first
        await first.account.begin()
        first.here.open(first.account)
        self.processes.append(first)
        for number in range(_PEERS + 1, _PEERS + self.processes_count):
            one = OneOf(self, number, {}, self.clock)
            for other in self.processes:
                _link(one, other)
            await one.here.load_catalog()
            await one.account.begin()
            one.here.open(one.account)
            self.processes.append(one)
        for place in range(1, self.count):
            await self.enter(place, self.processes[place % self.processes_count])

    async def close(self) -> None:
        for one in reversed(self.processes):
            await one.account.close()

    async def create(self, name: str = "c", throughput_ru: int = 60_000, **policies: Any) -> Container:
        account = self.processes[0].account
        found = account.catalog.find(ResourceType.DATABASE, b"", "db")
        if found is None:
            found = await containers.create_database(account, {"id": "db"}, None)
        body = {"id": name, "partitionKey": KEY, **policies}
        return await containers.create_container(account, found, body, Throughput.manual(throughput_ru))

    async def enter(self, place: int, one: OneOf) -> None:
        engine = self.logs[place].lead()
        self.leaders[place] = one
        await one.account.enter_place(place, engine, lambda: engine.leads)

    async def hand_over(self, place: int, to: OneOf) -> None:
        """The former leader is asked to."""
        former = self.leaders[place]
        if former is not None:
            await former.account.leave_place(place)
        self.leaders[place] = None
        await self.logs[place].pass_some()
        await self.enter(place, to)
        self.moves += 1

    async def depose(self, place: int, to: OneOf) -> None:
        """The former leader learns of it later, and so do others."""
        former, log = self.leaders[place], self.logs[place]
        log.leased = 0  # its lease is over, and it writes on
        await log.pass_some()
        for one in self.processes:
            if one is not to and self.dice.random() < 0.5:
                self.stale[one.number, place] = former
        await self.enter(place, to)
        await self.clock.sleep(self.dice.random() * 0.3)
        if former is not None and former is not to:
            await former.account.leave_place(place)
        for one in self.processes:
            self.stale.pop((one.number, place), None)
        self.moves += 1


def _link(one: OneOf, other: OneOf) -> None:
    loop = asyncio.get_running_loop()

    def to_one(frame: bytes) -> None:
        loop.call_soon(back.received, frame)

    def to_other(frame: bytes) -> None:
        loop.call_soon(there.received, frame)

    there = Link(one.number, to_one, other.here.places.write_ids, other.here)
    back = Link(other.number, to_other, one.here.places.write_ids, one.here)
    there.peer, back.peer = one.here.remembered.run, other.here.remembered.run
    one.here.places.others[other.number].use(back, is_ready=True)
    other.here.places.others[one.number].use(there, is_ready=True)


@asynccontextmanager
async def moving_places(processes: int = 3, places: int = 3, seed: int = 0) -> AsyncIterator[MovingPlaces]:
    among = MovingPlaces(processes, places, seed)
    await among.open()
    try:
        yield among
    finally:
        await among.close()
