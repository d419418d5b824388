"""Queries over many partitions that must see everything before they can give a row: rankings, and subqueries in FROM
that are grouped or distinct. Each partition runs what `partial` makes of the query, and `Gather` combines their rows:
items are ranked together, groups are merged by their states, and the later stages, OFFSET and LIMIT take all rows.

The result is that of the same items in one partition. A Source reads one partition;
`account/queries/merged_queries.py` makes them. Queries whose rows come one by one are merged by the pages of
`account/queries/item_walk.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import orjson

from armillary import limits, work
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.ranked_access import RankedItems
from armillary.query.aggregates import too_many
from armillary.query.conditions import ALL
from armillary.query.operators import Collector, rows_of
from armillary.query.ordered_merge import OrderedMerge, RowSource
from armillary.query.recipes import PartialOrigin
from armillary.query.row_json import dump_large
from armillary.query.selection import Ranking, Selection, Stage
from armillary.work import Check

_LOADED_UNIT_BYTES = 24  # of JSON that is read for one unit of work


class Source(RowSource, Protocol):
    """One partition, at work on the partial query."""

    def state(self) -> Value:
        """Of its groups, once all was read."""


def partial(selection: Selection) -> Selection:
    """What each partition does of a query: its first stage, without what only the whole can tell."""
    stage = selection.stages[0]
    origin = PartialOrigin(selection) if selection.origin is not None else None
    if stage.grouping is not None:
        part = replace(stage, grouping=stage.grouping._replace(finish=_no_row), is_distinct=False)
        return replace(selection, stages=(part,), ordering=None, ranking=None, skip=0, take=None, origin=origin)
    if selection.ranking is not None:
        # Scores depend on the items of all partitions, so the items themselves are asked for.
        condition = ALL if selection.ranking.needs_all else selection.condition
        return Selection(condition, meter=selection.meter)
    take = None
    if selection.is_streaming and selection.take is not None:
        take = selection.skip + selection.take
    return replace(selection, stages=(replace(stage, is_distinct=False),), skip=0, take=take, origin=origin)


def _no_row(_keys: tuple[Any, ...], _values: list[Value]) -> Value:
    return UNDEFINED


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
    """All rows at once. Keeps what the query must keep, within limits, until all items were seen."""

    def __init__(self, selection: Selection, sources: Sequence[Source]) -> None:
        self._open = deque(sources)  # one after the other, where rows are not merged
        self._merge: OrderedMerge[Source] = OrderedMerge()  # of all of them, where rows are
        self._collector = Collector(selection)
        # Of one read of a source: some are read ahead, and together they hold about a page.
        self._read_bytes = limits.PAGE_BYTES_MAX // min(max(1, len(sources)), limits.SLICES_AHEAD_MAX)
        stage = selection.stages[0]
        self._is_grouped = stage.grouping is not None
        self._ranked: _Ranked | None = None
        if selection.ranking is not None and not self._is_grouped:
            rows_max = None
            if len(selection.stages) == 1 and not stage.is_distinct and selection.take is not None:
                rows_max = selection.skip + selection.take
            self._ranked = _Ranked(stage, selection.ranking, rows_max)
        if selection.ordering is not None and not self._is_grouped:
            self._merge = OrderedMerge(sources, is_descending=selection.ordering.keys[0].is_descending)
            self._open.clear()

    async def rows(self, check: Check) -> list[bytes]:
        """As JSON. `check` is called between two reads, and raises when they take too long."""
        collector = self._collector
        while (self._open or not self._merge.is_ended) and not collector.is_full:
            source = self._open[0] if self._open else None
            rows = await self._next()
            is_read = source is not None and (not self._open or self._open[0] is not source)

            def take() -> None:
                if self._ranked is not None:
                    for row in rows:  # noqa: B023 (run at once)
                        self._ranked.add(row)
                elif not self._is_grouped:
                    for row in rows:  # noqa: B023
                        collector.push(_loaded(row))
                elif is_read and source is not None:  # noqa: B023
                    collector.merge(source.state())  # noqa: B023

            await work.run(take)
            check()

        def finish() -> list[bytes]:
            if self._ranked is not None:
                for row in self._ranked.finish():
                    collector.push(_loaded(row))
            return collector.finish()

        return await work.run(finish)

    async def _next(self) -> list[bytes]:
        """Some rows, perhaps none yet: at most one read, so that the time can be looked at in between."""
        if self._open:
            page = await self._open[0].read(limits.PAGE_ITEMS_MAX, self._read_bytes)
            if page.position is None:
                self._open.popleft()
            return page.rows
        merge = self._merge
        if merge.is_waiting:
            # All lanes together hold about a page.
            await merge.fill(limits.PAGE_ITEMS_DEFAULT, limits.PAGE_BYTES_MAX // len(merge.lanes))
            return []
        return merge.take_rows(limits.PAGE_ITEMS_MAX, limits.PAGE_BYTES_MAX)
