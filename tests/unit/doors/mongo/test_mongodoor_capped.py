"""Capped collections and tailable cursors through the MongoDB door, in process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from support.mongo_house import MongoHouse

from armillary.account.check import check_account
from armillary.clock import SystemClock
from armillary.storage.memory import MemoryEngine


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open(clock=SystemClock())
    yield opened
    await opened.close()


async def insert(house: MongoHouse, *ids: int, text: str = "") -> dict[str, Any]:
    return await house.ask({"insert": "c", "documents": [{"_id": each, "text": text} for each in ids]})


async def ids(house: MongoHouse, **options: Any) -> list[int]:
    found = await house.ask({"find": "c", **options})
    return [each["_id"] for each in found["cursor"]["firstBatch"]]


async def more(house: MongoHouse, cursor: int, **options: Any) -> dict[str, Any]:
    return await house.ask({"getMore": Int64(cursor), "collection": "c", **options})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"capped": True}, 72),
        ({"size": 4096}, 72),
        ({"max": 3}, 72),
        ({"capped": True, "size": 0}, 51024),
        ({"capped": True, "size": "much"}, 14),
        ({"capped": True, "size": 4096, "max": 1 << 31}, 2),
    ],
)
async def test_options_that_make_no_sense(house: MongoHouse, options: dict[str, Any], code: int) -> None:
    assert (await house.ask({"create": "c", **options}))["code"] == code


async def test_the_oldest_go(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 5000, "max": 3})
    assert (await insert(house, 5, 4, 3, 2, 1))["n"] == 5
    assert await ids(house) == [3, 2, 1], "in the order they came"
    assert await ids(house, sort={"$natural": -1}) == await ids(house, hint={"$natural": -1}) == [1, 2, 3]
    await insert(house, 9)
    assert await ids(house, hint={"$natural": 1}) == [2, 1, 9]
    assert (await house.ask({"count": "c"}))["n"] == 3
    listed = await house.ask({"listCollections": 1})
    assert listed["cursor"]["firstBatch"][0]["options"] == {"capped": True, "size": 5120, "max": 3}
    measured = await house.ask({"collStats": "c"})
    assert (measured["capped"], measured["max"], measured["maxSize"], measured["count"]) == (True, 3, 5120, 3)
    await house.ask({"collMod": "c", "cappedMax": 1})
    await insert(house, 10)
    assert await ids(house) == [10]
    await house.ask({"delete": "c", "deletes": [{"q": {"_id": 10}, "limit": 1}]})
    assert await ids(house) == []


async def test_by_size(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096})
    await insert(house, *range(10), text="x" * 1000)
    assert await ids(house) == [7, 8, 9]
    refused = await insert(house, 99, text="x" * 5000)
    assert refused["writeErrors"][0]["errmsg"] == "object to insert exceeds cappedMaxSize"
    await house.ask({"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": {"text": "y" * 2500}}}]})
    assert await ids(house) == [8, 9], "a document that grows pushes others out"
    assert [each async for each in check_account(house.engine, house.account.clock)] == []


async def test_what_cannot_be_capped(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096})
    shard = {"shardCollection": "test.c", "key": {"a": 1}}
    assert (await house.ask(shard, database="admin"))["code"] == 72
    session = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False}
    begun = await house.ask({"insert": "c", "documents": [{}], "startTransaction": True, **session})
    assert begun["code"] == 263
    out = await house.ask({"aggregate": "d", "pipeline": [{"$out": "c"}], "cursor": {}})
    assert out["code"] == 17152
    assert (await house.ask({"collMod": "c", "cappedSize": 8192}))["ok"] == 1
    await house.ask({"create": "d"})
    assert (await house.ask({"collMod": "d", "cappedSize": 8192}))["code"] == 72


async def test_converted_and_cloned(house: MongoHouse) -> None:
    await insert(house, *range(8), text="x" * 1000)
    assert (await house.ask({"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 4096}))["ok"] == 1
    assert (await house.ask({"count": "d"}))["n"] == 3 and (await house.ask({"count": "c"}))["n"] == 8
    assert (await house.ask({"convertToCapped": "c", "size": 4096}))["ok"] == 1
    assert await ids(house) == [5, 6, 7]
    await insert(house, 8, text="x" * 1000)
    assert await ids(house) == [6, 7, 8]
    assert (await house.ask({"convertToCapped": "nowhere", "size": 4096}))["code"] == 26


async def test_over_a_restart() -> None:
    engine = MemoryEngine()
    first = await MongoHouse.open(engine)
    await first.ask({"create": "c", "capped": True, "size": 4096, "max": 2})
    await insert(first, 1, 2, 3)
    await first.door.close()
    await first.account.close()
    second = await MongoHouse.open(engine)
    await insert(second, 4)
    assert await ids(second) == [3, 4]
    await second.close()


# Tailable cursors.


async def test_tailing(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096, "max": 3})
    empty = await house.ask({"find": "c", "tailable": True})
    assert empty["cursor"]["id"] == 0, "nothing is waited for in an empty collection"
    await insert(house, 1, 2)
    opened = await house.ask({"find": "c", "tailable": True, "filter": {"_id": {"$ne": 2}}, "projection": {"text": 0}})
    cursor = opened["cursor"]["id"]
    assert opened["cursor"]["firstBatch"] == [{"_id": 1}] and cursor
    assert (await more(house, cursor))["cursor"]["nextBatch"] == []
    await insert(house, 3)
    told = (await more(house, cursor))["cursor"]
    assert told["nextBatch"] == [{"_id": 3}] and told["id"] == cursor
    await insert(house, 4, 5, 6)
    assert (await more(house, cursor))["code"] == 136, "what was seen last is gone"
    assert (await more(house, cursor))["code"] == 43


async def test_waiting_for_more(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096})
    await insert(house, 1)
    opened = await house.ask({"find": "c", "tailable": True, "awaitData": True})
    cursor = opened["cursor"]["id"]
    assert (await more(house, cursor, maxTimeMS=1))["cursor"]["nextBatch"] == []
    waiting = asyncio.create_task(more(house, cursor, maxTimeMS=60_000))
    await asyncio.sleep(0)
    await insert(house, 2)
    assert [each["_id"] for each in (await waiting)["cursor"]["nextBatch"]] == [2]
    waiting = asyncio.create_task(more(house, cursor, maxTimeMS=60_000))
    await asyncio.sleep(0)
    await house.ask({"drop": "c"})
    assert (await waiting)["code"] == 175, "the collection is gone"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"tailable": True, "sort": {"_id": 1}}, 9),
        ({"tailable": True, "singleBatch": True}, 9),
        ({"awaitData": True}, 9),
    ],
)
async def test_what_cannot_be_tailed(house: MongoHouse, options: dict[str, Any], code: int) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096})
    assert (await house.ask({"find": "c", **options}))["code"] == code
    await house.ask({"create": "d"})
    assert (await house.ask({"find": "d", "tailable": True}))["code"] == 2


async def test_newest_first_over_many_portions(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": each} for each in range(1300)]})
    given = {"filter": {"_id": {"$gte": 10}}, "sort": {"$natural": -1}, "batchSize": 2000}
    assert await ids(house, **given) == list(range(1299, 9, -1))
    assert await ids(house, **given, limit=3, skip=1) == [1298, 1297, 1296]


async def test_random_writes_against_a_list(seed: int) -> None:
    dice = random.Random(seed)
    engine = MemoryEngine()
    house = await MongoHouse.open(engine)
    size, most = 6144, 12
    await house.ask({"create": "c", "capped": True, "size": size, "max": most})
    model: list[dict[str, Any]] = []
    for step in range(300):
        match dice.randrange(8):
            case 0 if model:
                chosen = dice.choice(model)
                await house.ask({"delete": "c", "deletes": [{"q": {"_id": chosen["_id"]}, "limit": 1}]})
                model.remove(chosen)
            case 1 if model:
                chosen = dice.choice(model)
                text = "y" * dice.randrange(2000)
                await house.ask(
                    {"update": "c", "updates": [{"q": {"_id": chosen["_id"]}, "u": {"$set": {"text": text}}}]}
                )
                chosen["text"] = text
            case 2:
                most = dice.randrange(1, 20)
                await house.ask({"collMod": "c", "cappedMax": most})
                continue  # takes effect with the next write
            case 3:
                await house.door.close()
                await house.account.close()
                house = await MongoHouse.open(engine)
                continue
            case _:
                new = [
                    {"_id": f"{step}.{each}", "text": "x" * dice.randrange(2000)}
                    for each in range(dice.randrange(1, 30))
                ]
                await house.ask({"insert": "c", "documents": new})
                model += new
        while len(model) > 1 and (len(model) > most or sum(map(stored_bytes, model)) > size):
            del model[0]
        found = await house.ask({"find": "c"})
        assert found["cursor"]["firstBatch"] == model, f"--seed {seed}, step {step}"
    assert [each async for each in check_account(engine, house.account.clock)] == [], f"--seed {seed}"
    await house.close()


def stored_bytes(document: dict[str, Any]) -> int:
    """With the number that is stored before it."""
    return len(bson.encode(document)) + 8
