"""A small HTTP/1.1 client for many requests at once over kept connections, on httptools like the server. It knows
sockets alone; signatures, retries and what answers mean are left to the endpoints.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from armillary.errors import Failure, Kind, bad_request

TIMEOUT_S = 120.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class HttpClient:
    def __init__(
        self,
        url: str,
        certificate: Path | None = None,
        context: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._timeout_s = timeout_s  # for a connection, and for each answer
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise bad_request(f"The port in {url!r} is none.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise bad_request(f"{url!r} is no address of a server; expected one such as https://localhost:8081.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, port or (443 if parts.scheme == "https" else 80)
        self._host_header = parts.netloc.rpartition("@")[2]
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._certificate = certificate  # that a server of this machine may have made for itself
        self._trust_own()
        self._idle: list[_Connection] = []
        self.has_answered = False  # a server that never has is not worth waiting for

    async def request(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> Answer:
        """Raises Failure(UNAVAILABLE) if there is no answer: whether the request was carried out is not known then."""
        lines = [f"{method} {target} HTTP/1.1\r\nhost: {self._host_header}\r\ncontent-length: {len(body)}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        head = "".join(lines)
        if head.count("\n") != len(lines) + 2 or head.count("\r") != len(lines) + 2:
            raise bad_request(f"{self.url} is asked with a name or a token that has a line end in it.")
        request = head.encode("ascii") + b"\r\n" + body
        connection = await self._connection()
        try:
            answer = await asyncio.wait_for(connection.send(request), self._timeout_s)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError | TimeoutError | httptools.HttpParserError):
                raise self._unavailable(error) from None
            raise
        self.has_answered = True
        if connection.is_kept:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        try:
            try:
                return await self._connect()
            except ssl.SSLCertVerificationError:
                if not self._trust_own():
                    raise
                return await self._connect()  # the server has made its certificate just now, for us
        except (OSError, TimeoutError) as error:
            raise self._unavailable(error) from None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(_Connection, self._host, self._port, ssl=self._context)
        _, made = await asyncio.wait_for(connecting, self._timeout_s)
        return made

    def _trust_own(self) -> bool:
        """Whether there is a certificate that was not trusted yet."""
        if self._context is None or self._certificate is None or not self._certificate.exists():
            return False
        self._context.load_verify_locations(self._certificate)
        self._certificate = None
        return True

    def _unavailable(self, error: BaseException) -> Failure:
        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(
                Kind.UNAVAILABLE,
                f"The certificate of {self.url} is not trusted: {error.verify_message}. If it is a server of yours, "
                "name its data directory with --data, or see `armillary trust`.",
            )
        return Failure(Kind.UNAVAILABLE, self._said(error))

    def _said(self, error: BaseException) -> str:
        if isinstance(error, ssl.SSLError):
            return f"What listens at {self.url} does not speak TLS. Write http:// instead of https://."
        if isinstance(error, TimeoutError):
            return f"{self.url} has not answered within {self._timeout_s:g} s. Give it more time with --timeout."
        if isinstance(error, ConnectionRefusedError):
            return (
                f"No server answers at {self.url}: Connection refused. Start it with `armillary serve`, or check the "
                "address: --url and --data name the server."
            )
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        return f"{self.url} does not answer: {reason}. Check that it is the address of a server."

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self.is_closed = False
        self.is_kept = True

    async def send(self, request: bytes) -> Answer:
        assert self._transport is not None and self._waiter is None
        self._waiter = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._pieces = {}, []
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._fail(error or ConnectionResetError("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # httptools calls these.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_kept = self._parser.should_keep_alive()
        answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._pieces))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)
