"""What another throughput or another partition key would do, before anything is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise

import pytest
from support.house import AccountHouse

from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.insight.key_preview import parse_paths, preview_key
from armillary.insight.throughput_preview import future_bounds, preview
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine

START_S = 1_700_000_400.0


class House(AccountHouse[VirtualClock]):
    async def read(self, container: Container, key: str, times: int) -> None:
        for _ in range(times):
            with suppress(Failure):
                await items.read(container, "1", ItemOptions(key=Key((key,))))

    async def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.account.history.keep_up()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    settings = AccountSettings(partition_throughput_ru=1_000)
    house = await House.begin(MemoryEngine(), VirtualClock(START_S), settings)
    yield house
    await house.close()


async def test_load_beyond_the_new_share_would_have_been_refused(house: House) -> None:
    container = await house.create(throughput_ru=2_000)
    count = len(container.partitions)
    assert count == 4
    # One key, 60 RU a second for a minute; its partition has a share of 500 now, and of 10 at the least throughput.
    for _ in range(6):
        await house.read(container, "hot", 600)
        await house.pass_s(10)
    now = await preview(house.account, container, Throughput.manual(2_000))
    assert (now["partitions"], now["partitionsNow"], now["shareRu"]) == (4, 4, 500.0)
    assert (now["requests"], now["refused"], now["refusedShare"]) == (3_600, 0, 0.0)
    less = await preview(house.account, container, Throughput.manual(400))
    assert less["shareRu"] == 100.0
    assert less["refused"] == 0
    assert less["columnSeconds"] == 10
    for _ in range(6):
        await house.read(container, "hot", 2_000)
        await house.pass_s(10)
    # 200 a second in the second minute, of which 100 are within the share.
    less = await preview(house.account, container, Throughput.manual(400))
    assert less["refused"] == pytest.approx(6_000)
    assert less["refusedShare"] == pytest.approx(6_000 / 15_600, abs=1e-6)
    epk = container.effective_key(Key(("hot",)))
    worst = less["worst"]
    assert bytes.fromhex(worst["low"]) <= epk < bytes.fromhex(worst["high"])
    assert worst["refused"] == less["refused"]


async def test_the_cost_of_a_month_is_said_with_the_source_of_the_prices(house: House) -> None:
    container = await house.create(throughput_ru=2_000)
    manual = (await preview(house.account, container, Throughput.manual(2_000)))["monthly"]
    assert (manual["least"], manual["most"]) == (116.8, 116.8)  # 20 * 0.008 * 730
    autoscale = (await preview(house.account, container, Throughput.autoscale(4_000, None)))["monthly"]
    assert (autoscale["least"], autoscale["most"]) == (35.04, 350.4)
    assert set(manual["prices"]) == {"asOf", "source", "currency"}
    assert manual["warning"] is None


async def test_more_than_partitions_carry_is_laid_on_more_of_them(house: House) -> None:
    container = await house.create(throughput_ru=2_000)
    await house.read(container, "hot", 100)
    found = await preview(house.account, container, Throughput.manual(10_000))
    assert (found["partitions"], found["partitionsNow"], found["shareRu"]) == (10, 4, 1_000.0)
    bounds = future_bounds(container, 8)
    assert len(bounds) == 9
    # Of equal partitions each is split once before one is split again.
    assert [each.low for each in container.map.ranges] == bounds[:-1:2]
    assert future_bounds(container, 1) == [*bounds[:-1:2], bounds[-1]]


async def test_what_was_refused_counts_as_asked_for(house: House) -> None:
    container = await house.create(throughput_ru=400)
    await house.account.budgets.set_mode(container, "enforce")
    for _ in range(5):
        await house.read(container, "hot", 1_000)
        await house.pass_s(10)
    found = await preview(house.account, container, Throughput.manual(400))
    assert found["requests"] == 5_000
    # A thousand in ten seconds are within 400 a second on average: that they came in one second is not seen.
    assert found["refused"] == 0
    assert (await preview(house.account, container, Throughput.manual(1_000)))["refused"] == 0


async def test_another_key_is_laid_out_by_the_real_hash(house: House) -> None:
    container = await house.create(throughput_ru=2_000)
    documents = [
        {"id": str(number), "pk": f"c{number}", "country": "de" if number % 5 else "fr", "tenant": {"id": number % 7}}
        for number in range(200)
    ]
    await house.put(container, *documents)
    definition = parse_paths(["/country"])
    found = await preview_key(house.account, container, definition, 10_000, 4)
    assert (found["sampled"], found["of"], found["distinct"], found["missing"]) == (200, 200, 2, 0)
    assert found["topKey"] == '["de"]'
    assert found["topShare"] == pytest.approx(0.8, abs=0.01)
    assert found["effectiveKeys"] == pytest.approx(1 / (0.8**2 + 0.2**2), abs=0.02)
    for value, count in Counter(str(each["country"]) for each in documents).items():
        epk = definition.effective_key(Key((value,)))
        (part,) = [
            each for each in found["partitions"] if bytes.fromhex(each["low"]) <= epk < bytes.fromhex(each["high"])
        ]
        assert part["items"] >= count
    assert all(low["high"] == high["low"] for low, high in pairwise(found["partitions"]))
    nothing = await preview_key(house.account, container, parse_paths(["/nowhere"]), 10_000, 4)
    assert (nothing["missing"], nothing["distinct"], nothing["topShare"]) == (200, 1, 1.0)
    nested = await preview_key(house.account, container, parse_paths(["/tenant/id", "/country"]), 10_000, 2)
    assert nested["distinct"] == 14


@pytest.mark.parametrize("paths", [["country"], ["/a", "/b", "/c", "/d"], ["/"]])
def test_paths_that_are_no_key_are_refused(paths: list[str]) -> None:
    with pytest.raises(Failure):
        parse_paths(paths)


async def test_a_container_without_items_has_no_shares(house: House) -> None:
    container = await house.create(throughput_ru=400)
    found = await preview_key(house.account, container, parse_paths(["/x"]), 100, 3)
    assert (found["sampled"], found["topShare"], found["effectiveKeys"], len(found["partitions"])) == (0, None, None, 3)
    empty = await preview(house.account, container, Throughput.manual(400))
    assert (empty["requests"], empty["refused"], empty["refusedShare"]) == (0, 0, None)
