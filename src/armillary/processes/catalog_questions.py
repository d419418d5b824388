"""What processes ask each other about the catalog and its locks (`catalog_replica.py`, `shared_locks.py`)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, cast

from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told, no_answer
from armillary.errors import Failure, Kind
from armillary.processes.catalog_owner import CatalogOwner, Committed
from armillary.processes.catalog_replica import Change
from armillary.processes.shared_locks import LockTable, Token


class CatalogHere(Protocol):
    """What the answers need of the process that was asked (`places.py`)."""

    owner: CatalogOwner | None  # of the first process alone, like the locks
    locks: LockTable | None
    followers: set[int]  # processes that are told of changes
    opened: asyncio.Event  # the account serves

    async def adopt(self, change: Change, *, is_own: bool) -> int: ...


@dataclass(slots=True)
class CatalogState:
    version: int
    pairs: list[tuple[bytes, bytes]]


@dataclass(slots=True)
class LoadCatalog(Question):
    """Asked of the first process by one that starts. From then on it is told of changes."""

    origin: int

    async def answer(self, here: LocalPlace) -> CatalogState:
        await _process(here).opened.wait()
        return await state_for(here, self.origin)


@dataclass(slots=True)
class CommitChange(Question):
    """Asked of the first process: store what a transaction of another one has written."""

    origin: int
    id: bytes
    version: int
    writes: dict[bytes, bytes | None]
    cleared: list[tuple[bytes, bytes]]
    is_freeing: bool

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> Committed:
        await _process(here).opened.wait()
        change = Change(self.version, self.writes, self.cleared)
        return await owner_of(here).commit(self.origin, change, self.is_freeing)


@dataclass(slots=True)
class AdoptChange(Question):
    """Asked by the first process: take over what was stored. The answer is the highest lsn of the containers that left
    with it, as far as this process knows."""

    version: int
    writes: dict[bytes, bytes | None]
    cleared: list[tuple[bytes, bytes]]
    is_own: bool = False  # of a process that made it, and did not know whether it took place

    async def answer(self, here: LocalPlace) -> int:
        return await _process(here).adopt(Change(self.version, self.writes, self.cleared), is_own=self.is_own)


@dataclass(slots=True)
class TakeLock(Question):
    """Asked of the first process. Answered when the lock is granted, with the version of the catalog."""

    name: str
    place: int
    number: int

    async def answer(self, here: LocalPlace) -> int:
        await _process(here).opened.wait()
        try:
            await locks_of(here).take(self.name, Token(self.place, self.number))
        except TimeoutError:
            raise no_answer(is_write=False) from None
        return owner_of(here).replica.version


@dataclass(slots=True)
class ReleaseLock(Told):
    name: str
    place: int
    number: int

    def take(self, here: LocalPlace) -> None:
        locks_of(here).release(self.name, Token(self.place, self.number))


def _process(here: LocalPlace) -> CatalogHere:
    return cast(CatalogHere, here)


async def state_for(here: LocalPlace, origin: int) -> CatalogState:
    """For a process that is told of changes from then on."""
    owner = owner_of(here)
    async with owner.changing:
        _process(here).followers.add(origin)
        return CatalogState(owner.replica.version, list(owner.replica.pairs().items()))


def owner_of(here: LocalPlace) -> CatalogOwner:
    owner = _process(here).owner
    if owner is None:
        raise _not_first()
    return owner


def locks_of(here: LocalPlace) -> LockTable:
    locks = _process(here).locks
    if locks is None:
        raise _not_first()
    return locks


def _not_first() -> Failure:
    return Failure(Kind.INTERNAL, "Only the first process of the server has the catalog.")
