"""What the control API tells of the process: settings and where they come from, the addresses of the doors, open
connections, memory and disk.
"""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from armillary.clock import Clock
from armillary.doors.control.call import ServerFacts
from armillary.net.listen import Listener
from armillary.tools.configuration.config_command import shown_setting
from armillary.tools.serving.runtime import Runtime
from armillary.tools.settings import OPTIONS, Settings

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_INSTANCE_BYTES: Final = 4
_DESCRIPTORS: Final = "/proc/self/fd"
_MEMORY: Final = Path("/proc/self/statm")


def facts_of(settings: Settings, machine: Clock, runtime: Runtime) -> ServerFacts:
    begun_s = machine.elapsed_s()
    directory = None if settings.is_in_memory else settings.directory
    return ServerFacts(
        started_s=machine.now_s(),
        elapsed_s=lambda: machine.elapsed_s() - begun_s,
        settings=[shown_setting(settings, name) for name in OPTIONS],
        watch=runtime.watch,
        loop_lag=runtime.loop_lag,
        runtime=runtime,
        process=_process_figures(machine),
        measured=lambda: {"memoryBytes": _memory_bytes(), "disk": _disk(directory) if directory is not None else None},
    )


def tell_ports(facts: ServerFacts, settings: Settings, listeners: Mapping[str, Listener]) -> None:
    """The ports are open."""
    facts.endpoints = lambda host: {
        name: _endpoints(settings, name, each.port, host) for name, each in listeners.items()
    }
    facts.connections = lambda: {name: each.service.connection_count for name, each in listeners.items()}


def _process_figures(machine: Clock) -> Callable[[], Mapping[str, float]]:
    """Of this process, by the names that Prometheus gives them in all programs."""
    started_s = machine.now_s()

    def read() -> Mapping[str, float]:
        used = os.times()
        found: dict[str, float] = {"cpu_seconds_total": used.user + used.system, "start_time_seconds": started_s}
        memory_bytes = _memory_bytes()
        if memory_bytes is not None:
            found["resident_memory_bytes"] = memory_bytes
        try:
            found["open_fds"] = len(os.listdir(_DESCRIPTORS))
        except OSError:
            pass  # not on this system
        if resource is not None:
            found["max_fds"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return found

    return read


def instance_of(settings: Settings, control_key: str | None, clock: Clock) -> str:
    """Eight hex digits that tell this server from others that the same browser may have logged in to. They stay the
    same over restarts where the port does, so that a browser keeps one cookie for each server."""
    if not settings.sql_port or control_key is None:
        return clock.random_bytes(_INSTANCE_BYTES).hex()
    place = f"armillary instance {settings.host} {settings.sql_port}"
    return hmac.digest(control_key.encode(), place.encode(), "sha256")[:_INSTANCE_BYTES].hex()


def _endpoints(settings: Settings, door: str, port: int, host: str) -> list[str]:
    """`host`: what the client used; where the server is told its address, that is named instead."""
    scheme = settings.scheme(door)
    if settings.advertise is not None:
        address = settings.client_url(door, port).partition("://")[2]
    else:
        address = f"{host}:{port}"
    others = {"http": ["https"], "ws": ["wss"], "https": ["http"], "wss": ["ws"]}.get(scheme, [])
    schemes = [scheme, *([] if settings.requires_tls else others)]
    return [f"{each}://{address}" for each in schemes]


def _memory_bytes() -> int | None:
    try:
        return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _disk(directory: Path) -> dict[str, int | None]:
    try:
        free_bytes = shutil.disk_usage(directory).free
    except OSError:
        return {"freeBytes": None, "usedBytes": None}
    return {"freeBytes": free_bytes, "usedBytes": _used_bytes(directory)}


def _used_bytes(directory: Path) -> int:
    """Files may go while they are counted."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
