"""The history of load: rows, columns and layers add up to what was metered, through splits, merges and restarts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.house import MeteredHouse

from armillary import limits
from armillary.account import overview
from armillary.account.container import Container
from armillary.account.load_history.columns import CHARGED, FULL, REFUSED, REQUESTS, WOULD_BE_REFUSED, unpack
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine

START_S = 1_700_000_000.0


class House(MeteredHouse):
    def totals(self, container: Container, from_s: float = 0.0, to_s: float = 1e12) -> list[int]:
        """Of all columns, the open one included."""
        history = self.account.history.of(container)
        open_column = history.open_column(container, self.clock.now_s())
        columns = [unpack(each, history.layouts) for each in history.between(from_s, to_s)]
        return [sum(each.total(measure) for each in [*columns, open_column]) for measure in range(5)]

    def metered(self, container: Container) -> list[int]:
        totals = overview.container_totals(container)
        return [totals.charged, totals.requests, totals.refused, totals.would_be_refused, totals.full]


async def begin(path: Path | None = None, **settings: Any) -> House:
    wanted = AccountSettings(history_path=path, **settings)
    return await House.begin(MemoryEngine(), VirtualClock(START_S), wanted)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await begin()
    yield house
    await house.close()


async def test_rows_and_columns_add_up_to_what_was_metered(house: House, seed: int) -> None:
    dice = random.Random(seed)
    container = await house.create(throughput_ru=20_000)
    assert len(container.partitions) == 4
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(50)))
    for _ in range(100):
        for _ in range(dice.randrange(5)):
            await house.read(container, f"k{dice.randrange(60)}")
        if dice.random() < 0.2:
            bound = compile_query("SELECT * FROM c", ()).bind({}, container.query_context(), None)
            await item_pages.query(house.account, container, bound, b"", FeedOptions())
        await house.pass_s(dice.choice([0.5, 3, 10, 45, 600]))
    assert house.totals(container) == house.metered(container)


async def test_a_hot_key_is_one_row(house: House) -> None:
    container = await house.create()
    await house.read(container, "hot", 50)
    history = house.account.history.of(container)
    sheet = history.open_column(container, house.clock.now_s()).sheets[0]
    requests = sheet.counts[REQUESTS]
    assert requests is not None
    assert sorted(requests)[-2:] == [0, 50]
    [part] = sheet.layout.parts
    row = list(requests).index(50)
    epk = container.effective_key(Key(("hot",)))
    assert part.edges[row] <= epk < part.edges[row + 1]
    assert part.row_count == limits.HISTORY_PARTITION_ROWS_MAX


async def test_charges_of_no_key_are_counted_apart(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    bound = compile_query("SELECT * FROM c", ()).bind({}, container.query_context(), None)
    await item_pages.query(house.account, container, bound, b"", FeedOptions())
    sheet = house.account.history.of(container).open_column(container, house.clock.now_s()).sheets[0]
    charged = sheet.counts[CHARGED]
    assert charged is not None
    ends = [sheet.layout.offsets[index + 1] - 1 for index in range(4)]
    assert sum(charged[end] for end in ends) == sum(charged) == house.metered(container)[CHARGED]


async def test_refusals_are_in_the_row_of_their_key() -> None:
    for mode, measure in (("enforce", REFUSED), ("observe", WOULD_BE_REFUSED)):
        house = await begin(throughput_mode=mode)
        container = await house.create()
        await house.read(container, "hot", 450)
        sheet = house.account.history.of(container).open_column(container, house.clock.now_s()).sheets[0]
        refused, requests = sheet.counts[measure], sheet.counts[REQUESTS]
        assert refused is not None
        assert requests is not None
        assert sum(refused) == max(refused) == 50
        assert list(refused).index(50) == list(requests).index(450)
        await house.close()


async def test_writes_to_a_full_key_are_counted_by_row_and_key() -> None:
    house = await begin(logical_partition_bytes_max=20_000)
    container = await house.create()
    refused = 0
    for number in range(40):
        try:
            await house.put(container, {"id": str(number), "pk": "big", "text": "x" * 1_000})
        except Failure as failure:
            refused += failure.kind is Kind.KEY_FULL
    assert refused > 10
    assert house.totals(container)[FULL] == house.metered(container)[FULL] == refused
    [partition] = container.partitions.values()
    [full] = partition.meter.full_keys
    assert (full.epk, full.refused, full.since_s) == (container.effective_key(Key(("big",))), refused, START_S)
    await house.close()


async def test_columns_of_zeros_are_not_kept(house: House) -> None:
    container = await house.create()
    await house.read(container, "a")
    for _ in range(30):
        await house.pass_s(10)
    await house.read(container, "a")
    await house.pass_s(10)
    history = house.account.history.of(container)
    assert [each.start_s - START_S for each in history.between(0, 1e12)] == [0, 300]


async def test_layers_grow_coarser_and_keep_their_sums(house: House) -> None:
    container = await house.create()
    history = house.account.history.of(container)
    for _ in range(24 * 6):  # a day, by ten minutes
        await house.read(container, "a", 3)
        await house.pass_s(600)
    finest, minutes, tens, hours = [[each.seconds for each in layer] for layer in history.layers]
    assert set(finest) == {10}
    assert set(minutes) == {60}
    assert set(tens) == {600}
    assert not hours
    assert house.totals(container)[REQUESTS] == 24 * 6 * 3
    for _ in range(5):
        await house.pass_s(86_400)
    assert [each.seconds for layer in history.layers for each in layer] == [3_600] * len(history.layers[3])
    assert house.totals(container)[REQUESTS] == 24 * 6 * 3
    await house.pass_s(29 * 86_400)
    assert house.totals(container)[REQUESTS] == 0


async def test_a_split_changes_the_next_column_only(house: House) -> None:
    container = await house.create()
    await house.put(container, *({"id": "1", "pk": f"k{number}"} for number in range(50)))
    await house.read(container, "k1", 5)
    await house.pass_s(10)
    reshape = await house.account.reshaper.split(container, 0, None)
    await house.account.reshaper.finished(reshape)
    await house.read(container, "k1", 7)
    await house.pass_s(10)
    history = house.account.history.of(container)
    first, second = [unpack(each, history.layouts) for each in history.between(0, 1e12)][-2:]
    assert [sheet.layout.ids for sheet in first.sheets] == [(0,)]
    assert second.newest is not None
    assert second.newest.layout.ids == (1, 2)
    [noted] = history.reshapes
    assert (noted.parents, noted.children, noted.reason) == ((0,), (1, 2), "request")
    assert noted.boundary == container.map.get(1).high  # type: ignore[union-attr]
    assert house.totals(container) == house.metered(container)
    merge = await house.account.reshaper.merge(container, 1, 2)
    await house.account.reshaper.finished(merge)
    assert (history.reshapes[-1].parents, history.reshapes[-1].children) == ((1, 2), (3,))
    await house.read(container, "k1", 2)
    assert house.totals(container) == house.metered(container)


async def test_the_history_outlives_a_restart_with_a_gap(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history")
    container = await house.create()
    await house.read(container, "a", 3)
    await house.pass_s(60)
    await house.read(container, "a", 4)
    await house.account.close()  # saves the minute that is not over too
    house.clock.advance(300)
    await house.reopen()
    container = house.account.container("db", "c")
    assert house.totals(container)[REQUESTS] == 7
    assert house.account.history.gaps(START_S, house.clock.now_s()) == [(START_S + 60, START_S + 360)]
    await house.read(container, "a", 2)
    await house.pass_s(60)
    await house.reopen()
    container = house.account.container("db", "c")
    assert house.totals(container)[REQUESTS] == 9
    await house.close()


async def test_a_crash_costs_what_was_not_saved(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history")
    container = await house.create()
    await house.read(container, "a", 3)
    await house.pass_s(60)
    await house.read(container, "a", 4)
    await house.pass_s(20)
    kept = (tmp_path / "history").read_bytes()
    await house.account.close()
    (tmp_path / "history").write_bytes(kept + b"\x00\x00\x00\x09half a rec")
    house.clock.advance(40)
    await house.reopen()
    container = house.account.container("db", "c")
    assert house.totals(container)[REQUESTS] == 3
    assert house.account.history.gaps(START_S, house.clock.now_s()) == [(START_S + 60, START_S + 120)]
    await house.close()


async def test_the_file_holds_each_count_once_however_it_aged(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history")
    container = await house.create()
    for _ in range(30):
        await house.read(container, "a", 2)
        await house.pass_s(1_000)
    await house.reopen()
    container = house.account.container("db", "c")
    assert house.totals(container)[REQUESTS] == 60
    await house.close()


async def test_memory_is_bounded_and_the_least_shown_goes_first(tmp_path: Path) -> None:
    house = await begin(history_memory_bytes=6_000)
    shown, other = await house.create("shown"), await house.create("other")
    house.account.history.of(shown).asked = 5
    for _ in range(20):
        await house.read(shown, "a")
        await house.read(other, "a")
        await house.pass_s(60)
    histories = [house.account.history.of(each) for each in (shown, other)]
    assert sum(each.size_bytes for each in histories) <= 6_000
    assert len(list(histories[0].between(0, 1e12))) > len(list(histories[1].between(0, 1e12)))
    await house.close()


async def test_off_is_off(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history", history_memory_bytes=0)
    container = await house.create()
    await house.read(container, "a")
    await house.pass_s(60)
    with pytest.raises(Failure) as refused:
        house.account.history.of(container)
    assert "--history-memory" in refused.value.message
    assert not (tmp_path / "history").exists()
    await house.close()


async def test_deleted_containers_leave_no_history(tmp_path: Path) -> None:
    house = await begin(tmp_path / "history")
    container = await house.create()
    await house.read(container, "a")
    await house.pass_s(60)
    rid = container.record.rid
    house.account.leave([container.record])
    assert rid not in house.account.history._histories
    await house.close()
