"""The catalog's store as a process has it: a copy in memory, which is small. A transaction runs on the copy; what it
writes is sent to the first process, which stores it if the copy was the newest version, has every other process take it
over, and answers then. So when a change is acknowledged, all processes know it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from armillary import work
from armillary.storage.engine import Kept, Loader, Quick, Receiver, T, Txn, View
from armillary.storage.memory import PinnedMap, SortedMap
from armillary.storage.overlay import Layer, OverlayTxn, Pair
from armillary.work import Check

_NOTHING = Layer()
BEHIND = -1  # the version that is answered where another change came first


@dataclass(slots=True)
class Change:
    """What a transaction of the catalog has written."""

    version: int  # that it was made of
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    cleared: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.writes and not self.cleared

    def layer(self) -> Layer:
        layer = Layer()
        layer.writes = dict(self.writes)
        layer.cleared = list(self.cleared)
        return layer

    def apply(self, txn: Txn) -> None:
        for low, high in self.cleared:
            txn.delete_range(low, high)
        for key, value in self.writes.items():
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


Commit = Callable[[Change, bool], Awaitable[int]]  # with whether it frees space; the new version, or BEHIND


class CatalogReplica:
    """A Store."""

    def __init__(self) -> None:
        self.version = 0
        self.commit: Commit = _uncommitted
        self._map = SortedMap()
        self._writing = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []  # for a newer version

    def load(self, version: int, pairs: Iterable[Pair]) -> None:
        self._map = SortedMap()
        self._map.extend(list(pairs))
        self._turn(version)

    def take(self, change: Change) -> None:
        """A change that was stored."""
        assert change.version == self.version, "changes are taken over in their order"
        self._map = self._map.changed(change.layer())
        self._turn(change.version + 1)

    def _turn(self, version: int) -> None:
        self.version = version
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def reached(self, version: int) -> None:
        """Wait until it has a version."""
        while self.version < version:
            turned = asyncio.get_running_loop().create_future()
            self._waiting.append(turned)
            await turned

    def pairs(self) -> Mapping[bytes, bytes]:
        return dict(self._map.scan(b"", b"\xff" * 16))

    # As a Store.

    async def read(self, fn: Callable[[View], T]) -> T:
        return fn(self._map)

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        return await self._map.evaluate(fn, check)

    def at_hand(self) -> View | None:
        return self._map

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        async with self._writing:
            while True:
                layer, version = Layer(), self.version
                txn = OverlayTxn(layer, _NOTHING, self._map.get, self._map.scan)
                result = await work.run(lambda txn=txn: fn(txn))  # type: ignore[misc]
                change = Change(version, layer.writes, layer.cleared)
                if await self.commit(change, is_freeing) != BEHIND:
                    return result
                await self.reached(version + 1)

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> NoReturn:
        raise AssertionError("a change of the catalog is waited for")

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        raise AssertionError("the catalog is written alone")

    async def keep(self) -> Kept:
        return PinnedMap(self._map)

    async def pin(self) -> Kept:
        return PinnedMap(self._map)

    def loader(self) -> Loader:
        raise AssertionError("the catalog is written by transactions")


async def _uncommitted(change: Change, is_freeing: bool) -> Any:
    raise AssertionError("the catalog is not open yet")
