"""Changes of the catalog on a disk that fails: only storage can tell whether a transaction took place, and what is in
memory has to be what is stored. Whoever asked for the change is kept waiting for a while at most; it is found out all
the same, and nothing else is changed before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.storage.engine import Store, Txn

T = TypeVar("T")
Wanted = Mapping[bytes, bytes | None]  # what is stored afterwards; None: nothing

_log = logging.getLogger(__name__)


class Decisions(Generic[T]):
    def __init__(self, store: Store, wanted: Callable[[Sequence[T], Sequence[T]], Wanted]) -> None:
        """`wanted`: what is stored when some were removed and others added."""
        self._store = store
        self._wanted = wanted
        self._pending: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Refuses while it is not known what became of an earlier change."""
        if self._pending is not None:
            raise Failure(
                Kind.UNAVAILABLE,
                "Storage has failed, and what became of an earlier change is not known yet. Check the disk.",
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
        it is known. `waits`: until then, however long it takes."""
        self.check()
        added: list[T] | None = None

        def noted(txn: Txn) -> list[T]:
            nonlocal added
            added = run(txn)
            return added

        try:
            await self._store.write(noted, is_freeing=is_freeing)
        except Failure as failure:
            if added is None:
                raise  # it was refused
            wanted = self._wanted(removed, added)
            try:
                async with asyncio.timeout(None if waits else limits.UNDECIDED_SECONDS_MAX):
                    await self._find_out(wanted)
            except TimeoutError:
                self._pending = asyncio.create_task(self._decide(wanted, lambda: apply(added)))
                raise failure from None
        assert added is not None
        await apply(added)
        return added

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait([self._pending])

    async def _decide(self, wanted: Wanted, apply: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._find_out(wanted)
            await apply()
        except Failure as failure:
            _log.warning("a change whose outcome was not known: %s", failure.message)
        finally:
            self._pending = None

    async def _find_out(self, wanted: Wanted) -> None:
        """Raises if it did not take place."""
        while True:
            try:
                # As a transaction: readers are shown what was before until storage has been opened again.
                stored = await self._store.write(lambda txn: txn.get_many(list(wanted)), is_freeing=True)
                break
            except Failure:
                await asyncio.sleep(limits.RESHAPE_POLL_SECONDS)
        if stored != list(wanted.values()):
            raise Failure(Kind.UNAVAILABLE, "Storage failed, and nothing was changed. Check the disk, then try again.")
