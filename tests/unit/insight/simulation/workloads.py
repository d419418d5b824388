"""Workloads of the simulator's tests."""

from __future__ import annotations

from typing import Any

from armillary.insight.planning.workload import Workload, read_workload
from armillary.insight.simulation.simulator import SimulationOptions, Simulator

DAY_S = 86_400.0


def document(**changes: Any) -> dict[str, Any]:
    """1,000 creates and 5,000 reads a second on keys of Zipf(1,000,000; 1.0), from empty, with splits at once."""
    return {
        "container": {"partition_key": ["/key"], "throughput": 20_000},
        "data": {"item_bytes": 1024, "terms": 10, "keys": {"zipf": 1.0, "count": 1_000_000}},
        "operations": [{"kind": "create", "rate": 1_000}, {"kind": "read", "rate": 5_000}],
        "limits": {"split_time": "0s"},
        **changes,
    }


def workload(**changes: Any) -> Workload:
    return read_workload(document(**changes), str)


def run(days: float, step_s: float = 3600.0, options: dict[str, Any] | None = None, **changes: Any) -> Simulator:
    chosen = SimulationOptions(horizon_s=days * DAY_S, step_s=step_s, **(options or {}))
    simulator = Simulator(workload(**changes), chosen)
    simulator.run()
    return simulator


def reads(rate: float, keys: dict[str, Any] | None = None) -> dict[str, Any]:
    """Point reads of 1 RU each on data that does not grow."""
    return {
        "data": {"item_bytes": 1024, "keys": keys or {"uniform": 100_000_000}},
        "operations": [{"kind": "read", "rate": rate}],
    }
