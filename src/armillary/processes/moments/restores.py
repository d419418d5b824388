"""What a restore or a migration has other processes do with their partitions: keep splits off, hold writers while
partitions are exchanged, undo what was written since a snapshot, and copy pinned stores to new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from armillary import limits
from armillary.account.snapshots.restore import copy_store, founding, raise_lsn
from armillary.account.visits.elsewhere.other_processes import Copying, PinnedPartition
from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.account.visits.elsewhere.questions import Figures, figures_of
from armillary.partition.held_writers import hold_all
from armillary.partition.partition import Partition
from armillary.partition.reshaping.item_moves import TooMuch
from armillary.processes.moments.holds import Hold
from armillary.processes.moments.pins import pins_of
from armillary.processes.places import ProcessHere


@dataclass(slots=True)
class HoldStill(Hold):
    """No splits or merges of these containers. One that was deleted has none."""

    containers: list[bytes]  # rids

    @asynccontextmanager
    async def held(self, here: LocalPlace) -> AsyncIterator[None]:
        with ExitStack() as stilled:
            for rid in self.containers:
                container = here.account.container_by_rid(rid)
                if container is not None:
                    stilled.enter_context(await here.account.reshaper.hold_still(container))
            yield


@dataclass(slots=True)
class HoldWriters(Hold):
    """Of these containers. Partitions that are replaced meanwhile are not released."""

    containers: list[bytes]  # rids

    @asynccontextmanager
    async def held(self, here: LocalPlace) -> AsyncIterator[dict[bytes, dict[int, Figures]]]:
        """The figures of the partitions by their ranges, for each container."""
        held: list[Partition] = []
        try:
            found = {}
            for rid in self.containers:
                container = here.account.container_by_rid(rid)
                own = [] if container is None else [each for each in container.partitions.values() if _is_here(each)]
                await hold_all(own)
                held += own
                found[rid] = own
            # Answered when all before it is durable, and shown to readers.
            await asyncio.gather(*[each.store.write(lambda txn: None) for each in held])
            yield {rid: {each.range.id: figures_of(each) for each in own} for rid, own in found.items()}
        finally:
            for each in held:
                if each.is_held:
                    each.release()


def _is_here(partition: Partition) -> bool:
    return not partition.is_elsewhere and (partition.is_open or partition.is_promised)


@dataclass(slots=True)
class RewindPartitions(Question):
    """The answer is the containers for which too much was written since."""

    id: bytes
    pin_id: bytes
    partitions: list[PinnedPartition]

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> set[bytes]:
        too_much: set[bytes] = set()
        for rid, range_id, store in self.partitions:
            partition = here.container(rid).partitions[range_id]
            view = pins_of(here).view(self.pin_id, store)
            if rid in too_much or partition.head_in(view).lsn == partition.lsn:
                continue
            try:
                await partition.rewind(view)
            except TooMuch:
                too_much.add(rid)
        return too_much


@dataclass(slots=True)
class CopyPinned(Question):
    """Begin a copy, or go on waiting for one. The answer is whether it is complete."""

    pin_id: bytes
    copying: Copying

    async def answer(self, here: LocalPlace) -> bool:
        process = cast(ProcessHere, here)
        target = self.copying.target
        task = process.copies.get(target)
        if task is None:
            task = process.copies[target] = asyncio.get_running_loop().create_task(self._copy(process))
        done, _ = await asyncio.wait({task}, timeout=limits.MOVED_WORK_SECONDS)
        if not done:
            return False
        process.copies.pop(target, None)
        task.result()
        return True

    async def _copy(self, process: ProcessHere) -> None:
        store, target, range_id, lsn = self.copying
        view, new = process.pins.view(self.pin_id, store), process.account.engine.store(target)
        await copy_store(view, new)
        await new.write(founding(view, range_id, lsn))
        process.pins.keep(self.pin_id, target, await new.pin())


@dataclass(slots=True)
class AbandonCopies(Told):
    targets: list[int]

    def take(self, here: LocalPlace) -> None:
        for target in self.targets:
            task = cast(ProcessHere, here).copies.pop(target, None)
            if task is not None:
                task.cancel()


@dataclass(slots=True)
class RaiseLsns(Question):
    id: bytes
    stores: list[int]
    lsn: int

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> None:
        for store in self.stores:
            await here.account.engine.store(store).write(lambda txn: raise_lsn(txn, self.lsn))
