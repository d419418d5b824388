"""The released clients of MongoDB on the MongoDB door: pymongo in both its forms, and mongosh. The same data through
the SQL door. Node's driver is in js/test/mongo.test.mjs; the corpus in tests/conformance."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import bson
import gridfs
import pymongo
import pytest
from azure.cosmos import CosmosClient
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from support.process import ServerProcess

MONGOSH = Path(__file__).parent / "js" / "node_modules" / "mongosh" / "bin" / "mongosh.js"


def address_of(server: ServerProcess, key: str | None = None) -> str:
    secret = quote_plus(key or server.key)
    return server.doors["mongo"].replace("://", f"://localhost:{secret}@") + "/?replicaSet=globaldb"


class Either:
    """pymongo's blocking client, so that it can be awaited as the other one is."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or isinstance(found, pymongo.collection.Collection | pymongo.database.Database):
            return Either(found) if not isinstance(found, str | int) else found

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(lambda: found(*arguments, **options))

        return call

    def __getitem__(self, name: str) -> Any:
        return Either(self._inner[name])


async def settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def listed(cursor: Any) -> list[Any]:
    cursor = await settled(cursor)
    return list(await settled(cursor.to_list()))


@pytest.fixture
async def house(flavour: str, server: ServerProcess, name: str) -> AsyncIterator[Any]:
    """A database of its own."""
    if flavour == "aio":
        client: Any
        async with pymongo.AsyncMongoClient(address_of(server)) as client:
            yield client[name]
            await client.drop_database(name)
    else:
        blocking: Any
        with pymongo.MongoClient(address_of(server)) as blocking:
            yield Either(blocking[name])
            await asyncio.to_thread(blocking.drop_database, name)


async def test_documents(house: Any) -> None:
    people = house["people"]
    await people.insert_many([{"_id": number, "n": number, "tags": ["a", "b"][: number % 3]} for number in range(250)])
    assert len(await listed(people.find({}))) == 250, "in several batches"
    assert [each["_id"] for each in await listed(people.find({"n": {"$gte": 247}}, sort=[("n", -1)]))] == [
        249,
        248,
        247,
    ]
    assert (await people.find_one({"_id": 7}))["tags"] == ["a"]
    assert (await people.update_one({"_id": 7}, {"$push": {"tags": "z"}})).modified_count == 1
    assert (await people.update_many({"n": {"$lt": 10}}, {"$inc": {"n": 1000}})).modified_count == 10
    assert (await people.replace_one({"_id": "new"}, {"x": 1}, upsert=True)).upserted_id == "new"
    found = await people.find_one_and_update({"_id": 7}, {"$set": {"n": 5}}, return_document=True)
    assert found == {"_id": 7, "n": 5, "tags": ["a", "z"]}
    assert (await people.delete_many({"n": {"$gte": 1000}})).deleted_count == 9
    assert await people.count_documents({}) == 242
    assert sorted(await people.distinct("tags")) == ["a", "b", "z"]
    groups = await listed(
        people.aggregate([{"$group": {"_id": {"$size": {"$ifNull": ["$tags", []]}}, "n": {"$sum": 1}}}])
    )
    assert sum(each["n"] for each in groups) == 242


async def test_refusals(house: Any) -> None:
    people = house["people"]
    await people.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError) as caught:
        await people.insert_one({"_id": 1})
    assert caught.value.details is not None and caught.value.details["keyValue"] == {"_id": 1}
    with pytest.raises(BulkWriteError) as bulk:
        await people.insert_many([{"_id": 2}, {"_id": 1}, {"_id": 3}], ordered=False)
    assert (bulk.value.details["nInserted"], bulk.value.details["writeErrors"][0]["index"]) == (2, 1)
    with pytest.raises(OperationFailure) as refused:
        await listed(people.find({"a": {"$nonsense": 1}}))
    assert refused.value.code == 2
    with pytest.raises(OperationFailure) as unknown:
        await house.command("nonsense")
    assert unknown.value.code == 59


async def test_types_come_back_as_they_went(house: Any) -> None:
    document: dict[str, Any] = {
        "_id": ObjectId(),
        "long": Int64(5),
        "int": 5,
        "double": 5.0,
        "decimal": Decimal128("5.00"),
        "time": datetime(2024, 1, 5, 10, 11, 12, 345000, tzinfo=UTC),
        "binary": bson.Binary(b"\x00\xff", 128),
        "regex": bson.Regex("^a", "i"),
        "nested": {"z": [1, Int64(1), {"a": None}], "a": {}},
        "timestamp": bson.Timestamp(5, 7),
        "min": bson.MinKey(),
        "max": bson.MaxKey(),
    }
    await house["types"].insert_one(document)
    found = await house["types"].find_one({"_id": document["_id"]})
    document["time"] = document["time"].replace(tzinfo=None)
    assert bson.encode(found) == bson.encode(document)


async def test_indexes(house: Any) -> None:
    people = house["people"]
    await people.insert_many([{"_id": number, "n": number % 10, "m": number} for number in range(100)])
    assert await people.create_index([("n", 1), ("m", -1)]) == "n_1_m_-1"
    plan = (await house.command({"explain": {"find": "people", "filter": {"n": 3}}}))["executionStats"]
    assert (plan["nReturned"], plan["totalDocsExamined"]) == (10, 10)
    found = await listed(people.find({"n": 3}, sort=[("m", -1)], limit=2))
    assert [each["m"] for each in found] == [93, 83]
    await people.create_index("m", unique=True)
    with pytest.raises(DuplicateKeyError, match=r"m_1 dup key: \{ m: 5 \}"):
        await people.insert_one({"m": 5})
    with pytest.raises(DuplicateKeyError):
        await people.create_index("n", unique=True)
    assert list(await people.index_information()) == ["_id_", "n_1_m_-1", "m_1"]
    await people.drop_index("m_1")
    await people.insert_one({"m": 5})


async def test_sharded_collections(house: Any) -> None:
    await house.command(
        {"customAction": "CreateCollection", "collection": "c", "shardKey": "r", "offerThroughput": 400}
    )
    people = house["c"]
    await people.insert_many([{"_id": number % 5, "r": number} for number in range(40)])
    assert await people.count_documents({"_id": 3}) == 8
    assert await people.find_one({"_id": 3, "r": 33}) == {"_id": 3, "r": 33}
    assert [each["r"] for each in await listed(people.find({}, sort=[("r", 1)]))] == list(range(40))
    assert (await people.update_many({}, {"$set": {"x": 1}})).modified_count == 40
    with pytest.raises(OperationFailure) as refused:
        await people.insert_one({"_id": 1})
    assert refused.value.code == 61
    with pytest.raises(OperationFailure) as moved:
        await people.update_one({"r": 1}, {"$set": {"r": 2}})
    assert moved.value.code == 66


async def test_the_same_documents_through_both_doors(house: Any, server: ServerProcess, name: str) -> None:
    await house["people"].insert_one(
        {"_id": ObjectId("5f0000000000000000000001"), "n": Int64(5), "when": bson.DatetimeMS(7)}
    )
    with CosmosClient(server.url, server.key) as client:
        container = client.get_database_client(name).get_container_client("people")
        (item,) = container.query_items("SELECT * FROM c", enable_cross_partition_query=True)
        assert (item["id"], item["n"], item["when"]) == (
            "oid:5f0000000000000000000001",
            5,
            {"$date": {"$numberLong": "7"}},
        )
    assert (await house["people"].find_one({"n": 5}))["when"] == datetime(1970, 1, 1, 0, 0, 0, 7000)


async def test_wrong_keys_are_refused(server: ServerProcess, flavour: str) -> None:
    make: Callable[..., Any] = pymongo.AsyncMongoClient if flavour == "aio" else pymongo.MongoClient
    client = make(address_of(server, "d3Jvbmc="))
    with pytest.raises(OperationFailure) as refused:
        await settled(client.admin.command("serverStatus"))
    assert refused.value.code == 18
    await settled(client.close())


@pytest.mark.parametrize("options", ["compressors=zlib", "authMechanism=SCRAM-SHA-1", "tls=true", "w=majority"])
async def test_ways_to_connect(server: ServerProcess, flavour: str, options: str) -> None:
    make: Callable[..., Any] = pymongo.AsyncMongoClient if flavour == "aio" else pymongo.MongoClient
    extra = "&tlsAllowInvalidCertificates=true" if "tls" in options else ""
    client = make(f"{address_of(server)}&{options}{extra}")
    assert (await settled(client.admin.command("ping")))["ok"] == 1.0
    await settled(client.close())


async def test_transactions_streams_and_tails(server: ServerProcess, name: str) -> None:
    """What needs a session or a cursor that waits, with pymongo's asynchronous client."""
    client: pymongo.AsyncMongoClient[Any]
    async with pymongo.AsyncMongoClient(address_of(server)) as client:
        database: Any = client[name]
        people, log = database["people"], await database.create_collection("log", capped=True, size=4096, max=3)
        await people.insert_one({"_id": 0})
        async with await people.watch() as stream, client.start_session() as session:
            async with await session.start_transaction():
                await people.insert_one({"_id": 1}, session=session)
                await people.update_one({"_id": 0}, {"$set": {"n": 1}}, session=session)
                assert await people.count_documents({}) == 1, "others do not see it"
            assert [(await stream.next())["operationType"] for _ in range(2)] == ["insert", "update"]
            await session.start_transaction()
            await people.insert_one({"_id": 2}, session=session)
            with pytest.raises(OperationFailure) as refused:
                await people.insert_one({"_id": 1}, session=session)
            await session.abort_transaction()
            assert refused.value.code == 11000 and await people.count_documents({}) == 2
        await log.insert_many([{"_id": each} for each in range(5)])
        tail = log.find({}, cursor_type=pymongo.CursorType.TAILABLE_AWAIT)
        assert [(await tail.next())["_id"] for _ in range(3)] == [2, 3, 4]
        waiting = asyncio.ensure_future(tail.next())
        await log.insert_one({"_id": 5})
        assert await waiting == {"_id": 5}
        await tail.close()
        async with client.start_session(snapshot=True) as session:
            assert await people.count_documents({}, session=session) == 2
            await people.delete_many({})
            assert await people.count_documents({}, session=session) == 2
        await client.drop_database(name)


def test_files_in_gridfs(server: ServerProcess, name: str) -> None:
    client: pymongo.MongoClient[Any]
    with pymongo.MongoClient(address_of(server)) as client:
        files = gridfs.GridFSBucket(client[name])
        content = bytes(range(256)) * 4000
        number = files.upload_from_stream("big", content)
        assert files.open_download_stream(number).read() == content
        files.delete(number)
        client.drop_database(name)


SCRIPT = """
const out = {};
out.inserted = db.orders.insertMany([{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 2}]).acknowledged;
out.found = db.orders.find({a: 2}).sort({_id: -1}).toArray().map((each) => each._id);
out.groups = db.orders.aggregate([{$group: {_id: "$a", n: {$sum: 1}}}, {$sort: {_id: 1}}]).toArray();
db.orders.createIndex({a: 1});
const plan = db.orders.find({a: 2}).explain("executionStats");
out.plan = [plan.queryPlanner.winningPlan.inputStage.indexName, plan.executionStats.totalDocsExamined];
out.sharded = db.adminCommand({shardCollection: `${db.getName()}.people`, key: {region: "hashed"}}).collectionsharded;
db.people.insertOne({region: "eu", name: "x"});
out.updated = db.people.updateOne({region: "eu"}, {$set: {name: "y"}}).modifiedCount;
db.people.find({region: "eu"}).toArray();
const last = db.runCommand({getLastRequestStatistics: 1});
out.last = [last._t, last.CommandName, last.RequestCharge > 0];
out.names = db.getCollectionNames().sort();
out.deleted = db.orders.deleteMany({a: 2}).deletedCount;
out.ok = [db.hostInfo().ok, db.serverStatus().ok, db.stats().ok, db.version()];
out.indexes = db.orders.getIndexes().map((each) => each.name);
out.databases = db.getMongo().getDBNames().includes(db.getName());
out.measured = [Number(db.stats().collections), db.orders.stats().count, db.orders.dataSize() > 0];
out.running = db.currentOp({active: true}).inprog.length > 0;
out.status = [rs.status().members[0].stateStr, db.hello().isWritablePrimary];
out.log = db.adminCommand({getLog: "startupWarnings"}).ok;
out.bulk = db.orders.bulkWrite([{insertOne: {document: {_id: 9}}}, {deleteOne: {filter: {_id: 9}}}]).deletedCount;
const session = db.getMongo().startSession();
session.startTransaction();
session.getDatabase(db.getName()).orders.insertOne({_id: 10});
session.abortTransaction();
out.aborted = db.orders.countDocuments({_id: 10});
db.createCollection("log", {capped: true, size: 4096, max: 2});
db.log.insertMany([{_id: 1}, {_id: 2}, {_id: 3}]);
out.capped = [db.log.isCapped(), db.log.find().map((each) => each._id).toArray()];
db.dropDatabase();
print(JSON.stringify(out));
"""


def test_mongosh(server: ServerProcess, name: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None and MONGOSH.is_file(), "run `npm ci` in tests/sdk/js; `make test` does"
    address = address_of(server).replace("/?", f"/{name}?") + "&authSource=admin"
    run = subprocess.run(
        [node, str(MONGOSH), "--quiet", "--norc", address, "--eval", SCRIPT],
        env={**os.environ, "HOME": str(tmp_path), "NODE_NO_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.strip().startswith("{"), run.stdout + run.stderr
    assert json.loads(run.stdout) == {
        "inserted": True,
        "found": [3, 2],
        "groups": [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}],
        "plan": ["a_1", 2],
        "sharded": f"{name}.people",
        "updated": 1,
        "last": ["GetRequestStatisticsResponse", "find", True],
        "names": ["orders", "people"],
        "deleted": 2,
        "ok": [1, 1, 1, "7.0.0"],
        "indexes": ["_id_", "a_1"],
        "databases": True,
        "measured": [2, 1, True],
        "running": True,
        "status": ["PRIMARY", True],
        "log": 1,
        "bulk": 1,
        "aborted": 0,
        "capped": [True, [2, 3]],
    }
