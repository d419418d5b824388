"""Operations of one request in several transactions that are under way at a time, so that they are made durable
together: nobody waits for one sync after the other. Where the first failure is to be the last thing that happens, each
transaction makes sure that the one before it went well; engines run them in the order they come.

What did not go well here was not done, and is left to `bson_items.py`, which does it in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from armillary import limits
from armillary.account.container import Container
from armillary.errors import Failure, Kind
from armillary.partition.budget import WRITE_DEPOSIT, Ask
from armillary.partition.operations import MemberFailed, Operation, Outcome
from armillary.partition.partition import Partition
from armillary.partition.records import Record, Repeated
from armillary.storage.engine import View

RecordOf = Callable[[range], Record]


def portion(container: Container, operations: Sequence[Operation], at: int, end: int) -> Sequence[Operation]:
    """The next operations that go to one partition, as many as a transaction takes."""
    partition = container.partition_for(operations[at].epk)
    end = min(end, at + limits.MANY_OPERATIONS_MAX)
    place, size_bytes = at, 0
    while place < end and size_bytes < limits.MANY_BYTES_MAX:
        operation = operations[place]
        if place > at and container.partition_for(operation.epk) is not partition:
            break
        size_bytes += len(operation.draft.text) if operation.draft is not None else 0
        place += 1
    return operations[at:place]


class _Broken(Exception):
    """What was to happen before did not."""


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
    ) -> None:
        self._container = container
        self._operations = operations
        self._ask = ask
        self._record_of = record_of
        self._is_chained = is_chained
        self._run_to = 0  # everything before it was run, if chained
        self._next = 0  # the first operation that nobody has begun
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
        """All behind a failure are broken. Whoever takes them goes on behind `end`, if at all."""
        self._taken = end
        if self._is_chained:
            await self.has_done()
            self._under_way.clear()
            self._next = self._run_to = end
            self._most = 1  # where one was not done, the next may not be either: not so many in vain

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        operations = self._operations
        while self._next < len(operations) and self._next - self._taken < self._most:
            batch = portion(self._container, operations, self._next, len(operations))
            # Who owns them now: by the time that the task runs it may be several.
            partition = self._container.partition_for(batch[0].epk)
            task = loop.create_task(self._attempt(partition, batch, self._next))
            self._next += len(batch)
            self._under_way.append(_UnderWay(self._next, task))

    async def _attempt(self, partition: Partition, batch: Sequence[Operation], at: int) -> list[Outcome] | None:
        ask, end = self._ask, at + len(batch)
        ticket = partition.admit(WRITE_DEPOSIT, ask)
        record = self._record_of(range(at, end)) if self._record_of is not None else None

        def check(_view: View) -> None:
            if self._run_to < at:
                raise _Broken

        def note() -> None:
            self._run_to = end

        try:
            if self._is_chained:
                outcomes = await partition.write_all(batch, record, check, note)
            else:
                outcomes = await partition.write_all(batch, record)
        except (MemberFailed, Repeated, _Broken):
            partition.meter.release(ticket, ask)
            return None
        except Failure as failure:
            if failure.kind is not Kind.RANGE_BUSY:
                raise partition.meter.charge(failure, batch[0].epk, ticket, ask) from None
            partition.meter.release(ticket, ask)
            return None
        for operation, outcome in zip(batch, outcomes, strict=True):
            outcome.charge_ru = partition.spend(outcome.charge_ru, operation.epk, ticket, ask)
            ticket = min(ticket, 0)  # the deposit was one for all
        return outcomes
