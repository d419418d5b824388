"""The parts of the simulator: refused shares, keys by partition, cuts, budgets, the course of load."""

from __future__ import annotations

import numpy as np
import pytest
from unit.insight.simulation.workloads import DAY_S, document, workload

from armillary.errors import Failure
from armillary.insight.planning import refusals
from armillary.insight.planning.placement import PlacedKeys
from armillary.insight.planning.workload import LoadShape, Spike, read_workload
from armillary.insight.simulation.budgets import BudgetState, normal_above, refused_deviations, refused_shares
from armillary.insight.simulation.key_space import STRETCH, KeySpace
from armillary.insight.simulation.load_course import LoadCourse, default_step_s, step_count
from armillary.insight.simulation.range_map import cut_of

BOUNDS = np.array([0.0, 0.1, 0.5, 0.75, 1.0])


def test_refused_shares_are_those_of_the_formula() -> None:
    z = np.linspace(-6.0, 6.0, 2_001)
    exact = np.array([refusals.normal_above(each) for each in z.tolist()])
    assert np.abs(normal_above(z) - exact).max() < 2e-7
    demand = np.array([0.0, 10.0, 800.0, 900.0, 1_000.0, 1_100.0, 1_500.0, 50_000.0])
    found = refused_shares(demand, demand * 10.0, np.full(8, 1_000.0))
    expected = [refusals.refused_share(each, each * 10.0, 1_000.0) for each in demand.tolist()]
    assert found == pytest.approx(expected, abs=2e-6)


def test_what_one_second_refuses_differs_from_the_mean_by_its_deviation() -> None:
    demand = np.array([700.0, 900.0, 1_000.0, 1_500.0, 50_000.0])
    found = refused_deviations(demand, demand * 10.0, 1_000.0)
    for mean, deviation in zip(demand.tolist(), found.tolist(), strict=True):
        units = np.linspace(mean - 10 * (10 * mean) ** 0.5, mean + 10 * (10 * mean) ** 0.5, 40_001)
        weights = np.exp(-0.5 * (units - mean) ** 2 / (10 * mean))
        beyond = np.maximum(units - 1_000.0, 0.0)
        mean_beyond = np.average(beyond, weights=weights)
        spread = np.average((beyond - mean_beyond) ** 2, weights=weights) ** 0.5
        assert deviation == pytest.approx(spread / mean, rel=1e-3, abs=1e-5)  # that of the polynomial


def test_keys_by_partition_are_those_of_the_hash() -> None:
    known = workload()
    space, shares = KeySpace(known), known.data.keys.shares
    assert len(space.places) == 10_000
    for partitions in (1, 4, 7):
        found = space.by_partition(space.shares(shares), shares.rest_share, np.linspace(0, 1, partitions + 1))
        assert found == pytest.approx(PlacedKeys.of(shares).on_even(partitions))


def few_keys(paths: list[str], weights: dict[str, float]) -> KeySpace:
    content = document(container={"partition_key": paths, "throughput": 400})
    content["data"]["keys"] = {"explicit": weights}
    return KeySpace(read_workload(content, str))


def test_cuts_at_the_middle_of_the_bytes() -> None:
    space = few_keys(["/a"], {"a": 1.0, "b": 1.0, "c": 1.0})
    first, second, third = space.places.tolist()
    nothing = np.zeros(3)
    assert cut_of(space, nothing, 100.0, 0.0, 1.0) == pytest.approx(0.5)
    assert cut_of(space, nothing, 0.0, 0.0, 1.0) is None
    assert cut_of(space, np.array([1.0, 1.0, 2.0]), 0.0, 0.0, 1.0) == third
    assert cut_of(space, np.array([3.0, 1.0, 1.0]), 0.0, 0.0, 1.0) == second
    assert cut_of(space, np.array([0.0, 5.0, 0.0]), 0.0, 0.0, 1.0) is None, "one key alone is not cut"
    assert cut_of(space, np.array([1.0, 1.0, 1.0]), 0.0, second, third) is None
    beside = cut_of(space, np.array([100.0, 0.0, 0.0]), 1.0, first, 1.0)
    assert beside is not None
    assert 0.0 < beside - first < 1e-9


def test_a_value_of_the_first_level_is_cut_inside() -> None:
    space = few_keys(["/a", "/b"], {"a": 1.0, "b": 1.0})
    place = float(space.places[0])
    sizes = np.array([100.0, 1.0])
    cut = cut_of(space, sizes, 0.0, 0.0, 1.0)
    assert cut is not None
    assert place < cut < place + STRETCH
    halves = space.by_partition(sizes, 0.0, np.array([0.0, cut, 1.0]))
    assert halves == pytest.approx([50.5, 50.5], rel=0.01)
    again = cut_of(space, sizes, 0.0, cut, 1.0)
    assert again is not None
    assert space.by_partition(sizes, 0.0, np.array([0.0, cut, again, 1.0])) == pytest.approx(
        [50.5, 25.25, 25.25], rel=0.01
    )
    even = cut_of(space, np.array([50.0, 50.0]), 0.0, 0.0, 1.0)
    assert even in (space.places[1], pytest.approx(place + STRETCH)), "between values where that is even enough"


def test_bursts() -> None:
    """After 300 s without load a partition of 1,000 RU/s has 3,000 for 150 s, one of 100 RU/s for 10.3 s."""
    for budget_ru, seconds in ((1_000.0, 150.0), (100.0, 10.34)):
        state = BudgetState(1, "none", has_burst=True)
        idle, ones = np.zeros(1), np.ones(400)
        state.keep(state.serve(idle, idle, budget_ru, ones, 1.0), 300, idle, budget_ru, ones, 1.0)
        served = state.serve(np.array([3_000.0]), np.zeros(1) + 1e-6, budget_ru, ones, 1.0)
        free = float((1.0 - served.refused[0] - budget_ru / 3_000.0).sum() / (1.0 - budget_ru / 3_000.0))
        assert free == pytest.approx(seconds, rel=0.005)


def test_retries_wait_and_then_fail() -> None:
    """1,200 RU/s on 1,000: the wait is 30 s after 150 s; from then on 16.7 % fail."""
    state, ones = BudgetState(1, "sdk", has_burst=False), np.ones(300)
    served = state.serve(np.array([1_200.0]), np.array([12_000.0]), 1_000.0, ones, 1.0)
    assert served.wait_s[0, 149] == pytest.approx(30.0)
    assert served.wait_s[0, 148] < 30.0
    assert served.failed[0, :150].max() == pytest.approx(0.0)
    assert served.failed[0, -1] == pytest.approx(1 / 6)
    state.keep(served, 100, np.array([1_200.0]), 1_000.0, ones, 1.0)
    assert state.backlog_ru[0] == pytest.approx(20_000.0)
    calm = state.serve(np.array([500.0]), np.array([5_000.0]), 1_000.0, ones, 1.0)
    assert calm.wait_s[0, 39] == pytest.approx(0.0)
    endless = BudgetState(1, "unlimited", has_burst=False)
    assert endless.serve(np.array([1_200.0]), np.array([12_000.0]), 1_000.0, ones, 1.0).wait_s[0, -1] > 59


def test_partitions_that_divide_and_join() -> None:
    state = BudgetState(2, "sdk", has_burst=False)
    state.backlog_ru[:] = [10.0, 20.0]
    state.divide(0)
    assert state.backlog_ru.tolist() == [5.0, 5.0, 20.0]
    state.join(1)
    assert state.backlog_ru.tolist() == [5.0, 25.0]


def test_the_course_of_load() -> None:
    shape = LoadShape(
        weekly=(1, 1, 1, 1, 1, 0.5, 0.5),
        daily=(0.5,) * 12 + (1.0,) * 12,
        spikes=(Spike(DAY_S, 2.0, 3.0, None), Spike(2 * DAY_S, 1.5, 5.0, "k1")),
    )
    course = LoadCourse(shape, 3600.0, 24 * 7)
    assert course.factors[[0, 12, 24, 26, 5 * 24, 5 * 24 + 12]] == pytest.approx([0.5, 1.0, 1.5, 0.5, 0.25, 0.5])
    [spike] = course.spikes
    assert (spike.first, spike.end) == (48, 50)
    assert spike.extra == pytest.approx(3.0)
    assert course.keyed_at(47) == course.keyed_at(50) == []
    assert [course.next_change(step) for step in (0, 48, 50)] == [48, 50, None]
    long = LoadCourse(shape, DAY_S, 7)
    assert long.factors[0] == pytest.approx(0.75), "a step has the mean of its hours"
    grown = LoadCourse(LoadShape(growth_per_month=2.0), 3600.0, 731)
    assert grown.factors[730] == pytest.approx(2.0)


def test_steps() -> None:
    assert [default_step_s(days * DAY_S) for days in (1, 1.1, 92, 93)] == [1.0, 60.0, 60.0, 3600.0]
    assert step_count(DAY_S, 3600.0) == 24
    with pytest.raises(Failure, match=r"365\.0 days in steps of 1 s are 31,536,000 steps; at most 200,000"):
        step_count(365 * DAY_S, 1.0)
