"""Pages of DISTINCT, GROUP BY and aggregates over several partitions, merged here for clients that cannot merge. Any
node answers the next page, also after a restart or a split: what a page needs is in its continuation token.

DISTINCT gives rows as they are found; the token has the digests of the rows given, as long as they are few. Beyond that
they are found out again: the items before the token's positions are read once more. Groups are made of all items before
the first row is given. If they are few the token carries them, so that the next page reads no items; many groups come
in one page, as from one partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from armillary import limits, work
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.partition_slices import PageRequest, Slice, out_of_time, place_of
from armillary.account.queries.positioned_rows import (
    ConcatenatedRows,
    MergedRows,
    PositionedRows,
    PositionedSlice,
    SeenRows,
)
from armillary.account.visits.page_walk import FeedOptions
from armillary.model import charges
from armillary.model.encoding import decode_value, encode_value
from armillary.query.continuation_token import Cursor
from armillary.query.gather import partial
from armillary.query.operators import Collector
from armillary.query.page import START, Position, Progress
from armillary.query.selection import Selection


class MergedWalk(ItemWalk):
    """One page of a selection with one stage that is grouped or distinct."""

    def __init__(
        self, account: Account, container: Container, options: FeedOptions, selection: Selection, text: bytes
    ) -> None:
        assert len(selection.stages) == 1 and not selection.is_streaming and selection.ranking is None
        self._whole = selection
        super().__init__(account, container, options, partial(selection), text)

    def _bound_stretch(self) -> tuple[bytes, ...]:
        """The state of DISTINCT is in no other token."""
        bound = super()._bound_stretch()
        return (*bound, b"distinct") if self._whole.stages[0].grouping is None else bound

    @property
    def _asked(self) -> Selection:
        return self._whole

    def _progress(self, position: Position) -> Progress:
        """The state is of all slices together, and so are OFFSET and LIMIT."""
        return Progress(position)

    async def _fill(self) -> None:
        if not self._parts and self._options.continuation is None:
            self.work.partitions_begun = 1  # a filter that nothing can meet was evaluated all the same
        if self._whole.stages[0].grouping is not None:
            await self._fill_groups()
        else:
            await self._fill_distinct()

    def _request(self) -> PageRequest:
        return super()._request()._replace(is_merged=True)

    # Groups and aggregates.

    async def _fill_groups(self) -> None:
        skip, take = self._counts
        collector = Collector(replace(self._whole, skip=skip, take=take))
        if self._cursor.state:
            collector.merge(decode_value(self._cursor.state)[0])
        for index, part in enumerate(self._parts):
            for following in self._parts[index + 1 : index + 1 + limits.SLICES_AHEAD_MAX]:
                self._begin_ahead(following, limits.PAGE_ITEMS_MAX, limits.PAGE_BYTES_MAX)
            self._admit(part)
            is_read = False
            while not is_read:
                page, _ = await part.read(
                    self._account.clock, limits.PAGE_ITEMS_MAX, limits.PAGE_BYTES_MAX, self._begun_s
                )
                self._count(part, page)
                is_read = page.position is None
                if is_read:
                    await work.run(lambda: collector.merge(part.execution.state))  # noqa: B023 (run at once)
                rest = self._parts[index + is_read :]
                if rest and self._seconds() > limits.PAGE_SECONDS_MAX:
                    state = _half_made(self._selection, collector, None if is_read else part)
                    if state is not None:
                        self._end_page(Cursor(*place_of(rest), self._cursor.page + 1, skip, take, state))
                        return
                    if self._seconds() > limits.QUERY_SECONDS_MAX:
                        raise out_of_time()
                await asyncio.sleep(0)
        self._give(collector, await work.run(collector.finish), skip, take)

    def _give(self, collector: Collector, rows: list[bytes], skip: int, take: int | None) -> None:
        """The rows of finished groups: as many as the page holds if a token can carry the groups, else all."""
        self.rows = _fitting(rows, self._options.page_items)
        left = len(rows) - len(self.rows)
        state = _state(collector) if left else None
        if state is not None:
            given = len(self.rows)
            take = None if take is None else take - given
            self._end_page(Cursor((), None, self._cursor.page + 1, skip + given, take, state))
        else:
            self.rows = rows
        self.work.returned_ru += charges.rows_ru(self.rows)

    # DISTINCT.

    async def _fill_distinct(self) -> None:
        seen = SeenRows()
        if self._cursor.state:
            seen.restore(self._cursor.state)
        elif self._options.continuation is not None:
            await self._find_out(seen)
        await self._fill_rows(self._rows(self._parts), seen)

    def _rows(self, slices: list[Slice]) -> PositionedRows:
        ordering, reading = self._whole.ordering, self._reading(has_digests=True)
        if ordering is None:
            return ConcatenatedRows(slices, reading)
        return MergedRows(slices, reading, is_descending=self._is_descending)

    @property
    def _is_descending(self) -> bool:
        return self._whole.ordering is not None and self._whole.ordering.keys[0].is_descending

    async def _find_out(self, seen: SeenRows) -> None:
        """Read everything before the token's positions once more."""
        reading = self._reading(has_digests=True)
        for slice_, last in self._read_before():
            slice_.execution.progress.skip, slice_.execution.progress.take = 0, None
            source = PositionedSlice(slice_, reading)
            is_read = False
            while not is_read:
                page = await source.read(limits.PAGE_ITEMS_MAX, limits.PAGE_BYTES_MAX)
                self._count(slice_, page)
                is_read = page.position is None
                for position, digest in zip(page.positions, source.digests if page.rows else (), strict=True):
                    if last is not None and self._is_beyond(position, last):
                        is_read = True
                        break
                    if seen.is_new(digest):
                        seen.add(digest)
                if self._seconds() > limits.QUERY_SECONDS_MAX:
                    raise out_of_time()
                await asyncio.sleep(0)

    def _read_before(self) -> Iterator[tuple[Slice, Position | None]]:
        """What earlier pages have read, and up to which position of it; None: all."""
        at = self._low
        for low, high, after_rid, order, given in sorted(self._cursor.positions):
            position = Position(after_rid, order, given)
            for slice_ in self._partitions_of(at, max(at, low), START) if low > at else ():
                yield slice_, None
            for slice_ in self._partitions_of(max(low, self._low), min(high, self._high), START):
                if position != START:
                    yield slice_, position
            at = max(at, high)
        end = self._high if self._cursor.tail is None else min(self._cursor.tail, self._high)
        for slice_ in self._partitions_of(at, end, START) if at < end else ():
            yield slice_, None

    def _is_beyond(self, position: Position, last: Position) -> bool:
        """Whether a row comes after the last that was given."""
        found, given = (position.order, position.rid), (last.order, last.rid)
        if found == given:
            return 0 < last.given < position.given
        return found < given if self._is_descending else found > given


def _fitting(rows: list[bytes], page_items: int) -> list[bytes]:
    """As many of the first rows as a page holds; at least one."""
    size_bytes = 0
    for at, row in enumerate(rows[:page_items]):
        size_bytes += len(row)
        if at and size_bytes > limits.PAGE_BYTES_MAX:
            return rows[:at]
    return rows[:page_items]


def _state(collector: Collector) -> bytes | None:
    """Of groups, if a continuation token can carry it."""
    if not collector.is_small:
        return None
    state = encode_value(collector.state)
    return state if len(state) <= limits.QUERY_STATE_BYTES_MAX else None


def _half_made(selection: Selection, collector: Collector, part: Slice | None) -> bytes | None:
    """The state of the groups so far, with those of a partition that is not read to its end."""
    if part is None:
        return _state(collector)
    if not part.execution.can_stop or not collector.is_small:
        return None
    whole = Collector(selection)
    whole.merge(collector.state)
    whole.merge(part.execution.state)
    return _state(whole)
