"""What ends when a member changes its role: cursors, transactions, sessions and commands that run, each with the error
that drivers retry or report."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from support.mongo_set import MongoPair, secondary

from armillary.account import roles
from armillary.doors.mongo import namespaces
from armillary.errors import Failure, Kind

SESSION = {"id": Binary(bytes(range(16)), UUID_SUBTYPE)}
TRANSACTION = {"lsid": SESSION, "txnNumber": Int64(1), "autocommit": False}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[MongoPair]:
    opened = await MongoPair.open(tmp_path)
    await opened.leader.ask({"insert": "things", "documents": [{"_id": number} for number in range(10)]})
    await opened.step()
    yield opened
    await opened.close()


async def test_roles_change(pair: MongoPair) -> None:
    await pair.exchange()
    new = await pair.leader.ask({"hello": 1}, database="admin")
    old = await pair.follower.ask({"hello": 1}, database="admin")
    assert (new["me"], new["isWritablePrimary"], new["secondary"]) == ("b.example:27017", True, False)
    assert (old["me"], old["isWritablePrimary"], old["secondary"]) == ("a.example:27017", False, True)
    assert (await pair.leader.ask({"insert": "things", "documents": [{"_id": 10}]}))["n"] == 1
    assert (await pair.follower.ask({"insert": "things", "documents": [{"_id": 11}]}))["code"] == 10107
    await pair.step()
    assert (await pair.follower.ask(secondary({"count": "things"})))["n"] == 11


async def test_node_that_takes_over_is_no_primary_before_its_account_is_open(pair: MongoPair) -> None:
    topology = pair.topologies[1]
    topology.change(leader="b")
    answer = await pair.follower.ask({"hello": 1}, database="admin")
    assert (answer["isWritablePrimary"], answer["secondary"], "primary" in answer) == (False, True, False)
    assert (await pair.follower.ask({"insert": "things", "documents": [{}]}))["code"] == 10107
    assert (await pair.follower.ask({"count": "things"}))["code"] == 13435


async def test_cursors_end(pair: MongoPair) -> None:
    opened = await pair.leader.ask(secondary({"find": "things", "batchSize": 2}))
    await pair.exchange()
    for house in (pair.leader, pair.follower):
        more = await house.ask({"getMore": opened["cursor"]["id"], "collection": "things"})
        assert (more["code"], more["codeName"]) == (43, "CursorNotFound")


async def test_change_stream_whose_account_is_closed_can_be_resumed(pair: MongoPair) -> None:
    """Drivers of today resume by the label alone."""
    watch = {"aggregate": "things", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    house = pair.leader
    opened = await house.ask(watch)
    await house.ask({"insert": "things", "documents": [{"_id": 20}]})
    await house.account.close(Failure(Kind.NOT_LEADER, "Another node leads."))
    more = {"getMore": opened["cursor"]["id"], "collection": "things", "maxTimeMS": 0}
    answer = await house.ask(more)
    assert (answer["code"], answer["errorLabels"]) == (10107, ["ResumableChangeStreamError"])


async def test_open_transaction_is_repeated_as_a_whole(pair: MongoPair) -> None:
    write = {"insert": "things", "documents": [{"_id": 30}], **TRANSACTION}
    assert (await pair.leader.ask({**write, "startTransaction": True}))["n"] == 1
    create = {"create": "made", **TRANSACTION}
    assert (await pair.leader.ask(create))["ok"] == 1.0
    former = pair.leader.door
    await pair.exchange()
    assert former.open_transaction_count == 0
    for name in ("insert", "commitTransaction"):
        body = write if name == "insert" else {"commitTransaction": 1, **TRANSACTION, "$db": "admin"}
        refused = await pair.follower.ask(body)
        label = "TransientTransactionError" if name == "insert" else "RetryableWriteError"
        assert (refused["code"], refused["errorLabels"]) == (10107, [label])
        gone = await pair.leader.ask(body)
        assert (gone["code"], gone["errorLabels"]) == (251, ["TransientTransactionError"])
    assert (await pair.leader.ask({"find": "things", "filter": {"_id": 30}}))["cursor"]["firstBatch"] == []
    # Its new collection is deleted by the door of the new leader.
    left = [each for each in pair.leader.account.containers if each.name.startswith(namespaces.PENDING)]
    assert len(left) == 1
    await pair.leader.door.clear()
    assert not [each for each in pair.leader.account.containers if each.name.startswith(namespaces.PENDING)]


async def test_commit_is_repeated_at_the_new_leader(pair: MongoPair) -> None:
    write = {"insert": "things", "documents": [{"_id": 30}], **TRANSACTION, "startTransaction": True}
    assert (await pair.leader.ask(write))["n"] == 1
    commit = {"commitTransaction": 1, **TRANSACTION, "$db": "admin"}
    assert (await pair.leader.ask(commit))["ok"] == 1.0
    await pair.exchange()
    assert (await pair.leader.ask(commit))["ok"] == 1.0
    assert (await pair.leader.ask({"count": "things"}))["n"] == 11


async def test_retryable_write_is_done_once_over_a_change_of_leader(pair: MongoPair) -> None:
    body = {"insert": "things", "documents": [{"_id": 30}], "lsid": SESSION, "txnNumber": Int64(4)}
    assert (await pair.leader.ask(body))["n"] == 1
    await pair.exchange()
    assert (await pair.leader.ask(body))["retriedStmtIds"] == [0]
    older = {**body, "txnNumber": Int64(3)}
    assert (await pair.leader.ask(older))["code"] == 225


@pytest.mark.parametrize("is_deposed", [True, False])
async def test_commands_that_hold_the_former_account_are_refused(pair: MongoPair, is_deposed: bool) -> None:
    """Before the door has the new account, requests reach objects of the closed one."""
    house = pair.leader if is_deposed else pair.follower
    reason = Failure(Kind.NOT_LEADER, "Another node leads.") if is_deposed else roles._role_changes()
    await house.account.close(reason)
    answer = await house.ask(secondary({"find": "things"}))
    assert answer["code"] == (10107 if is_deposed else 11602)


async def test_client_behind_a_load_balancer_is_told_to_connect_anew(pair: MongoPair) -> None:
    """Drivers keep such connections after 10107, and would go on asking a node that leads no more."""
    house, client = pair.leader, pair.leader.visitor()
    hello = {"hello": 1, "loadBalanced": True}
    assert "serviceId" in await house.ask(hello, database="admin", client=client)
    pair.topologies[0].change(leader="b")  # its connections are not closed yet
    body = {"insert": "things", "documents": [{"_id": 30}], "lsid": SESSION, "txnNumber": Int64(4)}
    answer = await house.ask(body, client=client)
    assert (answer["code"], answer["errorLabels"]) == (91, ["RetryableWriteError"])
    assert (await house.ask(body))["code"] == 10107
