"""Places that a process comes to hold and ceases to hold while requests run: it leads their logs now, or does no more.
Partitions take the place of their stand-ins, and the other way round; their ranges, stores and positions are the same.

The catalog names the holder of each place. So a process that takes a place over has the newest catalog, and a former
holder cannot change it any more where it was about to: it does not put the children of a split in place whose parents
another process has written to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import Catalog, Guard
from armillary.account.container import Container
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.errors import Failure
from armillary.model.ranges import KeyRange
from armillary.partition.partition import Partition
from armillary.processes.catalog_owner import FIRST
from armillary.processes.divided_engine import DividedEngine, Leads, held_elsewhere
from armillary.processes.held.led_partitions import LedPartition
from armillary.processes.places import ProcessHere
from armillary.storage.engine import Engine, View

log = logging.getLogger(__name__)

_HOLDER: Final = "holder of place {}"  # a setting of the catalog: drawn anew by each process that comes to hold it
_HOLDER_BYTES: Final = 16


class Holding(Protocol):
    """The account (`divided_account.py`), as far as it is told."""

    def led_partition(self, container: Container, key_range: KeyRange) -> LedPartition: ...

    def stand_in(self, container: Container, key_range: KeyRange) -> PartitionElsewhere: ...

    async def entered(self, container: Container) -> None:
        """This process has come to hold partitions of a container."""

    def left(self, container: Container, range_ids: Collection[int]) -> None:
        """Other processes hold these partitions of a container."""


class HeldPlaces:
    """Of one process."""

    def __init__(self, account: Account, holding: Holding, engine: DividedEngine, here: ProcessHere) -> None:
        self._account = account
        self._holding = holding
        self._engine = engine
        self._here = here
        self._holders: dict[int, bytes] = {}  # as this process has told the catalog
        self._entering: dict[int, asyncio.Lock] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def enter(self, place: int, engine: Engine, leads: Leads) -> None:
        account, held = self._account, self._engine.held
        async with self._entering.setdefault(place, asyncio.Lock()):
            if place in held:
                return
            holder = account.clock.random_bytes(_HOLDER_BYTES)
            await account.catalog.keep_setting(_HOLDER.format(place), holder)
            await self._here.reached(self._here.replica.version)
            await account.reshaper.left_stores(_in(place))
            if not leads():
                raise held_elsewhere()
            self._holders[place] = holder
            self._engine.enter(place, engine, leads)
            try:
                for container in account.containers:
                    await self._open(container, place)
                    if place not in held:
                        raise held_elsewhere()
            except BaseException:
                self.leave(place)
                raise

    async def _open(self, container: Container, place: int) -> None:
        """Have this process's own partitions serve, as far as they are in a place."""
        while not container.is_retired:
            missing = [each for each in container.partitions.values() if each.is_elsewhere and _is_in(each, place)]
            if not missing:
                break
            for stand_in in missing:
                opened = self._holding.led_partition(container, stand_in.range)
                await opened.open()
                if container.partitions.get(stand_in.range.id) is stand_in and place in self._engine.held:
                    container.exchange(opened)
            if place not in self._engine.held:
                return
        await self._holding.entered(container)

    async def opened(self, container: Container, partition: Partition) -> Partition:
        """A partition that is to serve; a stand-in where its place is changing its holder: `match` opens it then."""
        try:
            await partition.open()
        except Failure as failure:
            if not isinstance(partition, LedPartition):
                raise
            log.warning("a partition of %s cannot be opened yet: %s", container.link, failure.message)
            return self._holding.stand_in(container, partition.range)
        return partition

    def match(self, container: Container) -> None:
        """A container came to be served, or other partitions of it: they may have been made before a place changed its
        holder."""
        held, late = self._engine.held, set()
        for partition in list(container.partitions.values()):
            place = place_of_store(partition.range.store)
            if partition.is_elsewhere and place in held:
                late.add(place)
            elif isinstance(partition, LedPartition) and place not in held:
                self._leave_partition(container, partition)
        for place in late:
            task = asyncio.create_task(self._open_late(container, place))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open_late(self, container: Container, place: int) -> None:
        while place in self._engine.held and not container.is_retired:
            try:
                await self._open(container, place)
                return
            except Failure as failure:
                log.warning("partitions of %s cannot be opened yet: %s", container.link, failure.message)
                await self._account.clock.sleep(limits.RESHAPE_RETRY_SECONDS)

    async def close(self) -> None:
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def leave(self, place: int) -> None:
        """Nothing is awaited: when this returns, no request begins in the place any more."""
        if place not in self._engine.held:
            return
        self._engine.leave(place)
        self._holders.pop(place, None)
        account = self._account
        for container in account.containers:
            own = [each for each in container.partitions.values() if not each.is_elsewhere and _is_in(each, place)]
            for partition in own:
                self._leave_partition(container, partition)
            if own:
                self._holding.left(container, [each.range.id for each in own])
        account.reshaper.leave_stores(_in(place))

    def _leave_partition(self, container: Container, partition: Partition) -> None:
        assert isinstance(partition, LedPartition), "this process holds its own place for good"
        container.exchange(container.new_partition(partition.range))
        partition.leave()
        self._here.entries.leave_partition(partition)

    def guard(self, store: int) -> Guard | None:
        """See `Registry.place_guard`."""
        place, engine = place_of_store(store), self._engine
        if place in engine.held and (place == FIRST or place not in engine.leads):
            return None  # where the catalog is stored, a former holder cannot change it anyway
        holder = self._holders.get(place)

        def check(view: View) -> None:
            if holder is None or Catalog.setting_in(view, _HOLDER.format(place)) != holder:
                raise held_elsewhere()

        return check


def _in(place: int) -> Callable[[int], bool]:
    return lambda store: place_of_store(store) == place


def _is_in(partition: Partition, place: int) -> bool:
    return place_of_store(partition.range.store) == place
