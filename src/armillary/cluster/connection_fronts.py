"""The fronts of the ports that speak in connections, MongoDB and Gremlin. A connection is of the door that the node has
when it begins; it ends when the role changes, and the client connects again. What a follower cannot serve is relayed to
the leader as bytes: Gremlin always, MongoDB for clients that take the cluster for one server behind a load balancer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from armillary import limits
from armillary.account.topology import Topology
from armillary.cluster.peers.calls import PeerGone, Peers
from armillary.errors import Failure, Kind
from armillary.net.connection_limits import Guest
from armillary.net.service import Roster

_log = logging.getLogger(__name__)
Make = Callable[[Roster, Guest | None, Any], asyncio.Protocol]  # the protocol of a new connection to a door
# Whether a connection that begins with these bytes has to be relayed; None: more bytes are needed.
Judge = Callable[[bytes], bool | None]


class ConnectionFront:
    def __init__(self, name: str, peers: Peers, topology: Topology, make: Make, judge: Judge | None = None) -> None:
        """`judge`: which connections to a follower are relayed; None: all."""
        self._make = make
        self._name = name
        self._peers = peers
        self._topology = topology
        self._judge = judge
        self._door: Any = None
        self._is_leaders = False
        self._port: Roster | None = None
        self._roster: Roster | None = None  # the connections of the present role

    def serve(self, port: Roster) -> None:
        """The port is open."""
        self._port = port

    def use(self, door: Any, *, is_leaders: bool) -> None:
        self._door = door
        self._is_leaders = is_leaders
        if self._port is not None:
            self._roster = self._port.another()
            self._roster.start()

    async def close(self) -> None:
        """End the connections of the door that there was: those that are being answered have a moment for it."""
        self._door = None
        roster, self._roster = self._roster, None
        if roster is not None:
            await roster.close(limits.ROLE_GRACE_SECONDS)

    def connect(self, port: Roster, guest: Guest) -> asyncio.Protocol:
        """The protocol of a connection that came to the port."""
        if self._roster is None:
            return _Refused(guest)
        if self._is_leaders:
            return self._make(self._roster, guest, self._door)
        if self._judge is None:
            return Relayed(self, self._roster, guest, b"")
        return _Undecided(self, self._roster, guest, self._judge)

    def connect_here(self, guest: Guest) -> asyncio.Protocol:
        return self._make(self._roster, guest, self._door) if self._roster is not None else _Refused(guest)

    def accept_relayed(self, head: Mapping[str, Any]) -> asyncio.Protocol:
        """The protocol of a connection that another node relays to this one, because it leads. MongoDB's tells clients
        the address that they have reached, and they use it from then on."""
        if self._roster is None or not self._is_leaders:
            raise Failure(Kind.NOT_LEADER, "This node does not lead the cluster.")
        made = self._make(self._roster, None, self._door)
        reached = head.get("reached")
        if reached is not None and hasattr(made, "reached"):
            made.reached = str(reached[0]), int(reached[1])
        return made

    async def relay(self, protocol: asyncio.Protocol, reached: Sequence[Any] | None = None) -> None:
        """Connect a protocol to the leader's door. `reached`: where the client has connected to."""
        head: dict[str, Any] = {"door": self._name}
        if reached is not None:
            head["reached"] = list(reached[:2])
        until_s = self._peers.clock.monotonic_s() + limits.FORWARD_SECONDS_MAX
        while (left_s := until_s - self._peers.clock.monotonic_s()) > 0:
            leader, version = self._topology.leader, self._topology.version
            if leader is not None and not self._topology.leads:
                try:
                    await self._peers.relay(leader.name, head, protocol, limit_s=left_s)
                    return
                except (PeerGone, Failure) as error:
                    _log.info("a connection cannot be relayed yet: %s", error)
            await self._topology.changed(version, limits.FORWARD_RETRY_SECONDS)
        raise PeerGone("No node of the cluster leads at the moment.", was_sent=False)


class _Refused(asyncio.Protocol):
    """There is no door: the client is to come again."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._guest.leave()
        cast(asyncio.Transport, transport).close()


class _Undecided(asyncio.Protocol):
    """A connection of which the first message decides whether it is relayed."""

    def __init__(self, front: ConnectionFront, roster: Roster, guest: Guest, judge: Judge) -> None:
        self.guest = guest
        self._front = front
        self._roster = roster
        self._judge = judge
        self._first = b""
        self._transport: asyncio.Transport | None = None
        self._begun_s = roster.now_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.guest.evict = self._transport.abort
        if not self._roster.admit(self) or self._roster.is_closing:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._first += data
        is_relayed = self._judge(self._first)
        if is_relayed is None:
            return
        chosen: asyncio.Protocol = (
            Relayed(self._front, self._roster, self.guest, self._first)
            if is_relayed
            else self._front.connect_here(self.guest)
        )
        transport, self._transport = self._transport, None
        self._roster.pass_on(self)
        transport.set_protocol(chosen)
        chosen.connection_made(transport)
        if not is_relayed:
            chosen.data_received(self._first)

    def connection_lost(self, exception: Exception | None) -> None:
        self._roster.forget(self)

    def sweep(self, now_s: float) -> None:
        if now_s - self._begun_s > self._roster.patience.head_s:
            self.abort()

    def retire(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Relayed(asyncio.Protocol):
    """A client's connection whose bytes go to the leader, and the leader's back. Each side is read only as fast as the
    other takes it."""

    def __init__(self, front: ConnectionFront, roster: Roster, guest: Guest, first: bytes) -> None:
        self.guest = guest
        self._front = front
        self._roster = roster
        self._first: bytes | None = first  # not sent yet; None: the leader is reached
        self._transport: asyncio.Transport | None = None
        self._leader = _LeaderSide(self)
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.guest.evict = self._transport.abort
        if not self._roster.admit(self) or self._roster.is_closing:
            self._transport.close()
            return
        self._transport.pause_reading()
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        assert self._transport is not None
        try:
            reached = self._transport.get_extra_info("sockname")
            await self._front.relay(self._leader, reached if isinstance(reached, tuple) else None)
        except PeerGone as gone:
            _log.info("a connection was not relayed: %s", gone)
            self._transport.abort()
            return
        if self._transport.is_closing():
            self._leader.abort()
            return
        first, self._first = self._first, None
        if first:
            self._leader.write(first)
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._first is None:
            self._leader.write(data)
        else:  # uvloop begins to read after `connection_made`, whatever that has asked for
            self._first += data
            self.hold(True)

    def pause_writing(self) -> None:
        self._leader.hold(True)

    def resume_writing(self) -> None:
        self._leader.hold(False)

    def connection_lost(self, exception: Exception | None) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._leader.abort()
        self._roster.forget(self)

    # The leader's side.

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def hold(self, is_held: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()

    def end(self) -> None:
        """What the leader has sent still goes out."""
        if self._transport is not None:
            self._transport.close()

    # The roster's side.

    def sweep(self, now_s: float) -> None:
        """The leader's own connection watches over what is said."""

    def retire(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _LeaderSide(asyncio.Protocol):
    def __init__(self, client: Relayed) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def pause_writing(self) -> None:
        self._client.hold(True)

    def resume_writing(self) -> None:
        self._client.hold(False)

    def connection_lost(self, exception: Exception | None) -> None:
        self._client.end()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def hold(self, is_held: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if is_held else self._transport.resume_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
