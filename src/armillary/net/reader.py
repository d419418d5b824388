"""Bytes to requests: httptools' callbacks put a message together and bound everything about it.

Knows no socket. `connection.py` feeds it, takes the requests from `waiting`, and answers `refusal` when something came
that is not a request; what a head may say is `head.py`'s.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NoReturn

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from armillary import limits
from armillary.net import head, http_2
from armillary.net.answers import CLOSES
from armillary.net.hosts import FOREIGN_HOST, FOREIGN_ORIGIN, SIMPLE_MEDIA, SIMPLE_MEDIA_TYPES
from armillary.net.http import Request, Response
from armillary.net.service import Service, log
from armillary.net.tls import TLS_REQUIRED

# Where in a message the client is.
BETWEEN: Final = 0
HEAD: Final = 1
BODY: Final = 2


class Reader:
    def __init__(
        self, service: Service, *, is_tls: bool, peer: str, is_shed: bool, has_certificate: bool = False
    ) -> None:
        self._service = service
        self._parser = HttpRequestParser(self)
        self._is_tls = is_tls
        self._peer = peer
        self._has_certificate = has_certificate
        self._refuses_plain = service.requires_tls and not is_tls
        self._is_shed = is_shed
        # What came of it.
        self.waiting: deque[tuple[Request, bytes]] = deque()  # each with what its answer says about the connection
        self.refusal: head.Refusal | Response | None = (
            None  # to be answered after all that wait; nothing is read after it
        )
        self.is_last = False  # nothing is read after those that wait
        self.http_2_bytes = b""  # what came of HTTP/2 up to the refusal
        # The message that is being read.
        self.stage = HEAD  # a new connection owes us a head
        self.since_s = service.now_s
        self.has_begun = False
        self.body_bytes = 0
        self.body_bytes_due = 0
        self.unfinished_bytes = 0  # of it, as far as it has come
        self.is_screened = False  # whether its sender is known
        self.owes_continue = False
        self._target = b""
        self._headers: dict[bytes, bytes] = {}  # of the head that is being read; of the trailer once that is done
        self._repeats = 0
        self._head: head.Head | None = None
        self._head_bytes = 0
        self._host = b""
        self._media = b""
        self._body: list[bytes] = []
        self._chunks = 0
        self._heard = -1
        self._quiet_bytes = 0
        self._is_body_due = False  # the parser has stopped at an offer to change the protocol, before the body

    def feed(self, piece: bytes) -> None:
        """Read on. Pieces are to be small where requests may be many: each becomes as many requests as it holds."""
        while piece:
            try:
                self._parser.feed_data(piece)
            except HttpParserUpgrade as upgrade:
                # We speak nothing else, so the client's offer to change the protocol is left unanswered, which HTTP
                # allows; what follows is the body, if the head announced one, or the next request. Java's HttpClient
                # offers HTTP/2 with every first request of a connection.
                self._parser = HttpRequestParser(self)
                if self._is_body_due:
                    self._parser.feed_data(_framing(self._head))
                    self._is_body_due = False
                piece = piece[upgrade.args[0] :]
                continue
            except HttpParserError as error:
                self._give_up(error, piece)
                return
            if self.stage != BETWEEN:
                self._bound(len(piece))
            return

    def _give_up(self, error: HttpParserError, piece: bytes) -> None:
        cause = error.__context__
        begun = http_2.PREFACE[: self.unfinished_bytes] if self._parser.get_method() == b"PRI" else b""
        if not self._host and (begun + piece).startswith(http_2.PREFACE):  # the connection begins with it
            self.http_2_bytes = begun + piece
            self.refusal = head.HTTP_2
        elif cause is not None and not isinstance(cause, _Refused):
            log.error("a request could not be read", exc_info=cause)
            self.refusal = (500, "The server failed to read this request. Its log has the reason.")
        elif self.refusal is None and not self.is_last:
            self.refusal = (400, f"The request is not valid HTTP/1.1: {error}.")

    def _bound(self, size_bytes: int) -> None:
        """Bound what a message takes that is still incomplete after a piece of it."""
        self.unfinished_bytes += size_bytes
        if self.stage == HEAD:
            # How much of its first piece belongs to earlier requests is not known, so that piece only marks the head as
            # long (`head.py` then measures it exactly in the end); the later ones count.
            self._head_bytes += size_bytes if self._head_bytes else 1
            if self._head_bytes > limits.HEAD_BYTES_MAX:
                self.refusal = head.TOO_LARGE
            return
        # Chunk extensions and trailers reach us late or never: the parser collects them, so their size shows only in
        # pieces that bring neither body nor a new chunk.
        heard = self.body_bytes + self._chunks
        self._quiet_bytes = self._quiet_bytes + size_bytes if heard == self._heard else 0
        self._heard = heard
        if self._quiet_bytes > limits.HEAD_BYTES_MAX:
            self.refusal = (400, "The extensions or the trailer of the request's chunks are too long.")

    def screen(self) -> None:
        """Have the door authenticate the head before more of a body is read than strangers may send."""
        read = self._head
        assert read is not None, "a body comes after its head"
        self.is_screened = True
        screen = self._service.screen
        if screen is not None:
            self.refusal = screen(self._request(read, b""))

    def _request(self, read: head.Head, body: bytes) -> Request:
        return Request(read.method, read.target, read.headers, body, self._is_tls, self._peer, self._has_certificate)

    def _refuse(self, refusal: head.Refusal) -> NoReturn:
        """Inside a callback: make the parser stop."""
        self.refusal = refusal
        raise _Refused

    def _screen_now(self) -> None:
        """The same inside a callback."""
        self.screen()
        if self.refusal is not None:
            raise _Refused

    def _check_host(self, read: head.Head) -> None:
        """Once for each name: the host that was found to be ours is remembered."""
        if self._service.hosts.is_ours(read.host.decode("latin-1")):
            self._host = read.host
        elif read.target not in self._service.open_targets:
            self._refuse((403, FOREIGN_HOST))

    def _check_origin(self, read: head.Head) -> None:
        hosts = self._service.hosts
        origin = read.headers[b"origin"].decode("latin-1")
        if hosts.takes_all or hosts.is_own_origin(origin, read.host.decode("latin-1")):
            return
        if not self._service.allows_origin(read.method, read.headers):
            self._refuse((403, FOREIGN_ORIGIN))

    def _check_media(self, given: bytes, method: str) -> None:
        """The same for the type of a body. Browsers ask before a page may send PATCH to another site, and aiohttp calls
        the bodies of azure-cosmos up to 4.16, which gives those of PATCH no type, plain text."""
        if given.partition(b";")[0].strip().lower() not in SIMPLE_MEDIA_TYPES:
            self._media = given
        elif method != "PATCH":
            self._refuse((415, SIMPLE_MEDIA))

    # What the parser calls, in this order.

    def on_message_begin(self) -> None:
        if self._is_body_due:
            return
        self.stage = HEAD
        self.since_s = self._service.now_s
        self.has_begun = True
        self.body_bytes = 0
        self._target = b""
        self._headers = {}
        self._repeats = 0
        self._head_bytes = 0
        self._body = []

    def on_url(self, part: bytes) -> None:
        if not self._is_body_due:
            self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_body_due:
            return
        name = name.lower()
        headers = self._headers
        if name in headers:
            self._repeats += 1
            if self._repeats > limits.HEAD_LINES_MAX:
                self._refuse(head.TOO_MANY)
            if name in head.ONCE:
                self._refuse((400, f"The header {name.decode('ascii')} came more than once."))
            headers[name] += b", " + value.rstrip(b" \t")
        else:
            headers[name] = value.rstrip(b" \t")

    def on_headers_complete(self) -> None:
        if self._is_body_due:
            return
        if self._is_shed:
            self._refuse((503, "The server has as many connections as it can serve. Try again later."))
        read = head.read(self._parser, self._target, self._headers, self._head_bytes > 0, self._host)
        if not isinstance(read, head.Head):
            self._refuse(read)
        if read.host != self._host:
            self._check_host(read)
        if self._refuses_plain and read.target not in self._service.open_targets:
            self._refuse((403, TLS_REQUIRED))
        headers = read.headers
        if b"origin" in headers:
            self._check_origin(read)
        media = headers.get(b"content-type", self._media)
        if media != self._media and (read.body_bytes or b"transfer-encoding" in headers):
            self._check_media(media, read.method)
        self._head = read
        self._headers = {}
        self.stage = BODY
        self.since_s = self._service.now_s
        self.body_bytes_due = read.body_bytes
        self.owes_continue = read.expects_continue
        self.is_screened = False
        if read.body_bytes > limits.STRANGER_BYTES_MAX:
            self._screen_now()
        self._chunks = 0
        self._heard = -1
        self._quiet_bytes = 0
        self._is_body_due = read.is_offer_with_body

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > limits.STRANGER_CHUNKS_MAX and not self.is_screened:
            self._screen_now()

    def on_body(self, part: bytes) -> None:
        self._body.append(part)
        self.body_bytes += len(part)
        self.body_bytes_due -= len(part)
        self.owes_continue = False
        if self.body_bytes > limits.STRANGER_BYTES_MAX and not self.is_screened:
            self._screen_now()
        if self.body_bytes > limits.BODY_BYTES_MAX:
            self._refuse(head.BODY_TOO_LARGE)

    def on_message_complete(self) -> None:
        if self._is_body_due:
            return
        read = self._head
        assert read is not None, "a message ends after its head"
        parts = self._body
        body = b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)
        request = Request(read.method, read.target, read.headers, body, self._is_tls, self._peer, self._has_certificate)
        self.waiting.append((request, read.ending))
        self.stage = BETWEEN
        self.body_bytes_due = self.unfinished_bytes = 0
        self.owes_continue = False
        self._body = []
        if read.ending is CLOSES:
            self.is_last = True


def _framing(read: head.Head | None) -> bytes:
    """A head that ends where that of `read` ends, and offers no other protocol."""
    assert read is not None, "a body comes after its head"
    is_chunked = b"transfer-encoding" in read.headers
    size = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % read.body_bytes
    connection = b"close" if read.ending is CLOSES else b"keep-alive"
    return b"POST / HTTP/1.1\r\nConnection: %s\r\n%s\r\n\r\n" % (connection, size)


class _Refused(Exception):
    """Makes the parser stop; the reason is in the reader's `refusal`."""
