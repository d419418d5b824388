"""The client of a connection and its authentication by SASL PLAIN: `/dbs/<database>/colls/<graph>` as user, a key of
the account or a resource token as password. Credentials give it a graph and rights; requests that came before wait."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from armillary.errors import Failure, Kind

_USER: Final = re.compile(r"/?dbs/([^/]{1,255})/colls/([^/]{1,255})/?")
_INVALID: Final = "Unauthorized: Invalid credentials provided"
_TOKEN_PREFIX: Final = b"type=resource&"
_SAS_PREFIX: Final = b"type=sas&"


class Principal(NamedTuple):
    """Credentials name a graph: all requests of the connection are about it."""

    database: str
    graph: str
    is_read_only: bool
    # Of resource tokens.
    container_rid: str = ""  # of the one container that it is for; "": whatever has the name
    expires_s: int | None = None
    permission_rid: str = ""
    keys_number: int = 0  # which keys the account had when its seal was last looked at
    came_with: bytes = b""  # the key, or the token
    database_rid: str = ""
    grant: str = ""  # of its permission, when the token was made

    @property
    def rids(self) -> tuple[str, str]:
        """Of database and container, where the token is for one incarnation of them; "": whatever has the name."""
        return self.database_rid, self.container_rid

    @property
    def credential(self) -> str:
        """Its kind, for the security log."""
        if self.expires_s is not None:
            return "resource token"
        return "read-only key" if self.is_read_only else "key"


class Line(Protocol):
    """The connection, as the door sees it."""

    def send(self, message: bytes, is_text: bool) -> None: ...
    async def drained(self) -> None: ...
    def close(self, code: int) -> None: ...
    def hang_up(self) -> None: ...


class Client:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.address = ""  # the client's, once it is connected
        self.principal: Principal | None = None
        self.pending: dict[str, Any] = {}  # requests that were challenged, by their ids
        self.pending_bytes = 0
        self.is_gone = False
        self.reads_properties = True  # of elements in GraphBinary


class Keys:
    """The account's keys, and what each is good for."""

    def __init__(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        self.number = 0  # of key changes: after each, tokens of open connections are verified again
        self.use(owners, readers)

    def use(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        """Replace the account's keys. Connections that used another key must authenticate again."""
        self._keys = [(key.encode(), False) for key in owners if key] + [(key.encode(), True) for key in readers if key]
        self._known = frozenset([key for key, _ in self._keys])
        self.number += 1

    def still_has(self, principal: Principal) -> bool:
        """The key that one proved to know when he came."""
        return principal.came_with in self._known

    def is_read_only(self, password: bytes) -> bool | None:
        """None: it is no key of the account."""
        found: bool | None = None
        for key, is_read_only in self._keys:
            if hmac.compare_digest(key, password) and found is None:
                found = is_read_only
        return found


class Claims(Protocol):
    """What a resource token says, once its seal and its time were found good."""

    @property
    def mode(self) -> str: ...
    @property
    def name_link(self) -> str: ...
    @property
    def rids(self) -> list[str]: ...
    @property
    def partition_key(self) -> list[Any] | None: ...
    @property
    def expires_s(self) -> int: ...
    @property
    def permission_rid(self) -> str: ...
    @property
    def grant(self) -> str: ...


class Tokens(Protocol):
    """The issuer of resource tokens."""

    def verify(self, text: str) -> Claims: ...


def authenticate(arguments: dict[Any, Any], keys: Keys, tokens: Tokens | None = None) -> Principal:
    """The principal that the arguments of an `authentication` request name. Clients spell the name of the one that
    counts as they like."""
    mechanism = arguments.get("saslMechanism", "PLAIN")
    if mechanism not in ("PLAIN", "", None):
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the mechanism {mechanism!r} is not offered; PLAIN is.")
    given = next((value for name, value in arguments.items() if isinstance(name, str) and name.lower() == "sasl"), None)
    parts = _decoded(given).split(b"\x00")
    if len(parts) != 3:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: SASL PLAIN has an identity, a user and a password.")
    _, user, password = parts
    named = _USER.fullmatch(user.decode("utf-8", "replace"))
    claims = is_read_only = None
    if tokens is not None and password.startswith(_TOKEN_PREFIX):
        claims = _verified(tokens, password)
    elif password.startswith(_SAS_PREFIX):
        raise Failure(
            Kind.UNAUTHORIZED,
            f"{_INVALID}: SAS tokens of the account (type=sas) are not offered here; use a key or a resource token.",
        )
    else:
        is_read_only = keys.is_read_only(password)
        if is_read_only is None:
            raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the password is no key of this account.")
    if named is None:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the user name reads /dbs/<database>/colls/<graph>.")
    if claims is not None:
        return _principal(claims, named[1], named[2])._replace(keys_number=keys.number, came_with=password)
    return Principal(named[1], named[2], bool(is_read_only), came_with=password)


def is_sealed(tokens: Tokens | None, principal: Principal) -> bool:
    """Whether the token of an open connection is still valid."""
    try:
        return tokens is not None and bool(_verified(tokens, principal.came_with))
    except Failure:
        return False


def _verified(tokens: Tokens, password: bytes) -> Claims:
    try:
        return tokens.verify(password.decode("ascii", "replace"))
    except Failure as failure:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: {failure.message}") from None


def _principal(claims: Claims, database: str, graph: str) -> Principal:
    """A permission for the graph, or for its database, is good for all of the graph."""
    scope, rids = claims.name_link.split("/"), [*claims.rids, "", ""]
    if not claims.name_link or scope != ["dbs", database, "colls", graph][: len(scope)]:
        raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: the resource token is not for /dbs/{database}/colls/{graph}.")
    if claims.partition_key is not None:
        raise Failure(
            Kind.UNAUTHORIZED,
            f"{_INVALID}: the resource token is for one partition key. Traversals go everywhere: use a permission for "
            "the whole graph.",
        )
    return Principal(
        database,
        graph,
        claims.mode != "All",
        rids[1],
        claims.expires_s,
        claims.permission_rid,
        database_rid=rids[0],
        grant=claims.grant,
    )


def _decoded(given: Any) -> bytes:
    if isinstance(given, bytes | bytearray):
        return bytes(given)
    if isinstance(given, str):
        try:
            return b64decode(given, validate=True)
        except (Base64Error, ValueError):
            pass
    raise Failure(Kind.UNAUTHORIZED, f"{_INVALID}: 'sasl' is the base64 of an identity, a user and a password.")
