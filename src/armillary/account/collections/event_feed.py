"""The events of change streams: every insert, change and delete of a container's documents, from a position on. A
position has a place in the log for each range of keys, so it stays valid after splits, merges and restarts.

Events of one partition come in the order of its log; those of several are merged by the time of the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.container_state import ContainerState
from armillary.account.container import Container
from armillary.account.following import FollowingAccount
from armillary.errors import Failure, Kind, Reason
from armillary.model import documents, layout
from armillary.model.encoding import unpack_header
from armillary.model.keys import SPACE_HIGH, SPACE_LOW
from armillary.partition.history import change_stream_events, log
from armillary.partition.history.change_stream_events import Event
from armillary.partition.partition import Partition
from armillary.storage.engine import View
from armillary.storage.replication.group_commit import not_leader

INSERT, UPDATE, REPLACE = change_stream_events.INSERT, change_stream_events.UPDATE, change_stream_events.REPLACE

DocumentEvent: TypeAlias = Event  # one change of one document


class Stretch(NamedTuple):
    low: bytes
    high: bytes
    place: bytes  # events up to here were given


Position = tuple[Stretch, ...]


class Told(NamedTuple):
    event: Event
    position: Position  # behind it


async def watch(account: Account, container: Container) -> None:
    """Keep events from now on. On a follower the leader is asked for it, and what it has written is waited for."""
    if container.are_events_begun:
        return
    if isinstance(account, FollowingAccount):
        await _watch_at_leader(account, container)
        return

    def change(state: ContainerState, _new_store: object) -> ContainerState:
        return replace(state, is_watched=True)

    def keep() -> None:
        container.schema.keeps_events = True

    if not container.schema.keeps_events:
        async with account.control:
            await account.catalog.change_container(container.record, change, on_changed=keep)
    # Also where the record says so: the server may have stopped, or storage failed, before the partitions knew.
    partitions = list(container.partitions.values())
    for partition in partitions:
        await partition.keep_events()
    container.are_events_begun = partitions == list(container.partitions.values())


async def _watch_at_leader(account: FollowingAccount, container: Container) -> None:
    topology = account.topology
    if await _has_begun(container):
        return
    if topology is None:
        raise not_leader()
    await asyncio.sleep(0)  # a request is started without a task, which a timeout needs
    await topology.keep_events(container.record.rid)
    if not await topology.refresh(limits.MONGO_CAUSAL_SECONDS_MAX) or not await _has_begun(container):
        raise Failure(
            Kind.UNAVAILABLE, "This node does not see yet that changes of the collection are kept. Try again."
        )


async def _has_begun(container: Container) -> bool:
    """Whether every partition keeps events, as far as it is stored here."""
    for partition in list(container.partitions.values()):
        if await partition.read(change_stream_events.since) is None:
            return False
    return True


def now(container: Container) -> Position:
    """Behind everything that was done so far."""
    return tuple(
        [
            Stretch(
                partition.range.low if container.key is not None else SPACE_LOW,
                partition.range.high if container.key is not None else SPACE_HIGH,
                change_stream_events.place_after(partition.lsn),
            )
            for partition in container.partitions.values()
        ]
    )


def beginning() -> Position:
    """Before everything that is still there."""
    return (Stretch(SPACE_LOW, SPACE_HIGH, b""),)


async def read(
    container: Container, position: Position, most: int, since_ms: int | None
) -> tuple[list[Told], Position]:
    """The next events, and the position behind them. `since_ms`: only events of that time or later."""
    pieces: list[Stretch] = []
    found: list[tuple[int, int, Event]] = []  # with when it is told, and the number of its piece
    ends: list[bytes] = []
    for stretch in position:
        for key_range in container.map.overlapping(stretch.low, stretch.high):
            piece = Stretch(max(stretch.low, key_range.low), min(stretch.high, key_range.high), stretch.place)
            events_of, end = await _read_one(container.partitions[key_range.id], piece, most, since_ms)
            found += [(when, len(pieces), each) for when, each in in_turn(events_of)]
            pieces.append(piece)
            ends.append(end)
    found.sort(key=lambda each: each[:2])
    told = []
    for _, number, event in found[:most]:
        pieces[number] = pieces[number]._replace(place=event.place)
        told.append(Told(event, tuple(pieces)))
    if len(found) <= most:
        pieces = [piece._replace(place=max(piece.place, end)) for piece, end in zip(pieces, ends, strict=True)]
    return told, tuple(pieces)


def in_turn(events_of: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Events of one partition with the time that they are merged by, which never goes back, even if the clock was set
    back."""
    when = 0
    for event in events_of:
        when = max(when, event.wall_us)
        yield when, event


async def _read_one(partition: Partition, piece: Stretch, most: int, since_ms: int | None) -> tuple[list[Event], bytes]:
    """Of one partition: some events, and the place up to which its log was read."""

    def look(view: View) -> tuple[list[Event], bytes]:
        known_since = change_stream_events.since(view)
        if known_since is None or (piece.place and change_stream_events.is_lost(view, piece.place, known_since)):
            raise lost()
        last_lsn = partition.lsn_in(view)
        found: list[Event] = []
        end = piece.place
        for key, value in islice(change_stream_events.after(view, piece.place, last_lsn), limits.MONGO_EVENTS_MAX):
            event = change_stream_events.unpack_event(key, value)
            end = event.place
            if piece.low <= event.epk < piece.high and (since_ms is None or event.wall_ms >= since_ms):
                found.append(event)
                if len(found) > most:
                    return found, end
        return found, max(end, change_stream_events.place_after(last_lsn))

    return await partition.read(look)


async def remembered(container: Container, since_ms: int) -> list[Event]:
    """Events from before the first change stream, when none were kept: the documents written since `since_ms`, in their
    present form, as inserts."""
    found: list[Event] = []
    for partition in container.partitions.values():

        def look(view: View) -> list[Event]:
            noted: list[Event] = []
            for transaction in log.transactions(view, 0, change_stream_events.since(view) or 0):
                for stored in transaction.items:
                    header = unpack_header(stored)
                    if header.ts * 1000 + 999 >= since_ms:
                        document = documents.bson_document(stored)
                        key = documents.document_key(container.key, document)
                        place = layout.event_key(header.lsn, header.step)[1:]
                        wall_ms = max(since_ms, header.ts * 1000)
                        noted.append(
                            Event(place, change_stream_events.INSERT, header.epk, wall_ms, key, document, None, None)
                        )
            return noted

        found += await partition.read(look)
    found.sort(key=lambda each: (each.wall_ms, each.place))
    return found[-limits.MONGO_EVENTS_MAX :]


def has_news(container: Container, position: Position) -> bool:
    """Whether there may be events behind a position. Reads no log."""
    for stretch in position:
        for key_range in container.map.overlapping(stretch.low, stretch.high):
            if change_stream_events.place_after(container.partitions[key_range.id].lsn) > stretch.place:
                return True
    return False


def lost() -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        "Resume of change stream was not possible, as the resume point may no longer be kept.",
        details={"reason": Reason.HISTORY_LOST},
    )


def packed(position: Position) -> list[list[bytes]]:
    return [[stretch.low, stretch.high, stretch.place] for stretch in position]


def unpacked(given: Sequence[Sequence[bytes]]) -> Position:
    return tuple([Stretch(*[bytes(part) for part in each]) for each in given])
