"""Numbered commands of the MongoDB door in process: writes that come again are done once, and transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from support.limits import WithLimits
from support.mongo_house import MongoHouse

from armillary import limits
from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.model import layout
from armillary.model.encoding import FORMAT_JSON, ItemHeader, pack_item, unpack_header
from armillary.storage.memory import MemoryEngine

LSID = {"id": Binary(bytes(16), 4)}
OPERATIONS = [
    {"insert": 0, "document": {"_id": 8, "n": 5}},
    {"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 100}}},
]
OTHER = {"id": Binary(bytes(15) + b"\x01", 4)}


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    await opened.ask({"insert": "c", "documents": [{"_id": number, "n": 0} for number in range(5)]})
    yield opened
    await opened.close()


def numbered(number: int, lsid: dict[str, Any] = LSID) -> dict[str, Any]:
    return {"lsid": lsid, "txnNumber": Int64(number)}


def within(number: int, lsid: dict[str, Any] = LSID, *, starts: bool = False) -> dict[str, Any]:
    return {**numbered(number, lsid), "autocommit": False, **({"startTransaction": True} if starts else {})}


async def documents(house: MongoHouse, collection: str = "c", **extra: Any) -> dict[Any, Any]:
    found = await house.ask({"find": collection, **extra})
    assert found["ok"] == 1.0, found
    return {each["_id"]: each.get("n") for each in found["cursor"]["firstBatch"]}


# Writes that come again.


@pytest.mark.parametrize("restarts", [False, True])
async def test_writes_that_come_again(restarts: bool) -> None:
    engine, clock = MemoryEngine(), VirtualClock()
    house = await MongoHouse.open(engine, clock)
    increase = {
        "update": "c",
        "updates": [
            {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}},
            {"q": {"_id": 2}, "u": {"$inc": {"n": 1}}, "upsert": True},
        ],
    }
    commands: list[dict[str, Any]] = [
        {"insert": "c", "documents": [{"_id": 1, "n": 0}, {"_id": 7, "n": 0}]},
        increase,
        {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 10}}, "new": True},
        {"delete": "c", "deletes": [{"q": {"n": 0}, "limit": 1}]},
        {"findAndModify": "c", "query": {"_id": 2}, "remove": True},
        {"bulkWrite": 1, "ops": OPERATIONS, "nsInfo": [{"ns": "test.c"}], "$db": "admin"},
    ]  # fmt: skip
    for number, command in enumerate(commands):
        first = await house.ask({**command, **numbered(number)})
        assert first["ok"] == 1.0 and "retriedStmtIds" not in first, first
        if restarts:
            await house.door.close()
            await house.account.close()
            account = await Account.open(engine, clock)
            house = MongoHouse(
                engine, account, MongoDoor(account, (), (), MongoSettings(needs_authentication=False), machine=clock)
            )
        again = await house.ask({**command, **numbered(number)})
        marks = [again.pop("retriedStmtIds", None), again.pop("retriedStmtId", None)]
        assert any(each is not None for each in marks), again
        for reply in (first, again):
            for name in ("operationTime", "$clusterTime"):
                reply.pop(name)
        assert again == first
    assert await documents(house) == {1: 111, 8: 5}
    old = await house.ask({**increase, **numbered(2)})
    assert (old["code"], old["codeName"]) == (225, "TransactionTooOld")
    await house.close()


async def test_statements_that_were_not_done_are(house: MongoHouse) -> None:
    """The answer to the first half of a command was lost."""
    await house.ask({"insert": "c", "documents": [{"_id": 10}], **numbered(1), "stmtIds": [0]})
    both = {"insert": "c", "documents": [{"_id": 10}, {"_id": 11}], **numbered(1)}
    answer = await house.ask(both)
    assert (answer["n"], answer["retriedStmtIds"]) == (2, [0])


async def test_what_cannot_be_numbered(house: MongoHouse) -> None:
    many = {"update": "c", "updates": [{"q": {}, "u": {"$set": {"x": 1}}, "multi": True}], **numbered(1)}
    assert (await house.ask(many))["writeErrors"][0]["code"] == 72
    assert (await house.ask({"find": "c", **numbered(1)}))["code"] == 72
    assert (await house.ask({"insert": "c", "documents": [{}], "txnNumber": Int64(1)}))["code"] == 72
    assert (await house.ask({"insert": "c", "documents": [{}], "lsid": LSID, "txnNumber": 1}))["code"] == 72


# Transactions.


async def test_a_transaction_is_done_whole_or_not_at_all(house: MongoHouse) -> None:
    update = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
    assert (await house.ask({**update, **within(1, starts=True)}))["nModified"] == 1
    await house.ask({"insert": "c", "documents": [{"_id": 9, "n": 9}], **within(1)})
    assert 9 in await documents(house, **within(1)) and 9 not in await documents(house)
    counted = {"aggregate": "c", "pipeline": [{"$count": "n"}], "cursor": {}, **within(1)}
    assert (await house.ask(counted))["cursor"]["firstBatch"] == [{"n": 6}]
    commit = {"commitTransaction": 1, "$db": "admin", **within(1)}
    assert (await house.ask(commit))["ok"] == 1.0
    assert (await house.ask(commit))["ok"] == 1.0, "again"
    assert (await documents(house))[9] == 9
    assert (await house.ask({"abortTransaction": 1, "$db": "admin", **within(1)}))["code"] == 256
    assert (await house.ask({"find": "c", **within(1)}))["code"] == 256
    await house.ask({"delete": "c", "deletes": [{"q": {}, "limit": 0}], **within(2, starts=True)})
    assert await documents(house, **within(2)) == {}
    assert (await house.ask({"abortTransaction": 1, "$db": "admin", **within(2)}))["ok"] == 1.0
    assert len(await documents(house)) == 6
    gone = await house.ask({"find": "c", **within(2)})
    assert gone["code"] == 251 and gone["errorLabels"] == ["TransientTransactionError"]
    assert (await house.ask({"commitTransaction": 1, "$db": "admin", **within(5)}))["code"] == 251
    assert (await house.ask({"find": "c", **within(1, starts=True)}))["code"] == 225


async def test_conflicts_are_told_with_their_label(house: MongoHouse) -> None:
    def update(number: int) -> dict[str, Any]:
        return {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": number}}}]}

    await house.ask({**update(1), **within(1, starts=True)})
    lost = await house.ask({**update(2), **within(1, OTHER, starts=True)})
    assert (lost["ok"], lost["code"], lost["errorLabels"]) == (0.0, 112, ["TransientTransactionError"])
    assert (await house.ask({"find": "c", **within(1, OTHER)}))["code"] == 251, "it is over"
    assert (await house.ask({"commitTransaction": 1, "$db": "admin", **within(1)}))["ok"] == 1.0
    await house.ask({**update(1), **within(2, starts=True)})
    await house.ask(update(10))
    lost = await house.ask({"commitTransaction": 1, "$db": "admin", **within(2)})
    assert (lost["code"], lost["errorLabels"]) == (112, ["TransientTransactionError"])
    assert (await documents(house))[1] == 11


async def test_a_transaction_reads_what_was_there_when_it_began(house: MongoHouse) -> None:
    before = await documents(house, **within(1, starts=True))
    await house.ask({"insert": "c", "documents": [{"_id": 20}]})
    assert await documents(house, **within(1)) == before
    await house.ask({"abortTransaction": 1, "$db": "admin", **within(1)})


async def test_what_is_not_done_in_transactions(house: MongoHouse) -> None:
    assert (await house.ask({"count": "c", **within(1, starts=True)}))["code"] == 263
    outputs = {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}
    assert (await house.ask({**outputs, **within(2, starts=True)}))["code"] == 263
    await house.ask({"find": "c", **within(4, starts=True)})
    assert (await house.ask({"find": "c", "readConcern": {"level": "local"}, **within(4)}))["code"] == 72
    assert (await house.ask({"find": "c", **numbered(5), "autocommit": True, "startTransaction": True}))["code"] == 72
    assert (await house.ask({"commitTransaction": 1, "$db": "admin"}))["code"] == 125


async def test_transactions_of_sharded_collections_name_their_shard(house: MongoHouse) -> None:
    await house.ask({"shardCollection": "test.s", "key": {"r": 1}})
    await house.ask({"insert": "s", "documents": [{"_id": number, "r": number % 3, "n": 0} for number in range(9)]})
    assert (await house.ask({"find": "s", **within(1, starts=True)}))["code"] == 263
    update = {"q": {"r": 1}, "u": {"$inc": {"n": 1}}, "multi": True}
    answer = await house.ask({"update": "s", "updates": [update], **within(2, starts=True)})
    assert answer["nModified"] == 3, answer
    insert = {"insert": "s", "documents": [{"_id": 20, "r": 1, "n": 7}]}
    assert (await house.ask({**insert, **within(2)}))["n"] == 1
    assert (await house.ask({"commitTransaction": 1, "$db": "admin", **within(2)}))["ok"] == 1.0
    assert (await documents(house, "s"))[20] == 7
    await house.ask({"find": "s", "filter": {"r": 1}, **within(3, starts=True)})
    several = [{"_id": 30, "r": 2, "n": 1}, {"_id": 31, "r": 2, "n": 1}, {"_id": 32, "r": 0, "n": 1}]
    assert (await house.ask({"insert": "s", "documents": several, **within(3)}))["n"] == 3
    assert (await house.ask({"commitTransaction": 1, "$db": "admin", **within(3)}))["ok"] == 1.0
    assert {30, 31, 32} <= (await documents(house, "s")).keys()


async def test_cursors_end_with_their_transaction(house: MongoHouse) -> None:
    found = (await house.ask({"find": "c", "batchSize": 2, **within(1, starts=True)}))["cursor"]
    more = {"getMore": Int64(found["id"]), "collection": "c", "batchSize": 1}
    assert len((await house.ask({**more, **within(1)}))["cursor"]["nextBatch"]) == 1
    await house.ask({"commitTransaction": 1, "$db": "admin", **within(1)})
    assert (await house.ask({**more, "lsid": LSID}))["code"] == 43


async def test_transactions_grow_old() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock, transaction_s=5.0)
    await house.ask({"insert": "c", "documents": [{"_id": 1}]})
    await house.ask({"delete": "c", "deletes": [{"q": {}, "limit": 0}], **within(1, starts=True)})
    clock.advance(6)
    await house.door.look_after()
    assert (await house.ask({"commitTransaction": 1, "$db": "admin", **within(1)}))["code"] == 251
    assert len(await documents(house)) == 1
    await house.close()


# Collections that a transaction makes.


async def names_of(house: MongoHouse) -> list[str]:
    listed = await house.ask({"listCollections": 1, "nameOnly": True})
    return sorted(each["name"] for each in listed["cursor"]["firstBatch"])


async def ended(house: MongoHouse, how: str, number: int) -> dict[str, Any]:
    return await house.ask({f"{how}Transaction": 1, **within(number)}, database="admin")


async def test_collections_are_made_with_the_transaction(house: MongoHouse) -> None:
    index = {"key": {"n": 1}, "name": "n_1", "unique": True}
    assert (await house.ask({"create": "made", **within(1, starts=True)}))["ok"] == 1
    assert (await house.ask({"createIndexes": "made", "indexes": [index], **within(1)}))["numIndexesAfter"] == 2
    assert (await house.ask({"insert": "made", "documents": [{"_id": 1, "n": 1}], **within(1)}))["n"] == 1
    assert await documents(house, "made", **within(1)) == {1: 1}
    assert await names_of(house) == ["c"] and await documents(house, "made") == {}
    assert (await ended(house, "commit", 1))["ok"] == 1
    assert await names_of(house) == ["c", "made"] and await documents(house, "made") == {1: 1}
    listed = await house.ask({"listIndexes": "made"})
    assert [each["name"] for each in listed["cursor"]["firstBatch"]] == ["_id_", "n_1"]
    assert (await ended(house, "commit", 1))["ok"] == 1, "asked for again"
    assert (await house.ask({"create": "made", **within(2, starts=True)}))["code"] == 48


async def test_collections_go_with_the_transaction(house: MongoHouse) -> None:
    await house.ask({"insert": "other", "documents": [{}]})
    await house.ask({"insert": "made", "documents": [{"_id": 1}], **within(1, starts=True)})
    await ended(house, "abort", 1)
    await house.ask({"insert": "made", "documents": [{"_id": 1}], **within(2, starts=True)})
    await house.ask({"insert": "made", "documents": [{"_id": 2}]})
    refused = await ended(house, "commit", 2)
    assert (refused["code"], refused["errorLabels"]) == (112, ["TransientTransactionError"]), "somebody was faster"
    assert await documents(house, "made") == {2: None} and await names_of(house) == ["c", "made", "other"]
    indexing = {"createIndexes": "other", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}
    assert (await house.ask({**indexing, **within(3, starts=True)}))["code"] == 263


async def test_collections_of_transactions_that_were_cut_off() -> None:
    engine = MemoryEngine()
    first = await MongoHouse.open(engine)
    await first.ask({"insert": "made", "documents": [{"_id": 1}], **within(1, starts=True)})
    second = await MongoHouse.open(engine)  # without closing the first: it was killed
    assert len(list(second.account.containers)) == 1
    await second.door.clear()
    await second.account.close()
    await first.account.close()
    third = await MongoHouse.open(engine)
    assert list(third.account.containers) == [] and await names_of(third) == []
    await third.close()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": "c", "tailable": True}, 263),
        ({"killCursors": "c", "cursors": [Int64(5)]}, 263),
        ({"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}}, 263),
        ({"insert": "x", "documents": [{"_id": 1}], "$db": "admin"}, 263),
    ],
)
async def test_what_no_transaction_does(house: MongoHouse, command: dict[str, Any], code: int) -> None:
    assert (await house.ask({**command, **within(1, starts=True)}))["code"] == code
    assert (await house.ask({"find": "c", **within(1)}))["code"] == 251


async def test_what_says_only_half_of_a_transaction(house: MongoHouse) -> None:
    for half in ({"autocommit": False}, {"startTransaction": True}):
        assert (await house.ask({"find": "c", "lsid": LSID, **half}))["code"] == 72
    assert (await house.ask({"find": "c", **within(1), "startTransaction": False}))["code"] == 72


# Numbers that have an end.


async def test_a_transaction_that_is_too_large_is_refused_while_it_is_collected(
    house: MongoHouse, with_limits: WithLimits
) -> None:
    with_limits(TRANSACTION_CHANGES_MAX=40)
    many = {"insert": "c", "documents": [{"_id": 100 + number} for number in range(38)]}
    assert (await house.ask({**many, **within(1, starts=True)}))["n"] == 38
    update = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
    for _ in range(2):
        assert (await house.ask({**update, **within(1)}))["n"] == 1
    refused = await house.ask({**update, **within(1)})
    assert (refused["code"], refused["codeName"]) == (257, "TransactionTooLarge")
    assert "at most 40 items" in refused["errmsg"]
    again = await house.ask({"commitTransaction": 1, **within(1)}, database="admin")
    assert again["code"] == 251, "as every other failure, it ends the transaction"
    assert len(await documents(house)) == 5
    assert (await house.ask({**many, **within(2, starts=True)}))["n"] == 38
    for _ in range(2):
        assert (await house.ask({**update, **within(2)}))["n"] == 1
    assert (await house.ask({"commitTransaction": 1, **within(2)}, database="admin"))["ok"] == 1
    assert (await documents(house))[1] == 2


@pytest.mark.soak
async def test_the_largest_transaction(house: MongoHouse) -> None:
    most = limits.TRANSACTION_CHANGES_MAX
    some = {"insert": "c", "documents": [{"_id": 100 + number} for number in range(most - 1)]}
    assert (await house.ask({**some, **within(1, starts=True)}))["n"] == most - 1
    for number in (98, 99):
        answer = await house.ask({"insert": "c", "documents": [{"_id": number}], **within(1)})
        assert answer.get("code") == (None if number == 98 else 257)
    assert (await house.ask({**some, **within(2, starts=True)}))["n"] == most - 1
    assert (await house.ask({"insert": "c", "documents": [{"_id": 98}], **within(2)}))["n"] == 1
    assert (await house.ask({"commitTransaction": 1, **within(2)}, database="admin"))["ok"] == 1
    assert len(await documents(house, batchSize=most + 5)) == most + 5


@pytest.mark.parametrize(
    "statements",
    [
        {"stmtIds": [-1]},
        {"stmtIds": [Int64(2**40)]},
        {"stmtIds": ["a"]},
        {"stmtIds": [1, 2]},
        {"stmtIds": 5},
        {"stmtId": -1},
        {"stmtId": Int64(2**40)},
        {"stmtId": Int64(2**63 - 1)},
    ],
)
async def test_numbers_of_statements_that_do_not_fit(house: MongoHouse, statements: dict[str, Any]) -> None:
    """They are part of a key; what has no place there is refused by name, and nothing is written."""
    insert = {"insert": "c", "documents": [{"_id": 9}], **statements, **numbered(1)}
    answer = await house.ask(insert)
    assert answer["ok"] == 0 and answer["code"] in (2, 14, 16, 51024), answer
    if "stmtId" in statements:
        change = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, **statements, **numbered(2)}
        assert (await house.ask(change))["ok"] == 0
    assert await documents(house) == dict.fromkeys(range(5), 0)


def test_the_largest_transaction_fits_the_log() -> None:
    last = limits.TRANSACTION_CHANGES_MAX - 1
    for key in (layout.change_key, layout.event_key, layout.version_key):
        assert key(1, last, 2**64 - 1) < key(2, 0, 0)
    header = ItemHeader(FORMAT_JSON, 0, 1, 1, 0, -1, b"k", last)
    assert unpack_header(pack_item(header, b"")).step == last
