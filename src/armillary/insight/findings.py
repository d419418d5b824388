"""What a heat map shows, in words: a hot row, a hot partition, a band that moves, a rhythm, or evenly spread load;
which partition refuses requests and since when; which writes find their key full.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import Any

from armillary import work
from armillary.account.load_history.columns import (
    CHARGED,
    FULL,
    REFUSED,
    REQUESTS,
    WOULD_BE_REFUSED,
    Column,
)
from armillary.insight.timeline import Steps
from armillary.model.ranges import KeyRange

_VALUE_UNITS = 3  # of work for one value of the map
REQUESTS_MIN = 1_000  # fewer say too little
_HOT = 10.0  # times the median of its column
_HOT_S = 300.0
_HOT_PARTITION = 2.0  # times its fair share
_RULES = 0.5  # of a column's load, for the row that has it to be its band
_RHYTHMS_S = {3_600: "hour", 86_400: "day"}
_CORRELATED = 0.7
_VARIES = 0.3  # standard deviation by mean; less is no rhythm


class Loads:
    """What the findings rest on: request units by row and step, and counts by partition."""

    def __init__(self, steps: Steps, rows: int, values: array[float]) -> None:
        self.steps = steps
        self.rows = rows
        self.values = values  # hundredths of request units, row by row; filled while columns are added
        self.requests = 0.0
        self.charged: dict[int, float] = {}  # by partition
        self.refusals: dict[tuple[int, int], list[float]] = {}  # measure and partition: count, since when

    def add(self, column: Column, placed: Sequence[tuple[int, float]]) -> None:
        share = sum(each for _, each in placed)
        if not share:
            return
        for sheet in column.sheets:
            self.requests += sheet.total(REQUESTS) * share
            for index, part in enumerate(sheet.layout.parts):
                range_id = part.range.id
                self.charged[range_id] = self.charged.get(range_id, 0.0) + sheet.total(CHARGED, index) * share
                for measure in (REFUSED, WOULD_BE_REFUSED, FULL):
                    if count := sheet.total(measure, index):
                        found = self.refusals.setdefault((measure, range_id), [0.0, column.start_s])
                        found[0] += count * share

    def column(self, index: int) -> array[float]:
        """May give way: for what is done with each of its values, too."""
        work.spend(_VALUE_UNITS * self.rows)
        return self.values[index :: self.steps.count]


def findings_of(loads: Loads, ranges: Sequence[KeyRange], bounds: Sequence[bytes]) -> list[dict[str, Any]]:
    found = [*_key_full(loads), *_refusals(loads)]
    if loads.requests < REQUESTS_MIN:
        text = f"Too little to say: {loads.requests:,.0f} requests in this time."
        return [*found, _finding("too little to say", text, None, None)]
    totals = [math.fsum(loads.column(index)) for index in range(loads.steps.count)]
    shapes = _band_that_moves(loads, totals) or [*_hot_rows(loads, totals, bounds), *_hot_partition(loads, ranges)]
    return [*found, *(shapes or _even(loads)), *_rhythm(loads, totals)]


def _finding(kind: str, text: str, rows: list[int] | None, columns: list[int] | None) -> dict[str, Any]:
    """`rows` and `columns`: the first and last that it is about; None: all."""
    return {"kind": kind, "text": text, "rows": rows, "columns": columns}


# Refusals.


def _key_full(loads: Loads) -> list[dict[str, Any]]:
    return [
        _finding(
            "key full",
            f"{count:,.0f} writes to partition {range_id} were refused because a key is full (403/1014), since "
            f"{_time(since_s)}.",
            None,
            [loads.steps.index_of(since_s), loads.steps.count - 1],
        )
        for range_id, count, since_s in _worst(loads, FULL)
    ]


def _refusals(loads: Loads) -> list[dict[str, Any]]:
    found = []
    for measure, verb in ((REFUSED, "has refused"), (WOULD_BE_REFUSED, "would have refused")):
        for range_id, count, since_s in _worst(loads, measure):
            text = f"Partition {range_id} {verb} {count:,.0f} requests (429), since {_time(since_s)}."
            columns = [loads.steps.index_of(since_s), loads.steps.count - 1]
            found.append(_finding("refusals", text, None, columns))
    return found


def _worst(loads: Loads, measure: int) -> list[tuple[int, float, float]]:
    """The partition with the most refusals of a kind, if there is one: id, count, since when."""
    counted = [(each[0], range_id, each[1]) for (kind, range_id), each in loads.refusals.items() if kind == measure]
    return [(range_id, count, since_s) for count, range_id, since_s in sorted(counted, reverse=True)[:1]]


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# Shapes.


def _hot_rows(loads: Loads, totals: Sequence[float], bounds: Sequence[bytes]) -> list[dict[str, Any]]:
    """Rows with ten times the median of their column for five minutes on end."""
    count = loads.steps.count
    hot: dict[int, list[int]] = {}  # by row: the columns
    for index, total in enumerate(totals):
        if not total:
            continue
        column = loads.column(index)
        # Where few keys are used most rows are empty, so the median says nothing and the mean has to.
        least = _HOT * max(median(column), total / loads.rows)
        for row, value in enumerate(column):
            if value >= least:
                hot.setdefault(row, []).append(index)
    found = []
    for row, indexes in hot.items():
        first, last = _longest_run(indexes)
        if (last - first + 1) * loads.steps.step_s >= _HOT_S:
            share = math.fsum(loads.values[row * count + first : row * count + last + 1]) / math.fsum(
                totals[first : last + 1]
            )
            text = (
                f"One row has {share:.0%} of the request units, ten times the median or more: one key, or a few "
                f"(hashes {bounds[row].hex().upper()[:8] or '00'}…)."
            )
            found.append((share, _finding("hot row", text, [row, row], [first, last])))
    found.sort(key=lambda each: -each[0])
    return [each for _, each in found[:3]]


def _longest_run(indexes: Sequence[int]) -> tuple[int, int]:
    """The first and last of the longest run of consecutive numbers."""
    best = (indexes[0], indexes[0])
    for _, group in groupby(enumerate(indexes), key=lambda each: each[1] - each[0]):
        run = [index for _, index in group]
        if run[-1] - run[0] > best[1] - best[0]:
            best = (run[0], run[-1])
    return best


def _hot_partition(loads: Loads, ranges: Sequence[KeyRange]) -> list[dict[str, Any]]:
    charged = {each.id: loads.charged.get(each.id, 0.0) for each in ranges}
    total = math.fsum(charged.values())
    if len(ranges) < 2 or not total:
        return []
    range_id = max(charged, key=charged.__getitem__)
    share = charged[range_id] / total
    if share * len(ranges) < _HOT_PARTITION:
        return []
    text = (
        f"Partition {range_id} has {share:.0%} of the request units: {share * len(ranges):.1f} times its fair share of "
        f"{len(ranges)} partitions."
    )
    return [_finding("hot partition", text, None, None)]


def _band_that_moves(loads: Loads, totals: Sequence[float]) -> list[dict[str, Any]]:
    """One row has most of the load at each time, and another one later: a key made of the time."""
    rulers = []  # the row that has most of each column, in the order of time
    for index, total in enumerate(totals):
        if total:
            column = loads.column(index)
            row = max(range(loads.rows), key=column.__getitem__)
            rulers.append(row if column[row] >= _RULES * total else -1)
    reigns = [row for row, _ in groupby(rulers) if row >= 0]
    is_ruled = sum(row >= 0 for row in rulers) >= 0.8 * len(rulers)
    if not is_ruled or len(set(reigns)) < 3 or len(reigns) > 1.5 * len(set(reigns)) or len(reigns) > len(rulers) / 2:
        return []
    text = (
        f"The hot row moves: {len(set(reigns))} rows in turn had most of the request units. A key that is made of the "
        "time, such as today's date, does that."
    )
    return [_finding("band that moves", text, [min(reigns), max(reigns)], None)]


def _even(loads: Loads) -> list[dict[str, Any]]:
    count = loads.steps.count
    rows = [math.fsum(loads.values[row * count : (row + 1) * count]) for row in work.paced(range(loads.rows), count)]
    mean = math.fsum(rows) / len(rows)
    ratio = max(rows) / mean if mean else 1.0
    return [_finding("even", f"Load is spread evenly: the busiest row has {ratio:.1f} times the mean.", None, None)]


def _rhythm(loads: Loads, totals: Sequence[float]) -> list[dict[str, Any]]:
    for period_s, name in _RHYTHMS_S.items():
        lag, rest = divmod(period_s, loads.steps.step_s)
        if rest or lag < 4 or len(totals) < 3 * lag:
            continue
        if _varies(totals) and _correlation(totals[:-lag], totals[lag:]) >= _CORRELATED:
            return [_finding("rhythm", f"The load is the same every {name}.", None, None)]
    return []


def _varies(totals: Sequence[float]) -> bool:
    mean = math.fsum(totals) / len(totals)
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in totals) / len(totals))
    return mean > 0 and deviation >= _VARIES * mean


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    mean_one, mean_other = math.fsum(one) / len(one), math.fsum(other) / len(other)
    product = math.fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    size = math.sqrt(math.fsum((a - mean_one) ** 2 for a in one) * math.fsum((b - mean_other) ** 2 for b in other))
    return product / size if size else 0.0
