"""SASL PLAIN: `/dbs/<database>/colls/<graph>` as user, a key of the account as password."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any, Final

from armillary.doors.gremlin.client import Principal
from armillary.errors import Failure, Kind

_USER: Final = re.compile(r"/?dbs/([^/]{1,255})/colls/([^/]{1,255})/?")
_INVALID: Final = "Unauthorized: Invalid credentials provided"
_TOKEN_PREFIX: Final = b"type=resource&"


class Keys:
    """The account's keys, and what each is good for."""

    def __init__(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        self._keys = [(key.encode(), False) for key in owners if key] + [(key.encode(), True) for key in readers if key]

    def is_read_only(self, password: bytes) -> bool | None:
        """None: it is no key of the account."""
        found: bool | None = None
        for key, is_read_only in self._keys:
            if hmac.compare_digest(key, password) and found is None:
                found = is_read_only
        return found


def authenticate(arguments: dict[Any, Any], keys: Keys) -> Principal:
    """Who the arguments of an `authentication` request say it is. Clients spell the name of the one that counts as they
    like."""
    mechanism = arguments.get("saslMechanism", "PLAIN")
    if mechanism not in ("PLAIN", "", None):
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the mechanism {mechanism!r} is not offered; PLAIN is.")
    given = next((value for name, value in arguments.items() if isinstance(name, str) and name.lower() == "sasl"), None)
    parts = _decoded(given).split(b"\x00")
    if len(parts) != 3:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: SASL PLAIN has an identity, a user and a password.")
    _, user, password = parts
    named = _USER.fullmatch(user.decode("utf-8", "replace"))
    if password.startswith(_TOKEN_PREFIX):
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: resource tokens are not accepted by this door; use a key.")
    is_read_only = keys.is_read_only(password)
    if is_read_only is None:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the password is no key of this account.")
    if named is None:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the user name reads /dbs/<database>/colls/<graph>.")
    return Principal(named[1], named[2], is_read_only)


def _decoded(given: Any) -> bytes:
    if isinstance(given, bytes | bytearray):
        return bytes(given)
    if isinstance(given, str):
        try:
            return b64decode(given, validate=True)
        except (Base64Error, ValueError):
            pass
    raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: 'sasl' is the base64 of an identity, a user and a password.")
