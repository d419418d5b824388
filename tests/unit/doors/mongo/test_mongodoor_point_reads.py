"""Single documents by `_id` and shard key have a way of their own through the door: what it answers is what the long
way does, which a comment leads to."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.mongo_house import MongoHouse, document_in, frame_of

from armillary.account.registry import AccountSettings
from armillary.doors.mongo.wire import messages

OID = ObjectId("5f0c1e7a8d3b2a0012345678")
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": OID, "pk": "a", "n": 1},
    {"_id": 1, "pk": "a", "n": 2},
    {"_id": 1, "pk": 7, "n": 3},
    {"_id": "text", "pk": "b", "n": Int64(4)},
    {"_id": "true", "pk": True, "n": 5},
]
FILTERS: list[dict[str, Any]] = [
    *[{"_id": each["_id"], "pk": each["pk"]} for each in DOCUMENTS],
    *[{"pk": each["pk"], "_id": each["_id"]} for each in DOCUMENTS],
    {"_id": Int64(1), "pk": "a"},
    {"_id": 1.0, "pk": "a"},
    {"_id": 1, "pk": 7.0},
    {"_id": 1, "pk": None},
    {"_id": {"$gt": 0}, "pk": "a"},
    {"_id": 1, "pk": "a", "n": 3},
    {"_id": 2, "pk": "a"},
    {"_id": 1},
    {"pk": "a"},
    {"_id": 1, "other": "a"},
    {"$where": 1, "_id": 1},
]
LSID = {"id": Binary(b"s" * 16, 4)}


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    await opened.ask({"shardCollection": "test.c", "key": {"pk": "hashed"}}, database="admin")
    await opened.ask({"insert": "c", "documents": DOCUMENTS})
    await opened.ask({"insert": "plain", "documents": [{"_id": each["n"]} for each in DOCUMENTS]})
    yield opened
    await opened.close()


def shown(answer: dict[str, Any]) -> dict[str, Any]:
    """Without times, and with one id for all open cursors."""
    told = {name: value for name, value in answer.items() if name not in ("$clusterTime", "operationTime")}
    if "cursor" in told:
        told["cursor"] = {**told["cursor"], "id": bool(told["cursor"]["id"])}
    return told


async def both(house: MongoHouse, body: dict[str, Any]) -> dict[str, Any]:
    short = shown(await house.ask(body))
    first = house.client.statistics
    assert short == shown(await house.ask({**body, "comment": "the long way"}))
    second = house.client.statistics
    assert (first.command, first.charge_ru) == (second.command, second.charge_ru)
    return short


def is_short(house: MongoHouse, body: dict[str, Any]) -> bool:
    return house.door.answer_at_once(house.client, frame_of({**body, "$db": "test"})) is not None


async def test_filters(house: MongoHouse) -> None:
    for given in FILTERS:
        await both(house, {"find": "c", "filter": given})
        await both(house, {"find": "c", "filter": given, "limit": 1, "singleBatch": True, "lsid": LSID})
    for number in (1, 2, 99):
        await both(house, {"find": "plain", "filter": {"_id": number}})
    assert is_short(house, {"find": "c", "filter": FILTERS[0]})
    assert is_short(house, {"find": "plain", "filter": {"_id": 1}, "limit": 1, "singleBatch": True, "lsid": LSID})
    assert not is_short(house, {"find": "c", "filter": {"_id": 1}})
    found = await house.ask({"find": "c", "filter": FILTERS[0]})
    assert found["cursor"] == {"firstBatch": [DOCUMENTS[0]], "id": 0, "ns": "test.c"}


IDS = [OID, 1, Int64(1), 1.0, 2, "text", "true", True, None, {"a": 1}, [1], {"$gt": 0}, {"$eq": 1}, ObjectId(b"x" * 12)]
KEYS = ["a", "b", 7, 7.0, Int64(7), True, False, None, "missing", {"$in": ["a"]}]
OPTIONS: dict[str, list[Any]] = {
    "limit": [1, 1, 1, 0, 2, -1, 1.0, "x"],
    "singleBatch": [True, True, False, "x"],
    "lsid": [LSID, LSID, {"id": 1}, 1],
    "projection": [{"n": 1}, {}],
    "sort": [{"n": 1}],
    "skip": [0, 1],
    "batchSize": [0, 1, 5],
    "readConcern": [{"level": "local"}, {"level": "bogus"}],
    "$readPreference": [{"mode": "primary"}, {"mode": "secondary"}, {"mode": "x"}, 5],
    "maxTimeMS": [5_000, -1],
    "apiVersion": ["1", "2"],
    "allowDiskUse": [True],
}


async def test_random_finds(house: MongoHouse, seed: int, amount: Callable[[int], int]) -> None:
    """And writes between them, which change what is remembered of frames and keys."""
    dice = random.Random(seed)
    short = 0
    for number in range(count := amount(50_000)):
        given: list[tuple[str, Any]] = [("_id", dice.choice(IDS)), ("pk", dice.choice(KEYS))]
        if not dice.randrange(6):
            given.append((dice.choice(("n", "other", "$where", "_id")), dice.choice(IDS)))
        dice.shuffle(given)
        given = given[: dice.choice((1, 2, 2, 2, 2, 2, 3))]
        found = dict(dice.choice(FILTERS)) if dice.randrange(2) else dict(given)
        body = {"find": dice.choice(("c", "c", "c", "plain", "nothing")), "filter": found}
        for name, values in OPTIONS.items():
            if not dice.randrange(4 if name in ("limit", "singleBatch", "lsid") else 20):
                body[name] = dice.choice(values)
        short += is_short(house, body)
        await both(house, body)
        if not number % 50:
            update = {"q": dict(dice.choice(FILTERS[:5])), "u": {"$set": {"n": number}}}
            await house.ask({"update": "c", "updates": [update]})
    assert short > count // 10


@pytest.mark.parametrize(
    "more",
    [
        {"limit": -1},
        {"limit": "x"},
        {"limit": 0},
        {"limit": 1.0},
        {"singleBatch": "x"},
        {"lsid": 1},
        {"lsid": {"id": 1}},
        {"projection": {"n": 1}},
        {"sort": {"n": 1}},
        {"skip": 1},
        {"unknown": 1},
        {"filter": "x"},
        {"find": 5},
        {"find": "nothing"},
        {"find": ""},
        {"readConcern": {"level": "bogus"}},
        {"maxTimeMS": -1},
        {"apiVersion": "2"},
        {"hint": "nothing"},
    ],
)
async def test_what_else_is_said(house: MongoHouse, more: dict[str, Any]) -> None:
    await both(house, {"find": "c", "filter": FILTERS[0], **more})


async def test_frames_that_are_not_plain_take_the_long_way(house: MongoHouse) -> None:
    body = {"find": "c", "filter": FILTERS[0], "$db": "test"}
    frame = frame_of(body, request_id=77)
    short = house.door.answer_at_once(house.client, frame)
    assert short is not None and document_in(short)["cursor"]["firstBatch"] == [DOCUMENTS[0]]
    assert int.from_bytes(short[:4], "little") == len(short) and int.from_bytes(short[8:12], "little") == 77
    for other in (
        frame_of(body, flags=1 << 16),
        frame_of(body, {"documents": [{}]}),
        frame[:12] + b"\xdc" + frame[13:],
        frame[:-2] + b"\x01\x00",
        frame_of({"count": "c", "$db": "test"}),
    ):
        assert house.door.answer_at_once(house.client, other) is None


async def test_damaged_frames_are_answered_as_the_long_way_answers_them(house: MongoHouse, seed: int) -> None:
    dice = random.Random(seed)
    body = {"find": "c", "filter": FILTERS[1], "limit": 1, "lsid": LSID, "$db": "test"}
    frame = frame_of(body)
    answered = 0
    for _ in range(3_000):
        damaged = bytearray(frame[: dice.choice((len(frame), dice.randrange(21, len(frame))))])
        for _ in range(dice.randrange(3)):
            damaged[dice.randrange(16, len(damaged))] = dice.randrange(256)
        damaged[:4] = len(damaged).to_bytes(4, "little")
        short = house.door.answer_at_once(house.client, bytes(damaged))
        if short is not None:
            answered += 1
            long = await house.door.answer(house.client, messages.open_frame(bytes(damaged)))
            assert long is not None and shown(document_in(short)) == shown(document_in(long))
    assert answered > 100
    large = frame_of({**body, "filter": {"_id": "x" * 5000, "pk": "a"}})
    assert house.door.answer_at_once(house.client, large) is None


async def test_collections_with_a_collation_take_the_long_way(house: MongoHouse) -> None:
    await house.ask({"create": "folded", "collation": {"locale": "en", "strength": 2}})
    await house.ask({"insert": "folded", "documents": [{"_id": "a"}]})
    found = await both(house, {"find": "folded", "filter": {"_id": "A"}})
    assert found["cursor"]["firstBatch"] == [{"_id": "a"}]


async def test_views_have_no_points(house: MongoHouse) -> None:
    await house.ask({"create": "seen", "viewOn": "plain", "pipeline": [{"$match": {"_id": {"$gt": 2}}}]})
    for number in (1, 4):
        await both(house, {"find": "seen", "filter": {"_id": number}})


async def test_strangers_and_spent_budgets_are_refused() -> None:
    locked = await MongoHouse.open(needs_authentication=True)
    assert (await both(locked, {"find": "c", "filter": {"_id": 1}}))["code"] == 13
    await locked.close()
    house = await MongoHouse.open(account=AccountSettings(throughput_mode="enforce"))
    await house.ask({"insert": "c", "documents": [{"_id": 1, "text": "x" * 2_000}]})
    codes = {(await house.ask({"find": "c", "filter": {"_id": 1}})).get("code") for _ in range(500)}
    assert codes == {None, 16500}
    await house.close()
