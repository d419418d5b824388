"""The heat map of a container: load by hash range and time. Columns of the history are laid onto the asked rows and
steps by their overlap, so sums stay sums; charges that belong to no key are spread over the rows of their partition.

The rows are equal parts of the partitions as they are now, an equal number for each: partitions hold about the same
amount, however narrow the ranges of a tenant are. What the picture shows is said in words by `findings.py`.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from armillary import work
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.load_history.columns import CHARGED, Column, Layout, Sheet
from armillary.account.load_history.layers import rows_counted
from armillary.account.load_history.range_rows import Share, key_space_end, row_bounds, shares
from armillary.insight.findings import Loads, findings_of
from armillary.insight.timeline import COUNTS, Steps, columns_of, normalized, sizes_before
from armillary.partition.budget import HUNDREDTHS

_PLACE_UNITS: Final = 5  # of work to lay one amount onto one place of the map
METRICS: Final = (*COUNTS, "bytes", "normalized")
_UNITS: Final = {"ru": "RU", "bytes": "bytes", "normalized": "share of the budget"}


@dataclass(slots=True)
class _Grid:
    """Values by row and step."""

    rows: int
    columns: int
    values: array[float] = field(init=False)

    def __post_init__(self) -> None:
        self.values = array("d", bytes(8 * self.rows * self.columns))


class Painter:
    """Lays sheets onto rows of another division: those of the map, or partitions that there may be."""

    def __init__(self, bounds: list[bytes], version: int) -> None:
        ends = [*bounds[:-1], key_space_end(bounds[-1], version)]
        self._targets = ends
        self.rows = len(bounds) - 1
        self._laid: dict[Layout, list[tuple[list[list[Share]], list[Share]]]] = {}

    def of(self, layout: Layout) -> list[tuple[list[list[Share]], list[Share]]]:
        """For each partition: where its rows lie, and where all of it lies, which what has no key is spread over."""
        found = self._laid.get(layout)
        if found is None:
            found = self._laid[layout] = []
            for part in layout.parts:
                work.spend(_PLACE_UNITS * len(part.edges))
                edges = [*part.edges[:-1], key_space_end(part.range.high, layout.version)]
                rows = shares(edges, self._targets)
                whole: dict[int, float] = {}
                for row in rows:
                    for target, share in row:
                        whole[target] = whole.get(target, 0.0) + share / len(rows)
                found.append((rows, [Share(*each) for each in whole.items()]))
        return found

    def counts(self, sheet: Sheet, measure: int) -> Iterator[tuple[int, float]]:
        """Row and amount, several times for some rows."""
        numbers = sheet.counts[measure]
        if numbers is None:
            return
        offsets = sheet.layout.offsets
        for index, (rows, whole) in enumerate(self.of(sheet.layout)):
            first, keyless = offsets[index], offsets[index + 1] - 1
            for place, row in enumerate(rows):
                if number := numbers[first + place]:
                    for target, share in row:
                        yield target, number * share
            if number := numbers[keyless]:
                for target, share in whole:
                    yield target, number * share

    def sizes(self, sheet: Sheet) -> array[float]:
        """Bytes by row."""
        found = array("d", bytes(8 * self.rows))
        for size_bytes, (_, whole) in zip(sheet.size_bytes, self.of(sheet.layout), strict=True):
            for target, share in whole:
                found[target] += size_bytes * share
        return found


async def heat_map(account: Account, container: Container, metric: str, steps: Steps, rows: int) -> dict[str, Any]:
    """The answer of the control API. May give way, in a driven request."""
    bounds = map_bounds(container, rows)
    version = container.key.version if container.key is not None else 2
    painter = Painter(bounds, version)
    grid, load_grid = _Grid(painter.rows, steps.count), _Grid(painter.rows, steps.count)
    loads = Loads(steps, painter.rows, load_grid.values)
    sizes: dict[int, Sheet] = {}
    maps: list[dict[str, Any]] = []
    keyless = total = 0
    now_s = account.clock.now_s()
    async for column in columns_of(account, container, steps.start_s, steps.end_s):
        placed = steps.shares(column)
        _paint(load_grid, painter, column, CHARGED, placed)
        if metric in COUNTS and metric != "ru":
            _paint(grid, painter, column, COUNTS[metric], placed)
        elif metric == "normalized":
            _paint_normalized(grid, painter, column, placed, now_s)
        if metric in COUNTS:
            share = sum(each for _, each in placed)
            total += round(column.total(COUNTS[metric]) * share)
            keyless += round(column.keyless(COUNTS[metric]) * share)
        loads.add(column, placed)
        if column.newest is not None:
            sizes[steps.index_of(column.end_s - 1)] = column.newest
            _note_map(maps, column, column.newest.layout)
    if metric == "ru":
        grid = load_grid
    elif metric == "bytes":
        _paint_sizes(grid, painter, sizes, sizes_before(account, container, steps.start_s))
    scale = HUNDREDTHS if metric == "ru" else 1
    values = array("f", [each / scale for each in work.paced(grid.values, 2)])
    present = work.sorted_values(each for each in work.paced(values, 2) if each)
    history = account.history.of(container)
    return {
        "metric": metric,
        "unit": _UNITS.get(metric, "requests"),
        "times": [*steps.times, steps.end_s],
        "bounds": [bound.hex().upper() or "00" for bound in bounds],
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
        "max": present[-1] if present else 0.0,
        "p99": present[min(len(present) - 1, int(0.99 * len(present)))] if present else 0.0,
        "total": total / scale if metric in COUNTS else None,
        "keyless": keyless / scale if metric in COUNTS else None,
        "gaps": [list(gap) for gap in account.history.gaps(steps.start_s, min(steps.end_s, now_s))],
        "maps": maps,
        "splits": [
            {
                "time": each.time_s,
                "parents": list(each.parents),
                "children": list(each.children),
                "boundary": each.boundary.hex().upper(),
                "reason": each.reason,
            }
            for each in history.reshapes
            if steps.start_s <= each.time_s < steps.end_s
        ],
        "findings": findings_of(loads, container.map.ranges, bounds),
    }


def map_bounds(container: Container, rows: int) -> list[bytes]:
    """The edges of at most so many rows: the same number for each partition, though not more than are counted, or
    several partitions in one."""
    ranges = container.map.ranges
    version = container.key.version if container.key is not None else 2
    counted = rows_counted(container)
    if len(ranges) > rows:
        lows = [ranges[index * len(ranges) // rows].low for index in range(rows)]
        return [*lows, ranges[-1].high]
    found: list[bytes] = []
    for each in ranges:
        found += [each.low, *row_bounds(each.low, each.high, min(rows // len(ranges), counted), version)]
    return [*found, ranges[-1].high]


def _paint(grid: _Grid, painter: Painter, column: Column, measure: int, placed: list[tuple[int, float]]) -> None:
    values, width = grid.values, grid.columns
    for sheet in column.sheets:
        work.spend(_PLACE_UNITS * sheet.layout.offsets[-1] * (1 + len(placed)))
        for row, amount in painter.counts(sheet, measure):
            for index, share in placed:
                values[row * width + index] += amount * share


def _paint_normalized(
    grid: _Grid, painter: Painter, column: Column, placed: list[tuple[int, float]], now_s: float
) -> None:
    """Every row of a partition has the value of the partition; a step has the highest of its columns."""
    seconds = max(1.0, min(column.end_s, now_s) - column.start_s)
    for sheet in column.sheets:
        for part, (_, whole) in enumerate(painter.of(sheet.layout)):
            work.spend(_PLACE_UNITS * len(whole) * (1 + len(placed)))
            spent = normalized(sheet, part, seconds)
            if not spent:
                continue
            for row, _ in whole:
                for index, _ in placed:
                    place = row * grid.columns + index
                    grid.values[place] = max(grid.values[place], spent)


def _paint_sizes(grid: _Grid, painter: Painter, sizes: dict[int, Sheet], before: Sheet | None) -> None:
    """Sizes at the end of each step: the last that were noted."""
    present = painter.sizes(before) if before is not None else None
    for index in range(grid.columns):
        if index in sizes:
            present = painter.sizes(sizes[index])
        if present is not None:
            work.spend(_PLACE_UNITS * painter.rows)
            for row, size_bytes in enumerate(present):
                grid.values[row * grid.columns + index] = size_bytes


def _note_map(maps: list[dict[str, Any]], column: Column, layout: Layout) -> None:
    ids = list(layout.ids)
    if maps and maps[-1]["ids"] == ids:
        return
    lows = [part.range.low.hex().upper() or "00" for part in layout.parts]
    maps.append({"time": column.start_s, "ids": ids, "bounds": [*lows, layout.parts[-1].range.high.hex().upper()]})
