"""The network between the processes of a cluster: TCP proxies on this machine that hold what passes, in one direction
or in both.

A link that is cut behaves as a network that drops packets: bytes are held and arrive when it heals, new connections are
not answered, and connections break when TCP would have given them up. The product's limit for that is used, since no
packet is dropped here that TCP could miss.
"""

from __future__ import annotations

import asyncio
from enum import Flag
from typing import cast

from armillary.limits import LOG_KEEPALIVE_SECONDS


class Way(Flag):
    """A direction, seen from the process that connects."""

    THERE = 1
    BACK = 2
    BOTH = THERE | BACK


class Link:
    """Made by `listen`: a port that stands for another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0
        self.replaced: dict[bytes, bytes] = {}  # in answers; texts of equal length
        self._cut = Way(0)
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    @classmethod
    async def listen(cls, target: int) -> Link:
        link = cls(target)
        loop = asyncio.get_running_loop()
        link._server = await loop.create_server(lambda: _Pair(link).near, "127.0.0.1", 0)
        link.port = link._server.sockets[0].getsockname()[1]
        return link

    async def close(self) -> None:
        self.break_connections()
        if self._server is not None:
            self._server.close()

    def cut(self, way: Way = Way.BOTH) -> None:
        self._cut |= way
        if self._giving_up is None:
            self._giving_up = asyncio.get_running_loop().call_later(LOG_KEEPALIVE_SECONDS, self._give_up)

    def heal(self) -> None:
        self._cut = Way(0)
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        for pair in list(self._pairs):
            pair.flow()

    def _give_up(self) -> None:
        self._giving_up = None
        self.break_connections()
        if self._cut:
            self._giving_up = asyncio.get_running_loop().call_later(LOG_KEEPALIVE_SECONDS, self._give_up)

    def break_connections(self) -> None:
        for pair in list(self._pairs):
            pair.end()

    def is_cut(self, way: Way) -> bool:
        return way in self._cut


class _Pair:
    """A connection to the link, and the one that it stands for."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.near = _End(self, Way.THERE)
        self.far = _End(self, Way.BACK)
        self.near.other, self.far.other = self.far, self.near
        self._connecting: asyncio.Task[None] | None = None
        link._pairs.add(self)
        link.accepted += 1

    def flow(self) -> None:
        if self.far.transport is None and self._connecting is None and not self.link.is_cut(Way.THERE):
            self._connecting = asyncio.ensure_future(self._connect())
        for end in (self.near, self.far):
            end.flow()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, "127.0.0.1", self.link.target)
        except OSError:
            self.end()

    def end(self) -> None:
        self.link._pairs.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()


class _End(asyncio.Protocol):
    def __init__(self, pair: _Pair, way: Way) -> None:
        self._pair = pair
        self._way = way  # of what is read here
        self.other: _End
        self.transport: asyncio.Transport | None = None
        self._held = b""
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._pair not in self._pair.link._pairs:  # the other end is gone
            self.transport.abort()
            return
        self._pair.flow()

    def data_received(self, data: bytes) -> None:
        if self._way is Way.BACK:
            for found, instead in self._pair.link.replaced.items():
                data = data.replace(found, instead)
        self._held += data
        self.flow()

    def flow(self) -> None:
        """Pass on what is held, and the end of the connection, unless this direction is cut."""
        far = self.other.transport
        if far is None or self._pair.link.is_cut(self._way):
            return
        if self._held and not far.is_closing():
            far.write(self._held)
            self._held = b""
        if self._is_lost:
            far.close()
            if self.other._is_lost:
                self._pair.end()

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self.other.transport is None:
            self._pair.end()
        else:
            self.flow()
