"""Random filters, updates and pipelines through the door: collections with indexes, without, and spread over partitions
give what the slow reference gives. What the language does alone is held against the reference in
`test_mongo_differential.py` and `test_mongo_pipeline_differential.py`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import mongo_reference
from support.mongo_author import MongoAuthor
from support.mongo_cases import exact, nearly_exact
from support.mongo_house import MongoHouse
from support.mongo_pipeline_author import PipelineAuthor
from support.mongo_pipeline_reference import Oracle
from support.mongo_reference import Refused

from armillary.account.check import check_account
from armillary.account.registry import AccountSettings

SEEDS = [random.Random(20261116 + place).getrandbits(32) for place in range(4)]
FILTERS, UPDATES, PIPELINES = 950, 750, 800  # for each seed: 10,000 in all
PLAIN, INDEXED, SPREAD = "plain", "indexed", "spread"
KEYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {}),
    ({"b": -1}, {}),
    ({"a.b": 1}, {}),
    ({"b": 1, "_id": 1}, {}),
    ({"c": 1}, {"sparse": True}),
    ({"a.c": 1}, {"partialFilterExpression": {"a.c": {"$gte": 0}}}),
    ({"c.$**": 1}, {}),
]
PIPELINE_KEYS = ["n", "k", "s", "v", "w.x", "o.p"]


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    house = await MongoHouse.open(account=AccountSettings(partition_throughput_ru=200))
    yield house
    assert [problem async for problem in check_account(house.engine, house.account.clock)] == []
    await house.close()


async def done(house: MongoHouse, command: dict[str, Any]) -> dict[str, Any]:
    answer = await house.ask(command)
    assert answer["ok"] == 1.0, (command, answer)
    return answer


async def collections(house: MongoHouse) -> None:
    await done(house, {"create": PLAIN})
    await done(house, {"shardCollection": f"test.{SPREAD}", "key": {"_id": 1}})
    for name in (INDEXED, SPREAD):
        wanted = [{"key": key, "name": str(place), **options} for place, (key, options) in enumerate(KEYS)]
        await done(house, {"createIndexes": name, "indexes": wanted})


async def found(house: MongoHouse, name: str, given: dict[str, Any], **options: Any) -> list[Any]:
    answer = await done(house, {"find": name, "filter": given, "batchSize": 1000, **options})
    return list(answer["cursor"]["firstBatch"])


@pytest.mark.parametrize("seed", SEEDS)
async def test_filters(house: MongoHouse, seed: int) -> None:
    author = MongoAuthor(seed)
    await collections(house)
    documents = [author.document(number) for number in range(30)]
    for name in (PLAIN, INDEXED, SPREAD):
        assert (await done(house, {"insert": name, "documents": documents}))["n"] == 30
    for number in range(FILTERS):
        given = author.filter()
        expected = [document["_id"] for document in documents if mongo_reference.matches(given, document)]
        for name in (PLAIN, INDEXED) if number % 4 else (PLAIN, INDEXED, SPREAD):
            rows = await found(house, name, given, projection={"_id": 1})
            assert sorted(row["_id"] for row in rows) == expected, f"seed {seed}: {name}: {given}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_updates(house: MongoHouse, seed: int) -> None:
    author = MongoAuthor(seed + 1)
    await collections(house)
    documents, statements, expected = [], [], []
    for number in range(UPDATES):
        document = author.document(number)
        update, filters = author.update()
        documents.append(document)
        statements.append({"q": {"_id": number}, "u": update, **({"arrayFilters": filters} if filters else {})})
        expected.append(expected_of(update, filters, document))
    for name in (PLAIN, INDEXED, SPREAD):
        await done(house, {"insert": name, "documents": documents})
        answer = await done(house, {"update": name, "updates": statements, "ordered": False})
        refused = {each["index"]: each["code"] for each in answer.get("writeErrors", [])}
        after = await found(house, name, {}, sort={"_id": 1})
        assert len(after) == UPDATES
        for number, (wanted, code) in enumerate(expected):
            told = f"seed {seed}: {name}: {statements[number]} on {documents[number]}"
            if code is None:
                assert number not in refused, (told, refused.get(number))
            else:
                assert code in (0, refused.get(number)), told
                wanted = after[number] if code == 0 and number not in refused else documents[number]
            assert exact(after[number]) == exact(wanted), told


def expected_of(
    update: dict[str, Any], filters: list[dict[str, Any]], document: dict[str, Any]
) -> tuple[dict[str, Any] | None, int | None]:
    """The document, or the code of the refusal; 0 where one of several may come first, or none."""
    named = {next(iter(each)).split(".")[0]: each for each in filters}
    used = {part[2:-1] for fields in update.values() for path in fields for part in path.split(".") if "$[" in part}
    if set(named) - used:
        return None, 9
    if used - set(named) - {""}:
        return None, 2
    try:
        return mongo_reference.updated(update, document, named, None), None
    except Refused as refused:
        return None, refused.code if sum(map(len, update.values())) == 1 else 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_pipelines(house: MongoHouse, seed: int) -> None:
    author = PipelineAuthor(seed)
    for number in range(PIPELINES):
        if number % 100 == 0:
            made = author.collections()
            await done(house, {"dropDatabase": 1})
            for name, documents in (("c", made["c"]), ("o", made["o"]), ("indexed", made["c"])):
                await done(house, {"insert": name, "documents": documents})
            # No sort can be read off a sparse index, so that equal documents stay in their order.
            wanted = [{"key": {path: 1}, "name": path, "sparse": True} for path in PIPELINE_KEYS]
            for name in ("o", "indexed"):
                await done(house, {"createIndexes": name, "indexes": wanted})
        pipeline = author.pipeline()
        try:
            expected = [nearly_exact(each) for each in Oracle(made).run(pipeline, made["c"])]
        except Refused:
            expected = None
        for name in ("c", "indexed"):
            answer = await house.ask({"aggregate": name, "pipeline": pipeline, "cursor": {"batchSize": 10_000}})
            if expected is None:
                # What a limit or an index keeps from being looked at cannot be refused.
                is_spared = name == "indexed" or "$limit" in str(pipeline)
                assert answer["ok"] == 0.0 or is_spared, f"seed {seed}: {pipeline}"
                continue
            assert answer["ok"] == 1.0, f"seed {seed}: {name}: {pipeline}: {answer}"
            rows = [nearly_exact(each) for each in answer["cursor"]["firstBatch"]]
            assert rows == expected, f"seed {seed}: {name}: {pipeline}"
