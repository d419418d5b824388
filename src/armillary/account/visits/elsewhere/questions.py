"""A visit to a partition of another place as a question to it, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.account.visits import visits
from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.account.visits.view_readings import ViewReading, read_view
from armillary.account.visits.visits import MOVING, Visit, Writes
from armillary.errors import Failure, Kind
from armillary.partition.budget import HUNDREDTHS, Ask
from armillary.partition.meter import NOT_COUNTED
from armillary.partition.partition import Partition


@dataclass(slots=True)
class Figures:
    """Of a partition, after a visit."""

    lsn: int
    item_count: int
    size_bytes: int


@dataclass(slots=True)
class Answered:
    """`done` None: the range is being split or merged, or has been; nothing was done or charged."""

    done: Any
    figures: Figures | None = None
    next_range: int = 0  # of the map of ranges as the place knows it
    written: Writes = ()  # where captures run


@dataclass(slots=True)
class Asked(Question):
    container: bytes  # rid
    range_id: int
    visit: Visit[Any]
    ask: Ask | None = None
    id: bytes | None = None  # of a write
    is_counted: bool = True  # admitted and charged

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> Answered:
        container = here.container(self.container)
        partition = container.partitions.get(self.range_id)
        if partition is None or partition.is_elsewhere:
            return Answered(None, next_range=container.state.next_range)
        visit = self.visit
        visit.receive(here.account)
        if self.is_counted:
            done = await visits.run_at(container, partition, visit, self.ask, is_noted=False)
        else:
            done = await visits.run_uncounted_at(container, partition, visit)
        if done is None:
            await partition.released()
        written = visit.written() if container.recording is not None else ()
        return Answered(done, figures_of(partition), container.state.next_range, written)


@dataclass(slots=True)
class ReadView(Question):
    """A reading for figures, of one partition."""

    container: bytes  # rid
    range_id: int
    reading: ViewReading[Any]

    async def answer(self, here: LocalPlace) -> Any:
        partition = here.container(self.container).partitions.get(self.range_id)
        if partition is None or partition.is_elsewhere:
            raise Failure(
                Kind.UNAVAILABLE,
                "The partition was split, merged or moved meanwhile. Try again.",
                retry_after_ms=limits.CLUSTER_RETRY_MS,
                details={MOVING: True},
            )
        return await read_view(partition, self.reading)


@dataclass(slots=True)
class CountRefusal(Told):
    """A refusal that no visit led to, for the meter of the partition that it is about."""

    container: bytes  # rid
    range_id: int
    failure: Failure
    epk: bytes | None

    def take(self, here: LocalPlace) -> None:
        container = here.find_container(self.container)
        partition = container.partitions.get(self.range_id) if container is not None else None
        if partition is not None:
            partition.meter.charge(self.failure, self.epk)


def figures_of(partition: Partition) -> Figures:
    head = partition.head
    return Figures(partition.lsn, head.item_count, head.size_bytes)


@dataclass(slots=True)
class PayPage(Told):
    """A partition's share of the charge of a page that was gathered elsewhere."""

    container: bytes  # rid
    range_id: int
    charged: int  # hundredths of request units
    epk: bytes | None = None
    ask: Ask | None = None
    entry_id: bytes | None = None  # None: it pays without having been entered

    def take(self, here: LocalPlace) -> None:
        held = here.entries.end(self.entry_id) if self.entry_id is not None else None
        if held is not None:
            held.partition.meter.spend(self.charged / HUNDREDTHS, self.epk, held.ticket, self.ask)
            return
        container = here.find_container(self.container)
        partition = container.partitions.get(self.range_id) if container is not None else None
        if partition is not None and not partition.is_elsewhere:
            partition.meter.spend(self.charged / HUNDREDTHS, self.epk, NOT_COUNTED, self.ask)


@dataclass(slots=True)
class LeavePage(Told):
    """There will be no page, or another partition pays for it."""

    entry_id: bytes

    def take(self, here: LocalPlace) -> None:
        here.entries.leave(self.entry_id)
