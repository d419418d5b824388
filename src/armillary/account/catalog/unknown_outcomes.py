"""Catalog transactions whose outcome is unknown because storage failed: the stored records are read again to resolve
it, as the memory must agree with what is stored. The client waits for a limited time; after that the outcome is
resolved in the background, and until then further changes are refused.

A change that has begun goes on if its client disconnects. `apply` updates the memory, once and in one place, whether
the outcome is known at once or late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.engine import Store, Txn

T = TypeVar("T")
Wanted = Mapping[bytes, bytes | None]  # what is stored afterwards; None: nothing

_log = logging.getLogger(__name__)


class OutcomeResolver(Generic[T]):
    def __init__(self, store: Store, clock: Clock, wanted: Callable[[Sequence[T], Sequence[T]], Wanted]) -> None:
        """`wanted`: what is stored when some were removed and others added."""
        self._store = store
        self._clock = clock
        self._wanted = wanted
        self._is_unknown = False  # storage failed, and the outcome is being read
        self._pending: asyncio.Task[list[T]] | None = None  # a change that no client waits for any more
        self.refusal: Callable[[], Failure] | None = None  # why no change is accepted on this node

    def check(self) -> None:
        """Refuse on a node that follows, and while the outcome of an earlier change is unknown."""
        if self.refusal is not None:
            raise self.refusal()
        if self._pending is not None or self._is_unknown:
            raise Failure(
                Kind.UNAVAILABLE,
                "Storage has failed, and the outcome of an earlier change is not known yet. Check the disk.",
            )

    async def write(
        self,
        run: Callable[[Txn], list[T]],
        apply: Callable[[list[T]], Awaitable[None]],
        removed: Sequence[T] = (),
        *,
        is_freeing: bool = False,
        waits: bool = False,
    ) -> list[T]:
        """Run a transaction that stores what it returns, and takes others out; then `apply` that in memory, now or when
        the outcome is known. `waits`: until then, however long it takes."""
        self.check()
        failed: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        doing = asyncio.create_task(self._do(run, apply, removed, is_freeing, None if waits else failed))
        either: set[asyncio.Future[Any]] = {doing, failed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not doing.done():
                self._pending = doing
                doing.add_done_callback(self._decided)
        if not doing.done():
            raise failed.result()
        return doing.result()

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait([self._pending])

    async def _do(
        self,
        run: Callable[[Txn], list[T]],
        apply: Callable[[list[T]], Awaitable[None]],
        removed: Sequence[T],
        is_freeing: bool,
        failed: asyncio.Future[Failure] | None,
    ) -> list[T]:
        added: list[T] | None = None

        def noted(txn: Txn) -> list[T]:
            nonlocal added
            added = None  # it may run again, and refuse then
            added = run(txn)
            return added

        try:
            await self._store.write(noted, is_freeing=is_freeing)
        except Failure as failure:
            if added is None:
                raise  # it was refused
            await self._decide(self._wanted(removed, added), failure, failed)
        assert added is not None
        await apply(added)
        return added

    async def _decide(self, wanted: Wanted, failure: Failure, failed: asyncio.Future[Failure] | None) -> None:
        """Tells the client when it has waited long enough. Raises if the change did not take place."""

        async def tell() -> None:
            await self._clock.sleep(limits.UNDECIDED_SECONDS_MAX)
            if failed is not None and not failed.done():
                failed.set_result(failure)

        timer = asyncio.create_task(tell())
        self._is_unknown = True
        try:
            await self._find_out(wanted)
        finally:
            self._is_unknown = False
            timer.cancel()

    def _decided(self, doing: asyncio.Task[list[T]]) -> None:
        self._pending = None
        if doing.cancelled():
            return
        error = doing.exception()
        if isinstance(error, Failure):
            _log.warning("a change whose outcome was not known: %s", error.message)
        elif error is not None:
            _log.error("a change whose outcome was not known failed", exc_info=error)

    async def _find_out(self, wanted: Wanted) -> None:
        """Raises if it did not take place."""
        while True:
            try:
                # As a transaction: readers are shown what was before until storage has been opened again.
                stored = await self._store.write(lambda txn: txn.get_many(list(wanted)), is_freeing=True)
                break
            except Failure:
                await self._clock.sleep(limits.RESHAPE_POLL_SECONDS)
        if stored != list(wanted.values()):
            raise Failure(Kind.UNAVAILABLE, "Storage failed, and nothing was changed. Check the disk, then try again.")
