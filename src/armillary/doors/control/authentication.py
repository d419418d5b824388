"""Authentication of the control API: the control key as a bearer token, and the Host and Origin headers.

The control key is not valid at other doors, and the account's keys are not valid here. Against cross-site requests and
DNS rebinding, requests with a foreign Origin are refused, and on a loopback address those for a foreign Host.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from armillary.errors import Failure, Kind
from armillary.net.hosts import FOREIGN_HOST, FOREIGN_ORIGIN, HostNames

_SCHEME = b"bearer "


class ControlGuard:
    def __init__(self, key: str | None, hosts: HostNames, *, needs_certificate: bool = False) -> None:
        """`key` None: only the server's health is served. `needs_certificate`: clients need a certificate beside the
        key."""
        self._needs_certificate = needs_certificate
        self._key = key.encode() if key is not None else None
        self._hosts = hosts

    def check(self, headers: Mapping[bytes, bytes], *, has_certificate: bool = False) -> None:
        self._check_place(headers)
        if self._needs_certificate and not has_certificate:
            raise Failure(
                Kind.FORBIDDEN,
                "The control API of this server needs TLS with a client certificate that --tls-client-ca signed.",
            )
        if self._key is None:
            raise Failure(
                Kind.FORBIDDEN,
                "This server has no control key, so nothing can be controlled. Start it with ARMILLARY_CONTROL_KEY.",
            )
        given = headers.get(b"authorization", b"")
        if given[: len(_SCHEME)].lower() != _SCHEME:
            raise Failure(Kind.UNAUTHORIZED, "The control API needs the header 'Authorization: Bearer <control key>'.")
        if not hmac.compare_digest(given[len(_SCHEME) :].strip(), self._key):
            raise Failure(Kind.UNAUTHORIZED, "The control key is wrong. It is not one of the account's keys.")

    def _check_place(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._hosts.is_ours(host):
            raise Failure(Kind.FORBIDDEN, FOREIGN_HOST)
        origin = headers.get(b"origin")
        if origin is not None and not self._hosts.is_own_origin(origin.decode("latin-1"), host):
            raise Failure(Kind.FORBIDDEN, FOREIGN_ORIGIN)
