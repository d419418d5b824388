"""Nodes that call each other, on sockets of this machine and a clock that the test moves."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any

import orjson

from armillary.clock import VirtualClock
from armillary.cluster.peers.calls import Answer, Peers
from armillary.cluster.peers.frames import Frame, FrameKind, FrameParser, packed
from armillary.cluster.peers.handshake import connecting_context

KEY = b"the key of the cluster of a test"
Certificate = tuple[ssl.SSLContext, bytes]


async def two_nodes(clock: VirtualClock, certificate: Certificate) -> tuple[Peers, Peers]:
    """`a` and `b`, which know where the other is. Each has the call `echo`."""
    nodes = {name: Peers(name, KEY, clock) for name in ("a", "b")}
    addresses = {}
    for name, peers in nodes.items():
        peers.handlers["echo"] = echo
        port = await peers.listen("127.0.0.1", 0, *certificate)
        addresses[name] = f"127.0.0.1:{port}", certificate[1]
    for peers in nodes.values():
        peers.use(addresses)
    return nodes["a"], nodes["b"]


def port_of(peers: Peers) -> int:
    port: int = peers._listening[0].getsockname()[1]
    return port


async def echo(node: str, head: dict[str, Any], body: bytes) -> Answer:
    return {"caller": node, **head}, body


class Stranger:
    """A client that sends what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = FrameParser()

    @classmethod
    async def connected(cls, port: int) -> Stranger:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=connecting_context()))

    def send(self, kind: FrameKind, head: dict[str, Any] | None = None, body: bytes = b"", call: int = 1) -> None:
        self.send_bytes(b"".join(packed(kind, call, head, body)))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def frame(self) -> Frame | None:
        """The next one; None: the connection was ended."""
        while True:
            for frame in self._parser.feed(b""):
                return frame
            try:
                data = await self._reader.read(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return None
            for frame in self._parser.feed(data):
                return frame

    async def is_cut_off(self) -> bool:
        """Whether the other side ends the connection without another word."""
        ended = await self.frame() is None
        self.close()
        return ended

    def close(self) -> None:
        self._writer.transport.abort()


def raw_frame(length: int, kind: int, head_bytes: int, rest: bytes = b"") -> bytes:
    return struct.pack(">IBQI", length, kind, 1, head_bytes) + rest


def raw_head(head: Any) -> bytes:
    text = orjson.dumps(head)
    return raw_frame(13 + len(text), FrameKind.PROOF, len(text), text)
