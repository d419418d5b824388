"""Values that rise: a newcomer counts by its share of the newest writes, and values that replace each other do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.advisor import Advice, advise
from armillary.insight.advice.ranking import Judged
from armillary.insight.advice.reading.data_profile import Profiler
from armillary.insight.advice.request_load import Load, Operation
from armillary.limits import GB

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3_000
Name = Callable[[random.Random, float], str]


def newcomer(source: random.Random, share: float) -> str:
    """Seven tenths of the writes of the last tenth of the time."""
    return "new" if share > 0.9 and source.random() < 0.7 else f"t{source.randrange(300)}"


def one_of(values: int, source: random.Random, share: float) -> str:
    return f"t{source.randrange(values)}"


def advised(name: Name, *operations: Operation, size: float = 50 * GB, growth: float = 0.0) -> Advice:
    source, profiler = random.Random(4), Profiler()
    for number in range(ROWS):
        share = number / ROWS
        row: dict[str, Any] = {
            "id": f"{source.getrandbits(64):016x}",
            "tenantId": name(source, share),
            "createdAt": (BEGIN + timedelta(days=200 * share)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        profiler.add(row)
    plan = Plan(size_bytes=size, growth_bytes_day=growth)
    return advise(profiler.profile(), Load(operations, "the test"), plan)


def of(advice: Advice, key: str) -> Judged:
    return next(each for each in advice.judged if each.key == key)


QUERIES = Operation("query", 50, frozenset(("/tenantId",)), rows=10)


def test_the_day_on_which_a_newcomer_is_full_follows_its_newest_share() -> None:
    found = of(advised(newcomer, Operation("create", 50), QUERIES, growth=1 * GB), "/tenantId")
    # It has 7 % of 50 GB, and gets 0.7 GB a day.
    assert found.scores.days_to_limit == pytest.approx((20 - 3.5) / 0.7, rel=0.1)
    assert found.scores.largest_bytes.value == pytest.approx((3.5 + 0.7 * 730) * GB, rel=0.1)
    rising = found.scores.rising
    assert rising is not None and rising.low < 0.7 < rising.high and found.scores.largest_name == "new"
    assert found.word == "impossible" and "of the newest writes" in found.gates[0].text


def test_the_writes_of_now_go_to_the_newcomer() -> None:
    """No value has more than 7 % of the bytes, but one would need more than a partition has."""
    found = of(advised(newcomer, Operation("create", 3_000), QUERIES), "/tenantId")
    assert [gate.name for gate in found.gates] == ["G4"] and found.gates[0].is_broken
    # A fifth of that fits, on one partition that is much hotter than the others.
    assert of(advised(newcomer, Operation("create", 600), QUERIES), "/tenantId").word == "poor"


def test_a_hierarchical_key_spreads_the_newcomer_when_the_data_has_grown() -> None:
    advice = advised(newcomer, Operation("create", 300), QUERIES, growth=5 * GB)
    key = of(advice, "/tenantId,/id")
    assert key.word in ("good", "care") and key.scores.surcharge < 2.0
    # Its queries visit the partitions that it then has, instead of the one that it has today.
    assert key.scores.fan_out > 20


@pytest.mark.parametrize(
    "name",
    [
        lambda source, share: f"2026-{1 + int(share * 4)}",  # seasons
        lambda source, share: f"2026-{1 + int(share * 40):02}",  # weeks
        # versions: each is used by most for a while, old ones go on
        lambda source, share: f"v{max(0, int(share * 10) - (source.random() < 0.3) * source.randrange(1, 4))}",
    ],
    ids=["seasons", "weeks", "versions"],
)
def test_values_that_replace_each_other_do_not_rise(name: Name) -> None:
    advice = advised(name, Operation("create", 300), QUERIES, growth=5 * GB)
    assert all(each.scores.rising is None for each in advice.judged)
    assert of(advice, "/tenantId,/id").word == "poor"


def test_even_values_do_not_rise() -> None:
    for values in (3, 12, 200):
        advice = advised(partial(one_of, values), QUERIES, growth=1 * GB)
        assert all(each.scores.rising is None for each in advice.judged)
