"""The process that is started by `armillary serve --processes N`: it starts the processes of the server, all alike to
it, and imports little, so that it needs little memory. It keeps the listening sockets, so ports stay open whichever
process ends. It obeys signals, tells the service manager, and has the exit code.

While a process is being started anew, requests to its partitions are refused with 503 and a retry-after; all others go
on. In memory its partitions are lost with a process, so the server ends then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Final

from armillary.clock import Clock, SystemClock
from armillary.errors import Failure, Kind
from armillary.storage import file_descriptors
from armillary.tools import logs
from armillary.tools.exposure import keys_of
from armillary.tools.resolve import check_exposure
from armillary.tools.serving import supervision
from armillary.tools.serving.event_loop import log_slower_loop, stop_signal
from armillary.tools.serving.event_loop import run as run_loop
from armillary.tools.serving.processes import handing_over
from armillary.tools.serving.processes.child_processes import Child, ChildProcesses
from armillary.tools.serving.processes.handing_over import (
    Announced,
    Done,
    End,
    FromProcess,
    Opened,
    Ports,
    PortsOpened,
    Ready,
    Refused,
    Setup,
    StartAnew,
    StopListening,
    by_doors,
    descriptors_of,
)
from armillary.tools.serving.reload import Reread, log_changes, obey_hangups, with_reloaded
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")

_FIRST: Final = 0  # the process that has the catalog
_SHARED: Final = ("sql", "gateway", "table", "gremlin", "mongo")  # ports on which all processes answer
_END_S: Final = 20.0  # for a process to close its account, or to use settings; then it is killed


def run(settings: Settings, reread: Reread | None = None, *, shows_strings: bool | None = None) -> int:
    """As `serve.run`."""
    check_exposure(settings)
    secrets = {*keys_of(settings), settings.control_key, settings.control_read_only_key}
    logs.set_up(settings.log_level, settings.log_format, lambda: secrets)
    for warning in settings.warnings:
        log.warning("%s", warning)
    file_descriptors.raise_limit()
    log_slower_loop()
    run_loop(_supervise(settings, reread, shows_strings))
    return 0


async def _supervise(settings: Settings, reread: Reread | None, shows_strings: bool | None) -> None:
    machine = SystemClock()
    stopping = stop_signal(ends_with_stdin=settings.stops_with_stdin)
    supervisor = Supervisor(settings, machine, shows_strings)
    if reread is not None:
        obey_hangups(settings, machine, lambda: supervisor.reload(reread))
    supervisor.failed.add_done_callback(lambda _: stopping.set())
    try:
        supervisor.start()
        await stopping.wait()
    finally:
        supervision.tell(supervision.STOPPING)
        log.info("stopping")
        await supervisor.close()
    if supervisor.failed.done():
        raise supervisor.failed.result()
    log.info("stopped")


class Supervisor:
    def __init__(self, settings: Settings, machine: Clock, shows_strings: bool | None) -> None:
        self.failed: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._given = settings  # as they were read last
        self._shows_strings = shows_strings
        self._opened: Opened | None = None
        self._ports: dict[str, list[socket.socket]] = {}
        self._has_announced = False
        self._lives = 0  # of the first process
        self._children = ChildProcesses(machine, self._received)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._children.keep(number, self._begun, self._ended))
            for number in range(self._settings.processes)
        ]
        self._tasks.append(loop.create_task(self._children.watch()))

    async def close(self) -> None:
        """Requests are answered; then all end, the one that has the catalog at last."""
        self._children.is_closing = True
        if self._has_announced:
            await self._tell(StopListening(), float(self._settings.drain_s) + _END_S)
        children = sorted(self._children, key=lambda child: -child.number)
        if not self._has_announced:
            for child in children:
                child.kill()  # nothing has been acknowledged
        for group in ([each for each in children if each.number], [each for each in children if not each.number]):
            await asyncio.gather(*[_end(child) for child in group])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(self, message: handing_over.Reread | StopListening, limit_s: float) -> None:
        """Tell all that serve, and wait until it is done."""
        waiting = []
        for child in self._children:
            if child.is_ready:
                child.done = asyncio.get_running_loop().create_future()
                waiting.append(child.done)
                child.channel.send(message)
        if waiting:
            await asyncio.wait(waiting, timeout=limit_s)

    async def reload(self, reread: Reread) -> None:
        try:
            settings = await asyncio.to_thread(reread)
            check_exposure(settings)
        except Failure as failure:
            log.error("The settings stay as they are: %s", failure.message)
            return
        self._settings = with_reloaded(self._settings, settings)
        if self._settings.log_level != self._given.log_level:
            logging.getLogger().setLevel(self._settings.log_level.upper())
        await self._tell(handing_over.Reread(self._settings), _END_S)
        log_changes(self._given, settings)
        self._given = settings

    # The life of a process.

    def _begun(self, child: Child) -> None:
        if child.number == _FIRST:
            self._set_up(child)
            self._lives += 1
        elif self._opened is not None:
            self._set_up(child)

    def _set_up(self, child: Child) -> None:
        serving = [each.number for each in self._children if each.is_ready]
        setup = Setup(child.number, self._settings, os.getpid(), self._lives, serving, self._shows_strings)
        if self._opened is not None:
            setup.control_key, setup.certificate = self._opened.control_key, self._opened.certificate
        self._children.set_up(child, setup)

    def _received(self, child: Child, message: FromProcess, sockets: list[socket.socket]) -> None:
        if isinstance(message, Opened) and self._opened is None:
            self._opened = message
            for each in self._children:
                if not each.is_set_up:
                    self._set_up(each)
        elif isinstance(message, Ready):
            child.is_ready = True
            self._is_ready(child)
        elif isinstance(message, PortsOpened):
            self._ports = by_doors(message.counts, sockets)
            for each in self._children:
                if each.number != _FIRST and each.is_ready:
                    self._hand_ports(each)
        elif isinstance(message, Announced):
            self._has_announced = True
            supervision.tell(supervision.READY)
        elif isinstance(message, Refused):
            self._refused(child, message.failure)
        elif isinstance(message, Done) and child.done is not None and not child.done.done():
            child.done.set_result(None)
        elif isinstance(message, StartAnew) and not self._children.is_closing:
            other = self._children.get(message.number)
            if other is not None and other.process.pid == message.pid:
                other.kill()

    def _is_ready(self, child: Child) -> None:
        if self._ports:
            self._hand_ports(child)
            log.warning("process %d serves again", child.number)
        elif sum(each.is_ready for each in self._children) == self._settings.processes:
            first = self._children.get(_FIRST)
            assert first is not None, "it is among them"
            first.channel.send(Ports(None))

    def _hand_ports(self, child: Child) -> None:
        is_first = child.number == _FIRST
        ports = {door: sockets for door, sockets in self._ports.items() if is_first or door in _SHARED}
        child.channel.send(Ports({door: len(each) for door, each in ports.items()}), descriptors_of(ports))

    def _refused(self, child: Child, failure: Failure) -> None:
        if self._has_announced:
            log.error("process %d cannot be started: %s", child.number, failure.message)
        else:
            self._fail(failure)

    def _ended(self, child: Child, reason: str) -> None:
        if child.done is not None and not child.done.done():
            child.done.set_result(None)
        if self._children.is_closing:
            return
        if not self._has_announced:
            message = f"Process {child.number} of the server could not be started ({reason}). The log says why."
            self._fail(Failure(Kind.UNAVAILABLE, message))
        elif self._settings.is_in_memory:
            message = f"Process {child.number} of the server has ended ({reason}), and its partitions were in memory."
            self._fail(Failure(Kind.UNAVAILABLE, message))
        else:
            log.error("process %d has ended (%s) and is started again", child.number, reason)

    def _fail(self, failure: Failure) -> None:
        self._children.is_closing = True
        if not self.failed.done():
            self.failed.set_result(failure)


async def _end(child: Child) -> None:
    child.channel.send(End())
    try:
        async with asyncio.timeout(_END_S):
            await child.process.wait()
    except TimeoutError:
        log.warning("process %d does not end: it is killed. What was acknowledged is stored.", child.number)
        child.kill()
        await child.process.wait()
