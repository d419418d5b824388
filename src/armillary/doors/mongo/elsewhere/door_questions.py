"""What the MongoDB doors of the processes of a server ask each other, beside commands: events for the change streams
that are open there, cursors that end with their collection, and fail points, which the first process counts for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.commands.fail_points import FailPoints
from armillary.doors.mongo.elsewhere.forwarded_commands import MONGO, ClientTold
from armillary.doors.mongo.settings import ProfilingLevel, ProfilingLevels
from armillary.model.bson.bson_values import Document


class _Door(Protocol):
    """`door.py`."""

    fail_points: FailPoints
    profiler: ProfilingLevels

    def is_watched_here(self, database: str, collection: str) -> bool: ...
    def announce_here(self, kind: str, database: str, collection: str, extra: Document) -> Awaitable[None]: ...
    def end_cursors_here(self, namespace: str, reason: str) -> Awaitable[None]: ...


def _made(here: LocalPlace) -> _Door | None:
    """The door, if it has been used."""
    late = here.doors.get(MONGO)
    return cast(_Door | None, late.made) if late is not None else None


@dataclass(slots=True)
class IsWatched(Question):
    """Whether a change stream of this process covers a collection."""

    database: str
    collection: str

    async def answer(self, here: LocalPlace) -> bool:
        door = _made(here)
        return door is not None and door.is_watched_here(self.database, self.collection)


@dataclass(slots=True)
class AnnounceEvent(Question):
    """Before a collection or database changes: answered when the change streams of this process have read what was
    before."""

    kind: str
    database: str
    collection: str
    extra: dict[str, Any]

    async def answer(self, here: LocalPlace) -> None:
        door = _made(here)
        if door is not None:
            await door.announce_here(self.kind, self.database, self.collection, self.extra)


@dataclass(slots=True)
class EndCursors(Question):
    """A collection is gone."""

    namespace: str
    reason: str

    async def answer(self, here: LocalPlace) -> None:
        door = _made(here)
        if door is not None:
            await door.end_cursors_here(self.namespace, self.reason)


@dataclass(slots=True)
class MeetFailPoint(Question):
    """Of the first process: what a fail point does to a command that another process answers."""

    name: str
    body: dict[str, Any]
    client: ClientTold

    async def answer(self, here: LocalPlace) -> dict[str, Any] | None:
        door = _made(here)
        if door is None:
            return None
        client: Client = self.client.made()
        return await door.fail_points.meet(self.name, self.body, client)


@dataclass(slots=True)
class DoorState:
    has_fail_points: bool = False
    levels: Mapping[str, tuple[int, int, float]] = field(default_factory=dict)  # of the profiler, by database


@dataclass(slots=True)
class AskDoorState(Question):
    """Of the first process, by one whose door is being made."""

    async def answer(self, here: LocalPlace) -> DoorState:
        door = _made(here)
        if door is None:
            return DoorState()
        levels = {name: tuple(level) for name, level in door.profiler.levels.items()}
        return DoorState(door.fail_points.are_set, cast(Any, levels))


@dataclass(slots=True)
class UseFailPoints(Question):
    """By the first process: whether commands have to ask it about fail points."""

    are_set: bool

    async def answer(self, here: LocalPlace) -> None:
        door = _made(here)
        if door is not None:
            door.fail_points.are_elsewhere = self.are_set


def adopt_levels(profiler: ProfilingLevels, state: DoorState) -> None:
    for database, level in state.levels.items():
        profiler.set(database, ProfilingLevel(*level))
