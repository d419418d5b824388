"""The one request path to a partition. What is asked of a partition is a visit: plain data that says what to read or
write, about which logical partition. `run` takes it there: it finds the partition that owns the key, lets rules of
faults have the request, is admitted by the partition's meter, runs the visit, and pays for it. A partition that is
being split or merged is waited for, and its successor is asked instead.

No other code of the account admits requests to a partition or spends its request units, except pages that read several
partitions (`page_charges.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar, cast

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.notes import Note
from armillary.account.container import Container
from armillary.errors import Failure, Kind
from armillary.model.sendable import Sendable
from armillary.partition.budget import READ_DEPOSIT, Ask
from armillary.partition.meter import Meter
from armillary.partition.operations import MemberFailed, Operation, Outcome, Result
from armillary.partition.partition import Partition

Session = Mapping[int, int]  # range id -> lsn
Writes = Sequence[tuple[Operation, Outcome]]
# Among the details of a Failure: another process holds the partition, or will, and nothing was read.
MOVING: Final = "moving"


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

    def notes(self, done: Done | None) -> Sequence[Note]:
        """What a capture records of it. None: it failed."""
        note = Note(self.OPERATION, Kind.INTERNAL, 0.0, is_alone=False)
        if done is not None:
            note.outcome, note.charge_ru = Result.READ, done.charge_ru
        return (note,)

    def written(self) -> Writes:
        """What it has written that neither it nor its answer says: for captures in the process that has sent it."""
        return ()

    def adopt_written(self, written: Writes) -> None:
        """Take over what `written` has returned where it was run."""

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


class VisitedElsewhere(Protocol):
    """A stand-in for a partition that another process holds (`elsewhere/partition_elsewhere.py`)."""

    async def visited(
        self, container: Container, visit: Visit[Done], ask: Ask | None, *, is_counted: bool = True
    ) -> Done | None: ...

    def refused(self, container: Container, failure: Failure, epk: bytes | None) -> None: ...


async def run(container: Container, visit: Visit[Done], ask: Ask | None = None) -> Done:
    """Make a visit to the partition that owns its key, whichever that is by then."""
    assert visit.epk is not None
    lost = await meet_faults(container, visit) if container.faults is not None else None
    done = await run_on(container, visit, ask)
    if lost is not None and visit.has_taken_place(done):
        raise lost
    return done


async def run_on(container: Container, visit: Visit[Done], ask: Ask | None = None) -> Done:
    """The same for the rest of a request that rules of faults have had."""
    assert visit.epk is not None
    while True:
        partition = container.partition_for(visit.epk)
        done = await run_at(container, partition, visit, ask)
        if done is not None:
            return done
        await partition.released()


async def run_uncounted(container: Container, visit: Visit[Done]) -> Done:
    """The same for what is no request of its own, but part of one that is counted elsewhere, or of a transaction whose
    operations were: nothing is admitted and nothing is charged."""
    assert visit.epk is not None
    while True:
        partition = container.partition_for(visit.epk)
        done = await run_uncounted_at(container, partition, visit)
        if done is not None:
            return done
        await partition.released()


async def run_uncounted_at(container: Container, partition: Partition, visit: Visit[Done]) -> Done | None:
    """The same at this partition. None: it is being split or merged, or has been."""
    if partition.is_elsewhere:
        return await cast(VisitedElsewhere, partition).visited(container, visit, None, is_counted=False)
    try:
        done = await visit.run(container, partition)
    except Failure as failure:
        if visit.is_tried_again(failure):
            return None
        raise
    return None if partition.is_moved and visit.IS_READ else done


async def meet_faults(container: Container, visit: Visit[Done]) -> Failure | None:
    """Let rules of faults have the request. Raises, waits, or returns what to raise once the work is done."""
    if container.faults is None or visit.epk is None:
        return None
    return await container.faults.at_key(visit.fault_name(), container, visit.epk)


async def run_at(
    container: Container, partition: Partition, visit: Visit[Done], ask: Ask | None = None, *, is_noted: bool = True
) -> Done | None:
    """Make a visit to this partition. None: it is being split or merged, or has been; nothing was done or charged.
    `is_noted`: captures record it here, and not in another process, which has asked for it."""
    if partition.is_elsewhere:
        return await cast(VisitedElsewhere, partition).visited(container, visit, ask)
    meter = partition.meter
    try:
        ticket = meter.admit(visit.DEPOSIT, ask, visit.epk)
    except Failure as failure:
        if is_noted:
            note_failure(container, partition, visit, failure)
        raise
    try:
        done = await visit.run(container, partition)
    except Failure as failure:
        if visit.is_tried_again(failure):
            meter.release(ticket, ask)
            return None
        charged = charged_failure(container, partition, failure, visit.epk, ticket, ask)
        if is_noted:
            note_failure(container, partition, visit, charged)
        raise charged from None
    except MemberFailed as failed:
        visit.refuse(failed, meter, ticket, ask)
        if is_noted and failed.failure.is_metered:
            note_failure(container, partition, visit, failed.failure, failed.index)
        raise
    except BaseException:
        meter.release(ticket, ask)
        raise
    if partition.is_moved and visit.IS_READ:
        meter.release(ticket, ask)
        return None
    visit.pay(done, meter, ticket, ask)
    if container.recording is not None and is_noted:
        container.recording.add(visit.notes(done), (partition.range.id,))
    return done


def charged_failure(
    container: Container, partition: Partition, failure: Failure, epk: bytes | None, ticket: int, ask: Ask | None = None
) -> Failure:
    """What a request fails with that was admitted, counted by the partition's meter."""
    if failure.kind in _FULL:
        _note_full(container, partition, failure, epk)
    return located(partition, partition.meter.charge(failure, epk, ticket, ask))


def note_failure(
    container: Container, partition: Partition, visit: Visit[Done], failure: Failure, index: int | None = None
) -> None:
    """For captures. `index`: of the one operation of a list that was refused."""
    if container.recording is not None:
        notes = visit.notes(None)
        container.recording.fail(notes if index is None else notes[index : index + 1], (partition.range.id,), failure)


_FULL: Final = (Kind.KEY_FULL, Kind.STORAGE_FULL)


def _note_full(container: Container, partition: Partition, failure: Failure, epk: bytes | None) -> None:
    """For people who look: a key or the disk is full."""
    if container.events is None:
        return
    is_key = failure.kind is Kind.KEY_FULL
    container.events.record_again(
        (container.record.rid, epk) if is_key else Kind.STORAGE_FULL,
        limits.EVENT_FULL_SECONDS,
        "key-full" if is_key else "storage-full",
        lambda: f"A write to partition {partition.range.id} of {container.name} was refused: {failure.message}",
        container.database.name,
        container.name,
        partition=partition.range.id,
        epk=epk.hex().upper() if is_key and epk is not None else None,
    )


def metered(failure: Failure, done: Placed) -> Failure:
    """A refusal that a visit which was paid for has led to."""
    failure.charge_ru, failure.is_metered = done.charge_ru, True
    failure.details = {**failure.details, "range_id": done.range_id, "lsn": done.lsn}
    return failure


def refused_at(container: Container, partition: Partition, failure: Failure, epk: bytes | None, name: str) -> Failure:
    """A refusal of a request that a partition was not admitted for; it is counted there. `name`: of the operation."""
    if partition.is_elsewhere:
        cast(VisitedElsewhere, partition).refused(container, failure, epk)
        charged = failure
        charged.charge_ru, charged.is_metered = round(failure.charge_ru, 2), True
    else:
        charged = partition.meter.charge(failure, epk)
    if container.recording is not None:
        note = Note(name, Kind.INTERNAL, 0.0, is_alone=False)
        container.recording.fail((note,), (partition.range.id,), charged)
    return charged


def located(partition: Partition, failure: Failure) -> Failure:
    """Note where a failure happened: its answer carries a session token too."""
    failure.details = {**failure.details, **_place(partition)}
    return failure


def check_session(partition: Partition, session: Session) -> None:
    """A reader must not see less than it has seen. Tokens of split ranges count for their children."""
    key_range = partition.range
    asked = max([session.get(key_range.id, 0), *(session.get(parent, 0) for parent in key_range.parents)])
    if asked > partition.head.lsn and asked > partition.lsn:
        raise session_behind(
            "The read session is not available for the input session token: it is ahead of this partition.", partition
        )


def check_known_ranges(container: Container, session: Session) -> None:
    """On a node of a cluster that may be behind: a token that names a range which this node does not know yet is ahead
    of the range that it was split or merged from."""
    if session and max(session) >= container.state.next_range:
        raise session_behind(
            "The read session is not available for the input session token: it names a partition key range that this "
            "node does not know yet."
        )


def session_behind(message: str, partition: Partition | None = None) -> Failure:
    details = _place(partition) if partition is not None else None
    return Failure(Kind.SESSION_BEHIND, message, charge_ru=1.0, details=details)


def _place(partition: Partition) -> dict[str, int]:
    return {"range_id": partition.range.id, "lsn": partition.lsn}
