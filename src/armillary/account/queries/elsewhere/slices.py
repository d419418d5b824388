"""Slices of partitions that other places hold, for pages that are gathered here: they are read by questions
(`slice_questions.py`), and otherwise like slices of partitions here.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

from armillary.account.container import Container
from armillary.account.queries.elsewhere.reading_ahead import Bounds, ReadingAhead
from armillary.account.queries.elsewhere.slice_questions import ReadSlice, SliceRead, form_name
from armillary.account.queries.partition_slices import Slice, Tally
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.page_walk import FeedOptions, Moved, Refusing
from armillary.clock import Clock
from armillary.model.values import UNDEFINED, Value
from armillary.partition.partition import Partition
from armillary.query.access.access_path import Scope
from armillary.query.access.field_order import field_ordering
from armillary.query.execution import Execution
from armillary.query.page import START, Page, Progress
from armillary.query.recipes import recipe_of
from armillary.query.selection import Selection


class ExecutionElsewhere(Execution):
    """How far an execution at another place has come."""

    def __init__(self, progress: Progress, *, keeps_positions: bool) -> None:
        self.progress = progress
        self.keeps_positions = keeps_positions
        self._is_index_counted = progress.position != START
        self._field_ordering = None
        self._can_stop = True
        self._has_sorter = False
        self._state: Value = UNDEFINED

    @property
    def is_index_counted(self) -> bool:
        return self._is_index_counted

    @property
    def can_stop(self) -> bool:
        return self._can_stop

    @property
    def has_sorter(self) -> bool:
        return self._has_sorter

    @property
    def state(self) -> Value:
        return self._state

    def adopt(self, read: SliceRead) -> None:
        self.progress = replace(read.progress, state=UNDEFINED)
        self._is_index_counted = True
        self._can_stop = read.can_stop
        self._has_sorter = read.has_sorter
        self._state = read.progress.state if read.has_state else UNDEFINED
        if read.order_fields is not None and self._field_ordering is None:
            self._field_ordering = field_ordering(read.order_fields)


@dataclass(slots=True)
class _Course:
    """How far the questions about a slice have come."""

    execution: ExecutionElsewhere
    turn: int = 0
    entered: bytes | None = None  # the entry of the page that the turns are counted in


class SliceElsewhere(Slice):
    def __init__(
        self,
        container: Container,
        partition: Partition,
        low: bytes,
        high: bytes,
        selection: Selection,
        scope: Scope,
        progress: Progress,
        options: FeedOptions,
    ) -> None:
        execution = ExecutionElsewhere(progress, keeps_positions=selection.ordering is not None)
        super().__init__(partition, low, high, execution, Tally() if options.tells_shares else None)
        assert isinstance(partition, PartitionElsewhere)
        self._at = partition
        self._container = container
        self._selection = selection
        self._scope = scope
        self._session = options.session
        self._form = form_name(options.form)
        self._course = _Course(execution)
        self._ahead: ReadingAhead[SliceRead] | None = None
        self._ahead_course = self._course

    async def read(
        self, clock: Clock, max_items: int, max_bytes: int, begun_s: float | None = None, *, can_end: bool = False
    ) -> tuple[Page, bool]:
        read_s = clock.elapsed_s()
        bounds, course = Bounds(max_items, max_bytes), self._course
        read = await self._read_ahead(bounds)
        if read is None:
            read = await self._ask(course, clock, bounds, begun_s, can_end)
        if read.figures is None:
            raise Moved(self.partition)
        self._at.adopt(read.figures)
        if read.is_closed:
            raise Refusing
        _advance(course, read)
        if self.tally is not None:
            self.tally.add(Tally(read.counters, len(read.rows), clock.elapsed_s() - read_s))
        page = Page(read.rows, read.position, read.counters, read.size_bytes, read.positions)
        return page, read.is_out_of_time

    async def _ask(
        self, course: _Course, clock: Clock, bounds: Bounds, begun_s: float | None, can_end: bool
    ) -> SliceRead:
        execution, entry = course.execution, self._at.meter.entry(self.ticket)
        if entry is None or entry.id != course.entered:
            course.turn, course.entered = 0, entry.id if entry is not None else None
        progress = execution.progress
        if execution.state is not UNDEFINED:
            progress = replace(progress, state=execution.state)
        asked = ReadSlice(
            self._at.container_name,
            self.partition.range.id,
            self.low,
            self.high,
            recipe_of(self._selection),
            self._scope,
            entry,
            course.turn,
            progress,
            *bounds,
            clock.elapsed_s() - begun_s if begun_s is not None else None,
            can_end,
            execution.keeps_positions,
            execution.is_index_counted,
            self._form,
            execution.order_fields,
            self._session,
        )
        read: SliceRead | None = await self._at.asked(asked)
        return read if read is not None else SliceRead()

    # Before its turn.

    def begin_ahead(
        self, clock: Clock, max_items: int, max_bytes: int, begun_s: float | None = None, *, can_end: bool = False
    ) -> None:
        if self._ahead is not None:
            return
        execution = copy(self._course.execution)
        execution.progress = replace(execution.progress)
        course = self._ahead_course = replace(self._course, execution=execution)

        async def ask_on(bounds: Bounds) -> SliceRead:
            read = await self._ask(course, clock, bounds, begun_s, can_end)
            if read.figures is not None and not read.is_closed:
                _advance(course, read)
            return read

        self._ahead = ReadingAhead(Bounds(max_items, max_bytes), ask_on)

    async def _read_ahead(self, bounds: Bounds) -> SliceRead | None:
        """A read that was begun before its turn, if it is what a read with these bounds gives now."""
        ahead, course = self._ahead, self._course
        if ahead is None:
            return None
        given = await ahead.take()
        if given is None:
            self._ahead = None
            return None
        asked, read = given
        is_small = read.position is None or read.is_out_of_time
        fits = is_small and read.row_count < bounds.max_items and read.size_bytes < bounds.max_bytes
        if asked != bounds and not fits:
            self.leave_ahead()
            return None
        course.entered = self._ahead_course.entered
        return read

    def leave_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
            # The place may have answered one more turn than is known here: it makes the execution anew.
            self._course.turn, self._course.entered = self._ahead_course.turn + 2, self._ahead_course.entered


def _advance(course: _Course, read: SliceRead) -> None:
    course.turn += 1
    course.execution.adopt(read)
