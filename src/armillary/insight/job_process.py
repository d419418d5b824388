"""The process of one long computation that a server was asked for: `python -m armillary.insight.job_process`. The first
line of standard input is its task, as JSON; further lines are rows, if the task has any. Each line that it writes is
JSON: {"share"}, {"refused"} or, at the end, {"result"}.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from armillary import limits
from armillary.errors import Failure, bad_request
from armillary.insight.planning.estimate import INDEX_SHARE_CLOUD
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.workload import read_workload, refuse_files

try:
    import resource

    HAS_LIMITS = True
except ImportError:  # Windows
    HAS_LIMITS = False

_NICE: Final = 10
_SIMULATING: Final = 0.95  # of the work of a simulation; the rest is its report
_TOLD: Final = 0.02  # of the work, after which progress is told again
Progress = Callable[[float], None]
Computation = Callable[[dict[str, Any], Iterable[bytes], Progress], Any]


def _simulation(task: dict[str, Any], rows: Iterable[bytes], progress: Progress) -> Any:
    try:
        from armillary.insight.simulation.outcome import simulate
        from armillary.insight.simulation.simulator import SimulationOptions
        from armillary.insight.simulation.variations import compared, parse_variations
    except ImportError:
        raise bad_request("Simulations need numpy: install armillary[foresight] where the server runs.") from None
    is_cloud = task["isCloud"]
    index_share = INDEX_SHARE_CLOUD if is_cloud else 0.0
    options = SimulationOptions(
        task["horizonS"], is_cloud=is_cloud, index_share=index_share, is_dynamic=task["isDynamic"]
    )
    prices = own_prices()

    variations = parse_variations(task["vary"]) if task["vary"] else []
    if task["keepsTimelines"] and len(variations) > limits.JOB_TIMELINES_MAX:
        raise bad_request(
            f"'timelines' of {len(variations)} runs would be too large; up to {limits.JOB_TIMELINES_MAX} are answered."
        )
    defaults = PartitionLimits.from_json(task["limits"])
    done = 0

    def run(document: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        nonlocal done
        workload = read_workload(document, refuse_files, task["seed"] if seed is None else seed, defaults)
        found = simulate(
            workload, prices, options, lambda share: progress((done + _SIMULATING * share) / max(1, len(variations)))
        )
        done += 1
        return found

    if not variations:
        return run(task["workload"])
    return compared(task["workload"], variations, run, keeps_timelines=task["keepsTimelines"])


def _advice(task: dict[str, Any], rows: Iterable[bytes], progress: Progress) -> Any:
    try:
        from armillary.insight.advice.advice_task import advice_of_task
        from armillary.insight.advice.reading.value_counts import require_sketches
    except ImportError:
        raise bad_request(
            "Advice needs numpy and datasketches: install armillary[foresight] where the server runs."
        ) from None
    require_sketches()
    return advice_of_task(task, rows, progress)


_COMPUTATIONS: Final[dict[str, Computation]] = {"simulation": _simulation, "advice": _advice}


def main() -> None:
    _limit_itself()
    task = orjson.loads(sys.stdin.buffer.readline())
    rows = (line for line in sys.stdin.buffer if not line.isspace())
    told = 0.0

    def progress(share: float) -> None:
        nonlocal told
        if share >= told + _TOLD:
            told = share
            _say({"share": round(share, 3)})

    try:
        _say({"result": _COMPUTATIONS[task["kind"]](task, rows, progress)})
    except Failure as failure:
        _say({"refused": failure.message})
    except MemoryError:
        _say({"refused": f"It needs more than the {limits.JOB_MEMORY_BYTES >> 20} MB that a computation may have."})


def _limit_itself() -> None:
    """Less priority than the server, and a limit of memory. macOS does not grant the latter, Windows has neither."""
    if not HAS_LIMITS:
        return
    os.nice(_NICE)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limits.JOB_MEMORY_BYTES, limits.JOB_MEMORY_BYTES))
    except (OSError, ValueError):
        if sys.platform == "linux":
            raise


def _say(content: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(content) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
