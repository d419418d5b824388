"""Thousands of bad messages straight into the MongoDB door: bytes with something wrong, and commands with something
in them that has no place there. Each is answered or ends its connection; nothing crashes, nothing piles up, and a
client that has not authenticated gets nothing but the handshake."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from fuzz.mutation import mutated_bytes
from fuzz.world import WatchedEngine
from support.mongo_house import MongoHouse, document_in, frame_of
from support.portions import Amount

from armillary.account.check import check_account
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.errors import MalformedMessage

COUNT = 25_000  # of each kind
LEAKS = ("Traceback", 'File "', "rocksdb", "armillary/")
SESSION = {"id": Binary(bytes(range(16)), 4)}

LOOKUP = {"$lookup": {"from": "d", "localField": "a", "foreignField": "b", "as": "x"}}
OPERATIONS = [{"insert": 0, "document": {"a": 1}}, {"delete": 0, "filter": {"a": 1}}]
BODIES: list[dict[str, Any]] = [
    {"hello": 1, "helloOk": True, "client": {"driver": {"name": "x"}}, "compression": ["zlib", "snappy"]},
    {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=localhost,r=abc")},
    {"saslContinue": 1, "conversationId": 1, "payload": Binary(b"c=biws,r=abc,p=AAAA")},
    {"find": "c", "filter": {"a": {"$gt": 1, "$in": [1, "x"]}, "$or": [{"b": 1}]}, "sort": {"a": -1}, "limit": 5},
    {"find": "c", "filter": {"_id": 1}, "projection": {"a": 1, "b": {"$slice": 2}}, "batchSize": 2, "skip": 1},
    {"getMore": Int64(77), "collection": "c", "batchSize": 3},
    {"killCursors": "c", "cursors": [Int64(5)]},
    {"insert": "c", "documents": [{"_id": 1, "a": [1, {"b": 2}]}, {"a": "x"}], "ordered": False},
    {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$inc": {"n": 1}, "$push": {"l": 1}}, "upsert": True}]},
    {"update": "c", "updates": [{"q": {"_id": 1}, "u": [{"$set": {"x": {"$add": ["$a", 1]}}}], "multi": False}]},
    {"delete": "c", "deletes": [{"q": {"a": {"$exists": True}}, "limit": 1}]},
    {"findAndModify": "c", "query": {"a": 1}, "update": {"$set": {"b": 1}}, "new": True, "sort": {"a": 1}},
    {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [LOOKUP, {"$unwind": "$x"}], "cursor": {"batchSize": 1}},
    {"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocument": "default"}}], "cursor": {"batchSize": 1}},
    {"insert": "c", "documents": [{"a": 1}], "lsid": SESSION, "txnNumber": Int64(4), "autocommit": False},
    {"count": "c", "query": {"a": {"$lt": 5}}, "limit": 2},
    {"distinct": "c", "key": "a.b", "query": {}},
    {"create": "d", "validator": {"a": {"$type": "int"}}, "collation": {"locale": "en"}},
    {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1", "unique": False}]},
    {"listIndexes": "c"},
    {"dropIndexes": "c", "index": "a_1"},
    {"listCollections": 1, "filter": {"name": "c"}, "nameOnly": True},
    {"listDatabases": 1, "filter": {"name": {"$regex": "^t"}}},
    {"bulkWrite": 1, "ops": OPERATIONS, "nsInfo": [{"ns": "test.c"}], "$db": "admin"},
    {"customAction": "CreateCollection", "collection": "e", "shardKey": "a", "offerThroughput": 400},
    {"shardCollection": "test.f", "key": {"a": "hashed"}},
    {"collMod": "c", "validator": {}},
    {"explain": {"find": "c", "filter": {"a": 1}}, "verbosity": "queryPlanner"},
    {"getParameter": "*"},
    {"endSessions": [SESSION]},
    {"insert": "c", "documents": [{"a": 1}], "lsid": SESSION, "txnNumber": Int64(3)},
    {"commitTransaction": 1, "lsid": SESSION, "txnNumber": Int64(3), "autocommit": False, "$db": "admin"},
    {"getLastRequestStatistics": 1},
    {"connectionStatus": 1, "showPrivileges": True},
    {"renameCollection": "test.d", "to": "test.g", "$db": "admin"},
    {"drop": "g"},
]  # fmt: skip
NASTY: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31 - 1, -(2**31), Int64(2**63 - 1), Int64(-(2**63)), 0.5, -0.0),
    *(float("nan"), float("inf"), 1e308, "", "$", "$a", "a.b", "a..b", ".", "\x7f", "é", "x" * 3000, "$$NOW", "$where"),
    *([], {}, [[]], [{}], {"": 1}, {"$gt": 1}, {"$": 1}, {"a": {"$foo": 1}}, [{"$match": 1}]),
    {"$expr": {"$add": [1, "x"]}},
    *(ObjectId(bytes(12)), DatetimeMS(-(2**62)), Decimal128("NaN"), Decimal128("1E6144"), Regex("(a+)+$", 2)),
    *(Binary(b"x" * 16, 4), Binary(b"", 0), Timestamp(0, 0), MinKey(), MaxKey(), Code("x"), Code("x", {"a": 1})),
]  # fmt: skip


def addressed(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "$db": body.get("$db", "test")}


def nasty(dice: random.Random) -> Any:
    return deepcopy(dice.choice(NASTY))  # what comes of it may be changed again


def mutated_document(dice: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """The same with one thing replaced, taken away, doubled or put in somewhere."""
    copied: dict[str, Any] = bson.decode(bson.encode(document))
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        place: Any = copied
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = dice.choice(keys)
            inside = place[key]
            if isinstance(inside, dict | list) and inside and dice.random() < 0.7:
                place = inside
                continue
            match dice.randrange(5):
                case 0 | 1:
                    place[key] = nasty(dice)
                case 2:
                    del place[key]
                case 3 if isinstance(place, dict):
                    place[dice.choice(("$a", "", "$or", "a.$", "x", "batchSize", "comment", "_id"))] = dice.choice(
                        NASTY
                    )
                case _:
                    place[key] = [inside, nasty(dice)] if dice.random() < 0.5 else {"$x": inside}
            break
    return copied


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    engine = WatchedEngine()
    opened = await MongoHouse.open(engine)
    await opened.ask({"insert": "c", "documents": [{"_id": n, "a": n, "b": [n]} for n in range(20)]})
    yield opened
    await opened.door.close()
    problems = [problem async for problem in check_account(engine, opened.account.clock)]
    assert not problems, problems[:5]
    await opened.account.close()


def check_answer(answer: bytes | None) -> None:
    if not answer:
        return
    assert struct.unpack_from("<i", answer)[0] == len(answer)
    document: dict[str, Any] = document_in(answer) if struct.unpack_from("<i", answer, 12)[0] != 2012 else {"ok": 1.0}
    assert document["ok"] in (0.0, 1.0)
    if document["ok"] == 0.0:
        assert document["code"] != 1, document
        assert document["codeName"] and document["errmsg"]
        assert not any(leak in document["errmsg"] for leak in LEAKS), document


async def test_bytes_with_something_wrong(house: MongoHouse, seed: int, amount: Amount) -> None:
    dice = random.Random(seed)
    frames = [frame_of(addressed(body)) for body in BODIES]
    frames += [frame_of({"insert": "c", "$db": "test"}, {"documents": [{"a": 1}, {"_id": 5}]})]
    await _run(house, dice, amount(COUNT), lambda: mutated_frame(dice, dice.choice(frames)))


def mutated_frame(dice: random.Random, frame: bytes) -> bytes:
    content = mutated_bytes(dice, frame[16:])
    op_code = dice.choice((2013, 2013, 2013, 2013, 2004, 2012, 1, 2001, dice.getrandbits(31)))
    return struct.pack("<iiii", 16 + len(content), dice.getrandbits(31), 0, op_code) + content


async def test_commands_with_something_wrong(house: MongoHouse, seed: int, amount: Amount) -> None:
    dice = random.Random(seed + 1)

    def make() -> bytes:
        body = mutated_document(dice, addressed(dice.choice(BODIES)))
        body.pop("maxAwaitTimeMS", None)  # would wait for it
        return frame_of(body)

    await _run(house, dice, amount(COUNT), make)


async def _run(house: MongoHouse, dice: random.Random, count: int, make: Any) -> None:
    before = 0
    for number in range(count):
        if number == count // 2:
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
        client = house.visitor() if number % 50 == 0 else house.client
        try:
            frame = make()
        except (OverflowError, ValueError, RecursionError, bson.errors.InvalidDocument):
            continue  # what BSON itself has no place for
        try:
            check_answer(await house.send(frame, client))
        except MalformedMessage:
            pass
        house.client = house.visitor()
        house.door.bid_farewell(client)
        if number % 500 == 0:
            await house.ask({"dropDatabase": 1})
            await house.ask({"insert": "c", "documents": [{"_id": n, "a": n, "b": [n]} for n in range(20)]})
            await house.door.cursors.close()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 40_000_000, f"{grown} bytes more than in the middle"


async def test_strangers_get_the_handshake_and_nothing_else(seed: int, amount: Amount) -> None:
    dice = random.Random(seed + 2)
    house = await MongoHouse.open(needs_authentication=True)
    open_names = {name for name, command in COMMANDS.items() if command.is_open}
    for number in range(amount(5_000)):
        body = mutated_document(dice, addressed(dice.choice(BODIES)))
        body.pop("maxAwaitTimeMS", None)
        client = house.visitor()
        try:
            frame = frame_of(body)
        except (OverflowError, ValueError, RecursionError, bson.errors.InvalidDocument):
            continue
        answer = await house.send(frame, client)
        if answer and next(iter(body), "") not in open_names:
            assert document_in(answer)["ok"] == 0.0, (number, body)
        assert client.is_stranger
    assert not house.account.containers
    assert len(house.door.sessions) == 0 and len(house.door.cursors) == 0
    await house.close()
