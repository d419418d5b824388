"""Stores in the place of an engine's own. A fork is a pinned snapshot with private writes on top, for transactions that
span several requests. The writes are never made durable here; to commit, the caller applies them again to the store
itself. An ended store refuses everything: objects of an account that was closed must not use the engine any more, which
another account may have by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Self, TypeVar

from armillary import work
from armillary.errors import Failure
from armillary.storage.disk_errors import again
from armillary.storage.engine import Kept, Quick, Receiver, Txn, View
from armillary.storage.overlay import Layer, OverlayTxn, Pair
from armillary.work import Check

T = TypeVar("T")


class ForkedStore:
    """A Store over a pinned snapshot."""

    def __init__(self, pinned: Kept) -> None:
        self.pinned = pinned
        self._layer = Layer()
        self._writing = asyncio.Lock()

    async def read(self, fn: Callable[[View], T]) -> T:
        return fn(self._txn(Layer()))

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        view = self._txn(Layer())
        return await work.run(lambda: fn(view), check)

    def at_hand(self) -> View | None:
        return self._txn(Layer())

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        async with self._writing:
            layer = Layer()
            result = await work.run(lambda: fn(self._txn(layer)))
            self._layer.absorb(layer)
            return result

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> NoReturn:
        raise AssertionError("what a transaction writes is waited for")

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        raise AssertionError("a transaction is about one value of the shard key")

    def release(self) -> None:
        self.pinned.release()

    async def keep(self) -> NoReturn:
        raise _never_copied()

    async def pin(self) -> NoReturn:
        raise _never_copied()

    def loader(self) -> NoReturn:
        raise _never_copied()

    def _txn(self, layer: Layer) -> OverlayTxn:
        return OverlayTxn(layer, self._layer, self.pinned.get, self._scan)

    def _scan(self, low: bytes, high: bytes, reverse: bool, _skip: int) -> Iterator[Pair]:
        return self.pinned.scan(low, high, reverse)


class EndedStore:
    def __init__(self, reason: Failure) -> None:
        self._reason = reason

    async def read(self, fn: Callable[[View], T]) -> T:
        raise again(self._reason)

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        raise again(self._reason)

    def at_hand(self) -> View | None:
        return None

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        raise again(self._reason)

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> NoReturn:
        raise again(self._reason)

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        raise again(self._reason)

    async def keep(self) -> NoReturn:
        raise again(self._reason)

    async def pin(self) -> NoReturn:
        raise again(self._reason)

    def loader(self) -> NoReturn:
        raise again(self._reason)


def _never_copied() -> AssertionError:
    return AssertionError("a fork is short-lived: it is never copied")
