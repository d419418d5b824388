"""All proxies between one program and its server. They listen before the server starts, which is told the address of
the proxy that clients of the MongoDB door are to use.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from clients.recording.exchanges import Recording
from clients.recording.gremlin_proxy import GremlinProxy
from clients.recording.http_messages import STREAM_BYTES_MAX
from clients.recording.http_proxy import HttpProxy
from clients.recording.mongo_proxy import MongoProxy

from armillary.net.tls import load_context


@dataclass(frozen=True)
class Ports:
    """Of the doors of a server, or of the proxies before them."""

    http: int
    https: int
    mongo: int
    gremlin: int
    management: int
    management_https: int


class Proxies:
    def __init__(self, recording: Recording, certificate: Path) -> None:
        inside = ssl.create_default_context(cafile=certificate)
        inside.check_hostname = False
        self._http = HttpProxy("sql", recording)
        self._https = HttpProxy("sql", recording, inside)
        self._management = HttpProxy("management", recording)
        self._management_https = HttpProxy("management", recording, inside)
        self._mongo = MongoProxy(recording)
        self._gremlin = GremlinProxy(recording)
        self.ports = Ports(0, 0, 0, 0, 0, 0)

    @classmethod
    @asynccontextmanager
    async def listening(cls, recording: Recording, certificate: Path, key: Path) -> AsyncIterator[Proxies]:
        proxies = cls(recording, certificate)
        async with AsyncExitStack() as stack:

            async def listen(proxy: HttpProxy | MongoProxy, context: ssl.SSLContext | None = None) -> int:
                server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context, limit=STREAM_BYTES_MAX)
                stack.callback(server.close)
                return int(server.sockets[0].getsockname()[1])

            gremlin = await stack.enter_async_context(proxies._gremlin.listen())
            proxies.ports = Ports(
                http=await listen(proxies._http),
                https=await listen(proxies._https, load_context(certificate, key)),
                mongo=await listen(proxies._mongo),
                gremlin=int(next(iter(gremlin.sockets)).getsockname()[1]),
                management=await listen(proxies._management),
                management_https=await listen(proxies._management_https, load_context(certificate, key)),
            )
            names = ("127.0.0.1", "localhost")
            recording.addresses = [f"{name}:{port}" for port in vars(proxies.ports).values() for name in names]
            yield proxies

    def lead_to(self, doors: Ports) -> None:
        """The server has started: requests may come."""
        self._http.port = doors.http
        self._https.port = doors.https
        self._mongo.port = doors.mongo
        self._gremlin.port = doors.gremlin
        self._management.port = doors.management
        self._management_https.port = doors.management_https
