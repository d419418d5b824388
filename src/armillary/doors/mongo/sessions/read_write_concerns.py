"""Read concerns, write concerns and API versions. There is one copy of all data and writes are durable before they are
acknowledged, so every valid concern is satisfied; invalid ones are refused.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, type_name

_LEVELS: Final = frozenset(("local", "available", "majority", "linearizable", "snapshot"))

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


def check(body: Document, *, counts_members: bool) -> Document | None:
    """What the answer says about a write concern that cannot be kept. The service takes any number of members for
    granted; drivers' own tests want to be told that there is one: `counts_members`."""
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
    return _check_writing(writing, counts_members)


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


def _check_writing(writing: Document, counts_members: bool) -> Document | None:
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
    if counts_members and isinstance(wanted, int | float) and wanted > 1:
        return {
            "writeConcernError": {
                "code": 100,
                "codeName": "UnsatisfiableWriteConcern",
                "errmsg": "Not enough data-bearing nodes",
                "errInfo": {"writeConcern": writing},
            }
        }
    return None
