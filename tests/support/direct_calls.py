"""Connections between nodes, in the tests' own process: calls go straight to the functions of the other node, and break
or arrive damaged where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from armillary.cluster.peers.calls import Answer, Handler, PeerGone


class DirectCalls:
    """What node `name` calls others with."""

    def __init__(self, name: str, nodes: Mapping[str, Mapping[str, Handler]]) -> None:
        self._name = name
        self._nodes = nodes
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.breaks_at: set[int] = set()  # numbers of calls, from 0
        self.damages_at: set[int] = set()

    async def call(self, node: str, name: str, head: dict[str, Any], body: bytes, *, limit_s: float) -> Answer:
        number = len(self.asked)
        self.asked.append((name, head))
        await asyncio.sleep(0)
        if number in self.breaks_at:
            raise gone()
        answered, content = await self._nodes[node][name](self._name, head, body)
        if number in self.damages_at and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        return answered, content

    def received(self, name: str, file: str | None = None) -> int:
        return sum(asked == name and file in (None, head.get("file")) for asked, head in self.asked)


def gone() -> PeerGone:
    return PeerGone("The connection broke.", was_sent=True)
