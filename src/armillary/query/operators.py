"""The operators of a query as a chain: FROM, JOIN and WHERE (`expanded`), GROUP BY (`grouped`), ORDER BY (`in_order`),
DISTINCT (`distinct`), OFFSET and LIMIT (`counted`); the projection of SELECT is part of each stage. Every language
describes its query as a Selection (`selection.py`).

`evaluate` runs the chain over documents in memory. `Collector` is the same chain for rows that arrive in parts, for
queries that must see all rows before they can give one. `execution.py` reads the items of a partition in pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from armillary import limits
from armillary.model.values import UNDEFINED, Value
from armillary.query.aggregates import Groups, Seen, too_many
from armillary.query.ordering import order_bytes
from armillary.query.row_json import dump_large
from armillary.query.selection import PAUSE, Grouping, Ordering, Selection, Stage
from armillary.work import current, end_item


def evaluate(selection: Selection, documents: Iterable[Any]) -> list[Value]:
    """All rows of a query over plain documents."""
    values = documents
    if selection.ordering is not None:
        values = in_order(selection.ordering, documents)
    elif selection.ranking is not None:
        values = ranked(selection, list(documents))
    for stage in selection.stages:
        values = expanded(stage, values)
        if stage.grouping is not None:
            values = grouped(stage.grouping, values)
        if stage.is_distinct:
            values = distinct(values)
    return list(counted(values, selection.skip, selection.take))


def expanded(stage: Stage, values: Iterable[Any]) -> Iterator[Any]:
    """FROM, JOIN, WHERE and SELECT: the rows of each value."""
    run = current()
    for value in values:
        before_bytes = run.made_bytes
        yield from rows_of(stage, value)
        if run.made_bytes != before_bytes:
            end_item(run, before_bytes)


def rows_of(stage: Stage, value: Any) -> Iterator[Any]:
    if stage.rows is not None:
        for row in stage.rows(value):
            if row is not PAUSE:
                yield row
    elif stage.predicate is None or stage.predicate(value):
        row = value if stage.project is None else stage.project(value)
        if row is not UNDEFINED:
            yield row


def grouped(grouping: Grouping, rows: Iterable[Any]) -> Iterator[Value]:
    groups = Groups(grouping.makers, is_grouped=grouping.is_grouped)
    for row in rows:
        groups.add(row)
    return finished(grouping, groups)


def finished(grouping: Grouping, groups: Groups) -> Iterator[Value]:
    """The rows that are made of groups."""
    for keys, values in groups.results():
        row = grouping.finish(keys, values)
        if row is not UNDEFINED:
            yield row


def in_order(ordering: Ordering, documents: Iterable[Any]) -> Iterator[Any]:
    """Documents by their keys, those with equal keys as they came, or the other way round when the first descends."""
    is_descending = ordering.keys[0].is_descending
    keyed = [(order_bytes(ordering, document), number, document) for number, document in enumerate(documents)]
    keyed.sort(key=lambda each: each[:2], reverse=is_descending)
    return (document for _, _, document in keyed)


def ranked(selection: Selection, documents: list[Any]) -> Iterator[Any]:
    """Documents by their scores. Those that the filter drops count in the scores of the others."""
    ranking, predicate = selection.ranking, selection.stages[0].predicate
    assert ranking is not None
    scorer = ranking.begin()
    measures = [scorer.measure(document) for document in documents]
    kept = [at for at, document in enumerate(documents) if predicate is None or predicate(document)]
    return (documents[kept[place]] for place in scorer.order([measures[at] for at in kept]))


def distinct(rows: Iterable[Value]) -> Iterator[Value]:
    seen = Seen()
    return (row for row in rows if seen.is_new(row))


def counted(rows: Iterable[Value], skip: int, take: int | None) -> Iterator[Value]:
    """OFFSET and LIMIT, or TOP."""
    return islice(rows, skip, None if take is None else skip + take)


class Collector:
    """The chain from the first stage's rows on, for rows that are pushed into it. Rows of the last stage are kept as
    JSON until `finish`, within a limit."""

    def __init__(self, selection: Selection) -> None:
        self._stages = selection.stages
        self._groups = [
            Groups(stage.grouping.makers, is_grouped=stage.grouping.is_grouped) if stage.grouping is not None else None
            for stage in selection.stages
        ]
        self._seen = [Seen() if stage.is_distinct else None for stage in selection.stages]
        self._skip = selection.skip
        self._take = selection.take
        self._size_bytes = 0
        self._rows: list[bytes] = []

    @property
    def is_full(self) -> bool:
        """Whether more rows can change nothing: there are as many as are wanted, and none waits in a group."""
        is_enough = self._take is not None and len(self._rows) >= self._take
        return is_enough and all(groups is None for groups in self._groups)

    def push(self, row: Any, place: int = 0) -> None:
        """Take a row of a stage in; of a grouped stage, its keys and values."""
        groups = self._groups[place]
        if groups is not None:
            groups.add(row)
        else:
            self._pass(row, place)

    def finish(self) -> list[bytes]:
        for place, (stage, groups) in enumerate(zip(self._stages, self._groups, strict=True)):
            if stage.grouping is not None and groups is not None:
                for row in finished(stage.grouping, groups):
                    self._pass(row, place)
        return self._rows

    def _pass(self, row: Value, place: int) -> None:
        seen = self._seen[place]
        if seen is not None and not seen.is_new(row):
            return
        if place + 1 < len(self._stages):
            for each in rows_of(self._stages[place + 1], row):
                self.push(each, place + 1)
        elif self._skip:
            self._skip -= 1
        elif self._take is None or len(self._rows) < self._take:
            dumped = dump_large(row)
            self._size_bytes += len(dumped)
            if self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
                raise too_many("The query gives", limits.QUERY_DISTINCT_MAX, "rows")
            self._rows.append(dumped)

    # Taking up again, or putting parts together. Only groups can: their state is small, or else too large for a token.

    @property
    def is_small(self) -> bool:
        """Whether the state may fit a continuation, told without making it."""
        groups = self._groups[0]
        return groups is not None and len(self._groups) == 1 and groups.is_small

    @property
    def state(self) -> Value:
        """What there is so far, for `merge`; UNDEFINED if it cannot be told."""
        groups = self._groups[0]
        return groups.state() if groups is not None and len(self._groups) == 1 else UNDEFINED

    def merge(self, state: Any) -> None:
        """Add what another one has seen."""
        groups = self._groups[0]
        assert groups is not None
        groups.merge(state)
