"""Writes of single items that no coroutine waits for: what `visits.run` does with a `WriteItem`, in two steps. `begin`
is admitted by the partition's meter and hands the transaction to the engine; the engine calls back when it is durable,
or when it was refused.

A write that met a partition which is being split or merged, or a node that does not lead any more, has done nothing:
it is given back, and the caller does it the general way, which waits or asks another node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from armillary.account.container import Container
from armillary.account.visits.visits import charged_failure
from armillary.errors import Failure, Kind
from armillary.partition.budget import WRITE_DEPOSIT
from armillary.partition.operations import Operation, Outcome
from armillary.partition.partition import Partition
from armillary.partition.writing.plain_writes import Written

_NOT_DONE: Final = (Kind.RANGE_BUSY, Kind.NOT_LEADER)


class DeliveredWrite(ABC):
    """A Receiver of the transaction's outcome. Subclasses answer the request."""

    __slots__ = ("_is_done", "_partition", "_ticket", "container", "operation")

    def __init__(self, container: Container, operation: Operation) -> None:
        self.container = container
        self.operation = operation
        self._partition: Partition
        self._ticket = 0
        self._is_done = False

    def begin(self) -> bool:
        """Returns whether it has begun. False: it must be done the general way; nothing is counted. Raises the refusal
        of the meter, which has counted it."""
        container, operation = self.container, self.operation
        made = operation.draft
        if container.is_observed or made is None or made.made_terms is None:
            return False
        partition = container.partition_for(operation.epk)
        if not partition.is_open:
            return False
        self._partition = partition
        meter = partition.meter
        self._ticket = meter.admit(WRITE_DEPOSIT, None, operation.epk)
        try:
            partition.deliver(operation, self)
        except Failure:  # the engine accepts nothing
            meter.release(self._ticket)
            return False
        return True

    # What the engine calls. None of it may raise: other transactions of the group are answered after it.

    def done(self) -> bool:
        return self._is_done

    def set_result(self, done: tuple[Outcome, Written], /) -> None:
        self._is_done = True
        outcome, writer = done
        partition = self._partition
        try:
            partition.remember(writer)
            outcome.charge_ru = partition.meter.spend(outcome.charge_ru, self.operation.epk, self._ticket)
            self.tell(outcome, partition.range.id, partition.head.lsn)
        except Exception as crash:
            self.crash(crash)

    def set_exception(self, error: BaseException, /) -> None:
        self._is_done = True
        partition, ticket = self._partition, self._ticket
        try:
            if not isinstance(error, Failure):
                partition.meter.release(ticket)
                self.crash(error)
            elif error.kind in _NOT_DONE:
                partition.meter.release(ticket)
                self.give_back()
            else:
                self.refuse(charged_failure(self.container, partition, error, self.operation.epk, ticket))
        except Exception as crash:
            self.crash(crash)

    # What subclasses do.

    @abstractmethod
    def tell(self, outcome: Outcome, range_id: int, lsn: int) -> None:
        """It is done and durable, and counted. `lsn`: of the partition."""

    @abstractmethod
    def refuse(self, failure: Failure) -> None:
        """It was refused, which is counted, or storage has failed and its outcome may be unknown."""

    @abstractmethod
    def give_back(self) -> None:
        """Nothing was done and nothing is counted: do it the general way."""

    @abstractmethod
    def crash(self, error: BaseException) -> None:
        """There is a defect of the server."""
