"""The in-memory engine: sorted stores, the reference for the other engines and the fastest for tests. Nothing survives
the process. Transaction functions run at once, one after the other; a long one gives way to readers, which see the
state before it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from armillary import work
from armillary.errors import Failure, Kind
from armillary.storage.engine import Kept, Loader, Quick, Receiver, T, Txn, View
from armillary.storage.overlay import Layer, OverlayTxn, Pair
from armillary.work import Check

_CHUNK_KEYS_MAX: Final = 2000
_NOTHING: Final = Layer()


class MemoryEngine:
    """Any number of stores, each deleted when dropped."""

    def __init__(self) -> None:
        self._stores: dict[int, MemoryStore] = {}
        self._is_closed = False
        self.writing = asyncio.Lock()  # held by the running function
        self._is_held = False
        self._delivering: set[asyncio.Task[Any]] = set()  # writes that no coroutine waits for

    def store(self, number: int) -> MemoryStore:
        assert 0 <= number < 2**32, "a store is numbered with four bytes"
        store = self._stores.get(number)
        if store is None:
            store = self._stores[number] = MemoryStore(self)
        return store

    def deliver(self, writing: Coroutine[Any, Any, T], receiver: Receiver[T]) -> None:
        task = asyncio.get_running_loop().create_task(writing)
        self._delivering.add(task)
        task.add_done_callback(partial(self._delivered, receiver))

    def _delivered(self, receiver: Receiver[T], task: asyncio.Task[T]) -> None:
        self._delivering.discard(task)
        if task.cancelled() or receiver.done():
            return
        error = task.exception()
        if error is None:
            receiver.set_result(task.result())
        else:
            receiver.set_exception(error)

    async def drop(self, number: int) -> None:
        self.check_open()
        self.store(number).forget()

    async def checkpoint(self) -> Path:
        raise Failure(Kind.UNSUPPORTED, "This server keeps everything in memory: there are no files to back up.")

    async def drop_checkpoint(self, name: str) -> None:
        raise Failure(Kind.NOT_FOUND, "There are no checkpoints in memory.")

    def figures(self) -> None:
        return None

    async def hold(self) -> None:
        """See `HoldableEngine`."""
        assert not self._is_held
        await self.writing.acquire()
        self._is_held = True

    def release(self) -> None:
        """See `HoldableEngine`."""
        if self._is_held:
            self._is_held = False
            self.writing.release()

    async def flush(self) -> None:
        pass  # there are no files

    async def close(self) -> None:
        self._is_closed = True
        self._stores.clear()

    def check_open(self) -> None:
        if self._is_closed:
            raise Failure(Kind.UNAVAILABLE, "The database is shutting down; connect again once it is running.")


class MemoryStore:
    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._map = SortedMap()

    async def read(self, fn: Callable[[View], T]) -> T:
        self._engine.check_open()
        return fn(self._map)

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        self._engine.check_open()
        return await self._map.evaluate(fn, check)

    def at_hand(self) -> View | None:
        self._engine.check_open()
        return self._map

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        async with self._engine.writing:
            self._engine.check_open()
            layer = Layer()
            result = await work.run(lambda: fn(self._txn(layer)))
            self._map = self._map.changed(layer)
            return result

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        self._engine.check_open()
        self._engine.deliver(self.write(fn), receiver)

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        async with self._engine.writing:
            self._engine.check_open()
            with_layers = [(store, fn, Layer()) for store, fn in parts]
            results = await work.run(lambda: [fn(store._txn(layer)) for store, fn, layer in with_layers])
            for store, _, layer in with_layers:
                store._map = store._map.changed(layer)
            return results

    def _txn(self, layer: Layer) -> OverlayTxn:
        return OverlayTxn(layer, _NOTHING, self._map.get, self._map.scan)

    async def keep(self) -> Kept:
        self._engine.check_open()
        return KeptMap(self._map)

    async def pin(self) -> Kept:
        self._engine.check_open()
        return PinnedMap(self._map)

    def loader(self) -> Loader:
        self._engine.check_open()
        return MemoryLoader(self._map)

    def forget(self) -> None:
        self._map = SortedMap()


class MemoryLoader:
    def __init__(self, stored: SortedMap) -> None:
        self._map = stored

    def put(self, pairs: Sequence[Pair]) -> None:
        self._map.extend(pairs)

    async def ready(self) -> None:
        pass  # it is stored

    async def finish(self) -> None:
        pass  # nothing to flush

    def abandon(self) -> None:
        pass


class SortedMap:
    """A dict whose keys are also kept in order, in chunks short enough that inserting into one is cheap."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._chunks: list[list[bytes]] = []  # none empty; every key of one is below every key of the next
        self._lasts: list[bytes] = []  # the last key of each chunk
        self.get = self._values.get  # the dict's own method: a call less on every read
        self._evaluations = 0  # evaluations that read this state and may have given way, and pins of it

    def copy_from(self, other: SortedMap) -> None:
        self._values = other._values.copy()  # a third of the time of filling one
        self.get = self._values.get
        self._chunks = [list(chunk) for chunk in other._chunks]
        self._lasts = list(other._lasts)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes, reverse: bool = False, skip: int = 0) -> Iterator[Pair]:
        assert skip == 0, "keys in memory carry no store prefix"
        if reverse:
            return self._scan_down(low, high)
        return self._scan_up(low, high)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._values:
            self._insert(key)
        self._values[key] = value

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        self._evaluations += 1
        try:
            return await work.run(lambda: fn(self), check)
        finally:
            self._evaluations -= 1

    def changed(self, layer: Layer) -> SortedMap:
        """The map after some writes: this one, or a copy while evaluations and pins still show the state they began
        with."""
        changed = self
        if self._evaluations and not layer.is_empty():
            changed = SortedMap()
            changed.copy_from(self)
        changed.apply(layer)
        return changed

    def apply(self, layer: Layer) -> None:
        for low, high in layer.cleared:
            self.delete_range(low, high)
        for key, value in layer.writes.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)

    def extend(self, pairs: Sequence[Pair]) -> None:
        """Add pairs in ascending key order; far faster if all follow the present keys."""
        if not pairs or (self._lasts and pairs[0][0] <= self._lasts[-1]):
            for key, value in pairs:
                self.put(key, value)
            return
        self._values.update(pairs)
        keys = [key for key, _ in pairs]
        if self._chunks and len(self._chunks[-1]) + len(keys) <= _CHUNK_KEYS_MAX:
            self._chunks[-1] += keys
            self._lasts[-1] = keys[-1]
            return
        for at in range(0, len(keys), _CHUNK_KEYS_MAX):
            self._chunks.append(keys[at : at + _CHUNK_KEYS_MAX])
            self._lasts.append(self._chunks[-1][-1])

    def delete(self, key: bytes) -> None:
        if self._values.pop(key, None) is not None:
            at = bisect_left(self._lasts, key)
            chunk = self._chunks[at]
            del chunk[bisect_left(chunk, key)]
            self._trim(at)

    def delete_range(self, low: bytes, high: bytes) -> None:
        at = bisect_left(self._lasts, low)
        while at < len(self._chunks):
            chunk = self._chunks[at]
            first, last = bisect_left(chunk, low), bisect_left(chunk, high)
            is_beyond = last < len(chunk)
            for key in chunk[first:last]:
                del self._values[key]
            del chunk[first:last]
            if self._trim(at):
                at += 1
            if is_beyond:
                return

    def _insert(self, key: bytes) -> None:
        if not self._chunks:
            self._chunks.append([key])
            self._lasts.append(key)
            return
        at = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > _CHUNK_KEYS_MAX:
            half = len(chunk) // 2
            self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
            self._lasts[at : at + 1] = [chunk[half - 1], chunk[-1]]
        else:
            self._lasts[at] = chunk[-1]

    def _trim(self, at: int) -> bool:
        """Restore the invariants of a chunk that lost keys; False if it is empty."""
        chunk = self._chunks[at]
        if chunk:
            self._lasts[at] = chunk[-1]
            return True
        del self._chunks[at], self._lasts[at]
        return False

    def _scan_up(self, low: bytes, high: bytes) -> Iterator[Pair]:
        values = self._values
        for number in range(bisect_left(self._lasts, low), len(self._chunks)):
            chunk = self._chunks[number]
            last = bisect_left(chunk, high)
            for key in chunk[bisect_left(chunk, low) : last]:
                yield key, values[key]
            if last < len(chunk):
                return

    def _scan_down(self, low: bytes, high: bytes) -> Iterator[Pair]:
        values = self._values
        for number in range(min(bisect_left(self._lasts, high), len(self._chunks) - 1), -1, -1):
            chunk = self._chunks[number]
            first = bisect_left(chunk, low)
            for key in reversed(chunk[first : bisect_left(chunk, high)]):
                yield key, values[key]
            if first > 0:
                return


class PinnedMap:
    """A snapshot without copying: the map is copied by the next write to it, if the pin is still held then."""

    def __init__(self, pinned: SortedMap) -> None:
        pinned._evaluations += 1
        self._map: SortedMap | None = pinned

    def get(self, key: bytes) -> bytes | None:
        return self._held().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._held().get_many(keys)

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[Pair]:
        return self._held().scan(low, high, reverse)

    def _held(self) -> SortedMap:
        assert self._map is not None, "it was released"
        return self._map

    def release(self) -> None:
        if self._map is not None:
            self._map._evaluations -= 1
            self._map = None

    def __del__(self) -> None:
        self.release()


class KeptMap(SortedMap):
    """A snapshot by copying."""

    def __init__(self, original: SortedMap) -> None:
        super().__init__()
        self.copy_from(original)

    def release(self) -> None:
        self._values.clear()
        self._chunks, self._lasts = [], []
