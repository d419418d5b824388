"""Writes and every other answer that only the primary may give: on a secondary, and on a primary whose lease has
ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from support.mongo_house import Line, frame_of, mongo_at
from support.mongo_set import MongoPair, secondary

from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.wire.messages import MORE_TO_COME, open_frame

SESSION = {"id": Binary(bytes(range(16)), UUID_SUBTYPE)}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[MongoPair]:
    opened = await MongoPair.open(tmp_path)
    await opened.leader.ask({"insert": "things", "documents": [{"_id": 1, "n": 1}]})
    await opened.step()
    yield opened
    await opened.close()


# Each of them would find nothing to do, or something that is there already, if the follower's state were asked.
WRITES: dict[str, dict[str, Any]] = {
    "insert": {"insert": "things", "documents": [{"_id": 1}]},
    "update": {"update": "things", "updates": [{"q": {"_id": 404}, "u": {"$set": {"n": 2}}}]},
    "delete": {"delete": "things", "deletes": [{"q": {"_id": 404}, "limit": 1}]},
    "bulkWrite": {
        "bulkWrite": 1,
        "ops": [{"delete": 0, "filter": {"_id": 404}}],
        "nsInfo": [{"ns": "test.things"}],
        "$db": "admin",
    },
    "findAndModify": {"findAndModify": "things", "query": {"_id": 404}, "update": {"$set": {"n": 2}}},
    "findandmodify": {"findandmodify": "nowhere", "query": {"_id": 404}, "remove": True},
    "create": {"create": "things"},
    "drop": {"drop": "nowhere"},
    "dropDatabase": {"dropDatabase": 1, "$db": "nowhere"},
    "createIndexes": {"createIndexes": "things", "indexes": [{"key": {"_id": 1}, "name": "_id_"}]},
    "dropIndexes": {"dropIndexes": "things", "index": "none"},
    "reIndex": {"reIndex": "things"},
    "collMod": {"collMod": "things"},
    "renameCollection": {"renameCollection": "test.nowhere", "to": "test.things", "$db": "admin"},
    "convertToCapped": {"convertToCapped": "nowhere", "size": 4096},
    "cloneCollectionAsCapped": {"cloneCollectionAsCapped": "nowhere", "toCollection": "x", "size": 4096},
    "shardCollection": {"shardCollection": "test.things", "key": {"n": 1}, "$db": "admin"},
    "enableSharding": {"enableSharding": "test", "$db": "admin"},
    "customAction": {"customAction": "GetCollection", "collection": "things"},
    "createUser": {"createUser": "ann", "pwd": "a", "roles": []},
    "updateUser": {"updateUser": "ann", "roles": []},
    "dropUser": {"dropUser": "ann"},
    "createSearchIndexes": {"createSearchIndexes": "things", "indexes": []},
    "updateSearchIndex": {"updateSearchIndex": "things"},
    "dropSearchIndex": {"dropSearchIndex": "things"},
    "commitTransaction": {"commitTransaction": 1, "$db": "admin"},
    "abortTransaction": {"abortTransaction": 1, "$db": "admin"},
}


def test_all_commands_that_need_the_primary_are_listed() -> None:
    assert sorted(WRITES) == sorted(name for name, command in COMMANDS.items() if command.needs_primary)
    # Those that change this node only, and nothing that is stored.
    assert [name for name, command in COMMANDS.items() if command.writes and command.is_local] == ["killOp"]


async def test_secondary_refuses_each_write(pair: MongoPair) -> None:
    version = (await pair.follower.ask({"hello": 1}, database="admin"))["topologyVersion"]
    for name, body in WRITES.items():
        for mode in ("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"):
            answer = await pair.follower.ask(secondary(body, mode))
            told = answer["ok"], answer["code"], answer["codeName"], answer["topologyVersion"]
            assert told == (0.0, 10107, "NotWritablePrimary", version), (name, mode)
            assert "errorLabels" not in answer


async def test_retryable_writes_are_labelled_as_such(pair: MongoPair) -> None:
    for name in ("insert", "update", "delete", "findAndModify"):
        body = {**WRITES[name], "lsid": SESSION, "txnNumber": Int64(5)}
        answer = await pair.follower.ask(body)
        assert (answer["code"], answer["errorLabels"]) == (10107, ["RetryableWriteError"])


async def test_commands_of_transactions_are_refused_so_that_drivers_repeat_the_transaction(pair: MongoPair) -> None:
    transaction = {"lsid": SESSION, "txnNumber": Int64(1), "autocommit": False}
    begun = {**transaction, "startTransaction": True}
    answer = await pair.follower.ask(secondary({"find": "things", **begun}))
    assert (answer["code"], answer["errorLabels"]) == (10107, ["TransientTransactionError"])
    answer = await pair.follower.ask({"commitTransaction": 1, **transaction}, database="admin")
    assert (answer["code"], answer["errorLabels"]) == (10107, ["RetryableWriteError"])


async def test_pipelines_that_write_are_refused_even_if_they_would_write_nothing(pair: MongoPair) -> None:
    for stage in ({"$out": "copies"}, {"$merge": "copies"}):
        body = {"aggregate": "nowhere", "pipeline": [stage], "cursor": {}}
        assert (await pair.follower.ask(secondary(body)))["code"] == 10107
        assert (await pair.follower.ask(body))["code"] == 13435


async def test_unacknowledged_write_ends_the_connection(pair: MongoPair) -> None:
    body = {"insert": "things", "documents": [{"_id": 2}], "writeConcern": {"w": 0}, "$db": "test"}
    sent = open_frame(frame_of(body, flags=MORE_TO_COME))
    for house, answer in ((pair.leader, b""), (pair.follower, None)):
        client = house.door.welcome(Line(), is_tls=False, remote=("127.0.0.1", 1), local=("127.0.0.1", 2))
        assert await house.door.answer(client, sent) == answer


async def test_profiler_is_not_turned_on_where_it_cannot_write(pair: MongoPair) -> None:
    assert (await pair.follower.ask({"profile": 2}))["code"] == 10107
    assert (await pair.follower.ask({"profile": -1}))["was"] == 0


# The lease.


async def test_answer_that_writes_nothing_is_confirmed_by_the_log_where_the_lease_has_ended(pair: MongoPair) -> None:
    before = pair.rows
    for name in ("update", "delete", "findAndModify", "create", "drop", "dropIndexes", "commitTransaction"):
        await pair.leader.ask(WRITES[name])
    assert pair.rows == before  # under the lease
    pair.end_lease()
    for number, name in enumerate(("update", "delete", "findAndModify", "create", "drop", "dropIndexes"), 1):
        answer = await pair.leader.ask(WRITES[name])
        assert answer["ok"] == 1.0 or answer["code"] in (26, 27)
        assert pair.rows >= before + number


async def test_deposed_leader_gives_no_such_answer(pair: MongoPair) -> None:
    """The lease has ended and another node leads; the doors are still those of the leader."""
    known = (await pair.leader.ask({"hello": 1}, database="admin"))["topologyVersion"]["counter"]
    pair.end_lease()
    pair.depose()
    for name in ("update", "delete", "findAndModify", "create", "drop", "dropIndexes", "customAction"):
        answer = await pair.leader.ask(WRITES[name])
        assert answer["code"] == 10107, name
        # Drivers would ignore an error with the topologyVersion that they know.
        assert answer["topologyVersion"]["counter"] > known, name


async def test_repeated_retryable_write_is_answered_by_a_leader_only(pair: MongoPair) -> None:
    body = {"insert": "things", "documents": [{"_id": 7}], "lsid": SESSION, "txnNumber": Int64(9)}
    assert (await pair.leader.ask(body))["n"] == 1
    await pair.step()
    assert (await pair.leader.ask(body))["retriedStmtIds"] == [0]
    assert (await pair.follower.ask(body))["code"] == 10107
    pair.end_lease()
    before = pair.rows
    assert (await pair.leader.ask(body))["retriedStmtIds"] == [0]
    assert pair.rows > before


# Write concerns.


async def test_members_are_counted_with_test_commands_only(pair: MongoPair) -> None:
    for wanted in (1, 2, 3, 50, "majority"):
        body = {"insert": "things", "documents": [{"n": wanted}], "writeConcern": {"w": wanted}}
        assert "writeConcernError" not in await pair.leader.ask(body)
    counting = mongo_at(pair.pair.leader, has_test_commands=True)
    for wanted, code in ((3, None), (4, 100)):
        body = {"insert": "things", "documents": [{"n": wanted}], "writeConcern": {"w": wanted}}
        answer = await counting.ask(body)
        assert (answer["n"], answer.get("writeConcernError", {}).get("code")) == (1, code)


async def test_users_of_the_leader_are_users_of_its_followers(pair: MongoPair) -> None:
    command = {"createUser": "ann", "pwd": "a", "roles": ["read"]}
    assert (await pair.leader.ask(command))["ok"] == 1.0
    await pair.step()
    user = pair.follower.account.database_users.find("test", "ann")
    assert user is not None and user == pair.leader.account.database_users.find("test", "ann")
    await pair.leader.ask({"dropUser": "ann"})
    await pair.step()
    assert pair.follower.account.database_users.find("test", "ann") is None
