"""Items of a container as lines, for computations in other processes: all, or a sample that no partition dominates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.house import AccountHouse
from support.limits import WithLimits

from armillary.account.container import Container
from armillary.clock import VirtualClock
from armillary.insight.item_lines import item_lines
from armillary.storage.memory import MemoryEngine

COUNT = 2_000


@pytest.fixture
async def house() -> AsyncIterator[AccountHouse[VirtualClock]]:
    house = await AccountHouse.begin(MemoryEngine(), VirtualClock())
    yield house
    await house.close()


async def filled(house: AccountHouse[VirtualClock]) -> Container:
    """Five partitions; half of the items were written before a split, and half after it."""
    container = await house.create(throughput_ru=20_000)
    written = [{"id": str(number), "pk": f"key{number}", "half": number * 2 // COUNT} for number in range(COUNT)]
    await house.put(container, *written[: COUNT // 2])
    reshape = await house.account.reshaper.split(container, 0)
    await house.account.reshaper.finished(reshape)
    await house.put(container, *written[COUNT // 2 :])
    return container


async def read(house: AccountHouse[VirtualClock], container: Container, most: int, seed: int = 1) -> list[Any]:
    return [json.loads(line) async for line in item_lines(container, most, seed)]


async def test_all_items_are_read_if_they_are_few(house: AccountHouse[VirtualClock], with_limits: WithLimits) -> None:
    container = await filled(house)
    with_limits(UPKEEP_BYTES=1_000)
    found = await read(house, container, COUNT)
    assert sorted(int(each["id"]) for each in found) == list(range(COUNT))


async def test_a_sample_has_items_of_all_times_and_partitions(
    house: AccountHouse[VirtualClock], with_limits: WithLimits
) -> None:
    container = await filled(house)
    with_limits(UPKEEP_BYTES=1_000)
    found = await read(house, container, 400)
    ids = [each["id"] for each in found]
    assert len(set(ids)) == len(ids) and 300 <= len(ids) <= 410
    halves = Counter(each["half"] for each in found)
    # The numbers of partitions before and after a split lie far apart; neither may take the sample for itself.
    assert 0.4 < halves[0] / len(found) < 0.6, halves
    ranges = {container.partition_for(container.effective_key(container.key_of(each))).range.id for each in found}
    assert len(ranges) == len(container.partitions) == 5
    assert await read(house, container, 400) == found
    assert await read(house, container, 400, seed=2) != found


async def test_lines_have_no_line_breaks(house: AccountHouse[VirtualClock]) -> None:
    container = await house.create()
    await house.put(container, {"id": "1", "pk": "a", "text": "one\ntwo"})
    (line,) = [line async for line in item_lines(container, 10, 1)]
    assert b"\n" not in line and json.loads(line)["text"] == "one\ntwo"
    empty = await house.create("empty")
    assert await read(house, empty, 10) == []
