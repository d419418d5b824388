"""The share that is refused, by formula and by the budget that refuses."""

from __future__ import annotations

from random import Random

import pytest

from armillary.insight.planning import partition_counts, refusals
from armillary.insight.planning.distributions import Zipf
from armillary.limits import GB
from armillary.partition.budget import HUNDREDTHS, Budget

BUDGET_RU = 1_000


@pytest.mark.parametrize(
    ("demand_ru", "charge_ru", "expected"),
    [
        (800, 10, 0.0005),
        (900, 10, 0.0079),
        (1_000, 10, 0.0399),
        (1_100, 10, 0.0996),
        (1_500, 10, 0.3333),
        (800, 100, 0.0499),
    ],
)
def test_refused_share(demand_ru: float, charge_ru: float, expected: float) -> None:
    found = refusals.refused_share(demand_ru, demand_ru * charge_ru, BUDGET_RU)
    assert found == pytest.approx(expected, abs=5e-5)


def refused_by_budget(demand_ru: float, charge_ru: float, seconds: int, random: Random) -> float:
    """Requests that arrive at random, against a real budget."""
    budget = Budget(0)
    budget.set_limit(BUDGET_RU * HUNDREDTHS)
    arrived = refused = second = 0
    at_s = 0.0
    while second < seconds:
        at_s += random.expovariate(demand_ru / charge_ru)
        if int(at_s) > second:
            second = int(at_s)
            budget.turn(second)
        arrived += 1
        if budget.spent < budget.ceiling:
            budget.spent += round(charge_ru * HUNDREDTHS)
        else:
            refused += 1
    return refused / arrived


@pytest.mark.parametrize(("demand_ru", "charge_ru"), [(1_000, 10), (1_100, 10), (1_500, 10), (800, 100)])
def test_the_formula_is_that_of_the_budget(demand_ru: float, charge_ru: float) -> None:
    found = refused_by_budget(demand_ru, charge_ru, 3_000, Random(f"{demand_ru} {charge_ru}"))
    formula = refusals.refused_share(demand_ru, demand_ru * charge_ru, BUDGET_RU)
    assert formula == pytest.approx(found, rel=0.1)


def test_extremes() -> None:
    assert refusals.refused_share(0.0, 0.0, 100) == 0.0
    assert refusals.refused_share(200.0, 0.0, 100) == 0.5
    assert refusals.refused_share(50.0, 0.0, 100) == 0.0
    assert refusals.refused_share(1e6, 1e7, 1.0) == pytest.approx(1.0, abs=1e-5)
    assert refusals.normal_above(0.0) == 0.5


def test_each_split_makes_the_share_of_a_hot_key_smaller() -> None:
    share = Zipf(1_000, 1.0).share(1)
    key_ru = share * 15_000
    assert key_ru == pytest.approx(2_004, rel=0.005)
    initial = partition_counts.created(40_000)
    before, after = (partition_counts.by_storage(initial, size * GB) for size in (300, 2_048))
    assert (before, after) == (7, 56)
    assert 40_000 / before == pytest.approx(5_714, rel=0.005)
    assert refusals.refused_at_least(key_ru, 40_000 / before) == 0.0
    refused = refusals.refused_at_least(key_ru, 40_000 / after)
    assert refused == pytest.approx(0.64, rel=0.01)
    assert refused * share == pytest.approx(0.086, rel=0.005)


def test_bursts() -> None:
    assert refusals.burst_seconds(1_000) == pytest.approx(150)
    assert refusals.burst_seconds(100) == pytest.approx(10.3, rel=0.005)
    assert refusals.burst_seconds(3_000) == 0.0


def test_retries() -> None:
    backlog = refusals.retry_backlog(1_200, 1_000)
    assert backlog.gives_up_after_s == pytest.approx(150)
    assert backlog.failed_share == pytest.approx(0.167, rel=0.005)
    assert refusals.retry_backlog(900, 1_000) == (None, 0.0)
