"""One numbered store of the embedded engine: its keys in the engine's RocksDB, prefixed with four bytes of store
number, and the cache of its point reads. Publishing versions to readers, and durability of writes, is left to
`rocks.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, Self

from armillary import limits, work
from armillary.storage.disk_errors import translated
from armillary.storage.engine import Kept, Loader, Quick, Receiver, T, Txn, View
from armillary.storage.operating.storage_figures import CachedReads
from armillary.storage.overlay import Layer, OverlayTxn
from armillary.storage.rocks_database import (
    Database,
    KeptState,
    KeptView,
    PinnedView,
    Version,
    VersionView,
)
from armillary.storage.rocks_loader import RocksLoader
from armillary.work import Check

PREFIX_BYTES: Final = 4
_ENTRY_BYTES: Final = 200  # of an entry of the cache, besides its key and value


class RocksVersions(Protocol):
    """The engine as its stores see it: versions to read, a queue of writes, and files to load."""

    @property
    def published(self) -> Version | None:
        """The durable state that readers see; None while the database is opened again."""

    @property
    def read_cache(self) -> ReadCache:
        """Of the published state."""

    async def readable(self) -> Version:
        """Waits while the database is opened again."""

    def submit(self, prefix: bytes, fn: Callable[[Txn], T], is_freeing: bool = False) -> Awaitable[T]:
        """Queue a transaction function. Answered when what it wrote is durable."""

    def deliver(
        self, prefix: bytes, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None
    ) -> None:
        """The same without a Future."""

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
            return await work.run(partial(fn, EvaluatedView(self._engine, version, self._prefix)), check)
        except Exception as error:
            failure = translated(error)
            if failure is None:
                raise
            raise failure from error

    def at_hand(self) -> View | None:
        version = self._engine.published
        return None if version is None else PublishedView(version, self._prefix, self._engine.read_cache)

    def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> Awaitable[T]:
        return self._engine.submit(self._prefix, fn, is_freeing)

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        self._engine.deliver(self._prefix, fn, receiver, quick)

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        assert all(store._engine is self._engine for store, _ in parts), "a transaction is of one engine"

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


class ReadCache:
    """Values of point reads, by their keys in the engine. Only reads of the published state use it: an entry is right
    as long as no published group has written its key. The engine calls `drop` in the step that publishes a group."""

    __slots__ = ("hits", "misses", "size_bytes", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}  # for readers, who look up and count by themselves
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def put(self, key: bytes, value: bytes) -> None:
        """A value that was read from the published state."""
        if len(value) > limits.READ_CACHE_VALUE_BYTES_MAX:
            return
        self.values[key] = value
        self.size_bytes += len(key) + len(value) + _ENTRY_BYTES
        if self.size_bytes > limits.READ_CACHE_BYTES_MAX:
            self._evict()

    def drop(self, layer: Layer) -> None:
        """A group is published."""
        values = self.values
        if not values:
            return
        if layer.cleared or len(layer.writes) > limits.WRITE_AT_ONCE_KEYS:
            self.clear()
            return
        for key in values.keys() & layer.writes.keys():
            self.size_bytes -= len(key) + len(values.pop(key)) + _ENTRY_BYTES

    def figures(self) -> CachedReads:
        return CachedReads(self.hits, self.misses, len(self.values))

    def clear(self) -> None:
        self.values.clear()
        self.size_bytes = 0

    def _evict(self) -> None:
        """The oldest eighth of the entries, some milliseconds of them at most. One by one from the front, a dict would
        search longer and longer for the first."""
        values = self.values
        for key in list(islice(values, len(values) // 8 + 1)):
            self.size_bytes -= len(key) + len(values.pop(key)) + _ENTRY_BYTES


class PublishedView(VersionView):
    """One store in the version that is published at the moment: for reads that are made at once, through the cache."""

    __slots__ = ("_cache",)

    def __init__(self, version: Version, prefix: bytes, cache: ReadCache) -> None:
        self._version = version
        self._prefix = prefix
        self._cache = cache

    def get(self, key: bytes) -> bytes | None:
        cache = self._cache
        value = cache.values.get(self._prefix + key)
        if value is not None:
            cache.hits += 1
            return value
        cache.misses += 1
        value = VersionView.get(self, key)
        if value is not None:
            cache.put(self._prefix + key, value)
        return value


class EvaluatedView(VersionView):
    """One store in a version, for reads that may give way: through the cache as long as the version is published."""

    __slots__ = ("_engine",)

    def __init__(self, engine: RocksVersions, version: Version, prefix: bytes) -> None:
        self._engine = engine
        self._version = version
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        engine = self._engine
        if engine.published is self._version:
            return PublishedView(self._version, self._prefix, engine.read_cache).get(key)
        return VersionView.get(self, key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._engine.published is not self._version:
            return VersionView.get_many(self, keys)
        cache, prefix = self._engine.read_cache, self._prefix
        look_up = cache.values.get
        found = [look_up(prefix + key) for key in keys]
        missed = found.count(None)
        cache.hits += len(found) - missed
        if not missed:
            return found
        cache.misses += missed
        is_short = len(keys) <= limits.READ_CACHE_BATCH_MAX  # long lists would only displace what is read often
        for place, key in enumerate(keys):
            if found[place] is None:
                found[place] = value = VersionView.get(self, key)
                if is_short and value is not None:
                    cache.put(prefix + key, value)
        return found
