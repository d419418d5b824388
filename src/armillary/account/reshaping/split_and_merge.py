"""One split or merge, or the move of a partition to another place, which has one child: begin, copy, catch up, cut
over. A step that fails is tried again.

The container's record lists the reshape from the beginning, in `reshapes`; the children are in stores of their own, and
no request is routed to them yet. One transaction of the catalog puts them in their parents' place: before it the
reshape can be cancelled without a trace, after it nothing is left to undo. `split_planner.py` decides when to split or
merge, `partition/reshaping/copying.py` copies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from armillary import limits
from armillary.account.catalog.allocation import NewStore, place_of_store
from armillary.account.catalog.catalog import Guard
from armillary.account.catalog.container_state import ContainerState, ReshapeState
from armillary.account.container import Container
from armillary.account.registry import Registry
from armillary.errors import Failure
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.held_writers import hold_all
from armillary.partition.partition import Partition
from armillary.partition.reshaping.copying import Overtaken, Progress, Target, Transfer
from armillary.partition.upkeep.background_throttle import Throttle
from armillary.storage.engine import View

log = logging.getLogger(__name__)

# Where a reshape can be stopped, in order. Before `switched` it can be cancelled.
BEGUN = "begun"  # the intention is recorded, nothing is copied
COPYING = "copying"  # a part is copied
COPIED = "copied"  # all of a snapshot is, changes are missing
CAUGHT_UP = "caught up"  # few changes are missing, writers go on
HELD = "held"  # writers wait, nothing is missing, the map is the old one
SWITCHED = "switched"  # the map is the new one, parents are retired
POINTS = (BEGUN, COPYING, COPIED, CAUGHT_UP, HELD, SWITCHED)

Reach = Callable[["Reshape", str], Awaitable[None]]
Switched = Callable[["Reshape", list[Partition]], None]


class Reshape:
    def __init__(
        self,
        registry: Registry,
        container: Container,
        entry: ReshapeState,
        switching: AbstractAsyncContextManager[object, None],
        reach: Reach,
        switched: Switched,
        throttle: Throttle,
        *,
        is_fresh: bool,
    ) -> None:
        self.container = container
        self.number = entry.number
        self.parents = entry.parents
        self.reason = entry.reason
        self.point = ""  # that was passed last
        self.waits_for: str | None = None  # why it does not go on
        self.is_switching = False  # it cannot be cancelled any more
        self.is_done = False
        self.is_left = False  # this process does not hold the place of its parents any more
        self.task: asyncio.Task[None] | None = None
        self._registry = registry
        self._switching = switching
        self._reach = reach
        self._switched = switched
        self._throttle = throttle
        self.stores = container.partitions[entry.parents[0]].range.store, *entry.stores
        self._transfer = self._new_transfer(entry)
        self._written_meanwhile = 0  # in the moment after the last hold
        self._is_fresh = is_fresh  # the children's stores are known to be empty

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1

    @property
    def is_move(self) -> bool:
        return len(self.parents) == len(self.children) == 1

    @property
    def kind(self) -> str:
        return "merge" if self.is_merge else "move" if self.is_move else "split"

    @property
    def growth(self) -> int:
        """How many ranges there will be more."""
        return len(self.children) - len(self.parents)

    @property
    def progress(self) -> Progress:
        return self._transfer.progress

    @property
    def progress_figures(self) -> tuple[int, int, int]:
        """How far it is: items copied, bytes copied, changes applied."""
        progress = self.progress
        return progress.items_copied, progress.bytes_copied, progress.changes_applied

    @property
    def children(self) -> list[tuple[bytes, bytes]]:
        return [(target.low, target.high) for target in self._transfer.targets]

    async def run(self) -> None:
        """Until it is done, its container is gone, or another process goes on with it."""
        await self._arrive(BEGUN)
        while not self.is_done and not self.is_left:
            try:
                await self._attempt()
            except Overtaken:
                continue
            except Failure as failure:
                if self._entry() is None or self.is_left:
                    return  # the container was deleted, or the place of its parents has another holder
                # A full disk or the like: writers get the error; the reshape waits.
                self.waits_for = failure.message
                log.warning("a reshape of %s waits: %s", self.container.link, failure.message)
                await self._registry.clock.sleep(limits.RESHAPE_RETRY_SECONDS)
                self.waits_for = None

    async def _attempt(self) -> None:
        await self._wait_for_rules()
        if not await self._transfer.resume():
            if not self._is_fresh:
                await self._renew()
            self._is_fresh = False
            await self._transfer.copy(self._rest_in_copy)
            await self._arrive(COPIED)
        await self._catch_up()
        await self._arrive(CAUGHT_UP)
        await self._cut_over()

    # Copying and catching up.

    async def _wait_for_rules(self) -> None:
        while self.container.is_restating:
            self.waits_for = "The container's items are being brought under new rules."
            await self._registry.clock.sleep(limits.RESHAPE_POLL_SECONDS)
        self.waits_for = None

    async def _rest_in_copy(self) -> None:
        if self.point != COPYING:
            await self._arrive(COPYING)
        await self._throttle.rest()

    async def _renew(self) -> None:
        """Discard what was copied so far, and begin with empty stores."""
        present = self._entry()
        garbage = present.stores if present is not None else []

        def change(state: ContainerState, new_store: NewStore) -> ContainerState:
            entries = []
            for entry in state.reshapes:
                if entry.number == self.number:
                    children = tuple(
                        [replace(child, store=new_store(place_of_store(child.store))) for child in entry.children]
                    )
                    entry = replace(entry, children=children)
                entries.append(entry)
            return replace(state, reshapes=tuple(entries))

        await self._registry.catalog.change_container(
            self.container.record, change, garbage=garbage, waits=True, guard=self._guard()
        )
        entry = self._entry()
        assert entry is not None
        self._transfer = self._new_transfer(entry)
        self._is_fresh = True
        await self._registry.catalog.collect_garbage()

    async def _catch_up(self) -> None:
        """Until few changes are missing. Where writers write faster than that goes, they wait for short moments."""
        rounds: deque[int] = deque(maxlen=limits.CATCH_UP_ROUNDS)  # how many were missing after each
        while True:
            if len(rounds) == rounds.maxlen and rounds[-1] > rounds[0] * 0.9:
                await self._brake()
            else:
                await self._transfer.catch_up(self._throttle.rest)
            rounds.append(self._transfer.behind())
            if rounds[-1] <= limits.CUT_OVER_ENTRIES:
                return
            await self._throttle.rest()

    async def _brake(self) -> None:
        """Hold the writers until twice as much is applied as they write in the moment that follows."""
        elapsed_s = self._registry.clock.elapsed_s
        begun_s, left = elapsed_s(), max(limits.BRAKE_ENTRIES, 2 * self._written_meanwhile)
        await hold_all(self._partitions())
        try:
            while left > 0 and elapsed_s() - begun_s < limits.BRAKE_SECONDS_MAX:
                applied = await self._transfer.catch_up(_no_rest)
                left -= applied or left
        finally:
            self._release()
        behind = self._transfer.behind()
        await self._registry.clock.sleep(limits.BRAKE_OPEN_SECONDS)  # all that waited are served before the next hold
        self._written_meanwhile = self._transfer.behind() - behind

    # Cutting over.

    async def _cut_over(self) -> None:
        def take_over() -> None:
            """In the step that changes the record: other changes of it find its ranges in the container."""
            parents = [each for each in self._partitions() if not each.is_elsewhere]
            serving = [self.container.new_partition(child) for child in children] if self.is_left else partitions
            self.container.take_over(new_map, serving, self.reason)
            for parent in parents:
                parent.move()
            self._transfer.sources = ()  # so that references to this reshape do not count as readers of the parents
            self.is_done = True
            self._switched(self, parents)

        async with self._switching:  # ranges are numbered in the order in which they come into being
            await hold_all(self._partitions())
            try:
                await self._transfer.settle()
                while await self._transfer.catch_up(_no_rest):
                    pass
                new_map, children = self._new_map(self.container.state)
                await self._transfer.seal([child.id for child in children])
                partitions = [self.container.new_partition(child) for child in children]
                for partition in partitions:
                    await partition.open()
                await self._arrive(HELD)
                self.is_switching = True
                is_switched = await self._switch(new_map, take_over)
            except Exception:  # whatever failed, writers must be released
                self.is_switching = False
                self._release()
                raise
            except asyncio.CancelledError:
                if not self.is_switching:
                    self._release()
                raise
            # After a cancellation here it is unknown whether the map was switched: writers stay held, as the process
            # ends.
            if not is_switched:
                self.is_switching = False
                self._release()
                raise Overtaken
        await self._arrive(SWITCHED)

    async def _switch(self, new_map: PartitionMap, take_over: Callable[[], None]) -> bool:
        """The one transaction. Returns whether it took place."""
        until_s = self._registry.clock.now_s() + limits.RETIRED_SECONDS

        def change(state: ContainerState, _: NewStore) -> ContainerState:
            if state.rules_number != self._transfer.rules_number or state.older_rules:
                raise Overtaken
            stored_map, _children = self._new_map(state)
            assert stored_map.ranges == new_map.ranges, "the map changed while one of its ranges was cut over"
            parents = [each for each in state.ranges if each.id in self.parents]
            return replace(
                state,
                ranges=new_map.ranges,
                next_range=new_map.next_id(),
                reshapes=state.without_reshape(self.number),
                retired=state.retired_with(parents, until_s),
                past=state.past_with(parents),
            )

        try:
            # After a failed sync only storage can tell whether the map was switched: that is waited for.
            await self._registry.catalog.change_container(
                self.container.record, change, on_changed=take_over, waits=True, guard=self._guard()
            )
            return True
        except Overtaken:
            return False

    def _release(self) -> None:
        for partition in self._partitions():
            if partition.is_held:
                partition.release()

    # Ranges and partitions.

    async def _arrive(self, point: str) -> None:
        self.point = point
        await self._reach(self, point)

    def _partitions(self) -> list[Partition]:
        return [self.container.partitions[each] for each in self.parents]

    def _new_map(self, state: ContainerState) -> tuple[PartitionMap, list[KeyRange]]:
        """The map with children instead of parents, and those, in the order of their keys."""
        present = PartitionMap(state.ranges)
        entry = state.reshape(self.number)
        assert entry is not None, "it is recorded until the map is switched"
        stores = entry.stores
        if self.is_merge:
            low_id, high_id = self.parents
            new_map = present.merge(low_id, high_id, *stores)
        elif self.is_move:
            new_map = present.move(self.parents[0], *stores)
        else:
            new_map = present.split(self.parents[0], entry.children[1].low, *stores)
        return new_map, [each for each in new_map.ranges if each.store in stores]

    def _guard(self) -> Guard:
        guards = [self._registry.place_guard(each) for each in self.stores]

        def check(view: View) -> None:
            for guard in guards:
                if guard is not None:
                    guard(view)

        return check

    def _entry(self) -> ReshapeState | None:
        """What the record says about it; None: it is done, or the container is gone."""
        record = self.container.record
        if self._registry.catalog.get(record.type, record.rid) is None:
            return None
        return record.container_state.reshape(self.number)

    def _new_transfer(self, entry: ReshapeState) -> Transfer:
        engine = self._registry.engine
        targets = [Target(child.low, child.high, engine.store(child.store)) for child in entry.children]
        return Transfer(self._partitions(), targets, self.container.schema, self._registry.clock)


async def _no_rest() -> None:
    """While writers are held, the copy does not pause for other work."""
