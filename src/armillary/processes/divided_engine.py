"""The storage engines of a process, where stores are spread over several: the number of a store says which place has
it. A process holds one place for good (`armillary serve --processes`), or those whose logs it leads now (a cluster with
several logs). Stores of other places are not read or written here; the partitions in them are asked by messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.errors import Failure, Kind
from armillary.processes.catalog_replica import CatalogReplica
from armillary.storage.engine import Engine, HoldableEngine, Store
from armillary.storage.operating.storage_figures import StorageFigures

Leads = Callable[[], bool]  # whether what is stored here is known to be the newest state of a place


class DividedEngine:
    """An Engine."""

    def __init__(self, catalog: CatalogReplica, engines: Mapping[int, Engine]) -> None:
        """`engines`: by place. They are closed with this one; those that are entered later are not."""
        self.make_checkpoint: Callable[[], Awaitable[Path]] = _not_first
        self.drop_elsewhere: Callable[[int, int], Awaitable[None]] = _unknown  # of a place, a store
        self.held: set[int] = set(engines)  # places
        self.leads: dict[int, Leads] = {}  # of places that other processes may take over
        self._engines: dict[int, Any] = dict(engines)
        self._owned = list(engines.values())
        self._catalog: Any = catalog

    def enter(self, place: int, engine: Engine, leads: Leads) -> None:
        """This process holds a place from now on."""
        self._engines[place], self.leads[place] = engine, leads
        self.held.add(place)

    def leave(self, place: int) -> None:
        """Another process holds it, or will."""
        self.held.discard(place)
        self.leads.pop(place, None)
        self._engines.pop(place, None)

    @property
    def own(self) -> HoldableEngine:
        """The engine of a process that holds one place for good."""
        if self.leads or len(self._engines) != 1:
            raise Failure(
                Kind.UNSUPPORTED,
                "Snapshots and checkpoints are not taken over several logs. Back up the nodes.",
            )
        engine: HoldableEngine = next(iter(self._engines.values()))
        return engine

    def store(self, number: int) -> Store:
        if number == CATALOG_STORE:
            store: Store = self._catalog
            return store
        return self._of(number).store(number)

    def _of(self, number: int) -> Engine:
        engine: Engine | None = self._engines.get(place_of_store(number))
        if engine is None:
            raise held_elsewhere()
        return engine

    async def drop(self, number: int) -> None:
        place = place_of_store(number)
        if place in self.held:
            await self._of(number).drop(number)
        else:
            await self.drop_elsewhere(place, number)

    async def checkpoint(self) -> Path:
        """Of the data of all processes, at one moment."""
        return await self.make_checkpoint()

    async def drop_checkpoint(self, name: str) -> None:
        await self.own.drop_checkpoint(name)

    def figures(self) -> StorageFigures | None:
        """Of a process with several logs, those of one: they share the disk."""
        found: list[StorageFigures | None] = [each.figures() for each in self._engines.values()]
        return found[0] if found else None

    def keep_free(self, reserve_bytes: int | None) -> None:
        for engine in self._engines.values():
            keep_free = getattr(engine, "keep_free", None)  # None: everything is in memory
            if keep_free is not None:
                keep_free(reserve_bytes)

    async def close(self) -> None:
        for engine in self._owned:
            await engine.close()


def held_elsewhere() -> Failure:
    """What needs a store was asked of a process that does not hold it, or not any more."""
    return Failure(
        Kind.UNAVAILABLE,
        "The partition is held by another process by now. Try again.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )


async def _not_first() -> Path:
    raise AssertionError("the first process makes checkpoints")


async def _unknown(place: int, number: int) -> None:
    raise AssertionError("the other processes are not known yet")
