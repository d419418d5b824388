"""Keys at their real hash, on even partitions and on given bounds."""

from __future__ import annotations

import pytest
from unit.insight.planning.orders import COUNTRIES, CUSTOMERS

from armillary.insight.planning import placement
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.placement import PlacedKeys
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.ranges import KeyRange, PartitionMap


def counts(values: list[str], partitions: int) -> list[int]:
    bounds = placement.even_bounds(partitions)
    return [round(each) for each in placement.lay(dict.fromkeys(values, 1.0), bounds)]


def test_hashes_on_four_partitions() -> None:
    bounds = placement.even_bounds(4)
    found = [placement.partition_of(placement.place_of(each), bounds) for each in ("de", "at", "ch", "fr", "us")]
    assert found == [3, 0, 0, 2, 3]
    assert counts([f"c-{number:04}" for number in range(1_000)], 4) == [253, 280, 240, 227]


def test_sequential_ids_are_even() -> None:
    """Keys are hashed: ids that count up do not make the last partition hot."""
    assert counts([str(number) for number in range(1, 10_001)], 4) == [2477, 2475, 2468, 2580]


def test_few_suffixes_do_not_spread() -> None:
    few = counts([f"de-{number}" for number in range(16)], 8)
    assert few == [3, 0, 3, 5, 0, 0, 2, 3]
    assert placement.fullest_of_fair(few) == pytest.approx(2.5)
    many = counts([f"de-{number}" for number in range(256)], 8)
    assert placement.fullest_of_fair(many) == pytest.approx(1.19, rel=0.005)


def test_rows_of_orders_on_eight_partitions() -> None:
    bounds = placement.even_bounds(8)
    assert placement.lay(CUSTOMERS, bounds) == [1320, 1210, 1420, 1380, 1290, 1110, 1050, 1220]
    assert placement.lay(COUNTRIES, bounds) == [0, 1900, 0, 0, 500, 0, 0, 7600]


@pytest.mark.parametrize("version", [1, 2])
def test_placed_keys_lie_where_single_ones_do(version: int) -> None:
    keys = KeyShares.of_weights({f"v{number}": 1.0 + number % 7 for number in range(500)})
    for partitions in (1, 3, 8, 50):
        bounds = placement.even_bounds(partitions, version)
        one_by_one = placement.lay(dict(keys.named), bounds, version)
        assert PlacedKeys.of(keys, version).on_even(partitions) == pytest.approx(one_by_one)


def test_the_rest_lies_by_width() -> None:
    placed = PlacedKeys.of(KeyShares((("de", 0.2),), rest_share=0.8, rest_count=1_000))
    assert placed.on_even(4) == pytest.approx([0.2, 0.2, 0.2, 0.4])
    first, second = placement.even_bounds(2)
    quarter = placement.even_bounds(4)[1]
    assert placed.on([first, quarter, second]) == pytest.approx([0.2, 0.2, 0.6])
    assert placement.widths(placement.even_bounds(3, 1), 1) == pytest.approx([1 / 3] * 3)
    assert PlacedKeys.of(KeyShares((), 1.0, 10)).on_even(2) == pytest.approx([0.5, 0.5])


def test_places_are_those_of_the_engine() -> None:
    definition = PartitionKeyDefinition(("/tenant", "/user"), "MultiHash")
    key = definition.extract({"tenant": "t1", "user": 5})
    place = placement.place_of(("t1", 5))
    assert place == definition.effective_key(key)
    bounds = placement.even_bounds(5)
    ranges = PartitionMap(
        KeyRange(number, low, high, (), number)
        for number, (low, high) in enumerate(zip(bounds, [*bounds[1:], b"\xff"], strict=True))
    )
    assert placement.partition_of(place, bounds) == ranges.find(place).id
    assert placement.partition_of(place, bounds) == placement.partition_of(placement.place_of("t1"), bounds)
    low, high = placement.prefix_bounds("t1")
    assert low <= place < high


def test_nothing_laid_is_even() -> None:
    assert placement.fullest_of_fair([0.0, 0.0]) == 1.0
