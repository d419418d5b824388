"""Samples of a container: from all partitions alike, also on a slow machine and within the limit of bytes."""

from __future__ import annotations

from support.house import House
from support.limits import WithLimits

from armillary.account.container import Container
from armillary.insight import sampling
from armillary.model import documents


async def filled() -> tuple[House, Container]:
    house = await House.open()
    container = await house.container(20_000)
    await house.put(container, *({"id": f"i{n}", "pk": f"k{n}", "text": "x" * 1_000} for n in range(200)))
    return house, container


async def sampled(house: House, container: Container, count: int) -> list[int]:
    """The number of items from each partition."""
    found = dict.fromkeys(container.partitions, 0)
    async for stored in sampling.sampled_items(house.account, container, count):
        for each in stored:
            key = container.key_of(documents.plain_json(each))
            found[container.map.find(container.effective_key(key)).id] += 1
    return list(found.values())


async def test_a_slow_machine_samples_the_same_items() -> None:
    house, container = await filled()
    quick = await sampled(house, container, 1_000)
    house.clock.step_s = 0.05
    slow = await sampled(house, container, 1_000)
    house.clock.step_s = 0.0
    assert len(quick) == 4 and sum(quick) == 200 and slow == quick
    await house.close()


async def test_a_sample_that_ends_early_has_items_of_all_partitions(with_limits: WithLimits) -> None:
    house, container = await filled()
    with_limits(SAMPLE_BYTES_MAX=40_000)
    found = await sampled(house, container, 1_000)
    assert min(found) > 0 and sum(found) < 200
    await house.close()
