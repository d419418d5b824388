"""The profiler of the MongoDB door, in process."""

from __future__ import annotations

from typing import Any

from bson.binary import Binary
from bson.int64 import Int64
from support.mongo_house import MongoHouse

from armillary.clock import VirtualClock


async def noted(house: MongoHouse, **given: Any) -> list[dict[str, Any]]:
    found = await house.ask({"find": "system.profile", "filter": {"ns": {"$ne": "test.system.profile"}, **given}})
    return list(found["cursor"]["firstBatch"])


async def test_what_commands_took_and_cost() -> None:
    house = await MongoHouse.open()
    await house.ask({"insert": "c", "documents": [{"_id": each} for each in range(5)]})
    assert await house.ask({"profile": -1}) | {"ok": 1} == await house.ask({"profile": 2}) | {"ok": 1}
    await house.ask({"find": "c", "filter": {"_id": 1}, "comment": "one"})
    await house.ask({"find": "c", "filter": {"x": 1}, "comment": "all"})
    await house.ask({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]})
    await house.ask({"insert": "c"})
    await house.ask({"find": "elsewhere"}, database="other")
    one, scan, update, refused = await noted(house)
    assert (one["op"], one["ns"], one["command"]["comment"]) == ("query", "test.c", "one") and one["requestCharge"] == 1
    assert (scan["docsExamined"], update["op"], refused["errCode"]) == (5, "update", 40414)
    listed = await house.ask({"listCollections": 1, "filter": {"name": "system.profile"}})
    assert listed["cursor"]["firstBatch"][0]["options"] == {"capped": True, "size": 1 << 20}
    assert (await house.ask({"profile": 0}))["was"] == 2
    before = len(await noted(house))
    await house.ask({"find": "c"})
    assert len(await noted(house)) == before
    await house.close()


async def test_only_what_is_slow() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock, has_test_commands=True)
    await house.ask({"profile": 1, "slowms": 50})
    await house.ask({"insert": "c", "documents": [{}]})
    assert await noted(house) == []
    await house.ask({"profile": 1, "slowms": 0})
    await house.ask({"find": "c"})
    assert [each["op"] for each in await noted(house)] == ["query"]
    await house.ask({"profile": 2, "sampleRate": 0})
    await house.ask({"find": "c"})
    assert len(await noted(house)) == 1
    assert (await house.ask({"profile": 2, "sampleRate": 2}))["code"] == 2
    assert (await house.ask({"profile": 2, "filter": {}}))["code"] == 115
    await house.close()


async def test_inside_of_transactions() -> None:
    house = await MongoHouse.open()
    await house.ask({"insert": "c", "documents": [{}]})
    await house.ask({"profile": 2})
    session = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False}
    await house.ask({"insert": "c", "documents": [{"_id": 1}], "startTransaction": True, **session})
    await house.ask({"abortTransaction": 1, **session}, database="admin")
    assert [each["op"] for each in await noted(house)] == ["insert"], "it stays noted, though nothing came of it"
    await house.close()


async def test_statements_and_returned_documents_are_noted() -> None:
    house = await MongoHouse.open()
    await house.ask({"insert": "c", "documents": [{"_id": each, "n": each} for each in range(5)]})
    await house.ask({"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1"}]})
    await house.ask({"create": "v", "viewOn": "c", "pipeline": []})
    await house.ask({"profile": 2})
    update = {"q": {"n": 1}, "u": {"$set": {"x": 1}}, "multi": False}
    await house.ask({"update": "c", "comment": "one"}, {"updates": [{**update, "hint": "n_1"}]})
    await house.ask({"delete": "c", "deletes": [{"q": {"n": 4}, "limit": 0}]})
    await house.ask({"update": "c", "updates": [update, update]})
    found = await house.ask({"find": "c", "batchSize": 3})
    await house.ask({"getMore": found["cursor"]["id"], "collection": "c"})
    await house.ask({"find": "v", "filter": {"n": {"$gt": 1}}})
    await house.ask({"count": "c"})
    one, delete, several, find, more, view, count = await noted(house)
    assert one["command"] == {**update, "hint": {"$hint": "n_1"}, "comment": "one"}
    assert (delete["op"], delete["command"]) == ("remove", {"q": {"n": 4}, "limit": 0})
    assert len(several["command"]["updates"]) == 2
    assert [each["nreturned"] for each in (find, more, view)] == [3, 1, 2]
    assert "nreturned" not in count and "nreturned" not in one
    await house.close()


async def test_options_of_the_id_index_are_refused() -> None:
    house = await MongoHouse.open()
    for option in ("unique", "sparse", "background", "hidden"):
        definition = {"key": {"_id": 1}, "name": "_id_", option: True}
        answer = await house.ask({"createIndexes": "c", "indexes": [definition]})
        assert answer["code"] == 197 and f"'{option}' is not valid for an _id index" in answer["errmsg"]
    assert (await house.ask({"createIndexes": "c", "indexes": [{"key": {"_id": 1}, "name": "_id_", "v": 2}]}))[
        "ok"
    ] == 1
    await house.close()
