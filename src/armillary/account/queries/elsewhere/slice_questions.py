"""Slices of pages that another process gathers, as questions to the place that holds the partition. The place compiles
the selection from its recipe and keeps the execution with the page's entry, so that groups and sorts go on where they
were; an execution that was lost with its place is made again from what the question says of its progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from armillary.account.container import Container
from armillary.account.queries.partition_slices import Slice
from armillary.account.visits.elsewhere.page_entries import Entry, HeldEntry
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.account.visits.elsewhere.questions import Figures, figures_of
from armillary.account.visits.page_walk import Moved
from armillary.account.visits.visits import check_session
from armillary.errors import Failure, Kind
from armillary.model.documents import BSON, Form, bson_form
from armillary.model.encoding import ItemHeader
from armillary.model.values import UNDEFINED
from armillary.partition.partition import Partition
from armillary.query.access.access_path import Index, Scope
from armillary.query.execution import Execution
from armillary.query.page import START, Counters, Position, Progress
from armillary.query.selection import Recipe


@dataclass(slots=True)
class FormName:
    """In which form items are read and rows are answered."""

    is_bson: bool = False
    fields: frozenset[str] | None = None  # of BSON: the only ones that are read

    def form(self, container: Container) -> Form:
        if not self.is_bson:
            return container.form
        return BSON if self.fields is None else bson_form(self.fields)


def form_name(form: Form | None) -> FormName:
    return FormName(not form.is_json, form.fields) if form is not None else FormName()


@dataclass(slots=True)
class SliceRead:
    """A page of rows and how far the execution has come. Without `figures`: the partition is not here any more."""

    figures: Figures | None = None
    is_closed: bool = False  # the partition refuses, and the page can do without
    rows: list[bytes] = field(default_factory=list)
    position: Position | None = None
    counters: Counters = field(default_factory=Counters)
    size_bytes: int = 0
    positions: Sequence[Position] = ()
    is_out_of_time: bool = False
    progress: Progress = field(default_factory=Progress)
    has_state: bool = False  # of groups; where the slice has ended or could be taken up by another request
    can_stop: bool = True
    has_sorter: bool = False
    order_fields: tuple[tuple[str, bool], ...] | None = None  # that positions are by

    @property
    def row_count(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class ReadSlice(Question):
    container: bytes  # rid
    range_id: int
    low: bytes
    high: bytes
    recipe: Recipe
    scope: Scope
    entry: Entry | None  # None: the partition was not entered, and nothing is kept for the next slice
    turn: int  # the number of this read, from 0
    progress: Progress
    max_items: int
    max_bytes: int
    spent_s: float | None  # since the page began
    can_end: bool
    keeps_positions: bool
    is_index_counted: bool
    form: FormName
    order_fields: tuple[tuple[str, bool], ...] | None = None
    session: Mapping[int, int] | None = None

    async def answer(self, here: LocalPlace) -> SliceRead:
        try:
            return await self._answer(here)
        except Moved:
            return SliceRead()

    async def _answer(self, here: LocalPlace) -> SliceRead:
        container = here.container(self.container)
        held = here.entries.find(self.entry) if self.entry is not None else None
        if held is None:
            partition = container.partitions.get(self.range_id)
            if partition is None or partition.is_elsewhere or partition.is_moved:
                return SliceRead()
            if self.session is not None:
                check_session(partition, self.session)
            if self.entry is None:
                return await self._read(here, partition, await self._slice(here, container, partition))
            held = here.entries.enter(self.entry, partition)
            if held is None:
                return SliceRead(figures_of(partition), is_closed=True)
        async with held.lock:
            return await self._read_held(here, container, held)

    async def _read_held(self, here: LocalPlace, container: Container, held: HeldEntry) -> SliceRead:
        if self.turn == held.turn:
            answer: SliceRead = held.answer
            return answer
        found: Slice | None = held.reader if held.turn == self.turn - 1 else None
        held.reader = None  # if the read is cancelled or fails
        if found is None:
            found = await self._slice(here, container, held.partition)
        read = await self._read(here, held.partition, found)
        held.reader = found if read.position is not None else None
        held.turn, held.answer = self.turn, read
        return read

    async def _slice(self, here: LocalPlace, container: Container, partition: Partition) -> Slice:
        from armillary.account.queries.recipe_compiler import compiled  # with all languages: only a place needs them

        made = await compiled(here.account, container, self.recipe)
        schema, selection, progress = container.schema, made.selection, self.progress
        is_begun = self.turn > 0 and progress.position != START
        if is_begun and (selection.ranking is not None or (not selection.is_streaming and progress.state is UNDEFINED)):
            raise Failure(Kind.UNAVAILABLE, "The process that holds the partition has lost the query. Try again.")

        def is_live(header: ItemHeader) -> bool:
            return schema.is_live(header, here.account.clock.now_s())

        execution = Execution(
            selection,
            scope=self.scope,
            index=Index(schema.rules.indexing, is_complete=not container.is_restating),
            is_live=is_live if schema.rules.default_ttl is not None else None,
            statistics=partition,
            progress=progress,
            form=self.form.form(container),
        )
        execution.take_up(is_index_counted=self.is_index_counted, order_fields=self.order_fields)
        execution.keeps_positions = self.keeps_positions
        return Slice(partition, self.low, self.high, execution)

    async def _read(self, here: LocalPlace, partition: Partition, found: Slice) -> SliceRead:
        clock = here.account.clock
        begun_s = clock.elapsed_s() - self.spent_s if self.spent_s is not None else None
        page, is_out_of_time = await found.read(clock, self.max_items, self.max_bytes, begun_s, can_end=self.can_end)
        execution = found.execution
        done = execution.progress
        can_stop = execution.can_stop
        state: Any = execution.state if page.position is None or can_stop else UNDEFINED
        return SliceRead(
            figures_of(partition),
            False,
            page.rows,
            page.position,
            page.counters,
            page.size_bytes,
            page.positions,
            is_out_of_time,
            Progress(done.position, done.skip, done.take, state),
            state is not UNDEFINED,
            can_stop,
            execution.has_sorter,
            execution.order_fields,
        )
