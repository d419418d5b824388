"""The benchmark: starts all servers, measures them in turns, prints the tables and stores the figures.

They take turns because the load on the machine and its disk varies: in each round every server is measured once with
each number of connections before the next round begins.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import (
    advise,
    captures,
    cluster,
    compare,
    documented,
    expiry,
    feed,
    foresight,
    gremlin,
    growth,
    imports,
    load,
    mongo,
    operations,
    portal,
    processes,
    queries,
    report,
    scripts,
    servers,
    snapshots,
    splits,
)
from bench.idle import measure_idle
from bench.load import NUMBERS_PER_RUN, Measured, run_wrk
from bench.operations import OperationFigures
from bench.processes import ProcessFigures
from bench.protocol import BATCH_ITEMS, NUMBER_FIRST
from bench.queries import QueryFigures
from bench.raw_rocks import RawRocks
from bench.report import CONNECTIONS, Results
from bench.sections import Measure, Section
from bench.servers import Server, Unavailable
from bench.splits import SplitFigures

SMALL = 10_000
OUT = servers.ROOT / "bench/out"


@dataclass(frozen=True)
class Plan:
    seconds: float  # of one measurement
    rounds: int
    large: int  # items
    starts: int
    idle_s: float


FULL = Plan(seconds=3, rounds=3, large=1_000_000, starts=10, idle_s=10)
QUICK = Plan(seconds=2, rounds=1, large=100_000, starts=10, idle_s=10)

Row = tuple[str, Callable[[int], Measured]]


class Benchmark:
    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._next_number = NUMBER_FIRST + 10 * NUMBERS_PER_RUN
        self.results: Results = {}
        self.query_figures: QueryFigures | None = None
        self.split_figures: SplitFigures | None = None
        self.servers: list[Server] = []
        self.raw: list[tuple[str, RawRocks]] = []
        self.skipped: list[str] = []

    def run(self, title: str, rows: list[Row]) -> None:
        table = self.results.setdefault(title, {})
        for turn in range(self._plan.rounds):
            for connections in CONNECTIONS:
                for name, measure in rows:
                    measured = measure(connections)
                    table.setdefault(name, {}).setdefault(connections, []).append(measured)
                    errors = f", {measured.errors} ERRORS" if measured.errors else ""
                    _say(f"{title}, round {turn + 1}, {connections:2}: {name} {measured.per_s:,.0f}/s{errors}")

    # The contests.

    def point_reads(self, bare: Server) -> None:
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + SMALL)
        rows: list[Row] = [(bare.name, self._wrk(bare, lambda: load.reads("any", numbers)))]
        for server in self.servers:
            if server.name != report.RELAXED:  # durability does not affect reads
                script = _reads(server.new_container(numbers), numbers)
                rows.append((server.name, self._wrk(server, script)))
        self.run(report.READ, rows)

    def creates(self) -> None:
        rows: list[Row] = [(server.name, self._creates(server)) for server in self.servers]
        for name, raw in self.raw:
            rows.append((name, self._raw(raw, 1)))
        self.run(report.CREATE, rows)

    def upserts(self) -> None:
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + SMALL)
        rows: list[Row] = []
        for server in self.servers:
            container = server.new_container(numbers)
            rows.append((server.name, self._wrk(server, self._upserts(container, numbers))))
        self.run(report.UPSERT, rows)

    def batches(self) -> None:
        rows: list[Row] = []
        for server in self.servers:
            if server.has_batches:
                container = server.new_container(range(0))
                rows.append((server.name, self._wrk(server, self._batches(container), BATCH_ITEMS)))
        for name, raw in self.raw:
            rows.append((name, self._raw(raw, BATCH_ITEMS)))
        self.run(report.BATCH, rows)

    def large(self) -> None:
        """The same work on a small and on a large container."""
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + self._plan.large)
        reads: list[Row] = []
        creates: list[Row] = []
        for server in self.servers:
            if server.name not in (report.FULL, report.RELAXED):
                continue
            begin_s = time.monotonic()
            container = server.new_container(numbers)
            taken_s = time.monotonic() - begin_s
            _say(f"{server.name}: {len(numbers):,} items loaded, {len(numbers) / taken_s:,.0f} items/s")
            if server.name == report.FULL:
                some = range(numbers.start, numbers.stop, len(numbers) // SMALL)
                reads.append((server.name, self._wrk(server, _reads(container, some))))
            creates.append((f"{server.name}, {SMALL:,} items", self._creates(server)))
            creates.append((f"{server.name}, {len(numbers):,} items", self._wrk(server, self._more(container))))
        self.run(report.READ_LARGE, reads)
        self.run(report.CREATE_LARGE, creates)

    def queries(self) -> None:
        sizes = [SMALL, 10 * SMALL] + ([self._plan.large] if self._plan.large > 10 * SMALL else [])
        seconds, rounds = self._plan.seconds, self._plan.rounds
        self.query_figures = queries.measure(
            self._directory / "queries", sizes, seconds=seconds, rounds=rounds, say=_say
        )

    def splits(self) -> None:
        # A gigabyte, or as much as fits the time.
        self.split_figures = splits.measure(
            self._directory / "splits", self._plan.large, seconds=self._plan.seconds, say=_say
        )

    # Measurements, one for each number of connections. Each has a new script, because signatures expire.

    def _wrk(self, server: Server, script: Callable[[], str], items: int = 1) -> Callable[[int], Measured]:
        return lambda connections: run_wrk(
            server.port,
            script(),
            connections=connections,
            seconds=self._plan.seconds,
            cpu_pid=server.pid,
            items=items,
        )

    def _creates(self, server: Server) -> Callable[[int], Measured]:
        """Each measurement begins with a container of 10,000 items."""

        def measure(connections: int) -> Measured:
            container = server.new_container(range(NUMBER_FIRST, NUMBER_FIRST + SMALL))
            return self._wrk(server, self._more(container))(connections)

        return measure

    def _raw(self, raw: RawRocks, items: int) -> Callable[[int], Measured]:
        """Groups of as many writes as there are connections: the largest group commit possible."""
        return lambda connections: raw.measure(
            group_items=connections * items, is_batched=items > 1, seconds=self._plan.seconds / 2
        )

    def _more(self, container: str) -> Callable[[], str]:
        return lambda: load.creates(container, self._numbers())

    def _batches(self, container: str) -> Callable[[], str]:
        return lambda: load.batches(container, self._numbers())

    def _upserts(self, container: str, numbers: range) -> Callable[[], str]:
        return lambda: load.upserts(container, numbers, self._numbers())

    def _numbers(self) -> int:
        """The first of a range of unused item numbers."""
        first = self._next_number
        self._next_number += NUMBERS_PER_RUN
        return first


def _reads(container: str, numbers: range) -> Callable[[], str]:
    return lambda: load.reads(container, numbers)


# Sections with servers of their own.
SECTIONS: dict[str, Measure] = {
    "operations": operations.measure,
    "mongo": mongo.measure,
    "gremlin": gremlin.measure,
    "scripts": scripts.measure,
    "import": imports.measure,
    "expiry": expiry.measure,
    "captures": captures.measure,
    "feed": feed.measure,
    "foresight": foresight.measure,
    "advise": advise.measure,
    "snapshots": snapshots.measure,
    "cluster": cluster.measure,
    "growth": growth.measure,
    "processes": processes.measure,
    "portal": portal.measure,
}
CONTESTS = ("read", "create", "upsert", "batch", "large", "query", "split")


def main() -> None:
    options = _options()
    if options.compare is not None:
        comparison = compare.measure(options.compare, is_quick=options.quick, directory=options.directory, say=_say)
        _keep("\n".join(comparison.lines()), comparison.to_json())
        return
    plan = QUICK if options.quick else FULL
    begin_s, load_before = time.monotonic(), os.getloadavg()[0]
    wanted: list[str] = options.only or [*CONTESTS, *SECTIONS]
    contests = [each for each in wanted if each in CONTESTS]
    sections: dict[str, Section] = {}
    with tempfile.TemporaryDirectory(prefix="armillary-bench-", dir=options.directory) as name:
        directory = Path(name)
        idle = measure_idle(directory / "idle", starts=plan.starts, seconds=plan.idle_s) if contests else None
        benchmark = Benchmark(plan, directory)
        if contests:
            _contend(benchmark, contests, directory, options.cosmium)
        for each in wanted:
            if each in SECTIONS:
                (directory / each).mkdir()
                sections[each] = SECTIONS[each](directory / each, is_quick=options.quick, say=_say)
                if options.quick:
                    continue
                if isinstance(measured := sections[each], OperationFigures):
                    documented.write_operations(measured, load_before)
                elif isinstance(measured, ProcessFigures):
                    documented.write_processes(measured, load_before)
    text = report.render(
        benchmark.results,
        idle,
        benchmark.query_figures,
        benchmark.split_figures,
        sections,
        large=plan.large,
        puts_per_item=benchmark.raw[0][1].puts_per_item if benchmark.raw else 0.0,
        skipped=benchmark.skipped,
        taken_s=time.monotonic() - begin_s,
    )
    figures = report.to_json(
        benchmark.results, idle, benchmark.query_figures, benchmark.split_figures, sections, benchmark.skipped
    )
    _keep(text, figures)


def _keep(text: str, figures: dict[str, Any]) -> None:
    print(text)
    OUT.mkdir(exist_ok=True)
    stem = time.strftime("%Y%m%d-%H%M%S")
    (OUT / f"{stem}.txt").write_text(text + "\n")
    (OUT / f"{stem}.json").write_text(json.dumps(figures, indent=1) + "\n")


def _contend(benchmark: Benchmark, contests: list[str], directory: Path, cosmium: Path | None) -> None:
    """Start all servers and run the selected measurements."""
    with ExitStack() as opened:
        bare = servers.start_bare()
        opened.callback(bare.stop)
        starters: list[Callable[[], Server]] = [
            lambda: servers.start_armillary(directory / "full", "full"),
            lambda: servers.start_armillary(directory / "relaxed", "relaxed"),
            lambda: servers.start_vercel(keeps_alive=False),
            lambda: servers.start_vercel(keeps_alive=True),
            lambda: servers.start_cosmium(cosmium),
        ]
        for start in starters:
            try:
                server = start()
            except Unavailable as reason:
                benchmark.skipped.append(str(reason))
                _say(f"skipped: {reason}")
                continue
            opened.callback(server.stop)
            benchmark.servers.append(server)
        for row in (report.RAW_FULL, report.RAW_RELAXED):
            raw = RawRocks(directory / row.replace(", ", "-"), is_relaxed=row == report.RAW_RELAXED)
            opened.callback(raw.close)
            benchmark.raw.append((row, raw))
        held: dict[str, Callable[[], None]] = {
            "read": lambda: benchmark.point_reads(bare),
            "create": benchmark.creates,
            "upsert": benchmark.upserts,
            "batch": benchmark.batches,
            "large": benchmark.large,
            "query": benchmark.queries,
            "split": benchmark.splits,
        }
        for contest in contests:
            held[contest]()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about three minutes; 100,000 items instead of a million")
    parser.add_argument("--compare", metavar="REV", help="the working tree beside this commit: 5 minutes, --quick one")
    parser.add_argument("--only", action="append", choices=[*CONTESTS, *SECTIONS], help="one contest; repeatable")
    parser.add_argument("--cosmium", type=Path, help="a cosmium server that is already built")
    parser.add_argument("--directory", type=Path, help="where data is written meanwhile (default: the temporary one)")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
