"""Filling a store of another process, for a restore from a snapshot file: pairs are sent in portions, one after the
other, and loaded there as a copy is (`storage/engine.py`, Loader).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from armillary import limits
from armillary.account.visits.elsewhere.place import LocalPlace, Place, Question, Told
from armillary.account.visits.elsewhere.place import ask as ask_place
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.engine import Loader, Txn
from armillary.storage.overlay import Pair


class _Loading(Protocol):
    loads: Loads


def _loads(here: LocalPlace) -> Loads:
    return cast(_Loading, here).loads


class Loads:
    """Those that a process does for another one, by store."""

    def __init__(self) -> None:
        self._loaders: dict[int, tuple[Loader, int]] = {}  # with the number of portions that have come

    async def put(self, here: LocalPlace, store: int, number: int, pairs: list[Pair]) -> None:
        loader, count = self._loaders.get(store, (None, 0))
        if number != count:
            raise _lost_portion()  # the process was started anew since
        if loader is None:
            loader = here.account.engine.store(store).loader()
        self._loaders[store] = loader, count + 1
        loader.put(pairs)
        await loader.ready()

    async def finish(self, store: int, count: int) -> None:
        loader, came = self._loaders.pop(store, (None, 0))
        if count != came:
            raise _lost_portion()
        if loader is not None:
            await loader.finish()

    def abandon(self, store: int) -> None:
        loader, _ = self._loaders.pop(store, (None, 0))
        if loader is not None:
            loader.abandon()


def _lost_portion() -> Failure:
    return Failure(
        Kind.UNAVAILABLE, "A process of the server has been started again meanwhile. Nothing was restored: begin again."
    )


@dataclass(slots=True)
class LoadPairs(Question):
    id: bytes
    store: int
    number: int  # of the portion
    pairs: list[Pair]

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        await _loads(here).put(here, self.store, self.number, self.pairs)


@dataclass(slots=True)
class EndLoad(Question):
    id: bytes
    store: int
    count: int  # of the portions

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        await _loads(here).finish(self.store, self.count)


@dataclass(slots=True)
class AbandonLoad(Told):
    store: int

    def take(self, here: LocalPlace) -> None:
        _loads(here).abandon(self.store)


@dataclass(slots=True)
class PutPairs(Question):
    """In one transaction."""

    id: bytes
    store: int
    pairs: list[Pair]

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        def run(txn: Txn) -> None:
            for key, value in self.pairs:
                txn.put(key, value)

        await here.account.engine.store(self.store).write(run)


class LoaderElsewhere:
    """A Loader."""

    def __init__(self, place: Place, store: int, clock: Clock) -> None:
        self._place = place
        self._store = store
        self._clock = clock
        self._waiting: list[Pair] = []
        self._size_bytes = 0
        self._count = 0

    def put(self, pairs: Sequence[Pair]) -> None:
        self._waiting += pairs
        self._size_bytes += sum([len(key) + len(value) for key, value in pairs])

    async def ready(self) -> None:
        if self._size_bytes >= limits.PINNED_PORTION_BYTES or len(self._waiting) >= limits.PINNED_PORTION_ENTRIES:
            await self._send()

    async def _send(self) -> None:
        pairs, self._waiting, self._size_bytes = self._waiting, [], 0
        portion = LoadPairs(self._place.new_write_id(), self._store, self._count, pairs)
        await ask_place(self._place, portion, self._clock)
        self._count += 1

    async def finish(self) -> None:
        if self._waiting:
            await self._send()
        await ask_place(self._place, EndLoad(self._place.new_write_id(), self._store, self._count), self._clock)

    def abandon(self) -> None:
        self._place.tell(AbandonLoad(self._store))
