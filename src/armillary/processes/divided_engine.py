"""The storage engine of a process, where stores are spread over several: the number of a store says which process has
it. Stores of others are not read or written here; the partitions in them are asked by messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.processes.catalog_replica import CatalogReplica
from armillary.storage.engine import HoldableEngine, Store
from armillary.storage.operating.storage_figures import StorageFigures


class DividedEngine:
    """An Engine."""

    def __init__(self, own: HoldableEngine, number: int, catalog: CatalogReplica) -> None:
        self.own = own
        self.make_checkpoint: Callable[[], Awaitable[Path]] = _not_first
        self.drop_elsewhere: Callable[[int, int], Awaitable[None]] = _unknown  # of a place, a store
        self._number = number
        self._catalog: Any = catalog

    def store(self, number: int) -> Store:
        if number == CATALOG_STORE:
            store: Store = self._catalog
            return store
        assert place_of_store(number) == self._number, "the store is another process's"
        return self.own.store(number)

    async def drop(self, number: int) -> None:
        place = place_of_store(number)
        if place == self._number:
            await self.own.drop(number)
        else:
            await self.drop_elsewhere(place, number)

    async def checkpoint(self) -> Path:
        """Of the data of all processes, at one moment."""
        return await self.make_checkpoint()

    async def drop_checkpoint(self, name: str) -> None:
        await self.own.drop_checkpoint(name)

    def figures(self) -> StorageFigures | None:
        return self.own.figures()

    def keep_free(self, reserve_bytes: int | None) -> None:
        keep_free = getattr(self.own, "keep_free", None)  # None: everything is in memory
        if keep_free is not None:
            keep_free(reserve_bytes)

    async def close(self) -> None:
        await self.own.close()


async def _not_first() -> Path:
    raise AssertionError("the first process makes checkpoints")


async def _unknown(place: int, number: int) -> None:
    raise AssertionError("the other processes are not known yet")
