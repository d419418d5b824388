"""What MongoEngine and Beanie ask of the MongoDB door beyond documents and queries, by pymongo: geospatial indexes in
the plane and fields of commands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo.errors import OperationFailure, WriteError
from support.process import ServerProcess

PLACES = {"harbour": [10.0, 5.0], "market": [11.0, 6.0], "station": [20.0, 5.0], "island": [-170.0, -40.0]}


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Any]:
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@") + "/?replicaSet=globaldb"
    opened: Any
    with pymongo.MongoClient(address) as opened:
        yield opened


@pytest.fixture
def mongo(client: Any, name: str) -> Iterator[Any]:
    """A database of its own."""
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def scripted(client: Any) -> Iterator[Any]:
    """The database of all tests with JavaScript: each has a process, which takes a while to start."""
    yield client["scripted"]
    client.drop_database("scripted")


def test_bulk_with_deletes_bypasses_document_validation(mongo: Any) -> None:
    mongo.create_collection("shop", validator={"price": {"$gt": 0}})
    requests = [pymongo.InsertOne({"_id": 1, "price": -1}), pymongo.DeleteOne({"_id": 1}), pymongo.DeleteMany({})]
    done = mongo.shop.bulk_write(requests, bypass_document_validation=True)
    assert (done.inserted_count, done.deleted_count) == (1, 1)
    statement = {"delete": "shop", "deletes": [{"q": {}, "limit": 0}]}
    with pytest.raises(OperationFailure) as refused:
        mongo.command({**statement, "bypassDocumentValidation": "yes"})
    assert refused.value.code == 14


# 2d indexes.


@pytest.fixture
def places(mongo: Any) -> Any:
    mongo.places.create_index([("at", pymongo.GEO2D)])
    mongo.places.insert_many([{"_id": name, "at": at} for name, at in PLACES.items()])
    return mongo.places


def ids(found: Any) -> list[Any]:
    return [each["_id"] for each in found]


def test_2d_index_sorts_by_distance_in_the_plane(places: Any) -> None:
    assert ids(places.find({"at": {"$near": [10, 5]}})) == ["harbour", "market", "station", "island"]
    assert ids(places.find({"at": {"$near": [10, 5], "$maxDistance": 1.5}})) == ["harbour", "market"]
    assert ids(places.find({"at": {"$near": [10, 5], "$minDistance": 1, "$maxDistance": 10}})) == ["market", "station"]
    # Distances of $nearSphere are in radians.
    assert ids(places.find({"at": {"$nearSphere": [10, 5], "$maxDistance": 0.03}})) == ["harbour", "market"]
    assert ids(places.find({"at": {"$nearSphere": [179, -40], "$maxDistance": 0.2}})) == ["island"]
    stages = [{"$geoNear": {"near": [10, 5], "distanceField": "apart", "maxDistance": 12}}]
    assert [(each["_id"], round(each["apart"], 3)) for each in places.aggregate(stages)] == [
        ("harbour", 0.0),
        ("market", 1.414),
        ("station", 10.0),
    ]


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ({"$box": [[9, 4], [12, 7]]}, ["harbour", "market"]),
        ({"$polygon": [[9, 4], [21, 4], [21, 5.5]]}, ["station"]),
        ({"$center": [[11, 6], 1]}, ["market"]),
        ({"$centerSphere": [[11, 6], 0.03]}, ["harbour", "market"]),
        ({"$centerSphere": [[0, -90], 0.9]}, ["island"]),
    ],
)
def test_2d_index_serves_areas(places: Any, shape: dict[str, Any], found: list[str]) -> None:
    given = {"at": {"$geoWithin": shape}}
    assert sorted(ids(places.find(given))) == found
    plan = places.find(given).explain()
    assert plan["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "at_2d"
    places.drop_indexes()
    assert sorted(ids(places.find(given))) == found


def test_2d_index_reads_only_places_nearby(mongo: Any) -> None:
    mongo.grid.create_index([("at", pymongo.GEO2D)], min=0, max=1000)
    mongo.grid.insert_many([{"at": {"x": x, "y": y}} for x in range(30) for y in range(30)])
    given = {"at": {"$geoWithin": {"$box": [[3, 3], [5, 5]]}}}
    figures = mongo.command("explain", {"find": "grid", "filter": given}, verbosity="executionStats")
    assert figures["executionStats"]["nReturned"] == 9
    assert figures["executionStats"]["totalDocsExamined"] < 60


def test_2d_index_has_bounds(mongo: Any) -> None:
    mongo.plan.create_index([("at", pymongo.GEO2D), ("kind", 1)], min=-10, max=10, bits=20)
    assert mongo.plan.index_information()["at_2d_kind_1"] == {
        "v": 2,
        "key": [("at", "2d"), ("kind", 1)],
        "min": -10,
        "max": 10,
        "bits": 20,
    }
    mongo.plan.insert_many([{"_id": 1, "at": [10, -10]}, {"_id": 2}, {"_id": 3, "at": [[1, 1], [2, 2]]}])
    assert ids(mongo.plan.find({"at": {"$near": [2, 2]}})) == [3, 1]
    for refused, code in (([10.5, 0], 13027), ({"type": "Point", "coordinates": [1, 1]}, 13026), ("here", 13026)):
        with pytest.raises(WriteError) as failed:
            mongo.plan.insert_one({"at": refused})
        assert failed.value.code == code


@pytest.mark.parametrize(
    ("keys", "options", "code"),
    [
        ([("kind", 1), ("at", "2d")], {}, 16801),
        ([("at", "2d"), ("there", "2d")], {}, 16800),
        ([("at", "2d")], {"bits": 33}, 2),
        ([("at", "2d")], {"min": 5, "max": 5}, 16803),
        ([("at", "2d")], {"unique": True}, 67),
        ([("at", 1)], {"bits": 20}, 67),
    ],
)
def test_2d_index_with_wrong_options(mongo: Any, keys: Any, options: dict[str, Any], code: int) -> None:
    with pytest.raises(OperationFailure) as refused:
        mongo.plan.create_index(keys, **options)
    assert refused.value.code == code


def test_2d_index_is_not_for_geojson_points(places: Any) -> None:
    point = {"type": "Point", "coordinates": [10, 5]}
    with pytest.raises(OperationFailure) as refused:
        places.find_one({"at": {"$near": {"$geometry": point}}})
    assert refused.value.code == 291


# JavaScript.


@pytest.fixture
def orders(scripted: Any) -> Any:
    rows = [("ann", 5, [1, 2]), ("ben", 7, [2]), ("ann", 11, []), ("cat", 1, [2, 3])]
    scripted.orders.insert_many([{"_id": i, "who": who, "sum": s, "tags": t} for i, (who, s, t) in enumerate(rows)])
    return scripted.orders


@pytest.mark.parametrize(
    "source",
    [
        "this.sum > 5 && this.who != 'ben'",
        "return this.sum > 5 && this.who != 'ben';",
        "function () { return this.sum > 5 && this.who != 'ben'; }",
        Code("function () { return this.sum > 5 && this.who != 'ben' }"),
    ],
)
def test_where(orders: Any, source: Any) -> None:
    assert ids(orders.find({"$where": source})) == [2]
    assert ids(orders.find({"who": "ann", "$or": [{"$where": source}, {"_id": 0}]}).sort("_id", -1)) == [2, 0]
    assert orders.count_documents({"_id": 2}) == 1
    assert orders.find_one({"_id": 2, "$where": source})["who"] == "ann"
    assert orders.find_one({"_id": 1, "$where": source}) is None


def test_where_in_updates_and_deletes(orders: Any) -> None:
    assert orders.update_many({"$where": "this.tags.length == 2"}, {"$set": {"two": True}}).modified_count == 2
    assert orders.update_one({"_id": 1, "$where": "this.sum == 7"}, {"$inc": {"sum": 1}}).modified_count == 1
    assert orders.find_one_and_delete({"$where": "this.sum == 8"})["_id"] == 1
    assert orders.delete_many({"$where": "this.two"}).deleted_count == 2
    assert ids(orders.find()) == [2]


def test_javascript_knows_bson_types(scripted: Any) -> None:
    key, now = ObjectId(), datetime(2024, 5, 6, tzinfo=UTC)
    held = {"_id": key, "at": now, "long": Int64(1 << 60), "price": Decimal128("1.50"), "blob": b"ab", "n": None}
    scripted.things.insert_one(held)
    tests = [
        f"this._id.str == '{key}' && this._id.equals(ObjectId('{key}'))",
        "this.at.getUTCFullYear() == 2024 && this.at < ISODate()",
        "this.long > 1e18 && this.long instanceof NumberLong",
        "this.price * 2 == 3",
        "this.n === null && this.missing === undefined",
    ]
    assert scripted.things.count_documents({"$and": [{"_id": key}]}) == 1
    for each in tests:
        assert ids(scripted.things.find({"$where": each})) == [key], each
    given = {"body": "function (all) { return all; }", "args": ["$$ROOT"], "lang": "js"}
    (found,) = scripted.things.aggregate([{"$project": {"_id": 0, "same": {"$function": given}}}])
    assert found["same"] == {**held, "at": now.replace(tzinfo=None)}


def test_function_and_accumulator(orders: Any) -> None:
    body = "function (sum, tags) { return sum * 10 + tags.length; }"
    made = {"$function": {"body": body, "args": ["$sum", "$tags"], "lang": "js"}}
    assert [each["made"] for each in orders.aggregate([{"$project": {"made": made}}])] == [52.0, 71.0, 110.0, 12.0]
    assert ids(orders.find({"$expr": {"$eq": [made, 71]}})) == [1]
    average = {
        "init": "function (start) { return {n: start, sum: 0}; }",
        "initArgs": [0],
        "accumulate": "function (state, sum) { return {n: state.n + 1, sum: state.sum + sum}; }",
        "accumulateArgs": ["$sum"],
        "merge": "function (a, b) { return {n: a.n + b.n, sum: a.sum + b.sum}; }",
        "finalize": "function (state) { return state.sum / state.n; }",
        "lang": "js",
    }
    stages = [{"$group": {"_id": "$who", "average": {"$accumulator": average}}}, {"$sort": {"_id": 1}}]
    assert [(each["_id"], each["average"]) for each in orders.aggregate(stages)] == [
        ("ann", 8.0),
        ("ben", 7.0),
        ("cat", 1.0),
    ]


MAP = "function () { this.tags.forEach(function (tag) { emit(tag, step); }); }"
REDUCE = "function (key, values) { return Array.sum(values); }"


def test_map_reduce(scripted: Any, orders: Any) -> None:
    command = {"mapReduce": "orders", "map": Code(MAP), "reduce": Code(REDUCE), "scope": {"step": 1}}
    counted = [{"_id": 1.0, "value": 1.0}, {"_id": 2.0, "value": 3.0}, {"_id": 3.0, "value": 1.0}]
    assert scripted.command({**command, "out": {"inline": 1}})["results"] == counted
    finalize = "function (key, value) { return key + ':' + value; }"
    some = {"query": {"who": "ann"}, "sort": {"_id": 1}, "limit": 1, "finalize": finalize, "out": {"inline": 1}}
    assert scripted.command({**command, **some})["results"] == [
        {"_id": 1.0, "value": "1:1"},
        {"_id": 2.0, "value": "2:1"},
    ]
    assert scripted.command({**command, "out": "counts"})["result"] == "counts"
    assert list(scripted.counts.find()) == counted
    scripted.command({**command, "out": {"reduce": "counts"}})
    assert [each["value"] for each in scripted.counts.find().sort("_id", 1)] == [2.0, 6.0, 2.0]
    scripted.command({**command, "query": {"who": "cat"}, "out": {"merge": "counts"}})
    assert [each["value"] for each in scripted.counts.find().sort("_id", 1)] == [2.0, 1.0, 1.0]
    with pytest.raises(OperationFailure) as refused:
        scripted.command({**command, "out": {"replace": "counts", "sharded": True}})
    assert refused.value.code == 115


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        ("this.who.nothing.more", 139, "TypeError"),
        ("this.who ===", 139, "SyntaxError"),
        ("while (true) {} return 1", 139, "longer than 0.5 seconds"),
        ("", 2, "empty"),
        (5, 2, "string"),
        (Code("true", {}), 2, "scope"),
    ],
)
def test_where_that_fails(orders: Any, source: Any, code: int, text: str) -> None:
    with pytest.raises(OperationFailure) as failed:
        orders.find_one({"$where": source})
    assert failed.value.code == code
    assert text in str(failed.value)
    assert orders.find_one({"$where": "this._id == 1"})["who"] == "ben"


def test_javascript_where_it_cannot_run(scripted: Any, orders: Any) -> None:
    with pytest.raises(OperationFailure) as refused:
        list(orders.aggregate([{"$match": {"$where": "true"}}]))
    assert refused.value.code == 2
    scripted.create_collection("strict", validator={"$where": "this.a > 1"})
    with pytest.raises(WriteError) as failed:
        scripted.strict.insert_one({"a": 2})
    assert failed.value.code == 121


# Time series.


def test_time_series(mongo: Any) -> None:
    options = {"timeField": "at", "metaField": "sensor", "granularity": "minutes"}
    mongo.create_collection("readings", timeseries=options, expireAfterSeconds=3600)
    (listed,) = mongo.list_collections(filter={"name": "readings"})
    assert listed == {
        "name": "readings",
        "type": "timeseries",
        "options": {"timeseries": {**options, "bucketMaxSpanSeconds": 86_400}, "expireAfterSeconds": 3600},
        "info": {"readOnly": False},
    }
    now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    mongo.readings.insert_many([{"_id": i, "at": now - timedelta(minutes=i), "sensor": 1} for i in range(2)])
    assert ids(mongo.readings.find({"sensor": 1}).sort("at", 1)) == [1, 0]
    assert list(mongo.readings.index_information()) == ["_id_"]
    mongo.readings.create_index("at", name="by_time")
    plan = mongo.readings.find({"at": {"$gte": now}}).explain()["queryPlanner"]["winningPlan"]
    assert plan["inputStage"]["stage"] == "IXSCAN"
    mongo.readings.drop_indexes()
    assert mongo.readings.count_documents({}) == 2


def test_time_series_needs_its_dates(mongo: Any) -> None:
    mongo.create_collection("readings", timeseries={"timeField": "at"})
    assert mongo.readings.options() == {
        "timeseries": {"timeField": "at", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}
    }
    for document in ({"n": 1}, {"at": "today"}):
        with pytest.raises(WriteError) as refused:
            mongo.readings.with_options().insert_one(document, bypass_document_validation=True)
        assert refused.value.code == 2
    mongo.readings.insert_one({"_id": 1, "at": datetime(2024, 1, 1)})
    with pytest.raises(WriteError):
        mongo.readings.update_one({"_id": 1}, {"$unset": {"at": 1}})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"timeseries": {}}, 40414),
        ({"timeseries": {"timeField": "a.b"}}, 72),
        ({"timeseries": {"timeField": "at", "metaField": "at"}}, 72),
        ({"timeseries": {"timeField": "at", "granularity": "days"}}, 2),
        ({"timeseries": {"timeField": "at", "bucketMaxSpanSeconds": 100}}, 72),
        ({"timeseries": {"timeField": "at", "buckets": 1}}, 40415),
        ({"timeseries": {"timeField": "at"}, "capped": True, "size": 4096}, 72),
        ({"expireAfterSeconds": 5}, 72),
    ],
)
def test_time_series_with_wrong_options(mongo: Any, options: dict[str, Any], code: int) -> None:
    with pytest.raises(OperationFailure) as refused:
        mongo.command({"create": "readings", **options})
    assert refused.value.code == code
