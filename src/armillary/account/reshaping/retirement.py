"""Retirement of partitions that were split, merged or restored over: reads that have begun may finish, then the store
is emptied. The container's record lists them, so that a store is emptied after a restart too.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from armillary import limits
from armillary.account.catalog.allocation import NewStore
from armillary.account.catalog.catalog import Catalog
from armillary.account.catalog.container_state import ContainerState
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition


class _Retired(NamedTuple):
    container: Container
    store: int
    until_s: float
    partition: weakref.ref[Partition] | None  # None: retired before the start, so it has no readers
    meter: Meter | None


class Retirement:
    def __init__(self, catalog: Catalog, clock: Clock, holds: Callable[[int], bool]) -> None:
        """`holds`: whether this process holds a store. Those of other processes are theirs to empty."""
        self._catalog = catalog
        self._clock = clock
        self._holds = holds
        self._retired: list[_Retired] = []
        self._lock = asyncio.Lock()  # of `collect`

    def enter(self, container: Container) -> None:
        """Those that were retired before a restart have no readers."""
        known = {each.store for each in self._retired}
        self._retired += [
            _Retired(container, each.store, 0.0, None, None)
            for each in container.state.retired
            if self._holds(each.store) and each.store not in known
        ]

    def add(self, container: Container, parents: Iterable[Partition]) -> None:
        until_s = {each.store: each.until_s for each in container.state.retired}
        for parent in parents:
            store = parent.range.store
            self._retired.append(_Retired(container, store, until_s[store], weakref.ref(parent), parent.meter))

    def leave(self, container: Container) -> None:
        """The container was deleted, and all its stores with it."""
        self._retired = [each for each in self._retired if each.container is not container]

    def leave_stores(self, is_left: Callable[[int], bool]) -> None:
        """Another process holds some stores: they are its to empty."""
        self._retired = [each for each in self._retired if not is_left(each.store)]

    async def collect(self) -> None:
        """Empty the stores whose time is over. Returns when they are empty, also if another call has begun that. A
        store whose emptying fails or is cancelled stays listed, and does not keep the others from being emptied."""
        failures: list[Failure] = []
        async with self._lock:
            now_s = self._clock.now_s()
            for each in [each for each in self._retired if _is_due(each, now_s)]:
                if each not in self._retired:
                    continue  # its container was deleted meanwhile
                try:
                    await self._empty(each)
                except Failure as failure:
                    if each in self._retired:
                        failures.append(failure)
                else:
                    if each in self._retired:
                        self._retired.remove(each)
        if failures:
            raise failures[0]

    async def _empty(self, retired: _Retired) -> None:
        partition = retired.partition() if retired.partition is not None else None
        if partition is not None:
            partition.is_dropped = True
        if retired.meter is not None:
            retired.container.forget(retired.meter)

        def change(state: ContainerState, _: NewStore) -> ContainerState:
            return replace(state, retired=tuple([each for each in state.retired if each.store != retired.store]))

        await self._catalog.change_container(retired.container.record, change, garbage=[retired.store])
        await self._catalog.collect_garbage()


def _is_due(retired: _Retired, now_s: float) -> bool:
    """Readers hold a reference to the partition; after RETIRED_SECONDS_MAX they have to start over."""
    if now_s < retired.until_s:
        return False
    is_read = retired.partition is not None and retired.partition() is not None
    return not is_read or now_s >= retired.until_s + limits.RETIRED_SECONDS_MAX
