"""How the processes of a server go on with a first process that was started anew. Each tells it which locks it holds
and what the control API has set, takes over the catalog as it is stored, and follows it from then on. Until all that
had been serving have done so, the first process opens no container, changes no catalog and grants no lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, cast

from armillary import limits
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question, Told
from armillary.errors import Failure
from armillary.processes.catalog_questions import CatalogState, locks_of, state_for
from armillary.processes.places import ProcessHere
from armillary.processes.server_controls import Controls, ServerControls
from armillary.processes.shared_locks import Token

log = logging.getLogger(__name__)


class _Rejoined(Protocol):
    """The first process."""

    rejoining: Rejoining


@dataclass(slots=True)
class HoldLocks(Told):
    """Of this process, before it asks anything."""

    place: int
    held: list[tuple[str, int]]  # names, and numbers of the requests

    def take(self, here: LocalPlace) -> None:
        for name, number in self.held:
            locks_of(here).hold(name, Token(self.place, number))


@dataclass(slots=True)
class JoinFirst(Question):
    """The catalog as it is stored. From then on this process is told of changes."""

    origin: int
    controls: ServerControls

    async def answer(self, here: LocalPlace) -> CatalogState:
        rejoining = cast(_Rejoined, here).rejoining
        await rejoining.has_catalog.wait()
        rejoining.controls = self.controls
        return await state_for(here, self.origin)


@dataclass(slots=True)
class HasJoined(Told):
    """It has taken that over."""

    number: int

    def take(self, here: LocalPlace) -> None:
        cast(_Rejoined, here).rejoining.joined(self.number)


class Rejoining:
    """In the first process, which waits for those that had been serving before it was started."""

    def __init__(self, awaited: Collection[int], patience_s: float = limits.JOIN_SECONDS_MAX) -> None:
        """`patience_s`: how long they are waited for."""
        self.has_catalog = asyncio.Event()
        self.controls: ServerControls | None = None  # as the others have them
        self._patience_s = patience_s
        self._awaited = set(awaited)
        self._all = asyncio.Event()
        self.joined(-1)

    def joined(self, number: int) -> None:
        """Or ended."""
        self._awaited.discard(number)
        if not self._awaited:
            self._all.set()

    async def done(self) -> Collection[int]:
        """The processes that have not joined for long: they are to be started anew."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._all.wait()
        except TimeoutError:
            log.error("the first process goes on without those that have not joined it: %s", sorted(self._awaited))
        return self._awaited


async def rejoin(here: ProcessHere, controls: Controls, link: Link) -> None:
    """Go on with a first process that was started anew, at the other end of the link."""

    async def load() -> CatalogState:
        link.tell(HoldLocks(here.number, [(name, token.number) for token, name in here.held.items()]))
        question = JoinFirst(here.number, controls.present())
        state: CatalogState = await link.ask(question, limit_s=limits.CATALOG_SECONDS_MAX)
        return state

    try:
        await here.take_stored(load)
    except Lost:
        return  # it has ended again
    except (Failure, TimeoutError) as error:
        log.error("process %d cannot go on with the first process (%r): it is started anew", here.number, error)
        here.end_process(here.number)
        return
    link.tell(HasJoined(here.number))
