"""One container used through the SQL and the MongoDB door at once, while it splits and merges; and what the self-check
says when a document, a key or a record of it is damaged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from bson.objectid import ObjectId
from support.bson_documents import random_document
from support.collections import Shop

from armillary.account.check import check_account
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import json_of
from armillary.model.bson.bson_values import Document, decode, encode
from armillary.model.key_values import Key
from armillary.partition.document_changes import ChangeStatement
from armillary.partition.history.retryable_write_records import Record
from armillary.storage.engine import Txn


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    await shop.close()


async def problems(shop: Shop) -> list[str]:
    return [problem async for problem in check_account(shop.engine, shop.clock)]


class Both:
    """Random work through both doors, and a dictionary that knows better."""

    def __init__(self, shop: Shop, container: Container, seed: int) -> None:
        self.shop, self.container = shop, container
        self.dice = random.Random(seed)
        self.known: dict[tuple[str, str], Document] = {}

    async def some(self, count: int) -> None:
        for _ in range(count):
            await self.dice.choice((self.insert, self.insert, self.change, self.delete, self.create, self.replace))()
            await asyncio.sleep(0)

    def any_one(self) -> tuple[str, str] | None:
        return self.dice.choice(list(self.known)) if self.known else None

    async def insert(self) -> None:
        fields = random_document(self.dice, 2, 4)
        fields.pop("ttl", None)  # SQL refuses one that is no time to live
        document = {"_id": ObjectId(self.dice.randbytes(12)), "pk": f"p{self.dice.randrange(30)}", "n": 1.0, **fields}
        await self.shop.insert(self.container, document)
        self.known[document["pk"], id_text(document["_id"])] = document

    async def create(self) -> None:
        item: dict[str, Any] = {"id": f"i{self.dice.randrange(10**9)}", "pk": f"p{self.dice.randrange(30)}", "n": 1}
        await items.create(self.container, item, ItemOptions(), self.shop.clock)
        self.known[item["pk"], item["id"]] = {"_id": item["id"], "pk": item["pk"], "n": 1}

    async def change(self) -> None:
        place = self.any_one()
        if place is None:
            return
        before = self.known[place]
        change = document_operations.changing(
            self.container, Key((place[0],)), before["_id"], ChangeStatement({}, {"$inc": {"n": 1}})
        )
        await document_operations.write(self.container, change)
        self.known[place] = {**before, "n": before["n"] + 1}

    async def replace(self) -> None:
        place = self.any_one()
        if place is None:
            return
        options = ItemOptions(key=Key((place[0],)))
        item = orjson.loads((await items.read(self.container, place[1], options)).payload or b"")
        item["n"] = item["n"] * 2
        await items.replace(self.container, place[1], item, options, self.shop.clock)
        self.known[place] = {**self.known[place], "n": self.known[place]["n"] * 2}

    async def delete(self) -> None:
        place = self.any_one()
        if place is None:
            return
        await items.delete(self.container, place[1], ItemOptions(key=Key((place[0],))))
        del self.known[place]

    async def check(self) -> None:
        for (pk, item_id), document in self.known.items():
            found = await document_operations.find(self.container, Key((pk,)), document["_id"])
            assert found.document is not None
            seen = decode(found.document)
            assert json_of(seen) == json_of(document)
            read = await items.read(self.container, item_id, ItemOptions(key=Key((pk,))))
            item = orjson.loads(read.payload or b"")
            as_sent = {name: value for name, value in item.items() if not name.startswith("_") or name == "_id"}
            expected = json_of(document)
            if "_id" not in as_sent:  # written through SQL alone
                del expected["_id"]
            assert as_sent == expected
        count = sum([partition.head.item_count for partition in self.container.partitions.values()])
        assert count == len(self.known)


async def test_both_doors_while_partitions_split_and_merge(shop: Shop, seed: int) -> None:
    container = await shop.collection("pk")
    await shop.index(container, {"pk": 1, "n": 1})
    both = Both(shop, container, seed)
    await both.some(300)
    for _ in range(2):
        work = asyncio.create_task(both.some(150))
        await shop.split(container, container.map.ranges[-1].id)
        await work
        await both.check()
    work = asyncio.create_task(both.some(100))
    low, high = container.map.ranges[:2]
    await shop.account.reshaper.finished(await shop.account.reshaper.merge(container, low.id, high.id))
    await work
    await both.check()
    assert await problems(shop) == []


@pytest.mark.parametrize("space", ["items", "terms", "unique", "records"])
async def test_the_check_sees_damaged_documents(shop: Shop, space: str) -> None:
    container = await shop.collection()
    await shop.index(container, {"a": 1}, unique=True)
    document = {"_id": ObjectId(), "a": 5}
    record = Record(b"s" * 16, 1, (0,), (b"{}",))
    operation = document_operations.inserting(container, document, encode(document), shop.clock)
    await document_operations.write(container, operation, record=record)
    assert await problems(shop) == []
    leading = {"items": layout.ITEMS, "terms": layout.TERMS, "unique": layout.UNIQUE, "records": layout.RECORDS}[space]

    def damage(txn: Txn) -> None:
        key, value = list(txn.scan(leading, layout.space_end(leading)))[-1]
        if space in ("items", "records"):
            txn.put(key, value[:-3])
        else:
            txn.delete(key)

    [partition] = container.partitions.values()
    await partition.store.write(damage)
    assert await problems(shop)


async def test_keys_of_any_type_are_one_key_to_both_doors(shop: Shop) -> None:
    container = await shop.collection("pk", 18_000)
    oid = ObjectId()
    value: Any
    for number, value in enumerate([oid, {"x": 1, "y": [1.0]}, None, True, 5, "text"]):
        await shop.insert(container, {"_id": number, "pk": value, "n": number})
    for number, value in enumerate([oid, {"x": 1.0, "y": [1]}, None, True, 5.0, "text"]):
        key = container.key_of_bson({"_id": number, "pk": value})
        found = await document_operations.find(container, key, number)
        assert found.document is not None, value
        item = orjson.loads((await items.read(container, f"i:{number}", ItemOptions(key=key))).payload or b"")
        assert container.effective_key(container.key_of(item)) == container.effective_key(key)
        answer = await items.replace(container, f"i:{number}", {**item, "n": 100}, ItemOptions(), shop.clock)
        assert orjson.loads(answer.payload or b"")["n"] == 100
    with pytest.raises(Failure) as caught:
        await shop.insert(container, {"_id": 0, "pk": oid})
    assert caught.value.kind is Kind.CONFLICT
    assert await problems(shop) == []
