"""The replica of a starting node: the one in its data directory, if the log can bring it to the present, else a new one
that is built from another node. `bootstrap.py` copies; here the node to copy from is chosen, and looked for until one
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.bootstrap import Progress, drop_arrived, fetch, needs_bootstrap
from armillary.cluster.membership import is_alive
from armillary.cluster.peers.calls import PeerGone, Peers
from armillary.cluster.peers.log_calls import calls_about
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import T
from armillary.storage.log.replicated_log import LogUnavailable, NodeState, ReplicatedLog
from armillary.storage.replication.local_replica import LocalReplica

_log = logging.getLogger(__name__)


class ReplicaOpening:
    def __init__(
        self,
        node: str,
        region: str,
        directory: DataDirectory,
        log: ReplicatedLog,
        peers: Peers,
        clock: Clock,
        number: int = 0,
    ) -> None:
        """`number`: of the log. Log 0 is carried by every node."""
        self._number = number
        self._node = node
        self._region = region
        self._directory = directory
        self._log = log
        self._peers = peers
        self._clock = clock
        self._told_tenths = 0
        self._name = f"the replica of log {number}" if number else "this replica"

    async def open(self, reserve_bytes: int) -> LocalReplica:
        """Returns when there is a replica that can follow the log, however long that takes. Raises a Failure if the
        directory is not of this cluster, or its disk is full."""
        generation = (await self._asked(self._log.leader)).generation
        while True:
            replica = LocalReplica.open(self._directory, generation, reserve_bytes=reserve_bytes)
            is_usable = False
            try:
                await self._asked(partial(self._log.register, self._node))  # first: what follows stays in the log
                is_usable = not await self._asked(partial(needs_bootstrap, replica.position, self._log))
            finally:
                if not is_usable:
                    replica.close()
            if is_usable:
                drop_arrived(self._directory)
                return replica
            await self._build(generation)

    async def _build(self, generation: bytes) -> None:
        told: str | None = None
        while True:
            reason = "No other node is running."
            try:
                for source in await self._sources():
                    failed = await self._copied(source, generation)
                    if failed is None:
                        return
                    reason = failed
            except LogUnavailable as error:
                reason = str(error)
            if reason != told:  # once for each
                told = reason
                _log.warning("%s has to be built from another node, and waits for one: %s", self._name, reason)
            await self._clock.sleep(limits.BOOTSTRAP_RETRY_SECONDS)

    async def _copied(self, source: str, generation: bytes) -> str | None:
        """Copy from a node. Returns why it did not succeed."""
        _log.warning("%s is built from node %s", self._name, source)
        try:
            position = await fetch(
                calls_about(self._number, self._peers.call),
                source,
                self._directory,
                self._log,
                self._node,
                generation,
                self._clock,
                on_progress=self._tell,
            )
        except PeerGone as error:
            return str(error)
        except Failure as failure:
            if failure.kind is Kind.STORAGE_FULL:  # of this node: another source would not help
                raise
            return failure.message
        _log.warning("the copy is complete, at row %d of the log", position.place.seq)
        return None

    def _tell(self, progress: Progress) -> None:
        tenths = 10 * progress.done_bytes // max(1, progress.total_bytes)
        if tenths != self._told_tenths:
            self._told_tenths = tenths
            _log.info("%d of %d MB have arrived", progress.done_bytes // limits.MB, progress.total_bytes // limits.MB)

    async def _sources(self) -> list[str]:
        """The nodes that can be copied from: those of the same region first, and followers before the leader."""
        live = [
            each
            for each in await self._log.nodes()
            if each.node != self._node and "peer" in each.addresses and is_alive(each)
        ]
        leader = (await self._log.leader()).node
        if self._number == 0:
            self._peers.use(peer_addresses(live))
        else:
            carriers = {each.node for each in await self._log.replicas()}
            live = [each for each in live if each.node in carriers]
        live.sort(key=lambda each: (each.region != self._region, each.node == leader, each.node))
        return [each.node for each in live]

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of the log, which is waited for."""
        is_told = False
        while True:
            try:
                return await ask()
            except LogUnavailable as error:
                if not is_told:
                    is_told = True
                    _log.warning("the replicated log does not answer: %s", error)
                await self._clock.sleep(limits.LOG_RETRY_SECONDS)


def peer_addresses(nodes: Iterable[NodeState]) -> dict[str, tuple[str, bytes]]:
    """Where nodes are called, as they have announced it: the argument of `Peers.use`."""
    return {
        each.node: (each.addresses["peer"], bytes.fromhex(each.addresses["peer_certificate"]))
        for each in nodes
        if "peer" in each.addresses
    }
