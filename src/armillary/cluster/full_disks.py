"""Nodes whose disks are nearly full. A leader with such a disk refuses every write of the cluster, so it hands over to
a node that has room, if there is one, and follows: it falls behind until there is room again. Such a node takes over
later than others would.
"""

from __future__ import annotations

import logging

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.operations import Operations
from armillary.cluster.status import StatusReader
from armillary.errors import Failure
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.local_replica import LocalReplica

_log = logging.getLogger(__name__)


class FullDiskWatch:
    def __init__(
        self,
        replica: LocalReplica,
        leadership: Leadership,
        operations: Operations,
        reader: StatusReader,
        clock: Clock,
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._operations = operations
        self._reader = reader
        self._clock = clock
        self.is_alone = False  # this leader's disk is nearly full, and so is that of every other node

    @property
    def patience_s(self) -> float:
        """How much longer than needed this node waits before it takes over."""
        return 0.0 if self._replica.has_room else limits.FULL_DISK_PATIENCE_SECONDS

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(limits.FULL_DISK_SECONDS)
            if not self._leadership.takes_writes or self._replica.has_room:
                self.is_alone = False
                continue
            try:
                await self._give_way()
            except Failure as failure:  # tried again
                _log.warning("the disk of this leader is nearly full, and handing over failed: %s", failure.message)

    async def _give_way(self) -> None:
        others = [each for each in self._operations.candidates() if each != self._leadership.node]
        with_room = await self._reader.with_room(others)
        if with_room:
            successor = await self._operations.hand_over(await self._operations.preferred(with_room) or with_room[0])
            _log.error("the disk of this node is nearly full: %s leads instead", successor)
        elif not self.is_alone:
            self.is_alone = True
            _log.error("the disk of this leader is nearly full, and no other node with room can lead")
