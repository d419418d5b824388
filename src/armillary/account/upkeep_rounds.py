"""Scheduling of background work on partitions: the TTL sweep, garbage collection of old log entries, session records,
events and versions, and scans over all items. Each kind of work on each partition is a generator that does a slice
(some milliseconds and bytes) and yields; a round gives every one of them a slice, several at a time so that one sync
serves them all. So no container waits for another's backlog, and requests wait for a slice at most. The work itself is
in `partition/upkeep`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection
from typing import NamedTuple

from armillary import limits
from armillary.account.container import Container
from armillary.account.registry import Registry
from armillary.account.reshaping.split_planner import Reshaper
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.partition.partition import Partition
from armillary.partition.upkeep import ttl_sweep, upkeep
from armillary.partition.upkeep.background_throttle import Throttle

log = logging.getLogger(__name__)

Place = tuple[bytes, int]  # the container's rid and the range's id
Steps = AsyncGenerator[None, None]  # each step is a slice of work


_MOVING = (Kind.RANGE_BUSY, Kind.RANGE_GONE)  # another partition or process goes on with it
_SHOWN = {"expiry": "ttl", "log": "log", "look": "scan"}  # what metrics call the kinds of work


class _Job(NamedTuple):
    kind: str
    place: Place
    container: Container
    steps: Steps


class Rounds:
    def __init__(self, registry: Registry, reshaper: Reshaper) -> None:
        self._registry = registry
        self._reshaper = reshaper
        self._queue: deque[_Job] = deque()
        self._queued: set[tuple[str, Place]] = set()
        self._thinned: dict[Place, bytes] = {}  # how far logs were looked through for old tombstones
        self._looks: dict[Place, upkeep.CoverageScan] = {}
        self._kinds: dict[str, Callable[[Container, Partition], Steps]] = {
            "expiry": self._expire,
            "log": self._thin_out,
            "look": self._look,
        }

    async def keep_up(self) -> None:
        """One pass: everything that is due now gets its slices; what becomes due meanwhile joins after a second."""
        elapsed_s = self._registry.clock.elapsed_s
        throttle = Throttle(self._registry.clock, lambda: 1)
        looked_s = float("-inf")
        while True:
            if elapsed_s() - looked_s >= limits.SWEEP_EVERY_S:
                looked_s = elapsed_s()
                await self._collect(throttle)
            if not self._queue:
                return
            await self._round()
            await asyncio.sleep(0)

    def backlog(self) -> dict[str, int]:
        """How many partitions wait for each kind of upkeep, or have begun it."""
        found = dict.fromkeys(("ttl", "log", "scan"), 0)
        for kind, _ in self._queued:
            found[_SHOWN[kind]] += 1
        return found

    async def keep_up_one(self, container: Container, partition: Partition) -> None:
        """All that is due for one partition."""
        for steps in self._due(container, partition).values():
            async for _ in steps:
                pass

    def leave(self, rid: bytes, but: Collection[int] = ()) -> None:
        """Forget what is known about the partitions of a container, but for some by their ranges."""
        for place in [each for each in (*self._looks, *self._thinned) if each[0] == rid and each[1] not in but]:
            self._looks.pop(place, None)
            self._thinned.pop(place, None)

    def forget(self, container: Container, range_ids: Collection[int]) -> None:
        """Forget what is known about some partitions: other processes hold them."""
        for range_id in range_ids:
            self._looks.pop((container.record.rid, range_id), None)
            self._thinned.pop((container.record.rid, range_id), None)

    async def _collect(self, throttle: Throttle) -> None:
        served = {(each.record.rid, range_id) for each in self._registry.containers for range_id in each.partitions}
        for place in (self._looks.keys() | self._thinned.keys()) - served:  # split or merged meanwhile
            self._looks.pop(place, None)
            self._thinned.pop(place, None)
        for container in self._registry.containers:
            for partition in [each for each in container.partitions.values() if not each.is_elsewhere]:
                place = (container.record.rid, partition.range.id)
                for kind, steps in self._due(container, partition).items():
                    if (kind, place) in self._queued:
                        await steps.aclose()
                    else:
                        self._queued.add((kind, place))
                        self._queue.append(_Job(kind, place, container, steps))
                await throttle.rest()

    def _due(self, container: Container, partition: Partition) -> dict[str, Steps]:
        """The work that there may be on a partition, as far as that can be told without reading."""
        kinds = []
        place = (container.record.rid, partition.range.id)
        if container.schema.rules.default_ttl is not None:
            kinds.append("expiry")
        if not self._reshaper.is_reshaping(partition, container):  # which needs the log as it is
            kinds.append("log")
            if place in self._looks or (partition.wants_coverage_scan and not container.is_restating):
                kinds.append("look")
        return {kind: self._kinds[kind](container, partition) for kind in kinds}

    async def _round(self) -> None:
        jobs = [self._queue.popleft() for _ in range(min(len(self._queue), limits.UPKEEP_AT_ONCE))]
        for job, goes_on in zip(jobs, await asyncio.gather(*[self._step(job) for job in jobs]), strict=True):
            if goes_on:
                self._queue.append(job)
            else:
                self._queued.discard((job.kind, job.place))

    async def _step(self, job: _Job) -> bool:
        try:
            await anext(job.steps)
        except StopAsyncIteration:
            return False
        except Failure as failure:
            # A full disk or the like: clients that write are told; upkeep comes again.
            if failure.kind not in _MOVING and not job.container.is_retired:
                log.warning("upkeep of %s stopped: %s", job.container.link, failure.message)
            return False
        except Exception:  # a defect met in one container must not end the upkeep of the others
            log.exception("upkeep of %s failed", job.container.link)
            return False
        return True

    # The kinds of work.

    async def _expire(self, container: Container, partition: Partition) -> Steps:
        now_s = self._registry.clock.now_s()
        if not await partition.read(lambda view: ttl_sweep.has_expired(view, partition, now_s)):
            return
        sweep = ttl_sweep.Sweep(partition, now_s)
        while not sweep.is_over:
            await sweep.go_on(max(1, limits.UPKEEP_AT_ONCE // max(1, len(self._queue))))
            yield

    async def _thin_out(self, container: Container, partition: Partition) -> Steps:
        now_s = self._registry.clock.now_s()
        await upkeep.forget_records(partition, now_s)
        await upkeep.forget_events(partition, now_s)
        await upkeep.forget_versions(partition, container.schema, now_s)
        place = (container.record.rid, partition.range.id)
        # As far as the log went when the pass began: writers extend it all the time, and a pass that followed them
        # would take a turn of the event loop for each write.
        end = layout.change_key(partition.lsn + 1)
        while (at := self._thinned.get(place, b"")) < end:
            if self._reshaper.is_reshaping(partition, container):
                return
            self._thinned[place] = next_key = await upkeep.forget_tombstones(partition, at, now_s)
            if next_key == at:
                return  # what comes next is not old enough yet
            yield

    async def _look(self, container: Container, partition: Partition) -> Steps:
        place = (container.record.rid, partition.range.id)
        look = self._looks.get(place) or await upkeep.CoverageScan.begin(partition, container.schema)
        if look is None:
            return
        self._looks[place] = look
        while not await look.go_on():
            yield
        self._looks.pop(place, None)
