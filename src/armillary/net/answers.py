"""Responses to bytes. Everything that is the same for many answers (status line, Date, a door's constant headers) is
encoded once and kept; what connections wait for and when is `connection.py`'s.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from armillary.net.http import HANG_UP, Headers, Response

# Of every answer of doors that have no constant headers of their own.
SERVER_HEADERS: Headers = (
    (b"server", b"Armillary"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# What the answer says about the connection: the lines that may stand at the end of its head.
STAYS_OPEN = b"\r\n"
STAYS_OPEN_SAID = b"Connection: keep-alive\r\n\r\n"
CLOSES = b"Connection: close\r\n\r\n"


class HungUp(Exception):
    """There is no answer: the connection is to end."""


class Answers:
    """The beginnings of answers, one per status, renewed with the Date."""

    def __init__(self, constant_headers: Headers, now_s: float) -> None:
        self._constant = b"".join([b"\r\n%b: %b" % header for header in constant_headers])
        self._constant_lines = len(constant_headers) + _LINES_MIN
        self._beginnings: dict[int, bytes] = {}
        self._second = -1
        self._date = b""
        self.renew(now_s)

    def renew(self, now_s: float) -> None:
        """Take over the time of day, to be called about once a second."""
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True).encode()
            self._beginnings.clear()

    def encode(self, response: Response, ending: bytes, *, is_head: bool = False) -> bytes:
        """The whole answer, ready for the socket. ValueError when a header would break out of its line, HungUp
        for the answer that is none."""
        status = response.status
        beginning = self._beginnings.get(status)
        if beginning is None:
            beginning = self._begin(status)
        headers = response.headers
        body = response.body
        has_body = status != 204 and status != 304
        if response.lines:
            if headers:
                raise ValueError("an answer has header lines or headers, not both")
            length = b"\r\nContent-Length: %d\r\n" % len(body) if has_body else b"\r\n"
            head = b"%b\r\n%b%b%b" % (beginning, response.lines, length, ending)
            return head + body if has_body and not is_head else head
        constant_lines = self._constant_lines
        if response.is_bare:
            beginning, constant_lines = self._line(status), _LINES_MIN
        lines = [beginning, *map(_join_pair, headers)]
        if has_body:
            lines.append(b"Content-Length: %d" % len(body))
        lines.append(ending)
        head = b"\r\n".join(lines)
        # An id or token that carries a line break into a header would let its sender write answers of his own.
        if head.count(b"\n") != constant_lines + len(headers) + has_body + (1 if len(ending) == 2 else 2):
            raise ValueError("a response header contains a line break")
        return head + body if has_body and not is_head else head

    def _begin(self, status: int) -> bytes:
        if status == HANG_UP.status:
            raise HungUp
        beginning = self._line(status) + self._constant
        self._beginnings[status] = beginning
        return beginning

    def _line(self, status: int) -> bytes:
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = _PHRASES.get(status, "Unknown")  # a client reads the number
        return b"HTTP/1.1 %d %b\r\nDate: %b" % (status, phrase.encode(), self._date)


_join_pair = b": ".join
_LINES_MIN = 2  # the status line and the Date
_PHRASES = {449: "Retry With"}
