"""A stretch of one partition while a query or a feed goes through it, and what that work comes to. Which stretches
there are and what is made of their rows is for `feeds.py` and `gather.py` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary import limits
from armillary.clock import Clock
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.partition.partition import Partition
from armillary.query.access import Counters
from armillary.query.execution import Execution, Page, Position


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

    async def read(self, clock: Clock, max_items: int, max_bytes: int) -> tuple[Page, bool]:
        """The next rows, and whether they end because the time slice is over."""
        slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        is_out_of_time = False

        def is_due() -> bool:
            nonlocal is_out_of_time
            is_out_of_time = clock.elapsed_s() > slice_end_s
            return is_out_of_time

        page = await self.partition.evaluate(lambda view: self.execution.step(view, max_items, max_bytes, is_due))
        return page, is_out_of_time


def count_rows(work: QueryWork, rows: Sequence[bytes], loaded_bytes: int) -> int:
    """Add what rows of a page cost to give, and to load what was not given, of so many bytes loaded so far. Returns the
    bytes that later pages have still to give."""
    for row in rows:
        work.returned_ru += charges.read_ru(len(row))
        loaded_bytes -= len(row)
    work.loaded_bytes = max(0, loaded_bytes)
    return loaded_bytes - work.loaded_bytes


def count_work(work: QueryWork, counters: Counters) -> None:
    """Add what was done for a page, but for loading and returning."""
    work.seeks += counters.seeks
    work.precise_scans += counters.precise_scans
    work.joined_tuples += counters.joined_tuples
    work.sorted_rows += counters.sorted_rows
    work.udf_calls += counters.user_calls
