"""The moments at which transactions and snapshot reads begin: writers of all processes are held while each pins its
partitions. Those that are asked for while one is being taken share the next. The first process asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from armillary.account.visits.elsewhere.place import LocalPlace
from armillary.account.visits.write_visits import write_conflict
from armillary.processes.moments.holds import Hold
from armillary.processes.moments.moments import Moments, in_time, is_whole, writers_held
from armillary.processes.places import ProcessHere
from armillary.processes.transactions.parts import Begun
from armillary.processes.transactions.spanning_questions import transactions_of


@dataclass(slots=True)
class HoldAndBegin(Hold):
    begun: list[Begun]

    @asynccontextmanager
    async def held(self, here: LocalPlace) -> AsyncIterator[list[bytes] | None]:
        """The transactions that cannot go on; None: it is no good moment, for a transaction is committed in some
        processes, and not in others."""
        async with writers_held(here):
            yield await transactions_of(here).parts.begin(here.account, self.begun) if is_whole(here) else None


class SharedMoments:
    """Of the first process."""

    def __init__(self, here: ProcessHere, moments: Moments) -> None:
        self._here = here
        self._moments = moments
        self._waiting: list[Begun] = []
        self._running: asyncio.Task[set[bytes]] | None = None
        self._next: asyncio.Task[set[bytes]] | None = None

    async def begin(self, begun: Begun) -> None:
        self._waiting.append(begun)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._begin_after(self._running))
            self._next.add_done_callback(_end)
        if begun.id in await asyncio.shield(self._next):
            raise write_conflict()

    async def _begin_after(self, running: asyncio.Task[set[bytes]] | None) -> set[bytes]:
        """Returns those that cannot go on."""
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        waiting, self._waiting = self._waiting, []
        async with self._moments.catalog_unchanged():
            while True:
                overtaken = await self._begun(waiting)
                if overtaken is not None:
                    return overtaken
                await self._moments.commits_done()

    async def _begun(self, waiting: list[Begun]) -> set[bytes] | None:
        here, places = self._here, list(self._here.places.others.values())
        hold: HoldAndBegin = self._moments.new_hold(HoldAndBegin, waiting)
        async with in_time(), hold.held(here) as own, here.holds.asked(hold, places) as told:
            found = [own, *told.values()]
        overtaken: set[bytes] = set()
        for each in found:
            if each is None:
                return None
            overtaken.update(each)
        return overtaken


def _end(task: asyncio.Task[set[bytes]]) -> None:
    """Those that waited for it may all have ended, with the process that they were in: then its failure is not read."""
    if not task.cancelled():
        task.exception()
