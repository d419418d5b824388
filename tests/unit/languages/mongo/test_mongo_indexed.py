"""Filters and sorts of collections give the same with indexes and without, on one partition and on several, and while
partitions split."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from support.collections import Shop
from support.mongo_author import MongoAuthor

from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.sorted_reading import SortedReading
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Reason
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.indexes.key_conditions import key_condition, usable_condition
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.model.bson.bson_values import decode, encode
from armillary.model.documents import BSON
from armillary.query.access.field_order import field_ordering
from armillary.query.conditions import All
from armillary.query.page import Counters
from armillary.query.selection import Selection, Stage

CONTEXT = Context.of(1_700_000_000_000, lambda: 0.5)
KEYS: list[dict[str, Any]] = [
    {"a": 1},
    {"b": -1},
    {"c": 1, "a": -1},
    {"a.b": 1},
    {"a.c": 1, "b": 1},
    {"a.b": 1, "a.c": -1},
    {"n": 1},
    {"g": 1, "n": -1},
    {"at": -1, "g": 1},
    {"text": 1},
]
OTHERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"$**": 1}, {}),
    ({"a.$**": 1}, {}),
    ({"b": 1}, {"sparse": True}),
    ({"a": 1, "n": 1}, {"sparse": True}),
    ({"n": -1}, {"partialFilterExpression": {"n": {"$lt": 30}, "g": "x"}}),
    ({"a": 1}, {"partialFilterExpression": {"a": {"$type": "number"}}}),
    ({"b": -1}, {"partialFilterExpression": {"b": {"$exists": True}}}),
    ({"c": -1}, {"partialFilterExpression": {"$and": [{"c": {"$gte": 0}}, {"g": {"$in": ["x", "y"]}}]}}),
]
SORTS: list[dict[str, int]] = [
    {"a": 1},
    {"a": -1},
    {"b": 1},
    {"n": 1},
    {"n": -1},
    {"g": 1, "n": -1},
    {"g": -1, "n": 1},
    {"at": 1},
    {"at": -1, "g": 1},
    {"text": -1},
    {"_id": -1},
]


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    assert [problem async for problem in check_account(shop.engine, shop.clock)] == []
    await shop.close()


def documents(seed: int, count: int) -> list[dict[str, Any]]:
    author, dice = MongoAuthor(seed), random.Random(seed)
    made = []
    for number in range(count):
        document = author.document(number)
        document |= {"pk": f"p{number % 9}", "n": dice.randrange(50), "g": dice.choice(["x", "y", 5])}
        document |= {"at": DatetimeMS(dice.randrange(10) * 1000), "text": "t" * dice.choice([3, 600]) + str(number % 7)}
        made.append(document)
    return made


async def found(
    shop: Shop, container: Container, given: dict[str, Any], counters: Counters | None = None
) -> dict[Any, bytes]:
    matcher = compile_filter(given, CONTEXT)
    selection = Selection(usable_condition(given), (Stage(predicate=matcher.matches),))
    rows: list[bytes] = []
    options = FeedOptions(form=BSON, page_items=37)
    while True:
        page = await item_pages.select(shop.account, container, selection, b"x", options)
        rows += page.rows
        if counters is not None:
            counters.add(page.counters)
        if page.continuation is None:
            return {decode(row)["_id"]: row for row in rows}
        options.continuation = page.continuation


async def in_order(
    shop: Shop,
    container: Container,
    given: dict[str, Any],
    sort: dict[str, int],
    skip: int = 0,
    take: int | None = None,
) -> SortedReading:
    fields = tuple([(path, direction < 0) for path, direction in sort.items()])
    matcher = compile_filter(given, CONTEXT)
    stage = Stage(predicate=matcher.matches, is_sure=True)
    selection = Selection(usable_condition(given), (stage,), ordering=field_ordering(fields), skip=skip, take=take)
    return SortedReading(shop.account, container, selection, FeedOptions(form=BSON))


async def all_of(reading: SortedReading, page_items: int = 23) -> list[dict[str, Any]]:
    rows: list[bytes] = []
    while not reading.is_done:
        rows += (await reading.page(page_items)).rows
    return [decode(row) for row in rows]


@pytest.mark.parametrize("kind", ["plain", "other"])
@pytest.mark.parametrize("throughput_ru", [400, 18_000])
async def test_filters_find_the_same_with_indexes_and_without(
    shop: Shop, throughput_ru: int, kind: str, seed: int
) -> None:
    container = await shop.collection("pk", throughput_ru)
    made = documents(seed, 150)
    await shop.insert(container, *made)
    for key, options in [(key, {}) for key in KEYS] if kind == "plain" else OTHERS:
        await try_index(shop, container, key, **options)
    author = MongoAuthor(seed + 1)
    useful = 0
    for number in range(250):
        given = author.filter()
        if number % 3 == 0:
            given["n"] = {"$gte": number % 40, "$lt": number % 40 + 5}
        if number % 7 == 0:
            given |= {"g": "x", "at": DatetimeMS(number % 10 * 1000)}
        matches = compile_filter(given, CONTEXT).matches
        useful += not isinstance(key_condition(given), All)
        expected = {each["_id"]: encode(each) for each in made if matches(each)}
        assert await found(shop, container, given) == expected, given
    assert useful > 50


async def try_index(shop: Shop, container: Container, key: dict[str, Any], **options: Any) -> None:
    """Where documents have two arrays there can be none."""
    try:
        await shop.index(container, key, **options)
    except Failure as failure:
        if failure.details["reason"] is not Reason.PARALLEL_ARRAYS:
            raise


@pytest.mark.parametrize("kind", ["none", "plain", "other"])
@pytest.mark.parametrize("throughput_ru", [400, 18_000])
async def test_sorts_are_those_of_the_language(shop: Shop, throughput_ru: int, kind: str, seed: int) -> None:
    dice = random.Random(seed)
    container = await shop.collection("pk", throughput_ru)
    made = documents(seed, 150)
    await shop.insert(container, *made)
    declared: dict[str, list[Any]] = {"none": [], "plain": [(key, {}) for key in KEYS], "other": OTHERS}
    for key, options in declared[kind]:
        await try_index(shop, container, key, **options)
    for sort in SORTS:
        compiled = compile_sort(sort)
        for given in ({}, {"n": {"$gte": 10, "$lt": 30}}, {"g": "x"}, {"g": {"$in": ["x", 5]}, "n": {"$gt": 40}}):
            matches = compile_filter(given, CONTEXT).matches
            expected = [compiled.key(each) for each in compiled.applied([each for each in made if matches(each)])]
            got = await all_of(await in_order(shop, container, given, sort))
            assert [compiled.key(each) for each in got] == expected, (sort, given)
            assert len({each["_id"] for each in got}) == len(got)
            skip, take = dice.randrange(20), dice.randrange(1, 30)
            some = await all_of(await in_order(shop, container, given, sort, skip, take))
            assert [compiled.key(each) for each in some] == expected[skip : skip + take]


async def test_indexes_are_used(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(
        container, *[{"_id": number, "n": number, "g": number % 10, "at": DatetimeMS(number)} for number in range(2000)]
    )
    for key in ({"n": 1}, {"g": 1, "at": -1}):
        await shop.index(container, key)
    await shop.index(container, {"at": 1}, partialFilterExpression={"at": {"$gte": DatetimeMS(1000)}})
    for given, most in (
        ({"n": 77}, 1),
        ({"n": {"$gte": 50, "$lt": 60}}, 10),
        ({"n": {"$in": [1, 2, 3]}}, 3),
        ({"$or": [{"n": 5}, {"_id": 7}]}, 2),
        ({"_id": {"$gt": 1990}}, 9),
        ({"g": 3, "at": {"$gte": DatetimeMS(1900)}}, 10),
        ({"at": {"$gt": DatetimeMS(1990)}}, 9),
    ):
        counters = Counters()
        assert len(await found(shop, container, given, counters)) == most
        assert counters.items_loaded <= most + 1, (given, counters)
        assert not counters.is_full_scan
    reading = await in_order(shop, container, {"g": 3}, {"at": -1}, take=5)
    page = await reading.page(5)
    assert [decode(row)["_id"] for row in page.rows] == [1993, 1983, 1973, 1963, 1953]
    assert page.counters.items_loaded <= 6
    newest = await in_order(shop, container, {}, {"n": -1}, take=3)
    page = await newest.page(3)
    assert [decode(row)["_id"] for row in page.rows] == [1999, 1998, 1997]
    assert page.counters.items_loaded <= 4


async def test_arrays_inside_arrays_are_found_with_an_index(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "a": [[5]]}, {"_id": 2, "a": [5]}, {"_id": 3, "a": [[{"b": 1}]]})
    await shop.index(container, {"a": 1})
    await shop.index(container, {"a.b": 1})
    for given, expected in (
        ({"a": {"$elemMatch": {"$elemMatch": {"$in": [5]}}}}, {1}),
        ({"a": {"$elemMatch": {"$in": [5]}}}, {2}),
        ({"a": {"$elemMatch": {"$eq": [5]}}}, {1}),
        ({"a": {"$elemMatch": {"$elemMatch": {"b": {"$gte": 1}}}}}, {3}),
        ({"a.0.b": 1}, {3}),
    ):
        assert set(await found(shop, container, given)) == expected, given


async def test_sorted_readings_go_on_over_splits_and_writes(shop: Shop, seed: int) -> None:
    container = await shop.collection("pk", 400)
    made = [{"_id": number, "pk": f"p{number % 50}", "n": number * 7919 % 1000} for number in range(1000)]
    await shop.insert(container, *made)
    plain = await in_order(shop, container, {}, {"n": 1})
    first = [decode(row) for row in (await plain.page(100)).rows]
    await shop.index(container, {"n": 1})
    indexed = await in_order(shop, container, {}, {"n": -1})
    last = [decode(row) for row in (await indexed.page(100)).rows]
    await shop.split(container)
    await shop.insert(container, {"_id": "array", "pk": "p1", "n": [-5, -6]})
    first += await all_of(plain)
    last += await all_of(indexed)
    assert [each["n"] for each in first if each["_id"] != "array"] == list(range(1000))
    assert [each["n"] for each in last if each["_id"] != "array"] == list(range(999, -1, -1))
    assert len(container.partitions) == 2
