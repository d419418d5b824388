"""Authentication of the control API and the portal: the control key or the read-only control key as a bearer token, or
the cookie of a log-in (`log_ins.py`); and the Host and Origin headers.

The control keys open the management API too and no other door, and the account's keys are not valid here. Requests with
a foreign Host or Origin are refused by `net/control_keys.py`. Requests with a cookie that may change something repeat
the value that the browser was given when it logged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from armillary.doors.control.access.log_ins import LogIn, LogIns
from armillary.errors import Failure, Kind
from armillary.net.control_keys import ControlKeys, is_same
from armillary.net.hosts import HostNames
from armillary.net.http import Request

CSRF: Final = b"x-armillary-csrf"
READING_METHODS: Final = ("GET", "HEAD")

# A node that forwards a request to the leader tells it what it has found. No client can send headers of these names: a
# colon does not begin a name on the wire.
_FOUND: Final = b":access"
_READ_ONLY: Final = b"read-only"


class Access(NamedTuple):
    """What the credentials of a request allow."""

    is_read_only: bool
    credential: str  # its kind, for the security log
    log_in_id: str = ""  # "": it came with a key
    log_in: LogIn | None = None  # on the node that knows it

    def tell(self, headers: dict[bytes, bytes]) -> None:
        """Write it to the headers of a request that is forwarded."""
        words = (b"read-only" if self.is_read_only else b"owner", self.log_in_id.encode("ascii"))
        headers[_FOUND] = b" ".join(words)

    @classmethod
    def told(cls, headers: Mapping[bytes, bytes]) -> Access:
        """What the node has found that forwarded a request."""
        kind, _, log_in_id = headers.get(_FOUND, _READ_ONLY).partition(b" ")
        return cls(kind != b"owner", "forwarded", log_in_id.decode("ascii"))


NO_ACCESS: Final = Access(is_read_only=True, credential="none")


class ControlGuard:
    def __init__(
        self,
        key: str | None,
        hosts: HostNames,
        log_ins: LogIns,
        *,
        read_only_key: str | None = None,
        needs_certificate: bool = False,
    ) -> None:
        """`key` None: only the server's health is served. `needs_certificate`: clients need a certificate beside the
        key or the cookie."""
        self._keys = ControlKeys("control", key, read_only_key, hosts=hosts, needs_certificate=needs_certificate)
        self._log_ins = log_ins

    def check(self, request: Request) -> Access:
        headers = request.headers
        self.check_place(request)
        if b"authorization" not in headers and b"cookie" in headers and self._keys.has_key:
            access = self._of_cookie(request)
            if access is not None:
                return access
        return Access(*self._keys.check_key(headers.get(b"authorization")))

    def check_place(self, request: Request) -> None:
        """Where a request comes from, whatever its credentials."""
        self._keys.check_place(request)

    @property
    def has_key(self) -> bool:
        return self._keys.has_key

    def of_key(self, given: str | bytes) -> Access | None:
        """What a key allows; None: it is none of the control keys."""
        grant = self._keys.grant(given)
        return Access(*grant) if grant is not None else None

    def _of_cookie(self, request: Request) -> Access | None:
        log_in = self._log_ins.find(request.headers[b"cookie"], is_tls=request.is_tls)
        if log_in is None:
            return None
        if request.method not in READING_METHODS and not is_same(request.headers.get(CSRF, b""), log_in.csrf):
            raise Failure(
                Kind.FORBIDDEN, f"A request of a page needs the header {CSRF.decode()} with the value of its log-in."
            )
        return Access(log_in.is_read_only, "log-in", log_in.id, log_in)
