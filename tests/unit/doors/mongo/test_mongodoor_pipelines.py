"""Pipelines through the door, where it matters what other collections and indexes there are: searches and places in
pipelines inside others, several indexes of places, collations, and what `$merge` and `$out` take and refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mongo_house import MongoHouse

CASELESS = {"locale": "en", "strength": 2}
HERE = {"type": "Point", "coordinates": [0, 0]}


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    yield opened
    await opened.close()


async def _fill(house: MongoHouse, name: str, documents: list[Any], *keys: dict[str, Any], **options: Any) -> None:
    indexes = [{"key": key, "name": "_".join(key), **options} for key in keys]
    if indexes:
        assert (await house.ask({"createIndexes": name, "indexes": indexes}))["ok"] == 1.0
    assert (await house.ask({"insert": name, "documents": documents}))["n"] == len(documents)


async def _aggregate(house: MongoHouse, name: Any, pipeline: list[Any], **options: Any) -> Any:
    """Documents, or the code of a refusal."""
    answer = await house.ask({"aggregate": name, "pipeline": pipeline, "cursor": {}, **options})
    return answer["cursor"]["firstBatch"] if answer["ok"] else answer["code"]


async def test_words_in_pipelines_inside_others(house: MongoHouse) -> None:
    await _fill(house, "plain", [{"_id": 1}])
    await _fill(house, "words", [{"_id": 1, "t": "red apple"}, {"_id": 2, "t": "green pear"}], {"t": "text"})
    search = [{"$match": {"$text": {"$search": "apple"}}}, {"$project": {"score": {"$meta": "textScore"}}}]
    joined = await _aggregate(house, "plain", [{"$lookup": {"from": "words", "pipeline": search, "as": "w"}}])
    assert [each["_id"] for each in joined[0]["w"]] == [1] and set(joined[0]["w"][0]) == {"_id", "score"}
    united = await _aggregate(house, "plain", [{"$unionWith": {"coll": "words", "pipeline": search[:1]}}])
    assert united == [{"_id": 1}, {"_id": 1, "t": "red apple"}]
    assert await _aggregate(house, "words", [{"$lookup": {"from": "plain", "pipeline": search, "as": "w"}}]) == 27


async def test_places_in_pipelines_inside_others(house: MongoHouse) -> None:
    await _fill(house, "plain", [{"_id": 1}])
    await _fill(house, "places", [{"_id": 1, "at": HERE}], {"at": "2dsphere"})
    near = {"$geoNear": {"near": HERE, "distanceField": "far"}}
    joined = await _aggregate(house, "plain", [{"$lookup": {"from": "places", "pipeline": [near], "as": "p"}}])
    assert joined == [{"_id": 1, "p": [{"_id": 1, "at": HERE, "far": 0.0}]}]


async def test_several_indexes_of_places(house: MongoHouse) -> None:
    await _fill(house, "c", [{"_id": 1, "a": HERE, "b": HERE}], {"a": "2dsphere"}, {"b": "2dsphere"})
    near = {"near": HERE, "distanceField": "far"}
    assert await _aggregate(house, "c", [{"$count": "n"}]) == [{"n": 1}]
    assert await _aggregate(house, "c", [{"$geoNear": near}]) == 27
    assert len(await _aggregate(house, "c", [{"$geoNear": {**near, "key": "b"}}])) == 1


async def test_places_and_collations(house: MongoHouse) -> None:
    await _fill(house, "c", [{"_id": 1, "at": HERE, "name": "A"}], {"at": "2dsphere"})
    near = [{"$geoNear": {"near": HERE, "distanceField": "far", "query": {"name": "a"}}}]
    assert await _aggregate(house, "c", near) == []
    assert len(await _aggregate(house, "c", near, collation=CASELESS)) == 1


async def test_joins_go_by_the_collation(house: MongoHouse) -> None:
    await _fill(house, "c", [{"_id": 1, "k": "a"}])
    await _fill(house, "other", [{"_id": 1, "k": "A"}, {"_id": 2, "k": "b"}], {"k": 1})
    join = [{"$lookup": {"from": "other", "localField": "k", "foreignField": "k", "as": "m"}}]
    assert (await _aggregate(house, "c", join))[0]["m"] == []
    assert (await _aggregate(house, "c", join, collation=CASELESS))[0]["m"] == [{"_id": 1, "k": "A"}]


async def test_what_merge_compares(house: MongoHouse) -> None:
    await _fill(house, "c", [{"_id": 1, "a": {"b": [1]}}, {"_id": 2, "a": [{"b": 1}]}, {"_id": 3, "a": {"b": None}}])
    await _fill(house, "t", [{"_id": 9, "a": {"b": 7}}], {"a.b": 1}, unique=True)
    for number, code in ((1, 51185), (2, 51185), (3, 51132)):
        stages = [{"$match": {"_id": number}}, {"$merge": {"into": "t", "on": "a.b"}}]
        assert await _aggregate(house, "c", stages) == code
    stages = [{"$match": {"_id": 3}}, {"$project": {"_id": 0}}, {"$merge": "made"}]
    assert await _aggregate(house, "c", stages) == []
    made = await _aggregate(house, "made", [])
    assert len(made) == 1 and made[0]["_id"] != 3


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"$out": "system.x"}, 17385),
        ({"$merge": "system.x"}, 31319),
        ({"$out": {"db": "admin", "coll": "x"}}, 31321),
        ({"$merge": {"into": {"db": "config", "coll": "x"}}}, 31320),
    ],
)
async def test_where_nothing_is_put(house: MongoHouse, stage: dict[str, Any], code: int) -> None:
    await _fill(house, "c", [{"_id": 1}])
    assert await _aggregate(house, "c", [stage]) == code


async def test_variables_of_commands(house: MongoHouse) -> None:
    await _fill(house, "c", [{"_id": 1, "a": 5}])
    shown = [{"$project": {"_id": 0, "y": "$$y"}}]
    assert await _aggregate(house, "c", shown, let={"x": 2, "y": {"$add": ["$$x", 1]}}) == [{"y": 3}]
    assert await _aggregate(house, "c", shown, let={"y": {"$add": ["$$x", 1]}, "x": 2}) == 17276
    assert await _aggregate(house, "c", shown, let={"y": "$a"}) == 4890500
    assert await _aggregate(house, "c", shown, let={"y": {"$literal": "$a"}}) == [{"y": "$a"}]
    ranks = {"p": "$$p", "input": "$a", "method": "approximate"}
    stages = [{"$group": {"_id": None, "r": {"$percentile": ranks}}}]
    assert await _aggregate(house, "c", stages, let={"p": [0.5]}) == [{"_id": None, "r": [5.0]}]
    assert await _aggregate(house, "c", stages, let={"p": 0.5}) == 7750301
