"""Loads by partition and the throughput that they need: the worked example of orders under four keys."""

from __future__ import annotations

import pytest
from unit.insight.planning.orders import QUERIES, SIZE_BYTES, demands, shares

from armillary.insight.planning import needs, visits
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.needs import KeyedDemand, PartitionLoads
from armillary.insight.planning.placement import PlacedKeys, even_bounds
from armillary.limits import GB


def near(value: float) -> object:
    return pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("key", "distinct", "largest", "effective", "gini", "largest_gb"),
    [
        ("/customerId", 1_000, 0.001, 1_000, 0.0, 0.3),
        ("/id", 10_000, 0.0001, 10_000, 0.0, 0.03),
        ("/day", 100, 0.01, 100, 0.0, 3),
        ("/country", 4, 0.76, 1.67, 0.545, 228),
    ],
)
def test_shares_of_orders(
    key: str, distinct: int, largest: float, effective: float, gini: float, largest_gb: float
) -> None:
    keys = shares(key)
    assert keys.count == distinct
    assert keys.largest == near(largest)
    assert keys.effective_keys() == near(effective)
    assert keys.gini() == pytest.approx(gini, abs=1e-3)
    assert keys.largest * SIZE_BYTES / GB == near(largest_gb)


@pytest.mark.parametrize(
    ("key", "fan_out", "total_ru", "hottest_ru", "of_fair", "throughput_ru", "partitions"),
    [
        ("/customerId", 3.8, 2_876, 388.6, 1.081, 4_500, 8),
        ("/id", 7.3, 3_751, 473.3, 1.009, 5_500, 8),
        ("/day", 8.0, 3_926, 1_110.8, 2.263, 12_100, 6),
        ("/country", 5.9, 3_401, 1_463.3, 3.442, 12_700, 6),
    ],
)
def test_load_of_orders(
    key: str,
    fan_out: float,
    total_ru: float,
    hottest_ru: float,
    of_fair: float,
    throughput_ru: int,
    partitions: int,
) -> None:
    load = PartitionLoads.of(demands(key), 8)
    assert load.total_ru == near(total_ru)
    assert load.hottest_ru == near(hottest_ru)
    assert load.hottest_of_fair == near(of_fair)
    assert visits.fan_out([(rate, 1 if path == key else 8) for rate, path, _ in QUERIES]) == near(fan_out)
    need = needs.required_throughput(demands(key), SIZE_BYTES)
    assert need is not None
    assert (need.throughput_ru, need.partitions) == (throughput_ru, partitions)
    assert need.create_with_ru == throughput_ru
    assert need.surcharge == pytest.approx(throughput_ru * 0.7 / need.total_ru)
    assert max(PartitionLoads.of(demands(key), partitions).refused_shares(throughput_ru)) < 0.01


def test_given_bounds_are_like_even_ones() -> None:
    for key in ("/customerId", "/country"):
        even, given = PartitionLoads.of(demands(key), 8), PartitionLoads.on(demands(key), even_bounds(8))
        assert given.demand_ru == pytest.approx(even.demand_ru)
        assert given.variance == pytest.approx(even.variance)


def one_key(demand_ru: float) -> list[KeyedDemand]:
    return [KeyedDemand(demand_ru / 10, 10.0, PlacedKeys.of(KeyShares((("k1", 1.0),))))]


def test_a_hot_key_is_created_small_and_scaled_up() -> None:
    """Of one key on one partition, 7,000 of 10,000 RU/s may be used; as created, a partition carries 6,000."""
    need = needs.required_throughput(one_key(7_000), 10 * GB)
    assert need is not None
    assert (need.throughput_ru, need.partitions, need.create_with_ru) == (10_000, 1, 6_000)


def test_a_key_may_be_too_hot_for_any_throughput() -> None:
    assert needs.required_throughput(one_key(7_100), 10 * GB) is None
    autoscale = needs.required_throughput(one_key(7_000), 10 * GB, is_autoscale=True)
    assert autoscale is not None
    assert (autoscale.throughput_ru, autoscale.create_with_ru) == (10_000, 10_000)


def test_the_busiest_key_adds_up_over_distributions() -> None:
    one, two = PlacedKeys.of(KeyShares((("k1", 0.6), ("k2", 0.4)))), PlacedKeys.of(KeyShares((("k2", 1.0),)))
    demands = [KeyedDemand(10.0, 5.0, one), KeyedDemand(20.0, 2.5, one)]
    assert needs.hottest_key_ru(demands) == pytest.approx(60.0)
    assert needs.hottest_key_ru([*demands, KeyedDemand(10.0, 3.0, two)]) == pytest.approx(70.0)
    assert needs.hottest_key_ru([]) == 0.0


def test_storage_sets_the_least_throughput() -> None:
    need = needs.required_throughput(one_key(1.0), 10_240 * GB)
    assert need is not None
    assert need.throughput_ru == 10_300
    assert needs.required_throughput([], 0).throughput_ru == 400  # type: ignore[union-attr]


def test_refused_of_all_counts_each_partition_by_its_load() -> None:
    load = PartitionLoads(2)
    load.add(0, 100, 10)
    load.add(1, 10, 10)
    assert load.refused_of_all(1_000) == pytest.approx(load.refused_shares(1_000)[0] * 1_000 / 1_100, abs=1e-6)
    assert PartitionLoads(2).refused_of_all(1_000) == 0.0
    assert PartitionLoads(2).hottest_of_fair == 1.0


def test_day_on_which_a_key_is_full() -> None:
    assert needs.days_to_fill(4 * GB, 0.03, 1.6427 * GB) == near(324.7)
    assert needs.days_to_fill(0, 0.76, GB) == near(26.3)
    assert needs.days_to_fill(20 * GB, 0.5, GB) == 0.0
    assert needs.days_to_fill(0, 0.5, 0) is None


def test_suffixes() -> None:
    assert needs.suffixes_needed(90 * GB, 14_000, 2_500) == 7
    assert needs.suffixes_needed(90 * GB, 0, 2_500) == 6
    assert needs.suffixes_needed(GB, 10, 2_500) == 1
