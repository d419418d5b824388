"""Partitions of a place that other processes may take over: the replicas of a log that this process leads. They answer
while it is known to lead. What is refused because another process leads, or may lead, has done nothing: it waits until
that is decided, for a while, and is asked of the partition's present holder then (`account/visits/visits.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.visits.visits import MOVING
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model.ranges import KeyRange
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.processes.divided_engine import Leads, held_elsewhere
from armillary.storage.engine import Kept, Loader, Quick, Receiver, Store, Txn, View
from armillary.work import Check

T = TypeVar("T")

_MESSAGE: Final = "The partition key range {} is moving to another process. Try again at once."


class LedStore:
    """A Store of a log. What its engine refuses as not leading any more, and reads while it may not lead, are refused
    like requests to a range that is completing its split: nothing was done."""

    def __init__(self, store: Store, key_range: KeyRange, leads: Leads) -> None:
        self.place = place_of_store(key_range.store)
        self._store = store
        self._range_id = key_range.id
        self._leads = leads

    def leave(self) -> None:
        """Serve nothing any more. What has begun is answered."""
        self._leads = _never

    def _moving(self, kind: Kind) -> Failure:
        return Failure(kind, _MESSAGE.format(self._range_id), details={MOVING: True})

    def _check(self) -> None:
        """Before state is read: it has everything then that was acknowledged."""
        if not self._leads():
            raise self._moving(Kind.RANGE_GONE)

    async def read(self, fn: Callable[[View], T]) -> T:
        self._check()
        return await self._store.read(fn)

    async def evaluate(self, fn: Callable[[View], T], check: Check | None = None) -> T:
        self._check()
        return await self._store.evaluate(fn, check)

    def at_hand(self) -> View | None:
        return self._store.at_hand() if self._leads() else None

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        return await self._written(partial(self._store.write, fn, is_freeing=is_freeing))

    def deliver(self, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None) -> None:
        if self._leads is _never:
            raise self._moving(Kind.RANGE_BUSY)
        self._store.deliver(fn, receiver, quick)  # the receiver knows what NOT_LEADER means

    async def write_together(self, parts: Sequence[tuple[Self, Callable[[Txn], T]]]) -> list[T]:
        if any(store.place != self.place for store, _ in parts):
            raise held_elsewhere()  # callers divide by places before
        bare: list[tuple[Any, Callable[[Txn], T]]] = [(store._store, fn) for store, fn in parts]
        return await self._written(partial(self._store.write_together, bare))

    async def _written(self, write: Callable[[], Awaitable[T]]) -> T:
        if self._leads is _never:
            raise self._moving(Kind.RANGE_BUSY)
        try:
            return await write()
        except Failure as failure:
            if failure.kind is Kind.NOT_LEADER:
                raise self._moving(Kind.RANGE_BUSY) from None
            raise

    async def keep(self) -> Kept:
        self._check()
        return await self._store.keep()

    async def pin(self) -> Kept:
        self._check()
        return await self._store.pin()

    def loader(self) -> Loader:
        return self._store.loader()


def _never() -> bool:
    return False


class LedPartition(Partition):
    def __init__(
        self, store: Store, schema: Schema, key_range: KeyRange, clock: Clock, first_lsn: int, leads: Leads
    ) -> None:
        self._led = LedStore(store, key_range, leads)
        self._leads = leads
        super().__init__(self._led, schema, key_range, clock, first_lsn)

    def leave(self) -> None:
        """Another process holds its place, or will. Requests that wait here, and those that come, are to ask again."""
        if self.is_open:
            self.hold()
        self._led.leave()
        if self.is_held:
            self.move()

    async def released(self) -> None:
        """Also until it is known whether this process still leads."""
        await super().released()
        ends_s = self.clock.elapsed_s() + limits.PLACE_WAIT_SECONDS
        while not self.is_moved and not self._leads():
            if self.clock.elapsed_s() >= ends_s:
                raise held_elsewhere()
            await self.clock.sleep(limits.PLACE_RETRY_SECONDS)
