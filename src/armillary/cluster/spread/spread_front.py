"""The front of a port that speaks HTTP, on a node of a cluster with several logs: the node's own door answers for all
partitions. What is about the account as a whole goes to the node that has the catalog.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary import limits
from armillary.account.topology import Topology
from armillary.clock import Clock
from armillary.cluster.forwarding import Forwarder
from armillary.cluster.fronts import HttpFront
from armillary.errors import Kind
from armillary.net.http import AtOnce, Refusal, Request, Response


class SpreadFront(HttpFront):
    def __init__(
        self,
        name: str,
        forwarder: Forwarder,
        topology: Topology,
        clock: Clock,
        may_answer: Callable[[], bool],
        *,
        control_prefix: bytes | None = None,
    ) -> None:
        """`may_answer`: whether this node knows the catalog as it is."""
        super().__init__(name, forwarder, topology, clock, control_prefix=control_prefix)
        self._may_answer = may_answer

    async def answer(self, request: Request) -> Response:
        if request.target == self._health:
            return await super().answer(request)
        is_asked = request.target == self._ready  # whether this node may be asked
        if not self._may_answer() and (is_asked or not await self._until_may_answer()):
            return self._unavailable("This node of the cluster does not reach the one that has the catalog. Try again.")
        door = self._door or await self._next_door()
        if door is None or is_asked:
            return await super().answer(request)
        if self._is_account_wide(request) and not self._topology.leads:
            return await self._forward(door, request, None, None)
        until_s = self._clock.monotonic_s() + limits.FORWARD_SECONDS_MAX
        while True:
            version = self._topology.version
            response = await door.answer(request)
            if not isinstance(response, Refusal) or response.kind is not Kind.NOT_LEADER:
                return response
            # Nothing was done, since another node leads the log by now.
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return self._unavailable("No node of the cluster leads at the moment. Try again.")
            await self._topology.changed(version, min(left_s, limits.FORWARD_RETRY_SECONDS))
            present = self._door or await self._next_door()
            if present is None:
                return response
            door = present

    def _is_account_wide(self, request: Request) -> bool:
        """What operators ask about the cluster, any node answers."""
        target = request.target
        return target.startswith(self._control) and not target.startswith(self._control + b"/cluster")

    def answer_at_once(self, request: Request) -> AtOnce:
        return super().answer_at_once(request) if self._may_answer() else None

    async def _until_may_answer(self) -> bool:
        until_s = self._clock.monotonic_s() + limits.ROLE_WAIT_SECONDS_MAX
        while not self._may_answer():
            if self._clock.monotonic_s() >= until_s:
                return False
            await self._clock.sleep(limits.FORWARD_RETRY_SECONDS)
        return True
