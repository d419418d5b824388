"""The one request path to a partition. What is asked of a partition is a visit: plain data that says what to read or
write, about which logical partition. `run` takes it there: it finds the partition that owns the key, lets rules of
faults have the request, is admitted by the partition's meter, runs the visit, and pays for it. A partition that is
being split or merged is waited for, and its successor is asked instead.

No other code of the account admits requests to a partition or spends its request units, except pages that read several
partitions (`page_charges.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.errors import Failure, Kind
from armillary.model.sendable import Sendable
from armillary.partition.budget import READ_DEPOSIT, Ask
from armillary.partition.meter import Meter
from armillary.partition.operations import MemberFailed
from armillary.partition.partition import Partition

Session = Mapping[int, int]  # range id -> lsn


class Charged(Protocol):
    charge_ru: float


class Placed(Charged, Protocol):
    range_id: int
    lsn: int


Done = TypeVar("Done", bound=Charged)


class Visit(Sendable, ABC, Generic[Done]):
    """What is asked of one partition. Subclasses are dataclasses whose fields are values that could be sent to another
    process, except those marked LOCAL; `run` does the work where the partition is."""

    __slots__ = ()

    DEPOSIT: ClassVar[int] = READ_DEPOSIT  # the least that it costs
    IS_READ: ClassVar[bool] = True  # what was read of a partition that has moved meanwhile may be old: ask again
    OPERATION: ClassVar[str] = ""  # what rules of faults call it
    epk: bytes | None  # the logical partition that it is about and that is charged, if it is about one

    @abstractmethod
    async def run(self, container: Container, partition: Partition) -> Done:
        """Do it. `charge_ru` of what is returned is what it costs."""

    def receive(self, account: Account) -> None:
        """It was sent from another process: take from this one's account what is not sent."""

    def fault_name(self) -> str:
        return self.OPERATION

    def pay(self, done: Done, meter: Meter, ticket: int, ask: Ask | None) -> None:
        done.charge_ru = meter.spend(done.charge_ru, self.epk, ticket, ask)

    def has_taken_place(self, done: Done) -> bool:
        """Whether there is an answer that a rule of faults can lose."""
        return True

    def refuse(self, failed: MemberFailed, meter: Meter, ticket: int, ask: Ask | None) -> None:
        """One operation of a list cannot be done, and nothing was done."""
        meter.release(ticket, ask)

    def is_tried_again(self, failure: Failure) -> bool:
        """Whether to ask the partition that owns the key by then, after this failure. Nothing was done."""
        return failure.kind is Kind.RANGE_BUSY or (failure.kind is Kind.RANGE_GONE and self.IS_READ)


async def run(container: Container, visit: Visit[Done], ask: Ask | None = None) -> Done:
    """Make a visit to the partition that owns its key, whichever that is by then."""
    assert visit.epk is not None
    lost = await meet_faults(container, visit) if container.faults is not None else None
    while True:
        partition = container.partition_for(visit.epk)
        done = await run_at(container, partition, visit, ask)
        if done is not None:
            break
        await partition.released()
    if lost is not None and visit.has_taken_place(done):
        raise lost
    return done


async def run_uncounted(container: Container, visit: Visit[Done]) -> Done:
    """The same for what is no request of its own, but part of one that is counted elsewhere, or of a transaction whose
    operations were: nothing is admitted and nothing is charged."""
    assert visit.epk is not None
    while True:
        partition = container.partition_for(visit.epk)
        try:
            done = await visit.run(container, partition)
            if not (partition.is_moved and visit.IS_READ):
                return done
        except Failure as failure:
            if not visit.is_tried_again(failure):
                raise
        await partition.released()


async def meet_faults(container: Container, visit: Visit[Done]) -> Failure | None:
    """Let rules of faults have the request. Raises, waits, or returns what to raise once the work is done."""
    if container.faults is None or visit.epk is None:
        return None
    return await container.faults.at_key(visit.fault_name(), container, visit.epk)


async def run_at(container: Container, partition: Partition, visit: Visit[Done], ask: Ask | None = None) -> Done | None:
    """Make a visit to this partition. None: it is being split or merged, or has been; nothing was done or charged."""
    meter = partition.meter
    ticket = meter.admit(visit.DEPOSIT, ask)
    try:
        done = await visit.run(container, partition)
    except Failure as failure:
        if visit.is_tried_again(failure):
            meter.release(ticket, ask)
            return None
        raise located(partition, meter.charge(failure, visit.epk, ticket, ask)) from None
    except MemberFailed as failed:
        visit.refuse(failed, meter, ticket, ask)
        raise
    except BaseException:
        meter.release(ticket, ask)
        raise
    if partition.is_moved and visit.IS_READ:
        meter.release(ticket, ask)
        return None
    visit.pay(done, meter, ticket, ask)
    return done


def metered(failure: Failure, done: Placed) -> Failure:
    """A refusal that a visit which was paid for has led to."""
    failure.charge_ru, failure.is_metered = done.charge_ru, True
    failure.details = {**failure.details, "range_id": done.range_id, "lsn": done.lsn}
    return failure


def refused_at(partition: Partition, failure: Failure, epk: bytes | None) -> Failure:
    """A refusal of a request that a partition was not admitted for; it is counted there."""
    return partition.meter.charge(failure, epk)


def located(partition: Partition, failure: Failure) -> Failure:
    """Note where a failure happened: its answer carries a session token too."""
    failure.details = {**failure.details, **_place(partition)}
    return failure


def check_session(partition: Partition, session: Session) -> None:
    """A reader must not see less than it has seen. Tokens of split ranges count for their children."""
    lsn = partition.head.lsn
    key_range = partition.range
    if session.get(key_range.id, 0) > lsn or any(session.get(parent, 0) > lsn for parent in key_range.parents):
        raise Failure(
            Kind.SESSION_BEHIND,
            "The read session is not available for the input session token: it is ahead of this partition.",
            charge_ru=1.0,
            details=_place(partition),
        )


def _place(partition: Partition) -> dict[str, int]:
    return {"range_id": partition.range.id, "lsn": partition.lsn}
