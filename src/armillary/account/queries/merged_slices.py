"""Pages whose rows are merged from several partitions while the reader keeps its place in memory. All partitions are
entered before any is read, and share the charge by the work that each of them did. The merging itself is left to
`merged_queries.py` and `sorted_reading.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from armillary import limits
from armillary.account.captures.notes import Note, query_note
from armillary.account.container import Container
from armillary.account.queries.partition_slices import PageAnswer, Slice, count_work, shares_of
from armillary.account.visits.page_charges import Bill
from armillary.account.visits.page_walk import FeedOptions, Moved
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.model.values import Value
from armillary.partition.budget import QUERY_DEPOSIT
from armillary.partition.operations import Result
from armillary.query.page import Counters, Page
from armillary.query.selection import Selection


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
        done.returned_ru += charges.rows_ru(rows)
        held_bytes = self._loaded_bytes - sum(map(len, rows))
        done.loaded_bytes = max(0, held_bytes)
        self._loaded_bytes = held_bytes - done.loaded_bytes
        return done, counters


class MergedSlice:
    """A slice whose rows are merged with those of others. It counts its own work too, by which the partitions share the
    charge."""

    def __init__(self, slice_: Slice, clock: Clock, page_work: PageWork, *, is_begun: bool = False) -> None:
        self.slice = slice_
        self.is_begun = is_begun
        self.begun_s: float | None = None  # when the page began, for its time limits
        self.following: Sequence[MergedSlice] = ()  # those that are read after it
        self._clock = clock
        self._page_work = page_work
        self._work = QueryWork()  # not paid for yet

    async def read(self, max_items: int, max_bytes: int) -> Page:
        for each in self.following if not self.is_begun else ():
            each.slice.begin_ahead(self._clock, max_items, max_bytes, self.begun_s)
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


def read_ahead(sources: Sequence[MergedSlice]) -> None:
    """Have some of them be read while those before them are."""
    for index, source in enumerate(sources, 1):
        source.following = sources[index : index + limits.SLICES_AHEAD_MAX]


async def charged_page(
    container: Container,
    selection: Selection,
    options: FeedOptions,
    page_work: PageWork,
    payers: Sequence[MergedSlice],
    read: Callable[[], Awaitable[list[bytes]]],
) -> PageAnswer:
    """Enter the partitions, read rows and pay for them."""
    bill = Bill(options.ask, None)
    any_partition = next(iter(container.partitions.values()))
    try:
        for each in payers:
            each.slice.ticket = bill.enter(each.slice.partition, QUERY_DEPOSIT)
        rows = await read()
    except Moved:
        bill.leave()
        raise
    except Failure as failure:
        charged = bill.charge(failure, any_partition)
        if container.recording is not None:
            container.recording.fail((_note(selection, options, (), Counters()),), bill.visited, charged)
        raise charged from None
    finally:
        for each in payers:
            each.slice.leave_ahead()
    work, counters = page_work.finish(rows)
    shares = [each.take_share() for each in payers]
    charge_ru = bill.pay_shares(charges.query_page_ru(work, options.read_factor), shares, any_partition)
    if container.recording is not None:
        note = _note(selection, options, rows, counters)
        note.charge_ru = charge_ru
        container.recording.add((note,), bill.visited)
    done = shares_of(bill.paid, [each.slice for each in payers]) if options.tells_shares else []
    return PageAnswer(rows, None, charge_ru, [], work, counters, done)


def _note(selection: Selection, options: FeedOptions, rows: Sequence[bytes], counters: Counters) -> Note:
    """What a capture records of the page."""
    note = Note("query", Result.READ, 0.0, options.key, rows=len(rows), is_alone=False)
    note.size_bytes, note.loaded = sum(map(len, rows)), counters.items_loaded
    note.query = query_note(selection, options.key)
    return note
