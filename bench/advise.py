"""Foresight: how long `advise` takes for a million rows of 1 KB with a workload of queries, and how much memory. The
command runs as a process of its own; the processor's time is affected little by other load on the machine.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from bench.sections import Aim, Say, row

ROWS, QUICK_ROWS, ITEM_BYTES = 1_000_000, 50_000, 1024
AIM_S, AIM_MB = 60.0, 300.0
_KB_IN_MB: Final = 1024
_TENANTS, _CUSTOMERS = 200, 200_000
WORKLOAD: Final = """
container = { partition_key = ["/id"] }
data = { item_bytes = 1024, keys = { uniform = 1000 } }
operations = [
    { kind = "create", rate = 100 },
    { kind = "read", rate = 500 },
    { kind = "query", rate = 60, filter = ["/tenantId", "/customerId"], rows = 10 },
    { kind = "query", rate = 30, filter = ["/tenantId"], rows = 20 },
    { kind = "query", rate = 10, filter = ["/email"], rows = 1 },
]
"""


@dataclass
class AdviseFigures:
    rows: int
    cpu_s: list[float] = field(default_factory=list)
    elapsed_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"advise: {self.rows:,} rows of 1 KB"
        yield row("seconds of the processor", [f"{each:.1f}" for each in self.cpu_s])
        yield row("seconds", [f"{each:.1f}" for each in self.elapsed_s])
        yield row("MB of memory at the most", [f"{each:.0f}" for each in self.peak_mb])

    def aims(self) -> Iterable[Aim]:
        scale = self.rows / ROWS
        yield Aim("advise: seconds of the processor", statistics.median(self.cpu_s), AIM_S * scale, True)
        yield Aim("advise: MB", statistics.median(self.peak_mb), AIM_MB, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> AdviseFigures:
    figures = AdviseFigures(QUICK_ROWS if is_quick else ROWS)
    source, workload = directory / "rows.jsonl", directory / "workload.toml"
    workload.write_text(WORKLOAD)
    with source.open("wb") as file:
        file.writelines(_rows(figures.rows))
    arguments = [str(source), "--workload", str(workload), "--size", "500GB", "--growth", "1GB/day"]
    for turn in range(1 if is_quick else 2):
        begun_s = time.monotonic()
        report = directory / "advice.json"
        used = _run([sys.executable, "-m", "armillary", "advise", *arguments, "--json"], report)
        best = orjson.loads(report.read_bytes())["best"]
        assert best == "/tenantId,/customerId", f"another advice than before: {best}"
        figures.elapsed_s.append(time.monotonic() - begun_s)
        figures.cpu_s.append(used.ru_utime + used.ru_stime)
        figures.peak_mb.append(used.ru_maxrss / _KB_IN_MB)
        say(f"advise, round {turn + 1}: {figures.cpu_s[-1]:.1f} s, {figures.peak_mb[-1]:.0f} MB")
    source.unlink()
    return figures


def _run(command: list[str], output: Path) -> Any:
    """What a process used of processor and memory."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    process = os.posix_spawn(command[0], command, dict(os.environ), file_actions=actions)
    _, status, used = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the command failed"
    return used


def _rows(count: int) -> Iterator[bytes]:
    """Orders of tenants, one of which is large."""
    source = random.Random(1)
    tenants = source.choices(range(_TENANTS), [(rank + 1) ** -1.2 for rank in range(_TENANTS)], k=count)
    for number, tenant in enumerate(tenants):
        minute = number * 400_000 // count
        day = f"2026-{1 + minute // 40_320:02}-{1 + minute // 1440 % 28:02}"
        item = {
            "id": f"o-{number:09}",
            "tenantId": f"tenant-{tenant:03}",
            "customerId": f"c-{source.randrange(_CUSTOMERS):06}",
            "country": source.choice(("de", "at", "ch")),
            "createdAt": f"{day}T{minute // 60 % 24:02}:{minute % 60:02}:00Z",
            "amount": round(source.random() * 1000, 2),
            "status": "open" if number % 7 else "done",
            "address": {"city": f"city{number % 997}", "zip": str(10_000 + number % 9000)},
            "lines": [{"sku": f"x{number % 13}", "n": 2}] * 3,
            "email": f"u{number % 300_000}@example.org",
            "text": "",
        }
        item["text"] = ("lorem ipsum dolor sit amet " * 40)[: max(0, ITEM_BYTES - len(orjson.dumps(item)))]
        yield orjson.dumps(item) + b"\n"
