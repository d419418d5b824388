"""createUser, updateUser, dropUser, usersInfo and rolesInfo: users of databases. What each role allows is in
`sessions/authorization.py`; passwords are stored as what SCRAM-SHA-256 verifies them by.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from armillary import limits
from armillary.account.security.database_users import DatabaseUser, Role, Verifier
from armillary.doors.mongo.call import Call, Reply, check_database
from armillary.doors.mongo.sessions import authorization, roles, scram
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, decode, encode, type_name

_OPTIONS: Final = "pwd customData roles digestPassword mechanisms authenticationRestrictions"
CREATE_FIELDS: Final = frozenset(f"createUser {_OPTIONS}".split())
UPDATE_FIELDS: Final = frozenset(f"updateUser {_OPTIONS}".split())
SHOW_FIELDS: Final = frozenset("usersInfo showCredentials showPrivileges filter".split())
_NAME_BYTES_MAX: Final = 256
_SERIAL_BYTES: Final = 12
_CUSTOM_BYTES_MAX: Final = 16_384


async def create(call: Call) -> Reply:
    authorization.require_owner(call)
    name = _name_of(call)
    _check_options(call)
    if call.database == "$external" or name == call.account.settings.name:
        raise refusal(51003, f'User "{name}@{call.database}" already exists: it is of the account')
    given = _roles_in(call)
    if given is None:
        raise call.fields.missing("roles")
    verifier = await _verifier(call)
    if verifier is None:
        raise call.fields.missing("pwd")
    user = DatabaseUser(call.database, name, given, verifier, _serial(call), _custom_data(call))
    try:
        await call.account.database_users.create(user)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
        raise refusal(51003, failure.message) from None
    return {}


async def update(call: Call) -> Reply:
    authorization.require_owner(call)
    name = _name_of(call)
    _check_options(call)
    given, custom_data = _roles_in(call), _custom_data(call)
    verifier = await _verifier(call)
    if given is None and custom_data is None and verifier is None:
        raise refusal(2, "Must specify at least one field to update in updateUser")
    try:
        await call.account.database_users.change(
            call.database, name, roles=given, verifier=verifier, serial=_serial(call), custom_data=custom_data
        )
    except Failure as failure:
        raise _not_found(failure) from None
    return {}


async def drop(call: Call) -> Reply:
    authorization.require_owner(call)
    try:
        await call.account.database_users.delete(call.database, _name_of(call))
    except Failure as failure:
        raise _not_found(failure) from None
    return {}


def _not_found(failure: Failure) -> Failure:
    return refusal(11, failure.message) if failure.kind is Kind.NOT_FOUND else failure


# Arguments.


def _name_of(call: Call) -> str:
    name = call.fields.text(call.name)
    if not name or "\x00" in name or len(name.encode("utf-8", "replace")) > _NAME_BYTES_MAX:
        raise refusal(2, f"The name of a user has 1 to {_NAME_BYTES_MAX} bytes")
    return name


def _check_options(call: Call) -> None:
    if not call.fields.flag("digestPassword", True):
        raise refusal(2, "Use of SCRAM-SHA-256 requires undigested passwords: digestPassword must be true")
    if call.fields.array("authenticationRestrictions", []):
        raise refusal(115, "authenticationRestrictions are not supported.")
    wanted = call.fields.array("mechanisms", [scram.SHA_256.name])
    if wanted != [scram.SHA_256.name]:
        raise refusal(2, "Users of databases have the mechanism SCRAM-SHA-256 only")


async def _verifier(call: Call) -> Verifier | None:
    if call.body.get("pwd") is None:
        return None
    password = call.fields.text("pwd")
    if not password:
        raise refusal(50692, "Password cannot be empty")
    # As unknown users of this name have it: that a user exists does not show in its salt.
    salt = scram.salt_of(scram.SHA_256, call.account.secret, _name_of(call), call.database)
    return await asyncio.to_thread(scram.verifier_of, password, salt)


def _serial(call: Call) -> str:
    return call.clock.random_bytes(_SERIAL_BYTES).hex()


def _custom_data(call: Call) -> str | None:
    given = call.fields.optional_document("customData")
    if given is None:
        return None
    encoded = encode(given)
    if len(encoded) > _CUSTOM_BYTES_MAX:
        raise refusal(2, f"customData has at most {_CUSTOM_BYTES_MAX} bytes")
    return encoded.hex()


def _roles_in(call: Call) -> tuple[Role, ...] | None:
    if call.body.get("roles") is None:
        return None
    found: list[Role] = []
    for each in call.fields.array("roles"):
        name: Any = each
        database: Any = call.database
        if isinstance(each, dict):
            if each.keys() - {"role", "db"}:
                raise refusal(2, "A role is a string, or an object with 'role' and 'db'")
            name, database = each.get("role"), each.get("db")
        if not isinstance(name, str) or not isinstance(database, str):
            raise refusal(2, f"A role is a string, or an object with 'role' and 'db', found {type_name(each)}")
        check_database(database)
        if not roles.known_role(name, database):
            raise refusal(31, f"Could not find role: {name}@{database}")
        found.append(Role(name, database))
    distinct = tuple(dict.fromkeys(found))
    if len(distinct) > limits.MONGO_USER_ROLES_MAX:
        raise refusal(2, f"A user has at most {limits.MONGO_USER_ROLES_MAX} roles")
    return distinct


# Showing.


async def describe_users(call: Call) -> Reply:
    """Users see themselves; the account's keys and `root` see all."""
    for option in ("showCredentials", "showPrivileges"):
        if call.fields.flag(option, False):
            raise refusal(115, f"usersInfo with '{option}' is not supported.")
    if call.fields.optional_document("filter"):
        raise refusal(115, "usersInfo with 'filter' is not supported.")
    own = authorization.user_of(call)
    sees_all = call.client.grant is Grant.WRITE and not authorization.is_limited(call)
    found = [
        _described(user)
        for user in call.account.database_users.of(None)
        if (sees_all or user is own) and _is_wanted(call, call.body["usersInfo"], user.database, user.name)
    ]
    name = call.account.settings.name
    if own is None and _is_wanted(call, call.body["usersInfo"], "admin", name):
        found.append(
            {
                "_id": f"admin.{name}",
                "user": name,
                "db": "admin",
                "roles": [{"role": "root", "db": "admin"}],
                "mechanisms": [scram.SHA_1.name, scram.SHA_256.name],
            }
        )
    return {"users": found}


def _is_wanted(call: Call, wanted: Any, database: str, name: str) -> bool:
    """`usersInfo: 1` means the users of the database, a string one of them, a document or a list those it names."""
    match wanted:
        case list():
            return any(_is_wanted(call, each, database, name) for each in wanted)
        case {"forAllDBs": True}:
            return True
        case {"user": user, "db": of}:
            return bool((of, user) == (database, name))
        case str():
            return (call.database, wanted) == (database, name)
        case int() | float() if wanted == 1:
            return call.database == database
    raise refusal(2, "usersInfo is 1, the name of a user, an object with user and db, or a list of these")


def _described(user: DatabaseUser) -> Document:
    described: Document = {
        "_id": f"{user.database}.{user.name}",
        "user": user.name,
        "db": user.database,
        "roles": described_roles(user),
        "mechanisms": [scram.SHA_256.name],
    }
    if user.custom_data is not None:
        described["customData"] = decode(bytes.fromhex(user.custom_data))
    return described


def described_roles(user: DatabaseUser) -> list[Document]:
    return [{"role": each.name, "db": each.database} for each in user.roles]


async def describe_roles(call: Call) -> Reply:
    """The built-in roles: there are no others."""
    wanted = call.body["rolesInfo"]
    database, names = call.database, roles.role_names(call.database)
    if isinstance(wanted, dict):
        given = wanted.get("db", database)
        database = given if isinstance(given, str) else database
        names = [each for each in roles.role_names(database) if each == wanted.get("role")]
    elif isinstance(wanted, str):
        names = [each for each in names if each == wanted]
    elif not call.fields.flag("showBuiltinRoles", True):
        names = []
    return {
        "roles": [
            {"role": each, "db": database, "isBuiltin": True, "roles": [], "inheritedRoles": []} for each in names
        ]
    }
