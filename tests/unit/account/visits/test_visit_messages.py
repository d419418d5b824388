"""Visits are messages: their fields are plain data, and a copy that was sent to another process does the same. One
scenario goes through all doors twice: as usual, and with every visit replaced by what arrives of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp
from support.caller import KEY, Caller
from support.divided import ALLOWED, Spread, divide
from support.gremlin_house import GremlinHouse
from support.mongo_house import MongoHouse
from support.tables import TableHouse

import armillary.account
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.elsewhere.message_table import MESSAGES
from armillary.account.visits.visits import Visit
from armillary.clock import VirtualClock
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.table.call import TableSettings
from armillary.errors import Failure
from armillary.model.keys import Key
from armillary.model.sendable import sent_fields
from armillary.model.values import Undefined
from armillary.partition.history.retryable_write_records import Repeated
from armillary.partition.operations import MemberFailed
from armillary.partition.partition import Partition
from armillary.storage.memory import MemoryEngine

# Values of JSON and BSON are `Any`; a Failure is a kind, a text and details, which the codec knows.
LEAVES = (NoneType, bool, int, float, str, bytes, Timestamp, Undefined, Key, Failure, Any)
COLLECTIONS = (tuple, list, dict, set, frozenset, Sequence, Mapping)


def concrete(kind: type[Any]) -> Iterator[type[Any]]:
    """The classes below one that can be instantiated."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("armillary."):
            yield from concrete(each)
            if not getattr(each, "__abstractmethods__", None):
                yield each


def visit_classes() -> list[Any]:
    for module in pkgutil.walk_packages(armillary.account.__path__, "armillary.account."):
        importlib.import_module(module.name)
    return sorted(set(concrete(Visit)), key=lambda each: each.__qualname__)


def unplain(kind: Any, path: str, seen: set[Any]) -> Iterator[str]:
    """The places in a type that are not plain data."""
    origin = get_origin(kind)
    if kind in LEAVES or kind is Ellipsis or origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return
    if origin in (Union, UnionType) or origin in COLLECTIONS:
        for each in get_args(kind):
            yield from unplain(each, path, seen)
    elif isinstance(kind, TypeVar):
        yield from unplain(kind.__bound__, path, seen)
    elif kind in seen:
        return
    elif is_dataclass(kind):
        seen.add(kind)
        hints = get_type_hints(kind)
        for each in sent_fields(kind):
            yield from unplain(hints[each.name], f"{path}.{each.name}", seen)
    elif hasattr(kind, "_fields"):
        seen.add(kind)
        for name, each in get_type_hints(kind).items():
            yield from unplain(each, f"{path}.{name}", seen)
    else:
        yield f"{path}: {kind}"


def test_fields_of_visits_are_plain_data() -> None:
    classes = visit_classes()
    assert len(classes) >= 14, classes
    assert not [each for each in classes if not is_dataclass(each)]
    assert [found for each in classes for found in unplain(each, each.__name__, set())] == []


def test_what_is_not_plain_is_noticed() -> None:
    from dataclasses import dataclass

    @dataclass
    class Inner:
        fine: tuple[int, ...] | None
        function: Callable[[], None]
        NAME: ClassVar[str] = ""

    globals()["Inner"], globals()["Clock"] = Inner, VirtualClock
    assert list(unplain(Inner, "Inner", set())) == [f"Inner.function: {Callable[[], None]}"]
    assert list(unplain(list[Inner | None], "x", set())) == [f"x.function: {Callable[[], None]}"]
    assert list(unplain(VirtualClock, "x", set())) == [f"x: {VirtualClock}"]


# Sending them.


# Of partitions of this process the same is found without a visit.
ONLY_ELSEWHERE = {"CountKeys", "FindRecords", "FindSeveral", "LookAtEvents"}
# `tests/unit/processes/test_migration_of_processes.py` sends them.
OF_MIGRATIONS = {"KeepVersions", "RaiseLsn", "ReadRecords", "ReadStored", "TakeOverRecords", "WriteCopies"}


class Sent:
    """Replaces every visit by what arrives of it in another process, and every answer by what comes back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.classes: set[type] = set()
        self.account: Account | None = None
        for each in {kind for found in visit_classes() for kind in found.__mro__ if "run" in vars(kind)}:
            if not getattr(each.run, "__isabstractmethod__", False):
                monkeypatch.setattr(each, "run", self._sending(each.run))

    def _sending(self, run: Callable[[Any, Container, Partition], Awaitable[Any]]) -> Any:
        async def sending(visit: Any, container: Container, partition: Partition) -> Any:
            self.classes.add(type(visit))
            arrived = MESSAGES.decode(MESSAGES.encode(visit))
            assert all(getattr(arrived, each.name) is not None or each.default is None for each in sent_fields(visit))
            assert self.account is not None
            arrived.receive(self.account)
            try:
                done = await run(arrived, container, partition)
            except (Failure, MemberFailed, Repeated) as error:
                raise MESSAGES.decode(MESSAGES.encode(error)) from None
            return MESSAGES.decode(MESSAGES.encode(done))

        return sending


ITEMS = "/dbs/db/colls/c/docs"
IN_K = {"x_ms_documentdb_partitionkey": '["k"]'}
BATCH = {"x_ms_cosmos_is_batch_request": "True", "x_ms_cosmos_batch_atomic": "True"}


async def through_sql(account: Account, clock: VirtualClock) -> list[Any]:
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await call("POST", "/dbs", {"id": "db"})
    await call("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    body = "function () { getContext().getRequest(); console.log('seen'); }"
    await call(
        "POST", "/dbs/db/colls/c/triggers", {"id": "t", "body": body, "triggerType": "Pre", "triggerOperation": "All"}
    )
    body = """function (n) {
        var c = getContext().getCollection();
        c.createDocument(c.getSelfLink(), {id: 's' + n, pk: 'k'}, function (e) { if (e) throw e; });
        getContext().getResponse().setBody(n + 1);
    }"""
    await call("POST", "/dbs/db/colls/c/sprocs", {"id": "p", "body": body})
    one = {"id": "1", "pk": "k", "n": 1, "tags": ["a", "b"]}
    patch = {
        "condition": "FROM c WHERE c.n >= 1 AND ARRAY_CONTAINS(c.tags, 'a')",
        "operations": [{"op": "incr", "path": "/n", "value": 1}],
    }
    json_patch = {"content_type": "application/json-patch+json"}
    triggered = {"x_ms_documentdb_pre_trigger_include": "t"}
    batch = [
        {"operationType": "Create", "resourceBody": {"id": "b1", "pk": "k"}},
        {"operationType": "Patch", "id": "1", "resourceBody": patch},
        {"operationType": "Delete", "id": "b1"},
        {"operationType": "Read", "id": "1"},
    ]
    failing = [
        {"operationType": "Create", "resourceBody": {"id": "b2", "pk": "k"}},
        {"operationType": "Create", "resourceBody": {"id": "b3", "pk": "elsewhere"}},
    ]
    bulk = [
        {"operationType": "Create", "partitionKey": '["k"]', "resourceBody": {"id": f"m{number}", "pk": "k"}}
        for number in range(3)
    ]
    bulk.append({"operationType": "Patch", "partitionKey": '["k"]', "id": "1", "resourceBody": patch})
    in_bulk = {
        "x_ms_cosmos_is_batch_request": "True",
        "x_ms_cosmos_batch_atomic": "False",
        "x_ms_cosmos_batch_continue_on_error": "True",
        "x_ms_documentdb_partitionkeyrangeid": "0",
    }
    requests: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", ITEMS, one, IN_K),
        ("POST", ITEMS, one, IN_K),
        ("POST", ITEMS, {**one, "n": 5}, {**IN_K, "x_ms_documentdb_is_upsert": "True"}),
        ("PUT", f"{ITEMS}/1", {**one, "n": 7, "_ts": 3}, IN_K),
        ("PATCH", f"{ITEMS}/1", patch, {**IN_K, **json_patch}),
        ("PATCH", f"{ITEMS}/1", {**patch, "condition": "FROM c WHERE c.n < 0"}, {**IN_K, **json_patch}),
        ("GET", f"{ITEMS}/1", None, IN_K),
        ("GET", f"{ITEMS}/none", None, IN_K),
        ("POST", ITEMS, {"id": "2", "pk": "k"}, {**IN_K, **triggered}),
        ("POST", ITEMS, batch, {**IN_K, **BATCH}),
        ("POST", ITEMS, failing, {**IN_K, **BATCH}),
        ("POST", ITEMS, batch, {**IN_K, **BATCH, **triggered}),
        ("POST", ITEMS, bulk, in_bulk),
        ("POST", "/dbs/db/colls/c/sprocs/p", [4], IN_K),
        ("DELETE", f"{ITEMS}/2", None, IN_K),
        ("POST", "/dbs/db/colls/c/operations/partitionkeydelete", None, IN_K),
        ("GET", ITEMS, None, {}),
    ]
    return [(await call(method, path, body, **headers))[:2] for method, path, body, headers in requests]


LSID = {"id": Binary(bytes(16), 4)}


async def through_mongo(account: Account, clock: VirtualClock) -> list[Any]:
    door = MongoDoor(account, (), (), MongoSettings(needs_authentication=False), machine=clock)
    house = MongoHouse(account.engine, account, door)
    pipeline = [{"$set": {"sum": {"$add": ["$n", "$$more"]}, "when": "$$NOW", "same": {"$eq": ["$name", "ANNA"]}}}]
    commands: list[dict[str, Any]] = [
        {"insert": "c", "documents": [{"_id": 1, "n": 1, "name": "Anna", "list": [1, 5, 9]}]},
        {"insert": "c", "documents": [{"_id": number, "n": number} for number in range(2, 9)], "ordered": False},
        {"find": "c", "filter": {"_id": 1}},
        {"find": "c", "filter": {"n": 3}, "showRecordId": True},
        {"update": "c", "updates": [{"q": {"_id": 1, "list": 5}, "u": {"$inc": {"n": 1, "list.$": 10}}}]},
        {
            "update": "c",
            "updates": [
                {"q": {"n": {"$gte": 4}}, "u": {"$mul": {"n": 2}}, "multi": True},
                {"q": {"_id": 1}, "u": {"$set": {"list.$[big]": 0}}, "arrayFilters": [{"big": {"$gt": 8}}]},
                {"q": {"_id": "new"}, "u": {"$setOnInsert": {"n": 0}}, "upsert": True},
                {"q": {"_id": 2}, "u": {"replaced": True}},
            ],
        },
        {
            "update": "c",
            "updates": [{"q": {"name": "ANNA"}, "u": pipeline, "collation": {"locale": "en", "strength": 2}}],
            "let": {"more": 5},
        },
        {"findAndModify": "c", "query": {"_id": 3}, "update": {"$inc": {"n": 1}}, "new": True, "fields": {"n": 1}},
        {"findAndModify": "c", "query": {"n": {"$gt": 9}}, "sort": {"n": -1}, "remove": True},
        {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$inc": {"n": 1}}}], "lsid": LSID, "txnNumber": Int64(1)},
        {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$inc": {"n": 1}}}], "lsid": LSID, "txnNumber": Int64(1)},
        {"findAndModify": "c", "query": {"_id": 3}, "update": {"$inc": {"n": 1}}, "lsid": LSID, "txnNumber": Int64(2)},
        {"findAndModify": "c", "query": {"_id": 3}, "update": {"$inc": {"n": 1}}, "lsid": LSID, "txnNumber": Int64(2)},
        {"delete": "c", "deletes": [{"q": {"n": {"$lt": 3}}, "limit": 0}, {"q": {"_id": 4}, "limit": 1}]},
        {
            "update": "c",
            "updates": [{"q": {"_id": 3}, "u": {"$inc": {"n": 1}}}],
            "lsid": LSID,
            "txnNumber": Int64(3),
            "autocommit": False,
            "startTransaction": True,
        },
        {"commitTransaction": 1, "$db": "admin", "lsid": LSID, "txnNumber": Int64(3), "autocommit": False},
        {"collMod": "c", "validator": {"n": {"$type": "number"}}},
        {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"n": "text"}}}]},
        {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1", "unique": True}]},
        {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"n": 6}}}]},
        {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"n": 10}}}]},
        {
            "aggregate": "c",
            "pipeline": [{"$set": {"merged": True}}, {"$merge": {"into": "d"}}],
            "cursor": {},
        },
        {
            "aggregate": "c",
            "pipeline": [
                {"$merge": {"into": "d", "let": {"by": 3}, "whenMatched": [{"$set": {"n": {"$add": ["$n", "$$by"]}}}]}}
            ],
            "cursor": {},
        },
        {"aggregate": "c", "pipeline": [{"$merge": {"into": "d", "whenMatched": "replace"}}], "cursor": {}},
        {"find": "c", "sort": {"$natural": -1}},
        {"find": "c", "sort": {"n": 1}},
        {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}},
        {
            "aggregate": "c",
            "pipeline": [{"$changeStream": {"startAtOperationTime": Timestamp(1_600_000_000, 1)}}],
            "cursor": {},
        },
        {"explain": {"find": "c", "filter": {"n": 6}}, "verbosity": "queryPlanner"},
        {"count": "c"},
        {"aggregate": "d", "pipeline": [{"$sort": {"_id": 1}}], "cursor": {}},
        {"create": "capped", "capped": True, "size": 4096},
        {"insert": "capped", "documents": [{"_id": 1}, {"_id": 2}]},
        {"find": "capped", "tailable": True},
    ]
    answers = [await house.ask(command) for command in commands]
    stream = await house.ask({"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    await house.ask({"insert": "c", "documents": [{"_id": "seen", "n": 12345}]})
    answers.append(await house.ask({"getMore": stream["cursor"]["id"], "collection": "c"}))
    for each in answers:
        for name in ("operationTime", "$clusterTime"):
            each.pop(name, None)
        if "cursor" in each:
            each["cursor"].pop("id")
    await door.close()
    return answers


async def through_gremlin(account: Account, clock: VirtualClock) -> list[Any]:
    house = GremlinHouse(MemoryEngine(), account, None)
    await house.graph()
    scripts = [
        "g.addV('person').property('id', 'a').property('pk', 'x').property('age', 30)",
        "g.addV('person').property('id', 'b').property('pk', 'y').property('age', 40)",
        "g.V('a').addE('knows').to(g.V('b')).property('since', 2020)",
        "g.V('a').out('knows').values('age')",
        "g.V(['x', 'a'], ['y', 'b']).values('age')",
        "g.V().has('age', gt(35)).in('knows').id()",
        "g.V('a').property('age', 31)",
        "g.V('b').drop()",
        "g.V().count()",
    ]
    return [await house.run(script) for script in scripts]


async def through_table(account: Account, clock: VirtualClock) -> list[Any]:
    house = TableHouse(account, MemoryEngine(), TableSettings())
    found: list[Any] = []
    for method, path, body in (
        ("POST", "/Tables", {"TableName": "people"}),
        ("POST", "/people", {"PartitionKey": "p", "RowKey": "1", "n": 1}),
        ("MERGE", "/people(PartitionKey='p',RowKey='1')", {"m": 2}),
        ("PUT", "/people(PartitionKey='p',RowKey='2')", {"n": 3}),
        ("GET", "/people(PartitionKey='p',RowKey='1')", None),
        ("GET", "/people()?$filter=n%20gt%200", None),
        ("DELETE", "/people(PartitionKey='p',RowKey='2')", None),
    ):
        headers = {"If-Match": "*"} if method == "DELETE" else None
        response = await house.ask(method, path, b"" if body is None else body, headers)
        found.append((response.status, response.body))
    return found


async def all_answers(sent: Sent | None = None) -> list[Any]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    if sent is not None:
        sent.account = account
    answers = []
    for through in (through_sql, through_mongo, through_gremlin, through_table):
        answers.append(await through(account, clock))
    await account.close()
    return answers


async def test_what_arrives_of_a_visit_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await all_answers()
    sent = Sent(monkeypatch)
    answers = await all_answers(sent)
    for before, after in zip(expected, answers, strict=True):
        for each, other in zip(before, after, strict=True):
            assert other == each
    unsent = {each.__name__ for each in visit_classes()} - {each.__name__ for each in sent.classes}
    assert unsent == ONLY_ELSEWHERE | OF_MIGRATIONS


async def test_an_account_whose_partitions_are_elsewhere_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await all_answers()
    spread = Spread(allowed=ALLOWED)
    divide(monkeypatch, spread)
    answers = await all_answers()
    for before, after in zip(expected, answers, strict=True):
        for each, other in zip(before, after, strict=True):
            assert other == each
    assert spread.uses <= ALLOWED
    assert spread.frames > 100
