"""Rights of users of databases where a command reaches further than the collection in its first field: cursors that
outlive a login or a role, and what the profiler has noted.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.mongo_house import MongoHouse

from armillary.doors.mongo.client import Client, Login
from armillary.doors.mongo.sessions.roles import grant_of

UNAUTHORIZED = 13


async def opened(roles: list[str]) -> tuple[MongoHouse, Client]:
    """A server that has noted a command, and a client of the user ann."""
    house = await MongoHouse.open(needs_authentication=True)
    house.client.grant = house.door.sessions.grant  # as the account's key gives it
    await house.ask({"insert": "things", "documents": [{"_id": each} for each in range(3)]})
    await house.ask({"createUser": "ann", "pwd": "a", "roles": roles})
    await house.ask({"profile": 2})
    await house.ask({"find": "things", "filter": {"said": "in confidence"}})
    await house.ask({"profile": 0})
    return house, signed_in(house, "ann")


def signed_in(house: MongoHouse, name: str) -> Client:
    user = house.account.database_users.find("test", name)
    assert user is not None
    client = house.visitor()
    client.user, client.grant, client.login = name, grant_of(user), Login("test", name, user.serial)
    return client


@pytest.mark.parametrize(
    "stage", [{"$unionWith": "system.profile"}, {"$lookup": {"from": "system.profile", "pipeline": [], "as": "noted"}}]
)
async def test_cursors_keep_the_rights_of_their_user_after_a_logout(stage: dict[str, Any]) -> None:
    house, first = await opened(["read"])
    command = {"aggregate": "things", "pipeline": [stage], "cursor": {"batchSize": 0}}
    cursor_id = (await house.ask(command, client=first))["cursor"]["id"]
    await house.ask({"logout": 1}, client=first)
    second = signed_in(house, "ann")
    answer = await house.ask({"getMore": cursor_id, "collection": "things"}, client=second)
    assert answer.get("code") == UNAUTHORIZED
    await house.close()


NOTED = {"said": "in confidence"}
REACHING: list[dict[str, Any]] = [
    {"explain": {"find": "system.profile", "filter": NOTED}, "verbosity": "executionStats"},
    {"explain": {"count": "system.profile", "query": NOTED}, "verbosity": "executionStats"},
    {"explain": {"distinct": "system.profile", "key": "op"}, "verbosity": "executionStats"},
    {"explain": {"delete": "system.profile", "deletes": [{"q": NOTED, "limit": 1}]}},
    {"dataSize": "test.system.profile"},
    {"renameCollection": "test.system.profile", "to": "test.mine", "$db": "admin"},
    {"bulkWrite": 1, "ops": [{"delete": 0, "filter": {}}], "nsInfo": [{"ns": "test.system.profile"}], "$db": "admin"},
]


@pytest.mark.parametrize("body", REACHING)
async def test_the_profile_is_for_administrators(body: dict[str, Any]) -> None:
    house, client = await opened(["readWrite"])
    database = body.get("$db", "test")
    assert (await house.ask(body, client=client, database=database)).get("code") == UNAUTHORIZED
    assert (await house.ask({"count": "system.profile"}))["n"] >= 1
    await house.close()


async def test_streams_of_a_database_do_not_cover_its_profile() -> None:
    house, client = await opened(["read"])
    watch = {"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}}
    cursor_id = (await house.ask(watch, client=client))["cursor"]["id"]
    await house.ask({"profile": 2})
    await house.ask({"find": "things", "filter": NOTED})
    await house.ask({"profile": 0})
    await house.ask({"insert": "things", "documents": [{"_id": 9}]})
    more = {"getMore": cursor_id, "collection": "$cmd.aggregate"}
    told = (await house.ask(more, client=client))["cursor"]["nextBatch"]
    assert [each["ns"]["coll"] for each in told] == ["things"]
    await house.close()


async def test_reading_on_needs_the_right_that_opened_the_cursor() -> None:
    house, client = await opened(["read"])
    found = (await house.ask({"find": "things", "batchSize": 1}, client=client))["cursor"]["id"]
    listed = (await house.ask({"listIndexes": "things", "cursor": {"batchSize": 0}}, client=client))["cursor"]["id"]
    await house.ask({"updateUser": "ann", "roles": ["dbAdmin"]})
    assert (await house.ask({"getMore": found, "collection": "things"}, client=client)).get("code") == UNAUTHORIZED
    assert (await house.ask({"getMore": listed, "collection": "things"}, client=client))["ok"] == 1.0
    await house.close()


async def test_streams_of_all_databases_need_their_role_for_each_batch() -> None:
    house, _ = await opened([])
    await house.ask({"updateUser": "ann", "roles": [{"role": "readAnyDatabase", "db": "admin"}]})
    client = signed_in(house, "ann")
    watch = {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}}
    cursor_id = (await house.ask(watch, client=client, database="admin"))["cursor"]["id"]
    await house.ask({"updateUser": "ann", "roles": [{"role": "read", "db": "admin"}]})
    await house.ask({"insert": "things", "documents": [{"_id": 9}]})
    more = {"getMore": cursor_id, "collection": "$cmd.aggregate"}
    assert (await house.ask(more, client=client, database="admin")).get("code") == UNAUTHORIZED
    await house.close()


async def test_outcomes_of_bulk_writes_are_read_on_by_their_user() -> None:
    house, client = await opened(["readWrite"])
    ops = [{"insert": 0, "document": {"_id": each}} for each in range(10, 13)]
    command = {"bulkWrite": 1, "ops": ops, "nsInfo": [{"ns": "test.things"}], "cursor": {"batchSize": 1}}
    cursor_id = (await house.ask(command, client=client, database="admin"))["cursor"]["id"]
    more = {"getMore": cursor_id, "collection": "$cmd.bulkWrite"}
    assert len((await house.ask(more, client=client, database="admin"))["cursor"]["nextBatch"]) == 2
    await house.close()
