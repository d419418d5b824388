"""Which paths are counted where rows have more of them than are worth it: those that are named, then those that look
most like a partition key in the first batch. Texts that repeat come first, then times, texts that do not repeat, whole
numbers, and last what is seldom a key: fractions, truth values, long texts, and paths with one value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from armillary.insight.advice.reading.leaf_columns import Column, Steps, path_of
from armillary.insight.advice.reading.row_times import seconds_of

PATHS_MAX: Final = 64  # whose values are counted
_PRESENT_MIN: Final = 0.9  # in the first batch, for a path to be counted
_LOOKED_AT: Final = 2_000  # values of a path
_TIMES: Final = 50
_LONG_CHARACTERS: Final = 128
_REPEATING: Final = 0.9  # at most so many of the values are different
_NAMED_LIKE_KEYS: Final = re.compile(r"(.*[_\-. ])?(id|key|code|no)|.*[a-z0-9](Id|ID|Key|Code|No)", re.DOTALL)


class Chosen(NamedTuple):
    paths: list[tuple[Steps, str]]  # with the path as partition keys are defined
    uncounted: list[str]  # that were not chosen


def choose_paths(columns: Iterable[Column], named: Collection[Steps], rows: int) -> Chosen:
    wanted: list[tuple[Column, str]] = []
    for column in columns:
        path = path_of(column.steps)
        if path is not None and (column.steps in named or len(column.rows) >= _PRESENT_MIN * rows):
            wanted.append((column, path))

    def order(each: tuple[Column, str]) -> tuple[bool, int, Steps]:
        column, _ = each
        return (column.steps not in named, len(column.steps), column.steps)

    wanted.sort(key=order)
    kept = wanted
    if len(wanted) > PATHS_MAX:
        ranked = sorted(wanted, key=lambda each: (each[0].steps not in named, *_rank(each[0])))
        kept = sorted(ranked[:PATHS_MAX], key=order)
    chosen = {column.steps for column, _ in kept}
    return Chosen(
        [(column.steps, path) for column, path in kept],
        [path for column, path in wanted if column.steps not in chosen],
    )


def _rank(column: Column) -> tuple[int, bool, int]:
    """Lower: more like a partition key."""
    is_named_so = _NAMED_LIKE_KEYS.fullmatch(column.steps[-1]) is not None
    return _kind(column.values[:_LOOKED_AT]), not is_named_so, len(column.steps)


def _kind(values: list[Any]) -> int:
    different = len(set(values))
    if different < 2:
        return 4
    if all(type(value) is str for value in values):
        if seconds_of(values[:_TIMES]) is not None:
            return 1
        if max(map(len, values)) > _LONG_CHARACTERS:
            return 4
        return 0 if different <= _REPEATING * len(values) else 2
    if all(type(value) is int for value in values):
        return 1 if seconds_of(values[:_TIMES]) is not None else 3
    return 4
