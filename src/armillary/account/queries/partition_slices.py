"""Slices: the part of one partition that a query or a read feed goes through, a short time at once, and the work that
is counted for the charge, and what a page of them answers. `item_walk.py` decides which slices a page has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from armillary import limits, work
from armillary.account.visits.page_walk import moved_or
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.model.charges import QueryWork
from armillary.model.values import UNDEFINED
from armillary.partition.meter import NOT_COUNTED
from armillary.partition.partition import Partition
from armillary.query import continuation_token
from armillary.query.execution import Execution
from armillary.query.page import Counters, Page, PageEnds, Position
from armillary.query.row_json import dump_large
from armillary.query.selection import Selection
from armillary.work import Check


@dataclass(slots=True)
class Tally:
    """What was done in one partition for a page."""

    counters: Counters = field(default_factory=Counters)
    returned: int = 0  # rows
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        self.counters.add(other.counters)
        self.returned += other.returned
        self.seconds += other.seconds


class PartitionShare(NamedTuple):
    """One partition's part of the charge of a page."""

    range_id: int
    charged: int  # hundredths of request units
    tally: Tally


@dataclass(slots=True)
class PageAnswer:
    rows: list[bytes]  # JSON unless another form was asked for
    continuation: str | None
    charge_ru: float
    lsns: list[tuple[int, int]]  # of the partitions asked: range id, lsn
    work: QueryWork = field(default_factory=QueryWork)  # that was charged
    counters: Counters = field(default_factory=Counters)
    shares: list[PartitionShare] = field(default_factory=list)  # of the charge, by partition, if asked for


class PageRequest(NamedTuple):
    """What a walk is made of."""

    selection: Selection  # as the client has asked
    text: bytes
    is_feed: bool
    is_page_of_one: bool
    is_merged: bool = False


class GivenPage(Protocol):
    """A page that another place has made of partitions that it holds."""

    answer: PageAnswer
    visited: list[int]  # range ids of the partitions that were entered


@dataclass(slots=True)
class Slice:
    """A stretch of one partition, and how far the query has come in it."""

    partition: Partition
    low: bytes
    high: bytes
    execution: Execution
    tally: Tally | None = None  # since it was taken last, for those that ask what each partition did
    ticket: int = NOT_COUNTED  # with which the page has entered the partition

    @property
    def position(self) -> Position:
        return self.execution.progress.position

    async def read(
        self, clock: Clock, max_items: int, max_bytes: int, begun_s: float | None = None, *, can_end: bool = False
    ) -> tuple[Page, bool]:
        """The next rows, and whether they end because the time slice is over. `begun_s` is when the page began, of
        which they are: the time limits hold inside one item too. `can_end`: a page that is late ends before the item
        at work, for the next page to begin with."""
        read_s = clock.elapsed_s()
        slice_end_s = read_s + limits.SLICE_SECONDS
        is_out_of_time = False

        def is_due() -> bool:
            nonlocal is_out_of_time
            is_out_of_time = clock.elapsed_s() > slice_end_s
            return is_out_of_time

        execution = self.execution
        check = deadline(clock, clock.elapsed_s() if begun_s is None else begun_s, execution if can_end else None)
        try:
            page = await self.partition.evaluate(lambda view: execution.step(view, max_items, max_bytes, is_due), check)
        except Failure as failure:
            raise moved_or(failure, self.partition) from None
        if self.tally is not None:
            self.tally.add(Tally(page.counters, len(page.rows), clock.elapsed_s() - read_s))
        return page, is_out_of_time

    def begin_ahead(
        self, clock: Clock, max_items: int, max_bytes: int, begun_s: float | None = None, *, can_end: bool = False
    ) -> None:
        """Begin a read before its turn, if another process does the work: the slice was entered, or will be."""

    def leave_ahead(self) -> None:
        """What was read ahead and not taken is not wanted."""


class BegunPage(NamedTuple):
    """What was read of a page before its walk began, of the one partition that it begins with."""

    part: Slice
    page: Page
    is_out_of_time: bool
    begun_s: float


def shares_of(paid: Iterable[tuple[int, int]], slices: Iterable[Slice]) -> list[PartitionShare]:
    """What each partition was charged and did, the dearest first. The slices begin to count anew."""
    found: dict[int, tuple[int, Tally]] = {}
    for range_id, charged in paid:
        before, tally = found.get(range_id, (0, Tally()))
        found[range_id] = (before + charged, tally)
    for each in slices:
        if each.tally is not None and each.partition.range.id in found:
            found[each.partition.range.id][1].add(each.tally)
            each.tally = Tally()
    shares = [PartitionShare(range_id, charged, tally) for range_id, (charged, tally) in found.items()]
    return sorted(shares, key=lambda share: -share.charged)


def deadline(clock: Clock, begun_s: float, execution: Execution | None = None) -> Check:
    """Ends a run after the time that a query has, or what it does for a page that is late already."""

    def check() -> None:
        seconds = clock.elapsed_s() - begun_s
        if seconds <= limits.PAGE_SECONDS_MAX:
            return
        if seconds > limits.QUERY_SECONDS_MAX:
            raise out_of_time()
        if execution is not None and execution.can_end:
            raise PageEnds

    return check


def out_of_time() -> Failure:
    return Failure(
        Kind.TIMED_OUT,
        f"The query takes longer than {limits.QUERY_SECONDS_MAX:.0f} seconds and cannot be answered in parts. "
        "Filter more, or index what it filters and orders by.",
    )


async def rows_without_items(bound: BoundQuery, clock: Clock) -> list[bytes]:
    """The rows of a query that reads no items, such as `SELECT 1`."""
    return await work.run(lambda: list(map(dump_large, bound.evaluate_over([]))), deadline(clock, clock.elapsed_s()))


async def rows_of_values(bound: BoundQuery, values: Sequence[Any], clock: Clock) -> list[bytes]:
    """The rows of a query over values in memory: resources of the catalog."""

    def evaluate() -> list[bytes]:
        return [dump_large(row) for row in bound.evaluate_over(values) if row is not UNDEFINED]

    return await work.run(evaluate, deadline(clock, clock.elapsed_s()))


def count_work(done: QueryWork, counters: Counters) -> None:
    """Add the work of a page, without that of loading items and returning rows."""
    done.seeks += counters.seeks
    done.precise_scans += counters.precise_scans
    done.joined_tuples += counters.joined_tuples
    done.sorted_rows += counters.sorted_rows
    done.udf_calls += counters.user_calls


def position_of(part: Slice) -> continuation_token.Position:
    return continuation_token.Position(part.low, part.high, *part.position)


def place_of(rest: Sequence[Slice]) -> tuple[tuple[continuation_token.Position, ...], bytes | None]:
    """Of slices that are read one after the other: the positions of those begun, and where everything behind begins."""
    begun = tuple([position_of(each) for each in rest if each.position.rid >= 0])
    return begun, next((each.low for each in rest if each.position.rid < 0), None)
