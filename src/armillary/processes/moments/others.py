"""The other processes to snapshots, restores and migrations, which the first process runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.visits.elsewhere.other_processes import Copying, PinnedPartition
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import ask as ask_place
from armillary.errors import Failure, Kind
from armillary.processes.catalog_owner import CatalogOwner
from armillary.processes.moments.loads import LoaderElsewhere, PutPairs
from armillary.processes.moments.moments import Moments
from armillary.processes.moments.pins import Counts, GetPinned, PinStores, ReadPinned, ReleasePins
from armillary.processes.moments.restores import (
    AbandonCopies,
    CopyPinned,
    HoldStill,
    HoldWriters,
    RaiseLsns,
    RewindPartitions,
)
from armillary.processes.places import ProcessHere, ProcessPlace, ask_once
from armillary.storage.engine import Kept
from armillary.storage.overlay import Pair


class PinsElsewhere:
    """A PinnedElsewhere."""

    def __init__(self, here: ProcessHere, pin_id: bytes, counts: Mapping[int, Counts], stores: Iterable[int]) -> None:
        self.items = sum(each.items for each in counts.values())
        self.size_bytes = sum(each.size_bytes for each in counts.values())
        self._here = here
        self._id = pin_id
        self._stores = set(stores)

    def _place(self, store: int) -> ProcessPlace:
        return self._here.places[place_of_store(store)]

    async def pairs(self, store: int, low: bytes, high: bytes) -> AsyncIterator[list[Pair]]:
        clock = self._here.account.clock
        while True:
            found: list[Pair] = await ask_place(self._place(store), ReadPinned(self._id, store, low, high), clock)
            if not found:
                return
            yield found
            low = found[-1][0] + b"\x00"

    async def get(self, store: int, keys: list[bytes]) -> list[bytes | None]:
        question = GetPinned(self._id, store, keys)
        found: list[bytes | None] = await ask_place(self._place(store), question, self._here.account.clock)
        return found

    async def rewind(self, partitions: Sequence[PinnedPartition]) -> set[bytes]:
        places: dict[int, list[PinnedPartition]] = {}
        for each in partitions:
            places.setdefault(place_of_store(each.store), []).append(each)
        found = await asyncio.gather(*[self._rewind(self._here.places[each], of) for each, of in places.items()])
        return set[bytes]().union(*found)

    async def _rewind(self, place: ProcessPlace, partitions: list[PinnedPartition]) -> set[bytes]:
        question = RewindPartitions(place.new_write_id(), self._id, partitions)
        too_much: set[bytes] = await ask_place(place, question, self._here.account.clock)
        return too_much

    async def copy(self, wanted: Sequence[Copying]) -> None:
        """Those of one process one after the other."""
        places: dict[int, list[Copying]] = {}
        for each in wanted:
            places.setdefault(place_of_store(each.target), []).append(each)
            self._stores.add(each.target)
        tasks = [asyncio.ensure_future(self._copy(self._here.places[each], of)) for each, of in places.items()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            for number, copies in places.items():
                self._here.tell(number, AbandonCopies([each.target for each in copies]))
            raise

    async def _copy(self, place: ProcessPlace, wanted: Sequence[Copying]) -> None:
        for each in wanted:
            while not await ask_once(place, CopyPinned(self._id, each), limits.VISIT_SECONDS_MAX):
                pass

    def release(self, stores: Sequence[int] | None = None) -> None:
        gone = self._stores if stores is None else self._stores.intersection(stores)
        for number in {place_of_store(each) for each in gone}:
            given = None if stores is None else [each for each in gone if place_of_store(each) == number]
            self._here.tell(number, ReleasePins(self._id, given))
        self._stores = self._stores - gone


class Others:
    """An OtherProcesses."""

    def __init__(self, here: ProcessHere, moments: Moments, owner: CatalogOwner) -> None:
        self._here = here
        self._moments = moments
        self._owner = owner

    async def pin_together(self, stores: Callable[[], Iterable[int]]) -> tuple[dict[int, Kept], PinsElsewhere]:
        pin_id, views, counts, elsewhere = await self._moments.pin(stores)
        return views, PinsElsewhere(self._here, pin_id, counts, elsewhere)

    async def pin(self, stores: Iterable[int]) -> PinsElsewhere:
        here = self._here
        pin_id, places = here.account.clock.random_bytes(16), dict[int, list[int]]()
        for each in stores:
            places.setdefault(place_of_store(each), []).append(each)
        made = PinsElsewhere(here, pin_id, {}, [each for of in places.values() for each in of])
        try:
            for number, of in places.items():
                question = PinStores(here.remembered.run, pin_id, of)
                await ask_once(here.places[number], question, limits.VISIT_SECONDS_MAX)
        except BaseException:
            made.release()
            raise
        return made

    def _places(self, containers: Sequence[bytes]) -> list[ProcessPlace]:
        """That have partitions of them."""
        numbers = set()
        for rid in containers:
            container = self._here.account.container_by_rid(rid)
            if container is not None:
                numbers |= {place_of_store(each.store) for each in container.map.ranges}
        return [self._here.places[each] for each in sorted(numbers - {self._here.number})]

    @asynccontextmanager
    async def still(self, containers: Sequence[bytes]) -> AsyncIterator[None]:
        hold: HoldStill = self._moments.new_hold(HoldStill, list(containers), seconds=limits.STILL_SECONDS_MAX)
        async with self._here.holds.asked(hold, self._places(containers), must_last=False):
            yield

    @asynccontextmanager
    async def held(self, containers: Sequence[bytes]) -> AsyncIterator[None]:
        hold: HoldWriters = self._moments.new_hold(HoldWriters, list(containers), seconds=limits.CUT_OVER_SECONDS_MAX)
        holds = self._here.holds
        async with holds.asked(hold, self._places(containers), must_last=False) as told:
            for of in told.values():
                self._adopt(of)

            def check() -> None:
                holds.check(hold)

            self._owner.guards.append(check)
            try:
                yield
            finally:
                self._owner.guards.remove(check)

    def _adopt(self, told: dict[bytes, dict[int, Any]]) -> None:
        for rid, figures in told.items():
            container = self._here.account.container_by_rid(rid)
            for range_id, each in figures.items():
                partition = container.partitions.get(range_id) if container is not None else None
                if isinstance(partition, PartitionElsewhere):
                    partition.adopt(each)

    async def raise_lsns(self, stores: Sequence[int], lsn: int) -> None:
        places: dict[int, list[int]] = {}
        for each in stores:
            places.setdefault(place_of_store(each), []).append(each)
        clock = self._here.account.clock
        for number, of in places.items():
            place = self._here.places[number]
            await ask_place(place, RaiseLsns(place.new_write_id(), of, lsn), clock)

    def loader(self, store: int) -> LoaderElsewhere:
        return LoaderElsewhere(self._here.places[place_of_store(store)], store, self._here.account.clock)

    async def put(self, store: int, pairs: Sequence[Pair]) -> None:
        place = self._here.places[place_of_store(store)]
        await ask_place(place, PutPairs(place.new_write_id(), store, list(pairs)), self._here.account.clock)


class NoOthers:
    """An OtherProcesses where places change their holders, which what is pinned would have to follow."""

    async def pin_together(self, stores: Callable[[], Iterable[int]]) -> NoReturn:
        raise _not_offered()

    async def pin(self, stores: Iterable[int]) -> NoReturn:
        raise _not_offered()

    def still(self, containers: Sequence[bytes]) -> NoReturn:
        raise _not_offered()

    def held(self, containers: Sequence[bytes]) -> NoReturn:
        raise _not_offered()

    async def raise_lsns(self, stores: Sequence[int], lsn: int) -> NoReturn:
        raise _not_offered()

    def loader(self, store: int) -> NoReturn:
        raise _not_offered()

    async def put(self, store: int, pairs: Sequence[Pair]) -> NoReturn:
        raise _not_offered()


def _not_offered() -> Failure:
    return Failure(Kind.UNSUPPORTED, "Snapshots, restores and migrations are not offered on several logs.")
