"""The worked example: every figure of its table."""

from __future__ import annotations

from functools import cache

import pytest
from unit.insight.advice.orders_rows import ROWS, advice_on_orders, order, profile_of

from armillary.insight.advice import wording
from armillary.insight.advice.advice_content import advice_content
from armillary.insight.advice.advisor import Advice
from armillary.insight.advice.ranking import Judged
from armillary.insight.advice.request_load import Load
from armillary.insight.planning.prices import own_prices
from armillary.limits import GB


@cache
def advice() -> Advice:
    return advice_on_orders(profile_of([order(number) for number in range(ROWS)]))


def judged(key: str) -> Judged:
    return next(each for each in advice().judged if each.key == key)


TABLE = {
    "/customerId": (1000, 0.001, 1000, 0.0, 0.3, 0.01, 3.8, 2876, 388.6, 1.081, 4500, 8, "good"),
    "/id": (10000, 0.0001, 10000, 0.0, 0.03, 0.01, 7.3, 3751, 473.3, 1.009, 5500, 8, "good"),
    "/day": (100, 0.01, 100, 0.0, 3.0, 1.0, 8.0, 3926, 1110.8, 2.263, 12100, 6, "poor"),
    "/country": (4, 0.76, 1.67, 0.545, 228.0, 0.76, 5.9, 3401, 1463.3, 3.442, 12700, 6, "impossible"),
}


@pytest.mark.parametrize("key", TABLE)
def test_every_figure_of_the_table(key: str) -> None:
    distinct, top, effective, gini, largest, written, fan_out, total, hottest, fair, needed, count, word = TABLE[key]
    scores = judged(key).scores

    def near(value: float) -> object:
        return pytest.approx(value, rel=0.005, abs=1e-9)

    assert scores.distinct.value == distinct
    assert scores.top_share.value == near(top)
    assert scores.effective_keys.value == near(effective)
    assert scores.gini.value == near(gini)
    assert scores.largest_bytes.value / GB == near(largest)
    assert scores.concentration is not None and scores.concentration.value == near(written)
    assert scores.fan_out == near(fan_out)
    assert scores.judged_partitions == 8
    assert scores.loads.total_ru == near(total)
    assert scores.loads.hottest_ru == near(hottest)
    assert scores.surcharge == near(fair)
    assert (scores.required_ru, scores.partitions) == (needed, count)
    assert judged(key).word == word


def test_rows_lie_where_the_hash_says() -> None:
    laid = judged("/customerId").scores.laid
    assert [round(share * ROWS) for share in laid] == [1320, 1210, 1420, 1380, 1290, 1110, 1050, 1220]
    laid = judged("/country").scores.laid
    assert [round(share * ROWS) for share in laid] == [0, 1900, 0, 0, 500, 0, 0, 7600]


def test_the_verdict_comes_first_with_a_counter_example() -> None:
    found = advice()
    assert found.is_decided and found.best is judged("/customerId")
    assert [each.key for each in found.judged[:2]] == ["/customerId", "/id"]
    assert judged("/id").times_best == pytest.approx(1.22, rel=0.005)
    assert wording.headline(found) == (
        "Use /customerId. /country alone reaches 20 GB for de already (76 % of the bytes); "
        "/id makes 90 % of your queries visit every partition."
    )
    assert "/customerId stays good until one value has 6.7 % of the bytes" in wording.what_would_change(found)


def test_money() -> None:
    content = advice_content(advice(), own_prices(), "orders", [])
    paid = {each["key"]: each["monthly"]["throughput"] for each in content["candidates"]}
    assert paid == {"/customerId": 262.80, "/id": 321.20, "/day": 706.64, "/country": 741.68}


def test_reasons_have_a_number_and_at_most_three_are_given_each_way() -> None:
    for each in advice().judged:
        reasons = wording.reasons_of(each, advice())
        assert sum(reason.is_for for reason in reasons) <= 3
        assert sum(not reason.is_for for reason in reasons) <= 3
        assert all(any(letter.isdigit() for letter in reason.text) for reason in reasons)


def test_without_requests_it_is_undecided_and_says_what_would_do() -> None:
    found = advice_on_orders(profile_of([order(number) for number in range(2000)]), Load())
    assert not found.is_decided and found.best is None
    assert "--requests with 1,000 at least" in wording.headline(found)
    assert "/customerId if most queries name /customerId" in wording.conditions(found)


def test_a_sample_of_the_rows_gives_the_same_verdict() -> None:
    rows = [order(number) for number in range(ROWS)]
    sampled = advice_on_orders(profile_of(rows, capacity=4_000))
    assert sampled.best is not None and sampled.best.key == "/customerId"
    assert {each.key: each.word for each in sampled.judged if each.key in TABLE} == {
        key: figures[-1] for key, figures in TABLE.items()
    }
