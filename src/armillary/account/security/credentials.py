"""The account's keys: those that the server was started with, and those that were put in their place while it ran.

A regenerated key is stored with the data and overrides the setting that it replaced; once that setting changes, the
setting counts again. What each key allows is decided by the doors, which are told of changes by `on_change`.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from armillary import audit
from armillary.account.account import Account
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.errors import bad_request

NAMES: Final = ("primary", "secondary", "primaryReadonly", "secondaryReadonly")  # as the service calls them
_SETTING: Final = "keys"
_KEY_BYTES: Final = 64


class Credentials:
    """Made by `open`."""

    def __init__(self, account: Account, given: Sequence[str | None]) -> None:
        """`given`: in the order of NAMES."""
        self._account = account
        self._given = dict(zip(NAMES, given, strict=True))
        self._regenerated: dict[str, dict[str, str]] = {}  # key, and the digest of what it stands for
        self.on_change: list[Callable[[], None]] = []
        self.sign_in_throttle = SignInThrottle(account.clock)

    @classmethod
    async def open(cls, account: Account, given: Sequence[str | None]) -> Credentials:
        credentials = cls(account, given)
        credentials._adopt(await account.catalog.kept_setting(_SETTING))
        account.catalog.on_setting[_SETTING] = credentials._adopt
        return credentials

    def _adopt(self, kept: bytes | None) -> None:
        """Take over the stored keys: at the start, and when another node has regenerated one."""
        self._regenerated = orjson.loads(kept) if kept is not None else {}
        self._tell()

    @property
    def keys(self) -> dict[str, str | None]:
        return {name: self._key(name) for name in NAMES}

    @property
    def owners(self) -> tuple[str, str | None]:
        """Those that may do everything."""
        primary = self._key("primary")
        assert primary is not None, "an account has a primary key"
        return primary, self._key("secondary")

    @property
    def readers(self) -> tuple[str | None, str | None]:
        return self._key("primaryReadonly"), self._key("secondaryReadonly")

    def use_given(self, given: Sequence[str | None]) -> None:
        """The settings were read again. A key whose setting has changed counts at once."""
        before = self.keys
        self._given = dict(zip(NAMES, given, strict=True))
        for name, key in self.keys.items():
            if key != before[name]:
                audit.record("key.reloaded", name=name)
        self._tell()

    async def regenerate(self, name: str) -> str:
        """A new key in the place of one, durable, and in force when this returns."""
        if name not in NAMES:
            raise bad_request(f"There is no key '{name}'; there are {', '.join(NAMES)}.")
        key = b64encode(self._account.clock.random_bytes(_KEY_BYTES)).decode("ascii")
        changed = {**self._regenerated, name: {"key": key, "instead_of": _digest(self._given[name])}}
        await self._account.catalog.keep_setting(_SETTING, orjson.dumps(changed))
        self._regenerated = changed
        audit.record("key.regenerated", name=name)
        self._tell()
        return key

    def _tell(self) -> None:
        for tell in self.on_change:
            tell()

    def _key(self, name: str) -> str | None:
        regenerated = self._regenerated.get(name)
        if regenerated is not None and regenerated["instead_of"] == _digest(self._given[name]):
            return regenerated["key"]
        return self._given[name]


def _digest(key: str | None) -> str:
    return hashlib.sha256((key or "").encode()).hexdigest()
