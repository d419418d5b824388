"""Foresight: how long `simulate` takes for 10 TB and 1,000,000 RU/s over a year, and `estimate` for the same workload.
In this process, by the processor's time, which other load on the machine affects little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from armillary.insight.planning.estimate import EstimateOptions, estimate
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.toml_tables import DAY_S, MONTH_S
from armillary.insight.planning.workload import Workload, read_workload
from armillary.insight.simulation.outcome import simulate
from armillary.insight.simulation.simulator import SimulationOptions
from bench.sections import Aim, Say, row

AIM_YEAR_S: Final = 60.0
AIM_ESTIMATE_S: Final = 0.1
YEAR, MINUTES, EXPIRING, ESTIMATE = (
    "simulate a year of 10 TB and 1,000,000 RU/s, by hours",
    "simulate 60 days of the same, by minutes",
    "simulate a year of it with expiry after 30 days",
    "estimate it",
)
KINDS: Final = (YEAR, MINUTES, EXPIRING, ESTIMATE)


@dataclass
class ForesightFigures:
    """Seconds of the processor, one for each round."""

    cpu_s: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def lines(self) -> Iterable[str]:
        yield ""
        yield "foresight: seconds of the processor"
        for kind in KINDS:
            yield row(kind, [f"{each:.3f}" for each in self.cpu_s[kind]])

    def aims(self) -> Iterable[Aim]:
        for kind in (YEAR, MINUTES, EXPIRING):
            yield Aim(f"{kind}: seconds", statistics.median(self.cpu_s[kind]), AIM_YEAR_S, True)
        yield Aim(f"{ESTIMATE}: seconds", statistics.median(self.cpu_s[ESTIMATE]), AIM_ESTIMATE_S, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ForesightFigures:
    figures = ForesightFigures()
    prices, year = own_prices(), SimulationOptions(horizon_s=12 * MONTH_S)
    kept, expiring = _workload(0), _workload(30)
    steps: dict[str, Callable[[], object]] = {
        YEAR: lambda: simulate(kept, prices, year),
        MINUTES: lambda: simulate(kept, prices, SimulationOptions(horizon_s=60 * DAY_S)),
        EXPIRING: lambda: simulate(expiring, prices, year),
        ESTIMATE: lambda: estimate(kept, prices, EstimateOptions(horizon_s=12 * MONTH_S)),
    }
    for turn in range(1 if is_quick else 3):
        for kind, work in steps.items():
            begun_s = time.process_time()
            work()
            figures.cpu_s[kind].append(time.process_time() - begun_s)
            say(f"{kind}, round {turn + 1}: {figures.cpu_s[kind][-1]:.3f} s")
    return figures


def _workload(ttl_days: int) -> Workload:
    """Skewed keys, so that keys become full and partitions hot, and a week with quiet days."""
    content = {
        "container": {"partition_key": ["/key"], "throughput": 1_000_000},
        "data": {
            "size": "5TB",
            "item_bytes": 1024,
            "terms": 10,
            "ttl_days": ttl_days,
            "keys": {"zipf": 0.99, "count": 1_000_000_000},
        },
        "operations": [
            {"kind": "create", "rate": 250},
            {"kind": "read", "rate": 600_000},
            {"kind": "query", "rate": 10_000, "filter": ["/key"], "rows": 10},
            {"kind": "query", "rate": 100, "filter": ["/other"], "rows": 10},
        ],
        "shape": {"weekly": [1, 1, 1, 1, 1, 0.3, 0.2], "daily": [0.4] * 8 + [1.0] * 16, "growth_per_month": 1.01},
    }
    return read_workload(content, str)
