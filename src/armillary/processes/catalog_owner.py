"""The catalog in the first process, which stores it: takes the changes of all processes, one at a time, and has each
process take over those of the others before a change is acknowledged.

If storage fails, the outcome of the change is unknown until storage can be read again. Then what is stored decides: a
change that took place is taken over by all processes, and the one that made it is told that it was its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from armillary.errors import Failure
from armillary.processes.catalog_replica import BEHIND, CatalogReplica, Change
from armillary.storage.engine import Store, View
from armillary.storage.overlay import Pair

log = logging.getLogger(__name__)

LEFT_LSN = b"left-lsn"
FIRST = 0  # the process that has the catalog, and answers for all of them where one must
NO_PLACE = -1
_LIFE_BITS = 40  # of a version: changes of one life of the first process are counted below, its lives above
_END = b"\xff" * 16
# Has every process but the one that made it take over a change, which may be told late that it took place. Returns the
# highest lsn of the containers that left.
Spread = Callable[[Change, int, bool], Awaitable[int]]


class Committed(NamedTuple):
    version: int  # of the catalog, after the change; BEHIND: another change came first, and nothing was done
    # What the owner has written after the change. The process that made the change takes it over with the answer, and
    # is not asked to: it cannot take over what follows a change before it knows that the change was stored.
    further: dict[bytes, bytes | None]


class CatalogOwner:
    """Made by `open`."""

    def __init__(self, stored: Store, replica: CatalogReplica, number: int) -> None:
        self.replica = replica
        self.changing = asyncio.Lock()  # held while a change is stored and taken over
        self.spread: Spread = _nowhere
        # Called before a change of the first process is stored, which they may refuse. A process that is started after
        # that reads the catalog with the change: it waits for the same lock.
        self.guards: list[Callable[[], None]] = []
        self._stored = stored
        self._number = number
        self._unknown: tuple[int, Change] | None = None  # the change whose outcome is unknown, and who made it

    @classmethod
    async def open(cls, stored: Store, replica: CatalogReplica, life: int = 0, number: int = FIRST) -> CatalogOwner:
        """`life`: how often a first process was started before, so that versions grow over their lives. `number`: of
        this process."""
        replica.load((life << _LIFE_BITS) + 1, await stored.read(_all))
        return cls(stored, replica, number)

    async def commit(self, origin: int, change: Change, is_freeing: bool) -> Committed:
        """Store a change of a process."""
        async with self.changing:
            if self._unknown is not None:
                await self._find_out(is_freeing)
            if change.version != self.replica.version:
                return Committed(BEHIND, {})
            if origin == self._number:
                for guard in self.guards:
                    guard()
            if change.is_empty:
                await self._stored.write(lambda txn: None, is_freeing=is_freeing)
                return Committed(change.version, {})
            try:
                await self._stored.write(change.apply, is_freeing=is_freeing)
            except Failure:
                self._unknown = origin, change
                raise
            further = await self._taken_over(origin, change, is_late=False)
            return Committed(self.replica.version, further)

    async def _taken_over(self, origin: int, change: Change, *, is_late: bool) -> dict[bytes, bytes | None]:
        """Returns what was written besides."""
        self.replica.take(change)
        lsn = await self.spread(change, origin, is_late)
        stored = await self.replica.read(lambda view: view.get(LEFT_LSN))
        if lsn <= int.from_bytes(stored or b"", "big"):
            return {}
        # What other processes have written to a deleted container: new containers go on from there.
        further = Change(self.replica.version, {LEFT_LSN: lsn.to_bytes(8, "big")})
        await self._stored.write(further.apply, is_freeing=True)
        self.replica.take(further)
        await self.spread(further, NO_PLACE if is_late or origin == self._number else origin, False)
        return further.writes

    async def _find_out(self, is_freeing: bool) -> None:
        """Raises while storage cannot be read."""
        assert self._unknown is not None
        origin, change = self._unknown
        # As a transaction: readers are shown what was before until storage has been opened again.
        stored = dict(await self._stored.write(_all, is_freeing=is_freeing))
        self._unknown = None
        if stored == self.replica.pairs():
            return  # it did not take place
        log.warning("a change of the catalog whose outcome was not known has taken place")
        await self._taken_over(origin, change, is_late=True)


def _all(view: View) -> list[Pair]:
    return list(view.scan(b"", _END))


async def _nowhere(change: Change, origin: int, is_late: bool) -> int:
    return 0
