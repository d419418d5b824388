"""Snapshot reads of the MongoDB protocol: the account as it was at one time. Every partition's store is pinned at that
moment, so a collection that is read later shows what it held then. Containers that were created, split, merged or
indexed anew since cannot be read at that time.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Protocol

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition
from armillary.storage.engine import Kept
from armillary.storage.forked import ForkedStore


class _Pinned(NamedTuple):
    range: KeyRange
    store: Kept
    meter: Meter  # of the partition as it is now: reads are charged there


class _Taken(NamedTuple):
    map: PartitionMap
    rules_number: int | None  # None: not all items followed the same
    pins: list[_Pinned]


class PastAccount(Protocol):
    """The account as it was. While it is referenced, storage keeps the pages that it shows."""

    async def of(self, container: Container) -> Container | None:
        """The container as it was then; None: it cannot be read at that time."""


async def take_snapshot(account: Account) -> PastAccount:
    """Of all partitions, also those that other processes hold."""
    if account.spanning is not None:
        taken: PastAccount = await account.spanning.take_snapshot()
        return taken
    return await PinnedAccount.take(account)


class PinnedAccount:
    """A PastAccount, of the partitions that this process holds. Made by `take`."""

    def __init__(self, taken: dict[Container, _Taken], clock: Clock) -> None:
        self._taken = taken
        self._clock = clock
        self._opened: dict[Container, Container] = {}

    @classmethod
    async def take(cls, account: Account) -> PinnedAccount:
        taken: dict[Container, _Taken] = {}
        for container in account.containers:
            pins = [
                _Pinned(partition.range, await partition.store.pin(), partition.meter)
                for partition in container.partitions.values()
                if not partition.is_elsewhere
            ]
            rules_number = None if container.is_restating else container.schema.rules.number
            taken[container] = _Taken(container.map, rules_number, pins)
        return cls(taken, account.clock)

    async def of(self, container: Container) -> Container | None:
        """The container as it was then; None: it cannot be read at that time."""
        taken = self._taken.get(container)
        if taken is None or taken.rules_number != container.schema.rules.number:
            return None
        opened = self._opened.get(container)
        if opened is None:
            opened = copy(container)
            opened.map = taken.map
            opened.partitions = {pin.range.id: await self._partition(container, pin) for pin in taken.pins}
            self._opened[container] = opened
        return opened

    def opened(self, container: Container) -> Container | None:
        """The same, if it was read before."""
        return self._opened.get(container)

    async def _partition(self, container: Container, pin: _Pinned) -> Partition:
        store = ForkedStore(pin.store)
        first_lsn = container.state.first_lsn
        partition = Partition(store, container.schema, pin.range, self._clock, first_lsn)
        partition.meter = pin.meter
        await partition.open()
        return partition
