from __future__ import annotations

import itertools
import random

import pytest

from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.ranges import KeyRange, PartitionMap, even_boundaries, midpoint

SEED = 7
WHOLE = KeyRange(0, b"", b"\xff", (), 1)


def even_map(count: int, version: int = 2) -> PartitionMap:
    bounds = [b"", *even_boundaries(count, version), b"\xff"]
    return PartitionMap(
        KeyRange(number, low, high, (), number + 1) for number, (low, high) in enumerate(itertools.pairwise(bounds))
    )


def test_even_boundaries_are_the_services() -> None:
    assert even_boundaries(1, 2) == even_boundaries(1, 1) == []
    assert [bound.hex().upper() for bound in even_boundaries(2, 2)] == ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]
    assert [bound.hex().upper() for bound in even_boundaries(5, 2)] == [
        "0CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
        "19999999999999999999999999999998",
        "26666666666666666666666666666664",
        "33333333333333333333333333333330",
    ]
    assert [bound.hex().upper() for bound in even_boundaries(2, 1)] == ["05C1DFFFFFFFFC"]


@pytest.mark.parametrize("version", [1, 2])
def test_keys_spread_evenly_and_are_found_in_their_range(version: int) -> None:
    partitions = even_map(7, version)
    definition = PartitionKeyDefinition.parse({"paths": ["/pk"], "version": version})
    counts = dict.fromkeys(range(7), 0)
    for number in range(7000):
        epk = definition.effective_key(Key((f"key-{number}",)))
        found = partitions.find(epk)
        assert found.contains(epk)
        assert partitions.overlapping(epk, epk) == partitions.overlapping(epk, epk + b"\xff") == [found]
        counts[found.id] += 1
    assert min(counts.values()) > 800


def test_find_at_the_edges() -> None:
    partitions = even_map(2)
    boundary = even_boundaries(2, 2)[0]
    assert partitions.find(b"").id == 0
    assert partitions.find(boundary).id == 1
    assert partitions.find(boundary[:-1] + b"\xfe" + b"\xff" * 32).id == 0
    assert partitions.find(b"\x3f" * 16).id == 1


def test_overlapping_agrees_with_looking_at_every_range() -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    partitions = even_map(5)
    bounds = [b"", b"\xff", b"\x00", *even_boundaries(5, 2)]
    bounds += [bytes([dice.randrange(64)]) + dice.randbytes(dice.randrange(20)) for _ in range(30)]
    for low in bounds:
        for high in bounds:
            expected = [each for each in partitions.ranges if low < high and each.low < high and low < each.high]
            if low == high and low < b"\xff":
                expected = [partitions.find(low)]
            if low < b"\xff":
                assert partitions.overlapping(low, high) == expected, (low, high)
    assert partitions.overlapping(b"", b"\xff") == list(partitions.ranges)


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [KeyRange(0, b"", b"\x10", (), 1)],
        [KeyRange(0, b"\x01", b"\xff", (), 1)],
        [KeyRange(0, b"", b"\x10", (), 1), KeyRange(1, b"\x11", b"\xff", (), 2)],
        [KeyRange(0, b"", b"\x12", (), 1), KeyRange(1, b"\x11", b"\xff", (), 2)],
        [KeyRange(0, b"", b"\x10", (), 1), KeyRange(0, b"\x10", b"\xff", (), 2)],
        [WHOLE, KeyRange(1, b"", b"\xff", (), 2)],
        [KeyRange(0, b"", b"", (), 1), KeyRange(1, b"", b"\xff", (), 2)],
    ],
)
def test_ranges_that_do_not_tile_are_refused(ranges: list[KeyRange]) -> None:
    with pytest.raises(Failure) as caught:
        PartitionMap(ranges)
    assert caught.value.kind is Kind.CORRUPT


def test_ranges_are_sorted_and_found_by_id() -> None:
    partitions = PartitionMap(reversed(even_map(3).ranges))
    assert [each.id for each in partitions.ranges] == [0, 1, 2]
    found = partitions.get(2)
    assert found is not None
    assert found.high == b"\xff"
    assert partitions.get(3) is None


def test_splits_number_on_and_keep_all_ancestors() -> None:
    partitions = PartitionMap([WHOLE])
    first = midpoint(b"", b"\xff", 2)
    assert first is not None
    partitions = partitions.split(0, first, 2, 3)
    assert [(each.id, each.parents, each.store) for each in partitions.ranges] == [(1, (0,), 2), (2, (0,), 3)]
    second = midpoint(first, b"\xff", 2)
    assert second is not None
    partitions = partitions.split(2, second, 4, 5)
    assert [(each.id, each.parents) for each in partitions.ranges] == [(1, (0,)), (3, (0, 2)), (4, (0, 2))]
    assert partitions.get(2) is None
    assert [each.id for each in partitions.descendants(2)] == [3, 4]
    assert [each.id for each in partitions.descendants(0)] == [1, 3, 4]
    assert [each.id for each in partitions.descendants(1)] == [1]
    merged = partitions.merge(1, 3, 6)
    assert [(each.id, each.parents) for each in merged.ranges] == [(5, (0, 2, 1, 3)), (4, (0, 2))]
    assert merged.next_id() == 6


@pytest.mark.parametrize("version", [1, 2])
def test_midpoints_halve_until_nothing_is_left(version: int) -> None:
    low, high, halvings = b"", b"\xff", 0
    assert midpoint(low, high, version) == even_boundaries(2, version)[0]
    while (middle := midpoint(low, high, version)) is not None:
        assert low < middle < high
        low, high = (low, middle) if halvings % 2 else (middle, high)
        halvings += 1
    assert halvings == (32 if version == 1 else 126) or halvings == (31 if version == 1 else 125)


def test_a_hierarchical_range_is_halved_inside_one_prefix_only_when_it_must_be() -> None:
    first = b"\x10" + bytes(15)
    second = b"\x10" + bytes(14) + b"\x01"
    assert midpoint(first, second, 2) is None
    middle = midpoint(first, second, 2, levels=3)
    assert middle is not None
    assert middle == first + b"\x20" + bytes(15)
    assert first < middle < second
    lower = midpoint(first, middle, 2, levels=3)
    assert lower == first + b"\x10" + bytes(15)
    coarse = midpoint(b"", b"\xff", 2, levels=3)
    assert coarse is not None
    assert len(coarse) == 16
