"""Finds of what lies in a stretch of an index: without a sort they give as many as are wanted in any order, and with
one the order; whether documents have one key or several, in one partition or four."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from support.mongo_house import MongoHouse

SEED = 20261116
FOUR_RU = 24_000  # what makes four partitions


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    yield opened
    await opened.close()


async def _filled(house: MongoHouse, throughput_ru: int) -> list[dict[str, Any]]:
    made = await house.ask(
        {"customAction": "CreateCollection", "collection": "c", "shardKey": "s", "offerThroughput": throughput_ru}
    )
    assert made["ok"] == 1.0, made
    partitions = house.account.container("test", "c").partitions
    assert len(partitions) == (4 if throughput_ru == FOUR_RU else 1)
    dice = Random(SEED)
    documents = [{"_id": each, "s": f"s{each % 23}", "n": dice.randrange(100), "m": each % 7} for each in range(300)]
    assert (await house.ask({"insert": "c", "documents": documents}))["n"] == len(documents)
    for name in ("n", "m"):
        indexes = [{"key": {name: 1}, "name": f"{name}_1"}]
        assert (await house.ask({"createIndexes": "c", "indexes": indexes}))["ok"] == 1.0
    return documents


async def _found(house: MongoHouse, given: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answer = await house.ask({"find": "c", "filter": given, "batchSize": 1000, **more})
    found: list[dict[str, Any]] = answer["cursor"]["firstBatch"]
    return found


def _matches(value: Any, wanted: dict[str, int]) -> bool:
    """Each operator may be met by another element of an array."""
    values = value if isinstance(value, list) else [value]
    tests = {"$gt": int.__gt__, "$gte": int.__ge__, "$lt": int.__lt__}
    return all(any(tests[name](each, bound) for each in values) for name, bound in wanted.items())


@pytest.mark.parametrize("throughput_ru", [400, FOUR_RU])
@pytest.mark.parametrize("has_several", [False, True])
async def test_limits_of_stretches(house: MongoHouse, throughput_ru: int, has_several: bool) -> None:
    documents = await _filled(house, throughput_ru)
    if has_several:
        documents.append({"_id": 1000, "s": "s1", "n": [3, 70], "m": 1})
        await house.ask({"insert": "c", "documents": documents[-1:]})
    dice = Random(SEED + 1)
    for _ in range(40):
        low, high = sorted([dice.randrange(100), dice.randrange(100)])
        limit, skip = dice.choice([1, 5, 40, 1000]), dice.choice([0, 0, 3])
        given = {"n": {"$gte": low, "$lt": high}} if dice.random() < 0.7 else {"n": {"$gt": low}}
        matching = [each["_id"] for each in documents if _matches(each["n"], given["n"])]
        found = [each["_id"] for each in await _found(house, given, limit=limit, skip=skip)]
        case = f"seed {SEED}: {given}, limit {limit}, skip {skip}"
        assert len(found) == len(set(found)) == min(limit, max(0, len(matching) - skip)), case
        assert set(found) <= set(matching), case
        everything = [each["_id"] for each in await _found(house, given)]
        assert sorted(everything) == sorted(matching), case


@pytest.mark.parametrize("throughput_ru", [400, FOUR_RU])
async def test_sorts_of_stretches(house: MongoHouse, throughput_ru: int) -> None:
    await _filled(house, throughput_ru)
    for direction in (1, -1):
        for given in ({"n": {"$gte": 20, "$lt": 60}}, {"n": {"$in": [1, 50, 99]}}, {"n": {"$gt": 40}, "m": 3}):
            found = await _found(house, given, sort={"n": direction}, limit=30)
            whole = await _found(house, given)
            wanted = sorted([each["n"] for each in whole], reverse=direction < 0)[:30]
            assert [each["n"] for each in found] == wanted, (SEED, given, direction)


async def test_a_limit_costs_what_it_did_without_an_order(house: MongoHouse) -> None:
    """The walk over an index is how documents are found, not what was asked for: nothing is charged for its order."""
    await _filled(house, 400)
    charges = []
    for more in ({"limit": 5}, {"limit": 5, "sort": {"n": 1}}):
        assert len(await _found(house, {"n": {"$gte": 0}}, **more)) == 5
        charges.append((await house.ask({"getLastRequestStatistics": 1}))["RequestCharge"])
    assert charges[0] < charges[1]


async def test_words_are_searched_as_soon_as_there_is_an_index_of_them(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": 1, "t": "red house"}]})
    search = {"find": "c", "filter": {"$text": {"$search": "house"}}}
    assert (await house.ask(search))["code"] == 27
    assert (await house.ask({"createIndexes": "c", "indexes": [{"key": {"t": "text"}, "name": "t"}]}))["ok"] == 1.0
    assert [each["_id"] for each in (await house.ask(search))["cursor"]["firstBatch"]] == [1]
    assert (await house.ask({"dropIndexes": "c", "index": "t"}))["ok"] == 1.0
    assert (await house.ask(search))["code"] == 27
