"""When partitions split and merge: a split begins when a partition outgrows its storage, when more throughput is
provisioned than the partitions carry, or on request; a merge on request, or by policy when neighbours are small. Each
range has at most one reshape (a split or merge); several run at once on different ranges. After a restart all go on.

One reshape is in `split_and_merge.py`, the emptying of the parents in `retirement.py`. This module starts, resumes,
pauses and cancels reshapes, and remembers how many ranges are wanted.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from itertools import pairwise

from armillary import limits
from armillary.account.catalog.allocation import NewStore, are_together, place_of_store
from armillary.account.catalog.container_state import ContainerState, ReshapeChild, ReshapeState
from armillary.account.container import Container
from armillary.account.registry import Registry
from armillary.account.reshaping.reservations import Reservation
from armillary.account.reshaping.reshape_points import Pauses, tell_point
from armillary.account.reshaping.retirement import Retirement
from armillary.account.reshaping.split_and_merge import Reshape
from armillary.account.reshaping.split_boundary import OneKey, boundary_in, width_of
from armillary.account.throughput.budgets import Budgets
from armillary.account.throughput.provisioning import throughput_of
from armillary.errors import Failure, Kind, bad_request
from armillary.partition.partition import Partition
from armillary.partition.upkeep.background_throttle import Throttle

log = logging.getLogger(__name__)

Lock = AbstractAsyncContextManager[object, None]

STORAGE, THROUGHPUT, REQUEST, POLICY = "storage", "throughput", "request", "policy"


class Reshaper(Pauses):
    def __init__(self, registry: Registry, budgets: Budgets) -> None:
        super().__init__()
        self._registry = registry
        self._budgets = budgets
        self._throttle = Throttle(registry.clock, self._share)
        self._running: dict[tuple[bytes, int], Reshape] = {}  # by container and number
        self._ending: set[tuple[bytes, int]] = set()  # that are being taken back, likewise
        self._reserved: set[tuple[bytes, int]] = set()  # ranges that a reshape is, or is about to be, about
        self._switching: weakref.WeakKeyDictionary[Container, Lock] = weakref.WeakKeyDictionary()
        self._retirement = Retirement(registry.catalog, registry.clock, registry.holds)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_point: Callable[[Reshape, str], None] | None = None  # told at every point that one reaches: for tests

    # Containers that are opened and deleted.

    def enter(self, container: Container) -> None:
        """Watch a container, and take up what was going on when the server stopped."""
        rid = container.record.rid
        for entry in container.state.reshapes:
            self._reserved.update((rid, parent) for parent in entry.parents)
        for entry in self._standing(container):
            if all(map(self._registry.holds, entry.stores)):
                self._start(container, entry, is_fresh=False)
        self._retirement.enter(container)
        self._watch(container, [each for each in container.partitions.values() if each.on_grown is None])
        self.consider(container)

    def leave_stores(self, is_left: Callable[[int], bool]) -> None:
        """This process does not hold some stores any more: what goes on there goes on where they are held. A reshape
        whose children are about to serve is still told what became of that."""
        for key, reshape in list(self._running.items()):
            if any(map(is_left, reshape.stores)):
                reshape.is_left = True
                if not reshape.is_switching and reshape.task is not None:
                    del self._running[key]
                    reshape.task.cancel()
        self._retirement.leave_stores(is_left)

    def _standing(self, container: Container) -> list[ReshapeState]:
        """What is recorded of partitions that are here, and does not run."""
        rid, partitions = container.record.rid, container.partitions
        return [
            each
            for each in container.state.reshapes
            if (rid, each.number) not in self._running and (rid, each.number) not in self._ending
            if each.parents[0] in partitions and not partitions[each.parents[0]].is_elsewhere
        ]

    async def left_stores(self, is_left: Callable[[int], bool]) -> None:
        """Before they are held again: wait for those reshapes."""
        switching = [each.task for each in self._running.values() if each.is_left and any(map(is_left, each.stores))]
        await asyncio.gather(*[each for each in switching if each is not None], return_exceptions=True)

    def leave(self, container: Container) -> None:
        """A container was deleted; its stores, those of children included, are emptied by the catalog."""
        rid = container.record.rid
        for key in [key for key in self._running if key[0] == rid]:
            reshape = self._running.pop(key)
            if reshape.task is not None:
                reshape.task.cancel()
        self._reserved -= {key for key in self._reserved if key[0] == rid}
        self._retirement.leave(container)

    async def close(self) -> None:
        tasks = [reshape.task for reshape in self._running.values() if reshape.task is not None] + list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # On request.

    async def split(
        self, container: Container, range_id: int, boundary: bytes | None = None, reason: str = REQUEST
    ) -> Reshape:
        """Divide a range, at the middle of what it holds unless a boundary is given. Returns when that has begun."""
        container.partition_by_id(str(range_id))
        reservation = Reservation(self._reserved, container, (range_id,))
        return await self._split(container, range_id, boundary, reason, reservation)

    async def merge(self, container: Container, low_id: int, high_id: int) -> Reshape:
        """Make one range of two neighbours. Returns when that has begun."""
        for range_id in (low_id, high_id):
            container.partition_by_id(str(range_id))
        low, high = (container.partitions[each].range for each in (low_id, high_id))
        if low.low > high.low:
            low, high = high, low
        if low.high != high.low or low is high:
            raise bad_request(f"The ranges {low_id} and {high_id} are not neighbours: only those can be merged.")
        if not are_together(low.store, high.store):
            raise bad_request(
                f"The ranges {low.id} and {high.id} are held by different processes of the server, or are in different "
                "logs of the cluster: only those of one can be merged."
            )
        self._check_mergeable(container, [container.partitions[each.id] for each in (low, high)])
        with Reservation(self._reserved, container, (low.id, high.id)) as reservation:
            children = [(low.low, high.high)]
            return await self._begin(container, (low.id, high.id), children, REQUEST, reservation)

    async def finished(self, reshape: Reshape) -> None:
        """Wait until its children serve, or its container is gone."""
        if reshape.task is not None:
            await asyncio.wait([reshape.task])

    async def cancel(self, reshape: Reshape) -> None:
        """Cancel a reshape that has not switched: the parents go on serving. If the cancellation cannot be recorded,
        the reshape goes on."""
        if reshape.task is None or reshape.is_switching or reshape.is_done:
            raise Failure(Kind.CONFLICT, "The reshape is past the point where it could be taken back.")
        reshape.task.cancel()
        # Shielded: if the client disconnects, the cancellation still ends, and no range stays reserved.
        cancelling = asyncio.create_task(self._cancel(reshape))
        self._tasks.add(cancelling)
        cancelling.add_done_callback(self._tasks.discard)
        await asyncio.shield(cancelling)

    async def _cancel(self, reshape: Reshape) -> None:
        assert reshape.task is not None
        await asyncio.wait([reshape.task])
        container = reshape.container
        # A task that is cancelled before its first step does not get to leave by itself.
        self._running.pop((container.record.rid, reshape.number), None)
        try:
            await self._take_back(container, reshape.number, reshape.parents)
        except Failure:
            self._resume(reshape)
            raise
        tell_point(self._registry.events, reshape, None)
        await self._registry.catalog.collect_garbage()

    async def _take_back(self, container: Container, number: int, parents: Sequence[int]) -> None:
        """Forget one that does not run."""
        entry, rid = container.state.reshape(number), container.record.rid
        stores = entry.stores if entry is not None else []
        guard = self._registry.place_guard(container.partitions[parents[0]].range.store)

        def change(state: ContainerState, _: NewStore) -> ContainerState:
            return replace(state, reshapes=state.without_reshape(number))

        self._ending.add((rid, number))
        try:
            await self._registry.catalog.change_container(
                container.record, change, garbage=stores, is_freeing=True, waits=True, guard=guard
            )
        finally:
            self._ending.discard((rid, number))
        self._reserved -= {(rid, parent) for parent in parents}
        self._watch(container, [container.partitions[each] for each in parents])

    def _resume(self, reshape: Reshape) -> None:
        """Restart a reshape whose cancellation failed: the container's record still lists it. Nothing is done if the
        container was deleted."""
        container = reshape.container
        entry = container.state.reshape(reshape.number)
        if entry is not None and not container.is_retired:
            self._start(container, entry, is_fresh=False)

    async def hold_still(self, container: Container) -> Reservation:
        """Keep a container's ranges as they are until the returned reservation is left. Running reshapes are
        cancelled."""
        while True:
            for reshape in [each for each in self.running(container) if not each.is_done]:
                if reshape.is_switching:
                    await self.finished(reshape)
                else:
                    await self.cancel(reshape)
            try:
                return Reservation(self._reserved, container, tuple(container.partitions))
            except Failure:
                await asyncio.sleep(0)  # one is about to begin

    def replaced(self, container: Container, parents: Iterable[Partition]) -> None:
        """Other partitions serve a container. The former ones are retired once their readers are done."""
        self._retirement.add(container, parents)
        self._budgets.assign(container)
        self._watch(container, [each for each in container.partitions.values() if each.on_grown is None])

    def adopted(self, container: Container, parents: Iterable[Partition]) -> None:
        """Other partitions serve a container: another process has split or merged some, or restored a snapshot.
        `parents`: those of this process that were replaced."""
        rid = container.record.rid
        self._reserved -= {key for key in self._reserved if key[0] == rid and key[1] not in container.partitions}
        self.replaced(container, parents)

    def running(self, container: Container | None = None) -> list[Reshape]:
        return [each for each in self._running.values() if container is None or each.container is container]

    def shown(self, container: Container | None = None) -> list[Reshape]:
        """Those of other processes too."""
        return self.running(container)

    @property
    def is_idle(self) -> bool:
        """Nothing is going on, nor about to begin."""
        return not self._running and not self._tasks

    def reserve(self, rid: bytes, range_id: int, *, is_reserved: bool) -> None:
        """Another process splits or merges a range, or does not any more."""
        change = self._reserved.add if is_reserved else self._reserved.discard
        change((rid, range_id))

    def is_reshaping(self, partition: Partition, container: Container) -> bool:
        return (container.record.rid, partition.range.id) in self._reserved

    # For throughput.

    async def grow(self, container: Container, count: int) -> None:
        """Split until there are at least so many ranges, the largest first. Returns when the number is recorded; it is
        forgotten when it is reached, or replaced by another one."""
        if container.key is None:
            raise bad_request(f"The container '{container.name}' has no partition key, so it cannot be split.")
        if count == container.state.wanted_ranges:
            return
        await self._want(container, count if count > len(container.map.ranges) else 0)

    def is_growing(self, container: Container) -> bool:
        return container.state.wanted_ranges > len(container.map.ranges)

    async def grown(self, container: Container) -> None:
        """Wait until there are as many ranges as are wanted."""
        while self.is_growing(container) and not container.is_retired:
            await self._registry.clock.sleep(limits.RESHAPE_POLL_SECONDS)

    # Step by step.

    async def let_go_on(self, reshape: Reshape | None = None) -> int:
        """The same, in other processes too."""
        return self.advance(reshape)

    async def _reach(self, reshape: Reshape, point: str) -> None:
        if self.on_point is not None:
            self.on_point(reshape, point)
        tell_point(self._registry.events, reshape, point)
        await self.stop_at(reshape, point)

    # Upkeep.

    async def keep_up(self) -> None:
        """Once in a while: empty the stores of parents, and look for what could be merged."""
        await self._retirement.collect()
        for container in self._registry.containers:
            for entry in self._standing(container):
                if all(map(self._registry.holds, entry.stores)):
                    self._start(container, entry, is_fresh=False)
                else:  # a move, whose two places have come to different processes
                    await self._try(self._take_back(container, entry.number, entry.parents), container)
        if not self._registry.plans:
            return
        for container in self._registry.containers:
            self.consider(container)
            if self._registry.settings.merges_by_policy:
                await self._merge_by_policy(container)

    async def _merge_by_policy(self, container: Container) -> None:
        """Merge two neighbours that are small together, if the share of throughput of each partition is small too."""
        if container.is_restating or self.is_growing(container) or self.running(container):
            return
        count = len(container.map.ranges)
        throughput_ru = self._throughput_ru(container)
        if count < 2 or throughput_ru is None or throughput_ru / count >= limits.MERGE_PARTITION_RU_MAX:
            return
        partitions = [container.partitions[each.id] for each in container.map.ranges]
        if sum(each.head.size_bytes for each in partitions) / count >= self._small_bytes:
            return
        pairs = [pair for pair in pairwise(partitions) if are_together(pair[0].range.store, pair[1].range.store)]
        if not pairs:
            return
        low, high = min(pairs, key=lambda pair: pair[0].head.size_bytes + pair[1].head.size_bytes)
        if low.head.size_bytes + high.head.size_bytes < self._small_bytes:
            await self._try(self.merge(container, low.range.id, high.range.id), container)

    @property
    def _small_bytes(self) -> float:
        return self._registry.settings.partition_storage_bytes * limits.MERGE_STORAGE_SHARE_MAX

    def _check_mergeable(self, container: Container, partitions: list[Partition]) -> None:
        limit_bytes = self._registry.settings.partition_storage_bytes
        size_bytes = sum(partition.head.size_bytes for partition in partitions)
        if size_bytes >= limit_bytes:
            raise bad_request(
                f"The two ranges hold {size_bytes} bytes together, and one partition stores {limit_bytes}: it would be "
                "split again at once."
            )
        throughput_ru = self._throughput_ru(container)
        carried_ru = (len(container.map.ranges) - 1) * self._registry.settings.partition_throughput_ru
        if self.is_growing(container) or (throughput_ru is not None and throughput_ru > carried_ru):
            raise bad_request(
                f"The container's throughput needs all its partitions; with one less they carry {carried_ru} RU/s. "
                "Scale it down first."
            )

    def _throughput_ru(self, container: Container) -> int | None:
        """What is provisioned for a container, alone or with others; None: nothing is."""
        offer = self._budgets.offer_of(container.record) or self._budgets.offer_of(container.database)
        return throughput_of(offer.body).ru if offer is not None else None

    # Storage.

    def _watch(self, container: Container, partitions: Iterable[Partition]) -> None:
        limit_bytes = self._registry.settings.partition_storage_bytes
        for partition in partitions:
            if partition.is_elsewhere:
                continue
            partition.watched_bytes = limit_bytes
            partition.on_grown = lambda partition, container=container: self._outgrown(container, partition)
            if partition.head.size_bytes >= limit_bytes:
                self._outgrown(container, partition)

    def _outgrown(self, container: Container, partition: Partition) -> None:
        if container.key is not None and (container.record.rid, partition.range.id) not in self._reserved:
            reservation = Reservation(self._reserved, container, (partition.range.id,))
            self._spawn(self._try(self._split_outgrown(container, partition, reservation), container))

    async def _split_outgrown(self, container: Container, partition: Partition, reservation: Reservation) -> None:
        try:
            await self._split(container, partition.range.id, None, STORAGE, reservation)
        except Failure as failure:
            # Try again when the partition has grown: perhaps by other keys. The writer enforces the limit of one key.
            grown_bytes = partition.head.size_bytes // limits.OUTGROWN_SHARE
            partition.watched_bytes = partition.head.size_bytes + max(1, grown_bytes)
            if not isinstance(failure, OneKey):
                raise

    # Beginning.

    async def _split(
        self, container: Container, range_id: int, boundary: bytes | None, reason: str, reservation: Reservation
    ) -> Reshape:
        with reservation:
            partition = container.partition_by_id(str(range_id))
            key_range = partition.range
            if container.key is None:
                raise bad_request(f"The container '{container.name}' has no partition key, so it cannot be split.")
            if boundary is None:
                maximum, rest = self._registry.settings.partition_storage_bytes, self._throttle.rest
                boundary = await boundary_in(container, partition, maximum, rest, by_size=reason == STORAGE)
            if not key_range.low < boundary < key_range.high:
                raise bad_request(
                    f"The boundary {boundary.hex().upper()} is not inside of the range {range_id}, which is "
                    f"[{key_range.low.hex().upper()}, {key_range.high.hex().upper()})."
                )
            children = [(key_range.low, boundary), (boundary, key_range.high)]
            return await self._begin(container, (range_id,), children, reason, reservation)

    async def _begin(
        self,
        container: Container,
        parents: tuple[int, ...],
        children: list[tuple[bytes, bytes]],
        reason: str,
        reservation: Reservation,
        place: int | None = None,
    ) -> Reshape:
        """`place`: of the children; None: that of their parents."""
        store = container.partitions[parents[0]].range.store
        target = place_of_store(store) if place is None else place
        started: list[Reshape] = []

        def change(state: ContainerState, new_store: NewStore) -> ContainerState:
            made = tuple([ReshapeChild(low, high, new_store(target)) for low, high in children])
            entry = ReshapeState(state.next_reshape, parents, made, reason)
            return replace(state, next_reshape=state.next_reshape + 1, reshapes=(*state.reshapes, entry))

        def start() -> None:
            reservation.keep()
            entry = next(each for each in container.state.reshapes if each.parents == parents)
            started.append(self._start(container, entry, is_fresh=True))

        await self._registry.catalog.change_container(
            container.record, change, on_changed=start, waits=True, guard=self._registry.place_guard(store)
        )
        return started[0]

    def _start(self, container: Container, entry: ReshapeState, *, is_fresh: bool) -> Reshape:
        lock = self._switching.get(container)
        if lock is None:
            lock = self._switching[container] = self._registry.switching_lock(container)
        reshape = Reshape(
            self._registry, container, entry, lock, self._reach, self._switched, self._throttle, is_fresh=is_fresh
        )
        self._running[(container.record.rid, reshape.number)] = reshape
        reshape.task = asyncio.create_task(self._run(reshape))
        reshape.task.add_done_callback(_report)
        return reshape

    async def _run(self, reshape: Reshape) -> None:
        try:
            await reshape.run()
        finally:
            key = (reshape.container.record.rid, reshape.number)
            if self._running.get(key) is reshape:  # else it was left, and is going on anew
                del self._running[key]
        self.consider(reshape.container)

    def _switched(self, reshape: Reshape, parents: list[Partition]) -> None:
        """The children serve. The parents are retired once their readers are done."""
        container = reshape.container
        self._reserved -= {(container.record.rid, parent.range.id) for parent in parents}
        self.replaced(container, parents)

    # The number of ranges that is wanted.

    def consider(self, container: Container) -> None:
        """Begin the splits that are missing to the wanted number of ranges."""
        wanted = container.state.wanted_ranges
        running = self.running(container)
        if not wanted or container.is_retired or not self._registry.plans:
            return
        running = [each for each in running if not each.is_done]
        missing = wanted - len(container.map.ranges) - sum(each.growth for each in running)
        rid = container.record.rid
        beginning = sum(1 for key in self._reserved if key[0] == rid) - sum(len(each.parents) for each in running)
        missing -= beginning
        if wanted <= len(container.map.ranges):
            self._spawn(self._try(self._end_growth(container), container))
        if missing <= 0:
            return
        free = [each for each in container.partitions.values() if (rid, each.range.id) not in self._reserved]
        free.sort(key=lambda each: (each.head.size_bytes, width_of(each)), reverse=True)
        for partition in free[:missing]:
            reservation = Reservation(self._reserved, container, (partition.range.id,))
            split = self._split(container, partition.range.id, None, THROUGHPUT, reservation)
            self._spawn(self._try(split, container))

    async def _end_growth(self, container: Container) -> None:
        if not self.is_growing(container):
            await self._want(container, 0)

    async def _want(self, container: Container, count: int) -> None:
        def change(state: ContainerState, _: NewStore) -> ContainerState:
            return replace(state, wanted_ranges=count)

        # If the client has gone by the time that it is recorded, begin all the same.
        begin = partial(self.consider, container) if count else None
        await self._registry.catalog.change_container(container.record, change, on_changed=begin)

    async def _try(self, wanted: Awaitable[object], container: Container) -> None:
        try:
            await wanted
        except Failure as failure:
            if not container.is_retired:
                log.warning("a reshape of %s did not begin: %s", container.link, failure.message)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_report)

    def _share(self) -> int:
        return max(1, len(self._running))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a reshape ended", exc_info=task.exception())
