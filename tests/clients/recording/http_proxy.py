"""A proxy of HTTP that records requests and answers: of the SQL door, the control API and the management API."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import orjson
from clients.recording.exchanges import Exchange, Recording, packed_bytes
from clients.recording.http_messages import STREAM_BYTES_MAX, Message, read_answer, read_request, status_of

from armillary.model.binary_json.binary_reader import decode

# Not recorded: what the replay makes anew, what proxies and libraries add, and what is random and without effect.
_UNRECORDED_HEADERS = frozenset(
    "authorization x-ms-date date host connection content-length transfer-encoding keep-alive expect "
    "traceparent x-ms-client-request-id x-ms-activity-id x-ms-cosmos-correlated-activityid "
    "x-ms-return-client-request-id x-ms-cosmos-hub-region-processing-only priority".split()
)
_UNRECORDED_ANSWER_HEADERS = frozenset(
    "date connection content-length transfer-encoding keep-alive server x-ms-activity-id x-ms-correlation-request-id "
    "x-ms-request-id x-ms-request-duration-ms x-ms-client-request-id x-ms-documentdb-query-metrics".split()
)
_HTTP_2 = "PRI * HTTP/2.0"
_SYSTEM = re.compile(r"Linux[-/ ]\d[^ ,;)]*", re.IGNORECASE)  # in user agents: the kernel of a machine


class HttpProxy:
    def __init__(self, api: str, recording: Recording, inside: ssl.SSLContext | None = None) -> None:
        """`inside`: for the connection to the server; None: without TLS."""
        self._api = api
        self._recording = recording
        self.port = 0  # of the server
        self._inside = inside

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of a client, until either side closes it."""
        try:
            there = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._inside, limit=STREAM_BYTES_MAX)
        except OSError:
            writer.transport.abort()
            return
        far_reader, far_writer = there
        try:
            while (request := await read_request(reader, writer)) is not None:
                if request.first_line == _HTTP_2:
                    await _pass_on(request, (reader, writer), there)
                    break
                exchange = self._recording.begin(_request_json(self._api, request))
                far_writer.write(request.encode())
                await far_writer.drain()
                exchange["dropped"] = True  # until it is answered
                answer = await read_answer(far_reader, exchange["method"])
                if answer is None:
                    break
                del exchange["dropped"]
                exchange["answer"] = _answer_json(answer)
                writer.write(answer.encode())
                await writer.drain()
                if (answer.header("connection") or "").lower() == "close":
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, far_writer):
                each.close()
                with suppress(OSError, ssl.SSLError):
                    await each.wait_closed()


async def _pass_on(
    preface: Message,
    here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """A client that begins with HTTP/2: its bytes and the refusal pass as they are, and are not recorded."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    there[1].write(preface.encode())
    await asyncio.gather(copy(here[0], there[1]), copy(there[0], here[1]))


def _request_json(api: str, request: Message) -> Exchange:
    method, target, _ = request.first_line.split(" ", 2)
    headers = {name.lower(): value for name, value in request.headers if name.lower() not in _UNRECORDED_HEADERS}
    if "user-agent" in headers:
        headers["user-agent"] = _SYSTEM.sub("Linux", headers["user-agent"])
    exchange: Exchange = {"api": "control" if "/_armillary/" in target else api, "method": method, "target": target}
    authorization = unquote(request.header("authorization") or "")
    if authorization.startswith("type=resource"):
        exchange["token"] = authorization
    elif not authorization:
        exchange["unsigned"] = True
    exchange["headers"] = headers
    if request.body:
        exchange["body"] = packed_bytes(request.body)
    return exchange


def _answer_json(answer: Message) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in answer.headers if name.lower() not in _UNRECORDED_ANSWER_HEADERS}
    return {"status": status_of(answer), "headers": headers} | body_json(answer.body)


def body_json(body: bytes) -> dict[str, Any]:
    """A body of an answer, parsed if it is JSON of either form."""
    if not body:
        return {}
    try:
        return {"json": orjson.loads(body)}
    except orjson.JSONDecodeError:
        pass
    try:
        return {"binary": decode(body)}
    except Exception:
        return {"text": packed_bytes(body)}
