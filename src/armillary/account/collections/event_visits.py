"""Visits to partitions that keep the events of change streams: to begin with it, and to read them. They are part of
commands that are charged as a whole, and uncounted themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from armillary import limits
from armillary.account.container import Container
from armillary.account.visits.visits import Visit
from armillary.errors import Failure, Kind, Reason
from armillary.model import documents, layout
from armillary.model.encoding import unpack_header
from armillary.partition.history import change_stream_events, log
from armillary.partition.history.change_stream_events import Event
from armillary.partition.partition import Partition
from armillary.storage.engine import View


@dataclass(slots=True)
class EventState:
    is_kept: bool  # events are kept from now on
    lsn: int  # of the partition
    charge_ru: float = 0.0


@dataclass(slots=True)
class LookAtEvents(Visit[EventState]):
    """Whether a partition keeps events, and up to where they are."""

    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> EventState:
        since = await partition.read(change_stream_events.since)
        return EventState(since is not None, partition.lsn)


@dataclass(slots=True)
class KeepEvents(Visit[EventState]):
    """Have a partition keep events from now on."""

    epk: bytes | None = None
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "write"

    async def run(self, container: Container, partition: Partition) -> EventState:
        await partition.keep_events()
        return EventState(True, partition.lsn)


@dataclass(slots=True)
class EventsRead:
    events: list[Event] = field(default_factory=list)
    end: bytes = b""  # the log was read up to here
    charge_ru: float = 0.0


@dataclass(slots=True)
class ReadEvents(Visit[EventsRead]):
    """Some events of a stretch of keys, behind a place in the log."""

    low: bytes
    high: bytes
    place: bytes
    most: int
    since_ms: int | None = None  # only events of that time or later
    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> EventsRead:
        return await partition.read(lambda view: self._look(view, partition))

    def _look(self, view: View, partition: Partition) -> EventsRead:
        place, since_ms = self.place, self.since_ms
        known_since = change_stream_events.since(view)
        if known_since is None or (place and change_stream_events.is_lost(view, place, known_since)):
            raise lost()
        last_lsn = partition.lsn_in(view)
        found: list[Event] = []
        end = place
        for key, value in islice(change_stream_events.after(view, place, last_lsn), limits.MONGO_EVENTS_MAX):
            event = change_stream_events.unpack_event(key, value)
            end = event.place
            if self.low <= event.epk < self.high and (since_ms is None or event.wall_ms >= since_ms):
                found.append(event)
                if len(found) > self.most:
                    return EventsRead(found, end)
        return EventsRead(found, max(end, change_stream_events.place_after(last_lsn)))


@dataclass(slots=True)
class RememberEvents(Visit[EventsRead]):
    """Events from before the first change stream, when none were kept: the documents written since `since_ms`, in their
    present form, as inserts."""

    since_ms: int
    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> EventsRead:
        return EventsRead(await partition.read(lambda view: self._look(view, container)))

    def _look(self, view: View, container: Container) -> list[Event]:
        noted: list[Event] = []
        for transaction in log.transactions(view, 0, change_stream_events.since(view) or 0):
            for stored in transaction.items:
                header = unpack_header(stored)
                if header.ts * 1000 + 999 >= self.since_ms:
                    document = documents.bson_document(stored)
                    key = documents.document_key(container.key, document)
                    place = layout.event_key(header.lsn, header.step)[1:]
                    wall_ms = max(self.since_ms, header.ts * 1000)
                    noted.append(
                        Event(place, change_stream_events.INSERT, header.epk, wall_ms, key, document, None, None)
                    )
        return noted


def lost() -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        "Resume of change stream was not possible, as the resume point may no longer be kept.",
        details={"reason": Reason.HISTORY_LOST},
    )
