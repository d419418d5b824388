"""Pipelined writes: the operations of one request in several transactions that are in flight at the same time, so that
one sync of the write-ahead log makes several of them durable. In an ordered write, where nothing may follow the first
failure, each transaction checks that the one before it succeeded; engines run them in the order of submission.
Neighbouring operations on different partitions are then one transaction over all of these, committed or not as a whole.

Operations whose transaction failed here were not done; `document_operations.py` does them one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from armillary import limits
from armillary.account.catalog.allocation import are_together
from armillary.account.container import Container
from armillary.account.visits import visits
from armillary.account.visits.write_visits import WriteMany, ready_all, run_together
from armillary.errors import Failure, Kind
from armillary.partition.budget import Ask
from armillary.partition.history.retryable_write_records import Record, Repeated
from armillary.partition.operations import MemberFailed, Operation, Outcome
from armillary.partition.partition import Partition
from armillary.partition.writing.multi_partition_write import Share, write_together

RecordOf = Callable[[Sequence[int]], Record]  # of operations by their places


def portion(
    container: Container, operations: Sequence[Operation], at: int, end: int, *, is_mixed: bool = False
) -> Sequence[Operation]:
    """The next operations that go to one partition, or to any if `is_mixed`, as many as a transaction takes."""
    partition = container.partition_for(operations[at].epk)
    end = min(end, at + limits.MANY_OPERATIONS_MAX)
    place, size_bytes = at, 0
    while place < end and size_bytes < limits.MANY_BYTES_MAX:
        operation = operations[place]
        if not is_mixed and place > at and container.partition_for(operation.epk) is not partition:
            break
        size_bytes += len(operation.draft.text) if operation.draft is not None else 0
        place += 1
    return operations[at:place]


class _Broken(Exception):
    """The transaction before this one failed."""


class _UnderWay(NamedTuple):
    end: int  # of its operations
    task: asyncio.Task[list[Outcome] | None]


class Ahead:
    def __init__(
        self,
        container: Container,
        operations: Sequence[Operation],
        ask: Ask | None,
        record_of: RecordOf | None,
        *,
        is_chained: bool,
        is_mixed: bool,
    ) -> None:
        self._container = container
        self._operations = operations
        self._ask = ask
        self._record_of = record_of
        self._is_chained = is_chained
        self._is_mixed = is_mixed
        self._run_to = 0  # everything before it was run, if chained
        self._next = 0  # the first operation that is not in flight yet
        self._taken = 0
        self._most = limits.MANY_AHEAD_MAX  # operations under way
        self._under_way: deque[_UnderWay] = deque()

    async def take(self) -> tuple[int, list[Outcome] | Failure | None]:
        """The next transaction: up to which place it goes, and what became of it. None: it was not done."""
        self._fill()
        end, task = self._under_way.popleft()
        try:
            outcomes = await task
        except Failure as failure:
            await self._give_up_chain(end)
            return end, failure if failure.kind is not Kind.THROTTLED else None
        if outcomes is None:
            await self._give_up_chain(end)
        else:
            self._taken = end
            self._most = min(2 * self._most, limits.MANY_AHEAD_MAX)
        return end, outcomes

    async def has_done(self) -> bool:
        """Whether any of those that were not taken yet went well."""
        found = await asyncio.gather(*[each.task for each in self._under_way], return_exceptions=True)
        return any(isinstance(each, list) for each in found)

    async def end(self) -> None:
        for each in self._under_way:
            each.task.cancel()
        await self.has_done()

    async def _give_up_chain(self, end: int) -> None:
        """In an ordered write all transactions behind a failed one fail too. What follows begins at `end`."""
        self._taken = end
        if self._is_chained:
            await self.has_done()
            self._under_way.clear()
            self._next = self._run_to = end
            self._most = 1  # the next may fail too, so only one is in flight from here on

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        operations = self._operations
        while self._next < len(operations) and self._next - self._taken < self._most:
            batch = portion(self._container, operations, self._next, len(operations), is_mixed=self._is_mixed)
            batch = ready_all(self._container, batch)
            # The partitions that own the keys now; after a split, more may own them when the task runs.
            places: dict[Partition, list[int]] = {}
            for place, operation in enumerate(batch):
                places.setdefault(self._container.partition_for(operation.epk), []).append(place)
            task = loop.create_task(self._attempt(places, batch, self._next))
            self._next += len(batch)
            self._under_way.append(_UnderWay(self._next, task))

    async def _attempt(
        self, places: dict[Partition, list[int]], batch: Sequence[Operation], at: int
    ) -> list[Outcome] | None:
        end = at + len(batch)
        if any(partition.is_elsewhere for partition in places) or not _are_together(places):
            return await self._attempt_elsewhere(places, batch, at)
        shares = {partition: [batch[place] for place in own] for partition, own in places.items()}
        try:
            found = await run_together(
                self._container, shares, lambda: self._written(places, batch, at, end), self._ask
            )
        except (MemberFailed, Repeated, _Broken):
            return None
        if found is None:
            return None
        outcomes: list[Outcome | None] = [None] * len(batch)
        for own, done in zip(places.values(), found, strict=True):
            for place, outcome in zip(own, done, strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    async def _attempt_elsewhere(
        self, places: dict[Partition, list[int]], batch: Sequence[Operation], at: int
    ) -> list[Outcome] | None:
        """With partitions of other processes, or of several logs, there is neither one transaction for several of them
        nor a chain."""
        if self._is_chained or len(places) > 1:
            return None
        (partition,) = places
        record = self._record_of(range(at, at + len(batch))) if self._record_of is not None else None
        try:
            done = await visits.run_at(self._container, partition, WriteMany(batch[0].epk, batch, record), self._ask)
        except (MemberFailed, Repeated):
            return None
        return done.outcomes if done is not None else None

    async def _written(
        self, places: dict[Partition, list[int]], batch: Sequence[Operation], at: int, end: int
    ) -> list[list[Outcome]]:
        """What became of those of each partition."""

        def guard() -> None:
            if self._run_to < at:
                raise _Broken

        def note() -> None:
            self._run_to = end

        record_of = self._record_of
        if len(places) > 1:
            shares = []
            for partition, own in places.items():
                record = None if record_of is None else record_of([at + place for place in own])
                shares.append(Share(partition, [batch[place] for place in own], record))
            return await write_together(shares, guard, note)
        (partition,) = places
        record = None if record_of is None else record_of(range(at, end))
        if not self._is_chained:
            return [await partition.write_all(batch, record)]
        return [await partition.write_all(batch, record, lambda _view: guard(), note)]


def _are_together(partitions: Collection[Partition]) -> bool:
    stores = [each.range.store for each in partitions]
    return all(are_together(stores[0], each) for each in stores[1:])
