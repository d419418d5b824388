"""Holds: what one process has others keep as it is for a moment, such as what writers would change. Each tells when
its hold has begun; what needs all of them runs then, and is good only if every hold lasted until it was ended.

A hold is a question that is answered when it is over. It ends at the latest when its time is up, when the process that
asked waits no more, and when the connection to that one is lost, so no process is held by another one that has ended.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from armillary import limits
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Place, Question, Told
from armillary.errors import Failure, Kind


class _Holding(Protocol):
    """The process that was asked, or told (`places.py`)."""

    number: int
    holds: Holds

    def tell(self, number: int, message: Told) -> None: ...


@dataclass(slots=True)
class Hold(Question, ABC):
    """Subclasses say what is kept as it is."""

    id: bytes
    origin: int  # the process that asks
    seconds: float

    @abstractmethod
    def held(self, here: LocalPlace) -> AbstractAsyncContextManager[Any]:
        """The hold; what it returns as it begins is told to the process that asked."""

    async def answer(self, here: LocalPlace) -> bool:
        """Whether it lasted until it was ended."""
        process = cast(_Holding, here)
        ended = process.holds.enter(self.id)
        try:
            async with asyncio.timeout(self.seconds), self.held(here) as found:
                process.tell(self.origin, HoldBegun(self.id, process.number, found))
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            process.holds.leave(self.id)
        return True


@dataclass(slots=True)
class HoldBegun(Told):
    id: bytes
    process: int
    found: Any

    def take(self, here: LocalPlace) -> None:
        cast(_Holding, here).holds.begun(self)


@dataclass(slots=True)
class EndHold(Told):
    id: bytes

    def take(self, here: LocalPlace) -> None:
        cast(_Holding, here).holds.end(self.id)


class Holds:
    """Of one process: those that it has asked for, and those that it keeps."""

    def __init__(self) -> None:
        self._asked: dict[bytes, dict[int, asyncio.Future[Any]]] = {}  # by process: done when it has begun
        self._running: dict[bytes, dict[int, asyncio.Task[bool]]] = {}  # until it is over
        self._kept: dict[bytes, asyncio.Event] = {}  # set when it is ended

    # Those that others have asked for.

    def enter(self, hold_id: bytes) -> asyncio.Event:
        ended = self._kept[hold_id] = asyncio.Event()
        return ended

    def leave(self, hold_id: bytes) -> None:
        self._kept.pop(hold_id, None)

    def end(self, hold_id: bytes) -> None:
        ended = self._kept.get(hold_id)
        if ended is not None:
            ended.set()

    # Asking.

    def begun(self, told: HoldBegun) -> None:
        waiting = self._asked.get(told.id, {}).get(told.process)
        if waiting is not None and not waiting.done():
            waiting.set_result(told.found)

    @asynccontextmanager
    async def asked(
        self, hold: Hold, places: Sequence[Place], *, must_last: bool = True
    ) -> AsyncIterator[dict[int, Any]]:
        """Have these processes hold. What they tell as it begins, by process. A Failure is raised if one does not begin
        in its time. `must_last`: also if it has not held to the end, so that what was done in between does not
        count."""
        loop = asyncio.get_running_loop()
        begun = self._asked[hold.id] = {place.number: loop.create_future() for place in places}
        asked = {place.number: loop.create_task(_asked(place, hold)) for place in places}
        self._running[hold.id] = asked
        try:
            found: dict[int, Any] = {}
            for number, waiting in begun.items():
                await asyncio.wait({waiting, *asked.values()}, return_when=asyncio.FIRST_COMPLETED)
                ended = [each for each, task in asked.items() if task.done()]
                if ended:
                    raise asked[ended[0]].exception() or _not_held(ended[0])
                found[number] = waiting.result()
            yield found
            for place in places:
                place.tell(EndHold(hold.id))
            if must_last:
                for number, task in asked.items():
                    if not await task:
                        raise _not_held(number)
            else:
                await asyncio.gather(*asked.values(), return_exceptions=True)
        finally:
            del self._asked[hold.id], self._running[hold.id]
            for task in asked.values():
                task.cancel()
            await asyncio.gather(*asked.values(), return_exceptions=True)

    def check(self, hold: Hold) -> None:
        """Raises if one that was asked for has ended."""
        for number, task in self._running[hold.id].items():
            if task.done():
                raise _not_held(number)


async def _asked(place: Place, hold: Hold) -> bool:
    try:
        has_lasted: bool = await place.ask(hold, limit_s=hold.seconds + limits.HOLD_ANSWER_SECONDS)
    except (Lost, TimeoutError):
        raise _not_held(place.number) from None
    return has_lasted


def _not_held(number: int) -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        f"Process {number} of the server does not answer, so nothing was done: writers of all processes must be held "
        "at the same moment. Try again.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )
