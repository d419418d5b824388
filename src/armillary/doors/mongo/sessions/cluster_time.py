"""The cluster time that drivers gossip: a moment that never goes back. Every write advances it; every answer carries
it, encoded once until it changes.

A single server counts the writes of a second. The processes of a server use the microseconds of the clock that they
share, so that a time that one of them gives is never before one that another has given. The members of a replica set
use microseconds, so that a time that one member gave can be compared with how far another has come. They sign it with a
key of the account, and accept from clients only what a member signed: no client can move their time.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.topology import Topology
from armillary.clock import Clock

_MOMENTS_KEPT: Final = 10_000
_UNSIGNED: Final = {"hash": Binary(bytes(20), 0), "keyId": Int64(0)}
_SECOND_US: Final = 1_000_000
_KEY_ID: Final = Int64(1)
_PURPOSE: Final = b"cluster time of MongoDB"
_TIMESTAMP: Final = Struct("<II")


class ClusterTime:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = int(clock.now_s())
        self._count = 1
        self._moments: deque[tuple[int, int, int]] = deque(maxlen=_MOMENTS_KEPT)  # times, with when they began
        self._encoded = self._encode()

    @property
    def now(self) -> Timestamp:
        """The time of the newest write that reads see: `operationTime`."""
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

    def snapshot_time(self) -> Timestamp:
        """A time that no snapshot has yet."""
        return self.tick()

    def wall_ms(self, moment: Timestamp) -> int:
        """The wall-clock time of a cluster time; of one that is no longer kept, its second."""
        wanted = (moment.time, moment.inc)
        for seconds, count, wall_ms in reversed(self._moments):
            if (seconds, count) <= wanted:
                return wall_ms if seconds == moment.time else moment.time * 1000
        return moment.time * 1000

    def of_event(self, wall_ms: int, number: int) -> Timestamp:
        """Of a change stream's event. `number`: its place among those of its collection."""
        return Timestamp(wall_ms // 1000, number & 0x7FFFFFFF)

    def elements(self) -> bytes:
        """`$clusterTime` and `operationTime`, as fields of an answer."""
        return self._encoded

    def _encode(self) -> bytes:
        now = self.now
        return _encoded(now, _UNSIGNED, now)


class ProcessClusterTime(ClusterTime):
    """Of one process of several that serve an account: all of them answer with the present moment."""

    def __init__(self, clock: Clock, place: int, count: int) -> None:
        """`place`: the number of this process, of so many."""
        self._place, self._process_count = place, count
        self._latest_us = self.written_us = 0  # and of the last write that this process has answered
        super().__init__(clock)

    @property
    def now(self) -> Timestamp:
        return _timestamp(self._now_us())

    def _now_us(self) -> int:
        self._latest_us = max(self._latest_us, int(self._clock.now_s() * _SECOND_US))
        return self._latest_us

    def tick(self) -> Timestamp:
        self.written_us = self._latest_us = max(self._latest_us + 1, self._now_us())
        return _timestamp(self.written_us)

    def snapshot_time(self) -> Timestamp:
        """It says which process has taken the snapshot."""
        least_us = max(self._latest_us + 1, self._now_us())
        self._latest_us = least_us + (self._place - least_us) % self._process_count
        return _timestamp(self._latest_us)

    def place_of(self, moment: Timestamp) -> int:
        """Of the process that has given a snapshot this time."""
        return _microseconds(moment) % self._process_count

    def wall_ms(self, moment: Timestamp) -> int:
        return _microseconds(moment) // 1000

    def of_event(self, wall_ms: int, number: int) -> Timestamp:
        return _timestamp(wall_ms * 1000)

    def elements(self) -> bytes:
        now = _TIMESTAMP.pack(*_parts(self._now_us()))
        return b"%b%b%b%b" % (self._before, now, self._between, now)

    def _encode(self) -> bytes:
        moment = Timestamp(1, 0x7FFFFFFF)
        encoded = _encoded(moment, _UNSIGNED, moment)
        self._before, self._between, _ = encoded.split(_TIMESTAMP.pack(0x7FFFFFFF, 1))
        return encoded


class MemberClusterTime(ClusterTime):
    """Of a member of a replica set. On the primary it follows the writes, from what it had reached when it took over;
    elsewhere `operationTime` is what the member has reached."""

    def __init__(
        self, clock: Clock, topology: Topology, *, leads: Callable[[], bool], secret: Callable[[], bytes]
    ) -> None:
        """`secret`: the account's, which all members know."""
        self._topology = topology
        self._leads = leads
        self._secret = secret
        self._latest_us = self._written_us = topology.reached_us
        self._snapshot_us = 0
        self._encoded_of = (-1, -1)
        super().__init__(clock)

    @property
    def now(self) -> Timestamp:
        return _timestamp(self._operation_us())

    @property
    def latest(self) -> Timestamp:
        """`$clusterTime`: the latest that this member knows of."""
        return _timestamp(max(self._latest_us, self._operation_us()))

    def tick(self) -> Timestamp:
        now_us = int(self._clock.now_s() * _SECOND_US)
        self._latest_us = self._written_us = max(self._latest_us + 1, now_us, self._topology.reached_us)
        return _timestamp(self._written_us)

    def snapshot_time(self) -> Timestamp:
        self._snapshot_us = max(self._snapshot_us + 1, self._operation_us())
        return _timestamp(self._snapshot_us)

    def wall_ms(self, moment: Timestamp) -> int:
        return _microseconds(moment) // 1000

    def of_event(self, wall_ms: int, number: int) -> Timestamp:
        return _timestamp(wall_ms * 1000)

    # Times that clients bring.

    def advance(self, told: Any) -> None:
        """Take over a client's `$clusterTime`, if a member signed it."""
        if not isinstance(told, dict) or not isinstance(told.get("clusterTime"), Timestamp):
            return
        moment, signature = told["clusterTime"], told.get("signature")
        told_us = _microseconds(moment)
        if told_us <= self._latest_us or not isinstance(signature, dict):
            return
        given, signed = signature.get("hash"), self._signature(moment)
        if moment.time > self._clock.now_s() + limits.MONGO_CLOCK_DRIFT_SECONDS:
            return
        if signed is not _UNSIGNED and isinstance(given, bytes) and hmac.compare_digest(given, bytes(signed["hash"])):
            self._latest_us = told_us

    def has_come(self, moment: Timestamp) -> bool:
        """Whether a member may have given this time."""
        return _microseconds(moment) <= max(
            self._latest_us, self._operation_us(), int(self._clock.now_s() * _SECOND_US)
        )

    def is_reached(self, moment: Timestamp) -> bool:
        """Whether all writes that were acknowledged up to this time are applied here."""
        return self._topology.reached_us > _microseconds(moment)

    # Answers.

    def elements(self) -> bytes:
        operation_us = self._operation_us()
        known = max(self._latest_us, operation_us), operation_us
        if known != self._encoded_of:
            self._encoded_of = known
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> bytes:
        latest = self.latest
        return _encoded(latest, self._signature(latest), self.now)

    def _operation_us(self) -> int:
        return self._written_us if self._leads() else self._topology.reached_us

    def _signature(self, moment: Timestamp) -> dict[str, Any]:
        secret = self._secret()
        if not secret:
            return _UNSIGNED
        signed = _PURPOSE + moment.time.to_bytes(8, "big") + moment.inc.to_bytes(8, "big")
        return {"hash": Binary(hmac.digest(secret, signed, "sha256")[:20], 0), "keyId": _KEY_ID}


def _encoded(latest: Timestamp, signature: dict[str, Any], operation: Timestamp) -> bytes:
    told = {"$clusterTime": {"clusterTime": latest, "signature": signature}, "operationTime": operation}
    return bson.encode(told)[4:-1]


def _timestamp(moment_us: int) -> Timestamp:
    """MongoDB counts from 1 in each second."""
    return Timestamp(moment_us // _SECOND_US, moment_us % _SECOND_US + 1)


def _parts(moment_us: int) -> tuple[int, int]:
    """The same as BSON has it, the count before the second."""
    return moment_us % _SECOND_US + 1, moment_us // _SECOND_US


def _microseconds(moment: Timestamp) -> int:
    return moment.time * _SECOND_US + min(max(moment.inc - 1, 0), _SECOND_US - 1)
