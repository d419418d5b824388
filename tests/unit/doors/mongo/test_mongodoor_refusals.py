"""What commands of the MongoDB door refuse, by the codes that drivers and their users know, and what becomes of cursors
whose collection goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.int64 import Int64
from support.mongo_house import MongoHouse


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    await opened.ask({"insert": "c", "documents": [{"_id": place, "a": place % 3} for place in range(9)]})
    await opened.ask({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]})
    await opened.ask({"create": "v", "viewOn": "c", "pipeline": []})
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": "c", "foo": 1}, 40415),
        ({"find": "c", "writeConcern": {"w": 1}}, 72),
        ({"find": "c", "sort": {"$natural": 1}, "hint": "a_1"}, 2),
        ({"find": "c", "hint": {"$natural": 2}}, 2),
        ({"find": "c", "hint": {"$natural": 1, "a": 1}}, 2),
        ({"find": "c", "min": {"a": 1}, "max": {"b": 1}, "hint": "a_1"}, 51176),
        ({"find": "c", "min": {"b": 1}, "hint": "a_1"}, 51174),
        ({"find": "c", "collation": {"locale": "en", "version": "1"}}, 161),
        ({"find": "c", "collation": {"locale": "en", "strength": 6}}, 51024),
        ({"count": "c", "foo": 1}, 40415),
        ({"count": "c", "writeConcern": {}}, 72),
        ({"distinct": "c", "key": "a", "writeConcern": {}}, 72),
        ({"getMore": Int64(7)}, 40414),
        ({"getMore": Int64(7), "collection": "c"}, 43),
        ({"killCursors": "c", "cursors": [], "foo": 1}, 40415),
        ({"drop": "c", "foo": 1}, 40415),
        ({"dropDatabase": 1, "foo": 1}, 40415),
        ({"dropIndexes": "c", "index": "a_1", "foo": 1}, 40415),
        ({"listCollections": 1, "cursor": {"foo": 1}}, 40415),
        ({"listIndexes": "c", "cursor": {"foo": 1}}, 40415),
        ({"aggregate": "c", "pipeline": [], "cursor": {"foo": 1}}, 40415),
        ({"create": "d", "collation": {}}, 40414),
        ({"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b", "collation": {}}]}, 40414),
        ({"collMod": "c", "index": {"keyPattern": {"a": 1}}}, 72),
        ({"collMod": "c", "index": {"keyPattern": {"a": 1}, "name": "a_1", "hidden": True}}, 72),
        ({"collMod": "c", "index": {"name": "nope", "hidden": True}}, 27),
        ({"findAndModify": "c", "query": {}}, 9),
        ({"findAndModify": "c", "remove": True, "update": {}}, 9),
        ({"findAndModify": "c", "remove": True, "upsert": True}, 9),
        ({"findAndModify": "c", "remove": True, "new": True}, 9),
        ({"findAndModify": "c", "remove": True, "arrayFilters": [{"i": 1}]}, 9),
        ({"findAndModify": "c", "update": {"$set": {"b": 1}}, "new": True, "fields": {"a.$": 1}}, 2),
        ({"explain": {"findAndModify": "c", "remove": True, "new": True}}, 9),
        ({"explain": {"findAndModify": "c", "update": {"$set": {"a.$[i]": 1}}, "arrayFilters": [{"j": 1}]}}, 2),
        ({"collMod": "c", "viewOn": "d"}, 72),
        ({"collMod": "v", "validator": {"a": 1}}, 72),
        ({"collMod": "v", "viewOn": "d"}, 72),
        ({"create": "d", "idIndex": 1}, 14),
        ({"create": "d", "idIndex": {}}, 9),
        ({"create": "d", "idIndex": {"key": {"a": 1}, "name": "_id_"}}, 2),
        ({"create": "d", "idIndex": {"key": {"_id": 1}, "sparse": True}}, 197),
        ({"create": "d", "idIndex": {"key": {"_id": 1}, "collation": {"locale": "en"}}}, 2),
        ({"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b", "prepareUnique": True}]}, 67),
        ({"update": "c", "updates": [{"q": {}, "u": [{"$foo": 1}]}]}, 40324),
        ({"update": "c", "updates": [{"q": {}, "u": [{"$set": {"a": 1}, "$unset": "b"}]}]}, 40323),
        ({"insert": "system.profile", "documents": [{}]}, 73),
        ({"update": "system.profile", "updates": [{"q": {}, "u": {"a": 1}}]}, 73),
        ({"delete": "system.profile", "deletes": [{"q": {}, "limit": 0}]}, 73),
    ],
    ids=str,
)
async def test_refused(house: MongoHouse, command: dict[str, Any], code: int) -> None:
    reply = await house.ask(command)
    assert (reply["ok"], reply.get("code")) == (0.0, code), reply


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ({"q": {"_id": 1}, "u": {"$set": {"b": 1}}, "c": {"x": 1}}, 51198),
        ({"q": {"_id": 1}, "u": {"b": 1}, "c": {}}, 51198),
        ({"q": {"_id": 99}, "u": {"$set": {"_id": [1]}}, "upsert": True}, 66),
        ({"q": {"b": 1}, "u": {"$set": {"_id": [1]}}, "upsert": True}, 53),
        ({"q": {"b": 1}, "u": {"_id": {"x": {"$y": 1}}}, "upsert": True}, 52),
    ],
    ids=str,
)
async def test_refused_updates(house: MongoHouse, statement: dict[str, Any], code: int) -> None:
    reply = await house.ask({"update": "c", "updates": [statement]})
    assert [each["code"] for each in reply["writeErrors"]] == [code]


async def test_constants_of_a_pipeline(house: MongoHouse) -> None:
    statement = {"q": {"_id": 1}, "u": [{"$set": {"b": "$$x"}}], "c": {"x": 7}}
    assert (await house.ask({"update": "c", "updates": [statement]}))["nModified"] == 1


async def test_a_sort_of_many_is_refused() -> None:
    house = await MongoHouse.open(version="8.0")
    statement = {"q": {}, "u": {"$set": {"b": 1}}, "multi": True, "sort": {"a": 1}}
    reply = await house.ask({"update": "c", "updates": [statement]})
    assert reply["writeErrors"][0]["code"] == 9
    await house.close()


async def test_a_bulk_names_its_collections_by_any_whole_number() -> None:
    house = await MongoHouse.open(version="8.0")
    bulk = {"bulkWrite": 1, "ops": [{"insert": 0.0, "document": {"_id": 1}}], "nsInfo": [{"ns": "test.c"}]}
    assert (await house.ask(bulk, database="admin"))["nInserted"] == 1
    bulk["ops"] = [{"insert": 0.5, "document": {"_id": 2}}]
    assert (await house.ask(bulk, database="admin"))["code"] == 2
    await house.close()


@pytest.mark.parametrize("ending", ["drop", "dropDatabase", "renameCollection"])
async def test_cursors_of_a_collection_that_goes(house: MongoHouse, ending: str) -> None:
    cursor = (await house.ask({"find": "c", "batchSize": 2}))["cursor"]["id"]
    if ending == "renameCollection":
        await house.ask({"renameCollection": "test.c", "to": "test.d"}, database="admin")
    else:
        await house.ask({ending: "c" if ending == "drop" else 1})
    more = {"getMore": Int64(cursor), "collection": "c"}
    assert (await house.ask(more))["code"] == 175
    assert (await house.ask(more))["code"] == 43, "it is told once"


async def test_a_plain_cursor_waits_for_nobody(house: MongoHouse) -> None:
    cursor = (await house.ask({"find": "c", "batchSize": 2}))["cursor"]["id"]
    more = {"getMore": Int64(cursor), "collection": "c"}
    assert (await house.ask({**more, "maxTimeMS": 100}))["code"] == 2
    assert len((await house.ask(more))["cursor"]["nextBatch"]) == 7


async def test_collations_are_listed_whole(house: MongoHouse) -> None:
    await house.ask({"create": "d", "collation": {"locale": "fr_CA"}})
    listed = (await house.ask({"listCollections": 1, "filter": {"name": "d"}}))["cursor"]["firstBatch"][0]
    kept = listed["options"]["collation"]
    assert (kept["strength"], kept["backwards"], kept["version"]) == (3, True, "57.1")
    text: dict[str, Any] = {"createIndexes": "d", "indexes": [{"key": {"a": "text"}, "name": "t"}]}
    assert (await house.ask(text))["code"] == 67
    text["indexes"][0]["collation"] = {"locale": "simple"}
    assert (await house.ask(text))["ok"] == 1.0


async def test_an_empty_collation_is_the_collections_own(house: MongoHouse) -> None:
    await house.ask({"create": "d", "collation": {"locale": "en", "strength": 2}})
    await house.ask({"insert": "d", "documents": [{"_id": 1, "s": "A"}]})
    change = {"findAndModify": "d", "query": {"s": "a"}, "update": {"$set": {"b": 1}}, "collation": {}}
    assert (await house.ask(change))["value"] == {"_id": 1, "s": "A"}


async def test_collmod_wants_one_index(house: MongoHouse) -> None:
    french = {"key": {"a": 1}, "name": "fr", "collation": {"locale": "fr"}}
    await house.ask({"createIndexes": "c", "indexes": [french]})
    assert (await house.ask({"collMod": "c", "index": {"keyPattern": {"a": 1}, "hidden": True}}))["code"] == 119
    assert (await house.ask({"collMod": "c", "index": {"name": "fr", "hidden": True}}))["ok"] == 1.0


async def test_an_index_of_a_part_of_references(house: MongoHouse) -> None:
    index = {"createIndexes": "c", "indexes": [{"key": {"r.$id": 1}, "name": "r"}]}
    assert (await house.ask(index))["ok"] == 1.0
    index = {"createIndexes": "c", "indexes": [{"key": {"r.$foo": 1}, "name": "f"}]}
    assert (await house.ask(index))["code"] == 67


async def test_a_view_is_changed_by_collmod(house: MongoHouse) -> None:
    change = {"collMod": "v", "viewOn": "c", "pipeline": [{"$match": {"_id": {"$lt": 2}}}]}
    assert (await house.ask(change))["ok"] == 1.0
    assert (await house.ask({"count": "v"}))["n"] == 2
    listed = (await house.ask({"listCollections": 1, "filter": {"name": "v"}}))["cursor"]["firstBatch"][0]
    assert listed["options"]["pipeline"] == change["pipeline"]


async def test_views_are_not_renamed(house: MongoHouse) -> None:
    rename = {"renameCollection": "test.v", "to": "test.w"}
    assert (await house.ask(rename, database="admin"))["code"] == 166
    rename = {"renameCollection": "test.c", "to": "test.v"}
    assert (await house.ask(rename, database="admin"))["code"] == 48


async def test_one_index_of_words(house: MongoHouse) -> None:
    async def made(key: dict[str, Any], **options: Any) -> Any:
        index = {"key": key, "name": "_".join(key), **options}
        return (await house.ask({"createIndexes": "c", "indexes": [index]})).get("code")

    assert await made({"t": "text"}) is None
    assert await made({"t": "text"}, default_language="english") is None, "it is the same"
    assert await made({"t": "text"}, default_language="none") == 85
    assert await made({"u": "text"}) == 67
    assert await made({"b": 1}, weights={"b": 1}) == 67
    assert await made({"w": "text"}, default_language="spanglish") == 67
    reply = await house.ask({"insert": "c", "documents": [{"t": "x", "language": "spanglish"}]})
    assert reply["writeErrors"][0]["code"] == 17262
    assert (await house.ask({"find": "c", "filter": {"$nor": [{"$text": {"$search": "x"}}]}}))["code"] == 2


async def test_hashes_are_of_no_arrays(house: MongoHouse) -> None:
    await house.ask({"createIndexes": "d", "indexes": [{"key": {"h.x": "hashed", "a": 1}, "name": "h"}]})
    documents = [{"_id": 1, "h": {"x": 1}}, {"_id": 2, "h": [{"x": 1}]}, {"_id": 3, "h": {"x": []}}, {"_id": 4}]
    documents.append({"_id": 5, "a": [1]})
    reply = await house.ask({"insert": "d", "documents": documents, "ordered": False})
    assert [(each["index"], each["code"]) for each in reply["writeErrors"]] == [(1, 16766), (2, 16766), (4, 16766)]
    late = {"createIndexes": "d", "indexes": [{"key": {"h": "hashed"}, "name": "late"}]}
    assert (await house.ask(late))["ok"] == 1.0
    await house.ask({"insert": "e", "documents": [{"_id": 1, "h": [1]}]})
    assert (await house.ask({**late, "createIndexes": "e"}))["code"] == 16766
