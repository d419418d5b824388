"""Log-ins of browsers to the portal: the cookies that stand for them, the tickets that begin one without a key, and the
refusal of addresses that try wrong keys.

They are kept in memory, on the node that the browser logged in to, and end with the process. Of a cookie or a ticket
the SHA-256 alone is kept. Which requests need a log-in is decided by `authentication.py`.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

from armillary import limits
from armillary.account.security.sign_in_throttle import network_of
from armillary.clock import Clock
from armillary.errors import Failure, Kind

PortalMode = Literal["login", "read-only", "open", "off"]

_SECRET_BYTES: Final = 32
_PATH: Final = "/_armillary"


@dataclass(slots=True)
class LogIn:
    """Made by `LogIns.begin`."""

    id: str  # the SHA-256 of its cookie
    csrf: str  # what requests that change something have to repeat
    is_read_only: bool
    begun_s: float
    used_s: float
    address: str = ""  # where it was begun from

    def left_s(self, now_s: float) -> float:
        """How long it lasts if it is not used again."""
        idle_s = self.used_s + limits.LOG_IN_IDLE_SECONDS - now_s
        return min(idle_s, self.begun_s + limits.LOG_IN_SECONDS_MAX - now_s)


class LogIns:
    def __init__(self, clock: Clock, instance: str = "00000000", mode: PortalMode = "login") -> None:
        """`instance`: tells servers on one machine apart, since cookies are sent to all ports. `clock`: the machine's,
        since log-ins do not end when a test moves the account's."""
        self.instance = instance
        self.mode: PortalMode = mode
        self._clock = clock
        self._log_ins: OrderedDict[str, LogIn] = OrderedDict()  # by id, the least recently begun first
        self._tickets: OrderedDict[str, tuple[float, bool]] = OrderedDict()  # by digest: its end, and whether read-only
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # by address: first of a minute, and number

    def __len__(self) -> int:
        return len(self._log_ins)

    # Cookies.

    def begin(self, *, is_read_only: bool, address: str = "") -> tuple[LogIn, str]:
        """A new log-in, and the value of its cookie."""
        value, csrf = self._secret(), self._secret()
        now_s = self._clock.elapsed_s()
        log_in = LogIn(_digest(value), csrf, is_read_only or self.mode == "read-only", now_s, now_s, address)
        self._log_ins[log_in.id] = log_in
        while len(self._log_ins) > limits.LOG_INS_MAX:
            self._log_ins.popitem(last=False)
        return log_in, value

    def find(self, cookies: bytes, *, is_tls: bool) -> LogIn | None:
        """The log-in of a request with this Cookie header, which counts as a use of it."""
        name = self._cookie_name(is_tls=is_tls)
        for part in cookies.decode("latin-1").split(";"):
            given, _, value = part.strip().partition("=")
            log_in = self._log_ins.get(_digest(value)) if given == name else None
            if log_in is not None:
                now_s = self._clock.elapsed_s()
                if log_in.left_s(now_s) > 0:
                    log_in.used_s = now_s
                    return log_in
                self.end(log_in)
        return None

    def end(self, log_in: LogIn) -> None:
        self._log_ins.pop(log_in.id, None)

    def end_all(self) -> int:
        count = len(self._log_ins)
        self._log_ins.clear()
        self._tickets.clear()
        return count

    def current(self) -> list[tuple[LogIn, float, float]]:
        """All log-ins that have not ended, the newest first, with the seconds since each was begun and last used."""
        now_s = self._clock.elapsed_s()
        found = [each for each in reversed(self._log_ins.values()) if each.left_s(now_s) > 0]
        return [(each, now_s - each.begun_s, now_s - each.used_s) for each in found]

    def seconds_left(self, log_in: LogIn) -> int:
        return int(log_in.left_s(self._clock.elapsed_s()))

    def cookie(self, value: str, *, is_tls: bool) -> bytes:
        """The Set-Cookie header; with an empty value it deletes the cookie."""
        end = "" if value else "; Max-Age=0"
        secure = "; Secure" if is_tls else ""
        name = self._cookie_name(is_tls=is_tls)
        return f"{name}={value}; HttpOnly; SameSite=Strict; Path={_PATH}{secure}{end}".encode("ascii")

    def _cookie_name(self, *, is_tls: bool) -> str:
        # Browsers refuse to replace a Secure cookie over plain HTTP: one port serves both, so each has a name.
        return f"armillary-{self.instance}{'-tls' if is_tls else ''}"

    # Tickets.

    def make_ticket(self, *, is_read_only: bool) -> str:
        ticket = self._secret()
        until_s = self._clock.elapsed_s() + limits.LOG_IN_TICKET_SECONDS
        self._tickets[_digest(ticket)] = until_s, is_read_only
        while len(self._tickets) > limits.LOG_IN_TICKETS_MAX:
            self._tickets.popitem(last=False)
        return ticket

    def take_ticket(self, ticket: str) -> bool | None:
        """Whether the log-in that it is for is read-only; None: it is not one, was used before or is too old."""
        until_s, is_read_only = self._tickets.pop(_digest(ticket), (0.0, False))
        return is_read_only if self._clock.elapsed_s() < until_s else None

    # Wrong keys.

    def check_failures(self, address: str) -> None:
        """Refuse an address that has tried too many wrong keys, whatever it brings now."""
        began_s, count = self._failures.get(network_of(address), (0.0, 0))
        left_s = began_s + limits.LOG_IN_FAILURES_SECONDS - self._clock.elapsed_s()
        if count >= limits.LOG_IN_FAILURES_MAX and left_s > 0:
            raise Failure(
                Kind.THROTTLED,
                f"{count} wrong keys came from this address within a minute. Try again in {ceil(left_s)} seconds.",
                retry_after_ms=ceil(left_s * 1000),
            )

    def count_failure(self, address: str) -> None:
        network, now_s = network_of(address), self._clock.elapsed_s()
        began_s, count = self._failures.pop(network, (now_s, 0))
        if now_s - began_s >= limits.LOG_IN_FAILURES_SECONDS:
            began_s, count = now_s, 0
        self._failures[network] = began_s, count + 1
        if len(self._failures) > limits.SIGN_IN_ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _secret(self) -> str:
        return urlsafe_b64encode(self._clock.random_bytes(_SECRET_BYTES)).rstrip(b"=").decode("ascii")


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
