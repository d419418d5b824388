"""Authentication: the `authorization` header, which has a signature by one of the account's keys (`signatures.py`), a
resource token or the emulator's form of an AAD token. What the principal may do is in `authorization.py`. Every failure
is UNAUTHORIZED with the service's text, and secrets are compared in constant time.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from armillary.clock import Clock
from armillary.doors.sql.access.authorization import AAD, MASTER, READ_ONLY, SECONDARY, Principal, Role
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.access.signatures import SignatureCheck, decode_key, refused
from armillary.doors.sql.headers import Headers
from armillary.doors.sql.routes import Route
from armillary.errors import Failure, Kind
from armillary.limits import CLOCK_SKEW_S

# How both SDKs write it. Anything else is as good, and takes the longer way through `_verify_other`.
MASTER_PREFIX = b"type%3Dmaster%26ver%3D1.0%26sig%3D"
_PERCENT = ord("%")  # looked for as an int: bytes in bytes makes an exception on its way, which takes a microsecond
_AAD_HEADER = {
    "typ": "JWT",
    "alg": "RS256",
    "x5t": "CosmosEmulatorPrimaryMaster",
    "kid": "CosmosEmulatorPrimaryMaster",
}
_AAD_AUDIENCE = "https://localhost.localhost"
_AAD_TENANT = "EmulatorFederation"
# What their clients write in them contradicts what the same clients expect them to allow: docs/clients.md.
_SAS_REFUSAL = (
    "SAS tokens of the account (type=sas), which clients make of a key, are not offered here; use a key, or a resource "
    "token, which the server makes of a permission"
)
_CREDENTIAL_KINDS = (
    (b"type=master", "key"),
    (b"type=resource", "resource token"),
    (b"type=aad", "aad token"),
    (b"type=sas", "sas token"),
)


class AccountKeys(NamedTuple):
    """The account's keys as users see them: base64 text. Secondary and read-only keys may be absent."""

    primary: str
    secondary: str | None = None
    read_only_primary: str | None = None
    read_only_secondary: str | None = None

    def token_secret(self) -> bytes:
        """What resource tokens are sealed with: a new key ends the tokens that were issued to the old one."""
        return _token_secret(self.primary)

    def secondary_token_secret(self) -> bytes | None:
        return _token_secret(self.secondary) if self.secondary is not None else None


class Authenticator:
    """Verifies the requests of one account."""

    def __init__(self, keys: AccountKeys, tokens: TokenAuthority, clock: Clock, *, accepts_aad: bool = True) -> None:
        self._tokens = tokens
        self._clock = clock
        self._accepts_aad = accepts_aad
        self._aad_signature = urlsafe_b64encode(keys.primary.encode()).rstrip(b"=")
        roles = (MASTER, SECONDARY, READ_ONLY, READ_ONLY)
        found = [(key, role) for key, role in zip(keys, roles, strict=True) if key]
        self.signatures = SignatureCheck(found, clock)
        self._verify_signature = self.signatures.verify

    def verify(self, method: str, route: Route, headers: Headers) -> Principal:
        given = headers.get(b"authorization")
        if not given:
            raise Failure(
                Kind.UNAUTHORIZED,
                "Required Header authorization is missing. Ensure a valid Authorization token is passed.",
            )
        if given.startswith(MASTER_PREFIX):
            signature = given[len(MASTER_PREFIX) :]
            if _PERCENT in signature:
                signature = signature.replace(b"%3D", b"=").replace(b"%2B", b"+").replace(b"%2F", b"/")
            if _PERCENT not in signature:
                return self._verify_signature(method, route, headers, signature)
        return self._verify_other(method, route, headers, given)

    def _verify_other(self, method: str, route: Route, headers: Headers, given: bytes) -> Principal:
        try:
            # unquote, not unquote_plus: base64 has plus signs of its own.
            text = unquote(given.decode("ascii"), errors="strict")
        except UnicodeDecodeError:
            raise refused("the header is not percent-encoded text") from None
        parts: dict[str, str] = {}
        for part in text.split("&"):
            name, _, value = part.partition("=")
            if name in parts:
                raise refused(f"it has {name[:20]} twice")
            parts[name] = value
        if parts.get("type") == "sas":
            raise refused(_SAS_REFUSAL)
        if parts.keys() != {"type", "ver", "sig"}:
            raise refused("it must read type=<type>&ver=<version>&sig=<signature>, percent-encoded as a whole")
        kind, version, signature = parts["type"], parts["ver"], parts["sig"]
        if version != "1.0" and not (kind == "resource" and version == "1"):
            raise refused(f"its version {version[:20]!r} is not known; 1.0 is")
        match kind:
            case "master":
                return self._verify_signature(method, route, headers, signature.encode("utf-8", "replace"))
            case "resource":
                return Principal(Role.RESOURCE_TOKEN, self._tokens.verify_signature(signature))
            case "aad":
                return self._verify_aad(signature)
        raise refused(f"its type {kind[:20]!r} is not known; master, resource and aad are")

    def _verify_aad(self, token: str) -> Principal:
        """The emulator's form of an AAD token: a JWT whose signature part is the primary key's text."""
        if not self._accepts_aad:
            raise refused("AAD tokens are turned off on this account")
        parts = token.encode("utf-8", "replace").split(b".")
        if len(parts) != 3 or not hmac.compare_digest(parts[2].rstrip(b"="), self._aad_signature):
            raise refused("the AAD token is not one of the emulator's for this account")
        try:
            header, claims = (orjson.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4))) for part in parts[:2])
        except (Base64Error, ValueError):
            raise refused("the AAD token cannot be read") from None
        if header != _AAD_HEADER or not isinstance(claims, dict):
            raise refused("the AAD token is not one of the emulator's")
        if claims.get("aud") != _AAD_AUDIENCE or claims.get("tid") != _AAD_TENANT:
            raise refused(f"the AAD token is not for the audience {_AAD_AUDIENCE} and the tenant {_AAD_TENANT}")
        begins_s, expires_s = claims.get("nbf"), claims.get("exp")
        if type(begins_s) is not int or type(expires_s) is not int:
            raise refused("the AAD token does not say from when (nbf) to when (exp) it is valid")
        if not begins_s - CLOCK_SKEW_S <= self._clock.now_s() < expires_s:
            raise refused("the AAD token has expired or is not valid yet")
        return AAD


def credential_kind(headers: Headers) -> str:
    """What a request that was refused had for a credential, as far as its beginning says; for the security log."""
    given = headers.get(b"authorization", b"")[:32].lower().replace(b"%3d", b"=")
    for beginning, kind in _CREDENTIAL_KINDS:
        if given.startswith(beginning):
            return kind
    return "unknown" if given else "none"


def _token_secret(key: str) -> bytes:
    return hmac.digest(decode_key(key), b"armillary resource tokens", "sha256")
