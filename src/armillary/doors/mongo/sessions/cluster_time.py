"""The cluster time that drivers gossip: seconds and an increment, which never go back. Every write advances it; every
answer carries it, encoded once until it changes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from armillary.clock import Clock

_MOMENTS_KEPT: Final = 10_000
_UNSIGNED: Final = {"hash": Binary(bytes(20), 0), "keyId": Int64(0)}


class ClusterTime:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = int(clock.now_s())
        self._count = 1
        self._moments: deque[tuple[int, int, int]] = deque(maxlen=_MOMENTS_KEPT)  # times, with when they began
        self._encoded = self._encode()

    @property
    def now(self) -> Timestamp:
        return Timestamp(self._seconds, self._count)

    def tick(self) -> Timestamp:
        """Advance it: there was a write."""
        seconds = int(self._clock.now_s())
        if seconds > self._seconds:
            self._seconds, self._count = seconds, 1
        else:
            self._count += 1
        self._moments.append((self._seconds, self._count, int(self._clock.now_s() * 1000)))
        self._encoded = self._encode()
        return self.now

    def wall_ms(self, moment: Timestamp) -> int:
        """The wall-clock time of a cluster time; of one that is no longer kept, its second."""
        wanted = (moment.time, moment.inc)
        for seconds, count, wall_ms in reversed(self._moments):
            if (seconds, count) <= wanted:
                return wall_ms if seconds == moment.time else moment.time * 1000
        return moment.time * 1000

    def elements(self) -> bytes:
        """`$clusterTime` and `operationTime`, as fields of an answer."""
        return self._encoded

    def _encode(self) -> bytes:
        now = self.now
        return bson.encode({"$clusterTime": {"clusterTime": now, "signature": _UNSIGNED}, "operationTime": now})[4:-1]
