"""The MongoDB door in process: who may what, and what failures look like on the wire."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.mongo_house import KEY, READ_KEY, Line, MongoHouse, document_in, frame_of

from armillary.account.collections import event_feed
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.doors.gremlin.errors import CODES_OF_REASONS as GREMLIN_CODES
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.errors import CODES, CODES_OF_REASONS, error_document
from armillary.doors.mongo.wire import messages
from armillary.doors.sql.errors import TEXTS_OF_REASONS
from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.errors import CODE_NAMES


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    yield opened
    await opened.close()


@pytest.fixture
async def locked() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open(needs_authentication=True)
    yield opened
    await opened.close()


# Errors.


def test_every_kind_has_a_code_with_a_name() -> None:
    assert set(CODES) == set(Kind)
    assert {code for code in CODES.values() if code not in CODE_NAMES} == set()


def test_each_reason_has_a_code_or_a_text_in_its_protocol() -> None:
    tables: tuple[dict[Reason, Any], ...] = (CODES_OF_REASONS, GREMLIN_CODES, TEXTS_OF_REASONS)
    assert sorted(reason.name for table in tables for reason in table) == sorted(reason.name for reason in Reason)
    lost = error_document(event_feed.lost())
    assert (lost["code"], lost["codeName"]) == (286, "ChangeStreamHistoryLost")
    assert lost["errorLabels"] == ["NonResumableChangeStreamError"]


GOLDEN = {
    Kind.BAD_REQUEST: (2, "BadValue"),
    Kind.KEY_MISMATCH: (61, "ShardKeyNotFound"),
    Kind.CROSS_PARTITION: (2, "BadValue"),
    Kind.STALE_CONTAINER: (91, "ShutdownInProgress"),
    Kind.TOO_LARGE: (10334, "BSONObjectTooLarge"),
    Kind.UNSUPPORTED: (115, "CommandNotSupported"),
    Kind.UNSUPPORTED_MEDIA: (115, "CommandNotSupported"),
    Kind.UNAUTHORIZED: (18, "AuthenticationFailed"),
    Kind.FORBIDDEN: (13, "Unauthorized"),
    Kind.KEY_FULL: (14031, "OutOfDiskSpace"),
    Kind.NOT_FOUND: (26, "NamespaceNotFound"),
    Kind.OWNER_NOT_FOUND: (26, "NamespaceNotFound"),
    Kind.SESSION_BEHIND: (246, "SnapshotUnavailable"),
    Kind.METHOD_NOT_ALLOWED: (115, "CommandNotSupported"),
    Kind.CONFLICT: (11000, "DuplicateKey"),
    Kind.PRECONDITION_FAILED: (112, "WriteConflict"),
    Kind.FAILED_DEPENDENCY: (125, "CommandFailed"),
    Kind.RANGE_GONE: (91, "ShutdownInProgress"),
    Kind.RANGE_BUSY: (91, "ShutdownInProgress"),
    Kind.NAME_STALE: (26, "NamespaceNotFound"),
    Kind.NOT_LEADER: (10107, "NotWritablePrimary"),
    Kind.STALE_HERE: (133, "FailedToSatisfyReadPreference"),
    Kind.THROTTLED: (16500, "TooManyRequests"),
    Kind.RETRY_WITH: (112, "WriteConflict"),
    Kind.TIMED_OUT: (50, "MaxTimeMSExpired"),
    Kind.UNAVAILABLE: (91, "ShutdownInProgress"),
    Kind.STORAGE_FULL: (14031, "OutOfDiskSpace"),
    Kind.DROPPED: (6, "HostUnreachable"),
    Kind.SCRIPT_FAILED: (125, "CommandFailed"),
    Kind.CORRUPT: (1, "InternalError"),
    Kind.INTERNAL: (1, "InternalError"),
}


@pytest.mark.parametrize("kind", Kind)
def test_failures_on_the_wire(kind: Kind) -> None:
    document = error_document(Failure(kind, "So it is.", retry_after_ms=34))
    code, name = GOLDEN[kind]
    assert (document["ok"], document["code"], document["codeName"]) == (0.0, code, name)
    if kind is Kind.THROTTLED:
        assert document["errmsg"].startswith("Error=16500, RetryAfterMs=34, Details='Response status code")
    else:
        assert document["errmsg"] == "So it is."


def test_details_speak_for_themselves() -> None:
    details = {"code": 251, "labels": ("TransientTransactionError",), "fields": {"keyPattern": {"a": 1}}}
    document = error_document(Failure(Kind.BAD_REQUEST, "gone", details=details), ["RetryableWriteError"])
    assert document["codeName"] == "NoSuchTransaction" and document["keyPattern"] == {"a": 1}
    assert document["errorLabels"] == ["TransientTransactionError", "RetryableWriteError"]
    assert error_document(Failure(Kind.BAD_REQUEST, "x", details={"code": 40324}))["codeName"] == "Location40324"


# Authentication.


async def log_in(
    house: MongoHouse,
    client: Client,
    key: str = KEY,
    mechanism: str = "SCRAM-SHA-256",
    user: str = "localhost",
    *,
    skips_empty: bool = True,
) -> dict[str, Any]:
    """What a driver does. The answer to the last step, or to the one that was refused."""
    digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha1"
    password = key if digest == "sha256" else hashlib.md5(f"{user}:mongo:{key}".encode()).hexdigest()
    bare = f"n={user},r=nonce"
    options = {"skipEmptyExchange": skips_empty}
    first = {"saslStart": 1, "mechanism": mechanism, "payload": Binary(f"n,,{bare}".encode()), "options": options}
    answer = await house.ask(first, client=client, database="admin")
    if answer["ok"] == 0.0:
        return answer
    said = bytes(answer["payload"]).decode()
    fields = dict(part.split("=", 1) for part in said.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={fields['r']}"
    message = f"{bare},{said},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    go_on = {"saslContinue": 1, "conversationId": 1, "payload": Binary(f"{last},p={proof}".encode())}
    answer = await house.ask(go_on, client=client, database="admin")
    if answer["ok"] == 1.0:
        server_key = hmac.digest(salted, b"Server Key", digest)
        expected = b"v=" + b64encode(hmac.digest(server_key, message, digest))
        assert bytes(answer["payload"]) == expected
        if not answer["done"]:
            return await house.ask({"saslContinue": 1, "conversationId": 1, "payload": Binary(b"")}, client=client)
    return answer


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-1"])
@pytest.mark.parametrize("skips_empty", [True, False])
async def test_scram(locked: MongoHouse, mechanism: str, skips_empty: bool) -> None:
    client = locked.visitor()
    refused = await locked.ask({"find": "c"}, client=client)
    assert (refused["code"], refused["codeName"]) == (13, "Unauthorized")
    answer = await log_in(locked, client, mechanism=mechanism, skips_empty=skips_empty)
    assert answer["done"] is True
    assert (await locked.ask({"insert": "c", "documents": [{"a": 1}]}, client=client))["n"] == 1
    status = await locked.ask({"connectionStatus": 1}, client=client)
    assert status["authInfo"]["authenticatedUsers"] == [{"user": "localhost", "db": "admin"}]
    await locked.ask({"logout": 1}, client=client)
    assert (await locked.ask({"find": "c"}, client=client))["code"] == 13


async def test_a_key_that_may_only_read(locked: MongoHouse) -> None:
    writer, reader = locked.visitor(), locked.visitor()
    await log_in(locked, writer)
    await log_in(locked, reader, READ_KEY)
    await locked.ask({"insert": "c", "documents": [{"_id": 1}]}, client=writer)
    assert len((await locked.ask({"find": "c"}, client=reader))["cursor"]["firstBatch"]) == 1
    outputs = {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}
    for command in ({"insert": "c", "documents": [{}]}, {"drop": "c"}, outputs, {"create": "d"}):
        assert (await locked.ask(command, client=reader))["code"] == 13


@pytest.mark.parametrize(("key", "user"), [("d3Jvbmc=", "localhost"), (KEY, "somebody"), ("", "localhost")])
async def test_whoever_does_not_know_the_key_is_told_nothing(locked: MongoHouse, key: str, user: str) -> None:
    client = locked.visitor()
    answer = await log_in(locked, client, key, user=user)
    assert (answer["code"], answer["errmsg"]) == (18, "Authentication failed.")
    assert client.is_stranger
    # The salt of one who does not exist is as stable as any.
    first = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(f"n,,n={user},r=x".encode())}
    salts = [bytes((await locked.ask(first, client=client))["payload"]).split(b",")[1] for _ in range(2)]
    assert salts[0] == salts[1]


async def test_plain_over_tls_only(locked: MongoHouse) -> None:
    start = {"saslStart": 1, "mechanism": "PLAIN", "payload": Binary(f"\0localhost\0{KEY}".encode())}
    assert (await locked.ask(start, client=locked.visitor(), database="$external"))["code"] == 2
    client = locked.visitor(is_tls=True)
    assert (await locked.ask(start, client=client, database="$external"))["done"] is True
    assert not client.is_stranger
    wrong = start | {"payload": Binary(b"\0localhost\0wrong")}
    assert (await locked.ask(wrong, client=locked.visitor(is_tls=True)))["code"] == 18


async def test_steps_out_of_order(locked: MongoHouse) -> None:
    go_on = {"saslContinue": 1, "conversationId": 1, "payload": Binary(b"c=biws,r=x,p=AAAA")}
    assert (await locked.ask(go_on, client=locked.visitor()))["code"] == 17
    first = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=localhost,r=x")}
    client = locked.visitor()
    await locked.ask(first, client=client)
    assert (await locked.ask(go_on | {"conversationId": 2}, client=client))["code"] == 17
    assert (await locked.ask(first | {"mechanism": "GSSAPI"}, client=client))["code"] == 2
    for payload in (b"", b"n,,", b"p=x,,n=a,r=b", b"\xff", b"n,,n=a", b"x" * 5000):
        answer = await locked.ask(first | {"payload": Binary(payload)}, client=locked.visitor())
        assert answer["code"] in (2, 18)


# hello.


async def test_hello_makes_drivers_content(house: MongoHouse) -> None:
    answer = await house.ask(
        {"hello": 1, "helloOk": True, "compression": ["zstd", "lzo", "zlib"], "saslSupportedMechs": "admin.localhost"}
    )
    assert answer["isWritablePrimary"] is True and answer["helloOk"] is True
    assert answer["hosts"] == ["127.0.0.1:10255"] and answer["setName"] == "globaldb"
    assert answer["maxWireVersion"] == 21 and answer["compression"] == ["zstd", "zlib"]
    assert answer["saslSupportedMechs"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    assert answer["logicalSessionTimeoutMinutes"] == 30
    assert answer["$clusterTime"]["clusterTime"] == answer["operationTime"]
    assert "ismaster" in await house.ask({"ismaster": 1})


async def test_metadata_is_told_once(house: MongoHouse) -> None:
    hello = {"hello": 1, "client": {"application": {"name": "shop"}}}
    client = house.visitor()
    assert (await house.ask(hello, client=client))["ok"] == 1.0
    assert client.app_name == "shop"
    assert (await house.ask(hello, client=client))["code"] == 186


@pytest.mark.parametrize(("version", "number"), [("4.4", 9), ("5.0", 13), ("7.0", 21), ("8.0", 25)])
async def test_versions_agree(version: str, number: int) -> None:
    house = await MongoHouse.open(version=version)
    assert (await house.ask({"hello": 1}))["maxWireVersion"] == number
    assert (await house.ask({"buildInfo": 1}))["version"] == f"{version}.0"
    await house.close()


async def test_what_is_told_to_reach() -> None:
    house = await MongoHouse.open(advertised_host="db.example:443")
    assert (await house.ask({"hello": 1}))["me"] == "db.example:443"
    await house.close()


# Commands in general.


async def test_what_is_not_known_is_refused_by_name(house: MongoHouse) -> None:
    assert (await house.ask({"nonsense": 1}))["errmsg"] == "no such command: 'nonsense'"
    assert (await house.ask({"eval": "c"}))["codeName"] == "CommandNotSupported"
    assert (await house.ask({"find": "c", "nonsense": 1}))["code"] == 40415
    assert (await house.ask({"find": "c", "filter": 5}))["code"] == 14
    assert (await house.ask({"find": ""}))["code"] == 73
    assert (await house.ask({"ping": 1, "apiVersion": "2"}))["code"] == 322
    assert (await house.ask({"distinct": "c", "key": "a", "apiVersion": "1", "apiStrict": True}))["code"] == 323
    assert (await house.ask({"ping": 1, "$db": "a b"}))["code"] == 73
    answer = await house.send(frame_of({"ping": 1}))
    assert answer is not None and document_in(answer)["code"] == 40571


async def test_the_table_is_told(house: MongoHouse) -> None:
    assert set((await house.ask({"listCommands": 1}))["commands"]) == set(COMMANDS)


async def test_without_an_answer(house: MongoHouse) -> None:
    frame = frame_of({"insert": "c", "documents": [{"_id": 1}], "$db": "test"}, flags=messages.MORE_TO_COME)
    assert await house.send(frame) == b""
    assert await house.send(frame) == b"", "not even errors"
    assert (await house.ask({"count": "c"}))["n"] == 1


async def test_answers_one_after_the_other(house: MongoHouse) -> None:
    """A client that allows it is sent a whole cursor for one getMore."""
    await house.ask({"insert": "c", "documents": [{"_id": number} for number in range(10)]})
    found = await house.ask({"find": "c", "batchSize": 2})
    more = {"getMore": Int64(found["cursor"]["id"]), "collection": "c", "batchSize": 3, "$db": "test"}
    last = await house.send(frame_of(more, flags=messages.EXHAUST_ALLOWED, request_id=41))
    line = house.client.line
    assert isinstance(line, Line) and last is not None
    answers = [*line.sent, last]
    assert [messages.HEADER.unpack_from(each)[2] for each in answers] == [
        41,
        *[messages.HEADER.unpack_from(each)[1] for each in answers[:-1]],
    ]
    ids = [each["_id"] for answer in answers for each in document_in(answer)["cursor"]["nextBatch"]]
    assert ids == list(range(2, 10)) and document_in(last)["cursor"]["id"] == 0


# Cursors and sessions.


async def test_cursors_belong_to_a_collection_and_a_session(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": number} for number in range(5)]})
    lsid = {"id": Binary(bytes(16), 4)}
    found = await house.ask({"find": "c", "batchSize": 2, "lsid": lsid})
    more = {"getMore": Int64(found["cursor"]["id"]), "collection": "c", "batchSize": 2}
    assert (await house.ask(more | {"collection": "d", "lsid": lsid}))["code"] == 13
    assert (await house.ask(more))["code"] == 50737
    assert (await house.ask(more | {"lsid": {"id": Binary(bytes(15) + b"\1", 4)}}))["code"] == 50738
    assert [each["_id"] for each in (await house.ask(more | {"lsid": lsid}))["cursor"]["nextBatch"]] == [2, 3]
    killed = await house.ask({"killCursors": "c", "cursors": [more["getMore"], Int64(9)]})
    assert (killed["cursorsKilled"], killed["cursorsNotFound"]) == ([more["getMore"]], [9])
    assert (await house.ask(more | {"lsid": lsid}))["errmsg"] == f"cursor id {more['getMore']} not found"


async def test_cursors_and_sessions_grow_old() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock)
    await house.ask({"insert": "c", "documents": [{"_id": number} for number in range(5)]})
    for name, keeps in (("short", False), ("long", True)):
        lsid = {"id": Binary(name.encode().ljust(16), 4)}
        await house.ask({"find": "c", "batchSize": 2, "lsid": lsid, "noCursorTimeout": keeps})
    clock.advance(601)
    await house.door.cursors.expire()
    assert (len(house.door.cursors), len(house.door.sessions)) == (1, 2)
    clock.advance(1800)
    for session in house.door.sessions.expire():
        await house.door.end_session(house.door.sessions, session.id)
    assert (len(house.door.cursors), len(house.door.sessions)) == (0, 0), "a cursor ends with its session"
    await house.close()


async def test_batches(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": number} for number in range(250)]})
    found = (await house.ask({"find": "c"}))["cursor"]
    assert len(found["firstBatch"]) == 101 and found["id"]
    rest = (await house.ask({"getMore": Int64(found["id"]), "collection": "c"}))["cursor"]
    assert len(rest["nextBatch"]) == 149 and rest["id"] == 0
    assert (await house.ask({"find": "c", "batchSize": 0}))["cursor"]["firstBatch"] == []
    assert (await house.ask({"find": "c", "batchSize": 5, "singleBatch": True}))["cursor"]["id"] == 0
    assert (await house.ask({"find": "c", "batchSize": 5, "limit": 5}))["cursor"]["id"] == 0
    assert (await house.ask({"find": "nowhere"}))["cursor"] == {"firstBatch": [], "id": 0, "ns": "test.nowhere"}


# Sharding and throughput.


async def test_shard_collection() -> None:
    house = await MongoHouse.open(account=AccountSettings(partition_throughput_ru=200))
    answer = await house.ask({"shardCollection": "admin.people", "key": {"region": "hashed"}}, database="admin")
    assert list(answer)[:2] == ["_t", "collectionsharded"]
    assert (answer["_t"], answer["collectionsharded"]) == ("ShardCollectionResponse", "admin.people")
    people = house.account.container("admin", "people")
    assert len(people.partitions) == 4
    insert = {"insert": "people", "$db": "admin"}
    for document, code in (({"name": "x"}, 61), ({"region": [1]}, 61), ({"region": {"a": 1}}, None)):
        answer = await house.ask({**insert, "documents": [document]})
        assert [each["code"] for each in answer.get("writeErrors", [])] == ([code] if code else [])
    for region in range(20):
        # The id is unique for each value of the shard key.
        documents = [{"_id": 1, "region": region}, {"_id": 1, "region": region}]
        answer = await house.ask({**insert, "documents": documents, "ordered": False})
        assert answer["n"] == 1 and answer["writeErrors"][0]["code"] == 11000
    assert (await house.ask({"count": "people", "query": {"_id": 1}, "$db": "admin"}))["n"] == 20
    move = {"q": {"region": 3}, "u": {"$set": {"region": 4}}}
    answer = await house.ask({"update": "people", "updates": [move], "$db": "admin"})
    assert answer["writeErrors"][0]["code"] == 66
    upsert = {"q": {"name": "y"}, "u": {"$set": {"a": 1}}, "upsert": True}
    answer = await house.ask({"update": "people", "updates": [upsert], "$db": "admin"})
    assert answer["writeErrors"][0]["code"] == 61
    numbered = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "$db": "admin"}
    answer = await house.ask({"update": "people", "updates": [{"q": {"name": 1}, "u": {"$set": {"a": 1}}}], **numbered})
    assert answer["writeErrors"][0]["code"] == 61
    again = {"shardCollection": "admin.people", "key": {"region": 1}}
    assert (await house.ask(again))["ok"] == 1.0
    assert (await house.ask(again | {"key": {"name": 1}}))["code"] == 23
    await house.close()


async def test_custom_actions(house: MongoHouse) -> None:
    create = {"customAction": "CreateCollection", "collection": "c", "shardKey": "a.b", "offerThroughput": 1000}
    assert (await house.ask(create))["ok"] == 1.0
    assert (await house.ask(create))["code"] == 48
    shown = await house.ask({"customAction": "GetCollection", "collection": "c"})
    assert shown["shardKeyDefinition"] == {"a.b": "hashed"} and shown["provisionedThroughput"] == 1000
    update = {"customAction": "UpdateCollection", "collection": "c"}
    assert (await house.ask(update | {"offerThroughput": 2000}))["ok"] == 1.0
    assert (await house.ask(update | {"autoScaleSettings": {"maxThroughput": 4000}}))["ok"] == 1.0
    shown = await house.ask({"customAction": "GetCollection", "collection": "c"})
    assert shown["autoScaleSettings"] == {"maxThroughput": 4000}
    assert (await house.ask({"insert": "c", "documents": [{"a": {"b": 1}}, {"a": 1}]}))["writeErrors"][0]["code"] == 61
    assert (await house.ask({"customAction": "CreateCollection", "collection": "d", "offerThroughput": 20000}))[
        "code"
    ] == 2
    assert (await house.ask({"customAction": "CreateDatabase", "offerThroughput": 400}, database="e"))["ok"] == 1.0
    assert (await house.ask({"customAction": "GetDatabase"}, database="e"))["provisionedThroughput"] == 400
    assert (await house.ask({"customAction": "Nonsense"}))["code"] == 115


async def test_what_the_last_command_cost(house: MongoHouse) -> None:
    client = house.visitor()
    await house.ask({"insert": "c", "documents": [{"_id": 1, "text": "x" * 100}]}, client=client)
    last = await house.ask({"getLastRequestStatistics": 1}, client=client)
    assert last["_t"] == "GetRequestStatisticsResponse" and last["CommandName"] == "insert"
    assert last["RequestCharge"] > 1
    await house.ask({"find": "c", "filter": {"_id": 1}}, client=client)
    assert (await house.ask({"getLastRequestStatistics": 1}, client=client))["RequestCharge"] == 1.0
    assert (await house.ask({"getLastRequestStatistics": 1}, client=client))["CommandName"] == "find"


async def test_beyond_the_provisioned_throughput() -> None:
    house = await MongoHouse.open(account=AccountSettings(throughput_mode="enforce"))
    text = "x" * 50_000
    errors: list[Any] = []
    for number in range(40):
        answer = await house.ask({"insert": "c", "documents": [{"_id": number, "text": text}]})
        errors += answer.get("writeErrors", [])
    assert errors[0]["code"] == 16500 and "RetryAfterMs=" in errors[0]["errmsg"]
    assert (await house.ask({"find": "c", "filter": {"_id": 1}}))["code"] == 16500
    await house.close()


async def test_documents_without_id_get_one_first(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"a": 1}]}, None)
    await house.ask({"insert": "c"}, {"documents": [{"b": 1, "_id": 5}]})
    first, second = (await house.ask({"find": "c"}))["cursor"]["firstBatch"]
    assert list(first) == ["_id", "a"] and isinstance(first["_id"], ObjectId)
    assert list(second) == ["_id", "b"]


async def test_views(house: MongoHouse) -> None:
    await house.ask(
        {"insert": "c", "documents": [{"_id": number, "n": number, "g": number % 3} for number in range(9)]}
    )
    pipeline = [{"$match": {"n": {"$gte": 3}}}, {"$addFields": {"double": {"$multiply": ["$n", 2]}}}]
    assert (await house.ask({"create": "v", "viewOn": "c", "pipeline": pipeline}))["ok"] == 1.0
    assert (await house.ask({"create": "w", "viewOn": "v", "pipeline": [{"$match": {"g": 0}}]}))["ok"] == 1.0
    found = (await house.ask({"find": "w", "sort": {"n": -1}, "limit": 1, "projection": {"double": 1}}))["cursor"]
    assert found == {"firstBatch": [{"_id": 6, "double": 12}], "id": found["id"], "ns": "test.w"}
    assert (await house.ask({"count": "v"}))["n"] == 6
    assert (await house.ask({"distinct": "v", "key": "g"}))["values"] == [0, 1, 2]
    lookup = [{"$match": {"_id": 3}}, {"$lookup": {"from": "w", "localField": "g", "foreignField": "g", "as": "found"}}]
    (joined,) = (await house.ask({"aggregate": "c", "pipeline": lookup, "cursor": {}}))["cursor"]["firstBatch"]
    assert [each["double"] for each in joined["found"]] == [6, 12]
    assert (await house.ask({"insert": "v", "documents": [{}]}))["code"] == 166
    assert (await house.ask({"delete": "v", "deletes": [{"q": {}, "limit": 0}]}))["code"] == 166
    listed = (await house.ask({"listCollections": 1, "filter": {"type": "view"}}))["cursor"]["firstBatch"]
    assert [each["name"] for each in listed] == ["v", "w"] and listed[0]["options"]["viewOn"] == "c"
    assert (await house.ask({"create": "v"}))["code"] in (48, 166)
    assert (await house.ask({"drop": "w"}))["ok"] == 1.0
    assert (await house.ask({"find": "w"}))["cursor"]["firstBatch"] == []


async def test_indexes_with_a_collation(house: MongoHouse) -> None:
    plain = {"key": {"a": 1}, "name": "plain"}
    alike = {"key": {"a": 1}, "name": "alike", "unique": True, "collation": {"locale": "en", "strength": 2}}
    made = await house.ask({"createIndexes": "c", "indexes": [plain, alike]})
    assert made["numIndexesAfter"] == 3, "beside one without"
    listed = (await house.ask({"listIndexes": "c"}))["cursor"]["firstBatch"]
    assert listed[2]["collation"]["strength"] == 2 and listed[2]["collation"]["caseLevel"] is False
    await house.ask({"insert": "c", "documents": [{"_id": 1, "a": "Ben"}, {"_id": 2, "a": ["x", 1]}]})
    refused = await house.ask({"insert": "c", "documents": [{"_id": 3, "a": "bEN"}]})
    assert refused["writeErrors"][0]["code"] == 11000
    assert (await house.ask({"insert": "c", "documents": [{"_id": 4, "a": "X"}]}))["writeErrors"][0]["code"] == 11000
    found = {"find": "c", "filter": {"a": "BEN"}}
    assert (await house.ask(found))["cursor"]["firstBatch"] == []
    assert len((await house.ask(found | {"collation": {"locale": "en", "strength": 2}}))["cursor"]["firstBatch"]) == 1
    await house.ask({"create": "own", "collation": {"locale": "en", "strength": 1}})
    await house.ask({"createIndexes": "own", "indexes": [{"key": {"a": 1}, "name": "a_1", "unique": True}]})
    both = await house.ask({"insert": "own", "documents": [{"a": "é"}, {"a": "E"}]})
    assert both["n"] == 1 and both["writeErrors"][0]["code"] == 11000, "an index has its collection's collation"
    words = {"key": {"t": "text"}, "name": "t", "collation": {"locale": "en"}}
    assert (await house.ask({"createIndexes": "c", "indexes": [words]}))["code"] == 67


async def test_an_index_of_words_is_made_again_of_how_it_is_listed(house: MongoHouse) -> None:
    given = {"key": {"a": 1, "t": "text", "u.v": "text"}, "name": "words", "weights": {"t": 5}}
    await house.ask({"createIndexes": "c", "indexes": [given]})
    listed = (await house.ask({"listIndexes": "c"}))["cursor"]["firstBatch"][1]
    await house.ask({"createIndexes": "d", "indexes": [listed]})
    assert (await house.ask({"listIndexes": "d"}))["cursor"]["firstBatch"][1] == listed
    await house.ask({"insert": "d", "documents": [{"_id": 1, "a": 1, "u": {"v": "hello"}}]})
    found = await house.ask({"find": "d", "filter": {"a": 1, "$text": {"$search": "hello"}}})
    assert [each["_id"] for each in found["cursor"]["firstBatch"]] == [1]


async def test_what_tools_ask(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": 1}]})
    status = await house.ask({"serverStatus": 1})
    assert status["mem"]["resident"] > 0 and status["globalLock"]["activeClients"]["total"] == 1
    config = (await house.ask({"replSetGetConfig": 1}, database="admin"))["config"]
    assert (config["_id"], len(config["members"])) == ("globaldb", 1)
    assert (await house.ask({"getDefaultRWConcern": 1}, database="admin"))["defaultWriteConcern"]["w"] == "majority"
    assert (await house.ask({"planCacheClear": "c"}))["ok"] == 1
    roles = (await house.ask({"rolesInfo": 1}))["roles"]
    assert [each["role"] for each in roles] == ["dbAdmin", "dbOwner", "read", "readWrite"]
    assert (await house.ask({"createRole": "x", "privileges": [], "roles": []}))["code"] == 115
    assert (await house.ask({"compact": "c"}, database="admin"))["code"] == 115
    strict = {"apiVersion": "1", "apiStrict": True, "cursor": {}}
    refused = await house.ask({"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], **strict}, database="admin")
    assert refused["code"] == 323
    assert (await house.ask({"aggregate": "c", "pipeline": [{"$listSearchIndexes": {}}], "cursor": {}}))[
        "code"
    ] == 31082


async def test_keys_and_numbers_of_documents(house: MongoHouse) -> None:
    await house.ask({"insert": "c", "documents": [{"_id": each, "a": {"b": each * 2}, "x": 1} for each in range(4)]})
    await house.ask({"createIndexes": "c", "indexes": [{"key": {"a.b": 1, "_id": 1}, "name": "ab"}]})

    async def shown(**options: Any) -> list[dict[str, Any]]:
        found = await house.ask({"find": "c", **options})
        return list(found["cursor"]["firstBatch"])

    assert await shown(returnKey=True, filter={"a.b": {"$gte": 4}}) == [{"a.b": 4, "_id": 2}, {"a.b": 6, "_id": 3}]
    assert await shown(returnKey=True, filter={"_id": 1}) == [{"_id": 1}]
    assert await shown(returnKey=True, filter={"x": 1}, limit=2) == [{}, {}], "no index"
    numbers = [each["$recordId"] for each in await shown(showRecordId=True, projection={"_id": 1})]
    assert numbers == sorted(set(numbers)) and len(numbers) == 4
    [one] = await shown(showRecordId=True, returnKey=True, filter={"_id": 3})
    assert one == {"_id": 3}, "keys are all there is then"


async def test_commands_that_are_killed(house: MongoHouse) -> None:
    await house.ask({"create": "c", "capped": True, "size": 4096})
    await house.ask({"insert": "c", "documents": [{"_id": 1}]})
    opened = [
        await house.ask({"find": "c", "tailable": True, "awaitData": True}),
        await house.ask({"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}}),
    ]
    for each in opened:
        more = {"getMore": Int64(each["cursor"]["id"]), "collection": "c", "maxTimeMS": 60_000}
        waiting = asyncio.create_task(house.ask(more))
        await asyncio.sleep(0)  # it has begun, and waits
        shown = (await house.ask({"currentOp": 1}, database="admin"))["inprog"]
        [number] = [one["opid"] for one in shown if "getMore" in one["command"]]
        assert (await house.ask({"killOp": 1, "op": number}, database="admin"))["ok"] == 1
        assert (await waiting)["code"] == 11601
