"""The processes of one server, as each sees itself and the others. The first has the catalog; all have partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import Lost, Place, Question, Told, Unreached, no_answer
from armillary.account.visits.elsewhere.remembered_answers import RememberedAnswers, WriteIds
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.processes.catalog_owner import FIRST, CatalogOwner, Committed
from armillary.processes.catalog_questions import (
    AdoptChange,
    CatalogState,
    CommitChange,
    LoadCatalog,
    ReleaseLock,
    TakeLock,
)
from armillary.processes.catalog_replica import CatalogReplica, Change
from armillary.processes.connection import Connecting
from armillary.processes.moments.holds import Holds
from armillary.processes.moments.loads import Loads
from armillary.processes.moments.pins import Pins
from armillary.processes.partition_questions import DropStore, ProcessReady
from armillary.processes.shared_locks import LockTable, SharedLock, Token
from armillary.processes.transactions.parts import RID_BYTES

log = logging.getLogger(__name__)


class _Adopting(Protocol):
    """The account of a process (`divided_account.py`)."""

    async def adopt_records(self, removed: Sequence[Record], added: Sequence[Record]) -> int: ...


class ProcessPlace:
    """Another process. While it is not connected, what is asked of it is refused."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.link: Link | None = None  # None: it is not ready
        self.connected: Link | None = None  # also while it starts

    def new_write_id(self) -> bytes:
        if self.link is None:
            raise Unreached()
        return self.link.new_write_id()

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        if self.link is None:
            raise Unreached()
        return await self.link.ask(question, limit_s=limit_s)

    async def ask_connected(self, question: Question, limit_s: float) -> Any:
        """The same, also while the other process starts. Raises Lost if it is not connected."""
        if self.connected is None:
            raise Lost()
        return await self.connected.ask(question, limit_s=limit_s)

    def tell(self, message: Told) -> None:
        if self.link is not None:
            self.link.tell(message)

    def tell_connected(self, message: Told) -> None:
        """The same, also while the other process starts."""
        if self.connected is not None:
            self.connected.tell(message)

    def use(self, link: Link | None, *, is_ready: bool) -> None:
        """The connection to it was made, or has ended (None)."""
        self.connected = link
        self.link = link if is_ready else None


async def ask_once(place: Place, question: Question, limit_s: float) -> Any:
    """The answer; a lost connection and a late answer are Failures."""
    try:
        return await place.ask(question, limit_s=limit_s)
    except (Lost, TimeoutError):
        raise no_answer(is_write=False) from None


async def ask_starting(place: ProcessPlace, question: Question, limit_s: float) -> Any:
    """The same of a process that may be starting."""
    try:
        return await place.ask_connected(question, limit_s)
    except (Lost, TimeoutError):
        raise no_answer(is_write=False) from None


class Places:
    """All other processes by their numbers. In a cluster these are other nodes, and a place is a log, which the node
    holds that leads it (`cluster/spread/node_places.py`)."""

    def __init__(self, number: int, count: int, clock: Clock) -> None:
        """`number`: of this process."""
        self.number = number
        self.count = count
        self.write_ids = WriteIds(clock)
        self.others = {each: ProcessPlace(each) for each in range(count) if each != number}

    def __getitem__(self, number: int) -> ProcessPlace:
        return self.others[number]

    def holder(self, place: int) -> int:
        """The number of the process that holds the stores of a place."""
        return place

    @property
    def first(self) -> ProcessPlace:
        return self.others[FIRST]

    @property
    def connected(self) -> Iterable[ProcessPlace]:
        return [each for each in self.others.values() if each.link is not None]


class ProcessHere(Connecting):
    """This process, as the others ask it."""

    def __init__(self, places: Places, replica: CatalogReplica, clock: Clock) -> None:
        """The account is opened later: what needs it waits for `opened`."""
        self.places = places
        self.number = places.number
        self.replica = replica
        self.remembered = RememberedAnswers(clock)
        self.opened = asyncio.Event()
        self.is_ready = False  # the others may ask for partitions of this process
        self.owner: CatalogOwner | None = None  # of the first process alone, like `locks`
        self.locks: LockTable | None = None
        self.followers: set[int] = set()  # other processes that are told of changes of the catalog, likewise
        self.end_process: Callable[[int], None] = lambda number: None  # has a process started anew
        self.first_met: Callable[[Link], None] = lambda link: None  # a first process was started anew
        self.on_left: Callable[[int], None] = lambda number: None  # another process has ended
        self.held: dict[Token, str] = {}  # locks that this process has of the first one
        self.unanswered: Change | None = None  # a change of this process that the first one has not answered
        self.services: Any = None  # the control door's, once doors are made
        self.holds = Holds()
        self.holding = asyncio.Lock()  # of the writers of this process: one moment after the other
        self.pins = Pins()
        self.copies: dict[int, asyncio.Task[None]] = {}  # to stores of this process, which are new
        self.loads = Loads()
        self.transactions: Any = None  # `transactions/spanning.py`, once the account is made
        self.checkpoint: str | None = None  # the name of one that was made for another process
        self._all_ready = asyncio.Event()
        self._adopting = asyncio.Lock()
        self._taking = asyncio.Lock()  # held while records are taken over, which nothing interrupts
        replica.commit = self._commit

    def open(self, account: Account) -> None:
        self.account = account
        self.opened.set()

    def find_container(self, name: bytes) -> Container | None:
        if len(name) > RID_BYTES:
            found: Container = self.transactions.parts.container(self.account, name)
            return found
        return super().find_container(name)

    def tell(self, number: int, message: Told) -> None:
        self.places[number].tell(message)

    def become_ready(self) -> None:
        self.is_ready = True
        for place in self.places.others.values():
            place.tell_connected(ProcessReady(self.number))

    async def others_ready(self) -> None:
        """Wait for their partitions before clients are answered, but not for long: one may be started anew."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.PROCESS_PING_SECONDS):
                await self._all_ready.wait()

    # Connections to other processes.

    def met(self, link: Link) -> None:
        place = self.places[link.number]
        if place.connected is not None:
            self.parted(place.connected)
        place.use(link, is_ready=False)
        if self.is_ready:
            link.tell(ProcessReady(self.number))
        if link.number == FIRST:
            self.first_met(link)

    def is_met_ready(self, number: int) -> None:
        place = self.places[number]
        place.use(place.connected, is_ready=True)
        if all(each.link is not None for each in self.places.others.values()):
            self._all_ready.set()

    def parted(self, link: Link) -> None:
        place = self.places[link.number]
        if place.connected is not link:
            return  # it has been started anew already
        place.use(None, is_ready=False)
        self.followers.discard(link.number)
        if self.locks is not None:
            self.locks.leave(link.number)
        if self.transactions is not None:
            self.transactions.left(link.number)
        self.on_left(link.number)

    async def drop_store(self, place: int, number: int) -> None:
        await ask_once(self.places[place], DropStore(number), limits.VISIT_SECONDS_MAX)

    # The catalog.

    async def load_catalog(self) -> None:
        """From the first process."""
        state = await ask_starting(self.places.first, LoadCatalog(self.number), limits.CATALOG_SECONDS_MAX)
        self.replica.load(state.version, state.pairs)

    async def _commit(self, change: Change, is_freeing: bool) -> int:
        if self.owner is not None:
            return (await self.owner.commit(self.number, change, is_freeing)).version
        first = self.places.first
        question = CommitChange(
            self.number, first.new_write_id(), change.version, change.writes, change.cleared, is_freeing
        )
        try:
            committed: Committed = await ask_once(first, question, limits.CATALOG_SECONDS_MAX)
        except Failure:
            if not change.is_empty:
                self.unanswered = change
            raise
        self.unanswered = None
        if committed.version > change.version:
            self.replica.take(change)
            if committed.further:
                self.replica.take(Change(self.replica.version, committed.further))
                self.account.catalog.adopt(committed.further)
        return committed.version

    async def adopt(self, change: Change, *, is_own: bool) -> int:
        """Take over a change of the catalog, after all before it. It ends also if the first process does."""
        await self.opened.wait()
        async with self._adopting:
            await self.replica.reached(change.version)
            return await asyncio.shield(asyncio.ensure_future(self._take_over(change, is_own=is_own)))

    async def _take_over(self, change: Change, *, is_own: bool) -> int:
        async with self._taking:
            if change.version != self.replica.version:
                raise no_answer(is_write=False)  # a first process has ended that had stored it: the next one tells it
            self.replica.take(change)
            return 0 if is_own else await self._adopt_records(change.writes)

    async def take_stored(self, load: Callable[[], Awaitable[CatalogState]]) -> None:
        """Take over the catalog as a first process has found it stored that was started anew. The outcome of this
        process's own change is found out by the transaction that waits for it."""
        async with self._taking:
            state = await load()
            before, stored = self.replica.pairs(), dict(state.pairs)
            self.replica.load(state.version, state.pairs)
            written: dict[bytes, bytes | None] = {
                key: value for key, value in stored.items() if before.get(key) != value
            }
            written |= dict.fromkeys(before.keys() - stored.keys())
            own = self.unanswered.writes.items() if self.unanswered is not None else {}.items()
            await self._adopt_records(dict(written.items() - own))

    async def _adopt_records(self, writes: Mapping[bytes, bytes | None]) -> int:
        removed, added = self.account.catalog.adopt(writes)
        return await cast(_Adopting, self.account).adopt_records(removed, added)

    async def reached(self, version: int) -> None:
        """Wait until this process has taken over a version of the catalog."""
        await self.replica.reached(version)
        async with self._adopting, self._taking:
            pass

    async def spread_change(self, change: Change, origin: int, is_late: bool) -> int:
        """Have all processes take over a change that the first one has stored. See `catalog_owner.Spread`."""
        asked = [self._spread_to(each, change) for each in self.followers if each != origin]
        if is_late and origin in self.followers:
            asked.append(self._spread_to(origin, change, is_own=True))
        lsns = await asyncio.gather(*asked)
        own_lsn = await self._adopt_records(change.writes) if origin != self.number and self.opened.is_set() else 0
        return max([own_lsn, *lsns])

    async def _spread_to(self, number: int, change: Change, *, is_own: bool = False) -> int:
        """A process that cannot take a change over is started anew, and reads the catalog then."""
        question = AdoptChange(change.version, change.writes, change.cleared, is_own)
        try:
            lsn: int = await self.places[number].ask_connected(question, limits.ADOPT_SECONDS_MAX)
            return lsn
        except Lost:
            pass  # it has ended
        except (Failure, TimeoutError) as error:
            log.error("process %d has not taken over a change of the catalog (%r): it is started anew", number, error)
            self.end_process(number)
        self.followers.discard(number)
        return 0

    # Locks.

    def lock(self, name: str) -> SharedLock:
        return SharedLock(name, self.number, self._take, self._release)

    async def _take(self, name: str, token: Token) -> None:
        if self.locks is not None:
            try:
                await self.locks.take(name, token)
            except TimeoutError:
                raise no_answer(is_write=False) from None
            return
        version = await ask_once(self.places.first, TakeLock(name, *token), limits.LOCK_SECONDS_MAX)
        self.held[token] = name
        await self.reached(version)

    def _release(self, name: str, token: Token) -> None:
        if self.locks is not None:
            self.locks.release(name, token)
        else:
            self.held.pop(token, None)
            self.places.first.tell_connected(ReleaseLock(name, *token))
