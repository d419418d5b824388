"""What a client of the MongoDB door may do with a key that may only read: every command is in a table here, and none of
them touches what others have: documents, sessions, transactions, cursors, running commands, settings of the server."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from support.limits import WithLimits
from support.mongo_house import MongoHouse

from armillary.doors.mongo.client import Client
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.sessions import scram
from armillary.doors.mongo.settings import Grant

LSID = {"id": Binary(b"a writer's lsid!", 4)}  # which the client that reads has come to know
OWN_LSID = {"id": Binary(b"a reader's lsid!", 4)}
NUMBER = Int64(7)
IN_TRANSACTION = {"lsid": LSID, "txnNumber": NUMBER, "autocommit": False}
REFUSED, READS, OWN, OPEN, ABSENT = "refused", "reads", "own", "open", "not offered"
UPDATE = {"q": {}, "u": {"$set": {"x": 1}}, "multi": True}

# Command: what it is to a client that may only read, and how that client sends it here. OWN: it acts on its own
# sessions and cursors alone, whatever ids it names.
TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "hello": (OPEN, {}),
    "isMaster": (OPEN, {}),
    "ismaster": (OPEN, {}),
    "ping": (OPEN, {}),
    "buildInfo": (OPEN, {}),
    "buildinfo": (OPEN, {}),
    "saslStart": (OPEN, {"mechanism": "SCRAM-SHA-256", "payload": b"n,,n=localhost,r=abc"}),
    "saslContinue": (OPEN, {"conversationId": 1, "payload": b""}),
    "getnonce": (OPEN, {}),
    "authenticate": (OPEN, {}),
    "logout": (OPEN, {}),
    "connectionStatus": (OPEN, {}),
    "whatsmyuri": (OPEN, {}),
    "listCommands": (OPEN, {}),
    "getMore": (OWN, {"getMore": "cursor", "collection": "c", "lsid": LSID}),
    "killCursors": (OWN, {"killCursors": "c", "cursors": "cursors"}),
    "startSession": (OWN, {}),
    "refreshSessions": (OWN, {"refreshSessions": [LSID]}),
    "endSessions": (OWN, {"endSessions": [LSID]}),
    "killSessions": (OWN, {"killSessions": [LSID]}),
    "abortTransaction": (OWN, {**IN_TRANSACTION, "$db": "admin"}),
    "killAllSessions": (REFUSED, {"killAllSessions": []}),
    "commitTransaction": (OWN, {**IN_TRANSACTION, "$db": "admin"}),
    "killOp": (REFUSED, {"op": "op", "$db": "admin"}),
    "configureFailPoint": (
        REFUSED,
        {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {"failCommands": ["find"]}, "$db": "admin"},
    ),
    "find": (READS, {"find": "c"}),
    "count": (READS, {"count": "c"}),
    "distinct": (READS, {"distinct": "c", "key": "n"}),
    "aggregate": (READS, {"aggregate": "c", "pipeline": [], "cursor": {}}),
    **{
        name: (READS, {"map": "function () {}", "reduce": "function () {}", "out": {"inline": 1}, name: "new"})
        for name in ("mapReduce", "mapreduce")
    },
    "explain": (READS, {"explain": {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}, "verbosity": "executionStats"}),
    "listCollections": (READS, {}),
    "listDatabases": (READS, {"$db": "admin"}),
    "listIndexes": (READS, {"listIndexes": "c"}),
    "collStats": (READS, {"collStats": "c"}),
    "collstats": (READS, {"collstats": "c"}),
    "dbStats": (READS, {}),
    "dbstats": (READS, {}),
    "dataSize": (READS, {"dataSize": "test.c"}),
    "validate": (READS, {"validate": "c"}),
    "getLastRequestStatistics": (READS, {}),
    "GetLastRequestStatistics": (READS, {}),
    "hostInfo": (READS, {}),
    "serverStatus": (READS, {}),
    "getCmdLineOpts": (READS, {}),
    "getLog": (READS, {"getLog": "global"}),
    "getParameter": (READS, {"getParameter": "*"}),
    "features": (READS, {}),
    "top": (READS, {"$db": "admin"}),
    "currentOp": (READS, {"$db": "admin"}),
    "replSetGetStatus": (READS, {"$db": "admin"}),
    "replSetGetConfig": (READS, {"$db": "admin"}),
    "getDefaultRWConcern": (READS, {"$db": "admin"}),
    "planCacheClear": (READS, {"planCacheClear": "c"}),
    "rolesInfo": (READS, {}),
    "fsync": (READS, {"$db": "admin"}),
    "profile": (READS, {"profile": -1}),
    "usersInfo": (READS, {}),
    "insert": (REFUSED, {"insert": "c", "documents": [{"_id": 99}]}),
    "update": (REFUSED, {"update": "c", "updates": [UPDATE]}),
    "delete": (REFUSED, {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}),
    "bulkWrite": (REFUSED, {"ops": [], "nsInfo": [], "$db": "admin"}),
    "findAndModify": (REFUSED, {"findAndModify": "c", "query": {}, "remove": True}),
    "findandmodify": (REFUSED, {"findandmodify": "c", "query": {}, "remove": True}),
    "create": (REFUSED, {"create": "new"}),
    "drop": (REFUSED, {"drop": "c"}),
    "dropDatabase": (REFUSED, {}),
    "createIndexes": (REFUSED, {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n"}]}),
    "dropIndexes": (REFUSED, {"dropIndexes": "c", "index": "*"}),
    "reIndex": (REFUSED, {"reIndex": "c"}),
    "collMod": (REFUSED, {"collMod": "c"}),
    "renameCollection": (REFUSED, {"renameCollection": "test.c", "to": "test.d", "$db": "admin"}),
    "convertToCapped": (REFUSED, {"convertToCapped": "c", "size": 1}),
    "cloneCollectionAsCapped": (REFUSED, {"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 1}),
    "shardCollection": (REFUSED, {"shardCollection": "test.new", "key": {"n": 1}}),
    "enableSharding": (REFUSED, {"enableSharding": "new"}),
    "customAction": (REFUSED, {"customAction": "CreateCollection", "collection": "new"}),
    "createUser": (REFUSED, {"createUser": "ann", "pwd": "a", "roles": []}),
    "updateUser": (REFUSED, {"updateUser": "ann", "pwd": "a"}),
    "dropUser": (REFUSED, {"dropUser": "ann"}),
    "createSearchIndexes": (REFUSED, {}),
    "updateSearchIndex": (REFUSED, {}),
    "dropSearchIndex": (REFUSED, {}),
    **{name: (ABSENT, {"$db": "admin"}) for name in ("compact", "setParameter", "setDefaultRWConcern", "logRotate")},
    **{name: (ABSENT, {"$db": "admin"}) for name in ("dbHash", "createRole")},
    **{name: (ABSENT, {}) for name in ("eval", "$eval")},
}


class World:
    """A server with a client that writes, in the middle of things, and one that only reads."""

    def __init__(self, house: MongoHouse, writer: Client, reader: Client, cursors: list[int]) -> None:
        self.house, self.writer, self.reader, self.cursors = house, writer, reader, cursors

    @classmethod
    async def open(cls) -> World:
        house = await MongoHouse.open(needs_authentication=True, has_test_commands=True)
        writer, reader = house.visitor(), house.visitor()
        writer.grant, reader.grant = Grant.WRITE, Grant.READ
        inserted = await house.ask({"insert": "c", "documents": [{"_id": n, "n": n} for n in range(5)]}, client=writer)
        assert inserted.get("n") == 5, inserted
        begun = {"insert": "c", "documents": [{"_id": "t"}], "startTransaction": True, **IN_TRANSACTION}
        assert (await house.ask(begun, client=writer))["ok"] == 1
        cursors = []
        for own in ({"lsid": LSID}, {}):
            found = await house.ask({"find": "c", "batchSize": 1, **own}, client=writer)
            assert "cursor" in found, found
            cursors.append(found["cursor"]["id"])
        return cls(house, writer, reader, cursors)

    async def ask_as_reader(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        known = {"cursor": Int64(self.cursors[0]), "cursors": [Int64(each) for each in self.cursors], "op": 1}
        first = {name: body.get(name, 1)}
        sent = {
            key: known.get(value, value) if isinstance(value, str) else value for key, value in (first | body).items()
        }
        return await self.house.ask(sent, client=self.reader)

    async def untouched(self) -> tuple[Any, ...]:
        """What the client that writes has, and what all share."""
        house, door = self.house, self.house.door
        session = door.sessions.known(bytes(LSID["id"]))
        transaction = session.transaction if session is not None else None
        documents = await house.ask({"find": "c"}, client=self.writer)
        collections = await house.ask({"listCollections": 1, "nameOnly": True}, client=self.writer)
        indexes = await house.ask({"listIndexes": "c"}, client=self.writer)
        databases = await house.ask({"listDatabases": 1, "nameOnly": True, "$db": "admin"}, client=self.writer)
        for answer in (documents, collections, indexes):
            assert "cursor" in answer, answer
        return (
            documents["cursor"]["firstBatch"],
            collections["cursor"]["firstBatch"],
            indexes["cursor"]["firstBatch"],
            [each["name"] for each in databases["databases"]],
            session is not None,
            transaction is not None and transaction.is_open,
            [door.cursors.find(each) is not None for each in self.cursors],
            door.profiler.is_on,
            door.fail_points.are_set,
        )

    async def close(self) -> None:
        await self.house.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = await World.open()
    yield made
    await made.close()


def test_every_command_is_in_the_table() -> None:
    assert set(TABLE) == set(COMMANDS), "say what a client that may only read can do with it"
    for name, (meaning, _) in TABLE.items():
        command = COMMANDS[name]
        assert command.is_open == (meaning == OPEN), name
        if meaning not in (REFUSED, ABSENT):
            assert not command.writes and not command.acts_on_others, name


async def test_no_command_touches_what_others_have(world: World) -> None:
    before = await world.untouched()
    for name, (meaning, body) in TABLE.items():
        world.reader.grant = Grant.READ  # it may have logged out
        answer = await world.ask_as_reader(name, body)
        assert (answer.get("code") == 13) == (meaning == REFUSED), (name, answer)
        if meaning == ABSENT:
            assert answer["code"] == 115, (name, answer)
        if meaning == READS:
            assert answer["ok"] == 1, (name, answer)
        assert await world.untouched() == before, name
    assert (await world.house.ask({"commitTransaction": 1, "$db": "admin", **IN_TRANSACTION}, client=world.writer))[
        "ok"
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"killSessions": []},
        {"find": "c", "startTransaction": True, "lsid": LSID, "txnNumber": Int64(8), "autocommit": False},
        {"find": "c", "lsid": LSID, "txnNumber": NUMBER, "autocommit": False},
        {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$merge": "d"}], "cursor": {}},
        {"explain": {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}, "verbosity": "executionStats"},
        {"profile": 2},
        {"profile": 0, "slowms": 1},
        {"find": "c", "lsid": LSID, "readConcern": {"level": "snapshot"}},
        {"aggregate": "c", "pipeline": [{"$facet": {"a": [{"$out": "d"}]}}], "cursor": {}},
        {
            "aggregate": "c",
            "pipeline": [{"$lookup": {"from": "c", "pipeline": [{"$merge": "d"}], "as": "x"}}],
            "cursor": {},
        },
        {"aggregate": "c", "pipeline": [{"$unionWith": {"coll": "c", "pipeline": [{"$out": "d"}]}}], "cursor": {}},
        {"aggregate": "c", "pipeline": [{"$match": {"_id": -1}}, {"$out": "d"}], "cursor": {}},
        {"explain": {"findAndModify": "c", "query": {}, "remove": True}, "verbosity": "executionStats"},
        {"explain": {"update": "c", "updates": [UPDATE]}, "verbosity": "allPlansExecution"},
        {"validate": "c", "repair": True},
        {"fsync": 1, "lock": True, "$db": "admin"},
        {"killSessions": [{**LSID, "uid": b"x" * 32}]},
        {"endSessions": [LSID, OWN_LSID]},
        {"abortTransaction": 1, "lsid": LSID, "txnNumber": Int64(9), "autocommit": False, "$db": "admin"},
        {"killCursors": "c", "cursors": "cursors", "lsid": LSID},
        {"listIndexes": "new"},
    ],
)
async def test_other_ways_to_what_others_have(world: World, body: dict[str, Any]) -> None:
    before = await world.untouched()
    await world.ask_as_reader(next(iter(body)), body)
    assert await world.untouched() == before


async def test_sessions_of_others_are_not_listed(world: World) -> None:
    await world.ask_as_reader("find", {"find": "c", "lsid": OWN_LSID})
    body = {"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], "cursor": {}, "$db": "admin"}
    found = (await world.ask_as_reader("aggregate", body))["cursor"]["firstBatch"]
    assert [bytes(each["_id"]["id"]) for each in found] == [bytes(OWN_LSID["id"])]


async def test_clients_that_read_leave_room_for_sessions_of_others(world: World, with_limits: WithLimits) -> None:
    with_limits(MONGO_SESSIONS_MAX=4)
    for _ in range(6):
        await world.ask_as_reader("startSession", {})
    assert (await world.ask_as_reader("startSession", {}))["code"] == 261
    assert (await world.house.ask({"startSession": 1}, client=world.writer))["ok"] == 1


async def test_a_client_that_reads_ends_its_own(world: World) -> None:
    found = await world.ask_as_reader("find", {"find": "c", "batchSize": 1, "lsid": OWN_LSID})
    cursor_id = found["cursor"]["id"]
    more = {"getMore": cursor_id, "collection": "c", "batchSize": 1, "lsid": OWN_LSID}
    assert (await world.house.ask(more, client=world.reader))["ok"] == 1
    assert (await world.house.ask(more, client=world.writer))["code"] == 43
    await world.ask_as_reader("killSessions", {"killSessions": [OWN_LSID]})
    assert (await world.house.ask(more, client=world.reader))["code"] == 43


async def test_a_client_that_reads_commits_what_it_read(world: World) -> None:
    number = {"lsid": OWN_LSID, "txnNumber": Int64(1), "autocommit": False}
    for _ in range(2):
        refused = await world.ask_as_reader("insert", {**TABLE["insert"][1], "startTransaction": True, **number})
        assert refused["code"] == 13 and refused["codeName"] == "Unauthorized", "no transaction is begun"
    assert (await world.ask_as_reader("find", {"find": "c", "startTransaction": True, **number}))["ok"] == 1
    for name in ("insert", "update", "delete", "findAndModify", "create", "createIndexes", "bulkWrite"):
        assert (await world.ask_as_reader(name, {**TABLE[name][1], **number}))["code"] == 13, name
    merge = {"aggregate": "c", "pipeline": [{"$merge": "d"}], "cursor": {}, **number}
    assert (await world.ask_as_reader("find", {"find": "c", **number}))["ok"] == 1, "the transaction is still open"
    assert (await world.ask_as_reader("commitTransaction", {"$db": "admin", **number}))["ok"] == 1
    assert (await world.ask_as_reader("commitTransaction", {"$db": "admin", **number}))["ok"] == 1, "sent again"
    again = {**number, "txnNumber": Int64(2)}
    assert (await world.ask_as_reader("find", {"find": "c", "startTransaction": True, **again}))["ok"] == 1
    assert (await world.ask_as_reader("aggregate", {**merge, **again}))["code"] == 13
    assert (await world.ask_as_reader("commitTransaction", {"$db": "admin", **again}))["code"] == 251, "it was aborted"


# Whether an account exists is no stranger's to know.


@pytest.mark.parametrize("user", ["admin.localhost", "admin.somebody", "localhost", "", "test.localhost", "a.b.c"])
async def test_hello_says_the_same_of_every_user(world: World, user: str) -> None:
    answer = await world.house.ask({"hello": 1, "saslSupportedMechs": user}, client=world.house.visitor())
    assert answer["saslSupportedMechs"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
async def test_conversations_with_users_that_do_not_exist_look_alike(world: World, mechanism: str) -> None:
    """In what is answered, and in the work that is done for it."""

    async def attempt(user: str) -> tuple[list[Any], float]:
        client = world.house.visitor()
        authenticator = world.house.door.authenticator
        first = Fields({"mechanism": mechanism, "payload": f"n,,n={user},r=abc".encode()}, "saslStart")
        answer = await authenticator.start(client, first, "test")
        conversation = client.conversation
        assert conversation is not None
        secrets = await authenticator._secrets(conversation)
        fields = dict(part.split("=", 1) for part in bytes(answer["payload"]).decode().split(","))
        digest = hashlib.new(scram.MECHANISMS[mechanism].digest).digest_size
        seconds = []
        for _ in range(5):
            begun = time.process_time()
            try:
                conversation.prove(f"c=biws,r={fields['r']},p={'A' * 43}=".encode(), secrets)
            except Exception as error:
                said = str(error)
            seconds.append(time.process_time() - begun)
        return [
            len(fields["s"]),
            fields["i"],
            len(secrets),
            {len(each.stored_key) for each in secrets},
            digest,
            said,
        ], min(seconds)

    made = await world.house.ask({"createUser": "ann", "pwd": "a", "roles": []}, client=world.writer)
    assert made["ok"] == 1
    known, known_s = await attempt("localhost")
    for user in ("somebody", "ann"):
        other, other_s = await attempt(user)
        assert known == other
        assert other_s < 20 * known_s + 0.001 and known_s < 20 * other_s + 0.001  # no key is derived for one alone
