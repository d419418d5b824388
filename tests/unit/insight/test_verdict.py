"""The verdict on a partition key: each fault of the former judgement as a case, and the container that showed it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.house import AccountHouse
from support.passing_time import passing

from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.insight.figures import measure
from armillary.insight.verdict import Figures, FullKey, compare, judge
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine

GB = 1 << 30
FAIR = Figures(
    "shop/orders",
    4,
    10_000,
    10_000_000,
    0.0,
    600.0,
    requests=5_000,
    charged_ru=25_000.0,
    top_share=0.001,
    effective_keys=1_000.0,
    top_load_share=0.001,
    largest_bytes=10_000,
    limit_bytes=20 * GB,
    normalized_p99=0.4,
)


def judged(**changes: Any) -> tuple[str, str, list[str]]:
    verdict = judge(replace(FAIR, **changes))
    return verdict.word, verdict.why, verdict.reasons


def test_an_even_key_is_good() -> None:
    word, _, reasons = judged()
    assert word == "good"
    assert reasons == [
        "the key has 0.1% of the bytes: 0.00 of a partition's fair share",
        "the key has 0.1% of the request units: 0.00 of a partition's fair share",
        "no request was beyond a partition's budget",
    ]


def test_full_keys_make_it_poor() -> None:
    word, why, _ = judged(full=432, full_keys=[FullKey('["k1"]', 400, 3_600.0)])
    assert word == "poor"
    assert why.startswith("432 writes were refused because a key is full (403/1014) (8.6% of the requests)")
    assert '["k1"] since 01:00 UTC, 400 refused' in why


def test_a_key_that_is_nearly_full_needs_care_with_the_day() -> None:
    nearly: dict[str, Any] = {"largest_bytes": 17 * GB, "top_share": 0.02}
    word, why, _ = judged(**nearly, growth_bytes_day=10.0 * GB)
    assert word == "care"
    assert why == (
        "the largest key has 85% of what one key may hold; it is full on 1970-01-16 if it goes on to grow so"
    )
    assert judged(**nearly)[1].endswith("how fast it grows is not known")
    assert judged(largest_bytes=15 * GB, top_share=0.02)[0] == "good"


def test_too_little_is_not_judged() -> None:
    none: dict[str, Any] = {"top_share": None, "effective_keys": None, "top_load_share": None}
    word, why, reasons = judged(items=12, requests=0, charged_ru=0.0, **none)
    assert (word, why, reasons) == ("none", "too little to judge: 12 items, 0 requests", [])


def test_no_load_is_said_and_bytes_are_judged() -> None:
    word, _, reasons = judged(requests=0, charged_ru=0.0, top_load_share=None, normalized_p99=None)
    assert word == "good"
    assert "load is not judged: no load measured" in reasons
    assert "load is not judged: too little to judge: 99 requests" in judged(requests=99, top_load_share=None)[2]


def test_items_are_not_judged_where_there_are_few() -> None:
    word, _, reasons = judged(items=99, top_share=None, top_load_share=0.3)
    assert word == "poor"
    assert "bytes are not judged: too little to judge: 99 items" in reasons


def test_no_verdict_while_a_split_runs_or_shortly_after() -> None:
    running = judged(reshape="a split of partition 3 is under way", full=10)
    assert running == ("none", "a split of partition 3 is under way: judged when it is done", [])
    settling = judged(settled_s=12.0)
    assert settling[:2] == ("none", "partitions were split or merged a moment ago: judged again in 48 s")
    assert judged(settled_s=60.0)[0] == "good"


@pytest.mark.parametrize(
    ("share", "partitions", "word"),
    [(0.125, 4, "good"), (0.126, 4, "care"), (0.25, 4, "care"), (0.26, 4, "poor"), (0.02, 100, "poor")],
)
def test_keys_are_judged_by_how_many_partitions_they_are(share: float, partitions: int, word: str) -> None:
    assert judged(top_share=share, partitions=partitions)[0] == word
    assert judged(top_load_share=share, partitions=partitions)[0] == word


def test_one_partition_cannot_be_uneven() -> None:
    word, _, reasons = judged(partitions=1, top_share=0.9, top_load_share=0.9, laid_on=[(4, 3.6), (16, 14.4)])
    assert word == "good"
    [text] = [each for each in reasons if each.startswith("one partition: nothing can be uneven")]
    assert "3.6 times its fair share on 4 partitions, 14.4 times its fair share on 16 partitions" in text


@pytest.mark.parametrize(
    ("share", "word"), [(0.0, "good"), (0.01, "good"), (0.03, "care"), (0.05, "care"), (0.051, "poor")]
)
def test_refusals_are_judged_by_the_worst_partition(share: float, word: str) -> None:
    found, why, _ = judged(worst_refused_share=share, worst_partition=3)
    assert found == word
    assert word == "good" or "partition 3" in why


# Comparing.


def compared(*changes: dict[str, Any]) -> tuple[str | None, str, bool]:
    figures = [replace(FAIR, name=f"shop/{letter}", **change) for letter, change in zip("abcd", changes, strict=False)]
    found = compare([(each, judge(each)) for each in figures])
    return found.better, found.why, found.is_tie


def test_the_order_of_a_comparison() -> None:
    worse: list[dict[str, Any]] = [
        {"full": 432},
        {"worst_refused_share": 0.2, "worst_partition": 0},
        {"effective_keys": 30.0},
        {"charged_ru": 50_000.0},
    ]
    for change in worse:
        assert compared({}, change)[0] == "shop/a"
        assert compared(change, {})[0] == "shop/b"
    # What comes first decides, whatever comes later.
    assert compared({"effective_keys": 2.0}, {"full": 1})[0] == "shop/a"
    assert compared({}, {"full": 432})[1] == "0 writes refused for a full key instead of 432 (shop/b)"
    assert compared({"full": 3}, {}, {"full": 9})[0] == "shop/b"


def test_a_tie_is_called_a_tie() -> None:
    better, why, is_tie = compared({}, {"effective_keys": 960.0, "charged_ru": 25_500.0})
    assert (better, is_tie) == (None, True)
    assert why.startswith("a tie of shop/a, shop/b")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"items": 10_200}, "different items"),
        ({"size_bytes": 11_000_000}, "different items"),
        ({"from_s": 400.0, "to_s": 1_000.0}, "different times"),
        ({"reshape": "a split of partition 0 is under way"}, "is under way"),
        ({"items": 0, "requests": 0}, "too little to judge"),
    ],
)
def test_unfair_pairs_get_no_recommendation(change: dict[str, Any], reason: str) -> None:
    for one, other in (({}, change), (change, {})):
        better, why, is_tie = compared(one, other)
        assert better is None
        assert not is_tie
        assert why.startswith("no comparison: ")
        assert reason in why
    assert compared({}, {"items": 10_050, "size_bytes": 10_300_000, "full": 3})[0] == "shop/a"


# Measured containers.


class House(AccountHouse[VirtualClock]):
    async def write(self, container: Container, number: int, key: str, size_bytes: int = 100) -> bool:
        """Whether there was room under the key."""
        try:
            await self.put(container, {"id": str(number), "pk": key, "text": "x" * size_bytes})
        except Failure as failure:
            if failure.kind is not Kind.KEY_FULL:
                raise
            return False
        return True

    async def read(self, container: Container, number: int, key: str) -> None:
        await items.read(container, str(number), ItemOptions(key=Key((key,))))

    async def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.account.history.keep_up()

    async def judged(self, container: Container) -> tuple[str, str]:
        verdict = judge(await measure(self.account, container))
        return verdict.word, verdict.why


async def begin(**settings: Any) -> House:
    return await House.begin(MemoryEngine(), VirtualClock(), AccountSettings(**settings))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await begin()
    yield house
    await house.close()


async def test_the_container_that_was_called_well_spread() -> None:
    """6,000 items, Zipf 1.0 over 1,000 keys, with small limits: some writes find their key full."""
    house = await begin(partition_storage_bytes=1 << 20, logical_partition_bytes_max=400 << 10)
    container = await house.create()
    weights = [1 / rank for rank in range(1, 1_001)]
    counts = [round(6_000 * each / sum(weights)) for each in weights]
    number = refused = 0
    for rank, count in enumerate(counts, 1):
        for _ in range(count):
            number += 1
            refused += not await house.write(container, number, f"k{rank}", 800)
        if not rank % 100:
            await house.pass_s(1)
    assert 300 < refused < 600
    await passing(house.clock, idle(house))
    assert len(container.partitions) > 3
    await house.pass_s(60)
    figures = await measure(house.account, container)
    assert figures.full == refused  # also those of before the splits
    assert [each.key for each in figures.full_keys] == ['["k1"]', '["k2"]']
    verdict = judge(figures)
    assert verdict.word == "poor"
    assert verdict.why.startswith(f"{refused} writes were refused because a key is full (403/1014)")
    await house.close()


async def idle(house: House) -> None:
    while not house.account.reshaper.is_idle:
        await house.clock.sleep(0.1)


async def test_a_good_and_a_bad_key_of_the_same_items(house: House) -> None:
    good, bad = await house.create("good", 20_000), await house.create("bad", 20_000)
    countries = ["de"] * 76 + ["at"] * 12 + ["ch"] * 7 + ["fr"] * 5
    for number in range(300):
        await house.write(good, number, f"c-{number % 100}")
        await house.write(bad, number, countries[number % 100])
    found = [await measure(house.account, each) for each in (good, bad)]
    verdicts = [judge(each) for each in found]
    assert [each.word for each in verdicts] == ["good", "poor"]
    assert found[1].top_key == '["de"]'
    assert found[1].top_share == pytest.approx(0.76, abs=0.01)
    assert found[1].effective_keys == pytest.approx(1.67, rel=0.02)
    advice = compare(list(zip(found, verdicts, strict=True)))
    assert advice.better == "db/good"
    assert "effective keys" in advice.why


async def test_no_items_and_few_requests_are_too_little(house: House) -> None:
    container = await house.create()
    for number in range(12):
        await house.write(container, number, str(number))
    await house.pass_s(3_600)
    assert await house.judged(container) == ("none", "too little to judge: 12 items, 0 requests")


async def test_load_is_that_of_the_window(house: House) -> None:
    container = await house.create(throughput_ru=20_000)
    for number in range(200):
        await house.write(container, number, f"k{number}")
    for _ in range(500):
        await house.read(container, 7, "k7")
    for _ in range(15):
        await house.pass_s(60)
    for number in range(200):
        await house.read(container, number, f"k{number}")
    figures = await measure(house.account, container)
    assert figures.requests == 200
    assert figures.top_load_share == pytest.approx(1 / 200, rel=0.01)
    longer = await measure(house.account, container, 3_600.0)
    assert longer.requests == 900


async def test_nothing_is_judged_while_a_split_is_stopped(house: House) -> None:
    container = await house.create()
    for number in range(200):
        await house.write(container, number, f"k{number}")
    house.account.reshaper.pause(["copied"])
    reshape = await house.account.reshaper.split(container, 0, None)
    word, why = await house.judged(container)
    assert word == "none"
    assert why == "a split of partition 0 is under way: judged when it is done"
    house.account.reshaper.pause([])
    house.account.reshaper.advance(None)
    await passing(house.clock, house.account.reshaper.finished(reshape))
    word, why = await house.judged(container)
    assert word == "none"
    assert "judged again in" in why
    await house.pass_s(60)
    assert (await house.judged(container))[0] == "good"


async def test_one_partition_is_laid_on_more(house: House) -> None:
    container = await house.create(throughput_ru=6_000)
    for number in range(200):
        await house.write(container, number, f"k{number % 3}", 500)
    figures = await measure(house.account, container)
    assert [count for count, _ in figures.laid_on] == [4]
    assert figures.laid_on[0][1] > 1.3  # three keys lie on three of four partitions at best
    assert judge(figures).word == "good"
