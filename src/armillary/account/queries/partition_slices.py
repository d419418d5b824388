"""Slices: the part of one partition that a query or a read feed goes through, a short time at once, and the work that
is counted for the charge. `item_pages.py` decides which slices a page has; `merged_queries.py` and `sorted_reading.py`
merge the rows of several, each of which is a `MergedSlice` then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from armillary import limits, work
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.model.values import UNDEFINED, Value
from armillary.partition.partition import Partition
from armillary.query.access.access_path import Counters
from armillary.query.execution import Execution, Page, PageEnds, Position
from armillary.query.rows import dump_large
from armillary.work import Check


@dataclass(slots=True)
class Slice:
    """A stretch of one partition, and how far the query has come in it."""

    partition: Partition
    low: bytes
    high: bytes
    execution: Execution

    @property
    def position(self) -> Position:
        return self.execution.progress.position

    async def read(
        self, clock: Clock, max_items: int, max_bytes: int, begun_s: float | None = None, *, can_end: bool = False
    ) -> tuple[Page, bool]:
        """The next rows, and whether they end because the time slice is over. `begun_s` is when the page began, of
        which they are: the time limits hold inside one item too. `can_end`: a page that is late ends before the item
        at work, for the next page to begin with."""
        slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        is_out_of_time = False

        def is_due() -> bool:
            nonlocal is_out_of_time
            is_out_of_time = clock.elapsed_s() > slice_end_s
            return is_out_of_time

        execution = self.execution
        check = deadline(clock, clock.elapsed_s() if begun_s is None else begun_s, execution if can_end else None)
        page = await self.partition.evaluate(lambda view: execution.step(view, max_items, max_bytes, is_due), check)
        return page, is_out_of_time


class PageWork:
    """The work of a page whose rows are merged from several slices. Rows that were read ahead are charged with the page
    that gives them."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._work = QueryWork()
        self._counters = Counters()
        self._loaded_bytes = 0  # and not given, so far
        if not slices:
            self._work.partitions_begun = 1  # a filter that nothing can meet was evaluated all the same

    def add(self, page: Page, *, is_first: bool) -> None:
        """Count what was read of a slice. `is_first`: nothing was before."""
        self._work.partitions_begun += is_first
        count_work(self._work, page.counters)
        self._counters.add(page.counters)
        self._loaded_bytes += page.counters.bytes_loaded

    def finish(self, rows: Sequence[bytes]) -> tuple[QueryWork, Counters]:
        """What a page with these rows comes to; the next page begins."""
        done, self._work = self._work, QueryWork()
        counters, self._counters = self._counters, Counters()
        for row in rows:
            done.returned_ru += charges.read_ru(len(row))
            self._loaded_bytes -= len(row)
        done.loaded_bytes = max(0, self._loaded_bytes)
        self._loaded_bytes -= done.loaded_bytes
        return done, counters


class MergedSlice:
    """A slice whose rows are merged with those of others. It counts its own work too, by which the partitions share the
    charge."""

    def __init__(self, slice_: Slice, clock: Clock, page_work: PageWork, *, is_begun: bool = False) -> None:
        self.slice = slice_
        self.is_begun = is_begun
        self.begun_s: float | None = None  # when the page began, for its time limits
        self._clock = clock
        self._page_work = page_work
        self._work = QueryWork()  # not paid for yet

    async def read(self, max_items: int, max_bytes: int) -> Page:
        page, _ = await self.slice.read(self._clock, max_items, max_bytes, self.begun_s)
        is_first, self.is_begun = not self.is_begun, True
        self._page_work.add(page, is_first=is_first)
        self._work.partitions_begun += is_first
        count_work(self._work, page.counters)
        self._work.loaded_bytes += page.counters.bytes_loaded
        await asyncio.sleep(0)
        return page

    def state(self) -> Value:
        return self.slice.execution.state

    def take_share(self) -> float:
        """The work since the last call: this partition's share of what the page costs."""
        work, self._work = self._work, QueryWork()
        return charges.query_page_ru(work)


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
    """Add what was done for a page, but for loading and returning."""
    done.seeks += counters.seeks
    done.precise_scans += counters.precise_scans
    done.joined_tuples += counters.joined_tuples
    done.sorted_rows += counters.sorted_rows
    done.udf_calls += counters.user_calls
