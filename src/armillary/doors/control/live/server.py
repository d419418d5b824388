"""The server, and what clients need to connect to it. `GET health` and `GET ready`: for probes. `GET server`: its
account, limits, doors with the endpoints and connection strings that fit the browser's own address, settings and where
they come from, memory and disk. The account's keys: shown, and regenerated while clients go on with the other ones.
`GET` and `PUT runtime`: what an operator changes while the server runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from armillary import __version__, audit
from armillary.account.security.connection_strings import connection_strings, strings_without_key
from armillary.account.security.credentials import Credentials
from armillary.account.server_figures import readiness
from armillary.account.visits.consistency import check_silence
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import Request, Response


async def health(call: Call) -> Response:
    """The process answers."""
    return call.answer({"status": "ok"})


async def ready(call: Call) -> Response:
    """The account can be read."""
    if call.account.topology is not None:
        check_silence(call.account.topology)
    await call.account.catalog.check_readable()
    return call.answer({"status": "ready", **readiness(call.account)})


async def show_server(call: Call) -> Response:
    call.query()
    account, facts, settings = call.account, call.services.facts, call.account.settings
    measured = await asyncio.to_thread(facts.measured)
    return call.answer(
        {
            "account": settings.name,
            "version": __version__,
            "instance": call.services.log_ins.instance,
            "startedAt": _time(facts.started_s),
            "now": _time(account.clock.now_s()),
            "uptimeSeconds": round(facts.elapsed_s(), 3),
            "ready": True,
            "isReadOnly": call.access.is_read_only,
            "mode": settings.throughput_mode,
            "profile": settings.profile,
            "consistency": settings.consistency,
            "serverless": settings.is_serverless,
            "limits": {
                "partitionThroughputRu": settings.partition_throughput_ru,
                "partitionedThroughputMinRu": settings.partitioned_throughput_min_ru,
                "throughputMaxRu": settings.throughput_max_ru,
                "partitionStorageBytes": settings.partition_storage_bytes,
                "logicalPartitionBytes": settings.logical_partition_bytes_max,
            },
            "disk": measured.get("disk"),
            "memoryBytes": measured.get("memoryBytes"),
            "connections": facts.connections(),
            "doors": _doors(call),
            "settings": facts.settings,
        }
    )


def _doors(call: Call) -> list[dict[str, Any]]:
    """The endpoints and connection strings that fit the browser's own address."""
    endpoints = call.services.facts.endpoints(host_of(call.request))
    strings = strings_without_key(endpoints, call.account.settings.name)
    return [
        {"name": door, "endpoints": list(found), "connectionString": strings[door]} for door, found in endpoints.items()
    ]


def host_of(request: Request) -> str:
    """The host that a client reached this server by, without the port."""
    host = request.headers.get(b"host", b"localhost").decode("latin-1")
    return host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")


# The keys of the account.


async def list_keys(call: Call) -> Response:
    call.query()
    keys = _readable_keys(call)
    audit.record("keys.read")
    return call.answer({"keys": keys})


async def regenerate_key(call: Call) -> Response:
    call.fields("a new key").end()
    await asyncio.sleep(0)
    name = call.names[0]
    return call.answer({"name": name, "key": await _credentials(call).regenerate(name)})


async def list_connection_strings(call: Call) -> Response:
    """For each door and key what clients are configured with, in the form that their SDKs read."""
    call.query()
    found = connection_strings(call.services.addresses, call.account.settings.name, _readable_keys(call))
    audit.record("keys.read")
    strings = [{"door": each.door, "key": each.key_name, "value": each.value} for each in found]
    return call.answer({"connectionStrings": strings})


def _readable_keys(call: Call) -> dict[str, str | None]:
    """Read-only credentials are told the read-only keys: with the others they could write."""
    credentials = _credentials(call)
    readers = credentials.readers if call.access.is_read_only else credentials.keys.values()
    return {name: key if key in readers else None for name, key in credentials.keys.items()}


def _credentials(call: Call) -> Credentials:
    if call.services.credentials is None:
        raise Failure(Kind.UNSUPPORTED, "The keys of this account cannot be changed here.")
    return call.services.credentials


# What can be changed while the server runs.


class RuntimeSettings(Protocol):
    """`tools/serving/runtime.py` has it."""

    def shown(self) -> dict[str, Any]: ...
    def change(self, changes: Mapping[str, Any]) -> None:
        """Raises ValueError with what is expected."""


def _runtime(call: Call) -> RuntimeSettings:
    runtime: RuntimeSettings | None = call.services.facts.runtime
    if runtime is None:
        raise Failure(Kind.UNSUPPORTED, "This server has no settings that can be changed at run time.")
    return runtime


async def show_runtime(call: Call) -> Response:
    call.query()
    return call.answer(_runtime(call).shown())


async def change_runtime(call: Call) -> Response:
    runtime = _runtime(call)
    fields = call.fields("the settings of the running server")
    changes = {name: fields.take(name) for name in runtime.shown() if fields.has(name)}
    fields.end()
    try:
        runtime.change(changes)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return call.answer(runtime.shown())
