"""Roles of users of databases, and the rights that they give in a database. Which right a command needs is in
`authorization.py`.

The built-in roles of MongoDB that are offered: those of a database, those of all databases, which are roles of `admin`,
and `root`. `dbOwner` has the rights of readWrite and dbAdmin: users are made with the account's keys or by `root`.
"""

from __future__ import annotations

from enum import Flag, auto
from typing import Any, Final

from armillary.account.security.database_users import DatabaseUser, Role
from armillary.doors.mongo.settings import Grant


class Right(Flag):
    READ = auto()
    WRITE = auto()
    ADMIN = auto()  # of the database: its collections, indexes and options, not its documents


NOTHING: Final = Right(0)
ROOT: Final = Role("root", "admin")
_OF_DATABASES: Final = {
    "read": Right.READ,
    "readWrite": Right.READ | Right.WRITE,
    "dbAdmin": Right.ADMIN,
    "dbOwner": Right.READ | Right.WRITE | Right.ADMIN,
}
_OF_ALL: Final = {
    "readAnyDatabase": Right.READ,
    "readWriteAnyDatabase": Right.READ | Right.WRITE,
    "dbAdminAnyDatabase": Right.ADMIN,
}


def known_role(name: str, database: str) -> bool:
    if database == "admin" and (name in _OF_ALL or name == ROOT.name):
        return True
    return name in _OF_DATABASES


def role_names(database: str) -> list[str]:
    return sorted([*_OF_DATABASES, *((*_OF_ALL, ROOT.name) if database == "admin" else ())])


def is_root(user: DatabaseUser) -> bool:
    return ROOT in user.roles


def rights_of(user: DatabaseUser, database: str) -> Right:
    found = NOTHING
    for role in user.roles:
        if role == ROOT:
            return ~NOTHING
        if role.database == "admin" and role.name in _OF_ALL:
            found |= _OF_ALL[role.name]
        elif role.database == database:
            found |= _OF_DATABASES[role.name]
    return found


def grant_of(user: DatabaseUser) -> Grant:
    """What a user may do anywhere."""
    rights = NOTHING
    for role in user.roles:
        rights |= rights_of(user, role.database)
    return Grant.WRITE if rights & (Right.WRITE | Right.ADMIN) else Grant.READ


READING: Final = ("find", "listCollections", "listIndexes", "collStats", "dbStats", "changeStream")
WRITING: Final = ("insert", "update", "remove", "createCollection", "createIndex", "dropCollection")
_ADMINISTERING: Final = ("collMod", "validate", "enableProfiler", "dropDatabase", "createIndex", "dropCollection")


def privileges_of(user: DatabaseUser) -> list[dict[str, Any]]:
    """The privileges that connectionStatus shows, by database; an empty name stands for all."""
    shown = []
    of_all = (*_OF_ALL, ROOT.name)
    for database in dict.fromkeys(["" if role.name in of_all else role.database for role in user.roles]):
        rights = rights_of(user, database)
        actions = [
            *(READING if rights & Right.READ else ()),
            *(WRITING if rights & Right.WRITE else ()),
            *(_ADMINISTERING if rights & Right.ADMIN else ()),
        ]
        shown.append({"resource": {"db": database, "collection": ""}, "actions": list(dict.fromkeys(actions))})
    return shown
