"""Users of databases: what each command answers to a user without roles, how users are stored, and what is shown."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode
from typing import Any

import orjson
import pytest
from bson.binary import Binary
from support.mongo_house import MongoHouse

from armillary.account.security.database_users import DatabaseUser, Role, Verifier
from armillary.doors.mongo.client import Client, Login
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.sessions import scram
from armillary.doors.mongo.sessions.roles import grant_of
from armillary.errors import Failure
from armillary.storage.memory import MemoryEngine

UNAUTHORIZED = 13
# Commands that a user without roles may send: they are about the client itself, or check what they are about.
ALLOWED = frozenset(
    "getMore killCursors startSession refreshSessions endSessions killSessions commitTransaction abortTransaction "
    "listDatabases usersInfo rolesInfo getLastRequestStatistics GetLastRequestStatistics".split()
)
# They name databases themselves, and refuse those in which the user has no rights.
CHECKED_INSIDE: dict[str, dict[str, Any]] = {
    "bulkWrite": {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "test.c"}]},
    "renameCollection": {"renameCollection": "test.c", "to": "test.d"},
    "dataSize": {"dataSize": "test.c"},
}


async def signed_in(house: MongoHouse, database: str, name: str) -> Client:
    """A client as it is once its user has proven the password."""
    user = house.account.database_users.find(database, name)
    assert user is not None
    client = house.visitor()
    client.user, client.grant = name, grant_of(user)
    client.login = Login(database, name, user.serial)
    return client


async def test_commands_are_refused_unless_they_are_listed() -> None:
    house = await MongoHouse.open()
    await house.ask({"createUser": "ann", "pwd": "a", "roles": []})
    await house.ask({"createUser": "ben", "pwd": "b", "roles": [{"role": "dbOwner", "db": "elsewhere"}]})
    for user in ("ann", "ben"):
        for name, command in COMMANDS.items():
            if command.is_open:
                continue
            # A client of its own: some commands end the connection's state.
            client = await signed_in(house, "test", user)
            database = "admin" if command.is_admin else "test"
            answer = await house.ask(CHECKED_INSIDE.get(name, {name: "c"}), client=client, database=database)
            is_refused = answer.get("code") == UNAUTHORIZED
            assert is_refused != (name in ALLOWED), (user, name, answer)
    await house.close()


async def test_users_survive_a_restart_without_their_passwords() -> None:
    engine = MemoryEngine()
    house = await MongoHouse.open(engine)
    await house.ask({"createUser": "ann", "pwd": "correct horse", "roles": ["read"], "customData": {"a": 1}})
    before = house.account.database_users.find("test", "ann")
    stored = await house.account.catalog.kept_setting("mongo-users")
    assert stored is not None and b"horse" not in stored and len(orjson.loads(stored)) == 1
    await house.door.close()
    await house.account.close()
    house = await MongoHouse.open(engine)
    assert before is not None and house.account.database_users.find("test", "ann") == before
    assert before.verifier == scram.verifier_of("correct horse", before.verifier.salt)
    (shown,) = (await house.ask({"usersInfo": "ann"}))["users"]
    assert shown["customData"] == {"a": 1} and "credentials" not in shown
    await house.close()


async def test_two_changes_at_once_keep_both() -> None:
    house = await MongoHouse.open()
    commands = [{"createUser": f"user{each}", "pwd": "p", "roles": []} for each in range(5)]
    answers = await asyncio.gather(*[house.ask(each, client=house.visitor()) for each in commands])
    assert [each["ok"] for each in answers] == [1.0] * 5
    assert len((await house.ask({"usersInfo": 1}))["users"]) == 5
    await house.close()


async def test_clients_of_former_users_are_closed() -> None:
    house = await MongoHouse.open(needs_authentication=True)
    house.client.grant = house.door.sessions.grant  # as the account's key gives it
    await house.ask({"createUser": "ann", "pwd": "a", "roles": ["readWrite"]})
    client = await signed_in(house, "test", "ann")
    assert (await house.ask({"insert": "c", "documents": [{}]}, client=client))["n"] == 1
    await house.ask({"updateUser": "ann", "pwd": "b"})
    assert client.login is None and client.is_stranger
    assert (await house.ask({"find": "c"}, client=client))["code"] == UNAUTHORIZED
    stale = house.visitor()
    stale.user, stale.grant, stale.login = "ann", house.door.sessions.grant, Login("test", "ann", "older")
    assert (await house.ask({"find": "c"}, client=stale))["code"] == UNAUTHORIZED
    await house.close()


async def test_passwords_are_not_shown_to_other_commands() -> None:
    house = await MongoHouse.open()
    await house.ask({"profile": 2})
    await house.ask({"createUser": "ann", "pwd": "correct horse", "roles": []})
    await house.ask({"updateUser": "ann", "pwd": "battery staple"})
    await house.ask({"ping": 1})
    noted = (await house.ask({"find": "system.profile"}))["cursor"]["firstBatch"]
    assert [next(iter(each["command"])) for each in noted] == ["ping"]
    await house.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"createUser": "", "pwd": "a", "roles": []}, 2),
        ({"createUser": "ann", "pwd": "", "roles": []}, 50692),
        ({"createUser": "ann", "pwd": "a\u0007\u00e4", "roles": []}, 2),
        ({"createUser": "ann", "pwd": "a", "roles": [1]}, 2),
        ({"createUser": "ann", "pwd": "a", "roles": [{"role": "read", "db": "a", "on": 1}]}, 2),
        ({"createUser": "ann", "pwd": "a", "roles": [], "digestPassword": False}, 2),
        ({"createUser": "ann", "pwd": "a", "roles": [], "authenticationRestrictions": [{}]}, 115),
        ({"createUser": "ann", "pwd": "a", "roles": [], "nonsense": 1}, 40415),
    ],
)
async def test_refused_users(body: dict[str, Any], code: int) -> None:
    house = await MongoHouse.open()
    assert (await house.ask(body))["code"] == code
    assert (await house.ask({"usersInfo": 1}))["users"] == []
    await house.close()


def test_passwords_are_prepared_as_drivers_do_it() -> None:
    salt = bytes(28)
    assert scram.verifier_of("I\u00adX\u00a0\u2168", salt) == scram.verifier_of("IX IX", salt)
    with pytest.raises(Failure):
        scram.verifier_of("\u00e4\u200e", salt)


async def test_salts_do_not_tell_which_users_exist() -> None:
    house = await MongoHouse.open(needs_authentication=True)
    house.client.grant = house.door.sessions.grant  # as the account's key gives it

    async def salts() -> list[bytes]:
        found = []
        for database in ("test", "other"):
            step = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=ann,r=abc")}
            answer = await house.ask(step, client=house.visitor(), database=database)
            found.append(answer["payload"].split(b",s=")[1])
        return found

    unknown = await salts()
    assert len(set(unknown)) == 2
    await house.ask({"createUser": "ann", "pwd": "a", "roles": []})
    assert await salts() == unknown
    await house.ask({"updateUser": "ann", "pwd": "b"})
    assert await salts() == unknown
    await house.close()


async def test_the_stored_number_of_iterations_counts() -> None:
    """A user that an earlier version stored, with another number than new ones get."""
    house = await MongoHouse.open(needs_authentication=True)
    salt, count = bytes(range(28)), 4096
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", salt, count)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    verifier = Verifier(salt, count, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))
    await house.account.database_users.create(DatabaseUser("test", "old", (Role("read", "test"),), verifier, "1"))
    client = house.visitor()
    begun = await house.ask(
        {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=old,r=abc")}, client=client
    )
    first: bytes = begun["payload"]
    assert first.endswith(b",i=4096")
    unproven = b"c=biws," + first.split(b",")[0]
    signature = hmac.digest(hashlib.sha256(client_key).digest(), b"n=old,r=abc," + first + b"," + unproven, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    step = {"saslContinue": 1, "conversationId": begun["conversationId"], "payload": Binary(unproven + b",p=" + proof)}
    assert (await house.ask(step, client=client))["ok"] == 1.0
    await house.close()
