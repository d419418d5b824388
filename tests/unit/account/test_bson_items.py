"""Documents of the MongoDB door as items: exact in the store, JSON to the SQL door, and the same item to both."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.bson_documents import random_document, random_id, random_value
from support.house import House
from support.merged_query import MergedQuery

from armillary.account import containers
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.bson.bson_ids import id_text, id_value
from armillary.model.bson.bson_json import document_of, from_json, json_of, to_json
from armillary.model.bson.bson_values import decode, encode, equal, is_identical
from armillary.model.items import find_illegal_in_item_id
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.partition.document_changes import ChangeStatement
from armillary.partition.operations import Result

OID = ObjectId("5f0c1e7a8d3b2a0012345678")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    assert await house.problems() == []
    await house.close()


async def insert(house: House, container: Container, document: dict[str, Any]) -> None:
    operation = document_operations.inserting(container, document, encode(document), house.clock)
    await document_operations.write(container, operation)


async def find(container: Container, key: Any, id_value: Any) -> dict[str, Any] | None:
    found = await document_operations.find(container, Key((key,)), id_value)
    return decode(found.document) if found.document is not None else None


async def select(house: House, container: Container, text: str) -> list[Any]:
    bound = compile_query(text).bind({}, container.query_context())
    return list(map(orjson.loads, await MergedQuery(house.account, container, bound, FeedOptions()).whole()))


# Ids.


def test_ids_are_texts_and_back(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(5_000):
        value = random_id(dice)
        text = id_text(value)
        assert text and len(text.encode()) <= 1023 and not find_illegal_in_item_id(text)
        if not text.startswith("sha:"):
            assert equal(id_value(text), value), (value, text)
            assert id_text(id_value(text)) == text


def test_equal_ids_are_one_text_and_others_are_not(seed: int) -> None:
    dice = random.Random(seed)
    values = [random_id(dice) for _ in range(300)]
    for left in values:
        for right in values:
            assert (id_text(left) == id_text(right)) == equal(left, right), (left, right)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (OID, f"oid:{OID}"),
        (5, "i:5"),
        (Int64(5), "i:5"),
        (5.0, "i:5"),
        (Decimal128("5.00"), "i:5"),
        (-0.0, "i:0"),
        (1.5, "d:1.5"),
        (Decimal128("1.50"), "d:1.5"),
        (float("nan"), "d:NaN"),
        ("i:x", "i:x"),
        ("x" * 1023, "x" * 1023),
    ],
)
def test_texts_of_ids(value: Any, text: str) -> None:
    assert id_text(value) == text


def test_strings_that_look_like_other_ids_are_told_apart() -> None:
    for text in ("i:5", f"oid:{OID}", "d:1.5", "", "a/b", "x" * 2000):
        assert id_text(text) not in (text, id_text(5))
    assert id_value("i:05") == "i:05"
    assert id_value("oid:nothing") == "oid:nothing"


# JSON.


def test_values_are_json_and_back(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(5_000):
        value = random_value(dice)
        projected = to_json(value)
        again = orjson.loads(orjson.dumps(projected))
        assert is_identical(from_json(again, value), value) or equal(from_json(again, value), value)
        assert to_json(from_json(again)) == again


def test_documents_keep_every_type_when_json_is_written_over_them() -> None:
    document = {
        "_id": 7.0,
        "int": 5,
        "long": Int64(5),
        "double": 5.0,
        "far": Int64(2**60),
        "decimal": Decimal128("5.00"),
        "when": DatetimeMS(0),
        "oid": OID,
        "bytes": Binary(b"ab", 4 + 124),
        "nested": {"list": [1.0, Int64(2), {"x": 3.0}]},
        "id": "own",
        "_ts": "own too",
    }
    item = orjson.loads(orjson.dumps(json_of(document)))
    assert item["id"] == "i:7"
    assert item["$_id"] == "own"
    assert item["far"] == {"$numberLong": str(2**60)}
    as_javascript_sends_it = orjson.loads(re.sub(rb"\.0(?=[],}])", b"", orjson.dumps(item)))
    assert encode(document_of(as_javascript_sends_it, document)) == encode(document)


# In the store.


async def test_five_thousand_documents_come_back_byte_for_byte(house: House, seed: int) -> None:
    dice = random.Random(seed)
    container = await house.container()
    kept: dict[tuple[str, str], tuple[Any, bytes]] = {}
    operations = []
    for number in range(5_000):
        document = {"_id": random_id(dice), "pk": f"p{number % 7}", **random_document(dice)}
        key = (document["pk"], id_text(document["_id"]))
        if key in kept:
            continue
        encoded = encode(document)
        kept[key] = (document["_id"], encoded)
        operations.append(document_operations.inserting(container, decode(encoded), encoded, house.clock))
    answer = await document_operations.write_many(container, operations, stops=True)
    assert len(answer.outcomes) == len(operations)
    assert not any(isinstance(outcome, Failure) for outcome in answer.outcomes)
    await house.reopen()
    container = house.account.container("d400", "c")
    for (pk, _), (value, encoded) in kept.items():
        found = await document_operations.find(container, Key((pk,)), value)
        assert found.document == encoded
    seen = await select(house, container, "SELECT c.id, c.pk FROM c")
    assert {(row["pk"], row["id"]) for row in seen} == set(kept)


async def test_numerically_equal_ids_are_taken(house: House) -> None:
    container = await house.container()
    await insert(house, container, {"_id": 1, "pk": "a"})
    for same in (Int64(1), 1.0, Decimal128("1.0")):
        with pytest.raises(Failure) as caught:
            await insert(house, container, {"_id": same, "pk": "a"})
        assert caught.value.kind is Kind.CONFLICT
    await insert(house, container, {"_id": 1.0, "pk": "b"})


async def test_many_writes_stop_at_the_first_failure_or_go_on(house: House) -> None:
    container = await house.container(throughput_ru=12_000)
    taken = [{"_id": number, "pk": f"p{number % 3}"} for number in range(0, 200, 10)]
    for document in taken:
        await insert(house, container, document)
    documents = [{"_id": number, "pk": f"p{number % 3}", "v": 1} for number in range(200)]

    def operations() -> list[Any]:
        return [document_operations.inserting(container, each, encode(each), house.clock) for each in documents]

    answer = await document_operations.write_many(container, operations()[1:], stops=True)
    assert [isinstance(each, Failure) for each in answer.outcomes] == [False] * 9 + [True]
    answer = await document_operations.write_many(container, operations(), stops=False)
    failed = [place for place, each in enumerate(answer.outcomes) if isinstance(each, Failure)]
    assert failed == sorted({*range(0, 200, 10), *range(10)})
    assert len(await select(house, container, "SELECT c.id FROM c")) == 200


async def test_changes_and_deletes_are_told_what_is_there(house: House) -> None:
    container = await house.container()
    await insert(house, container, {"_id": OID, "pk": "a", "n": Int64(1)})
    more = document_operations.changing(container, Key(("a",)), OID, ChangeStatement({}, {"$inc": {"n": 1}}))
    answer = await document_operations.write(container, more)
    assert answer.outcome is not None and decode(answer.outcome.before or b"")["n"] == 1
    assert decode(answer.payload or b"")["n"] == 2
    none = await document_operations.write(
        container,
        document_operations.changing(container, Key(("a",)), OID, ChangeStatement({"n": 1}, {"$inc": {"n": 1}})),
    )
    assert none.result is Result.NOT_MODIFIED
    kept = await document_operations.write(
        container, document_operations.deleting(container, Key(("a",)), OID, ChangeStatement({"n": 1}))
    )
    assert kept.result is Result.NOT_MODIFIED
    gone = await document_operations.write(
        container, document_operations.deleting(container, Key(("a",)), OID, ChangeStatement({"n": 2}))
    )
    assert gone.result is Result.DELETED
    with pytest.raises(Failure) as caught:
        await document_operations.write(container, more)
    assert caught.value.kind is Kind.NOT_FOUND


# Through both doors.


async def test_documents_are_items_to_the_sql_door(house: House) -> None:
    container = await house.container()
    document = {"_id": OID, "pk": "a", "n": 1.5, "when": DatetimeMS(5), "tags": ["x", OID], "id": 3}
    await insert(house, container, document)
    item_id = id_text(OID)
    answer = await items.read(container, item_id, ItemOptions(key=Key(("a",))))
    item = orjson.loads(answer.payload or b"")
    assert item["_id"] == {"$oid": str(OID)} and item["id"] == item_id and item["$_id"] == 3
    assert item["_etag"] == answer.etag and item["_ts"] == int(house.clock.now_s())
    assert (await items.read(container, item_id, ItemOptions(Key(("a",)), if_none_match=answer.etag))).payload is None
    assert await select(house, container, "SELECT VALUE c.n FROM c WHERE c.n > 1 ORDER BY c.n") == [1.5]
    assert await select(house, container, "SELECT * FROM c") == [item]
    oid = await select(house, container, f"SELECT VALUE c.id FROM c WHERE c.tags[1]['$oid'] = '{OID}'")
    assert oid == [item_id]
    assert await select(house, container, f"SELECT VALUE MAX(c._ts) FROM c WHERE c._id['$oid'] = '{OID}'") == [
        item["_ts"]
    ]


async def test_sql_writes_over_documents_and_documents_over_items(house: House) -> None:
    container = await house.container()
    await insert(house, container, {"_id": 1, "pk": "a", "long": Int64(5), "double": 2.0, "when": DatetimeMS(0)})
    item = orjson.loads((await items.read(container, "i:1", ItemOptions(key=Key(("a",))))).payload or b"")
    answer = await items.replace(container, "i:1", {**item, "new": 7}, ItemOptions(Key(("a",))), house.clock)
    assert orjson.loads(answer.payload or b"")["new"] == 7
    patch = parse_patch([{"op": "incr", "path": "/new", "value": 1}])
    answer = await items.patch(container, "i:1", patch, ItemOptions(Key(("a",)), if_match=answer.etag))
    read = await items.read(container, "i:1", ItemOptions(Key(("a",))))
    assert read.payload == answer.payload and read.etag == answer.etag
    found = await find(container, "a", 1.0)
    assert found is not None and found["new"] == 8
    kept = {"_id": 1, "pk": "a", "long": Int64(5), "double": 2.0, "when": DatetimeMS(0)}
    assert encode({name: found[name] for name in kept}) == encode(kept)
    # The other way round.
    await items.create(container, {"id": "plain", "pk": "a", "n": 1}, ItemOptions(), house.clock)
    assert await find(container, "a", "plain") == {"_id": "plain", "pk": "a", "n": 1}
    change = document_operations.changing(
        container, Key(("a",)), "plain", ChangeStatement({}, {"$set": {"when": DatetimeMS(1)}})
    )
    await document_operations.write(container, change)
    item = orjson.loads((await items.read(container, "plain", ItemOptions(Key(("a",))))).payload or b"")
    assert item["when"] == {"$date": {"$numberLong": "1"}} and item["_id"] == "plain"


async def test_what_bson_cannot_hold_stays_json(house: House) -> None:
    container = await house.container()
    await insert(house, container, {"_id": "x", "pk": "a", "n": 1})
    body = {"id": "x", "pk": "a", "nul\x00name": 1, "_id": {"$oid": str(OID)}}
    await items.replace(container, "x", body, ItemOptions(Key(("a",))), house.clock)
    item = orjson.loads((await items.read(container, "x", ItemOptions(Key(("a",))))).payload or b"")
    assert item["nul\x00name"] == 1 and item["_id"] == {"$oid": str(OID)}
    assert await find(container, "a", "x") == {"_id": "x", "pk": "a", "nul\ufffdname": 1}


async def test_unique_keys_and_time_to_live_hold_for_documents(house: House) -> None:
    unique = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = await house.container(uniqueKeyPolicy=unique, defaultTtl=100)
    await insert(house, container, {"_id": 1, "pk": "a", "email": "x"})
    with pytest.raises(Failure) as caught:
        await insert(house, container, {"_id": 2, "pk": "a", "email": "x"})
    assert caught.value.kind is Kind.CONFLICT
    await insert(house, container, {"_id": 2, "pk": "a", "email": OID, "ttl": Int64(10)})
    with pytest.raises(Failure):
        await items.create(
            container, {"id": "3", "pk": "a", "email": {"$oid": str(OID)}}, ItemOptions(Key(("a",))), house.clock
        )
    house.clock.advance(11)
    assert await find(container, "a", 2) is None
    await insert(house, container, {"_id": 3, "pk": "a", "email": OID})
    house.clock.advance(100)
    assert await select(house, container, "SELECT * FROM c") == []


async def test_policies_change_and_items_are_deleted_by_key(house: House) -> None:
    container = await house.container()
    for number in range(20):
        await insert(house, container, {"_id": number, "pk": f"p{number % 2}", "n": number, "when": DatetimeMS(number)})
    body = {**container.record.body, "indexingPolicy": {"includedPaths": [], "excludedPaths": [{"path": "/*"}]}}
    await containers.replace_container(house.account, container, body, None)
    await items.delete_by_key(container, Key(("p1",)))
    assert len(await select(house, container, "SELECT * FROM c WHERE c.n >= 0")) == 10
