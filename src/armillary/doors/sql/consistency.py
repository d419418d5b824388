"""The SQL door on a node of a cluster: which requests only the leader answers, at which level a request reads, and what
answers tell about the node. What a level needs is decided by `account/visits/consistency.py`. The door of a single
server uses none of this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from armillary.account.topology import Topology
from armillary.account.visits import consistency
from armillary.account.visits.visits import check_known_ranges
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.headers import Headers, PostMeaning
from armillary.doors.sql.routes import RouteKind, parse_route
from armillary.doors.sql.session_tokens import SESSION_TOKEN, session_token
from armillary.errors import Failure, Kind
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Request, Response

_READING: Final = ("GET", "HEAD")
_STRONGER: Final = frozenset((h.READ_STRATEGY, h.HUB_REGION))  # may ask for more than the account's level
_ANYWHERE: Final = (RouteKind.ACCOUNT, RouteKind.ADDRESSES)


def needs_leader(request: Request, account_level: str) -> bool:
    """Whether the node that leads must answer a request: those that may write, and strong reads. A request that is
    malformed can be refused by any node."""
    method, headers = request.method, request.headers
    if method == "OPTIONS":
        return False
    if method in _READING and account_level != consistency.STRONG and _STRONGER.isdisjoint(headers):
        return False
    try:
        route = parse_route(request.target)
        if method in _READING:
            return route.kind not in _ANYWHERE and _read_level(headers, account_level) == consistency.STRONG
        if method == "POST" and route.kind is RouteKind.FEED:
            meaning = h.post_meaning(headers)
            if meaning.is_read:
                is_plan = meaning is PostMeaning.QUERY_PLAN
                return not is_plan and _read_level(headers, account_level) == consistency.STRONG
    except Failure:
        return False
    return True


async def answer_read(
    topology: Topology, call: Call, action: Callable[[Call], Awaitable[Response]], *, is_anywhere: bool
) -> Response:
    """Answer a request that writes nothing, at the level that it asks for. `is_anywhere`: any node answers it, whatever
    the level."""
    headers, level = call.headers, call.account.settings.consistency
    if h.CONSISTENCY in headers or not _STRONGER.isdisjoint(headers):
        level = _read_level(headers, level)
    if is_anywhere:
        level = consistency.EVENTUAL
    names_ranges = SESSION_TOKEN in headers or h.CHANGE_FEED in headers

    async def attempt() -> Response:
        if names_ranges and not topology.may_answer_strongly:
            _check_known(call, level)
        return await action(call)

    return await consistency.read(call.account, topology, level, attempt)


def _read_level(headers: Headers, account_level: str) -> str:
    """The level at which a node must answer a read. Clients that met regions which are behind ask for the write region:
    here the node that leads."""
    level = h.consistency(headers, account_level)
    return consistency.STRONG if h.flag(headers, h.HUB_REGION) else level


def _check_known(call: Call, level: str) -> None:
    """Refuse a session token or a list of ranges that names ranges which this node does not know yet."""
    route, headers = call.route, call.headers
    if route.kind is not RouteKind.FEED and route.resource_type != "docs":
        return
    if route.resource_type == "docs":
        if level == consistency.SESSION and headers.get(SESSION_TOKEN):
            check_known_ranges(call.account.owner_container(*route.segments[:2]), session_token(headers))
    elif route.resource_type == "pkranges" and headers.get(h.CHANGE_FEED):
        container = call.account.owner_container(*route.segments[:2])
        if container.is_newer(h.text(headers, h.IF_NONE_MATCH)):
            raise Failure(Kind.SESSION_BEHIND, "The list of ranges that the request goes on from is newer than this.")


class NodeHeaders:
    """What every answer of a cluster's node tells about it. `x-ms-number-of-read-regions` counts the regions beside the
    write region, as the service does."""

    def __init__(self) -> None:
        self._version = -1
        self._pairs: HeaderList = []
        self._lines = b""

    def add_to(self, response: Response, topology: Topology) -> None:
        if topology.version != self._version:
            self._make(topology)
        if response.lines:
            response.lines += self._lines
        else:
            response.headers = [*response.headers, *self._pairs]

    def _make(self, topology: Topology) -> None:
        self._version = topology.version
        self._pairs = [
            (b"x-ms-number-of-read-regions", b"%d" % max(0, len(topology.regions) - 1)),
            (b"x-armillary-region", _plain(topology.region)),
            (b"x-armillary-node", _plain(topology.name)),
        ]
        self._lines = b"".join([b"\r\n%b: %b" % pair for pair in self._pairs])


def _plain(name: str) -> bytes:
    return "".join([character if " " <= character <= "~" else "?" for character in name]).encode("ascii")
