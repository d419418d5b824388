"""`readConcern: {level: "snapshot"}` outside of transactions. The first such read takes a snapshot and is told its
time; reads with that `atClusterTime` use the same snapshot, for five minutes.
"""

from __future__ import annotations

from typing import Final

from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.snapshots.snapshot_reads import PinnedAccount
from armillary.clock import Clock
from armillary.doors.mongo.call import Call
from armillary.languages.mongo.errors import refusal

_READS: Final = ("find", "aggregate", "distinct")


class Snapshots:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Timestamp, tuple[PinnedAccount, float]] = {}  # with when they were taken; oldest first

    def __len__(self) -> int:
        return len(self._kept)

    async def enter(self, call: Call) -> None:
        """Give a command the snapshot that it asks for."""
        concern = call.body["readConcern"]
        if call.name not in _READS:
            raise refusal(72, f'Command {call.name} does not support {{ readConcern: {{ level: "snapshot" }} }}')
        wanted = concern.get("atClusterTime")
        if wanted is not None and not isinstance(wanted, Timestamp):
            raise refusal(14, "BSON field 'readConcern.atClusterTime' is the wrong type, expected type 'timestamp'")
        if wanted is None:
            wanted = call.services.cluster_time.tick()
            await self._take(call, wanted)
        elif wanted not in self._kept:
            if wanted != call.services.cluster_time.now:
                raise refusal(239, f"Read timestamp {wanted} is older than the oldest available timestamp.")
            await self._take(call, wanted)  # nothing was written since
        call.past, call.past_time = self._kept[wanted][0], wanted

    async def _take(self, call: Call, time: Timestamp) -> None:
        self._kept[time] = (await PinnedAccount.take(call.account), self._clock.monotonic_s())
        while len(self._kept) > limits.MONGO_SNAPSHOTS_MAX:
            del self._kept[next(iter(self._kept))]

    def expire(self) -> None:
        limit_s = self._clock.monotonic_s() - limits.MONGO_SNAPSHOT_SECONDS
        for time, (_, taken_s) in list(self._kept.items()):
            if taken_s < limit_s:
                del self._kept[time]  # cursors that read it may finish
