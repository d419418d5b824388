"""A lean client of the SQL protocol for load and fuzzing: one connection, signed requests, answers as they came.

An SDK costs a millisecond a request; this costs a tenth, so that sixteen of them keep a server busy from one process.
What the answers mean is left to the callers.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote

import orjson
from support.process import KEY

ANSWER_S = 60.0

Headers = Mapping[str, str]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def sub_status(self) -> int:
        return int(self.headers.get("x-ms-substatus", "0"))


class ConnectionLost(Exception):
    """The connection ended before the answer came: whether the request was carried out is not known."""


class Client:
    """Made by `connect`. One request at a time."""

    def __init__(self, wire: Wire, key: str = KEY) -> None:
        self._wire = wire
        self._signer = hmac.new(b64decode(key), digestmod="sha256")
        self._date = ""
        self._date_s = 0

    @classmethod
    async def connect(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        try:
            _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        return cls(wire)

    def close(self) -> None:
        self._wire.close()

    async def request(
        self, method: str, link: str, body: object = None, headers: Headers | None = None, *, is_feed: bool = False
    ) -> Answer:
        """`link` reads dbs/<db>/colls/<container>/docs[/<id>], undecorated; `is_feed` when it ends in a type."""
        words = link.split("/")
        resource_type, signed = (words[-1], "/".join(words[:-1])) if is_feed else (words[-2], link)
        head = self._sign(method, resource_type, signed)
        target = "/".join(quote(word, safe="") for word in words)
        payload = body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else b""
        lines = [f"{method} /{target} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in head)]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines.append(f"Content-Length: {len(payload)}\r\n\r\n")
        return await self._wire.exchange("\r\n".join(lines).encode("latin-1") + payload, has_body=method != "HEAD")

    def _sign(self, method: str, resource_type: str, link: str) -> list[tuple[str, str]]:
        now_s = int(time.time())
        if now_s != self._date_s:
            self._date_s, self._date = now_s, formatdate(now_s, usegmt=True)
        mac = self._signer.copy()
        mac.update(f"{method.lower()}\n{resource_type}\n{link}\n{self._date.lower()}\n\n".encode())
        signature = quote(f"type=master&ver=1.0&sig={b64encode(mac.digest()).decode()}", safe="")
        return [("x-ms-date", self._date), ("x-ms-version", "2020-07-15"), ("authorization", signature)]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = await Client.connect(port)
    try:
        yield client
    finally:
        client.close()


class Wire(asyncio.Protocol):
    """Bytes out, one answer in. Streams would do, at three times the cost."""

    def __init__(self) -> None:
        self._buffer = b""
        self._has_body = True
        self._waiting: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    async def exchange(self, request: bytes, *, has_body: bool = True) -> Answer:
        assert self._waiting is None, "one request at a time"
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost("the connection was closed before")
        self._has_body = has_body
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await asyncio.wait_for(self._waiting, ANSWER_S)
        except TimeoutError:
            self.close()
            raise AssertionError(f"no answer in {ANSWER_S} s to {request[:200]!r}") from None
        finally:
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by type

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answer = self._complete()
        if answer is not None and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionLost(str(error)))

    def _complete(self) -> Answer | None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size_bytes = int(headers.get("content-length", "0")) if self._has_body else 0
        if len(rest) < size_bytes:
            return None
        self._buffer = rest[size_bytes:]
        return Answer(int(status_line.split(" ")[1]), headers, rest[:size_bytes])
