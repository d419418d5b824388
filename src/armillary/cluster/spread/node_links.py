"""The connections of a node to all others, over which they ask each other for partitions. Of two nodes the one whose
name comes first connects, and again when the connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.peers.calls import PeerGone, Peers
from armillary.cluster.spread.node_connections import DOOR, NodeConnection, node_number
from armillary.cluster.spread.node_here import NodeHere
from armillary.cluster.spread.node_places import NodePlaces
from armillary.errors import Failure, Kind

_log = logging.getLogger(__name__)


class NodeLinks:
    """Of one run of a node."""

    def __init__(
        self,
        node: str,
        peers: Peers,
        here: NodeHere,
        places: NodePlaces,
        names: Callable[[], Iterable[str]],
        clock: Clock,
    ) -> None:
        """`names`: of the other nodes that are alive."""
        self._node = node
        self._peers = peers
        self._here = here
        self._places = places
        self._names = names
        self._clock = clock
        self._connections: dict[str, NodeConnection] = {}
        self._dialing: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False
        self._tasks = [asyncio.create_task(self._keep_connected()), asyncio.create_task(self._beat())]

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._tasks, *self._dialing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.end()

    def accept(self, caller: str, head: dict[str, Any]) -> NodeConnection:
        """Another node connects."""
        if self._is_closed:
            raise Failure(Kind.UNAVAILABLE, "This node of the cluster is being closed.")
        return self._new(caller)

    def _new(self, name: str) -> NodeConnection:
        self._places.know([name])
        former = self._connections.get(name)
        if former is not None:
            former.end()
        connection = NodeConnection(self._here, self._places.number, self._places.write_ids, node_number(name))
        self._connections[name] = connection
        return connection

    async def _keep_connected(self) -> None:
        while True:
            for name in self._names():
                connection = self._connections.get(name)
                is_missing = connection is None or connection.ended
                if self._node < name and is_missing and name not in self._dialing:
                    self._dialing[name] = dialing = asyncio.create_task(self._dial(name))
                    dialing.add_done_callback(lambda _, name=name: self._dialing.pop(name, None))  # type: ignore[misc]
            await self._clock.sleep(limits.LINK_DIAL_SECONDS)

    async def _dial(self, name: str) -> None:
        connection = self._new(name)
        try:
            await self._peers.relay(name, {"door": DOOR}, connection, limit_s=limits.PEER_CONNECT_SECONDS)
        except (PeerGone, Failure) as error:
            _log.info("node %s is not connected yet: %s", name, error)
            connection.ended = True

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(limits.PEER_BEAT_SECONDS)
            for connection in self._connections.values():
                connection.beat()
