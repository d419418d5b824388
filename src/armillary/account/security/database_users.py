"""Users of databases at the MongoDB door: their roles and what SCRAM-SHA-256 needs to verify a password, never the
password itself. They are stored as one setting of the catalog, so that nodes of a cluster follow each other's changes.

The door derives the verifier and decides what a role allows.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from armillary import audit, limits
from armillary.account.catalog.catalog import Catalog
from armillary.errors import Failure, Kind, bad_request

_SETTING: Final = "mongo-users"


class Verifier(NamedTuple):
    """What is derived from a password (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class Role(NamedTuple):
    name: str
    database: str


@dataclass(frozen=True, slots=True)
class DatabaseUser:
    database: str  # against which it authenticates
    name: str
    roles: tuple[Role, ...]
    verifier: Verifier
    serial: str  # another one for each password: connections that signed in with an older one end
    custom_data: str | None = None  # of the client, encoded

    def to_json(self) -> dict[str, Any]:
        salt, iterations, stored_key, server_key = self.verifier
        return {
            "database": self.database,
            "name": self.name,
            "roles": [list(each) for each in self.roles],
            "verifier": [_text(salt), iterations, _text(stored_key), _text(server_key)],
            "serial": self.serial,
            "custom": self.custom_data,
        }

    @classmethod
    def parse(cls, stored: dict[str, Any]) -> DatabaseUser:
        salt, iterations, stored_key, server_key = stored["verifier"]
        return cls(
            stored["database"],
            stored["name"],
            tuple([Role(*each) for each in stored["roles"]]),
            Verifier(b64decode(salt), iterations, b64decode(stored_key), b64decode(server_key)),
            stored["serial"],
            stored["custom"],
        )


def _text(value: bytes) -> str:
    return b64encode(value).decode("ascii")


class DatabaseUsers:
    """All users of an account's databases."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._users: dict[tuple[str, str], DatabaseUser] = {}
        self._changing = asyncio.Lock()
        self.on_change: list[Callable[[], None]] = []

    async def open(self) -> None:
        self._adopt(await self._catalog.kept_setting(_SETTING))
        self._catalog.on_setting[_SETTING] = self._adopt

    def _adopt(self, kept: bytes | None) -> None:
        """Take over what is stored: at the start, and when another node has changed it."""
        users = [DatabaseUser.parse(each) for each in orjson.loads(kept)] if kept is not None else []
        self._use({(each.database, each.name): each for each in users})

    def _use(self, users: dict[tuple[str, str], DatabaseUser]) -> None:
        self._users = users
        for tell in self.on_change:
            tell()

    # Looking up.

    def find(self, database: str, name: str) -> DatabaseUser | None:
        return self._users.get((database, name))

    def of(self, database: str | None) -> list[DatabaseUser]:
        """The users of a database by name; None: of all."""
        return sorted(
            [each for each in self._users.values() if database in (None, each.database)],
            key=lambda user: (user.database, user.name),
        )

    # Changing: durable, and in force when these return.

    async def create(self, user: DatabaseUser) -> None:
        async with self._changing:
            if (user.database, user.name) in self._users:
                raise Failure(Kind.CONFLICT, f'User "{user.name}@{user.database}" already exists')
            if len(self._users) >= limits.MONGO_USERS_MAX:
                raise bad_request(f"An account has at most {limits.MONGO_USERS_MAX} users of databases.")
            await self._keep({**self._users, (user.database, user.name): user})
        audit.record("database-user.created", name=f"{user.database}.{user.name}")

    async def change(
        self,
        database: str,
        name: str,
        *,
        roles: Sequence[Role] | None = None,
        verifier: Verifier | None = None,
        serial: str = "",
        custom_data: str | None = None,
    ) -> None:
        """What is None stays. A new verifier comes with a new serial."""
        async with self._changing:
            user = self._existing(database, name)
            if roles is not None:
                user = replace(user, roles=tuple(roles))
            if verifier is not None:
                user = replace(user, verifier=verifier, serial=serial)
            if custom_data is not None:
                user = replace(user, custom_data=custom_data)
            await self._keep({**self._users, (database, name): user})
        audit.record("database-user.changed", name=f"{database}.{name}")

    async def delete(self, database: str, name: str) -> None:
        async with self._changing:
            self._existing(database, name)
            await self._keep({key: each for key, each in self._users.items() if key != (database, name)})
        audit.record("database-user.deleted", name=f"{database}.{name}")

    def _existing(self, database: str, name: str) -> DatabaseUser:
        user = self._users.get((database, name))
        if user is None:
            raise Failure(Kind.NOT_FOUND, f"User '{name}@{database}' not found")
        return user

    async def _keep(self, users: dict[tuple[str, str], DatabaseUser]) -> None:
        self._catalog.check_changeable()
        await self._catalog.keep_setting(_SETTING, orjson.dumps([each.to_json() for each in users.values()]))
        self._use(users)
