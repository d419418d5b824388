"""Queries: the same queries on containers of several sizes, a range query compared with another server, and a scan
compared with a plain loop, its upper bound. The server is restarted after its data directory was filled, so that its
memory is what queries use.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import load, protocol, servers
from bench.bare_scan import SCAN
from bench.idle import memory_mb
from bench.load import Measured, run_wrk
from bench.protocol import NUMBER_FIRST
from bench.servers import ROOT, Server, Unavailable

EQUALITY: Final = "indexed equality, 10 items"
ORDER: Final = "ORDER BY an indexed path, TOP 10"
RANGE: Final = "range, 100 items"
COUNT: Final = "COUNT(1) of the container"
TEXTS: Final = {
    EQUALITY: "SELECT * FROM c WHERE c.decade = @decade",
    ORDER: "SELECT TOP 10 * FROM c ORDER BY c.sequence DESC",
    RANGE: "SELECT * FROM c WHERE c.sequence >= @low AND c.sequence < @high",
    COUNT: "SELECT VALUE COUNT(1) FROM c",
}
_VARIANTS: Final = 1000  # of parameter values
_OTHER_SIZES: Final = (10_000,)  # the other server has no index, and needs a third of a second for so many


@dataclass
class QueryFigures:
    sizes: list[int]
    rates: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # requests/s by query and size
    other_rates: dict[int, list[float]] = field(default_factory=dict)  # of the range query
    scan_items_per_s: list[float] = field(default_factory=list)
    bare_items_per_s: list[float] = field(default_factory=list)
    first_order_s: float = 0.0  # the first ORDER BY over a path after a start
    idle_mb: float = 0.0
    peak_mb: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def slowdown(self, query: str) -> float | None:
        """How much longer a query takes in the largest container than in the smallest; the median of the rounds."""
        rates = self.rates[query]
        ratios = [small / large for small, large in zip(rates[self.sizes[0]], rates[self.sizes[-1]], strict=True)]
        return statistics.median(ratios) if len(self.sizes) > 1 else None

    def range_ratio(self, size: int) -> float | None:
        others = self.other_rates.get(size)
        mine = self.rates[RANGE].get(size)
        return statistics.median([a / b for a, b in zip(mine, others, strict=True) if b]) if mine and others else None


def measure(
    directory: Path, sizes: list[int], *, seconds: float, rounds: int, say: Callable[[str], None]
) -> QueryFigures:
    figures = QueryFigures(sizes)
    server = servers.start_armillary(directory, "relaxed")
    try:
        containers = {size: server.new_container(_numbers(size)) for size in sizes}
    finally:
        server.stop()
    say(f"queries: {sum(sizes):,} items loaded")
    server = servers.start_armillary(directory, "relaxed")
    try:
        time.sleep(1)
        figures.idle_mb = memory_mb(server.pid)
        _scans(figures, server, containers[sizes[-1]], directory, rounds, say)
        figures.first_order_s = _seconds(server, containers[sizes[-1]], TEXTS[ORDER])
        say(f"first {ORDER}, {sizes[-1]:,} items: {figures.first_order_s:.2f} s")
        _small(figures, server, containers, seconds, rounds, say)
    finally:
        server.stop()
    return figures


def _small(
    figures: QueryFigures,
    server: Server,
    containers: dict[int, str],
    seconds: float,
    rounds: int,
    say: Callable[[str], None],
) -> None:
    other, others = _other(say)
    try:
        for _ in range(rounds):
            for query in TEXTS:
                for size, container in containers.items():
                    measured = _rate(server, container, query, size, seconds)
                    figures.rates.setdefault(query, {}).setdefault(size, []).append(measured.per_s)
                    say(f"{query}, {size:,} items: {measured.per_s:,.0f}/s{_errors(measured)}")
            for size, container in others.items():
                assert other is not None
                measured = _rate(other, container, RANGE, size, seconds)
                figures.other_rates.setdefault(size, []).append(measured.per_s)
                say(f"{RANGE}, {size:,} items, {other.name}: {measured.per_s:,.1f}/s{_errors(measured)}")
    finally:
        if other is not None:
            other.stop()


def _other(say: Callable[[str], None]) -> tuple[Server | None, dict[int, str]]:
    try:
        other = servers.start_vercel(keeps_alive=True)
    except Unavailable as reason:
        say(f"skipped: {reason}")
        return None, {}
    try:
        return other, {size: other.new_container(_numbers(size)) for size in _OTHER_SIZES}
    except BaseException:  # interruptions too: the process must not outlive the benchmark
        other.stop()
        raise


def _rate(server: Server, container: str, query: str, size: int, seconds: float) -> Measured:
    """Over one connection: measures the cost of a query rather than the capacity of the server."""
    script = load.from_table(query_text(container, query, size, turn) for turn in range(_VARIANTS))
    return run_wrk(server.port, script, connections=1, seconds=seconds, cpu_pid=server.pid)


def query_text(container: str, query: str, size: int, turn: int) -> str:
    first = NUMBER_FIRST + turn * (size // _VARIANTS) // 10 * 10
    values = {"@decade": f"d{first // 10}", "@low": first, "@high": first + 100}
    parameters = [{"name": name, "value": value} for name, value in values.items() if name in TEXTS[query]]
    body = json.dumps({"query": TEXTS[query], "parameters": parameters})
    path = f"/{protocol.container_link(container)}/docs"
    return protocol.request_text("POST", path, _headers(container), body, has_holes=False)


def _headers(container: str, continuation: str | None = None) -> dict[str, str]:
    extra = {
        "content-type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-query-enablecrosspartition": "True",
        "x-ms-documentdb-partitionkeyrangeid": "0",  # the only one; clients name it once they have a plan
        "x-ms-max-item-count": "-1",
    }
    if continuation is not None:
        extra["x-ms-continuation"] = continuation
    return protocol.signed("POST", "docs", protocol.container_link(container), extra)


def _scans(
    figures: QueryFigures, server: Server, container: str, directory: Path, rounds: int, say: Callable[[str], None]
) -> None:
    size = figures.sizes[-1]
    for _ in range(max(2, rounds)):
        figures.scan_items_per_s.append(size / _seconds(server, container, SCAN))
        figures.bare_items_per_s.append(_bare_items_per_s(directory, size))
        say(
            f"scan of {size:,} items: {figures.scan_items_per_s[-1]:,.0f}/s, bare {figures.bare_items_per_s[-1]:,.0f}/s"
        )
    figures.peak_mb = memory_mb(server.pid, "VmHWM")


def _seconds(server: Server, container: str, query: str) -> float:
    """How long all pages of a query take."""
    begin_s = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    continuation: str | None = None
    try:
        while True:
            body = json.dumps({"query": query, "parameters": []})
            path = f"/{protocol.container_link(container)}/docs"
            connection.request("POST", path, body, _headers(container, continuation))
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the query was answered with {answer.status}: {text[:300]!r}")
            continuation = answer.headers.get("x-ms-continuation")
            if continuation is None:
                return time.perf_counter() - begin_s
    finally:
        connection.close()


def _bare_items_per_s(directory: Path, size: int) -> float:
    command = [sys.executable, "-m", "bench.bare_scan", str(directory), str(size)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    return float(outcome.stdout)


def _numbers(size: int) -> range:
    return range(NUMBER_FIRST, NUMBER_FIRST + size)


def _errors(measured: Measured) -> str:
    return f", {measured.errors} ERRORS" if measured.errors else ""
