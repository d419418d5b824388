"""The server and its service manager (systemd, `Type=notify`): notices of when it is ready, reloads
its settings and stops.

A notice is a datagram to the socket that NOTIFY_SOCKET names, as sd_notify(3) says; without the variable nothing is
sent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

from armillary.clock import Clock

log = logging.getLogger("armillary")

_VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
RELOADING: Final = "RELOADING=1"


def is_supervised(environment: Mapping[str, str] = os.environ) -> bool:
    return bool(environment.get(_VARIABLE))


def tell(*lines: str, environment: Mapping[str, str] = os.environ) -> None:
    """Never fails: a service manager that does not listen must not stop the server."""
    address = environment.get(_VARIABLE, "")
    if not address:
        return
    if address[0] not in "@/":
        log.warning("%s is not a path or an abstract address; the service manager is told nothing", _VARIABLE)
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), "\0" + address[1:] if address[0] == "@" else address)
    except OSError as error:
        log.warning("the service manager could not be told %s: %s", lines[0], error.strerror)


def reloading(clock: Clock) -> None:
    """`Type=notify-reload` compares the time with that of its own signal."""
    tell(RELOADING, f"MONOTONIC_USEC={int(clock.elapsed_s() * 1_000_000)}")
