"""Formulas about distributions of keys and about samples, with worked examples."""

from __future__ import annotations

import math

import pytest

from armillary.insight.planning import distributions
from armillary.insight.planning.distributions import KeyShares, Zipf


def near(value: float) -> object:
    return pytest.approx(value, rel=0.005)


def test_zipf_of_a_thousand() -> None:
    zipf = Zipf(1_000, 1.0)
    assert zipf.share(1) == near(0.13359)
    assert zipf.top_share(10) == near(0.39129)
    assert zipf.effective_keys() == near(34.08)
    assert zipf.gini() == near(0.7338)


@pytest.mark.parametrize(
    ("zipf", "first", "effective", "gini"),
    [(Zipf(100_000, 1.1), 0.13473, 36.96, 0.9053), (Zipf(1_000_000, 0.99), 0.06497, 142.4, 0.8523)],
)
def test_zipf_of_many(zipf: Zipf, first: float, effective: float, gini: float) -> None:
    assert zipf.share(1) == near(first)
    assert zipf.effective_keys() == near(effective)
    assert zipf.gini() == near(gini)


@pytest.mark.parametrize("exponent", [-0.1, 0.0, 0.5, 0.99, 1.0, 1.1, 2.2])
def test_power_sums_beyond_the_first_thousand(exponent: float) -> None:
    exact = math.fsum(k**-exponent for k in range(1, 50_001))
    assert distributions.power_sum(50_000, exponent) == pytest.approx(exact, rel=1e-11)


def test_shares_of_zipf_are_those_of_its_keys() -> None:
    keys = KeyShares.of_zipf(1_000, 1.0)
    assert keys.named[0][0] == "k1"
    assert keys.largest == pytest.approx(Zipf(1_000, 1.0).share(1))
    assert math.fsum(share for _, share in keys.named) == pytest.approx(1.0)
    shares = [share for _, share in keys.named]
    assert distributions.effective_keys(shares) == pytest.approx(keys.effective_keys())
    assert distributions.gini(shares) == pytest.approx(keys.gini())
    cut = KeyShares.of_zipf(1_000, 1.0, heaviest=10)
    assert cut.rest_share == near(1 - 0.39129)
    assert cut.count == 1_000
    assert cut.top_share(10) == near(0.39129)


def test_shares_of_weights() -> None:
    keys = KeyShares.of_weights({"a": 1, "b": 1, "c": 1, "d": 7})
    assert keys.named[0] == ("d", 0.7)
    assert keys.effective_keys() == near(1.923)
    assert keys.gini() == near(0.45)
    assert KeyShares.of_weights({"a": 7, "b": 1, "c": 1, "d": 1}, heaviest=2).rest_share == pytest.approx(0.2)
    assert KeyShares.of_weights({"a": 7, "b": 1, "c": 1, "d": 1}, heaviest=2).effective_keys() == near(1.923)


def test_unevenness_of_four_weights() -> None:
    assert distributions.effective_keys([1, 1, 1, 7]) == near(1.923)
    assert distributions.gini([1, 1, 1, 7]) == near(0.45)
    assert distributions.kish([1, 1, 1, 7]) == near(1.923)
    assert distributions.top_share([1, 1, 1, 7], 2) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("seen", "rows", "low", "high"),
    [(228, 300, 0.7086, 0.8048), (7_600, 10_000, 0.7515, 0.7683), (0, 1_000, 0.0, 0.0038)],
)
def test_wilson_intervals(seen: int, rows: int, low: float, high: float) -> None:
    interval = distributions.wilson(seen / rows, rows)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_nothing_is_known_without_rows() -> None:
    assert distributions.wilson(0.0, 0) == (0.0, 1.0)
    assert distributions.unseen_share_max(0) == 1.0
    assert distributions.unseen_share_max(3_000) == pytest.approx(0.001)
    assert distributions.wilson(1.0, 10).high == 1.0


def test_distinct_values_of_the_whole() -> None:
    assert distributions.chao1(50, 10, 5) == 60
    assert distributions.chao1(50, 10, 0) == 95
    exponent = distributions.growth_exponent(6_000, 9_000)
    assert exponent == near(0.585)
    assert distributions.distinct_at(9_000, 100, exponent) == near(133_097)
    assert distributions.growth_exponent(100, 90) == 0.0
    assert distributions.growth_exponent(0, 0) == 0.0


def test_enough_values_for_partitions() -> None:
    assert [distributions.enough_values(count) for count in (1, 4, 8, 32, 100, 256)] == [1, 34, 117, 860, 3648, 11313]
    for partitions in (4, 8, 32, 100, 256):
        fullest = distributions.expected_fullest(partitions, distributions.enough_values(partitions))
        assert 1.49 < fullest <= 1.5
    assert distributions.expected_fullest(1, 5) == 1.0
