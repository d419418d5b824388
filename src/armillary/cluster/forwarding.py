"""Requests that another node must answer: sent to the leader as they came, once, and its answer is given. The leader's
door verifies their signatures as if the client had come to it.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import limits
from armillary.account.topology import Topology
from armillary.clock import Clock
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.errors import Failure, Kind
from armillary.net.http import BareRefusal, BareResponse, Refusal, Request, Response

CALL: Final = "http"
_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")


class LeadsHere(Exception):
    """This node leads by now: the request is to be answered here."""


class OutcomeUnknown(Exception):
    """The connection to the leader broke after a write was sent."""


class Forwarder:
    def __init__(self, node: str, peers: Peers, topology: Topology, clock: Clock) -> None:
        self._node = node
        self._peers = peers
        self._topology = topology
        self._clock = clock
        self.count = 0  # requests that were forwarded

    async def send(self, door: str, request: Request, refused_version: int | None) -> Response:
        """The leader's answer to a request. Raises what `call` raises."""
        self.count += 1
        is_safe = request.method in _SAFE_METHODS
        answer = await self.call(CALL, request_head(door, request), request.body, is_safe, refused_version)
        return response_of(*answer)

    async def call(
        self, name: str, head: dict[str, Any], body: bytes, is_safe: bool, refused_version: int | None = None
    ) -> Answer:
        """The leader's answer to a call. Waits while no node leads, for a limited time. Raises LeadsHere,
        OutcomeUnknown, or a Failure if the leader cannot be reached. `is_safe`: it may be sent again after the
        connection broke. `refused_version`: of the topology, when this node refused the request because it had ceased
        to lead; it is not asked again before something has changed."""
        until_s = self._clock.monotonic_s() + limits.FORWARD_SECONDS_MAX
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            topology, version = self._topology, self._topology.version
            if topology.leads and version != refused_version:
                raise LeadsHere
            leader = topology.leader
            if leader is not None and leader.name != self._node:
                try:
                    answer = await self._peers.call(leader.name, name, head, body, limit_s=left_s)
                    if answer[0].get("kind") != Kind.NOT_LEADER.name:
                        return answer
                except PeerGone as gone:
                    if gone.was_sent and not is_safe:
                        raise OutcomeUnknown from gone
                except Failure as failure:
                    if failure.kind is not Kind.NOT_LEADER:
                        raise
            await topology.changed(version, limits.FORWARD_RETRY_SECONDS)
        raise Failure(
            Kind.UNAVAILABLE,
            "No node of the cluster leads at the moment, or this one does not reach it. Try again.",
            retry_after_ms=1_000,
        )


def request_head(door: str, request: Request) -> dict[str, Any]:
    return {
        "door": door,
        "method": request.method,
        "target": request.target.decode("latin-1"),
        "headers": _as_text(request.headers.items()),
        "is_tls": request.is_tls,
        "peer": request.peer,
        "is_known": request.is_known,
        "has_certificate": request.has_certificate,
    }


def request_of(head: dict[str, Any], body: bytes) -> Request:
    request = Request(
        head["method"],
        head["target"].encode("latin-1"),
        {name.encode("latin-1"): value.encode("latin-1") for name, value in head["headers"]},
        body,
        head["is_tls"],
        head["peer"],
        head["has_certificate"],
    )
    request.is_known = head["is_known"]
    return request


def answer_of(response: Response) -> Answer:
    head = {
        "status": response.status,
        "headers": _as_text(response.headers),
        "lines": response.lines.decode("latin-1"),
        "is_bare": response.is_bare,
        "kind": response.kind.name if isinstance(response, Refusal) else None,
    }
    return head, response.body


def response_of(head: dict[str, Any], body: bytes) -> Response:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]]
    if head["kind"] is not None:
        refusal = BareRefusal if head["is_bare"] else Refusal
        return refusal(Kind[head["kind"]], head["status"], headers, body)
    kind = BareResponse if head["is_bare"] else Response
    return kind(head["status"], headers, body, head["lines"].encode("latin-1"))


def _as_text(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
