"""The change feed of partitions that other places hold: pages ask for stretches of their logs, which are read there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from armillary import limits
from armillary.account.container import Container
from armillary.account.visits.elsewhere.page_entries import Entry
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.account.visits.elsewhere.questions import Figures, figures_of
from armillary.account.visits.page_walk import Moved, Refusing
from armillary.account.visits.visits import check_session
from armillary.model.encoding import ItemHeader
from armillary.partition.history.change_reading import ChangeReader, IsDue, Room, Step, VersionReader
from armillary.partition.partition import Partition


@dataclass(slots=True)
class ChangesRead:
    """Without `figures`: the partition is not here any more."""

    figures: Figures | None = None
    is_closed: bool = False  # the partition refuses, and the page can do without
    step: Step | None = None
    lsn: int = 0  # everything up to here was read; the end of the log, if only that was asked for
    last_lsn: int | None = None  # the end of the log as of the first read


@dataclass(slots=True)
class ReadChanges(Question):
    container: bytes  # rid
    range_id: int
    low: bytes
    high: bytes
    lsn: int
    last_lsn: int | None
    room: Room | None  # None: only the end of the log is asked for
    since_s: int | None
    has_versions: bool
    entry: Entry | None
    session: Mapping[int, int] | None = None

    async def answer(self, here: LocalPlace) -> ChangesRead:
        container, clock = here.container(self.container), here.account.clock
        held = here.entries.find(self.entry) if self.entry is not None else None
        partition = held.partition if held is not None else container.partitions.get(self.range_id)
        if partition is None or partition.is_elsewhere or (held is None and partition.is_moved):
            return ChangesRead()
        if held is None:
            if self.session is not None:
                check_session(partition, self.session)
            if self.entry is not None and here.entries.enter(self.entry, partition) is None:
                return ChangesRead(figures_of(partition), is_closed=True)
        schema = container.schema

        def is_live(header: ItemHeader) -> bool:
            return schema.is_live(header, clock.now_s())

        kind = VersionReader if self.has_versions else ChangeReader
        has_expiry = schema.rules.default_ttl is not None
        is_wanted = is_live if has_expiry else None
        reader = kind(partition, self.low, self.high, self.lsn, since_s=self.since_s, is_live=is_wanted)
        reader.go_on(self.last_lsn)
        if self.room is None:
            return ChangesRead(figures_of(partition), lsn=await reader.end_lsn())
        slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        step = await reader.read(self.room, lambda: clock.elapsed_s() > slice_end_s)
        return ChangesRead(figures_of(partition), step=step, lsn=reader.lsn, last_lsn=reader.last_lsn)


class ChangesElsewhere(ChangeReader):
    """A stretch of the log of a partition that another place holds."""

    def __init__(
        self,
        container: Container,
        partition: Partition,
        low: bytes,
        high: bytes,
        lsn: int,
        since_s: int | None,
        session: Mapping[int, int] | None,
        *,
        has_versions: bool,
    ) -> None:
        super().__init__(partition, low, high, lsn, since_s=since_s)
        assert isinstance(partition, PartitionElsewhere)
        self._at = partition
        self._container = container
        self._session = session
        self._has_versions = has_versions

    async def read(self, room: Room, is_due: IsDue) -> Step:
        read = await self._ask(room)
        assert read.step is not None
        self.lsn, self._last_lsn = read.lsn, read.last_lsn
        return read.step

    async def end_lsn(self) -> int:
        return (await self._ask(None)).lsn

    async def _ask(self, room: Room | None) -> ChangesRead:
        entry = self._at.meter.entry(self.ticket)
        place = self._container.record.rid, self._at.range.id, self.low, self.high
        asked = ReadChanges(
            *place, self.lsn, self._last_lsn, room, self._since_s, self._has_versions, entry, self._session
        )
        read: ChangesRead | None = await self._at.asked(asked)
        if read is None or read.figures is None:
            raise Moved(self._at)
        self._at.adopt(read.figures)
        if read.is_closed:
            raise Refusing
        return read
