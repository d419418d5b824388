"""What has happened to an account lately, for people who look: containers created and deleted, splits, throughput, full
keys, faults on request. The modules that do these things record them; the last ones are kept in memory.

Numbers only grow, over restarts too, and are shared with the figures of `insight/load_watch.py`, so that one number
says how much of both a page has seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from armillary import limits
from armillary.clock import Clock
from armillary.model.json_members import shown

EventKind = Literal[
    "created",
    "deleted",
    "scaled",
    "split-begun",
    "split-point",
    "split-switched",
    "split-cancelled",
    "merged",
    "migrated",
    "key-full",
    "storage-full",
    "fault-hit",
    "snapshot",
    "restored",
    "clock-moved",
    "capture-begun",
    "capture-ended",
]
_NUMBERS_PER_S: Final = 1_000
Forward = Callable[[EventKind, str, str | None, str | None, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    time_s: float
    kind: EventKind
    text: str
    database: str | None = None
    container: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Events:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # From the time of the start, so that numbers of an earlier process are lower.
        self._number = int(clock.now_s() * _NUMBERS_PER_S)
        self._kept: deque[Event] = deque(maxlen=limits.EVENTS_MAX)
        self._told_s: dict[object, float] = {}  # when something that goes on was last recorded
        self._waiting: set[asyncio.Future[None]] = set()
        self.forward: Forward | None = None  # to the process that shows what happens in all of them

    # Numbers.

    @property
    def number(self) -> int:
        """The last that was given."""
        return self._number

    def next_number(self) -> int:
        self._number += 1
        return self._number

    # Recording.

    def record(
        self, kind: EventKind, text: str, database: str | None = None, container: str | None = None, **details: Any
    ) -> None:
        if self.forward is not None:
            self.forward(kind, text, database, container, details)
            return
        self._kept.append(Event(self.next_number(), self._clock.now_s(), kind, text, database, container, details))
        self.wake()

    def record_again(
        self,
        about: object,
        every_s: float,
        kind: EventKind,
        text: Callable[[], str],
        *names: str | None,
        **details: Any,
    ) -> None:
        """Record something that may happen at every request: at most once in so many seconds for each thing that it is
        `about`."""
        now_s = self._clock.elapsed_s()
        if now_s - self._told_s.get(about, -every_s) < every_s:
            return
        if len(self._told_s) >= limits.EVENTS_MAX:
            self._told_s.clear()
        self._told_s[about] = now_s
        self.record(kind, text(), *names, **details)

    def resource_changed(self, verb: str, path: list[str]) -> None:
        """A database or container was created or deleted."""
        if verb in ("created", "deleted"):
            what = "database" if len(path) == 1 else "container"
            kind: EventKind = "created" if verb == "created" else "deleted"
            self.record(kind, f"The {what} {shown('/'.join(path))} was {verb}.", *path)

    # Reading.

    def after(self, number: int, limit: int = limits.EVENTS_MAX) -> list[Event]:
        """The last ones after a number, the oldest first."""
        found = [each for each in self._kept if each.number > number]
        return found[-limit:]

    def has_after(self, number: int) -> bool:
        return bool(self._kept) and self._kept[-1].number > number

    async def wait(self, seconds: float) -> None:
        """Until something is recorded, or this time is over."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        self._waiting.add(waiting)
        try:
            await asyncio.wait((waiting, pause), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(waiting)
            pause.cancel()

    def wake(self) -> None:
        """End all waits."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
