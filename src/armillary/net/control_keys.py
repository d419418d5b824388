"""What the control API and the management API share: the control keys, which are not the account's keys, as bearer
tokens, and from where requests may come.

Against cross-site requests and DNS rebinding, requests with a foreign Origin are refused, and on a loopback address
those for a foreign Host. With `--tls-client-ca` clients need a certificate beside the key.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

from armillary.errors import Failure, Kind
from armillary.net.hosts import FOREIGN_HOST, FOREIGN_ORIGIN, HostNames
from armillary.net.http import Request

_SCHEME: Final = b"bearer "


class ControlGrant(NamedTuple):
    """What a control key allows."""

    is_read_only: bool
    credential: str  # its kind, for the security log


class ControlKeys:
    def __init__(
        self,
        api: str,
        key: str | None,
        read_only_key: str | None = None,
        *,
        hosts: HostNames | None = None,
        needs_certificate: bool = False,
    ) -> None:
        """`api`: its name, for refusals. `key` None: all requests are refused."""
        self._api = api
        self._key = key
        self._read_only_key = read_only_key
        self._hosts = hosts or HostNames()
        self._needs_certificate = needs_certificate

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def grant(self, given: str | bytes) -> ControlGrant | None:
        """What a key allows; None: it is none of the control keys."""
        is_owner = self._key is not None and is_same(given, self._key)
        is_reader = self._read_only_key is not None and is_same(given, self._read_only_key)
        if is_owner:
            return ControlGrant(is_read_only=False, credential="control key")
        return ControlGrant(is_read_only=True, credential="read-only control key") if is_reader else None

    def check_place(self, request: Request) -> None:
        """Where a request comes from, whatever its credentials."""
        host = request.headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.is_ours(host):
            raise Failure(Kind.FORBIDDEN, FOREIGN_HOST)
        origin = request.headers.get(b"origin")
        if origin is not None and not self._hosts.is_own_origin(origin.decode("latin-1"), host):
            raise Failure(Kind.FORBIDDEN, FOREIGN_ORIGIN)
        if self._needs_certificate and not request.has_certificate:
            raise Failure(
                Kind.FORBIDDEN,
                f"The {self._api} API of this server needs TLS with a client certificate that --tls-client-ca signed.",
            )

    def check_key(self, given: bytes | None) -> ControlGrant:
        """`given`: the header Authorization."""
        if self._key is None:
            raise Failure(
                Kind.FORBIDDEN,
                "This server has no control key, so nothing can be controlled. Start it with ARMILLARY_CONTROL_KEY.",
            )
        if given is None or given[: len(_SCHEME)].lower() != _SCHEME:
            raise Failure(
                Kind.UNAUTHORIZED, f"The {self._api} API needs the header 'Authorization: Bearer <control key>'."
            )
        grant = self.grant(given[len(_SCHEME) :].strip())
        if grant is None:
            raise Failure(Kind.UNAUTHORIZED, "The control key is wrong. It is not one of the account's keys.")
        return grant


def is_same(given: str | bytes, expected: str) -> bool:
    """Compares secrets in constant time."""
    sent = given.encode("utf-8", "replace") if isinstance(given, str) else given
    return hmac.compare_digest(sent, expected.encode())
