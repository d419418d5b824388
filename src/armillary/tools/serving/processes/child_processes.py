"""The processes of a server, as their supervisor sees them: each is started, connected with the others, asked whether
it answers, and started anew when it has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from armillary import limits
from armillary.clock import Clock
from armillary.tools.serving.processes.handing_over import (
    Channel,
    FromProcess,
    Peer,
    Ping,
    Pong,
    Setup,
    connected_channels,
)

log = logging.getLogger("armillary")

_PROGRAM: Final = ("-m", "armillary.tools.serving.processes.start")
_PAUSE_S_MAX: Final = 10.0  # before a process is started again that has just been
_LIVES_S: Final = 30.0  # one that has run for so long is started again at once
_BUFFER_BYTES: Final = 1024 * 1024


class Child:
    """A process, from its start to its end."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel, begun_s: float) -> None:
        self.number = number
        self.process = process
        self.channel = channel
        self.begun_s = begun_s
        self.is_set_up = False
        self.is_ready = False
        self.done: asyncio.Future[None] | None = None  # with what it was told last
        self.silent_pings = 0  # since it has answered one

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


class ChildProcesses:
    def __init__(self, machine: Clock, received: Callable[[Child, FromProcess, list[socket.socket]], None]) -> None:
        """`received`: what a process tells."""
        self.is_closing = False
        self._machine = machine
        self._received = received
        self._children: dict[int, Child] = {}

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def get(self, number: int) -> Child | None:
        """None: it does not run."""
        return self._children.get(number)

    async def keep(self, number: int, begun: Callable[[Child], None], ended: Callable[[Child, str], None]) -> None:
        """Have a process run, whatever ends it."""
        pause_s = 0.0
        while not self.is_closing:
            await self._machine.sleep(pause_s)
            try:
                child = await self._begin(number)
            except OSError as error:
                log.error("process %d cannot be started: %s", number, error)
                pause_s = min(_PAUSE_S_MAX, pause_s + 1.0)
                continue
            begun(child)
            code = await child.process.wait()
            self._read(child)  # what it has said last
            asyncio.get_running_loop().remove_reader(child.channel.fileno())
            child.channel.close()
            del self._children[number]
            ended(child, f"signal {-code}" if code < 0 else f"exit code {code}")
            lived_s = self._machine.monotonic_s() - child.begun_s
            pause_s = 0.0 if child.is_ready and lived_s >= _LIVES_S else min(_PAUSE_S_MAX, pause_s * 2 + 0.1)

    async def _begin(self, number: int) -> Child:
        channel, given = connected_channels()
        with given:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_PROGRAM,
                str(given.fileno()),
                str(number),  # for people who look at the system's processes
                pass_fds=(given.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            )
        child = self._children[number] = Child(number, process, channel, self._machine.monotonic_s())
        asyncio.get_running_loop().add_reader(channel.fileno(), self._read, child)
        return child

    def set_up(self, child: Child, setup: Setup) -> None:
        """Tell it what it needs, and connect it with the others."""
        child.channel.send(setup)
        child.is_set_up = True
        for other in self._children.values():
            if other is not child and other.is_set_up:
                _introduce(child, other)

    def _read(self, child: Child) -> None:
        while True:
            try:
                received = child.channel.receive()
            except BlockingIOError:
                return
            if received is None:
                asyncio.get_running_loop().remove_reader(child.channel.fileno())
                return
            message, sockets = received
            child.silent_pings = 0
            if not isinstance(message, Pong):
                self._received(child, message, sockets)  # type: ignore[arg-type]

    async def watch(self) -> None:
        """Kill what does not answer for long. Questions are counted and not seconds, which pass for a machine that is
        paused, too."""
        while True:
            await self._machine.sleep(limits.PROCESS_PING_SECONDS)
            for child in self._children.values():
                if not child.is_ready:
                    continue
                if not child.silent_pings:
                    child.channel.send(Ping())
                child.silent_pings += 1
                if child.silent_pings > limits.PROCESS_PINGS_MAX:
                    log.error("process %d does not answer, and is killed", child.number)
                    child.kill()


def _introduce(one: Child, other: Child) -> None:
    ends = connected_pair()
    for child, peer, end in ((one, other, ends[0]), (other, one, ends[1])):
        with end:
            child.channel.send(Peer(peer.number, peer.process.pid), [end.fileno()])


def connected_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return pair
