"""Signed requests to a SQL door in process: for what no released client does."""

from __future__ import annotations

import base64
import hmac
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import orjson

from armillary.clock import Clock
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.routes import parse_route
from armillary.model.binary_json.binary_reader import decode
from armillary.net.http import Request, Response

KEY = base64.b64encode(b"k" * 64).decode()


class Caller:
    def __init__(self, door: SqlDoor, clock: Clock) -> None:
        self._door, self._clock = door, clock

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Response]:
        response = await self.send(method, path, body, **headers)
        read = decode if response.body[:1] == b"\x80" else orjson.loads
        return response.status, read(response.body) if response.body else None, response

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """The answer with its body as it is."""
        date = formatdate(self._clock.now_s(), usegmt=True)
        route = parse_route(path.encode())
        link = route.link.rpartition("/")[2].lower() if route.is_rid_based else route.link
        signed = f"{method.lower()}\n{route.resource_type}\n{link}\n{date.lower()}\n\n"
        mac = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
        request = Request(
            method,
            path.encode(),
            {
                b"host": b"localhost",
                b"x-ms-date": date.encode(),
                b"authorization": quote(f"type=master&ver=1.0&sig={mac}", safe="").encode(),
                **{name.replace("_", "-").encode(): value.encode() for name, value in headers.items()},
            },
            body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else b"",
            False,
            "test",
        )
        return await self._door.answer(request)
