"""Dice, ids and sums of the Gremlin language and its door."""

from __future__ import annotations

import uuid
from itertools import permutations

from armillary.clock import VirtualClock
from armillary.doors.gremlin.traversals import OrderedIds
from armillary.languages.gremlin.strategies import SeededDice
from armillary.languages.gremlin.values.numbers import total


def test_dice_fall_as_those_of_java() -> None:
    """new Random(42) of Java 17: nextInt(100) five times, and the first nextDouble()."""
    dice = SeededDice(42)
    assert [dice.below(100) for _ in range(5)] == [30, 63, 48, 84, 70]
    assert SeededDice(42).number() == 0.7275636800328681
    assert all(0 <= dice.below(limit) < limit for limit in (1, 2, 3, 64, 1000, 2**31, 2**40))


def test_ids_are_in_the_order_of_their_making() -> None:
    """Whether time stands still or goes on."""
    clock = VirtualClock()
    ids = OrderedIds(clock)
    found = [ids.new() for _ in range(5_000)]
    clock.advance(1)
    found += [ids.new() for _ in range(10)]
    assert found == sorted(found) and len(set(found)) == len(found)
    assert {uuid.UUID(each).version for each in found} == {7}


def test_sums_do_not_lose_what_rounding_takes() -> None:
    """One by one these come to 2.2 or a little more, as their order is."""
    for some in permutations([0.5, 1.0, 0.4, 0.2, 0.1]):
        assert total((each, 1) for each in some).result == 2.2
    found = total([(1, 2), (None, 5), (2.5, 2)])
    assert (found.result, found.count, found.mean) == (7.0, 4, 1.75)
    assert total([]).result is None and total([]).mean is None
    assert total([(float("inf"), 1), (1.0, 1)]).result == float("inf")
