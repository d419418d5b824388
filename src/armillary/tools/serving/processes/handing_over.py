"""What the supervisor of a server's processes and each of them tell each other, and the connected and listening sockets
that they hand over as file descriptors: over a socket that a process is started with, so that no other program can
reach any of them.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from armillary.errors import Failure
from armillary.tools.settings import Settings

_MESSAGE_BYTES_MAX: Final = 128 * 1024
_DESCRIPTORS_MAX: Final = 64


# To a process.


@dataclass(slots=True)
class Setup:
    """The first message."""

    number: int
    settings: Settings
    supervisor: int  # its process id
    life: int  # how often the first process was started before
    serving: Sequence[int] = ()  # to the first process: those that had been serving before it was started anew
    shows_strings: bool | None = None
    control_key: str | None = None  # None: the first process finds it
    certificate: tuple[bytes, bytes] | None = None  # and key, of a server in memory


@dataclass(slots=True)
class Peer:
    """The connection to another process comes with it."""

    number: int
    pid: int


@dataclass(slots=True)
class Ports:
    """The listening sockets come with it, in this order. None: open the ports."""

    counts: Mapping[str, int] | None  # of the sockets of each door


@dataclass(slots=True)
class Ping:
    pass


@dataclass(slots=True)
class Reread:
    """The settings were read again."""

    settings: Settings


@dataclass(slots=True)
class StopListening:
    """Take no more connections, and let running requests finish."""


@dataclass(slots=True)
class End:
    """Close the account, and end."""


# From a process.


@dataclass(slots=True)
class Opened:
    """Of the first process: what the others need."""

    control_key: str
    certificate: tuple[bytes, bytes] | None


@dataclass(slots=True)
class Ready:
    """Its partitions are open."""


@dataclass(slots=True)
class PortsOpened:
    """Of the first process; as `Ports`."""

    counts: Mapping[str, int]


@dataclass(slots=True)
class Announced:
    """Of the first process: the server has said that it is ready."""


@dataclass(slots=True)
class Refused:
    """It cannot be started."""

    failure: Failure


@dataclass(slots=True)
class Pong:
    pass


@dataclass(slots=True)
class Done:
    """With what it was told: the settings, or that it takes no more connections."""


@dataclass(slots=True)
class StartAnew:
    """Another process: it does not do what it should."""

    number: int
    pid: int


ToProcess = Setup | Peer | Ports | Ping | Reread | StopListening | End
FromProcess = Opened | Ready | PortsOpened | Announced | Refused | Pong | Done | StartAnew


class Channel:
    """One end of it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self._end.close()

    def send(self, message: ToProcess | FromProcess, descriptors: Sequence[int] = ()) -> None:
        """The receiver has copies of the descriptors. Nothing is done if it has ended."""
        with suppress(OSError):
            socket.send_fds(self._end, [pickle.dumps(message)], list(descriptors))

    def receive(self) -> tuple[ToProcess | FromProcess, list[socket.socket]] | None:
        """None: the other end has ended. Raises BlockingIOError. The bytes are of the process that has started this
        one or of one that it has started, and of no other."""
        try:
            content, descriptors, _, _ = socket.recv_fds(self._end, _MESSAGE_BYTES_MAX, _DESCRIPTORS_MAX)
        except ConnectionResetError:
            return None
        if not content:
            return None
        message: ToProcess | FromProcess = pickle.loads(content)  # noqa: S301
        return message, [socket.socket(fileno=each) for each in descriptors]

    def set_waiting(self, *, is_waiting: bool) -> None:
        """Whether `receive` waits for a message."""
        self._end.setblocking(is_waiting)


def connected_channels() -> tuple[Channel, socket.socket]:
    """This process's end, and the one that a new process is given."""
    own, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setblocking(False)
    return Channel(own), given


def descriptors_of(ports: Mapping[str, Sequence[socket.socket]]) -> list[int]:
    return [each.fileno() for sockets in ports.values() for each in sockets]


def by_doors(counts: Mapping[str, int], sockets: Sequence[socket.socket]) -> dict[str, list[socket.socket]]:
    """Those that came with a message."""
    ports, at = {}, 0
    for door, count in counts.items():
        ports[door] = list(sockets[at : at + count])
        at += count
    return ports
