"""A cluster with several logs in one process, from a seed, whose balancer places replicas and leaders while nodes die,
join, are drained and emptied: each log is linearizable, nothing that was acknowledged is lost, no two nodes acknowledge
the same row, and in the end each log has its replicas and nothing is left to move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from faults.cluster.spread_simulation import SpreadWorld, simulate_spread

from armillary.cluster.logs.log_replica import LogReplica
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.placement.draft import Draft
from armillary.cluster.placement.record import PlacementRecord
from armillary.storage.log.memory_log import MemoryLog

RUNS, RUNS_OF_A_DEFECT = 3, 20
REACHED = (
    *("carried", "copies", "copies broken", "replicas given up", "replicas of dead nodes given up"),
    *("hand-overs", "take-overs", "logs moved", "nodes emptied", "drains", "nodes joined", "nodes gone for long"),
    *("kills", "failovers of the log", "rows lost by failover", "rows trimmed", "append not answered"),
    *("follower reads", "strong reads", "writes refused", "create exists", "delete absent"),
)


def _removed_too_early() -> ExitStack:
    """A replica goes when another one was begun, not when it is whole."""

    async def may_leave(logs: NodeLogs, replica: LogReplica, reached: int) -> bool:
        return True

    async def withdraw(log: MemoryLog, node: str, applied: int) -> bool:
        log._server.replicas.pop(node, None)
        return True

    opened = ExitStack()
    opened.enter_context(patch.object(Draft, "good", Draft.kept))
    opened.enter_context(patch.object(NodeLogs, "_may_leave", may_leave))
    opened.enter_context(patch.object(MemoryLog, "withdraw", withdraw))
    return opened


def _record_not_followed() -> ExitStack:
    """A node carries what its directory has, also what was given up while it was away."""

    def logs_of(record: PlacementRecord, node: str, present: set[int]) -> set[int]:
        return {0} | present | {log for log, nodes in record.carried.items() if node in nodes}

    opened = ExitStack()
    opened.enter_context(patch.object(PlacementRecord, "logs_of", logs_of))
    return opened


DEFECTS: dict[str, Callable[[], ExitStack]] = {
    "a replica is removed too early": _removed_too_early,
    "the record is not followed": _record_not_followed,
}


def judged(world: SpreadWorld) -> Counter[str]:
    told = "\n".join(map(str, world.violations))
    assert not world.violations, f"seed {world.seed}:\n{told}"
    return world.counters


def test_nothing_is_lost_while_logs_move(seed: int) -> None:
    for number in range(RUNS):
        judged(simulate_spread(seed + number))


@pytest.mark.soak
def test_nothing_is_lost_while_logs_move_for_long(seed: int) -> None:
    reached: Counter[str] = Counter()
    for number in range(1_000):
        reached.update(judged(simulate_spread(seed + number, rounds=20)))
    assert not [what for what in REACHED if not reached[what]], dict(reached)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_noticed(defect: str, seed: int) -> None:
    for number in range(RUNS_OF_A_DEFECT):
        with DEFECTS[defect]():
            if simulate_spread(seed + number).violations:
                return
    raise AssertionError(f"{defect} was not noticed in {RUNS_OF_A_DEFECT} runs")


def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    first, second = simulate_spread(seed, rounds=6), simulate_spread(seed, rounds=6)
    assert first.counters == second.counters
    for one, other in zip(first.servers, second.servers, strict=True):
        assert one.calls == other.calls
        assert one.archive == other.archive
