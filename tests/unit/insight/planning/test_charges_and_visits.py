"""Request units of operations and of fan-out, against worked examples."""

from __future__ import annotations

import pytest

from armillary.insight.planning import operation_charges as charges
from armillary.insight.planning import visits
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.operation_charges import ItemShape, QueryShape

ITEM = ItemShape(1024, 10)


def test_a_query_without_the_key_pays_for_each_partition() -> None:
    one_row = QueryShape(rows=1)
    assert charges.query_ru(one_row, ITEM, 40) == pytest.approx(100.6)
    assert charges.query_ru(one_row, ITEM) == pytest.approx(3.1)
    assert visits.extra_ru(40) == pytest.approx(97.5)


def test_a_second_of_mixed_operations() -> None:
    query = QueryShape(rows=10)
    single = 500 * charges.read_ru(ITEM) + 100 * charges.create_ru(ITEM) + 20 * charges.replace_ru(ITEM, 2)
    assert single + 10 * charges.query_ru(query, ITEM) == pytest.approx(1_501, rel=0.005)
    assert single + 10 * charges.query_ru(query, ITEM, 4) == pytest.approx(1_576, rel=0.005)


def test_other_writes() -> None:
    assert charges.delete_ru(ITEM) == charges.create_ru(ITEM) == pytest.approx(7.0)
    assert charges.patch_ru(ITEM, 2, 3) == pytest.approx(12.0)
    assert charges.upsert_ru(ITEM, 0.0) == pytest.approx(7.0)
    assert charges.upsert_ru(ITEM, 0.5, 2) == pytest.approx((7.0 + 10.8) / 2)
    assert charges.batch_ru(ITEM, 5) == pytest.approx(35.0)


def test_items_that_are_loaded_and_not_returned() -> None:
    exact, loading = QueryShape(rows=10, loaded=10), QueryShape(rows=10, loaded=110)
    extra = charges.query_ru(loading, ITEM) - charges.query_ru(exact, ITEM)
    assert extra == pytest.approx(100 * 0.010393)


def test_partitions_that_a_query_visits() -> None:
    assert visits.of_list(5, 10) == pytest.approx(4.095, rel=0.005)
    assert visits.of_list(20, 50) == pytest.approx(16.62, rel=0.005)
    assert visits.of_prefix(0.3, 20) == 7
    assert visits.of_prefix(0.05, 20) == 1
    assert visits.of_prefix(0.99, 4) == 4
    assert visits.of_list(3, 1) == 1.0


def test_fan_out() -> None:
    assert visits.fan_out([(60, 1), (30, 8), (10, 8)]) == pytest.approx(3.8)
    assert visits.fan_out([]) == 0.0
    assert visits.single_partition_share([(60, 1), (30, 8), (10, 8)]) == pytest.approx(0.6)
    assert visits.single_partition_share([]) == 1.0


def test_prefixes_of_one_level_are_weighed_by_their_share() -> None:
    shares = KeyShares.of_weights({"more": 3.0, "most": 6.0, "other": 1.0})
    assert visits.of_prefixes(shares, 1) == pytest.approx(1.0)
    assert visits.of_prefixes(shares, 2) == pytest.approx(0.6 * 2 + 0.4)
