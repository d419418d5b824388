"""Advice on data sets whose right key is known: it is right or undecided, never wrong. Twenty on which the rules were
made, and four times further ones whose answers were decided before an advice was seen.
"""

from __future__ import annotations

import random

import pytest
from foresight.golden.blind_sets import BLIND_SETS, CapturedSet
from foresight.golden.data_sets import DATA_SETS, DataSet
from foresight.golden.fourth_sets import FOURTH_SETS
from foresight.golden.further_sets import FURTHER_SETS
from foresight.golden.second_sets import SECOND_SETS
from support.portions import first

from armillary.insight.advice.advice_content import advice_content
from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.advisor import Advice, advise
from armillary.insight.advice.candidates import CONCATENATED
from armillary.insight.advice.captured_load import finder, load_of_records
from armillary.insight.advice.reading.data_profile import Profile, Profiler
from armillary.insight.advice.request_load import Load
from armillary.insight.planning.prices import own_prices

ROWS = 2_000
by_name = pytest.mark.parametrize("data", DATA_SETS, ids=lambda data: data.name)


def profile_of(data: DataSet, rows: int, seed: int = 1, order: int | None = None) -> Profile:
    listed = list(data.rows(rows, seed))
    if order is not None:
        random.Random(order).shuffle(listed)
    profiler = Profiler()
    for row in listed:
        profiler.add(row)
    return profiler.profile()


def advice_on(data: DataSet, profile: Profile, *, has_load: bool = True) -> Advice:
    plan = Plan(size_bytes=data.size_bytes, growth_bytes_day=data.growth_bytes_day)
    load = Load(data.operations if has_load else (), "the test")
    if has_load and isinstance(data, CapturedSet):
        load = load_of_records(data.requests(random.Random(7)), origin="the capture", find=finder(profile))
    return advise(profile, load, plan)


def words(advice: Advice) -> dict[str, str]:
    return {each.key: each.word for each in advice.judged}


def told(advice: Advice) -> str:
    lines = []
    for each in advice.judged:
        scores = each.scores
        figures = f"T*={scores.required_ru} x{scores.surcharge:.2f} fan-out {scores.fan_out:.1f}"
        gates = [gate.text for gate in each.gates]
        lines.append(f"{each.key}: {each.word} {figures} W={scores.concentration} {scores.is_moving} {gates}")
    return "\n".join([f"best: {advice.best and advice.best.key}; undecided: {advice.undecided}", *lines])


def check(data: DataSet, advice: Advice, *, has_load: bool = True, must_decide: bool = True) -> None:
    found = words(advice)
    if advice.best is not None:
        # A sample that cannot exclude a full key may add /id as a level: the same queries find one partition.
        safe = {f"{key},/id" for key in data.right}
        assert {advice.best.key, _in_order(advice)} & (data.right | safe), told(advice)
    refused = data.impossible | data.hot if has_load else data.impossible
    for key in refused & found.keys():
        assert found[key] in ("impossible", "undecided"), told(advice)
    for key in (data.poor | data.breaking if has_load else data.poor) & found.keys():
        assert found[key] != "good", told(advice)
    for key in data.possible & found.keys():
        assert found[key] != "impossible", told(advice)
    warnings = advice_content(advice, own_prices(), "rows", [])["warnings"]
    for path in data.warned:
        assert any(path in warning for warning in warnings), warnings
    if has_load and must_decide and not data.may_hang:
        assert advice.is_decided, told(advice)


def _in_order(advice: Advice) -> str:
    """The parts of a concatenated key in alphabetical order: {day}-{deviceId} is as good as {deviceId}-{day}."""
    assert advice.best is not None
    parts = advice.best.key.split("-")
    return "-".join(sorted(parts)) if advice.best.scores.candidate.kind == CONCATENATED else advice.best.key


@by_name
def test_advice_is_right(data: DataSet) -> None:
    profile = profile_of(data, ROWS)
    check(data, advice_on(data, profile))
    check(data, advice_on(data, profile, has_load=False), has_load=False)


@pytest.mark.parametrize(
    "data",
    [*first(6, FURTHER_SETS), *first(5, BLIND_SETS), *SECOND_SETS, *first(8, FOURTH_SETS)],
    ids=lambda data: data.name,
)
def test_advice_on_further_sets_is_right(data: DataSet) -> None:
    profile = profile_of(data, ROWS)
    check(data, advice_on(data, profile))
    check(data, advice_on(data, profile, has_load=False), has_load=False)


@pytest.mark.parametrize("data", DATA_SETS[:4], ids=lambda data: data.name)
def test_the_order_of_rows_does_not_matter(data: DataSet) -> None:
    one = advice_on(data, profile_of(data, 1_200))
    other = advice_on(data, profile_of(data, 1_200, order=7))
    assert (one.best and one.best.key) == (other.best and other.best.key)
    assert words(one) == words(other)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [1_000, 5_000, 30_000])
@pytest.mark.parametrize(
    "data", [*DATA_SETS, *FURTHER_SETS, *BLIND_SETS, *SECOND_SETS, *FOURTH_SETS], ids=lambda data: data.name
)
def test_advice_is_right_for_any_sample(data: DataSet, rows: int, seed: int) -> None:
    # A thousand rows may leave open whether a value outgrows its partition; the report says how many would tell.
    check(data, advice_on(data, profile_of(data, rows, seed)), must_decide=rows >= ROWS)
