"""The points that splits, merges and moves reach: people who look are told of them, and reshapes can be stopped there
until they are told to go on, for tests, of applications too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from armillary.account.events import EventKind, Events
from armillary.account.reshaping.split_and_merge import BEGUN, POINTS, SWITCHED, Reshape
from armillary.errors import bad_request


class Pauses:
    def __init__(self) -> None:
        self._pauses: frozenset[str] = frozenset()
        self._paused: dict[Reshape, asyncio.Event] = {}

    def pause(self, points: Collection[str]) -> None:
        """From now on every reshape stops at these points until it is told to go on; none: nothing stops."""
        unknown = sorted(set(points) - set(POINTS))
        if unknown:
            raise bad_request(f"A reshape has no point '{unknown[0]}'; it has {', '.join(POINTS)}.")
        self._pauses = frozenset(points)
        for reshape, event in list(self._paused.items()):
            if reshape.point not in self._pauses:
                event.set()

    @property
    def pauses(self) -> list[str]:
        """Where reshapes stop now, in order."""
        return [point for point in POINTS if point in self._pauses]

    def advance(self, reshape: Reshape | None = None) -> int:
        """Let one go on from where it stopped, or all. Returns how many had stopped."""
        events = [event for each, event in self._paused.items() if reshape is None or each is reshape]
        for event in events:
            event.set()
        return len(events)

    def is_paused(self, reshape: Reshape) -> bool:
        return reshape in self._paused

    async def stop_at(self, reshape: Reshape, point: str) -> None:
        """Wait, if reshapes stop there."""
        if point in self._pauses:
            event = self._paused[reshape] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self._paused[reshape]


def tell_point(events: Events, reshape: Reshape, point: str | None) -> None:
    """Record a point that a reshape has reached, for people who look; None: it was cancelled."""
    what = reshape.kind
    parents = " and ".join(map(str, reshape.parents))
    done: EventKind = "merged" if reshape.is_merge else "split-switched"
    kinds: dict[str | None, EventKind] = {None: "split-cancelled", BEGUN: "split-begun", SWITCHED: done}
    state = f"is {point}" if point is not None else "was taken back"
    events.record(
        kinds.get(point, "split-point"),
        f"The {what} of partition {parents} of {reshape.container.name} ({reshape.reason}) {state}.",
        reshape.container.database.name,
        reshape.container.name,
        reshape=reshape.number,
        what=what,
        point=point,
        partitions=list(reshape.parents),
        reason=reshape.reason,
    )
