"""A collection of MongoDB that is moved to another shard key: documents stay as they are to the byte, indexes are there
again, writes that come again are not done again, and who watches misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.house import House
from support.mongo_house import KEY, MongoHouse

from armillary.account.check import check_account
from armillary.account.migration import migration
from armillary.account.migration.migration import FAILED, SWITCHED, Migration, Plan
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.errors import Failure, Kind
from armillary.model import documents, layout


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    inside = await House.open()
    inside.clock.step_s = 0.0005
    settings = MongoSettings(needs_authentication=False)
    opened = MongoHouse(
        inside.engine, inside.account, MongoDoor(inside.account, (KEY,), (), settings, machine=inside.clock)
    )
    yield opened
    await opened.door.close()
    await inside.account.close()
    assert [problem async for problem in check_account(inside.engine, inside.clock)] == []
    await inside.engine.close()


async def done(house: MongoHouse, body: dict[str, Any]) -> dict[str, Any]:
    answer = await house.ask(body)
    assert answer["ok"] == 1 and "writeErrors" not in answer, answer
    return answer


async def moved(house: MongoHouse, plan: Plan, collection: str = "c") -> Migration:
    moving = await migration.begin(house.account, house.account.container("test", collection), plan)
    while not moving.is_ended:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return moving


async def encoded(house: MongoHouse, name: str) -> set[bytes]:
    found: set[bytes] = set()
    for partition in house.account.container("test", name).partitions.values():
        for _, each in await partition.read(lambda view: list(view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)))):
            found.add(documents.bson_bytes(each))
    return found


async def test_everything_about_it_is_kept(house: MongoHouse) -> None:
    ids: list[Any] = [ObjectId(), 1, 2.5, "text", Int64(1 << 40), {"a": 1}, Binary(b"x", 5)]
    rows = [{"_id": each, "customer": f"c{n % 3}", "n": n, "price": Decimal128("1.10")} for n, each in enumerate(ids)]
    await done(house, {"insert": "c", "documents": rows})
    wanted = [
        {"key": {"customer": 1, "n": -1}, "name": "u", "unique": True},
        {"key": {"price": 1}, "name": "p", "partialFilterExpression": {"n": {"$gt": 3}}},
    ]
    await done(house, {"createIndexes": "c", "indexes": wanted})
    watched = await done(house, {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    watched_all = await done(house, {"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}})
    session = {"id": Binary(b"session number 1", 4)}
    numbered = {"insert": "c", "documents": [{"_id": "once", "customer": "c1", "n": 9}], "lsid": session}
    await done(house, {**numbered, "txnNumber": Int64(1)})
    before, listed = await encoded(house, "c"), await done(house, {"listIndexes": "c"})

    moving = await moved(house, Plan("new", ("/customer",)))
    assert moving.stage == SWITCHED, moving.failure

    assert await encoded(house, "c") == before == await encoded(house, "c-before")
    assert (await done(house, {"listIndexes": "c"}))["cursor"]["firstBatch"] == listed["cursor"]["firstBatch"]
    assert (await done(house, {**numbered, "txnNumber": Int64(1)}))["n"] == 1  # and nothing was done
    answer = await house.ask({"insert": "c", "documents": [{"_id": "x", "customer": "c1", "n": 9}]})
    assert answer["writeErrors"][0]["code"] == 11000 and "index: u" in answer["writeErrors"][0]["errmsg"]
    await done(house, {"insert": "c", "documents": [{"_id": "y", "customer": "c1", "n": 10}]})
    assert (await house.ask({"insert": "c", "documents": [{"_id": "z"}]}))["writeErrors"][0]["code"] == 61
    for cursor, collection in ((watched_all, "$cmd.aggregate"), (watched, "c")):
        told: list[Any] = []
        while len(told) < 2:
            more = {"getMore": cursor["cursor"]["id"], "collection": collection, "maxTimeMS": 0}
            told += (await done(house, more))["cursor"]["nextBatch"]
        assert [(each["ns"]["coll"], each["documentKey"]["_id"]) for each in told] == [("c", "once"), ("c", "y")]
    # A token of before the move leads on behind it.
    resumed = {"$changeStream": {"resumeAfter": told[0]["_id"]}}
    again = await done(house, {"aggregate": "c", "pipeline": [resumed], "cursor": {}})
    found = again["cursor"]["firstBatch"]
    while not found:
        more = {"getMore": again["cursor"]["id"], "collection": "c", "maxTimeMS": 0}
        found = (await done(house, more))["cursor"]["nextBatch"]
    assert [each["documentKey"] for each in found] == [{"customer": "c1", "_id": "y"}]


@pytest.mark.parametrize(
    ("document", "said"), [({"a": 1}, "has nothing"), ({"b": [1]}, "has an array"), ({"b": {"x": 1}}, "")]
)
async def test_documents_that_have_no_such_key(house: MongoHouse, document: dict[str, Any], said: str) -> None:
    await done(house, {"insert": "c", "documents": [{"_id": 1, "b": 1}, {"_id": 2, **document}]})
    moving = await moved(house, Plan("new", ("/b",)))
    if not said:
        assert moving.stage == SWITCHED, moving.failure
        return
    assert moving.stage == FAILED and moving.failure is not None and said in moving.failure.message
    assert "i:2" in moving.failure.message
    assert len(await encoded(house, "c")) == 2


async def test_refusals(house: MongoHouse) -> None:
    await done(house, {"createIndexes": "c", "indexes": [{"key": {"email": 1}, "name": "e", "unique": True}]})
    await done(house, {"create": "ring", "capped": True, "size": 4096})
    with pytest.raises(Failure, match="'e' of 'c' is unique"):
        await moved(house, Plan("new", ("/b",)))
    with pytest.raises(Failure, match="capped"):
        await moved(house, Plan("new", ("/b",)), "ring")
    assert len(house.account.containers) == 2
    moving = await moved(house, Plan("new", ("/email",)))
    assert moving.stage == SWITCHED, moving.failure


async def test_a_switch_that_fails_and_the_next(house: MongoHouse) -> None:
    """What is copied then is not told to those who watch."""
    await done(house, {"insert": "c", "documents": [{"_id": each, "b": each} for each in range(3)]})
    watched = await done(house, {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    source = house.account.container("test", "c")
    rewrite = house.account.catalog.rewrite

    async def failing(*_: Any, **__: Any) -> None:
        house.account.catalog.rewrite = rewrite  # type: ignore[method-assign]
        raise Failure(Kind.UNAVAILABLE, "The disk went away.")

    house.account.catalog.rewrite = failing  # type: ignore[method-assign]
    moving = await moved(house, Plan("new", ("/b",)))
    assert moving.stage == FAILED and house.account.container("test", "c") is source
    await done(house, {"insert": "c", "documents": [{"_id": 3, "b": 3}]})
    moving = await moved(house, Plan("new", ("/b",)))
    assert moving.stage == SWITCHED, moving.failure
    await done(house, {"insert": "c", "documents": [{"_id": 4, "b": 4}]})
    told: list[Any] = []
    while len(told) < 2:
        more = {"getMore": watched["cursor"]["id"], "collection": "c", "maxTimeMS": 0}
        told += (await done(house, more))["cursor"]["nextBatch"]
    assert [each["documentKey"]["_id"] for each in told] == [3, 4]
