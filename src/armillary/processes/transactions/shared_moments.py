"""The moments at which transactions and snapshot reads begin: writers of all processes are held while each pins its
partitions. Those that are asked for while one is being taken share the next. The first process asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from armillary.account.visits.elsewhere.place import LocalPlace
from armillary.processes.moments.holds import Hold
from armillary.processes.moments.moments import Moments, in_time, is_whole, writers_held
from armillary.processes.places import ProcessHere
from armillary.processes.transactions.parts import Begun
from armillary.processes.transactions.spanning_questions import transactions_of


@dataclass(slots=True)
class HoldAndBegin(Hold):
    begun: list[Begun]

    @asynccontextmanager
    async def held(self, here: LocalPlace) -> AsyncIterator[bool]:
        """Whether it was a good moment: not while a transaction is committed in some processes, and not in others."""
        transactions = transactions_of(here)
        async with writers_held(here):
            if not is_whole(here):
                yield False
                return
            try:
                await transactions.parts.begin(here.account, self.begun)
                yield True
            except BaseException:
                for each in self.begun:
                    transactions.parts.end(each.id)
                raise


class SharedMoments:
    """Of the first process."""

    def __init__(self, here: ProcessHere, moments: Moments) -> None:
        self._here = here
        self._moments = moments
        self._waiting: list[Begun] = []
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def begin(self, begun: Begun) -> None:
        self._waiting.append(begun)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._begin_after(self._running))
        await asyncio.shield(self._next)

    async def _begin_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        waiting, self._waiting = self._waiting, []
        async with self._moments.catalog_unchanged():
            while not await self._has_begun(waiting):
                await self._moments.commits_done()

    async def _has_begun(self, waiting: list[Begun]) -> bool:
        here, places = self._here, list(self._here.places.others.values())
        hold: HoldAndBegin = self._moments.new_hold(HoldAndBegin, waiting)
        async with in_time(), hold.held(here) as is_good, here.holds.asked(hold, places) as told:
            is_good = is_good and all(told.values())
        if not is_good:
            for each in waiting:
                transactions_of(here).end(each.id)
        return is_good
