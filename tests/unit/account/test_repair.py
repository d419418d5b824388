"""`armillary check --repair` beside the other ways of keeping items: containers that keep all versions, and documents
of MongoDB. Items are planted where they do not belong, as by versions that compared true with 1."""

from __future__ import annotations

import asyncio
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.mongo_house import MongoHouse

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.changes.change_feed import change_row, read_changes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.misplaced_items import find_misplaced
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import SystemClock
from armillary.model.keys import Key
from armillary.model.ranges import KeyRange
from armillary.partition.partition import Partition
from armillary.partition.writing.writer import Writer
from armillary.storage.rocks import RocksEngine
from armillary.tools.check import check

SHARD_KEYS: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, -0.0, Int64(1), Int64(2**60), 2.0**60, "", "1", "é\x00",
    ObjectId(b"0123456789ab"), Decimal128("1.10"), Decimal128("1"), datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    {"a": Int64(1)}, {}, b"ab",
]  # fmt: skip


def elsewhere(container: Container, epk: bytes) -> Partition:
    return next(each for each in container.partitions.values() if not each.range.contains(epk))


def open_gates(patch: pytest.MonkeyPatch, home: Partition) -> None:
    """Everything goes to one partition, which takes it."""
    patch.setattr(Container, "partition_for", lambda *_: home)
    seal = Writer._seal

    def unchecked(self: Writer, *arguments: Any) -> Any:
        self._range = KeyRange(0, b"", b"\xff", (), 0)
        return seal(self, *arguments)

    patch.setattr(Writer, "_seal", unchecked)


async def test_documents_with_shard_keys_of_all_types_are_not_taken_for_misplaced(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "data", "relaxed")
    house = await MongoHouse.open(engine, SystemClock(), throughput_ru=20_000)
    assert (await house.ask({"shardCollection": "test.c", "key": {"s": "hashed"}, "$db": "admin"}))["ok"] == 1
    documents = [{"_id": n, "s": key} for n, key in enumerate(SHARD_KEYS)]
    inserted = await house.ask({"insert": "c", "documents": documents})
    assert inserted["n"] == len(documents), inserted
    container = house.account.container("test", "c")
    assert len(container.partitions) > 1
    found = [each.item_id async for each in find_misplaced(engine, SystemClock())]
    await house.close()
    assert not found


async def test_items_of_containers_that_keep_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, clock = tmp_path / "data", SystemClock()
    engine = await RocksEngine.open(directory, "relaxed")
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    body = {"id": "c", "partitionKey": {"paths": ["/pk"]}, "changeFeedPolicy": {"retentionDuration": 10}}
    container = await containers.create_container(account, database, body, Throughput(20_000))
    key = Key((1,))
    options = ItemOptions(key=key)
    home = elsewhere(container, container.effective_key(key))
    with monkeypatch.context() as patch:
        open_gates(patch, home)
        for item_id in ("moved", "taken", "gone"):
            for n in (1, 2):
                await items.upsert(container, {"id": item_id, "pk": 1, "n": n}, options, clock)
        await items.delete(container, "gone", options)
    await items.create(container, {"id": "taken", "pk": 1, "n": 3}, options, clock)
    await account.close()
    await engine.close()
    assert await asyncio.to_thread(check, directory) == 1
    assert await asyncio.to_thread(check, directory, is_repairing=True) == 0
    aside = [json.loads(line) for line in (tmp_path / "data-misplaced-1.jsonl").read_text().splitlines()]
    assert [(each["item"]["id"], each["item"]["n"]) for each in aside] == [("taken", 2)]
    engine = await RocksEngine.open(directory, "relaxed")
    account = await Account.open(engine, clock)
    container = account.container("d", "c")
    page = await read_changes(account, container, FeedOptions(continuation="0"), has_all_versions=True)
    rows = [json.loads(change_row(each, container)) for each in page.items]
    assert sorted((row["current"]["id"], row["current"]["n"]) for row in rows) == [("moved", 2), ("taken", 3)]
    await items.delete(container, "moved", options)
    await account.close()
    await engine.close()
    assert await asyncio.to_thread(check, directory) == 0


async def test_documents_of_mongodb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    engine = await RocksEngine.open(directory, "relaxed")
    house = await MongoHouse.open(engine, SystemClock(), throughput_ru=20_000)
    assert (await house.ask({"shardCollection": "test.c", "key": {"s": "hashed"}, "$db": "admin"}))["ok"] == 1
    container = house.account.container("test", "c")
    planted = [{"_id": {"a": Int64(n)}, "s": True, "x": Decimal128("1.10"), "at": ObjectId()} for n in range(3)]
    with monkeypatch.context() as patch:
        open_gates(patch, elsewhere(container, container.effective_key(Key((True,)))))
        assert (await house.ask({"insert": "c", "documents": planted}))["n"] == 3
        again = {"q": {"_id": planted[0]["_id"], "s": True}, "u": {"$set": {"y": 1}}}
        assert (await house.ask({"update": "c", "updates": [again]}))["n"] == 1
        await house.ask({"delete": "c", "deletes": [{"q": {"_id": planted[2]["_id"], "s": True}, "limit": 1}]})
    assert (await house.ask({"insert": "c", "documents": [{"_id": planted[1]["_id"], "s": True, "new": 1}]}))["n"] == 1
    await house.close()
    assert await asyncio.to_thread(check, directory) == 1
    assert await asyncio.to_thread(check, directory, is_repairing=True) == 0
    [aside] = [json.loads(line) for line in (tmp_path / "data-misplaced-1.jsonl").read_text().splitlines()]
    assert json_util.loads(json.dumps(aside["item"]), json_options=json_util.CANONICAL_JSON_OPTIONS) == planted[1]
    engine = await RocksEngine.open(directory, "relaxed")
    house = await MongoHouse.open(engine, SystemClock())
    found = (await house.ask({"find": "c", "filter": {"s": True}, "sort": {"_id": 1}}))["cursor"]["firstBatch"]
    assert found == [{**planted[0], "y": 1}, {"_id": planted[1]["_id"], "s": True, "new": 1}]
    await house.close()
    assert await asyncio.to_thread(check, directory) == 0
