"""Heat maps and series: they add up to what was metered, lie where the hashes are, and say in words what they show."""

from __future__ import annotations

import asyncio
import base64
import math
from array import array
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.house import MeteredHouse
from support.passing_time import passing

from armillary import limits, work
from armillary.account import overview
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.insight.heat import heat_map, map_bounds
from armillary.insight.timeline import Steps, open_end, timeline
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine

START_S = 1_700_000_400.0  # a multiple of 600


class House(MeteredHouse):
    async def heat(
        self, container: Container, metric: str = "ru", *, from_s: float = START_S, rows: int = 64, columns: int = 360
    ) -> tuple[dict[str, Any], list[list[float]]]:
        """The map, and its values by row."""
        steps = Steps.over(from_s, open_end(self.clock.now_s()), columns)
        found = await heat_map(self.account, container, metric, steps, rows)
        values = array("f", base64.b64decode(found["values"]))
        width = len(found["times"]) - 1
        assert len(values) == width * (len(found["bounds"]) - 1)
        return found, [list(values[row : row + width]) for row in range(0, len(values), width)]

    def kinds(self, found: dict[str, Any]) -> list[str]:
        return [each["kind"] for each in found["findings"]]


async def begin(path: Path | None = None, **settings: Any) -> House:
    return await House.begin(MemoryEngine(), VirtualClock(START_S), AccountSettings(history_path=path, **settings))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await begin()
    yield house
    await house.close()


async def test_the_largest_map_gives_way_to_other_requests(house: House) -> None:
    container = await house.create(throughput_ru=200_000)
    for column in range(180):
        for number in range(20):
            await house.read(container, f"k{number * 7 + column}")
        await house.pass_s(10)
    steps = Steps.over(START_S, open_end(house.clock.now_s()), 180)
    for metric in ("ru", "bytes", "normalized"):
        work.longest_units = 0
        making = asyncio.ensure_future(work.drive(heat_map(house.account, container, metric, steps, 680)))
        turns = 0
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 30, metric
        assert work.longest_units <= 3 * limits.WORK_SLICE_UNITS, metric


def total(rows: list[list[float]]) -> float:
    return math.fsum(value for row in rows for value in row)


async def test_one_key_is_one_bright_row_at_its_hash(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    for _ in range(6):
        await house.read(container, "hot", 40)
        await house.pass_s(10)
    found, rows = await house.heat(container)
    assert found["unit"] == "RU"
    bright = [index for index, row in enumerate(rows) if any(row)]
    bounds = [bytes.fromhex(each) for each in found["bounds"]]
    epk = container.effective_key(Key(("hot",)))
    assert len(bright) == 1
    assert bounds[bright[0]] <= epk < bounds[bright[0] + 1]
    assert rows[bright[0]][:6] == [40.0] * 6
    assert found["max"] == 40.0


async def test_sums_of_the_map_are_the_totals(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(40)))
    bound = compile_query("SELECT * FROM c", ()).bind({}, container.query_context(), None)
    for turn in range(12):
        await house.read(container, f"k{turn}", turn)
        await item_pages.query(house.account, container, bound, b"", FeedOptions())
        await house.pass_s(7)
    for reshape in [await house.account.reshaper.split(container, 1, None)]:
        await passing(house.clock, house.account.reshaper.finished(reshape))
    await house.read(container, "k3", 9)
    totals = overview.container_totals(container)
    for metric, wanted in (("ru", totals.charged_ru), ("requests", totals.requests)):
        for count in (5, 64, 200):
            found, rows = await house.heat(container, metric, rows=count)
            assert total(rows) == pytest.approx(wanted, rel=1e-5)
            assert found["total"] == pytest.approx(wanted)
            assert 0 < found["keyless"] < wanted
    await house.pass_s(86_400)  # coarser by now
    found, rows = await house.heat(container)
    assert total(rows) == pytest.approx(totals.charged_ru, rel=1e-5)


async def test_a_split_is_a_fork_at_its_time(house: House) -> None:
    container = await house.create()
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(40)))
    await house.pass_s(30)
    reshape = await house.account.reshaper.split(container, 0, None)
    await passing(house.clock, house.account.reshaper.finished(reshape))
    split_s = house.account.history.of(container).map_changed_s
    await house.read(container, "k1", 3)
    await house.pass_s(30)
    found, _ = await house.heat(container)
    boundary = container.map.ranges[0].high.hex().upper()
    assert found["splits"] == [
        {"time": split_s, "parents": [0], "children": [1, 2], "boundary": boundary, "reason": "request"}
    ]
    assert [each["ids"] for each in found["maps"]] == [[0], [1, 2]]
    assert found["maps"][1]["bounds"] == ["00", boundary, "FF"]


async def test_refusals_and_full_keys_are_told_apart() -> None:
    for mode, metric in (("enforce", "refused"), ("observe", "wouldBeRefused")):
        house = await begin(throughput_mode=mode, logical_partition_bytes_max=20_000)
        container = await house.create()
        await house.read(container, "hot", 450)
        for other in ("refused", "wouldBeRefused", "full"):
            _, rows = await house.heat(container, other)
            assert total(rows) == (50.0 if other == metric else 0.0)
        await house.pass_s(60)
        for number in range(40):
            with suppress(Failure):
                await house.put(container, {"id": str(number), "pk": "big", "text": "x" * 1_000})
        full, _ = await house.heat(container, "full")
        assert full["total"] == overview.container_totals(container).full > 0
        assert house.kinds(full)[:2] == ["key full", "refusals"]
        verb = "has refused" if mode == "enforce" else "would have refused"
        assert f"Partition 0 {verb} 50 requests (429), since 2023-11-14 22:20 UTC." in [
            each["text"] for each in full["findings"]
        ]
        await house.close()


async def test_normalized_is_by_the_partitions_own_share(house: House) -> None:
    container = await house.create(throughput_ru=20_000)  # 5,000 for each of 4
    await house.read(container, "hot", 500)
    await house.pass_s(10)
    _, rows = await house.heat(container, "normalized", rows=4)
    assert sorted(row[0] for row in rows) == pytest.approx([0, 0, 0, 500 / (5_000 * 10)])


async def test_bytes_are_those_at_the_end_of_a_column(house: House) -> None:
    container = await house.create()
    await house.pass_s(10)
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(40)))
    await house.pass_s(10)
    await house.pass_s(10)
    size_bytes = container.partitions[0].head.size_bytes
    _, rows = await house.heat(container, "bytes")
    assert [round(sum(row[index] for row in rows)) for index in range(3)] == pytest.approx(
        [0, size_bytes, size_bytes], rel=1e-4
    )


async def test_rows_are_shared_by_the_partitions(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    assert len(map_bounds(container, 64)) == 65
    assert len(map_bounds(container, 6)) == 5
    assert map_bounds(container, 2) == [b"", container.map.ranges[2].low, b"\xff"]


async def test_rows_of_a_tenant_are_divided_behind_its_prefix() -> None:
    house = await begin()
    key = {"paths": ["/tenant", "/user"], "kind": "MultiHash", "version": 2}
    container = await house.create(partitionKey=key)
    await house.put(container, *({"id": "1", "tenant": "t", "user": f"u{number}"} for number in range(64)))
    low, _ = container.key_range(Key(("t",)))
    for boundary in (low, low + b"\x20"):
        owner = container.map.find(boundary)
        reshape = await house.account.reshaper.split(container, owner.id, boundary)
        await passing(house.clock, house.account.reshaper.finished(reshape))
    for number in range(64):
        await items.read(container, "1", ItemOptions(key=Key(("t", f"u{number}"))))
    history = house.account.history.of(container)
    open_column = history.open_column(container, house.clock.now_s())
    assert open_column.newest is not None
    used = sum(1 for number in open_column.newest.counts[1] or () if number)
    assert used > 20  # not one row for all of the tenant
    await house.close()


async def test_the_map_is_there_after_a_restart_with_the_gap(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history")
    container = await house.create()
    await house.read(container, "hot", 30)
    await house.pass_s(60)
    await house.account.close()
    house.clock.advance(120)
    await house.reopen()
    container = house.account.container("db", "c")
    await house.read(container, "hot", 5)
    found, rows = await house.heat(container, "requests")
    assert total(rows) == pytest.approx(35.0)
    assert found["gaps"] == [[START_S + 60, START_S + 180]]
    series = await timeline(house.account, container, Steps.over(START_S, house.clock.now_s() + 10, 100, 60))
    assert series["requests"] == [30.0, None, None, 5.0]
    await house.close()


async def test_series(house: House) -> None:
    container = await house.create(throughput_ru=4_000)
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(10)))
    charged_ru = overview.container_totals(container).charged_ru
    await house.pass_s(60)
    await house.read(container, "k1", 6)
    await house.pass_s(30)
    series = await timeline(house.account, container, Steps.over(START_S, house.clock.now_s(), 100, 60))
    assert series["times"] == [START_S, START_S + 60]
    assert series["ru"] == [pytest.approx(charged_ru), 6.0]
    assert series["requests"] == [10.0, 6.0]
    assert series["items"] == [10, 10]
    assert series["partitions"] == [1, 1]
    assert series["provisionedRu"] == series["billedRu"] == [4_000.0, 4_000.0]
    assert series["normalizedMax"][1] == pytest.approx(6 / 40_000, abs=1e-4)
    assert series["keylessRu"] == [0.0, 0.0]
    assert {len(each) for each in series.values()} == {2}


async def test_a_quiet_time_spent_nothing_and_is_known(house: House) -> None:
    container = await house.create(throughput_ru=4_000)
    for _ in range(2):
        await house.read(container, "k1", 6)
        await house.pass_s(60)
    steps = Steps.over(START_S - 30, house.clock.now_s(), 100, 10)
    series = await timeline(house.account, container, steps)
    for name in ("normalizedMax", "normalizedMedian"):
        shares = series[name][3:15]
        assert shares == [pytest.approx(6 / 40_000, abs=1e-6), *[0.0] * 5] * 2, name
        assert series[name][:3] == [None] * 3, "there was no container"


async def test_series_of_what_belongs_to_no_key_and_of_the_median_partition(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(40)))
    await house.pass_s(60)
    await house.read(container, "k1", 6)
    await house.pass_s(60)
    bound = compile_query("SELECT * FROM c", ()).bind({}, container.query_context(), None)
    await item_pages.query(house.account, container, bound, b"", FeedOptions())
    await house.pass_s(60)
    series = await timeline(house.account, container, Steps.over(START_S, house.clock.now_s(), 100, 60))
    assert series["keylessRu"] == [0.0, 0.0, series["ru"][2]]
    assert series["normalizedMedian"][0] > 0
    assert series["normalizedMedian"][1] == 0.0  # one of four partitions was asked
    assert series["normalizedMax"][1] > 0


# Findings.


async def test_too_little_to_say(house: House) -> None:
    container = await house.create()
    await house.read(container, "a", 10)
    found, _ = await house.heat(container)
    assert found["findings"] == [
        {
            "kind": "too little to say",
            "text": "Too little to say: 10 requests in this time.",
            "rows": None,
            "columns": None,
        }
    ]


async def test_a_hot_row_is_one_key_or_a_few(house: House) -> None:
    container = await house.create(throughput_ru=6_000)
    for turn in range(40):
        await house.read(container, "hot", 20)
        for number in range(10):
            await house.read(container, f"k{(turn * 10 + number) % 200}")
        await house.pass_s(10)
    found, rows = await house.heat(container)
    [hot] = [each for each in found["findings"] if each["kind"] == "hot row"]
    assert "one key, or a few" in hot["text"]
    brightest = max(range(len(rows)), key=lambda row: sum(rows[row]))
    assert hot["rows"] == [brightest, brightest]
    assert hot["columns"] == [0, 39]


async def test_short_heat_is_not_a_hot_row(house: House) -> None:
    container = await house.create(throughput_ru=6_000)
    for turn in range(120):
        await house.read(container, "hot", 200 if turn < 10 else 0)
        for number in range(30):
            await house.read(container, f"k{number * 7}")
        await house.pass_s(10)
    found, _ = await house.heat(container)
    assert "hot row" not in house.kinds(found)


async def test_even_load_is_called_even(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    for _ in range(40):
        for number in range(100):
            await house.read(container, f"k{number}")
        await house.pass_s(10)
    found, _ = await house.heat(container, rows=32)
    assert house.kinds(found) == ["even"]


async def test_a_hot_partition(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    keys = [f"k{number}" for number in range(400)]
    own = [key for key in keys if container.partition_for(container.effective_key(Key((key,)))).range.id == 2]
    for _ in range(30):
        for key in own[:60]:
            await house.read(container, key)
        await house.pass_s(10)
    found, _ = await house.heat(container, rows=32)
    [hot] = [each for each in found["findings"] if each["kind"] == "hot partition"]
    assert hot["text"] == "Partition 2 has 100% of the request units: 4.0 times its fair share of 4 partitions."


async def test_a_band_that_moves_is_a_key_of_the_time(house: House) -> None:
    container = await house.create(throughput_ru=6_000)
    for hour in range(6):
        for _ in range(12):
            await house.read(container, f"2026-01-0{hour}", 50)
            await house.pass_s(300)
    found, _ = await house.heat(container)
    [band] = [each for each in found["findings"] if each["kind"] == "band that moves"]
    assert "today's date" in band["text"]
    assert "hot row" not in house.kinds(found)


async def test_a_rhythm_is_the_same_every_hour(house: House) -> None:
    container = await house.create(throughput_ru=6_000)
    for step in range(5 * 12):
        for number in range(60 if step % 12 < 3 else 6):
            await house.read(container, f"k{number}")
        await house.pass_s(300)
    found, _ = await house.heat(container, columns=61)
    assert "rhythm" in house.kinds(found)
    [rhythm] = [each for each in found["findings"] if each["kind"] == "rhythm"]
    assert rhythm["text"] == "The load is the same every hour."
