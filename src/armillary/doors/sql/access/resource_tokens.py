"""Resource tokens: the `_token` of a permission, made and checked. A token carries its claims in the open, sealed with
a MAC, so the server keeps nothing; to clients it is opaque. What the claims allow is in `authorization.py`.

    type=resource&ver=1&sig=<base64 MAC>;<base64url claims>;
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from armillary.clock import Clock
from armillary.errors import Failure, Kind

_PREFIX = "type=resource&ver=1&sig="
_SIGNATURE = re.compile(r"([A-Za-z0-9+/=]{44});([A-Za-z0-9_=-]{1,16384});?")
_NONCE_BYTES = 8
_SECRET_BYTES_MIN = 32


class Claims(NamedTuple):
    """What a token says. Links read `type/name/type/name` without outer slashes; a name or rid that is not known is
    empty, for a permission may be for something still to come, or for an item. A link may be empty as a whole."""

    account: str
    permission_rid: str
    mode: str  # "Read" or "All"
    name_link: str  # dbs/<name>/colls/<name>...
    rid_link: str  # dbs/<rid>/colls/<rid>...
    partition_key: list[Any] | None  # as the permission has it, undefined as {}; None: every partition
    expires_s: int
    rids: list[str]  # of the resource and its owners, outermost first, as far as they existed
    grant: str  # which of the permission's grants it was made of; another one, once the permission allows less


class TokenAuthority:
    """Issues and verifies the resource tokens of one account, with secrets that only the server knows: one for each key
    that tokens are issued to, so that they end with it and not with the other."""

    def __init__(self, account: str, secret: bytes, clock: Clock, secondary: bytes | None = None) -> None:
        self._account = account
        self._clock = clock
        self.use(secret, secondary)

    def use(self, secret: bytes, secondary: bytes | None = None) -> None:
        """From now on tokens are sealed with these."""
        self._secrets = (secret, secondary) if secondary is not None else (secret,)
        if any(len(each) < _SECRET_BYTES_MIN for each in self._secrets):
            raise ValueError("a secret is shorter than the MAC that is made with it")

    def issue(
        self,
        *,
        permission_rid: str,
        mode: str,
        name_link: str,
        rid_link: str,
        partition_key: list[Any] | None,
        lifetime_s: int,
        rids: Sequence[str],
        grant: str,
        is_secondary: bool = False,
    ) -> str:
        """A new token. Each differs from every other, also within one second."""
        if mode not in ("Read", "All") or lifetime_s <= 0:
            raise ValueError(f"no token is issued for the mode {mode!r} and {lifetime_s} s")
        # A scope that is empty, or cut short by a missing word, would be wider than the permission.
        lengths = {link.count("/") for link in (name_link, rid_link) if link}
        if len(lengths) != 1 or not lengths <= {1, 3, 5}:
            raise ValueError(f"no token is issued for {name_link!r} and {rid_link!r}")
        expires_s = int(self._clock.now_s()) + lifetime_s
        claims = Claims(
            self._account, permission_rid, mode, name_link, rid_link, partition_key, expires_s, list(rids), grant
        )
        nonce = self._clock.random_bytes(_NONCE_BYTES).hex()
        sealed = urlsafe_b64encode(orjson.dumps([*claims, nonce]))
        return f"{_PREFIX}{b64encode(_mac(self._secrets[is_secondary], sealed)).decode()};{sealed.decode()};"

    def verify(self, text: str) -> Claims:
        """The claims of a whole token, as a permission's `_token` reads."""
        if not text.startswith(_PREFIX):
            raise _refused("it does not have the form of a resource token")
        return self.verify_signature(text[len(_PREFIX) :])

    def verify_signature(self, signature: str) -> Claims:
        """The claims of a token's `sig` part, once the MAC and the expiry hold."""
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            raise _refused("its signature cannot be read")
        sealed = match[2].encode("ascii")
        given = match[1].encode("ascii")
        if not any(hmac.compare_digest(b64encode(_mac(secret, sealed)), given) for secret in self._secrets):
            raise _refused("its signature is wrong, or the account's keys have changed since it was issued")
        try:
            *members, _nonce = orjson.loads(b64decode(sealed, altchars=b"-_", validate=True))
            claims = Claims(*members)
        except (ValueError, TypeError):
            raise _refused("it was issued by an incompatible version; read the permission again") from None
        if claims.account != self._account:
            raise _refused(f"it was issued for another account than {self._account}")
        if claims.expires_s <= self._clock.now_s():
            raise Failure(
                Kind.UNAUTHORIZED,
                "The authorization token is not valid at the current time. The resource token has expired; "
                "read its permission again to get a new one.",
            )
        return claims


def _mac(secret: bytes, sealed: bytes) -> bytes:
    return hmac.digest(secret, sealed, "sha256")


def _refused(reason: str) -> Failure:
    return Failure(
        Kind.UNAUTHORIZED,
        f"The input authorization token can't serve the request. The resource token is not accepted: {reason}.",
    )
