"""Commands that shells and tools send about the server: status, parameters, running operations. Answers without content
here are kept as short as tools accept. Those about the replica set are in `replica_set/`.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from armillary import __version__, limits
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import fail_points
from armillary.doors.mongo.replica_set import replica_set_status
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

try:
    import resource

    HAS_USAGE = True
except ImportError:  # Windows
    HAS_USAGE = False

ENGINE: Final = "armillary"
# Of the figures in serverStatus: over all processes of a server.
_SUMMED: Final = ("connections", "network", "opcounters", "logicalSessionRecordCache", "metrics", "transactions")
_WARNINGS: Final = ("global", "startupWarnings")


def version_text(call: Call) -> str:
    return f"{call.services.settings.version}.0"


async def ping(call: Call) -> Reply:
    return {}


async def describe_build(call: Call) -> Reply:
    version = version_text(call)
    return {
        "version": version,
        "gitVersion": f"armillary-{__version__}",
        "modules": [],
        "allocator": "system",
        "javascriptEngine": "none",
        "sysInfo": "deprecated",
        "versionArray": [*(int(part) for part in version.split(".")), 0],
        "openssl": {"running": "present"},
        "buildEnvironment": {"distarch": platform.machine(), "target_os": platform.system().lower()},
        "bits": 64,
        "debug": False,
        "maxBsonObjectSize": limits.MONGO_DOCUMENT_BYTES_MAX,
        "storageEngines": [ENGINE],
    }


async def describe_host(call: Call) -> Reply:
    return {
        "system": {
            "currentTime": DatetimeMS(int(call.clock.now_s() * 1000)),
            "hostname": call.services.address_of(call.client),
            "cpuAddrSize": 64,
            "cpuArch": platform.machine(),
            "numaEnabled": False,
        },
        "os": {"type": platform.system(), "name": platform.system(), "version": platform.release()},
        "extra": {},
    }


async def server_status(call: Call) -> Reply:
    door = call.services
    uptime_s = door.uptime_s
    status: Document = {
        "host": door.address_of(call.client),
        "version": version_text(call),
        "process": "armillary",
        "pid": Int64(0),
        "uptime": float(int(uptime_s)),
        "uptimeMillis": Int64(int(uptime_s * 1000)),
        "uptimeEstimate": Int64(int(uptime_s)),
        "localTime": DatetimeMS(int(call.clock.now_s() * 1000)),
        "connections": {
            "current": door.connection_count,
            "available": max(0, limits.CONNECTIONS_MAX - door.connection_count),
            "totalCreated": Int64(door.connections_total),
            "active": door.running_count,
        },
        "globalLock": {
            "totalTime": Int64(int(uptime_s * 1_000_000)),
            "currentQueue": {"total": 0, "readers": 0, "writers": 0},
            "activeClients": {"total": door.running_count, "readers": door.running_count, "writers": 0},
        },
        "mem": {"bits": 64, "resident": _resident_mb(), "supported": True},
        "network": {"numRequests": Int64(door.command_total)},
        "opcounters": {name: Int64(door.counted(name)) for name in ("insert", "query", "update", "delete")}
        | {"getmore": Int64(door.counted("getMore")), "command": Int64(door.command_total)},
        "logicalSessionRecordCache": {"activeSessionsCount": sum(map(len, door.all_sessions))},
        "metrics": {"cursor": {"open": {"total": Int64(len(door.cursors))}}},
        "repl": replica_set_status.summary(call),
        "storageEngine": {"name": ENGINE, "supportsCommittedReads": True, "persistent": True},
        "transactions": {"currentOpen": Int64(door.open_transaction_count)},
    }
    for other in await door.others.gather(call) if door.others is not None else []:
        for name in _SUMMED:
            status[name] = _sum(status[name], other[name])
    return status


def _sum(one: Any, other: Any) -> Any:
    """Of figures in documents of the same form."""
    if isinstance(one, dict):
        return {name: _sum(value, other[name]) for name, value in one.items()}
    return one if isinstance(one, bool) else type(one)(one + other)


def _resident_mb() -> int:
    """The maximum so far; 0 on Windows, which does not report it."""
    if not HAS_USAGE:
        return 0
    unit = limits.MB if platform.system() == "Darwin" else limits.KB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


async def get_command_line(call: Call) -> Reply:
    return {"argv": ["armillary", "serve"], "parsed": {}}


async def get_log(call: Call) -> Reply:
    wanted = call.body.get("getLog")
    if wanted == "*":
        return {"names": list(_WARNINGS)}
    if wanted not in _WARNINGS:
        raise refusal(96, f"No log named '{str(wanted)[:64]}'")
    return {"totalLinesWritten": 0, "log": []}


def _parameters(call: Call) -> Document:
    return {
        "featureCompatibilityVersion": {"version": call.services.settings.version},
        "enableTestCommands": call.services.settings.has_test_commands,
        "authenticationMechanisms": ["SCRAM-SHA-1", "SCRAM-SHA-256"],
        "maxBSONDepth": 200,
        "cursorTimeoutMillis": Int64(limits.MONGO_CURSOR_SECONDS * 1000),
        "localLogicalSessionTimeoutMinutes": limits.MONGO_SESSION_SECONDS // 60,
        "transactionLifetimeLimitSeconds": int(call.services.settings.transaction_s),
        "requireApiVersion": False,
        "quiet": False,
    }


async def get_parameter(call: Call) -> Reply:
    wanted = call.body.get("getParameter")
    known = _parameters(call)
    if wanted == "*" or (isinstance(wanted, dict) and wanted.get("allParameters")):
        return known
    found = {name: value for name, value in known.items() if name in call.body}
    if not found:
        raise refusal(72, "no option found to get")
    return found


async def whats_my_uri(call: Call) -> Reply:
    host, port = call.client.remote
    return {"you": f"{host}:{port}"}


async def features(call: Call) -> Reply:
    return {"oidMachine": 0}


async def top(call: Call) -> Reply:
    return {"totals": {"note": "all times in microseconds"}}


async def current_operations(call: Call) -> Reply:
    """Commands that run now."""
    return {"inprog": await running(call)}


async def running(call: Call) -> list[Document]:
    shown = call.services.running_commands(call.client)
    others = call.services.others
    for each in await others.gather(call, {"currentOp": 1, "$db": "admin"}) if others is not None else []:
        shown += each["inprog"]
    return shown


async def kill_operation(call: Call) -> Reply:
    call.services.kill(call.fields.number("op", 0))
    return {"info": "attempting to kill op"}


async def list_commands(call: Call) -> Reply:
    shown: dict[str, Any] = {}
    for name, command in sorted(call.services.commands.items()):
        shown[name] = {
            "help": command.note,
            "requiresAuth": not command.is_open,
            "secondaryOk": not command.needs_primary,
            "adminOnly": command.is_admin,
        }
    return {"commands": shown}


async def default_concerns(call: Call) -> Reply:
    """Writes are durable before they are acknowledged: on one server, or in the log that all members replay."""
    return {
        "defaultReadConcern": {"level": "local"},
        "defaultWriteConcern": {"w": "majority", "wtimeout": 0},
        "defaultWriteConcernSource": "implicit",
        "defaultReadConcernSource": "implicit",
        "localUpdateWallClockTime": DatetimeMS(int(call.clock.now_s() * 1000)),
    }


async def forget_plans(call: Call) -> Reply:
    """Nothing to do: plans are not cached."""
    return {}


async def sync(call: Call) -> Reply:
    """Nothing to do: acknowledged writes are durable."""
    if call.fields.flag("lock", False):
        raise refusal(115, "fsync with lock is not supported.")
    return {"numFiles": 1}


async def configure_fail_point(call: Call) -> Reply:
    if not call.services.settings.has_test_commands:
        raise refusal(59, "no such command: 'configureFailPoint'")
    fail_points.configure(call.services.fail_points, call.fields)
    if call.services.others is not None:
        await call.services.others.share_fail_points(call.services.fail_points)
    return {}


async def last_request_statistics(call: Call) -> Reply:
    """getLastRequestStatistics: what the last command on this connection has cost."""
    last = call.client.statistics
    return {
        "_t": "GetRequestStatisticsResponse",
        "CommandName": last.command,
        "RequestCharge": float(last.charge_ru),
        "RequestDurationInMilliSeconds": Int64(last.duration_ms),
        "EstimatedDelayFromRateLimitingInMilliseconds": Int64(last.retry_after_ms),
        "RetriedDueToRateLimiting": False,
        "ActivityId": last.activity_id,
    }
