"""The Gremlin API: reading a vertex by id, compared with a server that only decodes and encodes messages, and
traversals over a large skewed graph: two hops from some vertices and from all, with the storage reads that they need,
and a long walk that stops early. All of it is compared with TinkerPop's Gremlin Server on TinkerGraph, in memory, if
Maven can fetch it.

`python -m bench.gremlin`, or `make bench ARGS="--only gremlin"`. The servers take turns; ratios are taken per round.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import gremlin_graph as graph
from bench import gremlin_wire as wire
from bench import servers
from bench.idle import memory_mb
from bench.load import cpu_seconds
from bench.sections import Aim, Say, Section, row
from bench.servers import ROOT, Server, Unavailable

ARMILLARY, ECHO, TINKERPOP = "armillary", "bare websocket", "gremlin server"
POINT: Final = "V by id, 16 connections, requests/s"
POINT_BOUND: Final = "V by id in a binding, 16 connections, requests/s"
CONNECTIONS: Final = 16
DISTINCT: Final = 100  # scripts: every server caches some compiled ones
SOME: Final = 50  # vertices that two hops start from
TIMEOUT_MS: Final = 600_000
WALK: Final = "g.V('v0','v1','v2').repeat(out()).times(6).limit(10).id()"
WHOLE: Final = (
    "g.V().out().out().dedup().count()",
    "g.V().out().out().count()",
    "g.V().groupCount().by(outE().count()).unfold().count()",
    "g.E().count()",
)


@dataclass(frozen=True)
class Plan:
    seconds: float  # of one measurement
    rounds: int
    vertices: int
    edges: int


FULL = Plan(seconds=3, rounds=5, vertices=100_000, edges=1_000_000)
QUICK = Plan(seconds=1, rounds=3, vertices=10_000, edges=100_000)


@dataclass
class Walked:
    """One traversal on one server."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None
    edges: int = 0  # read from storage
    visits: int = 0  # to partitions: reads times partitions


@dataclass
class Figures:
    vertices: int
    edges: int
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # by contest and contestant
    # CPU time of the server for each request: other load on the machine affects it less than rates.
    cpu_us: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    walks: dict[str, dict[str, Walked]] = field(default_factory=dict)  # by script and contestant
    skipped: list[str] = field(default_factory=list)
    walk_grown_mb: float = 0.0

    def ratio(self, contest: str, over: str, under: str) -> float | None:
        """The median of the ratios of each round."""
        table = self.rates.get(contest, {})
        return _median_ratio(table.get(over, []), table.get(under, []))

    def cpu_ratio(self, contest: str, over: str, under: str) -> float | None:
        """The same by CPU time."""
        table = self.cpu_us.get(contest, {})
        return _median_ratio(table.get(under, []), table.get(over, []))

    def lines(self) -> Iterator[str]:
        yield ""
        yield f"Gremlin (medians of the rounds; {self.vertices:,} vertices, {self.edges:,} edges, four partitions)"
        yield "  Columns: rate; processor time of the server for each, µs"
        yield from [f"Skipped: {reason}." for reason in self.skipped]
        for contest, table in self.rates.items():
            yield f"  {contest}"
            for name, rates in table.items():
                cells = [statistics.median(rates), statistics.median(self.cpu_us[contest][name])]
                yield row(f"  {name}", [f"{each:,.0f}" for each in cells])
            for other in [name for name in table if name != ARMILLARY]:
                ratios = [self.ratio(contest, ARMILLARY, other), self.cpu_ratio(contest, ARMILLARY, other)]
                yield row(f"    {ARMILLARY} / {other}", ["-" if each is None else f"{each:.2f}" for each in ratios])
        for script, walks in self.walks.items():
            yield f"  {script if len(script) < 100 else script[:97] + '...'}"
            for name, walked in walks.items():
                seconds = statistics.median(walked.seconds)
                told = f", {walked.edges:,} edges in {walked.visits:,} visits of partitions" if walked.visits else ""
                each = f", {seconds / walked.edges * 1e6:.1f} µs an edge" if walked.edges else ""
                yield f"    {name}: {seconds * 1000:,.1f} ms{told}{each}; {walked.result}"
        yield f"  Memory that the walk of six steps added: {self.walk_grown_mb:.0f} MB."

    def aims(self) -> Iterable[Aim]:
        yield Aim(f"{POINT.rpartition(',')[0]} / {ECHO}", self.ratio(POINT, ARMILLARY, ECHO), 0.4)
        yield Aim("the same by processor time", self.cpu_ratio(POINT, ARMILLARY, ECHO), 0.4)
        yield Aim("memory of repeat(out()).times(6).limit(10), MB", self.walk_grown_mb, 50, is_most=True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> Section:
    plan = QUICK if is_quick else FULL
    figures = Figures(plan.vertices, plan.edges)
    begun_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bench.gremlin_graph", str(directory / "store"), str(plan.vertices), str(plan.edges)],
        cwd=ROOT,
        check=True,
    )
    say(f"graph: {plan.vertices + plan.edges:,} elements loaded in {time.monotonic() - begun_s:.0f} s")
    with ExitStack() as opened:
        mine = servers.start_gremlin(directory / "store")
        opened.callback(mine.stop)
        echo = servers.start_gremlin_echo()
        opened.callback(echo.stop)
        contestants = {ARMILLARY: mine}
        try:
            path = directory / "graph.json"
            graph.write_graphson(path, plan.vertices, plan.edges)
            contestants[TINKERPOP] = servers.start_gremlin_server(path)
            opened.callback(contestants[TINKERPOP].stop)
            opened.callback(contestants[TINKERPOP].process.send_signal, signal.SIGCONT)
            contestants[TINKERPOP].process.send_signal(signal.SIGSTOP)
        except Unavailable as reason:
            figures.skipped.append(str(reason))
            say(f"skipped: {reason}")
        _walk_early(figures, contestants, say)
        for _ in range(plan.rounds):
            _points(figures, {ECHO: echo, **contestants}, plan, say)
        for _ in range(2):
            _traverse(figures, contestants, say)
    return figures


def _median_ratio(over: list[float], under: list[float]) -> float | None:
    ratios = [above / below for above, below in zip(over, under, strict=False) if below]
    return statistics.median(ratios) if ratios else None


@contextmanager
def _awake(name: str, server: Server) -> Iterator[None]:
    """Suspends the Java server between its turns: it would go on compiling and collecting garbage in the turns of
    others."""
    if name == TINKERPOP:
        server.process.send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        if name == TINKERPOP:
            server.process.send_signal(signal.SIGSTOP)


def _points(figures: Figures, contestants: dict[str, Server], plan: Plan, say: Say) -> None:
    numbers = range(0, plan.vertices, plan.vertices // DISTINCT)
    for contest in (POINT, POINT_BOUND):
        for name, server in contestants.items():
            messages = [_point(number, is_bound=contest == POINT_BOUND, name=name) for number in numbers]
            with _awake(name, server):
                cpu_s = cpu_seconds(server.pid)
                per_s = wire.rate(server.port, messages, connections=CONNECTIONS, seconds=plan.seconds)
                cpu_s = cpu_seconds(server.pid) - cpu_s
            figures.rates.setdefault(contest, {}).setdefault(name, []).append(per_s)
            cpu_us = cpu_s / max(per_s * plan.seconds, 1) * 1e6
            figures.cpu_us.setdefault(contest, {}).setdefault(name, []).append(cpu_us)
            say(f"{contest}: {name} {per_s:,.0f}/s, {cpu_us:,.0f} µs")


def _point(number: int, *, is_bound: bool, name: str) -> bytes:
    id = [graph.region(number), f"v{number}"] if name != TINKERPOP else [f"v{number}"]
    return wire.request("g.V(x)", {"x": id}) if is_bound else wire.request(f"g.V({id!r})")


def _traverse(figures: Figures, contestants: dict[str, Server], say: Say) -> None:
    starts = ",".join(f"'v{number}'" for number in range(0, figures.vertices, figures.vertices // SOME))
    scripts = [f"g.V({starts}).out().out().dedup().count()", *WHOLE]
    for script in scripts:
        for name, server in contestants.items():
            walked = figures.walks.setdefault(script, {}).setdefault(name, Walked())
            with _awake(name, server):
                begun_s = time.perf_counter()
                found = wire.ask(server.port, script, evaluationTimeout=TIMEOUT_MS)
                walked.seconds.append(time.perf_counter() - begun_s)
            walked.result = found[0] if len(found) == 1 else found[:5]
            if name == ARMILLARY and not walked.visits:
                walked.edges, walked.visits = _readings(server, script)
            say(f"{script[:60]}: {name} {walked.seconds[-1] * 1000:,.1f} ms")


def _readings(server: Server, script: str) -> tuple[int, int]:
    """Edges read from storage, and visits to partitions, from the profile of the traversal."""
    [profile] = wire.ask(server.port, f"{script}.executionProfile()", evaluationTimeout=TIMEOUT_MS)
    edges = visits = 0
    for metric in profile["metrics"]:
        operations = metric.get("storeOps", [])
        visits += sum(each["fanoutFactor"] for each in operations)
        if metric["name"] != "GetVertices":
            edges += sum(each["count"] for each in operations)
    return edges, visits


def _walk_early(figures: Figures, contestants: dict[str, Server], say: Say) -> None:
    for name, server in contestants.items():
        before_mb = memory_mb(server.pid)
        walked = figures.walks.setdefault(WALK, {}).setdefault(name, Walked())
        with _awake(name, server):
            for _ in range(3):
                begun_s = time.perf_counter()
                found = wire.ask(server.port, WALK, evaluationTimeout=TIMEOUT_MS)
                walked.seconds.append(time.perf_counter() - begun_s)
        walked.result = f"{len(found)} vertices"
        if name == ARMILLARY:
            figures.walk_grown_mb = memory_mb(server.pid, "VmHWM") - before_mb
            walked.edges, walked.visits = _readings(server, WALK)
        say(f"{WALK}: {name} {walked.seconds[-1] * 1000:,.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.gremlin", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 vertices and 100,000 edges")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="armillary-bench-") as name:
        found = measure(Path(name), is_quick=options.quick, say=lambda text: print(text, file=sys.stderr, flush=True))
    print("\n".join(found.lines()))
    print("\n".join(aim.line() for aim in found.aims()))
    out = ROOT / "bench/out"
    out.mkdir(exist_ok=True)
    (out / f"gremlin-{time.strftime('%Y%m%d-%H%M%S')}.json").write_text(json.dumps(found.to_json(), indent=1) + "\n")


if __name__ == "__main__":
    main()
