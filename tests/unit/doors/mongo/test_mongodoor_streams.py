"""Change streams of the MongoDB door in process: every change for itself, tokens that outlive splits and restarts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.int64 import Int64
from support.mongo_house import MongoHouse

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.model.bson.bson_changes import update_description
from armillary.storage.memory import MemoryEngine


class Stream:
    """What a driver does: a cursor, and the token to go on from."""

    def __init__(self, house: MongoHouse, collection: Any = "c", database: str = "test") -> None:
        self.house, self.collection, self.database = house, collection, database
        self.id = 0
        self.token: Any = None

    async def open(self, stages: list[Any] | None = None, **options: Any) -> Stream:
        pipeline = [{"$changeStream": options}, *(stages or [])]
        answer = await self.house.ask(
            {"aggregate": self.collection, "pipeline": pipeline, "cursor": {"batchSize": 0}}, database=self.database
        )
        assert answer["ok"] == 1.0, answer
        self.id = answer["cursor"]["id"]
        self.token = answer["cursor"]["postBatchResumeToken"]
        return self

    async def read(self) -> list[dict[str, Any]]:
        name = "$cmd.aggregate" if self.collection == 1 else self.collection
        more = {"getMore": Int64(self.id), "collection": name, "maxTimeMS": 0}
        answer = await self.house.ask(more, database=self.database)
        assert answer["ok"] == 1.0, answer
        self.id = answer["cursor"]["id"]
        self.token = answer["cursor"]["postBatchResumeToken"]
        events: list[dict[str, Any]] = answer["cursor"]["nextBatch"]
        return events


async def write(house: MongoHouse, *commands: dict[str, Any]) -> None:
    for command in commands:
        answer = await house.ask(command)
        assert answer["ok"] == 1.0 and "writeErrors" not in answer, answer


def update(q: Any, u: Any, **options: Any) -> dict[str, Any]:
    return {"update": "c", "updates": [{"q": q, "u": u, **options}]}


async def test_every_change_is_told_as_it_was() -> None:
    house = await MongoHouse.open()
    await write(house, {"insert": "c", "documents": [{"_id": 0}]})
    stream = await Stream(house).open(fullDocument="updateLookup")
    await write(
        house,
        {"insert": "c", "documents": [{"_id": 1, "a": 1, "b": {"x": 1}, "l": [1, 2, 3]}]},
        update({"_id": 1}, {"$set": {"a": 2, "b.y": 5}, "$unset": {"b.x": 1}, "$pop": {"l": 1}}),
        update({"_id": 1}, {"$set": {"a": 2}}),
        update({"_id": 1}, {"z": 1}),
        update({"_id": 7}, {"$set": {"n": 1}}, upsert=True),
        {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
    )
    events = await stream.read()
    assert [each["operationType"] for each in events] == ["insert", "update", "replace", "insert", "delete"]
    first, second, third, fourth, last = events
    assert first["fullDocument"] == {"_id": 1, "a": 1, "b": {"x": 1}, "l": [1, 2, 3]}
    assert second["updateDescription"] == {
        "updatedFields": {"a": 2, "b.y": 5},
        "removedFields": ["b.x"],
        "truncatedArrays": [{"field": "l", "newSize": 2}],
    }
    assert second["fullDocument"] is None, "it is looked up, and gone"
    assert third["fullDocument"] == {"_id": 1, "z": 1} and fourth["fullDocument"] == {"_id": 7, "n": 1}
    assert last["documentKey"] == {"_id": 1} and last["ns"] == {"db": "test", "coll": "c"}
    assert await stream.read() == []
    again = await Stream(house).open(resumeAfter=second["_id"])
    assert [each["operationType"] for each in await again.read()] == ["replace", "insert", "delete"]
    assert await (await Stream(house).open(resumeAfter=stream.token)).read() == []
    await house.close()


async def test_stages_behind_it() -> None:
    house = await MongoHouse.open()
    stages = [{"$match": {"operationType": "insert"}}, {"$project": {"fullDocument.n": 1}}]
    stream = await Stream(house).open(stages)
    await write(house, {"insert": "c", "documents": [{"_id": 1, "n": 5, "m": 6}]}, update({}, {"$set": {"n": 6}}))
    (event,) = await stream.read()
    assert event["fullDocument"] == {"n": 5} and set(event) == {"_id", "fullDocument"}
    pipeline = [{"$changeStream": {}}, {"$group": {"_id": 1}}]
    assert (await house.ask({"aggregate": "c", "pipeline": pipeline, "cursor": {}}))["code"] == 20
    stream = await Stream(house).open([{"$project": {"_id": 0}}])
    await write(house, {"insert": "c", "documents": [{"_id": 2}]})
    more = {"getMore": Int64(stream.id), "collection": "c", "maxTimeMS": 0}
    assert (await house.ask(more))["code"] == 280
    for options in ({"resumeAfter": {"_data": "00"}}, {"resumeAfter": {"_data": "zz" * 30}}, {"nonsense": 1}):
        assert (await house.ask({"aggregate": "c", "pipeline": [{"$changeStream": options}], "cursor": {}}))[
            "ok"
        ] == 0.0
    await house.close()


async def test_collections_that_come_and_go() -> None:
    house = await MongoHouse.open()
    stream = await Stream(house).open()
    everything = await Stream(house, 1).open()
    await write(house, {"insert": "c", "documents": [{"_id": 1}]}, {"insert": "d", "documents": [{"_id": 2}]})
    await write(house, {"drop": "c"})
    events = await stream.read()
    assert [each["operationType"] for each in events] == ["insert", "drop", "invalidate"] and stream.id == 0
    assert [(each["operationType"], each["ns"]["coll"]) for each in await everything.read()] == [
        ("insert", "c"),
        ("insert", "d"),
        ("drop", "c"),
    ]
    refused = [{"$changeStream": {"resumeAfter": events[-1]["_id"]}}]
    assert (await house.ask({"aggregate": "c", "pipeline": refused, "cursor": {}}))["code"] == 260
    again = await Stream(house).open(startAfter=events[-1]["_id"])
    await write(house, {"insert": "c", "documents": [{"_id": 3}]})
    assert [each["documentKey"] for each in await again.read()] == [{"_id": 3}]
    await write(house, {"dropDatabase": 1})
    assert [each["operationType"] for each in await everything.read()][-2:] == ["dropDatabase", "invalidate"]
    await house.close()


async def test_images() -> None:
    house = await MongoHouse.open()
    await write(house, {"create": "c", "changeStreamPreAndPostImages": {"enabled": True}})
    stream = await Stream(house).open(fullDocument="required", fullDocumentBeforeChange="required")
    await write(
        house,
        {"insert": "c", "documents": [{"_id": 1, "n": 1}]},
        update({}, {"$inc": {"n": 1}}),
        update({}, {"$inc": {"n": 1}}),
    )
    events = await stream.read()
    assert [each.get("fullDocument", {}).get("n") for each in events] == [1, 2, 3]
    assert [each["fullDocumentBeforeChange"]["n"] for each in events[1:]] == [1, 2]
    await house.close()


async def test_from_a_time_on() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock)
    await write(house, {"insert": "c", "documents": [{"_id": 1}]})
    clock.advance(10)
    moment = (await house.ask({"ping": 1}))["operationTime"]
    clock.advance(10)
    await write(house, {"insert": "c", "documents": [{"_id": 2}]})
    stream = await Stream(house).open(startAtOperationTime=(await house.ask({"ping": 1}))["operationTime"])
    assert [each["documentKey"]["_id"] for each in await stream.read()] == [2], "it was not watched then"
    await write(house, {"insert": "c", "documents": [{"_id": 3}]})
    again = await Stream(house).open(startAtOperationTime=moment)
    events = [*await again.read(), *await again.read()]
    assert [each["documentKey"]["_id"] for each in events] == [1, 2, 3], "the time of the last write before, and after"
    await house.close()


async def test_tokens_outlive_splits_and_restarts(seed: int) -> None:
    """Random writes to a sharded collection while it is split and merged, the server is started anew and the stream is
    taken up from its token: every change is told once, those of one document in order."""
    dice = random.Random(seed)
    engine, clock = MemoryEngine(), VirtualClock()
    settings = AccountSettings(partition_throughput_ru=200)
    house = await MongoHouse.open(engine, clock, settings)
    await write(house, {"shardCollection": "test.c", "key": {"r": 1}})
    stream = await Stream(house).open()
    written: dict[int, list[int]] = {}
    told: dict[int, list[int]] = {}

    async def some_writes() -> None:
        for _ in range(30):
            number = dice.randrange(40)
            values = written.setdefault(number, [])
            values.append(len(values))
            change = update({"_id": number, "r": number % 13}, {"$set": {"n": values[-1]}}, upsert=True)
            await write(house, change)
            clock.advance(0.001)

    async def listen() -> None:
        while events := await stream.read():
            for event in events:
                fields = event.get("fullDocument") or event["updateDescription"]["updatedFields"]
                told.setdefault(event["documentKey"]["_id"], []).append(fields["n"])

    for turn in range(8):
        await some_writes()
        if dice.random() < 0.6:
            await listen()
        container = house.account.container("test", "c")
        ranges = container.map.ranges
        if turn % 2 == 0:
            reshape = await house.account.reshaper.split(container, dice.choice(ranges).id)
        else:
            at = dice.randrange(len(ranges) - 1)
            reshape = await house.account.reshaper.merge(container, ranges[at].id, ranges[at + 1].id)
        await some_writes()
        await house.account.reshaper.finished(reshape)
        await some_writes()
        if turn % 3 == 2:
            await house.door.close()
            await house.account.close()
            account = await Account.open(engine, clock, settings)
            door = MongoDoor(account, (), (), MongoSettings(needs_authentication=False), machine=clock)
            house = MongoHouse(engine, account, door)
            token = stream.token
            stream = await Stream(house).open(resumeAfter=token)
    await listen()
    assert told == written, f"--seed {seed}"
    assert not [problem async for problem in check_account(engine, clock)]
    await house.close()


@pytest.mark.parametrize(
    ("before", "after", "updated", "removed"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, {"b": 2}, []),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 3}}}, {"a.b.c": 3}, ["a.b.d"]),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, {"a.2": 3}, []),
        ({"a": [1, 2]}, {"a": [8, 9]}, {"a": [8, 9]}, []),
        ({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}, {"x": 3}]}, {"a.1.x": 3}, []),
        ({"a": 1}, {"a": 1.0}, {"a": 1.0}, []),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {}}, []),
        ({"a": {"b": 1}}, {}, {}, ["a"]),
        ({"a": [{"x": 1}]}, {"a": [{"x": 2}]}, {"a.0.x": 2}, []),
    ],
)
def test_what_an_update_changed(before: Any, after: Any, updated: Any, removed: Any) -> None:
    found = update_description(before, after)
    assert (found["updatedFields"], found["removedFields"]) == (updated, removed)


def test_paths_that_can_be_read_in_two_ways() -> None:
    found = update_description({"a": [{"1": 1, "b.c": 1, "d": 1}]}, {"a": [{"1": 2, "d": 2}]})
    assert found["updatedFields"] == {"a.0.1": 2, "a.0.d": 2} and found["removedFields"] == ["a.0.b.c"]
    assert found["disambiguatedPaths"] == {"a.0.1": ["a", 0, "1"], "a.0.b.c": ["a", 0, "b.c"]}


async def test_what_is_told_of_collections_to_those_who_want_more() -> None:
    house = await MongoHouse.open()
    await write(house, {"insert": "c", "documents": [{"_id": 1, "a": {"1": 1}}]}, {"create": "other"})
    plain, expanded = await Stream(house, 1).open(), await Stream(house, 1).open(showExpandedEvents=True)
    await write(
        house,
        update({"_id": 1}, {"$set": {"a.1": 2}}),
        {"create": "seen", "viewOn": "c"},
        {"collMod": "c"},
    )
    await house.ask({"renameCollection": "test.c", "to": "test.other", "dropTarget": True}, database="admin")
    told = await plain.read()
    assert [each["operationType"] for each in told] == ["update", "rename"]
    assert "disambiguatedPaths" not in told[0]["updateDescription"] and "operationDescription" not in told[1]
    told = await expanded.read()
    assert [each["operationType"] for each in told] == ["update", "create", "modify", "rename"]
    assert told[0]["updateDescription"]["disambiguatedPaths"] == {"a.1": ["a", "1"]}
    assert set(told[3]["operationDescription"]) == {"to", "dropTarget"}
    await house.close()


async def test_what_is_told_of_new_collections() -> None:
    house = await MongoHouse.open()
    await write(house, {"insert": "first", "documents": [{"_id": 1}]})
    stream = await Stream(house, 1).open(showExpandedEvents=True)
    await write(house, {"insert": "c", "documents": [{"_id": 1}]})
    created, inserted = [*await stream.read(), *await stream.read()]
    assert (created["operationType"], inserted["operationType"]) == ("create", "insert")
    assert created["operationDescription"] == {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    assert created["collectionUUID"] == inserted["collectionUUID"]
    await house.close()


@pytest.mark.parametrize(("database", "collection"), [("admin", "c"), ("config", 1), ("test", "system.x")])
async def test_where_nobody_watches(database: str, collection: Any) -> None:
    house = await MongoHouse.open()
    answer = await house.ask(
        {"aggregate": collection, "pipeline": [{"$changeStream": {}}], "cursor": {}}, database=database
    )
    assert answer["code"] == 73
    await house.close()


async def test_large_events_in_fragments() -> None:
    house = await MongoHouse.open()
    await write(house, {"create": "c", "changeStreamPreAndPostImages": {"enabled": True}})
    await write(house, {"insert": "c", "documents": [{"_id": 1, "v": "q" * (9 << 20)}]})
    splitting: list[Any] = [{"$changeStreamSplitLargeEvent": {}}]
    streams = [await Stream(house).open(each, fullDocumentBeforeChange="required") for each in (splitting, [])]
    await write(house, update({"_id": 1}, {"$set": {"v": "z" * (9 << 20)}}))
    refused = await house.ask({"getMore": Int64(streams[1].id), "collection": "c", "maxTimeMS": 0})
    assert refused["code"] == 10334
    first = await streams[0].read()
    second = await streams[0].read()
    told = first + second
    assert [each["splitEvent"] for each in told] == [{"fragment": 1, "of": 2}, {"fragment": 2, "of": 2}]
    assert {name for each in told for name in each} >= {"updateDescription", "fullDocumentBeforeChange", "ns"}
    again = await Stream(house).open(splitting, fullDocumentBeforeChange="required", resumeAfter=told[0]["_id"])
    assert await again.read() == told[1:], "behind the first"
    await write(house, {"insert": "c", "documents": [{"_id": 2}]})
    rest = await Stream(house).open(splitting, resumeAfter=told[1]["_id"])
    assert [each["documentKey"] for each in await rest.read()] == [{"_id": 2}]
    for stages, code in (
        ([{"$changeStream": {}}, {"$changeStreamSplitLargeEvent": {}}, {"$match": {}}], 7182802),
        ([{"$changeStream": {}}, {"$changeStreamSplitLargeEvent": {"a": 1}}], 7182800),
        ([{"$changeStreamSplitLargeEvent": {}}], 40602),
        ([{"$changeStream": {"resumeAfter": told[0]["_id"]}}], 280),
    ):
        assert (await house.ask({"aggregate": "c", "pipeline": stages, "cursor": {}}))["code"] == code
    await house.close()


async def test_streams_of_several_collections_go_on_behind_any_event(seed: int) -> None:
    dice = random.Random(seed)
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock)
    names = ("a", "b", "c")
    for name in names:
        await write(house, {"create": name})
    stream = await Stream(house, 1).open()
    written = []
    for number in range(40):
        clock.advance(0.0001)  # several in a millisecond
        written.append((dice.choice(names), number))
        await write(house, {"insert": written[-1][0], "documents": [{"_id": number}]})
    told = await stream.read()
    assert [(each["ns"]["coll"], each["documentKey"]["_id"]) for each in told] == written, f"--seed {seed}"
    for place in dice.sample(range(39), 5):
        rest = await (await Stream(house, 1).open(resumeAfter=told[place]["_id"])).read()
        assert [each["documentKey"]["_id"] for each in rest] == list(range(place + 1, 40)), f"--seed {seed}, {place}"
    await house.close()


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_collection_that_goes_at_another_door(is_made_again: bool) -> None:
    """Deleted by the SQL door, or restored from a file: what is there then is another one."""
    house = await MongoHouse.open()
    await write(house, {"insert": "c", "documents": [{"_id": 1}]})
    stream, of_all = await Stream(house).open(), await Stream(house, 1).open()
    await containers.delete_container(house.account, house.account.container("test", "c"), None)
    if is_made_again:
        await write(house, {"insert": "c", "documents": [{"_id": 2}]})
    told = await stream.read() or await stream.read()
    assert [each["operationType"] for each in told] == ["drop", "invalidate"]
    assert not stream.id or (not await stream.read() and not stream.id)
    assert [each["documentKey"] for each in await of_all.read()] == ([{"_id": 2}] if is_made_again else [])
    again = await Stream(house).open(startAfter=told[-1]["_id"])
    await write(house, {"insert": "c", "documents": [{"_id": 3}]})
    assert {"_id": 3} in [each["documentKey"] for each in await again.read()]
    await house.close()
