"""Counting of commands that are answered: by command, with the error code as the status. For metrics, logs, traces and
getLastRequestStatistics. A command that is not offered counts as `other`, so that clients cannot make up names. Also
the list of commands that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bson.int64 import Int64

from armillary.doors.mongo.call import Call
from armillary.doors.mongo.client import Client, Statistics
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.commands.profiler import WITH_SECRETS
from armillary.doors.mongo.errors import code_of
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import Document
from armillary.net.requests.request_watch import Answered, RequestWatch

_OTHER: Final = "other"
_OPERATIONS: Final = {name: f"mongo {name}" for name in (*COMMANDS, _OTHER)}  # what metrics call them
_OK: Final = "ok"


def count(
    watch: RequestWatch,
    client: Client,
    name: str,
    charge_ru: float,
    times_s: tuple[float, float],
    activity_id: str,
    failed: Failure | None,
    call: Call | None,
) -> None:
    """`times_s`: when the command began, and how long it took. `call`: None for point reads."""
    begun_s, elapsed_s = times_s
    retry_after_ms = client.statistics.retry_after_ms if failed is not None else 0
    client.statistics = Statistics(name, charge_ru, int(elapsed_s * 1000), activity_id, retry_after_ms)
    operation = name if name in COMMANDS else _OTHER
    status: str = _OK
    kind: Kind | None = None
    if failed is not None:
        status, kind = str(code_of(failed)), failed.kind
    watch.times[_OPERATIONS[operation]].note(elapsed_s, status, kind)
    if watch.report is None:
        return
    answered = Answered("mongo", operation, status, kind, begun_s, elapsed_s, charge_ru)
    answered.activity, answered.peer = activity_id, client.remote[0]
    answered.details = client.details
    if call is not None and operation != _OTHER:
        collection = call.body.get(name)
        answered.database = call.database
        answered.container = collection if isinstance(collection, str) else ""
    watch.report(answered)


def count_find(watch: RequestWatch, client: Client, charge_ru: float, elapsed_s: float, activity_id: str) -> None:
    """`count` of a point read, where no report of requests is wanted."""
    client.statistics = Statistics("find", charge_ru, int(elapsed_s * 1000), activity_id, 0)
    watch.times["mongo find"].note(elapsed_s, _OK, None)


def running(commands: Mapping[int, tuple[Call, float]], now_s: float, host: str) -> list[Document]:
    """The commands that run, as currentOp shows them. `commands`: with the time when each began. `host`: of this
    server, as the client that asks knows it."""
    shown = []
    for number, (call, begun_s) in list(commands.items()):
        address, port = call.client.remote
        shown.append(
            {
                "type": "op",
                "host": host,
                "desc": f"conn{call.client.id}",
                "connectionId": call.client.id,
                "client": f"{address}:{port}",
                "appName": call.client.app_name,
                "active": True,
                "opid": number,
                "op": "command",
                "ns": f"{call.database}.$cmd",
                "microsecs_running": Int64(int((now_s - begun_s) * 1_000_000)),
                "command": {name: value for name, value in call.body.items() if not name.startswith("$")}
                if call.name not in WITH_SECRETS
                else {},
            }
        )
    return shown
