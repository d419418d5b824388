"""Where the replicas of a node are: that of log 0 in the node's data directory, those of other logs below it. A replica
is opened from its directory, or built there from another node that carries the log (`new_replicas.py`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Protocol

from armillary.clock import Clock
from armillary.cluster.new_replicas import ReplicaOpening
from armillary.cluster.peers.calls import Peers
from armillary.storage.directory import (
    DataDirectory,
    log_directories,
    log_directory,
    remove_left_over_logs,
    remove_log_directory,
)
from armillary.storage.log.replicated_log import ReplicatedLog
from armillary.storage.private import Permissions
from armillary.storage.replication.local_replica import LocalReplica


class ReplicaDirectories(Protocol):
    def present(self) -> set[int]:
        """Logs of which there is a replica here, whole or not; log 0 always."""

    async def open(self, number: int, log: ReplicatedLog) -> LocalReplica:
        """Returns when there is a replica that can follow the log, however long that takes. Raises a Failure."""

    async def remove(self, number: int) -> None:
        """Remove a replica that is closed. A stop at any moment leaves it whole or removes it with the next start."""


class NodeDirectories:
    """Implements ReplicaDirectories."""

    def __init__(
        self,
        path: Path,
        directory: DataDirectory,
        node: str,
        region: str,
        peers: Peers,
        clock: Clock,
        *,
        reserve_bytes: int,
        permissions: Permissions = "private",
    ) -> None:
        """`directory`: the node's data directory, claimed."""
        self._path = path
        self._directory = directory
        self._node = node
        self._region = region
        self._peers = peers
        self._clock = clock
        self._reserve_bytes = reserve_bytes
        self._permissions = permissions
        remove_left_over_logs(path)

    def present(self) -> set[int]:
        return {0, *log_directories(self._path)}

    async def open(self, number: int, log: ReplicatedLog) -> LocalReplica:
        directory = self._directory
        if number:
            directory = DataDirectory.claim(log_directory(self._path, number), self._permissions)
        opening = ReplicaOpening(self._node, self._region, directory, log, self._peers, self._clock, number)
        try:
            return await opening.open(self._reserve_bytes)
        except BaseException:
            if number:
                directory.release()
            raise

    async def remove(self, number: int) -> None:
        assert number, "log 0 is carried by every node"
        await asyncio.get_running_loop().run_in_executor(None, partial(remove_log_directory, self._path, number))
