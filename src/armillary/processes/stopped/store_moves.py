"""Moves partitions of a stopped server from one process to another: each is copied to a new store in the other
directory, the copy is compared with the original by its digest, and one transaction of the catalog puts it in the
original's place. Then the original is emptied.

A crash at any moment leaves every partition whole, in its old place or in its new one, and the directory can be served,
or given to the same command again: a copy that no record names is removed at the next opening of the catalog.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from armillary import limits
from armillary.account.catalog.allocation import Reservation, place_of_store, transactions_store
from armillary.account.catalog.catalog import Catalog
from armillary.account.catalog.container_state import ContainerState
from armillary.account.catalog.records import Record
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.model.ranges import KeyRange
from armillary.model.resources import ResourceType
from armillary.partition.history import log
from armillary.partition.upkeep.background_throttle import portions
from armillary.processes.stopped.placement_plan import PlannedMove, planned_moves
from armillary.processes.stopped.undivided_engine import UndividedEngine
from armillary.processes.transactions.promises import has_promises
from armillary.storage.directory import process_directories, process_directory, sync_directory
from armillary.storage.engine import Kept, Store
from armillary.storage.overlay import Pair
from armillary.storage.private import Permissions

_END: Final = b"\xff" * 8  # behind every key of a store


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """Where a partition is, and what is in it."""

    database: str
    container: str
    range_id: int
    place: int
    item_count: int
    size_bytes: int


async def partitions_of(engine: UndividedEngine, clock: Clock) -> list[PlacedPartition]:
    catalog = Catalog(engine, clock)
    await catalog.load()
    found = []
    for container in catalog.of_type(ResourceType.CONTAINER):
        for each in container.container_state.ranges:
            head = await engine.store(each.store).read(lambda view: log.load_head(view, 0, 0))
            found.append(
                PlacedPartition(
                    _database(catalog, container),
                    container.name,
                    each.id,
                    place_of_store(each.store),
                    head.item_count,
                    head.size_bytes,
                )
            )
    return found


POINTS: Final = ("reserved", "copying", "copied", "compared", "exchanged", "emptied", "leaving", "left")
Told = Callable[[str], None]


def _untold(_: str) -> None:
    pass


async def place_partitions(
    path: Path,
    count: int,
    clock: Clock,
    permissions: Permissions = "private",
    tell: Told = _untold,
    reach: Told = _untold,
) -> int:
    """Have `count` processes hold the partitions of a stopped server's data directory. Returns how many were moved.
    `reach` is called at each of `POINTS`."""
    engine = await UndividedEngine.open(path, clock, permissions, count=count)
    try:
        catalog = Catalog(engine, clock)
        await catalog.open()
        await _drop_retired(catalog)
        _refuse_reshapes(catalog)
        await _refuse_commits(engine)
        moves = planned_moves(catalog, count)
        for move in moves:
            copied = await _moved(engine, catalog, move, reach)
            what = f"{_database(catalog, move.container)}/{move.container.name}, range {move.range.id}"
            tell(f"{what}: from process {move.source} to process {move.target}, {copied} entries")
        await catalog.collect_garbage()
        _check_empty(catalog, count)
    finally:
        await engine.close()
    await asyncio.to_thread(_remove_further, path, count, reach)
    return len(moves)


def _database(catalog: Catalog, container: Record) -> str:
    database = catalog.get(ResourceType.DATABASE, container.owner)
    return database.name if database is not None else container.owner.hex()


def _refuse_reshapes(catalog: Catalog) -> None:
    for container in catalog.of_type(ResourceType.CONTAINER):
        if container.container_state.reshapes:
            raise bad_request(
                f"Partitions of the container '{_database(catalog, container)}/{container.name}' are being split or "
                "merged. Start the server with the processes that it had, wait for the end of that, and stop it again."
            )


async def _refuse_commits(engine: UndividedEngine) -> None:
    for number in engine.engines:
        if await engine.store(transactions_store(number)).read(has_promises):
            raise bad_request(
                "A transaction over several processes was being committed when the server ended, and is not whole yet. "
                "Start the server with the processes that it had, and stop it again: it completes the commit."
            )


async def _drop_retired(catalog: Catalog) -> None:
    """Partitions that were split or merged away have no readers while no server runs."""
    for container in catalog.of_type(ResourceType.CONTAINER):
        retired = [each.store for each in container.container_state.retired]
        if retired:
            await catalog.change_container(container, lambda state, _: replace(state, retired=()), garbage=retired)
    await catalog.collect_garbage()


async def _moved(engine: UndividedEngine, catalog: Catalog, move: PlannedMove, reach: Told) -> int:
    """Move a partition. Returns how many entries its store has."""

    def reserve(reservation: Reservation) -> int:
        return reservation.store(move.target)

    number = await catalog.reserve(reserve)
    reach("reserved")
    source, target = engine.store(move.range.store), engine.store(number)
    pinned = await source.pin()
    try:
        written = _Digest()
        await _copy(pinned, target, written, reach)
    finally:
        pinned.release()
    reach("copied")
    await target.write(lambda txn: None)  # readers are shown what was loaded after a transaction
    stored = _Digest()
    pinned = await target.pin()
    try:
        for portion in _portions(pinned, stored):
            del portion
            await asyncio.sleep(0)
    finally:
        pinned.release()
    if stored.hexdigest() != written.hexdigest():
        raise Failure(
            Kind.CORRUPT,
            f"The copy of range {move.range.id} of '{move.container.name}' is not what was copied. Nothing was lost: "
            "the original is in its place. Check the disk.",
        )
    reach("compared")
    present = catalog.get(ResourceType.CONTAINER, move.container.rid)
    assert present is not None
    changed = replace(present, state=_renumbered(present.container_state, move.range, number).to_json())
    await catalog.rewrite([present], [changed], finished=[number], garbage=[move.range.store])
    reach("exchanged")
    await catalog.collect_garbage()
    reach("emptied")
    return stored.count


class _Digest:
    """Of the entries of a store."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, pairs: list[Pair]) -> None:
        self.count += len(pairs)
        for key, value in pairs:
            self._hash.update(b"%d %d " % (len(key), len(value)) + key + value)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


async def _copy(source: Kept, target: Store, digest: _Digest, reach: Told) -> None:
    loader = target.loader()
    try:
        for portion in _portions(source, digest):
            loader.put(portion)
            await loader.ready()
            reach("copying")
            await asyncio.sleep(0)
        await loader.finish()
    except BaseException:
        loader.abandon()
        raise


def _portions(view: Kept, digest: _Digest) -> Iterator[list[Pair]]:
    for portion in portions(view.scan(b"", _END), limits.COPY_PORTION_ENTRIES):
        digest.add(portion)
        yield portion


def _renumbered(state: ContainerState, key_range: KeyRange, number: int) -> ContainerState:
    ranges = tuple([replace(each, store=number) if each.id == key_range.id else each for each in state.ranges])
    changed = replace(state, ranges=ranges)
    assert key_range.store not in changed.stores, "a store is named once"
    return changed


def _check_empty(catalog: Catalog, count: int) -> None:
    """Before directories are removed."""
    for container in catalog.of_type(ResourceType.CONTAINER):
        assert all(place_of_store(store) < count for store in container.stores)


def _remove_further(path: Path, count: int, reach: Told) -> None:
    """The directories of processes that hold nothing any more, the last one first: so those that a stop leaves are
    numbered without a gap."""
    for number, directory in reversed(process_directories(path).items()):
        if number >= count:
            leaving = directory.with_name(f".{number}")  # as a whole: a part of it would not be a data directory
            shutil.rmtree(leaving, ignore_errors=True)
            directory.rename(leaving)
            sync_directory(directory.parent)
            reach("leaving")
    parent = process_directory(path, count).parent
    for left in parent.glob(".*"):
        shutil.rmtree(left)
    if count == 1 and parent.exists():
        parent.rmdir()
    reach("left")
