"""What the first process of a server hands to the others: settings once, then connected sockets and listening ones, as
file descriptors over a socket that the process was started with. No other program can reach any of them.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from armillary.tools.settings import Settings

_MESSAGE_BYTES_MAX: Final = 128 * 1024
_DESCRIPTORS_MAX: Final = 64


@dataclass(slots=True)
class Setup:
    """The first message; with it comes the connection to the first process."""

    number: int
    settings: Settings
    control_key: str
    certificate: tuple[bytes, bytes] | None  # and key, of a server in memory


@dataclass(slots=True)
class Peer:
    """The connection to another process comes with it."""

    number: int


@dataclass(slots=True)
class Ports:
    """The listening sockets come with it, in this order."""

    counts: Mapping[str, int] = field(default_factory=dict)  # of the sockets of each door


Message = Setup | Peer | Ports


def hand_over(to: socket.socket, message: Message, descriptors: Sequence[int]) -> None:
    """The receiver has copies of the descriptors."""
    socket.send_fds(to, [pickle.dumps(message)], list(descriptors))


def take_over(end: socket.socket) -> tuple[Message, list[socket.socket]] | None:
    """None: the other process has ended. The bytes are of the process that has started this one, and of no other."""
    content, descriptors, _, _ = socket.recv_fds(end, _MESSAGE_BYTES_MAX, _DESCRIPTORS_MAX)
    if not content:
        return None
    message: Message = pickle.loads(content)  # noqa: S301
    return message, [socket.socket(fileno=each) for each in descriptors]
