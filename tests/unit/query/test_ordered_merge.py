"""The ordered merge by itself: order, ties, lanes that give nothing for a while, and lanes that come later."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from armillary.query.ordered_merge import OrderedMerge
from armillary.query.page import START, Counters, Page, Position


class Numbers:
    """Rows that are numbers in order, given in runs of random length, some of them empty."""

    def __init__(self, name: str, values: Sequence[int], dice: random.Random) -> None:
        self._rows = [(b"%04d" % value, b"%04d %s" % (value, name.encode())) for value in values]
        self._dice = dice

    async def read(self, max_items: int, max_bytes: int) -> Page:
        count = self._dice.randint(0, max_items)
        run, self._rows = self._rows[:count], self._rows[count:]
        positions, rows = [Position(order=order) for order, _ in run], [row for _, row in run]
        return Page(rows, START if self._rows else None, Counters(), sum(map(len, rows)), positions)


async def rows_of(merge: OrderedMerge[Numbers], dice: random.Random) -> list[bytes]:
    rows: list[bytes] = []
    while not merge.is_ended:
        if merge.is_waiting:
            await merge.fill(4, 1000)
        elif dice.random() < 0.5:
            first = merge.first
            rows.append(merge.take())
            assert rows[-1] == first
        else:
            rows += merge.take_rows(3, 1000)
    assert merge.first is None
    return rows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_descending", [False, True])
async def test_rows_come_in_order_and_equal_ones_by_lane(seed: int, is_descending: bool) -> None:
    dice = random.Random(seed)
    values = [
        sorted([dice.randrange(30) for _ in range(dice.randrange(20))], reverse=is_descending)
        for _ in range(dice.randrange(5))
    ]
    lanes = [Numbers(chr(ord("a") + number), each, dice) for number, each in enumerate(values)]
    rows = await rows_of(OrderedMerge(lanes, is_descending=is_descending), dice)
    expected = [(value, number) for number, each in enumerate(values) for value in each]
    expected.sort(key=lambda each: (-each[0] if is_descending else each[0], each[1]))
    assert rows == [b"%04d %s" % (value, chr(ord("a") + number).encode()) for value, number in expected]


async def test_a_lane_that_is_added_is_filled_before_the_next_row_is_given() -> None:
    dice = random.Random(1)
    merge = OrderedMerge([Numbers("a", [1, 5, 9], dice)])
    while merge.is_waiting:
        await merge.fill(8, 1000)
    assert merge.take() == b"0001 a"
    merge.add(Numbers("b", [2, 7], dice))
    assert merge.is_waiting and len(merge.lanes) == 2
    assert await rows_of(merge, dice) == [b"0002 b", b"0005 a", b"0007 b", b"0009 a"]
    merge.drop_ended()
    assert merge.lanes == []


async def test_rows_are_taken_until_there_are_enough_or_a_lane_waits() -> None:
    class Twos(Numbers):
        async def read(self, max_items: int, max_bytes: int) -> Page:
            run, self._rows = self._rows[:2], self._rows[2:]
            rows = [row for _, row in run]
            return Page(rows, START if self._rows else None, Counters(), 0, [Position(order=order) for order, _ in run])

    merge = OrderedMerge([Twos("a", [1, 2, 3], random.Random(0)), Twos("b", [4, 5], random.Random(0))])
    await merge.fill(2, 1000)
    await merge.fill(2, 1000)
    assert merge.take_rows(1, 1000) == [b"0001 a"]
    assert merge.take_rows(9, 1000) == [b"0002 a"] and merge.is_waiting
    await merge.fill(2, 1000)
    assert merge.take_rows(9, 7) == [b"0003 a", b"0004 b"]
