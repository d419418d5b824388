"""The interface of storage engines: ordered bytes that survive a crash.

An `Engine` holds many `Store`s, each one ordered map from bytes to bytes, numbered by its owner. A store is used only
through *transaction functions*: plain synchronous functions of a View (reading) or a Txn (reading and writing). They
may run again, so they change nothing but the Txn. That makes a single insert, a batch and a stored procedure the same
thing. Engines do not interpret the bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeAlias, TypeVar

from armillary.storage.operating.storage_figures import StorageFigures
from armillary.work import Check

T = TypeVar("T")
Given = TypeVar("Given", contravariant=True)

# The quick form of a transaction function: reads the newest state, by keys with the given prefix of its store, and
# returns its result, what is to be written (None: deleted), by such keys too, the size of that in bytes, roughly, and
# whether anything is deleted. None: it is not for the quick form.
Prepared: TypeAlias = tuple[T, dict[bytes, bytes | None], int, bool]
Quick: TypeAlias = Callable[[Callable[[bytes], bytes | None], bytes], Prepared[T] | None]


class Receiver(Protocol[Given]):
    """Takes the outcome of a transaction, in the step of the event loop that shows it to readers. A Future is one."""

    def done(self) -> bool:
        """Whether it takes nothing any more. A function that has not run by then does not run."""

    def set_result(self, result: Given, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class View(Protocol):
    """One snapshot of one store. Only valid while the function it was handed to runs."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with low <= key < high, in key order (or from the highest down)."""


class Txn(View, Protocol):
    """A view that sees its own writes. They become visible to others together, or not at all."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def put_keys(self, keys: Iterable[bytes]) -> None:
        """Put keys with empty values."""

    def delete(self, key: bytes) -> None:
        """Deleting a missing key is allowed."""

    def delete_many(self, keys: Iterable[bytes]) -> None: ...

    def delete_range(self, low: bytes, high: bytes) -> None: ...


class Kept(View, Protocol):
    """A snapshot that stays readable until it is released, whatever is written meanwhile. It ends with a Failure if
    storage has to be reopened. It may include writes that are not durable yet, and supports one ascending scan at a
    time."""

    def release(self) -> None: ...


class Loader(Protocol):
    """Fills an unused store far faster than transactions do: no write-ahead log, and no compaction where keys
    ascend."""

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Pairs in ascending key order, no key twice. May take some ten milliseconds."""

    async def ready(self) -> None:
        """Wait until more may be put: to be awaited between two portions, so that a copy does not run ahead of what can
        be stored, and other writes have their share. Raises if what was put cannot be stored."""

    async def finish(self) -> None:
        """What was put is durable now, and visible to readers after the next transaction on the store."""

    def abandon(self) -> None:
        """Stop. What was put so far may be in the store; the caller drops it."""


class Store(Protocol):
    async def read(self, fn: Callable[[View], T]) -> T:
        """Run `fn` on a snapshot that has everything acknowledged so far, and nothing that is not durable."""

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        """Like `read`, for a function that may take long: it is executed by `work.run` and gives way to others wherever
        it spends units. The snapshot stays the same throughout; `check` may end it at every such point."""

    def at_hand(self) -> View | None:
        """The snapshot that `read` would use, if it needs no waiting: for point reads, which are so short that passing
        a function would cost as much. To be used at once, before anything is awaited. None: use `read`, which waits and
        translates failures."""

    def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> Awaitable[T]:
        """Run `fn` and return its result once its writes are durable. If `fn` raises, none of them happen.

        Functions run one after the other, each seeing the writes of those before it: serialisable by construction. One
        that spends much work (`work.spend`) gives way to readers, never to another function. Writes that free space
        (`is_freeing`) are accepted even when the disk is too full for others.
        """

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        """`write`, for a caller that no coroutine waits for. `quick` does the same as `fn` where it can, and engines
        may try it first."""

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        """Functions on several stores of one engine as one transaction: they run in order, and their writes become
        durable together. If one raises, nothing is written."""

    async def keep(self) -> Kept:
        """A snapshot for long work."""

    async def pin(self) -> Kept:
        """A snapshot of what is durable now, for any reads, several scans at a time, for as long as it is held."""

    def loader(self) -> Loader: ...


class Engine(Protocol):
    def store(self, number: int) -> Store:
        """The store with this number (0 to 2**32 - 1); an unused number is an empty store."""

    async def drop(self, number: int) -> None:
        """Delete everything in a store, whatever its size."""

    async def checkpoint(self) -> Path:
        """Everything acknowledged, as a data directory of its own that shares files with this one and does not change:
        for copying, until `drop_checkpoint` or the next opening."""

    async def drop_checkpoint(self, name: str) -> None:
        """Remove a checkpoint, named by the last part of its path."""

    def figures(self) -> StorageFigures | None:
        """For metrics and readiness. None: there is nothing to measure."""

    async def close(self) -> None:
        """Finish waiting writes, make everything durable and release the directory."""


class HoldableEngine(Engine, Protocol):
    """An engine of one of several processes, whose writers can be held for a moment while those of the others are."""

    async def hold(self) -> None:
        """Run no more transaction functions: those that come wait. When this returns, all that have run are durable and
        shown to readers, and nothing changes until `release`."""

    def release(self) -> None:
        """End the hold, if there is one."""

    async def flush(self) -> None:
        """Have little be left to do for a checkpoint that follows."""
