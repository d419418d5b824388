"""Calls between the nodes of a cluster, on one connection per pair of nodes.

A node listens, is told where the others are (`use`), and connects to one when the first call to it is made; either side
calls on that connection. Two nodes that connect to each other at the same time have two, which does no harm. Calls are
answered by `handlers`, by their names. TLS always; who may connect is decided by `handshake.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final

from armillary import limits
from armillary.clock import Clock, within
from armillary.cluster.peers.connection import Answer, Attempt, Handler, OnRelay, PeerConnection, PeerGone
from armillary.cluster.peers.greetings import AcceptedConnection, DialedConnection
from armillary.cluster.peers.handshake import connecting_context
from armillary.net.listen import bind

__all__ = ["Answer", "Handler", "PeerGone", "Peers"]

_log = logging.getLogger(__name__)
_ACCEPT_AGAIN_S: Final = 0.5  # after the process has run out of descriptors
_TLS_CLOSE_S: Final = 1.0


class Peers:
    def __init__(self, node: str, key: bytes, clock: Clock) -> None:
        """`key`: the cluster's (`ReplicatedLog.cluster_key`)."""
        self.handlers: dict[str, Handler] = {}
        self.on_relay: OnRelay | None = None
        self.clock = clock
        self._node = node
        self._key = key
        self._clock = clock
        self._context = connecting_context()
        self._addresses: dict[str, tuple[str, bytes]] = {}
        self._dialed: dict[str, tuple[tuple[str, bytes], PeerConnection]] = {}
        self._accepted: dict[str, PeerConnection] = {}  # the newest of each node
        self._connections: set[PeerConnection] = set()
        self._dialing: dict[str, asyncio.Task[PeerConnection]] = {}
        self._strangers: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._unreached: set[str] = set()  # nodes to which the last attempt to connect failed

    async def listen(self, host: str, port: int, context: ssl.SSLContext, fingerprint: bytes) -> int:
        """Accept connections of other nodes. Returns the port, which the system chooses if it is 0."""
        assert not self._listening
        self._listening = await bind(host, port)
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(each, context, fingerprint)) for each in self._listening]
        found: int = self._listening[0].getsockname()[1]
        return found

    def use(self, addresses: Mapping[str, tuple[str, bytes]]) -> None:
        """Where the other nodes are: HOST:PORT and the fingerprint of the certificate, by name. Connections to
        addresses that are not among them any more are closed."""
        self._addresses = {name: address for name, address in addresses.items() if name != self._node}
        for name, (address, connection) in list(self._dialed.items()):
            if self._addresses.get(name) != address:
                connection.end("the address of the node has changed")

    async def call(self, node: str, name: str, head: dict[str, Any], body: bytes = b"", *, limit_s: float) -> Answer:
        """Ask another node. Raises the Failure with which it refuses, or PeerGone."""
        attempt = Attempt(name, head, body)
        try:
            return await within(self._clock, limit_s, self._call(node, attempt))
        except TimeoutError:
            raise PeerGone(
                f"Node {node} has not answered the call {name} within {limit_s:g} s.", was_sent=attempt.was_sent
            ) from None

    def is_gone(self, node: str) -> bool:
        """Whether a node was not reached when this one tried last, and has not connected since."""
        connection = self._accepted.get(node)
        return node in self._unreached and (connection is None or not connection.is_open)

    async def relay(self, node: str, head: dict[str, Any], protocol: asyncio.Protocol, *, limit_s: float) -> None:
        """Connect a protocol to the one that another node chooses for it (`on_relay`): a connection of its own, as the
        nodes' own authenticated and encrypted. Raises the Failure with which the other refuses, or PeerGone."""
        try:
            await within(self._clock, limit_s, self._relay(node, head, protocol))
        except TimeoutError:
            raise PeerGone(f"Node {node} was not reached within {limit_s:g} s.", was_sent=False) from None

    async def _relay(self, node: str, head: dict[str, Any], protocol: asyncio.Protocol) -> None:
        connection = await self._dial_anew(node, relays=True)
        try:
            await connection.relay(head, protocol)
        except BaseException:
            connection.end("it was not needed")
            raise

    async def close(self) -> None:
        """End every connection. Calls that are under way raise PeerGone."""
        self._is_closed = True
        tasks = [*self._strangers, *self._dialing.values()]
        tasks += self._accepting
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._listening:
            self._listening.pop().close()
        connections = list(self._connections)
        for connection in connections:
            connection.end("the other node was closed", farewell="the node was closed")
        if connections:
            await asyncio.wait([each.ended for each in connections], timeout=limits.PEER_GREETING_SECONDS)

    # Connections to other nodes.

    async def _call(self, node: str, attempt: Attempt) -> Answer:
        return await (await self._connection_to(node)).call(attempt)

    async def _connection_to(self, node: str) -> PeerConnection:
        assert node != self._node, "a node does not call itself"
        for connection in (self._dialed.get(node, (None, None))[1], self._accepted.get(node)):
            if connection is not None and connection.is_open:
                return connection
        if self._is_closed:
            raise PeerGone("This node is being closed.", was_sent=False)
        if node not in self._dialing:
            self._dialing[node] = asyncio.ensure_future(self._dial(node))
            self._dialing[node].add_done_callback(lambda done: self._dialed_out(node, done))
        dialing = self._dialing[node]
        try:
            return await asyncio.shield(dialing)
        except asyncio.CancelledError:
            if not dialing.cancelled():
                raise
            raise PeerGone("This node is being closed.", was_sent=False) from None

    def _dialed_out(self, node: str, dialing: asyncio.Task[PeerConnection]) -> None:
        self._dialing.pop(node, None)
        if dialing.cancelled():
            return
        if dialing.exception() is not None:  # read here: every call that waited for it may have been cancelled
            self._unreached.add(node)
        else:
            self._unreached.discard(node)

    async def _dial(self, node: str) -> PeerConnection:
        address = self._addresses.get(node)
        connection = await self._dial_anew(node)
        assert address is not None
        self._dialed[node] = address, connection
        return connection

    async def _dial_anew(self, node: str, *, relays: bool = False) -> PeerConnection:
        """Raises PeerGone."""
        address = self._addresses.get(node)
        if address is None:
            raise _unreachable(node, "its address is not known")
        connection = DialedConnection(
            self._node, self._key, address[1], node, self.handlers, self._clock, relays=relays
        )
        try:
            await within(self._clock, limits.PEER_CONNECT_SECONDS, self._reach(address[0], connection))
        except (OSError, ValueError, PeerGone) as error:
            raise _unreachable(node, _reason(error)) from None
        finally:
            if not connection.is_open:
                connection.end("it was not reached in time")
        self._keep(connection)
        if self._addresses.get(node) != address:
            connection.end("the address of the node has changed")
            raise _unreachable(node, "its address has changed")
        return connection

    async def _reach(self, address: str, connection: PeerConnection) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: connection,
            host.strip("[]"),
            int(port),
            ssl=self._context,
            ssl_handshake_timeout=limits.PEER_GREETING_SECONDS,
            ssl_shutdown_timeout=_TLS_CLOSE_S,
        )
        await connection.opened

    # Connections from other nodes.

    async def _accept(self, listening: socket.socket, context: ssl.SSLContext, fingerprint: bytes) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("connections of other nodes cannot be accepted: %s", error.strerror)
                await self._clock.sleep(_ACCEPT_AGAIN_S)
                continue
            if len(self._strangers) >= limits.PEER_STRANGERS_MAX:
                accepted.close()
                continue
            greeting = loop.create_task(self._greet(accepted, context, fingerprint))
            self._strangers.add(greeting)
            greeting.add_done_callback(self._strangers.discard)

    async def _greet(self, accepted: socket.socket, context: ssl.SSLContext, fingerprint: bytes) -> None:
        connection = AcceptedConnection(self._node, self._key, fingerprint, self.handlers, self._clock)
        connection.on_relay = self.on_relay

        async def greet() -> None:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=limits.PEER_GREETING_SECONDS,
                ssl_shutdown_timeout=_TLS_CLOSE_S,
            )
            await connection.opened

        try:
            await within(self._clock, limits.PEER_GREETING_SECONDS, greet())
        except (OSError, TimeoutError, PeerGone) as error:
            _log.info("a connection was not accepted: %s", error)
            return
        finally:
            if not connection.is_open:
                connection.end("it has not proved in time that it knows the key of this cluster")
        self._keep(connection)
        if connection.takes_calls:
            self._accepted[connection.node] = connection

    def _keep(self, connection: PeerConnection) -> None:
        self._connections.add(connection)
        connection.ended.add_done_callback(lambda _: self._forget(connection))

    def _forget(self, connection: PeerConnection) -> None:
        self._connections.discard(connection)
        if self._accepted.get(connection.node) is connection:
            del self._accepted[connection.node]
        if self._dialed.get(connection.node, (None, None))[1] is connection:
            del self._dialed[connection.node]


def _unreachable(node: str, reason: str) -> PeerGone:
    return PeerGone(f"Node {node} cannot be reached: {reason}.", was_sent=False)


def _reason(error: Exception) -> str:
    if isinstance(error, PeerGone):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ValueError):
        return "its address is not HOST:PORT"
    return (error.strerror if isinstance(error, OSError) else None) or "the connection was refused"
