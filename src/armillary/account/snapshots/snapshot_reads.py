"""The account as it was at one time, to be read: every partition's store is pinned at that moment, so a collection that
is asked for later shows what it held then. Containers that have come or were split, merged or indexed anew since are
another matter: of those nothing is known any more.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition
from armillary.storage.engine import Kept
from armillary.storage.forked import ForkedStore

SNAPSHOT_UNAVAILABLE = 246


class _Pinned(NamedTuple):
    range: KeyRange
    store: Kept
    meter: Meter  # of the partition as it is now: whoever reads pays there


class _Taken(NamedTuple):
    map: PartitionMap
    rules_number: int | None  # None: not all items followed the same
    pins: list[_Pinned]


class Past:
    """Made by `take`. It costs what it holds back from being cleaned up, until nobody holds on to it any more."""

    def __init__(self, taken: dict[Container, _Taken], clock: Clock) -> None:
        self._taken = taken
        self._clock = clock
        self._opened: dict[Container, Container] = {}

    @classmethod
    async def take(cls, account: Account) -> Past:
        taken: dict[Container, _Taken] = {}
        for container in account.containers:
            pins = [
                _Pinned(partition.range, await partition.store.pin(), partition.meter)
                for partition in container.partitions.values()
            ]
            rules_number = None if container.is_restating else container.schema.rules.number
            taken[container] = _Taken(container.map, rules_number, pins)
        return cls(taken, account.clock)

    async def of(self, container: Container) -> Container:
        """The container as it was then."""
        taken = self._taken.get(container)
        if taken is None or taken.rules_number != container.schema.rules.number:
            raise Failure(
                Kind.BAD_REQUEST,
                f"Unable to read from a snapshot due to pending collection catalog changes to '{container.name}'; "
                "please retry the operation.",
                details={"code": SNAPSHOT_UNAVAILABLE},
            )
        opened = self._opened.get(container)
        if opened is None:
            opened = copy(container)
            opened.map = taken.map
            opened.partitions = {pin.range.id: await self._partition(container, pin) for pin in taken.pins}
            self._opened[container] = opened
        return opened

    async def _partition(self, container: Container, pin: _Pinned) -> Partition:
        store = ForkedStore(pin.store)
        first_lsn = container.state.first_lsn
        partition = Partition(store, container.schema, pin.range, self._clock, first_lsn)
        partition.meter = pin.meter
        await partition.open()
        return partition
