"""What an operator does with a cluster that has several logs, beside what `operations.py` has for all: a node that is
drained gives up all logs, and one that is removed is counted by none of them. A failover is one of log 0, and so of the
catalog.
"""

from __future__ import annotations

from armillary.clock import Clock
from armillary.cluster.forwarding import Forwarder
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.membership import Membership, is_alive
from armillary.cluster.operations import Operations, Served
from armillary.cluster.peers.calls import Peers
from armillary.cluster.status import StatusReader
from armillary.cluster.verification import Verification
from armillary.errors import Failure, Kind
from armillary.storage.log.replicated_log import LogUnavailable


class _Logs:
    """Implements `Led`: leading is about log 0, draining about all."""

    def __init__(self, logs: NodeLogs) -> None:
        self._logs = logs

    @property
    def leads(self) -> bool:
        return 0 in self._logs.led

    @property
    def is_drained(self) -> bool:
        return self._logs.is_drained

    def hand_over(self, successor: str = "") -> None:
        self._logs.replicas[0].leadership.hand_over(successor)

    def drain(self, is_drained: bool) -> None:
        self._logs.drain(is_drained)


class SpreadOperations(Operations):
    def __init__(
        self, logs: NodeLogs, peers: Peers, membership: Membership, served: Served, forwarder: Forwarder, clock: Clock
    ) -> None:
        """The replica of log 0 is open."""
        self._logs = logs
        replica, led = logs.replicas[0], _Logs(logs)
        reader = StatusReader(replica.log, replica.engine, peers, membership, led, forwarder, clock)
        verification = Verification(replica.engine, peers, membership)
        super().__init__(replica.log, peers, membership, led, served, reader, verification, clock)

    async def begin_verification(self) -> int:
        raise Failure(Kind.UNSUPPORTED, "The states of nodes are compared in clusters with one log only.")

    async def remove(self, node: str) -> None:
        try:
            await self._remove_from_logs(node)
        except LogUnavailable as error:
            raise Failure(Kind.UNAVAILABLE, f"The replicated log does not answer: {error}.") from None
        await super().remove(node)

    async def _remove_from_logs(self, node: str) -> None:
        """From all but log 0, which is the last: until then the command can be repeated."""
        states = await self._logs.logs.leaders()
        if any(each.node == node and is_alive(each) for each in self._membership.nodes):
            return  # it is refused
        led = [number for number, state in enumerate(states) if number and state.node == node]
        if led:
            raise Failure(
                Kind.CONFLICT, f"The node '{node}' is the last that has led log {led[0]}. Remove it when another leads."
            )
        for number in range(1, len(states)):
            await (await self._logs.logs.log(number)).remove(node)
