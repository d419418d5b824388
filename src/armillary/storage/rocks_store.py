"""One numbered store of the embedded engine: its keys in the engine's RocksDB, prefixed with four bytes of store
number. Publishing versions to readers, and durability of writes, is left to `rocks.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, Self

from armillary import work
from armillary.storage.disk_errors import translated
from armillary.storage.engine import Kept, Loader, T, Txn, View
from armillary.storage.overlay import OverlayTxn
from armillary.storage.rocks_database import Database, KeptState, KeptView, PinnedView, Version, VersionView
from armillary.storage.rocks_loader import RocksLoader
from armillary.work import Check

PREFIX_BYTES: Final = 4


class RocksVersions(Protocol):
    """The engine as its stores see it: versions to read, a queue of writes, and files to load."""

    @property
    def published(self) -> Version | None:
        """The durable state that readers see; None while the database is opened again."""

    async def readable(self) -> Version:
        """Waits while the database is opened again."""

    def submit(self, prefix: bytes, fn: Callable[[Txn], T], is_freeing: bool = False) -> Awaitable[T]:
        """Queue a transaction function. Answered when what it wrote is durable."""

    async def keep(self) -> KeptState: ...

    @property
    def load_path(self) -> Path: ...

    def writable(self) -> Database: ...


class RocksStore:
    __slots__ = ("_engine", "_prefix")

    def __init__(self, engine: RocksVersions, prefix: bytes) -> None:
        self._engine = engine
        self._prefix = prefix

    async def read(self, fn: Callable[[View], T]) -> T:
        version = self._engine.published
        if version is None:
            version = await self._engine.readable()
        try:
            return fn(VersionView(version, self._prefix))
        except Exception as error:
            failure = translated(error)
            if failure is None:
                raise
            raise failure from error

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        version = self._engine.published
        if version is None:
            version = await self._engine.readable()
        try:
            return await work.run(partial(fn, VersionView(version, self._prefix)), check)
        except Exception as error:
            failure = translated(error)
            if failure is None:
                raise
            raise failure from error

    def at_hand(self) -> View | None:
        version = self._engine.published
        return None if version is None else VersionView(version, self._prefix)

    def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> Awaitable[T]:
        return self._engine.submit(self._prefix, fn, is_freeing)

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        def run(txn: Txn) -> list[T]:
            assert isinstance(txn, OverlayTxn)
            return [fn(txn.at(store._prefix)) for store, fn in parts]

        return await self._engine.submit(b"", run)

    async def keep(self) -> Kept:
        return KeptView(await self._engine.keep(), self._prefix)

    async def pin(self) -> Kept:
        version = self._engine.published
        return PinnedView(await self._engine.readable() if version is None else version, self._prefix)

    def loader(self) -> Loader:
        return RocksLoader(self._engine.load_path, self._engine.writable, self._prefix)


def prefix_of(number: int) -> bytes:
    return number.to_bytes(PREFIX_BYTES, "big")
