"""Reads of a snapshot outside of transactions, in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.int64 import Int64
from bson.timestamp import Timestamp
from support.mongo_house import MongoHouse

from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open(account=AccountSettings(partition_throughput_ru=100))
    await opened.ask({"shardCollection": "test.spread", "key": {"k": 1}}, database="admin")
    for name in ("c", "spread"):
        await opened.ask({"insert": name, "documents": [{"_id": each, "k": each % 5} for each in range(20)]})
    yield opened
    await opened.close()


def concern(time: Any = None) -> dict[str, Any]:
    return {"readConcern": {"level": "snapshot", **({"atClusterTime": time} if time is not None else {})}}


async def test_what_was_there_then(house: MongoHouse) -> None:
    await house.ask({"create": "seen", "viewOn": "c"})
    first = await house.ask({"find": "c", "filter": {"_id": 1}, **concern()})
    time = first["cursor"]["atClusterTime"]
    assert isinstance(time, Timestamp) and first["cursor"]["firstBatch"] == [{"_id": 1, "k": 1}]
    opened = await house.ask({"find": "spread", "batchSize": 3, **concern(time)})
    for name in ("c", "spread"):
        await house.ask({"delete": name, "deletes": [{"q": {"_id": {"$lt": 10}}, "limit": 0}]})
        await house.ask({"insert": name, "documents": [{"_id": 100, "k": 9}]})
    group = [{"$group": {"_id": None, "n": {"$sum": 1}}}]
    for name in ("c", "spread"):
        counted = await house.ask({"aggregate": name, "pipeline": group, "cursor": {}, **concern(time)})
        assert counted["cursor"]["firstBatch"][0]["n"] == 20 and counted["cursor"]["atClusterTime"] == time
        values = await house.ask({"distinct": name, "key": "k", **concern(time)})
        assert sorted(values["values"]) == [0, 1, 2, 3, 4] and values["atClusterTime"] == time
        assert (
            len((await house.ask({"find": name, "filter": {"_id": 1}, **concern(time)}))["cursor"]["firstBatch"]) == 1
        )
        assert (await house.ask({"count": name, "query": {"k": {"$gte": 0}}}))["n"] == 11
    seen = await house.ask({"find": "seen", **concern(time)})
    assert len(seen["cursor"]["firstBatch"]) == 20 and seen["cursor"]["atClusterTime"] == time, "through a view"
    assert sorted((await house.ask({"distinct": "seen", "key": "k", **concern(time)}))["values"]) == [0, 1, 2, 3, 4]
    more = await house.ask({"getMore": Int64(opened["cursor"]["id"]), "collection": "spread", **concern(time)})
    assert len(more["cursor"]["nextBatch"]) == 17, "a cursor stays in its snapshot"


async def test_what_cannot_be_read(house: MongoHouse) -> None:
    assert (await house.ask({"count": "c", **concern()}))["code"] == 72
    assert (await house.ask({"find": "c", **concern(Timestamp(1, 1))}))["code"] == 239
    assert (await house.ask({"find": "c", **concern("then")}))["code"] == 14
    local = {"readConcern": {"level": "local", "atClusterTime": Timestamp(1, 1)}}
    assert (await house.ask({"find": "c", **local}))["code"] == 72
    time = (await house.ask({"find": "c", **concern()}))["cursor"]["atClusterTime"]
    await house.ask({"insert": "later", "documents": [{}]})
    assert (await house.ask({"find": "later", **concern(time)}))["code"] == 246
    index = {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k_1"}]}
    assert (await house.ask(index))["ok"] == 1
    assert (await house.ask({"find": "c", **concern(time)}))["code"] == 246, "the index is of another time"


async def test_snapshots_grow_old() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock)
    await house.ask({"insert": "c", "documents": [{"_id": each} for each in range(10)]})
    opened = await house.ask({"find": "c", "batchSize": 2, **concern()})
    time = opened["cursor"]["atClusterTime"]
    assert (await house.ask({"find": "c", **concern(house.door.cluster_time.now)}))["ok"] == 1
    await house.ask({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    clock.advance(301)
    await house.door.look_after()
    assert len(house.door.snapshots) == 0
    assert (await house.ask({"find": "c", **concern(time)}))["code"] == 239
    more = await house.ask({"getMore": Int64(opened["cursor"]["id"]), "collection": "c"})
    assert len(more["cursor"]["nextBatch"]) == 8, "whoever reads it may finish"
    for _ in range(40):
        await house.ask({"find": "c", **concern()})
    assert len(house.door.snapshots) == 32
    await house.close()
