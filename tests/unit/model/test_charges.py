"""The charge formula against the published figures (rows with difference 0), and its shape elsewhere."""

from __future__ import annotations

import random

import pytest

from armillary.model import charges
from armillary.model.charges import QueryWork

KB = 1024


@pytest.mark.parametrize(("kb", "ru"), charges.READ_ANCHORS)
def test_read_hits_every_anchor(kb: int, ru: float) -> None:
    assert charges.read_ru(kb * KB) == pytest.approx(ru, abs=1e-9)
    assert charges.read_ru(kb * KB, 2) == pytest.approx(2 * ru, abs=1e-9)


@pytest.mark.parametrize(("kb", "ru"), charges.WRITE_ANCHORS)
def test_write_hits_every_anchor(kb: int, ru: float) -> None:
    assert charges.write_ru(kb * KB) == pytest.approx(ru, abs=1e-9)


def test_one_kilobyte_point_read_is_exactly_one() -> None:
    assert charges.read_ru(1 * KB) == 1.0
    assert charges.read_ru(0) == charges.read_ru(200) == 1.0
    assert charges.read_ru(100 * KB) == 10.0


def patch_ru(old_bytes: int, new_bytes: int, terms: int, operations: int) -> float:
    return charges.replace_ru(old_bytes, new_bytes, terms) + charges.PATCH_OPERATION_RU * operations


def test_published_write_figures() -> None:
    assert charges.create_ru(KB, 0) == 5.0
    assert charges.create_ru(KB, 10) == pytest.approx(7.0)
    assert charges.delete_ru(KB, 10) == pytest.approx(7.0)
    assert charges.replace_ru(KB, KB, 4) == pytest.approx(10.8)  # two changed terms: two removed, two added
    assert patch_ru(KB, KB, 4, 2) == pytest.approx(11.6)
    assert charges.create_ru(KB, 50) == pytest.approx(15.0)


def test_published_query_figures() -> None:
    assert charges.query_page_ru(QueryWork(partitions_begun=1, seeks=1)) == pytest.approx(2.5)
    assert charges.query_page_ru(QueryWork(partitions_begun=10, seeks=10)) == pytest.approx(25.0)
    ordered = QueryWork(partitions_begun=1, seeks=1, returned_ru=100.0, sorted_rows=100)
    assert charges.query_page_ru(ordered) == pytest.approx(70.0)
    scan = QueryWork(partitions_begun=1, returned_ru=7.0, loaded_bytes=399_998_938)
    assert charges.query_page_ru(scan) == pytest.approx(4066.2, abs=0.1)


def test_strong_reads_cost_double() -> None:
    assert charges.consistency_factor("Strong") == charges.consistency_factor("BoundedStaleness") == 2
    assert {charges.consistency_factor(level) for level in ("Session", "ConsistentPrefix", "Eventual")} == {1}
    assert charges.failed_read_ru(2) == 2.0
    assert charges.feed_page_ru([], 2) == 2.0
    assert charges.feed_page_ru([KB, KB, 4 * KB], 2) == pytest.approx(2 * 3.14)


def test_failed_writes_and_empty_feeds_have_a_floor() -> None:
    assert charges.failed_write_ru() == 1.0
    assert charges.failed_write_ru(64 * KB) == pytest.approx(4.76)
    assert charges.feed_page_ru([]) == 1.0


def test_beyond_two_megabytes_in_proportion() -> None:
    assert charges.read_ru(4096 * KB) == pytest.approx(2 * 291.8)
    assert charges.write_ru(4096 * KB) == pytest.approx(2500.0)


def test_never_cheaper_for_more() -> None:
    previous_read = previous_write = 0.0
    for size in range(0, 2200 * KB, 777):
        assert charges.read_ru(size) >= previous_read - 1e-9
        assert charges.write_ru(size) >= previous_write - 1e-9
        previous_read, previous_write = charges.read_ru(size), charges.write_ru(size)


def test_pages_add_up_to_the_whole() -> None:
    whole = QueryWork(1, 2, 1, 1, 1, 400, 30.0, 10_000, 7, 9, 3)
    first = QueryWork(1, 2, 1, 1, 1, 400, 10.0, 4_000, 3, 4, 1)
    second = QueryWork(returned_ru=20.0, loaded_bytes=6_000, joined_tuples=4, sorted_rows=5, udf_calls=2)
    total = charges.query_page_ru(first) + charges.query_page_ru(second)
    assert total == pytest.approx(charges.query_page_ru(whole))


def test_itemised_adds_up() -> None:
    seed = 11
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(500):
        old, new = dice.randrange(3_000_000), dice.randrange(3_000_000)
        terms, operations, factor = dice.randrange(90), dice.randrange(11), dice.choice((1, 2))
        work = QueryWork(*(dice.randrange(50) for _ in range(11)))
        for parts, ru in (
            (charges.read_parts(old, factor), charges.read_ru(old, factor)),
            (charges.create_parts(old, terms), charges.create_ru(old, terms)),
            (charges.delete_parts(old, terms), charges.delete_ru(old, terms)),
            (charges.patch_parts(old, new, terms, 0), charges.replace_ru(old, new, terms)),
            (charges.patch_parts(old, new, terms, operations), patch_ru(old, new, terms, operations)),
            (charges.query_page_parts(work, factor), charges.query_page_ru(work, factor)),
        ):
            assert sum(part.ru for part in parts) == pytest.approx(ru)
            assert all(part.what and part.ru > 0 for part in parts)
