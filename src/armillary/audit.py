"""The security log: granted and refused sign-ins, and changes to the account's resources, one line per event on the
logger `armillary.security`. Doors report sign-ins, the account reports changes.

It contains no secrets: an event has names, addresses and counts, never a header, a target, a user name of an
unauthenticated client, or the text of an error. Formatting and destinations are set up in `tools/logs.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from armillary import limits

log = logging.getLogger("armillary.security")

Field = str | int | float | bool | None

_PLAIN: Final = re.compile(r"[\w./:@+-]+", re.ASCII)


class Actor(NamedTuple):
    """Where a request came from."""

    door: str
    address: str


# The actor of the request in this context. None: the server itself.
ACTOR: ContextVar[Actor | None] = ContextVar("armillary.actor", default=None)


def record(event: str, **fields: Field) -> None:
    """Log a change that is durable. `event` reads noun.verb, such as database.deleted."""
    if log.isEnabledFor(logging.INFO):
        actor = ACTOR.get()
        _write(logging.INFO, event, {**fields, **(actor._asdict() if actor is not None else {})})


def _write(level: int, event: str, fields: dict[str, Field]) -> None:
    shown = {name: value for name, value in fields.items() if value is not None}
    text = " ".join([event, *(f"{name}={_text(value)}" for name, value in shown.items())])
    log.log(level, "%s", text, extra={"fields": {"event": event, **shown}})


def _text(value: Field) -> str:
    """A word as it is, anything else quoted: a name with a line break must not look like another line."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class SignInLog:
    """The sign-ins of one door. Where every request is signed, each counts as one.

    The first refusal of an address is logged at once; further ones are counted, and logged as a number once a minute,
    so that a flood costs one dictionary lookup per refusal. A granted sign-in is logged once an hour for each address
    and kind of credential.
    """

    def __init__(self, door: str) -> None:
        self._door = door
        self._refused: dict[str, int] = {}  # by address: refusals since the first was logged
        self._refused_elsewhere = 0  # from addresses beyond the limit
        self._granted: set[tuple[str, str]] = set()
        # For doors where every request is signed: the last granted credential by address. While it is the same,
        # `granted` need not be called.
        self.last_granted: dict[str, object] = {}

    def refused(self, address: str, credential: str) -> None:
        """`credential`: its kind, never itself."""
        count = self._refused.get(address)
        if count is not None:
            self._refused[address] = count + 1
        elif len(self._refused) < limits.SECURITY_LOG_REFUSED_ADDRESSES:
            if not self._refused:
                self._later(limits.SECURITY_LOG_REFUSED_S, self.tell_refused)
            self._refused[address] = 0
            self._write(logging.WARNING, "signin.refused", address, credential=credential)
        else:
            self._refused_elsewhere += 1

    def granted(self, address: str, credential: str, principal: object = None) -> None:
        if principal is not None:
            self.last_granted[address] = principal
        if (address, credential) in self._granted:
            return
        if not self._granted:
            self._later(limits.SECURITY_LOG_GRANTED_S, self.forget_granted)
        elif len(self._granted) >= limits.SECURITY_LOG_GRANTED_ADDRESSES:
            self.forget_granted()
        self._granted.add((address, credential))
        self._write(logging.INFO, "signin.granted", address, credential=credential)

    def tell_refused(self) -> None:
        """Log the counts since the first line about each address, and reset them."""
        for address, count in self._refused.items():
            if count:
                self._write(logging.WARNING, "signin.refused", address, count=count)
        if self._refused_elsewhere:
            self._write(logging.WARNING, "signin.refused", "others", count=self._refused_elsewhere)
        self._refused, self._refused_elsewhere = {}, 0

    def forget_granted(self) -> None:
        self._granted = set()
        self.last_granted = {}

    def _write(self, level: int, event: str, address: str, **fields: Field) -> None:
        if log.isEnabledFor(level):
            _write(level, event, {"door": self._door, "address": address, **fields})

    @staticmethod
    def _later(seconds: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, call)
