"""One query over many partitions, answered in its final form: each partition runs what `partial` makes of the query,
and `Gather` combines their rows. Ordered rows are merged (`ordered_merge.py`), groups are merged by their states, and
DISTINCT, OFFSET and LIMIT are applied to all rows.

The result is that of the same items in one partition. Without ORDER BY rows come in the order of the partitions'
ranges. A Source reads one partition; `account/queries/merged_queries.py` makes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import orjson

from armillary import limits, work
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.ranked_access import RankedItems
from armillary.query.aggregates import Seen, too_many
from armillary.query.conditions import ALL
from armillary.query.operators import Collector, rows_of
from armillary.query.ordered_merge import OrderedMerge, RowSource
from armillary.query.row_json import dump_large
from armillary.query.selection import Ranking, Selection, Stage

_LOADED_UNIT_BYTES = 24  # of JSON that is read for one unit of work


class Source(RowSource, Protocol):
    """One partition, at work on the partial query."""

    def state(self) -> Value:
        """Of its groups, once all was read."""


def partial(selection: Selection) -> Selection:
    """What each partition does of a query: its first stage, without what only the whole can tell."""
    stage = selection.stages[0]
    if stage.grouping is not None:
        part = replace(stage, grouping=stage.grouping._replace(finish=_no_row), is_distinct=False)
        return replace(selection, stages=(part,), ordering=None, ranking=None, skip=0, take=None)
    if selection.ranking is not None:
        # Scores depend on the items of all partitions, so the items themselves are asked for.
        condition = ALL if selection.ranking.needs_all else selection.condition
        return Selection(condition, meter=selection.meter)
    take = None
    if selection.is_streaming and selection.take is not None:
        take = selection.skip + selection.take
    return replace(selection, stages=(replace(stage, is_distinct=False),), skip=0, take=take)


def _no_row(_keys: tuple[Any, ...], _values: list[Value]) -> Value:
    return UNDEFINED


def _never_late() -> bool:
    return False


def _loaded(row: bytes) -> Any:
    work.spend(1 + len(row) // _LOADED_UNIT_BYTES)
    return orjson.loads(row)


class _Ranked:
    """Rows that wait until all scores are known."""

    def __init__(self, stage: Stage, ranking: Ranking, rows_max: int | None) -> None:
        self._stage = stage
        self._items: RankedItems[list[bytes]] = RankedItems(ranking, rows_max)
        self._size_bytes = 0  # at most: some may have been dropped

    def add(self, item: bytes) -> None:
        document = _loaded(item)
        rows = [dump_large(row) for row in rows_of(self._stage, document)]
        self._items.add(rows, document, bool(rows))
        self._size_bytes += sum(map(len, rows))
        if self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
            self._size_bytes = sum([len(row) for rows in self._items.held for row in rows])
            if self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
                raise too_many("The query ranks", limits.QUERY_SORTED_MAX, "items")

    def finish(self) -> Iterator[bytes]:
        self._items.finish()
        for rows in self._items.rest():
            yield from rows


class Gather:
    """Rows of the whole, a page at a time. Keeps a few rows of each partition, and what DISTINCT or groups must keep:
    it lives as long as its query does."""

    def __init__(self, selection: Selection, sources: Sequence[Source]) -> None:
        self._selection = selection
        self._skip = selection.skip
        self._take = selection.take
        self._open = deque(sources)  # one after the other, where rows are not merged
        self._merge: OrderedMerge[Source] = OrderedMerge()  # of all of them, where rows are
        self._seen: Seen | None = None
        self._collector: Collector | None = None
        self._collected: deque[bytes] | None = None
        stage = selection.stages[0]
        self._ranked: _Ranked | None = None
        if selection.ranking is not None and stage.grouping is None:
            rows_max = None
            if len(selection.stages) == 1 and not stage.is_distinct and self._take is not None:
                rows_max = self._skip + self._take
            self._ranked = _Ranked(stage, selection.ranking, rows_max)
        if len(selection.stages) > 1 or stage.grouping is not None or self._ranked is not None:
            self._collector = Collector(selection)
        elif stage.is_distinct:
            self._seen = Seen()
        if selection.ordering is not None and stage.grouping is None:
            self._merge = OrderedMerge(sources, is_descending=selection.ordering.keys[0].is_descending)
            self._open.clear()

    @property
    def is_done(self) -> bool:
        """Whether there are no more rows. False does not promise one."""
        if self._collector is not None:
            return self._collected is not None and not self._collected
        return self._take == 0 or self._is_read

    @property
    def _is_read(self) -> bool:
        return not self._open and self._merge.is_ended

    async def page(
        self,
        max_items: int,
        max_bytes: int = limits.PAGE_BYTES_MAX,
        is_late: Callable[[], bool] = _never_late,
    ) -> list[bytes]:
        """The next rows as JSON; fewer, or none, when it is late. The work done is kept for the next page."""
        if self._collector is not None:
            if self._collected is None:
                await self._collect(self._collector, is_late)
            return self._from_collected(max_items, max_bytes)
        rows: list[bytes] = []
        size_bytes = 0
        while len(rows) < max_items and size_bytes < max_bytes and not self.is_done:
            # What is skipped makes no row, so that many more can be taken in.
            wanted = min(max_items - len(rows) + self._skip, limits.PAGE_ITEMS_MAX)
            found = await self._next(wanted, max_bytes - size_bytes)
            if self._seen is not None:
                found = await work.run(lambda: self._unseen(found))  # noqa: B023 (run at once)
            for row in found:
                if self._skip:
                    self._skip -= 1
                    continue
                if self._take is not None:
                    if not self._take:
                        break
                    self._take -= 1
                rows.append(row)
                size_bytes += len(row)
            if is_late():
                break
        return rows

    def _unseen(self, rows: list[bytes]) -> list[bytes]:
        assert self._seen is not None
        return [row for row in rows if self._seen.is_new(_loaded(row))]

    # Rows of the whole, before DISTINCT, OFFSET and LIMIT.

    async def _next(self, max_items: int, max_bytes: int) -> list[bytes]:
        """Some rows, perhaps none yet: at most one read, so that the time can be looked at in between."""
        if self._open:
            page = await self._open[0].read(max_items, max_bytes)
            if page.position is None:
                self._open.popleft()
            return page.rows
        merge = self._merge
        if merge.is_waiting:
            # All lanes together hold about a page.
            room_items = max(min(max_items, limits.PAGE_ITEMS_DEFAULT), 1)
            await merge.fill(room_items, limits.PAGE_BYTES_MAX // len(merge.lanes))
            return []
        return merge.take_rows(max_items, max_bytes)

    # Queries that must see everything first.

    async def _collect(self, collector: Collector, is_late: Callable[[], bool]) -> None:
        is_grouped = self._selection.stages[0].grouping is not None
        while not self._is_read and not collector.is_full:
            source = self._open[0] if self._open else None
            rows = await self._next(limits.PAGE_ITEMS_MAX, limits.PAGE_BYTES_MAX)
            is_read = source is not None and (not self._open or self._open[0] is not source)

            def take() -> None:
                if self._ranked is not None:
                    for row in rows:  # noqa: B023 (run at once)
                        self._ranked.add(row)
                elif not is_grouped:
                    for row in rows:  # noqa: B023
                        collector.push(_loaded(row))
                elif is_read and source is not None:  # noqa: B023
                    collector.merge(source.state())  # noqa: B023

            await work.run(take)
            if is_late() and not self._is_read:
                return

        def finish() -> deque[bytes]:
            if self._ranked is not None:
                for row in self._ranked.finish():
                    collector.push(_loaded(row))
            return deque(collector.finish())

        self._collected = await work.run(finish)

    def _from_collected(self, max_items: int, max_bytes: int) -> list[bytes]:
        rows: list[bytes] = []
        size_bytes = 0
        while self._collected and len(rows) < max_items and size_bytes < max_bytes:
            rows.append(self._collected.popleft())
            size_bytes += len(rows[-1])
        return rows
