"""Which logs new partitions are in."""

from __future__ import annotations

from collections import Counter

from armillary.cluster.placement.figures import PlacedLog
from armillary.cluster.placement.loads import logs_for


def logs(*loads: tuple[int, int, float]) -> list[PlacedLog]:
    """Of partitions, bytes and request units a second."""
    return [
        PlacedLog(number, "n0", (), units, size, partitions) for number, (partitions, size, units) in enumerate(loads)
    ]


def test_partitions_are_spread_over_empty_logs() -> None:
    assert logs_for(5, logs((0, 0, 0), (0, 0, 0), (0, 0, 0))) == [0, 1, 2, 0, 1]


def test_the_least_loaded_log_is_chosen() -> None:
    assert logs_for(1, logs((4, 10, 500), (4, 10, 100), (4, 10, 500))) == [1]
    assert logs_for(1, logs((4, 90, 500), (4, 20, 500), (4, 10, 500))) == [2]
    assert logs_for(1, logs((4, 0, 0), (3, 0, 0), (5, 0, 0)), planned=[1, 1]) == [0]


def test_a_container_is_spread_although_one_log_is_empty() -> None:
    chosen = Counter(logs_for(12, logs((100, 10**9, 1_000), (100, 10**9, 1_000), (0, 0, 0))))
    assert chosen[2] == 8, "twice its part, no more"
    assert chosen[0] == chosen[1] == 2
