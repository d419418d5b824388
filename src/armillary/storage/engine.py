"""The seam between the product and its storage: ordered bytes that survive a crash.

An `Engine` holds many `Store`s, each one ordered map from bytes to bytes, numbered by its owner. A store is used only
through *transaction functions*: plain synchronous functions of a View (reading) or a Txn (reading and writing). They
may run again, so they change nothing but the Txn. That makes a single insert, a batch and a stored procedure the
same thing. What the bytes mean is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

from armillary.work import Check

T = TypeVar("T")


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
        """Put them with empty values."""

    def delete(self, key: bytes) -> None:
        """Deleting what is not there is fine."""

    def delete_many(self, keys: Iterable[bytes]) -> None: ...

    def delete_range(self, low: bytes, high: bytes) -> None: ...


class Kept(View, Protocol):
    """A snapshot that stays as it is until it is released, whatever is written meanwhile. It ends with a Failure if
    storage has to be opened again. One that is kept may hold what is not yet durable, and one scan of it runs at a
    time, upwards."""

    def release(self) -> None: ...


class Loader(Protocol):
    """Fills a store that nobody uses yet, far faster than transactions do: no log, no merging where keys ascend."""

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Pairs in the order of their keys, no key twice. May take some ten milliseconds."""

    def finish(self) -> None:
        """What was put is durable now, and is shown to readers by the next transaction on the store."""

    def abandon(self) -> None:
        """Leave it. What was put so far may be in the store; it is the caller's to drop."""


class Store(Protocol):
    async def read(self, fn: Callable[[View], T]) -> T:
        """Run `fn` on a snapshot that holds everything acknowledged so far, and nothing that is not durable."""

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        """The same for a function that may work for long: it is executed by `work.run` and gives way to others
        wherever it spends units. The snapshot stays the same throughout; `check` may end it at every such point."""

    def at_hand(self) -> View | None:
        """The snapshot that `read` would use, if it can be had without waiting: for point reads, which are so short
        that handing over a function would cost as much as they do. To be used at once, before anything is awaited.
        None: use `read`, which waits for what there is to wait for and translates failures."""

    def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> Awaitable[T]:
        """Run `fn` and return its result once its writes are durable. If `fn` raises, none of them happen.

        Functions run one after the other, each seeing what the ones before it wrote: serialisable by construction. One
        that spends much work (`work.spend`) gives way to readers, never to another function.
        What makes room (`is_freeing`) is written also when the disk is too full for anything else.
        """

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        """Functions on several stores of this one's engine, each on another, as one transaction: they run in their
        order, and what they write becomes durable together. If one raises, nothing happens."""

    async def keep(self) -> Kept:
        """A snapshot for work that takes long."""

    async def pin(self) -> Kept:
        """What is durable now, to be read in any way, several scans at a time, for as long as it is held."""

    def loader(self) -> Loader: ...


class Engine(Protocol):
    def store(self, number: int) -> Store:
        """The store with this number (0 to 2**32 - 1); an unused number is an empty store."""

    async def drop(self, number: int) -> None:
        """Empty a store for good, whatever its size."""

    async def checkpoint(self) -> Path:
        """All that is acknowledged, as a data directory of its own that shares files with this one and stays as it is:
        for whoever copies it, until `drop_checkpoint` or the next opening."""

    async def drop_checkpoint(self, name: str) -> None:
        """Remove one, by the last part of its path."""

    async def close(self) -> None:
        """Make everything durable and let go of the directory. Waiting writes are finished first."""
