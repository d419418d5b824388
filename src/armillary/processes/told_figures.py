"""Figures of partitions as their process tells them to another one: heads, meters, splits and merges under way. The
process that is told them keeps them in its stand-ins, so everything that shows figures finds them there.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.reshaping.told_reshapes import ReshapeTold, ToldReshape, told_of
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question
from armillary.account.visits.elsewhere.questions import Figures, figures_of
from armillary.errors import Failure
from armillary.partition.load_rows import RowCounts
from armillary.partition.meter import MeterFigures
from armillary.partition.told_meter import ToldMeter
from armillary.processes.divided_reshaper import DividedReshaper
from armillary.processes.places import ProcessHere, ProcessPlace

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionTold:
    range_id: int
    figures: Figures
    restated_count: int
    meter: MeterFigures


@dataclass(slots=True)
class ContainerTold:
    rid: bytes
    partitions: list[PartitionTold]
    left: list[tuple[int, MeterFigures]]  # of partitions that were split or merged away and may still be read
    rows: list[RowCounts]  # what those have counted that cannot be read any more
    reshapes: list[ReshapeTold]


@dataclass(slots=True)
class ProcessTold:
    run: bytes  # of the process
    containers: list[ContainerTold] = field(default_factory=list)


@dataclass(slots=True)
class TellFigures(Question):
    key_count: int = 0  # of the busiest keys of each partition
    takes_rows: bool = False  # columns of the history of load, which are told once

    async def answer(self, here: LocalPlace) -> ProcessTold:
        told = ProcessTold(here.remembered.run)
        for container in here.account.containers:
            told.containers.append(self._of(here.account, container))
            await asyncio.sleep(0)
        return told

    def _of(self, account: Account, container: Container) -> ContainerTold:
        count, takes_rows, rid = self.key_count, self.takes_rows, container.record.rid
        reshaper = account.reshaper
        return ContainerTold(
            rid,
            [
                PartitionTold(number, figures_of(each), each.restated_count, each.meter.figures(count, takes_rows))
                for number, each in container.partitions.items()
                if not each.is_elsewhere
            ],
            [
                (number, meter.figures(count, takes_rows))
                for meter, number in container.left_meters.items()
                if not isinstance(meter, ToldMeter)
            ],
            account.history.take_left_rows(rid) if takes_rows else [],
            [told_of(each, is_paused=reshaper.is_paused(each)) for each in reshaper.running(container)],
        )


class FiguresOfOthers:
    """What the other processes have told this one."""

    def __init__(self, account: Account, here: ProcessHere, reshaper: DividedReshaper, *, takes_rows: bool) -> None:
        self._account = account
        self._tell_reshapes = reshaper.tell
        self._here = here
        self._takes_rows = takes_rows
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._key_count = 0  # that the next one asks for

    async def refresh(self, key_count: int) -> None:
        """Ask all of them. Requests that come while they are asked share the next time. Figures of a process that does
        not answer stay as they were."""
        self._key_count = max(self._key_count, key_count)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._ask_after(self._running))
        await asyncio.shield(self._next)

    async def _ask_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        key_count, self._key_count = self._key_count, 0
        question = TellFigures(key_count, self._takes_rows)
        await asyncio.gather(*[self._ask(place, question) for place in self._here.places.connected])

    async def _ask(self, place: ProcessPlace, question: TellFigures) -> None:
        try:
            told: ProcessTold = await place.ask(question, limit_s=limits.FIGURES_SECONDS_MAX)
        except (Failure, Lost, TimeoutError) as error:
            log.warning("process %d does not tell its figures: %r", place.number, error)
            return
        reshapes: list[ToldReshape] = []
        for each in told.containers:
            container = self._account.container_by_rid(each.rid)
            if container is not None:
                self._adopt(container, each, place.number, told.run)
                reshapes += [ToldReshape(reshape, container, place.number) for reshape in each.reshapes]
        self._tell_reshapes(place.number, reshapes)

    def _adopt(self, container: Container, told: ContainerTold, number: int, run: bytes) -> None:
        holder = self._here.places.holder
        for each in told.partitions:
            partition = container.partitions.get(each.range_id)
            if isinstance(partition, PartitionElsewhere) and holder(partition.place.number) == number:
                partition.adopt(each.figures)
                partition.restated_count = each.restated_count
                partition.meter.adopt(each.meter, run)
        left = dict(told.left)
        for meter, range_id in list(container.left_meters.items()):
            if isinstance(meter, ToldMeter) and holder(meter.place_number) == number:
                figures = left.get(range_id)
                if figures is not None:
                    meter.adopt(figures, run)
                else:
                    container.forget(meter)
        self._account.history.add_rows(container, told.rows)
