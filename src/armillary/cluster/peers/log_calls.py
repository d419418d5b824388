"""Calls between nodes that are about one of several logs: their heads have its number. Without one, log 0 is meant:
calls about it are those of clusters that have no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from armillary import limits
from armillary.cluster.peers.calls import Answer, Handler
from armillary.errors import Failure, Kind, bad_request

LOG: Final = "log"


class Call(Protocol):
    """`Peers.call`: raises the Failure with which the other node refuses, or PeerGone."""

    async def __call__(self, node: str, name: str, head: dict[str, Any], body: bytes, *, limit_s: float) -> Answer: ...


def log_of(head: dict[str, Any]) -> int:
    """The log that a call is about."""
    number = head.get(LOG, 0)
    if type(number) is not int or not 0 <= number < limits.CLUSTER_LOGS_MAX:
        raise bad_request("A log is named by its number.")
    return number


def about(number: int, head: dict[str, Any]) -> dict[str, Any]:
    """The head of a call about a log."""
    return head | {LOG: number} if number else head


def calls_about(number: int, call: Call) -> Call:
    """Calls of a component that knows only its own log."""

    async def named(node: str, name: str, head: dict[str, Any], body: bytes, *, limit_s: float) -> Answer:
        return await call(node, name, about(number, head), body, limit_s=limit_s)

    return named


def answered_by_log(names: Iterable[str], find: Callable[[int], dict[str, Handler] | None]) -> dict[str, Handler]:
    """Handlers that leave a call to the log which it is about. `find`: the handlers of a log; None: this node does not
    carry it, or not yet."""

    def answer(name: str) -> Handler:
        async def answered(caller: str, head: dict[str, Any], body: bytes) -> Answer:
            number = log_of(head)
            handlers = find(number)
            if handlers is None:
                raise not_carried(number)
            return await handlers[name](caller, head, body)

        return answered

    return {name: answer(name) for name in names}


def not_carried(number: int) -> Failure:
    return Failure(Kind.UNAVAILABLE, f"This node does not carry log {number} of the cluster.", retry_after_ms=1_000)
