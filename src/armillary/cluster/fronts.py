"""What stands between the ports of a node and its doors. The doors are exchanged when the node's role changes; their
ports stay open. A front holds requests while there is no door, and sends to the leader what this node must not answer.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from armillary import limits
from armillary.account.topology import Topology
from armillary.clock import Clock
from armillary.cluster.forwarding import Forwarder, LeadsHere, OutcomeUnknown, answer_of, request_of
from armillary.cluster.peers.calls import Answer
from armillary.errors import Failure, Kind
from armillary.net.http import (
    AnswerAtOnce,
    AtOnce,
    BareResponse,
    MainDoor,
    Refusal,
    Request,
    Response,
    crash_as_json,
    refuse_as_json,
)

# A follower that gives one of these does not know, or may not: the leader is asked.
_ASK_LEADER: Final = frozenset(
    (Kind.NOT_LEADER, Kind.SESSION_BEHIND, Kind.STALE_HERE, Kind.OWNER_NOT_FOUND, Kind.NAME_STALE, Kind.STALE_CONTAINER)
)
_NO_ROLE: Final = "This node of the cluster has not found its role yet. Try again."
_UNKNOWN: Final = (
    "The connection to the leader of the cluster broke. Whether this write was stored is not known: read before "
    "writing it again."
)
_RETRY: Final = (b"Retry-After", b"1")


class HttpDoor(MainDoor, Protocol):
    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool: ...


class HttpFront:
    """The front of a port that speaks HTTP."""

    def __init__(
        self, name: str, forwarder: Forwarder, topology: Topology, clock: Clock, *, control_prefix: bytes | None = None
    ) -> None:
        """`control_prefix`: what the targets of the control API begin with, if it is on this port."""
        self._name = name
        self._forwarder = forwarder
        self._topology = topology
        self._clock = clock
        self._health = control_prefix + b"/health" if control_prefix is not None else b""
        self._ready = control_prefix + b"/ready" if control_prefix is not None else b""
        self._control = control_prefix or b"\0"
        self._door: HttpDoor | None = None
        self._last: HttpDoor | None = None  # gives refusals their form while there is no door
        self._is_leaders = False
        self._at_once: AnswerAtOnce | None = None
        self._arrived = asyncio.Event()

    def use(self, door: HttpDoor, *, is_leaders: bool, at_once: AnswerAtOnce | None = None) -> None:
        self._door = self._last = door
        self._is_leaders = is_leaders
        self._at_once = at_once
        self._arrived.set()

    def close(self) -> None:
        """Hold requests until there is another door."""
        self._door = self._at_once = None
        self._arrived.clear()

    # What the port asks.

    async def answer(self, request: Request) -> Response:
        door = self._door
        if door is None:
            if request.target == self._health:
                return BareResponse(200, ((b"Content-Type", b"application/json"),), b'{"status":"ok"}')
            door = await self._next_door() if request.target != self._ready else None
            if door is None:
                return self.refuse(503, _NO_ROLE)
        if self._is_leaders:
            version = self._topology.version
            response = await door.answer(request)
            if not isinstance(response, Refusal) or response.kind is not Kind.NOT_LEADER:
                return response
            return await self._forward(door, request, response, version)
        if door.needs_leader(request):
            return await self._forward(door, request, None, None)
        response = await door.answer(request)
        if not isinstance(response, Refusal) or response.kind not in _ASK_LEADER:
            return response
        return await self._forward(door, request, response, None)

    def answer_at_once(self, request: Request) -> AtOnce:
        return self._at_once(request) if self._at_once is not None else None

    def refuse(self, status: int, message: str) -> Response:
        return self._last.refuse(status, message) if self._last is not None else refuse_as_json(status, message)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        return self._last.on_crash(request, exception) if self._last is not None else crash_as_json(request, exception)

    def screen(self, request: Request) -> Response | None:
        return self._door.screen(request) if self._door is not None else self.refuse(503, _NO_ROLE)

    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool:
        return self._door is not None and self._door.allows_origin(method, headers)

    # Other nodes.

    async def answer_forwarded(self, head: dict[str, object], body: bytes) -> Answer:
        """A request that another node has forwarded to this one, because it leads."""
        door = self._door if self._is_leaders else None
        if door is None:
            raise Failure(Kind.NOT_LEADER, "This node does not lead the cluster.")
        return answer_of(await door.answer(request_of(head, body)))

    async def _forward(
        self, door: HttpDoor, request: Request, instead: Response | None, refused_version: int | None
    ) -> Response:
        """`instead`: what this node would answer, given if no leader can be asked and it is a refusal that clients
        understand."""
        refusal = door.screen(request)  # a stranger's request is not worth another node's time
        if refusal is not None:
            return refusal
        request.is_known = True
        try:
            return await self._forwarder.send(self._name, request, refused_version)
        except LeadsHere:
            present = self._door or await self._next_door()
            if present is not None:
                return await present.answer(request)  # at most once: the client decides about more attempts
            return self.refuse(503, _NO_ROLE)
        except OutcomeUnknown:
            return self._unavailable(_UNKNOWN)
        except Failure as failure:
            return instead if instead is not None else self._unavailable(failure.message)

    def _unavailable(self, message: str) -> Response:
        refused = self.refuse(503, message)
        refused.headers = [*refused.headers, _RETRY]
        return refused

    async def _next_door(self) -> HttpDoor | None:
        """The door of the next role; None if it takes too long."""
        arrival = asyncio.ensure_future(self._arrived.wait())
        pause = asyncio.ensure_future(self._clock.sleep(limits.ROLE_WAIT_SECONDS_MAX))
        try:
            await asyncio.wait([arrival, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrival.cancel()
            pause.cancel()
        return self._door
