"""The events of change streams: every insert, change and delete of a container's documents, from a position on. A
position has a place in the log for each range of keys, so it stays valid after splits, merges and restarts.

Events of one partition come in the order of its log; those of several are merged by the time of the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.container_state import ContainerState
from armillary.account.collections.event_visits import KeepEvents, LookAtEvents, ReadEvents, RememberEvents
from armillary.account.collections.event_visits import lost as lost
from armillary.account.container import Container
from armillary.account.following import FollowingAccount
from armillary.account.visits.uncounted_visits import at_all
from armillary.account.visits.visits import run_uncounted_at
from armillary.errors import Failure, Kind
from armillary.model.keys import SPACE_HIGH, SPACE_LOW
from armillary.partition.history import change_stream_events
from armillary.partition.history.change_stream_events import Event
from armillary.partition.partition import Partition
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
        await keep_events(container, partition)
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
    return all(each.is_kept for each in await at_all(container, LookAtEvents()))


async def keep_events(container: Container, partition: Partition) -> None:
    """Have a partition keep events from now on. One that is being split or merged leaves it to its successors."""
    while container.partitions.get(partition.range.id) is partition:
        if await run_uncounted_at(container, partition, KeepEvents()) is not None:
            return
        await partition.released()


async def now(container: Container) -> Position:
    """Behind everything that was done so far."""
    while True:
        stretches: list[Stretch] = []
        for partition in container.partitions.values():
            lsn = partition.lsn
            if partition.is_elsewhere:  # and may know more than it has told
                state = await run_uncounted_at(container, partition, LookAtEvents())
                if state is None:
                    await partition.released()
                    break
                lsn = state.lsn
            low = partition.range.low if container.key is not None else SPACE_LOW
            high = partition.range.high if container.key is not None else SPACE_HIGH
            stretches.append(Stretch(low, high, change_stream_events.place_after(lsn)))
        else:
            return tuple(stretches)


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
            asked = ReadEvents(*piece, most, since_ms)
            partition = container.partitions.get(key_range.id)
            part = await run_uncounted_at(container, partition, asked) if partition is not None else None
            if part is None:  # it was split or merged, or moved: its successors have the events too
                if partition is not None:
                    await partition.released()
                return await read(container, position, most, since_ms)
            found += [(when, len(pieces), each) for when, each in in_turn(part.events)]
            pieces.append(piece)
            ends.append(part.end)
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


async def remembered(container: Container, since_ms: int) -> list[Event]:
    """Events from before the first change stream (`RememberEvents`)."""
    found = [each for read in await at_all(container, RememberEvents(since_ms)) for each in read.events]
    found.sort(key=lambda each: (each.wall_ms, each.place))
    return found[-limits.MONGO_EVENTS_MAX :]


def has_news(container: Container, position: Position) -> bool:
    """Whether there may be events behind a position. Reads no log, and asks no other place."""
    for stretch in position:
        for key_range in container.map.overlapping(stretch.low, stretch.high):
            partition = container.partitions[key_range.id]
            if partition.is_elsewhere or change_stream_events.place_after(partition.lsn) > stretch.place:
                return True
    return False


def packed(position: Position) -> list[list[bytes]]:
    return [[stretch.low, stretch.high, stretch.place] for stretch in position]


def unpacked(given: Sequence[Sequence[bytes]]) -> Position:
    return tuple([Stretch(*[bytes(part) for part in each]) for each in given])
