"""Read concerns, write concerns and API versions. Writes are durable before they are acknowledged, on the one server or
in the log that all nodes of a cluster replay, so every valid write concern is satisfied; invalid ones are refused.
Reads with `readConcern: {level: "snapshot"}` outside of transactions get a snapshot of the account. What a read concern
asks of a member of a replica set is in `replica_set/admission.py`.
"""

from __future__ import annotations

from typing import Any, Final

from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.snapshots.snapshot_reads import PastAccount, take_snapshot
from armillary.clock import Clock
from armillary.doors.mongo.call import Call
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, type_name

_LEVELS: Final = frozenset(("local", "available", "majority", "linearizable", "snapshot"))
_SNAPSHOT_READS: Final = ("find", "aggregate", "distinct")
_UNSTABLE: Final = frozenset("$currentOp $indexStats $listLocalSessions $listSessions $planCacheStats".split())


def check_api(body: Document, name: str, is_stable: bool) -> None:
    version = body.get("apiVersion")
    if version is None:
        for each in ("apiStrict", "apiDeprecationErrors"):
            if each in body:
                raise refusal(72, f"Provided {each} without passing apiVersion")
        return
    if version != "1":
        raise refusal(322, f"API version must be \"1\", not '{str(version)[:64]}'")
    if body.get("apiStrict") is True and not is_stable:
        raise refusal(323, f"Provided apiStrict:true, but the command {name} is not in API Version 1")


def check_stages(body: Document, stages: list[Any]) -> None:
    """Refuse stages that are in no version of the API."""
    for stage in stages if body.get("apiStrict") is True else ():
        name = next(iter(stage), "") if isinstance(stage, dict) else ""
        if name in _UNSTABLE:
            raise refusal(323, f"stage {name} is not allowed with 'apiStrict: true' in API Version 1")


def check(body: Document, *, members: int | None) -> Document | None:
    """What the answer says about a write concern that cannot be kept. The service takes any number of members for
    granted; drivers' own tests want to be told how many there are. None: they are not counted."""
    reading = body.get("readConcern")
    if reading is not None:
        _check_reading(reading)
        if "atClusterTime" in reading and (reading.get("level") != "snapshot" or "autocommit" in body):
            raise refusal(
                72, "readConcern atClusterTime is for reads with level 'snapshot' outside of transactions only"
            )
    writing = body.get("writeConcern")
    if writing is None:
        return None
    if not isinstance(writing, dict):
        raise refusal(
            14,
            f"BSON field 'writeConcern' is the wrong type '{type_name(writing)}', expected type 'object'",
        )
    return _check_writing(writing, members)


def reads_past(body: Document) -> bool:
    """Whether a command outside of a transaction wants to read a snapshot. Its concern was checked before."""
    reading = body.get("readConcern")
    return reading is not None and reading.get("level") == "snapshot" and "autocommit" not in body


def _check_reading(reading: Any) -> None:
    if not isinstance(reading, dict):
        raise refusal(14, f"BSON field 'readConcern' is the wrong type '{type_name(reading)}', expected type 'object'")
    level = reading.get("level")
    if level is not None and level not in _LEVELS:
        raise refusal(9, f"Enumeration value '{str(level)[:64]}' for field 'readConcern.level' is not a valid value.")


def _check_writing(writing: Document, members: int | None) -> Document | None:
    wanted = writing.get("w")
    if isinstance(wanted, str) and wanted != "majority":
        return {
            "writeConcernError": {
                "code": 79,
                "codeName": "UnknownReplWriteConcern",
                "errmsg": f"No write concern mode named '{wanted[:64]}' found in replica set configuration",
                "errInfo": {"writeConcern": writing},
            }
        }
    if isinstance(wanted, bool) or not isinstance(wanted, str | int | float | dict | None):
        raise refusal(9, "w has to be a number, string, or object")
    if isinstance(wanted, int | float) and wanted < 0:
        raise refusal(9, "w has to be a non-negative number and not greater than 50; found: " + str(wanted))
    if members is not None and isinstance(wanted, int | float) and wanted > members:
        return {
            "writeConcernError": {
                "code": 100,
                "codeName": "UnsatisfiableWriteConcern",
                "errmsg": "Not enough data-bearing nodes",
                "errInfo": {"writeConcern": writing},
            }
        }
    return None


class Snapshots:
    """The snapshots of reads outside of transactions. The first such read takes one and is told its time; reads with
    that `atClusterTime` use the same snapshot, for five minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Timestamp, tuple[PastAccount, float]] = {}  # with when they were taken; oldest first

    def __len__(self) -> int:
        return len(self._kept)

    async def enter(self, call: Call) -> None:
        """Give a command the snapshot that it asks for."""
        concern = call.body["readConcern"]
        if call.name not in _SNAPSHOT_READS:
            raise refusal(72, f'Command {call.name} does not support {{ readConcern: {{ level: "snapshot" }} }}')
        wanted = concern.get("atClusterTime")
        if wanted is not None and not isinstance(wanted, Timestamp):
            raise refusal(14, "BSON field 'readConcern.atClusterTime' is the wrong type, expected type 'timestamp'")
        if wanted is None:
            wanted = call.services.cluster_time.snapshot_time()
            await self._take(call, wanted)
        elif wanted not in self._kept:
            if wanted != call.services.cluster_time.now:
                raise refusal(239, f"Read timestamp {wanted} is older than the oldest available timestamp.")
            await self._take(call, wanted)  # nothing was written since
        call.past, call.past_time = self._kept[wanted][0], wanted

    async def _take(self, call: Call, time: Timestamp) -> None:
        self._kept[time] = (await take_snapshot(call.account), self._clock.monotonic_s())
        while len(self._kept) > limits.MONGO_SNAPSHOTS_MAX:
            del self._kept[next(iter(self._kept))]

    def expire(self) -> None:
        limit_s = self._clock.monotonic_s() - limits.MONGO_SNAPSHOT_SECONDS
        for time, (_, taken_s) in list(self._kept.items()):
            if taken_s < limit_s:
                del self._kept[time]  # cursors that read it may finish
