"""A proxy of the Gremlin protocol (WebSocket) that records requests and their answers. Sign-in is not recorded."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from base64 import b64decode, b64encode
from contextlib import AbstractAsyncContextManager
from typing import Any

from clients.recording.exchanges import Exchange, Recording
from gremlin_python.driver.serializer import GraphBinarySerializersV1
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

_BINARY_TYPE = b"application/vnd.graphbinary-v1.0"
_MESSAGE_BYTES_MAX = 1 << 24
_USER = re.compile(rb"/dbs/[^/\0]+/colls/[^/\0]+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{20,}={0,2}")
_PARTIAL, _CHALLENGE = 206, 407


class GremlinProxy:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.port = 0  # of the server

    def listen(self) -> AbstractAsyncContextManager[Server]:
        return serve(self._serve, "127.0.0.1", 0, max_size=_MESSAGE_BYTES_MAX, compression=None)

    async def _serve(self, client: ServerConnection) -> None:
        assert client.request is not None
        agent = client.request.headers.get("User-Agent")
        address = f"ws://127.0.0.1:{self.port}{client.request.path}"
        async with connect(address, max_size=_MESSAGE_BYTES_MAX, compression=None, user_agent_header=agent) as server:
            waiting: dict[str, Exchange] = {}
            asked = self._requests(client, server, waiting, {"user": "", "agent": agent})
            await asyncio.gather(asked, self._answers(server, client, waiting))

    async def _requests(
        self, client: ServerConnection, server: ClientConnection, waiting: dict[str, Exchange], about: dict[str, Any]
    ) -> None:
        try:
            async for message in client:
                request_id, operation = _request_of(message)
                if operation == "authentication":
                    about["user"] = _user_of(message)
                    for exchange in waiting.values():
                        exchange["user"] = about["user"]
                else:
                    exchange = {"api": "gremlin", "id": request_id, "message": to_json(message), "answers": [], **about}
                    waiting[request_id] = self._recording.begin(exchange)
                await server.send(message)
        except ConnectionClosed:
            pass
        waiting.clear()  # the client has left
        await server.close()

    async def _answers(self, server: ClientConnection, client: ServerConnection, waiting: dict[str, Exchange]) -> None:
        try:
            async for message in server:
                answer = parse_answer(message)
                exchange = waiting.get(answer["requestId"])
                if exchange is not None and answer["status"]["code"] != _CHALLENGE:
                    exchange["answers"].append(answer)
                    if answer["status"]["code"] != _PARTIAL:
                        del waiting[answer["requestId"]]
                await client.send(message)
        except ConnectionClosed:
            is_dropped = server.close_code == CloseCode.ABNORMAL_CLOSURE  # refused sign-ins have a closing handshake
            for exchange in waiting.values() if is_dropped else ():
                exchange["dropped"] = True
        await client.close()


def to_json(message: str | bytes) -> Any:
    """A message as it is sent: a text, bytes, or bytes that are the type and the text of a message."""
    if isinstance(message, str):
        return message
    kind, body = message[1 : 1 + message[0]], message[1 + message[0] :]
    if kind != _BINARY_TYPE:
        return {"type": kind.decode(), "text": body.decode()}
    return {"base64": b64encode(message).decode()}


def _user_of(message: str | bytes) -> str:
    """That a client signs in as: in base64, or as it is."""
    given = message.encode() if isinstance(message, str) else message
    texts = [given, *(b64decode(each) for each in _BASE64.findall(given) if len(each) % 4 == 0)]
    users = [match[0].decode() for match in map(_USER.search, texts) if match is not None]
    return users[-1] if users else ""


def _request_of(message: str | bytes) -> tuple[str, str]:
    """Its id and operation. Binary requests of GraphBinary: version, UUID, operation."""
    if isinstance(message, bytes):
        size, rest = message[0], message[1:]
        kind, body = rest[:size], rest[size:]
        if kind == _BINARY_TYPE:
            length = int.from_bytes(body[17:21], "big")
            return str(uuid.UUID(bytes=body[1:17])), body[21 : 21 + length].decode()
        message = body.decode()
    given = json.loads(message)
    request_id = given["requestId"]
    return request_id["@value"] if isinstance(request_id, dict) else request_id, given["op"]


def parse_answer(message: str | bytes) -> dict[str, Any]:
    """As JSON: `requestId`, `status` and `result`."""
    if isinstance(message, bytes) and message[:1] != b"{":
        given = GraphBinarySerializersV1().deserialize_message(message)
        given["requestId"] = str(given["requestId"])
        return json.loads(json.dumps(given, default=repr))  # type: ignore[no-any-return]
    parsed: dict[str, Any] = json.loads(message)
    return parsed
