"""The cost of an idle server with default settings: time to start, memory, CPU."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import servers
from bench.load import cpu_seconds


@dataclass(frozen=True)
class Idle:
    start_median_s: float
    start_worst_s: float
    rss_mb: float
    cpu_percent: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def measure_idle(directory: Path, *, starts: int, seconds: float) -> Idle:
    """Start the server `starts` times on one data directory, new at first; observe the last one for `seconds`."""
    taken_s = []
    for turn in range(starts):
        begin_s = time.perf_counter()
        server = servers.start_armillary(directory)
        taken_s.append(time.perf_counter() - begin_s)
        if turn < starts - 1:
            server.stop()
    try:
        time.sleep(1)
        cpu_before_s = cpu_seconds(server.pid)
        time.sleep(seconds)
        cpu_s = cpu_seconds(server.pid) - cpu_before_s
        rss_mb = memory_mb(server.pid)
    finally:
        server.stop()
    return Idle(statistics.median(taken_s), max(taken_s), rss_mb, 100 * cpu_s / seconds)


def memory_mb(pid: int, which: str = "VmRSS") -> float:
    """Resident memory of a process, current or peak (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not tell the memory of the server")
