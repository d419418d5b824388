"""The stand-in for a partition that another place holds. It is among the partitions of its container, so that keys and
ranges find it, and knows what the last answer of the place told of it. Everything else is asked of the place: a use of
the partition itself, outside of a visit, is a defect, and is refused by an assertion that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from armillary import limits
from armillary.account.container import Container
from armillary.account.visits.elsewhere.page_entries import Entry
from armillary.account.visits.elsewhere.place import Patience, Place, Question, Unreached
from armillary.account.visits.elsewhere.place import ask as ask_place
from armillary.account.visits.elsewhere.questions import (
    Answered,
    Asked,
    CountRefusal,
    Figures,
    LeavePage,
    PayPage,
    ReadView,
)
from armillary.account.visits.view_readings import Found, ViewReading
from armillary.account.visits.visits import MOVING, Done, Visit, note_failure
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model.ranges import KeyRange
from armillary.partition.budget import HUNDREDTHS, READ_DEPOSIT, Ask
from armillary.partition.held_writers import HeldWriters
from armillary.partition.history.log import new_head
from armillary.partition.meter import NOT_COUNTED
from armillary.partition.operations import MemberFailed
from armillary.partition.partition import Partition
from armillary.partition.told_meter import ToldMeter


class NotHere(AssertionError):
    """What needs the state of a partition was asked of its stand-in."""


class MeterElsewhere(ToldMeter):
    """Pages enter the partition at its place, with the first slice that is read of it, and pay there. All else that a
    meter refuses, counts and spends is done there with the visits."""

    def __init__(self, clock: Clock, place: Place, container: bytes, range_id: int) -> None:
        super().__init__(clock, place.number)
        self._place = place
        self.container = container
        self._range_id = range_id
        self._entries: dict[int, Entry] = {}
        self._next = 0

    def admit(self, deposit: int = READ_DEPOSIT, ask: Ask | None = None, epk: bytes | None = None) -> int:
        ticket = self._next
        self._next += 1
        self._entries[ticket] = Entry(self._place.new_write_id(), deposit, ask, epk)
        return ticket

    def entry(self, ticket: int) -> Entry | None:
        """Of a ticket, to be sent with what the page reads."""
        return self._entries.get(ticket)

    def make_optional(self, ticket: int) -> None:
        self._entries[ticket].is_optional = True

    def is_closed(self, ask: Ask | None) -> bool:
        return False

    def spend(self, charge_ru: float, epk: bytes | None, ticket: int = NOT_COUNTED, ask: Ask | None = None) -> float:
        charged = round(charge_ru * HUNDREDTHS)
        entry = self._entries.pop(ticket, None)
        paid = PayPage(self.container, self._range_id, charged, epk, ask, entry.id if entry is not None else None)
        self._place.tell(paid)
        return charged / HUNDREDTHS

    def count_full(self, epk: bytes | None) -> None:
        pass

    def release(self, ticket: int, ask: Ask | None = None) -> None:
        entry = self._entries.pop(ticket, None)
        if entry is not None:
            self._place.tell(LeavePage(entry.id))


class PartitionElsewhere(Partition):
    is_elsewhere = True
    meter: MeterElsewhere

    def __init__(
        self,
        place: Place,
        container: bytes,
        key_range: KeyRange,
        clock: Clock,
        present: Callable[[], Partition | None],
        first_lsn: int,
    ) -> None:
        """`container`: what the place knows it by. `present`: what the container has for the range now."""
        self.place = place
        self.range = key_range
        self.clock = clock
        self.head = new_head(0, first_lsn)
        self.reached_lsn = first_lsn
        self.meter = MeterElsewhere(clock, place, container, key_range.id)
        self.restated_count = 0
        self.on_grown = None
        self.is_dropped = False
        self._present = present
        self._missed_s: float | None = None  # since when the place has said that it does not hold it
        self._closed: Failure | None = None  # why writes are not sent

    async def visited(
        self, container: Container, visit: Visit[Done], ask: Ask | None, *, is_counted: bool = True
    ) -> Done | None:
        """Make a visit: it is sent to the place, run, admitted and paid for there. Captures record it here, where the
        request is known that it belongs to. None: the range is being split or merged, or has been. A write has an id:
        asked again after a lost connection it is done once, and without an answer its outcome is unknown."""
        if self._closed is not None and not visit.IS_READ:
            raise Failure(self._closed.kind, self._closed.message)
        try:
            answered = await self._visited(visit, ask, is_counted=is_counted)
        except Failure as failure:
            if failure.is_metered:
                note_failure(container, self, visit, failure)
            raise
        except MemberFailed as failed:
            if failed.failure.is_metered:
                note_failure(container, self, visit, failed.failure, failed.index)
            raise
        if answered is None:
            return None
        if answered.figures is not None:
            self.adopt(answered.figures)
        done: Done | None = answered.done
        if done is not None and is_counted and container.recording is not None:
            visit.adopt_written(answered.written)
            container.recording.add(visit.notes(done), (self.range.id,))
        return done

    async def _visited(self, visit: Visit[Done], ask: Ask | None, *, is_counted: bool) -> Answered | None:
        patience: Patience | None = None
        while not self.is_moved:
            try:
                write_id = None if visit.IS_READ else self.place.new_write_id()
                asked = Asked(self.container_name, self.range.id, visit, ask, write_id, is_counted)
                answered: Answered | None = await self.asked(asked)
                return answered
            except Unreached:
                patience = patience or Patience(self.clock)
                if not await patience.wait():
                    raise
        return None

    async def asked(self, question: Question) -> Any | None:
        """The answer of the place. None: it has nothing done, and another process has come to hold the partition, which
        may be this one."""
        try:
            return await ask_place(self.place, question, self.clock)
        except Unreached:
            if self.is_moved:
                return None
            raise
        except Failure as failure:
            if MOVING in failure.details:
                return None
            raise

    async def read_view(self, reading: ViewReading[Found]) -> Found:
        found: Found = await ask_place(self.place, ReadView(self.container_name, self.range.id, reading), self.clock)
        return found

    def refused(self, container: Container, failure: Failure, epk: bytes | None) -> None:
        """Have the place count a refusal that no visit led to."""
        self.place.tell(CountRefusal(self.container_name, self.range.id, failure, epk))

    def adopt(self, figures: Figures) -> None:
        """What the place told of the partition. Answers may arrive in another order than they were given."""
        self._missed_s = None
        if figures.lsn >= self.head.lsn:
            head = self.head
            head.lsn = self.reached_lsn = figures.lsn
            head.item_count, head.size_bytes = figures.item_count, figures.size_bytes

    @property
    def container_name(self) -> bytes:
        """Of its container, in questions to the place: its rid, or a name that the place has given to the container as
        a transaction or a snapshot sees it."""
        return self.meter.container

    @property
    def lsn(self) -> int:
        return self.head.lsn

    @property
    def is_moved(self) -> bool:  # type: ignore[override]
        return self._present() is not self

    @property
    def is_open(self) -> bool:
        """Whether it can be written to without a visit."""
        return False

    @property
    def is_held(self) -> bool:
        return False

    @property
    def is_promised(self) -> bool:
        return False

    def at_hand(self) -> None:
        return None

    async def open(self) -> None:
        """The place opens its own."""

    async def keep_versions(self) -> None:
        """The same."""

    async def released(self) -> None:
        """Before it is asked again. The place has waited until its partition serves or has moved; one that does not
        hold it any more is asked for a while, until its successor is known here."""
        if self.is_moved:
            return
        now_s = self.clock.elapsed_s()
        if self._missed_s is None:
            self._missed_s = now_s
        elif now_s - self._missed_s < limits.PLACE_WAIT_SECONDS:
            await self.clock.sleep(limits.PLACE_RETRY_SECONDS)
        else:
            self._missed_s = None
            raise Unreached()

    def close(self, reason: Failure | None = None) -> None:
        """The place closes its own. With a reason, this container is not what its rid stands for any more: writes that
        are meant for it are not sent."""
        self._closed = reason

    def end(self, reason: Failure) -> None:
        """The same."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotHere(f"Partition.{name} was used of a partition that another place holds")


# Everything that is inherited needs the state of the partition.
OWN: Final = frozenset(vars(PartitionElsewhere))


def _refusing(name: str) -> property:
    return property(lambda self: PartitionElsewhere.__getattr__(self, name))


for _name in (vars(Partition).keys() | vars(HeldWriters).keys()) - OWN:
    if not _name.startswith("__"):
        setattr(PartitionElsewhere, _name, _refusing(_name))
