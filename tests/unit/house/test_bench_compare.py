"""The comparison of two revisions: which differences it reports, and which it takes for noise."""

from __future__ import annotations

import random

import pytest
from bench.compare import AGAIN, BASE, NEW, READ, Comparison, Turn


def _comparison(slowdown: float, noise: float, rounds: int = 200) -> Comparison:
    dice = random.Random(7)
    rows = []
    for _ in range(rounds):
        level = dice.uniform(100, 300)  # the machine's other work falls on all turns of a round

        def turn(factor: float = 1.0, level: float = level) -> Turn:
            us = level * factor * dice.gauss(1, noise)
            return Turn(us, us)

        rows.append({BASE: turn(), NEW: turn(slowdown), AGAIN: turn()})
    return Comparison("abc1234", {READ: rows})


@pytest.mark.parametrize(
    ("slowdown", "noise", "verdict"),
    [
        (1.0, 0.05, "no difference"),
        (1.05, 0.05, "slower"),
        (0.95, 0.05, "faster"),
        (1.02, 0.2, "no difference"),  # lost in noise
        (1.3, 0.2, "slower"),
    ],
)
def test_a_difference_within_the_spread_counts_as_none(slowdown: float, noise: float, verdict: str) -> None:
    comparison = _comparison(slowdown, noise)
    ratio = comparison.ratio(READ, lambda turn: turn.cpu_us)
    assert ratio.verdict.endswith(verdict)
    assert abs(ratio.median - slowdown) <= ratio.spread
    assert verdict in "\n".join(comparison.lines())


def test_what_two_processes_of_one_revision_differ_by_is_noise() -> None:
    rows = [{BASE: Turn(100, 100), NEW: Turn(105, 105), AGAIN: Turn(110, 110)} for _ in range(50)]
    rows += [{BASE: Turn(100, 100), NEW: Turn(112, 112), AGAIN: Turn(110, 110)} for _ in range(50)]
    ratio = Comparison("abc1234", {READ: rows}).ratio(READ, lambda turn: turn.cpu_us)
    assert ratio.spread == pytest.approx(0.1)
    assert ratio.verdict == "no difference"
