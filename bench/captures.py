"""Captures of requests: what recording costs. Three servers of one revision answer the same requests in turns: one with
a capture of their container, two without. What counts is the processor time of a server, over all its threads and the
whole time, so that compressing and writing the lines is part of it. What the two without a capture differ by is noise.

What a server without captures pays is the test of one attribute a request: `--compare REV` shows it beside an earlier
revision.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import servers
from bench.compare import CREATE, QUERY, READ, Contestant, thread_cpu_ns
from bench.protocol import DATABASE
from bench.sections import Aim, Say, row

AIM_RATIO: Final = 1.10  # of point reads
_WRITTEN_S: Final = 1.5
_KEY: Final = "b2YgdGhlIGJlbmNobWFyayBvZiBjYXB0dXJlcw=="
OFF, AGAIN, ON = "off", "off again", "on"
WORKLOADS: Final = (READ, CREATE, QUERY)


@dataclass
class CaptureFigures:
    """Processor microseconds of each server for each request."""

    cpu_us: dict[str, dict[str, float]] = field(default_factory=dict)  # by workload and server

    def lines(self) -> Iterable[str]:
        yield ""
        yield "captures: processor time of the server for each request, µs; on over the mean of both off; noise"
        for workload, found in self.cpu_us.items():
            cells = [f"{found[each]:.1f}" for each in (OFF, AGAIN, ON)]
            noise = abs(found[AGAIN] / found[OFF] - 1)
            yield row(workload, [*cells, f"{self._ratio(workload):.3f}", f"± {noise:.3f}"])

    def _ratio(self, workload: str) -> float:
        found = self.cpu_us[workload]
        return 2 * found[ON] / (found[OFF] + found[AGAIN])

    def aims(self) -> Iterable[Aim]:
        yield Aim("captured point reads: processor time over that of others", self._ratio(READ), AIM_RATIO, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> CaptureFigures:
    figures = CaptureFigures()
    with ExitStack() as opened:
        tried: dict[str, tuple[int, Contestant]] = {}
        for name in (OFF, ON, AGAIN):
            server = servers.start_armillary(directory / name.replace(" ", "-"), "relaxed", _KEY)
            opened.callback(server.stop)
            contestant = Contestant(server)
            opened.callback(contestant.close)
            tried[name] = (server.pid, contestant)
            if name is ON:
                for container in dict.fromkeys(map(contestant.container_of, WORKLOADS)):
                    _start(server.port, container)
        for workload in WORKLOADS:
            figures.cpu_us[workload] = _contend(tried, workload, 15 if is_quick else 60)
            say(f"captures, {workload}")
    return figures


def _contend(tried: dict[str, tuple[int, Contestant]], workload: str, seconds: float) -> dict[str, float]:
    for _, contestant in tried.values():
        contestant.turn(workload)
    before = {name: _cpu_us(pid) for name, (pid, _) in tried.items()}
    end_s = time.monotonic() + seconds
    rounds, names = 0, list(tried)
    while time.monotonic() < end_s:
        for name in names[rounds % 3 :] + names[: rounds % 3]:
            tried[name][1].turn(workload)
        rounds += 1
    time.sleep(_WRITTEN_S)  # so that what was recorded last is written too
    count = rounds * Contestant.count_of(workload)
    return {name: (_cpu_us(pid) - before[name]) / count for name, (pid, _) in tried.items()}


def _cpu_us(pid: int) -> float:
    return sum(thread_cpu_ns(pid).values()) / 1e3


def _start(port: int, container: str) -> None:
    """Begin a capture."""
    url = f"http://127.0.0.1:{port}/_armillary/databases/{DATABASE}/containers/{container}/captures"
    headers = {"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers, method="POST"), timeout=30) as answer:
        if answer.status != 201:
            raise SystemExit(f"the capture does not begin: {answer.read()!r}")
