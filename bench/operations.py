"""Single operations and small queries: the server's processor time for each, and rates and latencies, with 64
connections. Two servers, at durability full and relaxed, each with a container of 10,000 items of 1 KB; all kinds of
requests take turns in every round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import load, queries, servers
from bench.load import NUMBERS_PER_RUN, Measured, run_wrk
from bench.protocol import NUMBER_FIRST
from bench.sections import Aim, Say, row

CONNECTIONS: Final = 64
ITEMS: Final = 10_000
_VARIANTS: Final = 1000
READ, CREATE, CREATE_FULL = "point read", "create, durability relaxed", "create, durability full"
UPSERT, QUERY, RANGE = "upsert, durability relaxed", queries.EQUALITY, queries.RANGE
AIMS_US: Final = {READ: 45, CREATE: 95, CREATE_FULL: 125, UPSERT: 100, QUERY: 170, RANGE: 550}

Script = Callable[[], str]


@dataclass
class OperationFigures:
    measured: dict[str, list[Measured]] = field(default_factory=dict)  # of each round

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"single operations, {CONNECTIONS} connections: medians and the range of the rounds"
        yield row("", ["CPU µs", "from", "to", "a second", "p50 ms", "p99 ms"])
        for kind, rounds in self.measured.items():
            cpu = [each.server_cpu_us for each in rounds]
            cells = [f"{statistics.median(cpu):.0f}", f"{min(cpu):.0f}", f"{max(cpu):.0f}"]
            cells.append(f"{statistics.median(each.per_s for each in rounds):,.0f}")
            cells += [
                f"{statistics.median(getattr(each, name) for each in rounds):.1f}" for name in ("p50_ms", "p99_ms")
            ]
            yield row(kind, cells)

    def aims(self) -> Iterable[Aim]:
        for kind, rounds in self.measured.items():
            found = statistics.median(each.server_cpu_us for each in rounds)
            yield Aim(f"{kind}: µs of the server's processor time", found, AIMS_US[kind], is_most=True)

    def to_json(self) -> dict[str, Any]:
        return {kind: [each.to_json() for each in rounds] for kind, rounds in self.measured.items()}


def measure(directory: Path, *, is_quick: bool, say: Say) -> OperationFigures:
    figures = OperationFigures()
    rounds, seconds = (3, 2.0) if is_quick else (7, 4.0)
    with ExitStack() as opened:
        relaxed = servers.start_armillary(directory / "relaxed", "relaxed")
        opened.callback(relaxed.stop)
        full = servers.start_armillary(directory / "full", "full")
        opened.callback(full.stop)
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + ITEMS)
        stored = relaxed.new_container(numbers)  # read and queried
        changed, created = relaxed.new_container(numbers), relaxed.new_container(numbers)
        created_full = full.new_container(numbers)
        free = iter(range(NUMBER_FIRST + 10 * NUMBERS_PER_RUN, NUMBER_FIRST + 1000 * NUMBERS_PER_RUN, NUMBERS_PER_RUN))
        work: dict[str, tuple[servers.Server, Script]] = {
            READ: (relaxed, lambda: load.reads(stored, numbers)),
            CREATE: (relaxed, lambda: load.creates(created, next(free))),
            CREATE_FULL: (full, lambda: load.creates(created_full, next(free))),
            UPSERT: (relaxed, lambda: load.upserts(changed, numbers, next(free))),
            QUERY: (relaxed, lambda: _queries(stored, QUERY)),
            RANGE: (relaxed, lambda: _queries(stored, RANGE)),
        }
        for turn in range(rounds):
            for kind, (server, script) in work.items():
                found = run_wrk(server.port, script(), connections=CONNECTIONS, seconds=seconds, cpu_pid=server.pid)
                figures.measured.setdefault(kind, []).append(found)
                errors = f", {found.errors} ERRORS" if found.errors else ""
                say(f"round {turn + 1}: {kind} {found.server_cpu_us:.0f} µs, {found.per_s:,.0f}/s{errors}")
    return figures


def _queries(container: str, query: str) -> str:
    return load.from_table(queries.query_text(container, query, ITEMS, turn) for turn in range(_VARIANTS))
