"""Partitions as created, by storage and by throughput, against worked examples and the rules of the account."""

from __future__ import annotations

import pytest

from armillary.insight.planning import partition_counts as counts
from armillary.limits import GB


def test_partitions_of_a_new_container() -> None:
    manual = [400, 6_000, 6_100, 20_000, 30_000, 100_000, 1_000_000]
    assert [counts.created(ru) for ru in manual] == [1, 1, 2, 4, 5, 17, 167]
    assert [counts.created(ru, is_autoscale=True) for ru in (10_000, 11_000, 100_000)] == [1, 2, 10]


@pytest.mark.parametrize("is_autoscale", [False, True])
@pytest.mark.parametrize("partition_ru", [100, 1_000, 10_000])
def test_the_most_throughput_for_a_number_of_partitions(is_autoscale: bool, partition_ru: int) -> None:
    for partitions in range(10, 40):
        most = counts.created_with_max(partitions, is_autoscale=is_autoscale, partition_ru=partition_ru)
        step = 1_000 if is_autoscale else 100
        assert counts.created(most, is_autoscale=is_autoscale, partition_ru=partition_ru) <= partitions
        assert counts.created(most + step, is_autoscale=is_autoscale, partition_ru=partition_ru) > partitions


def test_partitions_by_storage_double() -> None:
    size = 10_240 * GB
    assert counts.created(100_000) == 17
    assert [counts.by_storage(1, size), counts.by_storage(17, size), counts.least_by_storage(size)] == [256, 272, 205]
    assert size / 256 / GB == pytest.approx(40.0)
    assert size / 272 / GB == pytest.approx(37.65, rel=0.005)
    assert counts.by_storage(4, 1_000 * GB) == 32
    assert counts.by_storage(1, 51 * GB) == 2
    assert counts.by_storage(1, 50 * GB) == 1
    assert counts.least_by_storage(0) == 1


def test_even_scaling() -> None:
    assert counts.even_scale_up(5, 150_000) == 200_000
    assert counts.even_scale_up(2, 30_000) == 40_000
    assert counts.even_scale_up(2, 20_000) == 20_000
    assert counts.after_scaling(3, 45_000) == 5
    assert counts.after_scaling(3, 25_000) == 3


def test_loading_much_data() -> None:
    plan = counts.ingest_plan(1_000 * GB, 1e9, 10.0, 40 * GB)
    assert (plan.partitions, plan.create_with_ru, plan.scale_to_ru) == (25, 150_000, 250_000)
    assert plan.hours == pytest.approx(11.1, rel=0.005)
    assert counts.created(plan.create_with_ru) == 25


def test_minimum_by_storage() -> None:
    assert counts.minimum_ru(10_240 * GB) == 10_300
    assert counts.minimum_ru(10_240 * GB, is_autoscale=True) == 103_000
    assert counts.minimum_ru(0) == 400
    assert counts.minimum_ru(0, highest_ru=100_000) == 1_000
