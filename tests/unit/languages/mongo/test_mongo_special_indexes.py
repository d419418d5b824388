"""2dsphere and text indexes: filters find the same with them as without, look at few documents, and say so."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mongo_house import MongoHouse

from armillary.account.check import check_account
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.filters.text_search import text_index_of

CONTEXT = Context.of(1_700_000_000_000, lambda: 0.5)
WORDS = "coffee shop bakery running runner ran Straße café tea house the of gardens garden blue".split()


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    house = await MongoHouse.open()
    yield house
    assert [problem async for problem in check_account(house.engine, house.account.clock)] == []
    await house.close()


class Places:
    """Points, lines and areas: around one town, over the date line, at the poles, anywhere."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def point(self) -> list[float]:
        west, south, width, height = self._dice.choice(
            [(7.0, 46.0, 0.5, 0.5), (179.0, -20.0, 2.0, 3.0), (-180.0, 88.0, 360.0, 2.0), (-180.0, -90.0, 360.0, 180.0)]
        )
        longitude = west + self._dice.random() * width
        return [longitude - 360 if longitude > 180 else longitude, south + self._dice.random() * height]

    def near(self, place: list[float], reach: float) -> list[float]:
        longitude = place[0] + self._dice.uniform(-reach, reach)
        latitude = min(89.9, max(-89.9, place[1] + self._dice.uniform(-reach, reach)))
        return [(longitude + 180) % 360 - 180, latitude]

    def ring(self, reach: float) -> list[list[float]]:
        x, y = self.point()
        x, y = min(178.0, max(-178.0, x)), min(88.0, max(-88.0, y))
        size = self._dice.uniform(0.05, min(reach, 89 - abs(y), 179 - abs(x)))
        return [
            [x - size, y - size],
            [x + size, y - size],
            [x + size, y + size],
            [x - size, y + size],
            [x - size, y - size],
        ]

    def value(self) -> Any:
        place = self.point()
        return self._dice.choice(
            [
                {"type": "Point", "coordinates": place},
                {"type": "Point", "coordinates": place},
                place,
                {"lng": place[0], "lat": place[1]},
                {"type": "LineString", "coordinates": [place, self.near(place, 1.0), self.near(place, 1.0)]},
                {"type": "Polygon", "coordinates": [self.ring(1.0)]},
                {"type": "MultiPoint", "coordinates": [place, self.near(place, 5.0)]},
                [{"type": "Point", "coordinates": place}, {"type": "Point", "coordinates": self.point()}],
            ]
        )

    def filter(self) -> dict[str, Any]:
        kind = self._dice.randrange(6)
        point = {"type": "Point", "coordinates": self.point()}
        if kind == 0:
            return {"loc": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [self.ring(5.0)]}}}}
        if kind == 1:
            return {"loc": {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": [self.ring(5.0)]}}}}
        if kind == 2:
            line = {"type": "LineString", "coordinates": [point["coordinates"], self.near(self.point(), 2.0)]}
            return {"loc": {"$geoIntersects": {"$geometry": line}}}
        if kind == 3:
            return {"loc": {"$geoWithin": {"$centerSphere": [self.point(), self._dice.choice([0.0005, 0.01, 0.3, 4])]}}}
        if kind == 4:
            limits = {"$minDistance": 100.0, "$maxDistance": self._dice.choice([500.0, 20_000.0, 2e6, 3e7])}
            return {"loc": {"$near": {"$geometry": point, **limits}}}
        return {"loc": {"$nearSphere": self.point(), "$maxDistance": self._dice.choice([0.001, 0.05, 1.0])}}


async def filled(house: MongoHouse, documents: list[dict[str, Any]], key: dict[str, Any]) -> None:
    answer = await house.ask({"insert": "with", "documents": documents})
    assert answer["n"] == len(documents), answer
    indexes = [{"key": key, "name": "special"}]
    assert (await house.ask({"createIndexes": "with", "indexes": indexes}))["ok"] == 1.0


async def found(house: MongoHouse, name: str, given: dict[str, Any]) -> list[Any]:
    answer = await house.ask({"find": name, "filter": given, "projection": {"_id": 1}, "batchSize": 10_000})
    assert answer["ok"] == 1.0, (given, answer)
    return [each["_id"] for each in answer["cursor"]["firstBatch"]]


@pytest.mark.parametrize("key", [{"loc": "2dsphere"}, {"kind": 1, "loc": "2dsphere"}])
async def test_places_are_the_same_with_an_index(house: MongoHouse, key: dict[str, Any], seed: int) -> None:
    places = Places(seed)
    documents: list[dict[str, Any]] = [{"_id": number, "loc": places.value()} for number in range(90)]
    documents += [{"_id": "none"}, {"_id": "null", "loc": None}]
    await filled(house, documents, key)
    met = 0
    for _ in range(50):
        given = places.filter()
        matches = compile_filter(given, CONTEXT).matches
        expected = [str(each["_id"]) for each in documents if matches(each)]
        assert sorted(map(str, await found(house, "with", given))) == sorted(expected), given
        met += bool(expected)
    assert met > 8
    await house.ask({"delete": "with", "deletes": [{"q": {"_id": {"$type": "number"}}, "limit": 0}]})
    assert await found(house, "with", {"loc": {"$geoWithin": {"$centerSphere": [[7, 46], 9]}}}) == []


async def test_words_are_the_same_with_an_index(house: MongoHouse, seed: int) -> None:
    dice = random.Random(seed)

    def text() -> str:
        return " ".join(dice.choice(WORDS) for _ in range(dice.randrange(8)))

    documents = [{"_id": n, "title": text(), "body": [text(), {"x": text()}], "n": n} for n in range(150)]
    for key in ({"title": "text", "body": "text"}, {"$**": "text"}):
        await house.ask({"dropDatabase": 1})
        await filled(house, documents, key)
        for _ in range(20):
            wanted = dice.sample(WORDS, dice.choice([1, 1, 2]))
            given: dict[str, Any] = {"$text": {"$search": " ".join(wanted)}}
            if dice.random() < 0.3:
                given["n"] = {"$lt": 80}
            answer = await house.ask({"explain": {"find": "with", "filter": given}, "verbosity": "executionStats"})
            statistics = answer["executionStats"]
            assert answer["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "special"
            assert statistics["totalDocsExamined"] <= 150
            names = await found(house, "with", given)
            matches = compile_filter(given, CONTEXT, text_index=text_index_of({"key": key})).matches
            assert sorted(names) == [each["_id"] for each in documents if matches(each)], given


async def test_few_documents_are_looked_at(house: MongoHouse) -> None:
    documents = [
        {"_id": n, "loc": {"type": "Point", "coordinates": [n % 60, n // 60]}, "text": f"word{n} common"}
        for n in range(1200)
    ]
    await house.ask({"insert": "c", "documents": documents})
    await house.ask(
        {
            "createIndexes": "c",
            "indexes": [{"key": {"loc": "2dsphere"}, "name": "loc"}, {"key": {"text": "text"}, "name": "text"}],
        }
    )
    box = {"type": "Polygon", "coordinates": [[[3.5, 3.5], [6.5, 3.5], [6.5, 5.5], [3.5, 5.5], [3.5, 3.5]]]}
    origin = {"type": "Point", "coordinates": [10, 10]}
    for given, index, count in (
        ({"loc": {"$geoWithin": {"$geometry": box}}}, "loc", 6),
        ({"loc": {"$geoIntersects": {"$geometry": box}}}, "loc", 6),
        ({"loc": {"$near": {"$geometry": origin, "$maxDistance": 120_000}}}, "loc", 5),
        ({"loc": {"$geoWithin": {"$centerSphere": [[10, 10], 0.02]}}}, "loc", 5),
        ({"$text": {"$search": "word77 word78"}}, "text", 2),
        ({"$text": {"$search": "common"}}, "text", 1200),
    ):
        answer = await house.ask({"explain": {"find": "c", "filter": given}, "verbosity": "executionStats"})
        plan, statistics = answer["queryPlanner"]["winningPlan"], answer["executionStats"]
        assert plan["inputStage"]["indexName"] == index, (given, plan)
        assert statistics["nReturned"] == count
        assert statistics["totalDocsExamined"] <= 4 * count, (given, statistics)
    nearest = await house.ask({"find": "c", "filter": {"loc": {"$near": {"$geometry": origin}}}, "limit": 3})
    assert nearest["cursor"]["firstBatch"][0]["_id"] == 610


async def test_what_is_no_place_is_refused(house: MongoHouse) -> None:
    await house.ask({"createIndexes": "c", "indexes": [{"key": {"loc": "2dsphere"}, "name": "loc"}]})
    answer = await house.ask(
        {"insert": "c", "documents": [{"_id": 1, "loc": {"type": "Point", "coordinates": [500, 1]}}]}
    )
    assert answer["writeErrors"][0]["code"] == 16755
    await house.ask({"insert": "d", "documents": [{"_id": 1, "loc": "nowhere"}]})
    answer = await house.ask({"createIndexes": "d", "indexes": [{"key": {"loc": "2dsphere"}, "name": "loc"}]})
    assert answer["code"] == 16755
    assert len((await house.ask({"listIndexes": "d"}))["cursor"]["firstBatch"]) == 1
    near = {"place": {"$near": {"$geometry": {"type": "Point", "coordinates": [1, 1]}}}}
    assert (await house.ask({"find": "c", "filter": near}))["code"] == 291
    assert (await house.ask({"insert": "c", "documents": [{"_id": 2}, {"_id": 3, "loc": None}]}))["n"] == 2


async def test_the_nearest_of_a_pipeline_are_read_off_the_index(house: MongoHouse) -> None:
    documents = [
        {"_id": n, "loc": {"type": "Point", "coordinates": [n % 60, n // 60]}, "even": n % 2 == 0} for n in range(1200)
    ]
    await filled(house, documents, {"loc": "2dsphere"})
    near = {
        "near": {"type": "Point", "coordinates": [10, 10]},
        "distanceField": "apart",
        "maxDistance": 160_000,
        "query": {"even": True},
    }
    command = {"aggregate": "with", "pipeline": [{"$geoNear": near}, {"$project": {"_id": 1}}], "cursor": {}}
    answer = await house.ask(command)
    assert sorted(each["_id"] for each in answer["cursor"]["firstBatch"]) == [550, 610, 670]
    statistics = (await house.ask({"getLastRequestStatistics": 1}))["RequestCharge"]
    await house.ask({**command, "pipeline": [{"$match": {"even": {"$ne": None}}}]})
    assert statistics * 5 < (await house.ask({"getLastRequestStatistics": 1}))["RequestCharge"]
