"""Indexes of collections, made and dropped while documents are there: uniqueness, lives that end, what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from support.collections import Shop

from armillary.account.check import check_account
from armillary.account.collections import document_operations, indexes
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.indexes.index_definitions import read_definition
from armillary.model.bson.bson_values import decode, encode
from armillary.model.key_values import Key
from armillary.partition.document_changes import ChangeStatement


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    assert [problem async for problem in check_account(shop.engine, shop.clock)] == []
    await shop.close()


async def test_indexes_are_listed_and_survive_a_restart(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, *[{"_id": number, "a": number % 3, "at": DatetimeMS(number)} for number in range(20)])
    assert await shop.index(container, {"a": 1, "at": -1}) == 1
    assert await shop.index(container, {"a": 1.0, "at": Int64(-1)}) == 0
    partial = {"partialFilterExpression": {"at": {"$gt": DatetimeMS(5)}}}
    assert await shop.index(container, {"a": 1}, **partial) == 1
    names = [each["name"] for each in indexes.definitions(container)]
    assert names == ["_id_", "a_1_at_-1", "a_1"]
    await shop.reopen()
    container = shop.account.container("shop", "c")
    found = indexes.definitions(container)
    assert [each["name"] for each in found] == names
    assert encode(found[2]["partialFilterExpression"]) == encode(partial["partialFilterExpression"])
    await shop.insert(container, {"_id": 100, "a": [1, 2], "at": DatetimeMS(7)})
    await indexes.drop_indexes(shop.account, container, ["a_1", "a_1_at_-1"])
    await shop.account.restated(container)
    assert [each["name"] for each in indexes.definitions(container)] == ["_id_"]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"key": {"a": 1}, "name": "x"}, {"key": {"b": 1}, "name": "x"}, 86),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"a": 1}, "name": "y"}, 85),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"a": 1}, "name": "x", "unique": True}, 85),
        ({"key": {"a": 1}, "name": "x"}, {"key": {}, "name": "y"}, 67),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"b": "3d"}, "name": "y"}, 67),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"b": 1}, "name": "y", "odd": 1}, 197),
        ({"key": {"a": 1}, "name": "x"}, {"key": {"b": 1, "c": 1}, "name": "y", "expireAfterSeconds": 1}, 67),
    ],
)
async def test_definitions_that_are_refused(shop: Shop, first: Any, second: Any, code: int) -> None:
    container = await shop.collection()
    await indexes.create_indexes(shop.account, container, [read_definition(first)])
    with pytest.raises(Failure) as caught:
        await indexes.create_indexes(shop.account, container, [read_definition(second)])
    assert caught.value.details["code"] == code


async def test_unique_indexes_hold_and_are_given_up_where_documents_are_not(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, *[{"_id": number, "a": number, "b": number // 2} for number in range(300)])
    with pytest.raises(Failure) as caught:
        await shop.index(container, {"b": 1}, unique=True)
    assert caught.value.kind is Kind.CONFLICT and caught.value.details["index"] == "b_1"
    assert [each["name"] for each in indexes.definitions(container)] == ["_id_"]
    assert await shop.index(container, {"a": 1}, unique=True) == 1
    for same in (5, 5.0, [7, 1000]):
        with pytest.raises(Failure) as caught:
            await shop.insert(container, {"_id": "new", "a": same})
        assert caught.value.details["index"] == "a_1"
    with pytest.raises(Failure):
        await items.create(container, {"id": "sql", "a": 5}, ItemOptions(key=Key(())), shop.clock)
    await shop.insert(container, {"_id": "null"})
    with pytest.raises(Failure):
        await shop.insert(container, {"_id": "null too", "a": None})
    change = document_operations.changing(container, Key(()), 5, ChangeStatement({}, {"$set": {"a": "elsewhere"}}))
    await document_operations.write(container, change)
    await shop.insert(container, {"_id": "new", "a": 5})
    await indexes.drop_indexes(shop.account, container, ["a_1"])
    await shop.insert(container, {"_id": "free", "a": 5})
    await shop.account.restated(container)


async def test_writes_during_a_build_are_in_the_index(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, *[{"_id": number, "a": number} for number in range(500)])
    build = asyncio.create_task(shop.index(container, {"a": 1}, unique=True))
    for number in range(500, 600):
        await shop.insert(container, {"_id": number, "a": number})
    await build
    with pytest.raises(Failure):
        await shop.insert(container, {"_id": "x", "a": 550})
    with pytest.raises(Failure):
        await shop.insert(container, {"_id": "x", "a": 50})


async def test_unique_indexes_of_sharded_collections_hold_the_shard_key(shop: Shop) -> None:
    container = await shop.collection("region", throughput_ru=12_000)
    with pytest.raises(Failure) as caught:
        await shop.index(container, {"a": 1}, unique=True)
    assert caught.value.details["code"] == 67
    await shop.index(container, {"region": 1, "a": 1}, unique=True)
    await shop.insert(container, {"_id": 1, "region": "x", "a": 1}, {"_id": 1, "region": "y", "a": 1})
    with pytest.raises(Failure):
        await shop.insert(container, {"_id": 2, "region": "x", "a": 1})


async def test_parallel_arrays_stand_against_an_index(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "a": [1, 2], "b": [3, 4]})
    with pytest.raises(Failure) as caught:
        await shop.index(container, {"a": 1, "b": 1})
    assert caught.value.details["reason"] is Reason.PARALLEL_ARRAYS
    assert len(indexes.definitions(container)) == 1


async def test_dates_and_seconds_end_lives(shop: Shop) -> None:
    container = await shop.collection()
    now_ms = int(shop.clock.now_s() * 1000)
    await shop.insert(
        container,
        {"_id": 1, "at": DatetimeMS(now_ms), "ttl": 5},
        {"_id": 2, "at": DatetimeMS(now_ms + 500_000)},
        {"_id": 3, "at": "never"},
    )
    await shop.index(container, {"at": 1}, expireAfterSeconds=100)

    async def there() -> list[int]:
        return [
            number
            for number in (1, 2, 3)
            if (await document_operations.find(container, Key(()), number)).document is not None
        ]

    shop.clock.advance(50)
    assert await there() == [1, 2, 3]
    shop.clock.advance(51)
    assert await there() == [2, 3]
    await indexes.replace_index(shop.account, container, "at_1", lambda was: {**was, "expireAfterSeconds": 1000})
    shop.clock.advance(600)
    assert await there() == [1, 2, 3]  # no sweep has deleted it
    await indexes.drop_indexes(shop.account, container, ["at_1"])
    await shop.account.restated(container)
    await shop.index(container, {"_ts": 1}, expireAfterSeconds=1000)
    assert container.record.body["defaultTtl"] == 1000
    await shop.insert(container, {"_id": 4, "ttl": Int64(10)})
    shop.clock.advance(20)
    assert (await document_operations.find(container, Key(()), 4)).document is None
    assert await there() == [2, 3]
    shop.clock.advance(1000)
    assert await there() == []


async def test_items_of_the_sql_door_are_in_indexes_too(shop: Shop) -> None:
    container = await shop.collection("pk")
    for number in range(10):
        body = {"id": str(number), "pk": "a", "at": {"$date": {"$numberLong": str(number)}}}
        await items.create(container, body, ItemOptions(), shop.clock)
    await shop.index(container, {"pk": 1, "at": 1}, unique=True)
    with pytest.raises(Failure):
        await shop.insert(container, {"_id": "x", "pk": "a", "at": DatetimeMS(5)})
    found = await document_operations.find(container, Key(("a",)), "5")
    assert found.document is not None and decode(found.document)["at"] == DatetimeMS(5)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"a": {"$gt": 1}, "b": {"$exists": True}}, None),
        ({"$or": [{"a": 1}, {"a": {"$in": [2, 3]}}]}, None),
        ({"a": {"$exists": False}}, 67),
        ({"a": {"$ne": 1}}, 67),
        ({"a": {"$not": {"$gt": 1}}}, 67),
        ({"$expr": {"$eq": ["$a", 1]}}, 67),
        ({"$and": [{"$and": [{"$and": [{"$and": [{"a": 1}]}]}]}]}, 67),
    ],
)
def test_filters_of_partial_indexes(given: Any, code: int | None) -> None:
    definition = {"key": {"a": 1}, "name": "a", "partialFilterExpression": given}
    if code is None:
        assert read_definition(definition)["partialFilterExpression"] == given
        return
    with pytest.raises(Failure) as refused:
        read_definition(definition)
    assert refused.value.details["code"] == code
