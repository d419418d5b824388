"""Reads of a replica set: read preferences, read concerns, causal consistency, and the cluster time that makes it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from support.mongo_house import MongoHouse
from support.mongo_set import MongoPair, secondary

from armillary.doors.mongo.commands.command_table import COMMANDS

MODES = ("primaryPreferred", "secondary", "secondaryPreferred", "nearest")
FIND = {"find": "things", "filter": {"_id": 1}}  # the fast path of point reads
SLOW = {"find": "things", "filter": {"n": 1}}
READS: list[dict[str, Any]] = [
    FIND,
    SLOW,
    {"count": "things"},
    {"distinct": "things", "key": "n"},
    {"aggregate": "things", "pipeline": [], "cursor": {}},
    {"mapReduce": "nowhere", "map": "emit(1, 1)", "reduce": "1", "out": {"inline": 1}},
    {"explain": {"find": "things"}},
    {"listCollections": 1},
    {"listDatabases": 1, "$db": "admin"},
    {"listIndexes": "things"},
    {"collStats": "things"},
    {"dbStats": 1},
    {"dataSize": "test.things"},
    {"validate": "things"},
]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[MongoPair]:
    opened = await MongoPair.open(tmp_path)
    await opened.leader.ask({"insert": "things", "documents": [{"_id": 1, "n": 1}, {"_id": 2, "n": 1}]})
    await opened.step()
    yield opened
    await opened.close()


def documents_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    cursor = answer["cursor"]
    found: list[dict[str, Any]] = cursor.get("firstBatch", cursor.get("nextBatch"))
    return found


# Read preferences.


def test_all_reads_are_listed() -> None:
    listed = {next(iter(each)).lower() for each in READS}
    others = {
        name.lower()
        for name, each in COMMANDS.items()
        if not (each.needs_primary or each.is_local or each.is_open or name.lower() in listed)
    }
    assert others == set()


async def test_secondary_answers_reads_that_allow_it(pair: MongoPair) -> None:
    for body in READS:
        for mode in MODES:
            assert (await pair.follower.ask(secondary(body, mode)))["ok"] == 1.0, (body, mode)
        for refused in (body, secondary(body, "primary")):
            answer = await pair.follower.ask(refused)
            assert (answer["code"], answer["codeName"]) == (13435, "NotPrimaryNoSecondaryOk"), body
            assert "topologyVersion" in answer


async def test_malformed_preferences_are_refused(pair: MongoPair) -> None:
    assert (await pair.follower.ask({**SLOW, "$readPreference": "secondary"}))["code"] == 14
    assert (await pair.follower.ask(secondary(SLOW, "anywhere")))["code"] == 9


async def test_cursor_goes_on_where_it_was_opened(pair: MongoPair) -> None:
    answer = await pair.follower.ask(secondary({"find": "things", "batchSize": 1}))
    more = await pair.follower.ask({"getMore": answer["cursor"]["id"], "collection": "things"})
    assert documents_of(more) == [{"_id": 2, "n": 1}]


async def test_primary_without_its_lease_confirms_reads_of_the_newest_state(pair: MongoPair) -> None:
    for body in READS:
        before = pair.rows
        assert (await pair.leader.ask(body))["ok"] == 1.0
        assert pair.rows == before, "under the lease nothing is appended"
        pair.end_lease()
        assert (await pair.leader.ask(secondary(body)))["ok"] == 1.0
        assert pair.rows == before
        assert (await pair.leader.ask(body))["ok"] == 1.0
        assert pair.rows == before + 1, body
        pair.topologies[0].has_lease = True


async def test_deposed_primary_answers_no_reads_of_the_newest_state(pair: MongoPair) -> None:
    """The lease has ended and another node leads; the doors are still those of the leader."""
    pair.end_lease()
    pair.depose()
    for body in [*READS, {**SLOW, "readConcern": {"level": "linearizable"}}]:
        assert (await pair.leader.ask(body))["code"] in (10107, 13435), body


async def test_lease_that_ends_during_a_read_is_noticed(pair: MongoPair, monkeypatch: pytest.MonkeyPatch) -> None:
    run = COMMANDS["count"].run

    async def slow(call: Any) -> Any:
        reply = await run(call)
        pair.end_lease()
        return reply

    monkeypatch.setitem(COMMANDS, "count", COMMANDS["count"].__class__(slow, "", is_stable=True))
    before = pair.rows
    assert (await pair.leader.ask({"count": "things"}))["n"] == 2
    assert pair.rows == before + 1


async def test_silent_follower_answers_nothing_but_the_handshake(pair: MongoPair) -> None:
    pair.topologies[1].silent = True
    for body in (*READS, {"serverStatus": 1}, {"getMore": 1, "collection": "things"}, {"insert": "x", "documents": []}):
        answer = await pair.follower.ask(secondary(body))
        assert (answer["code"], answer["codeName"]) == (13436, "NotPrimaryOrSecondary"), body
    for name in ("hello", "ping", "connectionStatus"):
        assert (await pair.follower.ask({name: 1}, database="admin"))["ok"] == 1.0
    pair.topologies[1].silent = False
    assert (await pair.follower.ask(secondary(FIND)))["ok"] == 1.0


# Read concerns.


async def test_levels(pair: MongoPair) -> None:
    for level in ("local", "available", "majority", "snapshot"):
        answer = await pair.follower.ask(secondary({**SLOW, "readConcern": {"level": level}}))
        assert len(documents_of(answer)) == 2, level
    linearizable = {**SLOW, "readConcern": {"level": "linearizable"}}
    assert (await pair.follower.ask(secondary(linearizable)))["code"] == 10107
    assert len(documents_of(await pair.leader.ask(linearizable))) == 2
    pair.end_lease()
    before = pair.rows
    assert len(documents_of(await pair.leader.ask(secondary(linearizable)))) == 2
    assert pair.rows == before + 1


async def causal(house: MongoHouse, after: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A read after an answer of another member, as a driver's causal session sends it."""
    concern = {"afterClusterTime": after["operationTime"]}
    return await house.ask(secondary({**SLOW, "readConcern": concern, "$clusterTime": after["$clusterTime"], **fields}))


async def test_causal_read_waits_for_the_write(pair: MongoPair) -> None:
    limits_s: list[float] = []

    async def refresh(limit_s: float) -> bool:
        limits_s.append(limit_s)
        await pair.pair.step()  # the clock of the leader may stand: what was asked for is applied all the same
        return True

    pair.topologies[1].on_refresh = refresh
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 3, "n": 1}]})
    assert len(documents_of(await pair.follower.ask(secondary(SLOW)))) == 2
    assert len(documents_of(await causal(pair.follower, written))) == 3
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 4, "n": 1}]})
    assert len(documents_of(await causal(pair.follower, written, maxTimeMS=2500))) == 4
    assert [math.ceil(each) for each in limits_s] == [10, 3]
    # What is reached needs no asking.
    pair.pair.clock.advance(1)
    await pair.step()
    assert len(documents_of(await causal(pair.follower, written))) == 4
    assert len(documents_of(await causal(pair.leader, written))) == 4
    assert len(limits_s) == 2


async def test_causal_read_waits_for_the_next_leader(pair: MongoPair) -> None:
    """Drivers send a read again once: while no node leads, both would be refused."""
    attempts = 0

    async def refresh(limit_s: float) -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            pair.topologies[1].change(leader=None)
            return False
        await pair.pair.step()
        return True

    pair.topologies[1].on_refresh = refresh
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 3, "n": 1}]})
    assert len(documents_of(await causal(pair.follower, written))) == 3
    assert attempts == 2


async def test_causal_read_that_is_not_reached(pair: MongoPair) -> None:
    async def refresh(limit_s: float) -> bool:
        pair.pair.clock.advance(limit_s)
        return False

    pair.topologies[1].on_refresh = refresh
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 3, "n": 1}]})
    assert (await causal(pair.follower, written, maxTimeMS=100))["code"] == 50
    assert (await causal(pair.follower, written))["code"] == 262


async def test_times_of_the_future_are_refused_and_not_believed(pair: MongoPair) -> None:
    far = Timestamp(int(pair.pair.clock.now_s()) + 1000, 1)
    for house in (pair.leader, pair.follower):
        before = (await house.ask({"ping": 1}))["$clusterTime"]
        signature = before["signature"]
        told = {"clusterTime": far, "signature": signature}
        answer = await causal(house, {"operationTime": far, "$clusterTime": told})
        assert answer["code"] == 72 and "must not be greater than the current clusterTime" in answer["errmsg"]
        assert answer["$clusterTime"]["clusterTime"] < far
    assert (await pair.leader.ask(secondary({**SLOW, "readConcern": {"afterClusterTime": 5}})))["code"] == 14


# Cluster time.


async def test_time_is_gossiped_and_never_goes_back_with_a_change_of_leader(pair: MongoPair) -> None:
    for number in range(50):  # more writes than the clock has microseconds
        last = await pair.leader.ask({"insert": "things", "documents": [{"_id": 100 + number}]})
    await pair.step()
    seen = await pair.follower.ask(secondary({**SLOW, "$clusterTime": last["$clusterTime"]}))
    assert seen["$clusterTime"] == last["$clusterTime"]
    assert seen["operationTime"] <= last["operationTime"]
    await pair.exchange()
    told = {"$clusterTime": last["$clusterTime"]}  # the clock of the new leader may be behind
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 200}], **told})
    assert written["operationTime"] > last["operationTime"]


async def test_new_leader_starts_from_what_it_has_reached_although_its_clock_is_behind(pair: MongoPair) -> None:
    await pair.exchange()
    ahead_us = pair.topologies[0].reached = int((pair.pair.clock.now_s() + 30) * 1_000_000)
    written = await pair.leader.ask({"insert": "things", "documents": [{"_id": 200}]})
    assert written["operationTime"] > Timestamp(ahead_us // 1_000_000, ahead_us % 1_000_000)


async def test_operation_time_of_a_secondary_is_what_it_has_reached(pair: MongoPair) -> None:
    pair.topologies[1].reached = 1_700_000_123_000_456
    answer = await pair.follower.ask(secondary(FIND))
    assert answer["operationTime"] == Timestamp(1_700_000_123, 457)
    assert answer["$clusterTime"]["clusterTime"] >= answer["operationTime"]


# Change streams.


async def test_stream_is_resumed_on_another_member(pair: MongoPair) -> None:
    watch = {"aggregate": "things", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    opened = await pair.leader.ask(watch)
    for number in (3, 4, 5):
        await pair.leader.ask({"insert": "things", "documents": [{"_id": number}]})
    more = await pair.leader.ask({"getMore": opened["cursor"]["id"], "collection": "things", "maxTimeMS": 0})
    events = documents_of(more)
    assert [each["documentKey"]["_id"] for each in events] == [3, 4, 5]
    resumed = {**watch, "pipeline": [{"$changeStream": {"resumeAfter": events[0]["_id"]}}]}
    # The follower is behind the token: nothing is shown, nothing is lost.
    behind = await pair.follower.ask(secondary(resumed))
    assert behind["code"] == 91  # nor does it know that the collection is watched, or reach the leader
    await pair.step()
    there = await pair.follower.ask(secondary(resumed))
    assert [each["documentKey"]["_id"] for each in documents_of(there)] == [4, 5]
    assert documents_of(there)[0]["clusterTime"] == events[1]["clusterTime"]
    cursor = {"getMore": there["cursor"]["id"], "collection": "things", "maxTimeMS": 0}
    await pair.leader.ask({"insert": "things", "documents": [{"_id": 6}]})
    assert documents_of(await pair.follower.ask(cursor)) == []
    await pair.step()
    token = documents_of(await pair.follower.ask(cursor))[0]["_id"]
    # A token of the follower is good at the leader, and after it was deposed at the other.
    await pair.leader.ask({"insert": "things", "documents": [{"_id": 7}]})
    last = {**watch, "pipeline": [{"$changeStream": {"resumeAfter": token}}]}
    assert [each["documentKey"]["_id"] for each in documents_of(await pair.leader.ask(last))] == [7]
    await pair.exchange()
    assert [each["documentKey"]["_id"] for each in documents_of(await pair.leader.ask(last))] == [7]
    started = {"startAtOperationTime": events[1]["clusterTime"]}
    since = await pair.leader.ask({**watch, "pipeline": [{"$changeStream": started}]})
    more = await pair.leader.ask({"getMore": since["cursor"]["id"], "collection": "things", "maxTimeMS": 0})
    assert [each["documentKey"]["_id"] for each in documents_of(more)] == [3, 4, 5, 6, 7]  # all in one millisecond


async def test_stream_behind_its_token_waits_for_it(pair: MongoPair) -> None:
    watch = {"aggregate": "things", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    opened = await pair.leader.ask(watch)
    await pair.step()
    for number in (3, 4):
        await pair.leader.ask({"insert": "things", "documents": [{"_id": number}]})
    more = await pair.leader.ask({"getMore": opened["cursor"]["id"], "collection": "things", "maxTimeMS": 0})
    token = documents_of(more)[0]["_id"]
    resumed = await pair.follower.ask(secondary({**watch, "pipeline": [{"$changeStream": {"resumeAfter": token}}]}))
    assert documents_of(resumed) == []
    cursor = {"getMore": resumed["cursor"]["id"], "collection": "things", "maxTimeMS": 0}
    assert documents_of(await pair.follower.ask(cursor)) == []
    await pair.step()
    assert [each["documentKey"]["_id"] for each in documents_of(await pair.follower.ask(cursor))] == [4]


async def test_stream_on_a_secondary_ends_with_its_collection(pair: MongoPair) -> None:
    watch = {"aggregate": "things", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    await pair.leader.ask(watch)
    await pair.step()
    opened = await pair.follower.ask(secondary(watch))
    await pair.leader.ask({"drop": "things"})
    await pair.step()
    cursor = {"getMore": opened["cursor"]["id"], "collection": "things", "maxTimeMS": 0}
    kinds: list[str] = []
    while len(kinds) < 2:
        kinds += [each["operationType"] for each in documents_of(await pair.follower.ask(cursor))]
    assert kinds == ["drop", "invalidate"]


async def test_first_stream_of_a_collection_is_opened_on_a_secondary(pair: MongoPair) -> None:
    watch = {"aggregate": "things", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    refused = await pair.follower.ask(secondary(watch))
    assert refused["code"] == 91, "the leader cannot be asked to keep events; drivers try again"
    pair.connect()
    opened = await pair.follower.ask(secondary(watch))
    await pair.leader.ask({"insert": "things", "documents": [{"_id": 3}]})
    await pair.step()
    cursor = {"getMore": opened["cursor"]["id"], "collection": "things", "maxTimeMS": 0}
    assert [each["documentKey"]["_id"] for each in documents_of(await pair.follower.ask(cursor))] == [3]
