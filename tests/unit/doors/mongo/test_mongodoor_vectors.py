"""Vector indexes and searches of Azure Cosmos DB for MongoDB vCore: the scores are those of DocumentDB's own tests, and
what that service refuses is refused."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mongo_house import MongoHouse

IVF = {"kind": "vector-ivf", "numLists": 2, "similarity": "COS", "dimensions": 3}
HNSW = {"kind": "vector-hnsw", "m": 16, "efConstruction": 64, "similarity": "COS", "dimensions": 3}
DISKANN = {"kind": "vector-diskann", "maxDegree": 32, "lBuild": 50, "lSearch": 40, "similarity": "COS", "dimensions": 3}
QUERY = [3.0, 4.9, 1.0]


class Collection:
    def __init__(self, house: MongoHouse) -> None:
        self.house = house

    async def index(self, options: Any, name: str = "vectors", **more: Any) -> dict[str, Any]:
        index = {"key": {"v": "cosmosSearch"}, "name": name, "cosmosSearchOptions": options, **more}
        return await self.house.ask({"createIndexes": "c", "indexes": [index]})

    async def insert(self, *documents: dict[str, Any]) -> dict[str, Any]:
        return await self.house.ask({"insert": "c", "documents": list(documents)})

    async def ask(self, *stages: dict[str, Any]) -> dict[str, Any]:
        return await self.house.ask({"aggregate": "c", "pipeline": list(stages), "cursor": {}})

    async def rows(self, *stages: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await self.ask(*stages)
        assert answer["ok"] == 1, answer
        return list(answer["cursor"]["firstBatch"])

    async def found(self, **search: Any) -> list[tuple[Any, float]]:
        """Ids and scores."""
        given = {"cosmosSearch": {"vector": QUERY, "path": "v", "k": 2, **search}}
        rows = await self.rows({"$search": given}, {"$project": {"score": {"$meta": "searchScore"}}})
        return [(row["_id"], row["score"]) for row in rows]


@pytest.fixture
async def collection() -> AsyncIterator[Collection]:
    house = await MongoHouse.open()
    made = Collection(house)
    await made.insert(
        {"_id": 6, "a": "some sentence", "v": [3.0, 5.0, 1.1]},
        {"_id": 7, "a": "some other sentence", "v": [8.0, 5.0, 0.1]},
        {"_id": 8, "a": "without a vector"},
        {"_id": 9, "a": "words are no vector", "v": ["3", "5", "1"]},
    )
    yield made
    await house.close()


@pytest.mark.parametrize("options", [IVF, HNSW, DISKANN], ids=lambda options: options["kind"])
@pytest.mark.parametrize(
    ("similarity", "scores"),
    [
        ("COS", [(6, 0.99986126308999), (7, 0.88331075895983)]),
        ("IP", [(7, 48.59999847412109), (6, 34.59999847412109)]),
        ("L2", [(6, 0.14142130855868), (7, 5.08133837633593)]),
    ],
)
async def test_scores(
    collection: Collection, options: dict[str, Any], similarity: str, scores: list[tuple[int, float]]
) -> None:
    await collection.index({**options, "similarity": similarity})
    found = await collection.found()
    assert [each for each, _ in found] == [each for each, _ in scores]
    assert [score for _, score in found] == pytest.approx([score for _, score in scores], rel=2e-6)


async def test_documents_carry_their_scores_as_those_of_the_service(collection: Collection) -> None:
    await collection.index(IVF)
    wanted = {"vector": QUERY, "path": "v", "k": 1, "index": "vectors"}
    search = {"$search": {"cosmosSearch": wanted, "returnStoredSource": True}}
    (row,) = await collection.rows(search)
    assert list(row) == ["_id", "a", "v", "__cosmos_meta__"]
    native = {"$vectorSearch": {"queryVector": QUERY, "path": "v", "limit": 1, "numCandidates": 10, "index": "vectors"}}
    assert await collection.rows(native) == [row]
    score = {"$project": {"_id": 0, "score": {"$meta": "vectorSearchScore"}, "document": "$$ROOT"}}
    assert await collection.rows(native, score) == [{"score": row["__cosmos_meta__"]["score"], "document": row}]
    again = {"$project": {"score": {"$meta": "searchScore"}}}
    assert await collection.rows(search, {"$project": {"a": 1}}, again) == [{"_id": 6}], "the score was projected away"


async def test_filters_need_an_index(collection: Collection) -> None:
    await collection.index(IVF)
    only = {"a": {"$in": ["some other sentence", "without a vector"]}}
    refused = await collection.ask(
        {"$search": {"cosmosSearch": {"vector": QUERY, "path": "v", "k": 2, "filter": only}}}
    )
    assert refused["code"] == 2 and "The index for filter path 'a' was not found" in refused["errmsg"]
    await collection.house.ask({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]})
    assert [each for each, _ in await collection.found(filter=only)] == [7]
    both = {"$or": [only, {"_id": {"$lt": 7}}]}
    assert [each for each, _ in await collection.found(filter=both)] == [6, 7]


async def test_sharded_collections_are_searched_without_filters(collection: Collection) -> None:
    ask = collection.house.ask
    await ask({"enableSharding": "test"}, database="admin")
    sharded = await ask({"shardCollection": "test.s", "key": {"pk": "hashed"}}, database="admin")
    assert sharded["ok"] == 1
    index = {"key": {"v": "cosmosSearch"}, "name": "v", "cosmosSearchOptions": {**IVF, "similarity": "L2"}}
    assert (await ask({"createIndexes": "s", "indexes": [index]}))["ok"] == 1
    await ask({"insert": "s", "documents": [{"_id": n, "pk": f"k{n}", "v": [n, 0, 0]} for n in range(20)]})
    search = {"vector": [4.4, 0, 0], "path": "v", "k": 3}
    answer = await ask({"aggregate": "s", "pipeline": [{"$search": {"cosmosSearch": search}}], "cursor": {}})
    assert [row["_id"] for row in answer["cursor"]["firstBatch"]] == [4, 5, 3]
    search["filter"] = {"pk": "k4"}
    answer = await ask({"aggregate": "s", "pipeline": [{"$search": {"cosmosSearch": search}}], "cursor": {}})
    assert (answer["code"], answer["errmsg"]) == (
        115,
        "Filter is not supported for vector search on sharded collection.",
    )


async def test_vectors_of_another_length_are_refused(collection: Collection) -> None:
    await collection.index(IVF)
    (error,) = (await collection.insert({"_id": 1, "v": [3.0, 5.0]}))["writeErrors"]
    assert (error["code"], error["errmsg"]) == (130, "expected 3 dimensions, not 2")
    update = {"q": {"_id": 6}, "u": {"$push": {"v": 1}}}
    (error,) = (await collection.house.ask({"update": "c", "updates": [update]}))["writeErrors"]
    assert error["code"] == 130
    (error,) = (await collection.insert({"_id": 1, "v": [3.0, math.inf, 1.0]}))["writeErrors"]
    assert error["code"] == 2
    answer = await collection.ask({"$search": {"cosmosSearch": {"vector": [1, 2], "path": "v", "k": 1}}})
    assert answer["code"] == 130
    failed = await collection.house.ask(
        {
            "createIndexes": "c",
            "indexes": [{"key": {"v": "cosmosSearch"}, "name": "w", "cosmosSearchOptions": {**IVF, "dimensions": 4}}],
        }
    )
    assert failed["code"] in (85, 130)


async def test_indexes_are_listed_as_given_and_conflict(collection: Collection) -> None:
    assert (await collection.index(HNSW))["numIndexesAfter"] == 2
    assert (await collection.index(HNSW))["numIndexesAfter"] == 2
    assert (await collection.index({**HNSW, "similarity": "L2"}))["code"] == 85
    listed = (await collection.house.ask({"listIndexes": "c"}))["cursor"]["firstBatch"]
    assert listed[1] == {"v": 2, "key": {"v": "cosmosSearch"}, "name": "vectors", "cosmosSearchOptions": HNSW}
    assert (await collection.house.ask({"find": "c", "filter": {"v": 5.0}}))["cursor"]["firstBatch"][0]["_id"] == 6
    assert (await collection.house.ask({"dropIndexes": "c", "index": "vectors"}))["ok"] == 1
    answer = await collection.ask({"$search": {"cosmosSearch": {"vector": QUERY, "path": "v", "k": 1}}})
    assert (answer["code"], answer["errmsg"]) == (
        2,
        "Similarity index was not found for a vector similarity search query.",
    )


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (None, "options were not provided"),
        ({}, "kind must be specified"),
        ({**IVF, "kind": "vector-other"}, "Invalid search index kind"),
        ({**IVF, "dimensions": 1}, "dimensions greater than 1"),
        ({**IVF, "dimensions": 2_001}, "more than 2000 dimensions"),
        ({**IVF, "dimensions": 4_001, "compression": "half"}, "more than 4000 dimensions"),
        ({**IVF, "dimensions": "3"}, "must be a number not string"),
        ({**IVF, "similarity": "EUCLID"}, "Invalid search index distance kind"),
        ({"kind": "vector-ivf", "dimensions": 3}, "similarity metric"),
        ({**IVF, "numLists": 0}, "numLists must be from 1"),
        ({**IVF, "compression": "pq"}, "not supported for vector-ivf"),
        ({**HNSW, "m": 40}, "2 * m"),
        ({**HNSW, "numLists": 4}, "has no option 'numLists'"),
        ({**DISKANN, "lBuild": 5}, "lBuild must be from 10"),
        ({**DISKANN, "lSearch": 9}, "lSearch must be from 10"),
        ({**HNSW, "lSearch": 40}, "has no option 'lSearch'"),
    ],
)
async def test_definitions_that_are_refused(collection: Collection, options: Any, part: str) -> None:
    index = {"key": {"v": "cosmosSearch"}, "name": "v"} | ({} if options is None else {"cosmosSearchOptions": options})
    answer = await collection.house.ask({"createIndexes": "c", "indexes": [index]})
    assert answer["code"] == 67 and part in answer["errmsg"]


async def test_options_of_other_indexes_are_refused(collection: Collection) -> None:
    for more in ({"unique": True}, {"key": {"v": "cosmosSearch", "w": 1}}, {"key": {"v": 1}}):
        assert (await collection.index(IVF, **more))["code"] == 67, more


@pytest.mark.parametrize(
    "search",
    [
        *({"k": 0}, {"k": "1"}, {"k": None}, {"vector": []}, {"vector": ["a"]}, {"vector": None}, {"path": 1}),
        *({"path": "w"}, {"filter": 1}, {"exact": 1}, {"nProbes": 0}, {"efSearch": 1_001}, {"lSearch": 9}),
        *({"oversampling": 0.5}, {"oversampling": 2}, {"other": 1}, {"filter": {"$where": "true"}}),
    ],
    ids=str,
)
async def test_searches_that_are_refused(collection: Collection, search: dict[str, Any]) -> None:
    await collection.index(IVF)
    given = {"vector": QUERY, "path": "v", "k": 1, **search}
    assert (await collection.ask({"$search": {"cosmosSearch": given}}))["code"] == 2
    for name in ("vector", "path", "k"):
        rest = {each: value for each, value in given.items() if each != name}
        assert (await collection.ask({"$search": {"cosmosSearch": rest}}))["code"] == 2


async def test_a_search_in_a_nested_pipeline(collection: Collection) -> None:
    await collection.index(IVF)
    search = {"$search": {"cosmosSearch": {"vector": QUERY, "path": "v", "k": 1}}}
    union = {"$unionWith": {"coll": "c", "pipeline": [search, {"$project": {"_id": 1}}]}}
    assert await collection.rows({"$match": {"_id": 7}}, {"$project": {"_id": 1}}, union) == [{"_id": 7}, {"_id": 6}]


async def test_the_nearest_of_many_are_those_of_a_sort(collection: Collection, seed: int) -> None:
    dice = random.Random(f"{seed}/vectors")
    await collection.house.ask({"drop": "c"})
    await collection.index({**IVF, "similarity": "L2"})
    vectors = {n: [float(dice.randint(-9, 9)) for _ in range(3)] for n in range(1_500)}
    await collection.insert(*[{"_id": n, "v": vector} for n, vector in vectors.items()])
    for k in (1, 7, 100):
        query = [dice.uniform(-9, 9) for _ in range(3)]
        expected = sorted(math.dist(query, vector) for vector in vectors.values())[:k]
        found = await collection.found(vector=query, k=k)
        assert [score for _, score in found] == pytest.approx(expected, rel=1e-5)
