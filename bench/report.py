"""Formats results as tables: rates, ratios, and targets with the values reached."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any, Final

from bench.idle import Idle
from bench.load import Measured
from bench.queries import COUNT, EQUALITY, ORDER, RANGE, QueryFigures
from bench.sections import Aim, Section
from bench.sections import row as _row
from bench.splits import SplitFigures
from bench.splits import lines as split_lines

CONNECTIONS: Final = (1, 16, 64)

# The contests.
READ = "point read, requests/s"
CREATE = "create 1 KB, items/s"
UPSERT = "upsert of existing 1 KB items, items/s"
BATCH = "batch of 100 creates, items/s"
READ_LARGE = "point read, large container, requests/s"
CREATE_LARGE = "create 1 KB, small and large container, items/s"

# The rows.
FULL = "armillary, full"
RELAXED = "armillary, relaxed"
BARE = "bare HTTP"
RAW_FULL = "raw rocksdb, full"
RAW_RELAXED = "raw rocksdb, relaxed"
VERCEL = "cosmosdb-server"
VERCEL_ALIVE = "cosmosdb-server, keep-alive"
COSMIUM = "cosmium"

Results = dict[str, dict[str, dict[int, list[Measured]]]]

# The ratios printed below the rates: numerator and denominator.
_OTHERS: Final = (VERCEL, VERCEL_ALIVE, COSMIUM)
_STORED: Final = [*((FULL, other) for other in _OTHERS), *((RELAXED, other) for other in _OTHERS)]
_RATIOS: Final = {
    READ: [(FULL, BARE), *((FULL, other) for other in _OTHERS)],
    CREATE: [(FULL, RAW_FULL), (RELAXED, RAW_RELAXED), *_STORED],
    UPSERT: _STORED,
    BATCH: [(FULL, RAW_FULL), (RELAXED, RAW_RELAXED), *_STORED],
}


def render(
    results: Results,
    idle: Idle | None,
    queries: QueryFigures | None,
    splits: SplitFigures | None,
    sections: dict[str, Section],
    *,
    large: int,
    puts_per_item: float,
    skipped: list[str],
    taken_s: float,
) -> str:
    lines = [f"Measured in {taken_s / 60:.0f} minutes."] if idle is None else _preface(puts_per_item, taken_s)
    lines += [f"Skipped: {reason}." for reason in skipped]
    for title, table in results.items():
        lines += ["", title, _row("", [f"{each}" for each in CONNECTIONS] + ["p99 ms", "CPU µs"])]
        for name, cells in table.items():
            rates = [f"{_rate(results, title, name, each):,.0f}" for each in CONNECTIONS]
            last = cells[CONNECTIONS[-1]]
            p99_ms = statistics.median(each.p99_ms for each in last)
            cpu_us = statistics.median(each.server_cpu_us for each in last)
            errors = sum(each.errors for every in cells.values() for each in every)
            lines.append(
                _row(name, [*rates, f"{p99_ms:.1f}", f"{cpu_us:.0f}" if cpu_us else ""])
                + (f"  {errors} ERRORS" if errors else "")
            )
        for over, under in _ratios_of(title, table):
            ratios = [_ratio(results, title, over, under, each) for each in CONNECTIONS]
            lines.append(_row(f"  {over} / {under}", ["-" if each is None else f"{each:.2f}" for each in ratios]))
    if queries is not None:
        lines += _query_lines(queries)
    if splits is not None:
        lines += split_lines(splits)
    for section in sections.values():
        lines += section.lines()
    if idle is not None:
        lines += [
            "",
            f"Start to ready: median {idle.start_median_s:.2f} s, worst {idle.start_worst_s:.2f} s. "
            f"Idle: {idle.rss_mb:.0f} MB, {idle.cpu_percent:.1f} % CPU.",
        ]
    lines += ["", "Aims"]
    for aim in [
        *(aims(results, idle, large) if idle is not None else ()),
        *(query_aims(queries) if queries is not None else ()),
        *(split_aims(splits) if splits is not None else ()),
        *(aim for section in sections.values() for aim in section.aims()),
    ]:
        lines.append(aim.line())
    return "\n".join(lines)


def _preface(puts_per_item: float, taken_s: float) -> list[str]:
    return [
        f"Armillary on this machine: {os.cpu_count()} cores, shared by the load generator (wrk, one thread), the",
        "server and whatever else runs here; contestants take turns, medians of the rounds. Signed requests over http,",
        f"data on disk. Measured in {taken_s / 60:.0f} minutes. Columns: rate with 1, 16 and 64 connections; with 64,",
        "the 99th percentile of the time to an answer, and the processor time that the server spends on an item.",
        f"An item is 1 KB with the default index: {puts_per_item:.0f} puts. cosmosdb-server and cosmium store nothing",
        "on disk; cosmosdb-server is measured as its command line starts it (it closes the connection after every",
        "answer) and, embedded, with keep-alive. 'raw rocksdb' commits what so many connections have under way as one",
        "group.",
    ]


def aims(results: Results, idle: Idle, large: int) -> Iterator[Aim]:
    """The targets with the values reached; the worst of all numbers of connections counts unless one is given."""

    def worst(title: str, over: str, under: str) -> float | None:
        ratios = [_ratio(results, title, over, under, each) for each in CONNECTIONS]
        known = [each for each in ratios if each is not None]
        return min(known) if known else None

    yield Aim("point read / bare HTTP", worst(READ, FULL, BARE), 0.5)
    for other in (VERCEL, VERCEL_ALIVE):
        yield Aim(f"point read / {other}", worst(READ, FULL, other), 3)
    for row, wanted in ((FULL, 1.2), (RELAXED, 1.5)):
        for other in (VERCEL, VERCEL_ALIVE):
            text = f"create at 64 connections, {row} / {other}"
            yield Aim(text, _ratio(results, CREATE, row, other, 64), wanted)
    for row in (FULL, RELAXED):
        slower = _ratio(results, CREATE_LARGE, f"{row}, 10,000 items", f"{row}, {large:,} items", 64)
        yield Aim(f"create at 64, {row}, 10,000 / {large:,} items", slower, 1.5, is_most=True)
    yield Aim("batch of 100, full / raw rocksdb", worst(BATCH, FULL, RAW_FULL), 0.3)
    yield Aim("process start to ready, s (worst)", idle.start_worst_s, 1, is_most=True)
    yield Aim("idle memory, MB", idle.rss_mb, 100, is_most=True)
    yield Aim("idle CPU, %", idle.cpu_percent, 1, is_most=True)


def query_aims(figures: QueryFigures) -> Iterator[Aim]:
    small, large = figures.sizes[0], figures.sizes[-1]
    for query in (EQUALITY, ORDER, COUNT):
        yield Aim(f"{query}: time at {large:,} / at {small:,} items", figures.slowdown(query), 1.5, is_most=True)
    for size in figures.other_rates:
        yield Aim(f"{RANGE}, of {size:,} items, / {VERCEL_ALIVE}", figures.range_ratio(size), 30)
    scan = statistics.median(figures.scan_items_per_s)
    yield Aim(f"scan of {large:,} items with a filter of two terms, items/s", scan, 150_000)
    slower = [bare / mine for mine, bare in zip(figures.scan_items_per_s, figures.bare_items_per_s, strict=True)]
    yield Aim("bare loop / scan", statistics.median(slower), 3, is_most=True)
    yield Aim("peak memory of the scan above idle, MB", figures.peak_mb - figures.idle_mb, 200, is_most=True)


def split_aims(figures: SplitFigures) -> Iterator[Aim]:
    yield Aim("copy of a partition without load, items/s", figures.copied_per_s, 20_000)
    yield Aim("the smaller child's share of the bytes", figures.balance, 0.4)
    yield Aim("longest pause of a writer during a split, s", figures.longest_write_ms / 1000, 1, is_most=True)
    yield Aim("99th percentile during / before a split", figures.during_p99_ms / figures.before_p99_ms, 5, is_most=True)


def _query_lines(figures: QueryFigures) -> Iterator[str]:
    yield ""
    yield "queries with one connection, requests/s, by the number of items"
    yield _row("", [f"{size:,}" for size in figures.sizes])
    for query, rates in figures.rates.items():
        yield _row(query, [f"{statistics.median(rates[size]):,.0f}" for size in figures.sizes])
    if figures.other_rates:
        others = [figures.other_rates.get(size) for size in figures.sizes]
        yield _row(f"{RANGE}, {VERCEL_ALIVE}", [f"{statistics.median(each):,.1f}" if each else "-" for each in others])
    first_s = figures.first_order_s
    yield f"The first ORDER BY over a path after a start, with {figures.sizes[-1]:,} items: {first_s:.2f} s."


def to_json(
    results: Results,
    idle: Idle | None,
    queries: QueryFigures | None,
    splits: SplitFigures | None,
    sections: dict[str, Section],
    skipped: list[str],
) -> dict[str, Any]:
    return {
        "results": {
            title: {
                name: {str(connections): [each.to_json() for each in every] for connections, every in cells.items()}
                for name, cells in table.items()
            }
            for title, table in results.items()
        },
        "idle": idle.to_json() if idle is not None else None,
        "queries": queries.to_json() if queries is not None else None,
        "splits": splits.to_json() if splits is not None else None,
        **{name: section.to_json() for name, section in sections.items()},
        "skipped": skipped,
    }


def _ratios_of(title: str, table: dict[str, dict[int, list[Measured]]]) -> Iterator[tuple[str, str]]:
    if title == CREATE_LARGE:
        names = list(table)
        yield from zip(names[1::2], names[::2], strict=True)
    for over, under in _RATIOS.get(title, ()):
        if over in table and under in table:
            yield over, under


def _rate(results: Results, title: str, row: str, connections: int) -> float | None:
    every = results.get(title, {}).get(row, {}).get(connections)
    return statistics.median(each.per_s for each in every) if every else None


def _ratio(results: Results, title: str, over: str, under: str, connections: int) -> float | None:
    """The median of the ratios of each round: only measurements of the same round are compared."""
    table = results.get(title, {})
    dividends, divisors = (table.get(row, {}).get(connections, []) for row in (over, under))
    ratios = [a.per_s / b.per_s for a, b in zip(dividends, divisors, strict=False) if b.per_s]
    return statistics.median(ratios) if ratios else None
