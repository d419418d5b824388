"""The program of each process of a server with several (`armillary serve --processes`). It is started by the
supervisor, has a storage engine of its own, answers clients on the server's ports, and ends with the supervisor.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from armillary.account.visits.elsewhere.link import Link
from armillary.clock import Clock, MovableClock, SystemClock
from armillary.errors import Failure
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.processes.catalog_owner import FIRST
from armillary.processes.connection import connect
from armillary.processes.divided_account import DividedAccount
from armillary.processes.rejoining import rejoin
from armillary.storage import file_descriptors
from armillary.tools import logs
from armillary.tools.exposure import keys_of
from armillary.tools.serving.doors import Doors, Kept, make_doors
from armillary.tools.serving.event_loop import full_collections_in_pauses
from armillary.tools.serving.event_loop import run as run_loop
from armillary.tools.serving.ports import announce, entrances_of, open_ports
from armillary.tools.serving.processes import handing_over
from armillary.tools.serving.processes.first_process import OpeningFirst
from armillary.tools.serving.processes.further_process import OpeningFurther
from armillary.tools.serving.processes.handing_over import (
    Announced,
    Channel,
    Done,
    End,
    Peer,
    Ping,
    Pong,
    Ports,
    PortsOpened,
    Ready,
    Refused,
    Setup,
    StartAnew,
    StopListening,
    by_doors,
)
from armillary.tools.serving.reload import use_reread
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.start_message import greet
from armillary.tools.serving.tracing import begin_tracing

log = logging.getLogger("armillary")

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    channel.set_waiting(is_waiting=True)
    received = channel.receive()
    if received is None:
        return 1
    setup, _ = received
    assert isinstance(setup, Setup)
    _end_with(setup.supervisor)
    settings = setup.settings
    secrets = {*keys_of(settings), setup.control_key, settings.control_key, settings.control_read_only_key}
    logs.set_up(settings.log_level, settings.log_format, lambda: secrets)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # a terminal sends them to all: the supervisor obeys them
    file_descriptors.raise_limit()
    try:
        run_loop(ServerProcess(channel, setup, secrets).serve())
    except Failure as failure:
        channel.send(Refused(failure))
        return 1
    return 0


def _end_with(supervisor: int) -> None:
    """Have the kernel end this process with the supervisor, also while it does not run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)


class ServerProcess:
    def __init__(self, channel: Channel, setup: Setup, hidden: set[str | None]) -> None:
        self._channel = channel
        self._setup = setup
        self._hidden = hidden
        self._settings = setup.settings
        self._machine: Clock = SystemClock()
        self._runtime = Runtime(setup.settings, self._machine)
        self._runtime.hidden = hidden
        opening = OpeningFirst if setup.number == FIRST else OpeningFurther
        self._opening = opening(setup, channel, self._machine)
        self._here = self._opening.here
        self._account: DividedAccount | None = None
        self._kept: Kept | None = None
        self._doors: Doors | None = None
        self._open = AsyncExitStack()  # the ports
        self._ports: asyncio.Future[Mapping[str, list[socket.socket]] | None]
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._here.end_process = self._start_anew
        self._here.first_met = self._first_met
        self._here.on_left = self._has_left

    async def serve(self) -> None:
        """Until the supervisor says so or has ended."""
        loop = asyncio.get_running_loop()
        self._ports = loop.create_future()
        self._channel.set_waiting(is_waiting=False)
        loop.add_reader(self._channel.fileno(), self._receive)
        ending = loop.create_task(self._ending.wait())
        with ExitStack() as tracing:
            begin_tracing(self._settings, self._runtime, tracing)
            async with AsyncExitStack() as opened:
                await self._begin(opened)
                opened.push_async_exit(self._open)
                either: set[asyncio.Future[Any]] = {self._ports, ending}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if self._ports.done():
                    await self._listen(self._ports.result())
                with full_collections_in_pauses():
                    await self._ending.wait()

    async def _begin(self, opened: AsyncExitStack) -> None:
        settings, machine, runtime = self._settings, self._machine, self._runtime
        clock = MovableClock() if settings.clock == "movable" else machine
        self._account = account = await self._opening.open_account(opened, clock, runtime)
        kept = self._kept = Kept.made(settings, machine, self._opening.control_key, runtime)
        doors = self._doors = await make_doors(settings, account, machine, kept, self._hidden)
        opened.push_async_callback(doors.close)
        runtime.start()
        opened.push_async_callback(runtime.stop)
        self._here.doors["mongo"] = doors.late_mongo
        self._here.services = doors.control
        self._opening.has_opened(doors)
        self._here.become_ready()
        self._channel.send(Ready())

    async def _listen(self, bound: Mapping[str, list[socket.socket]] | None) -> None:
        """Answer clients. `bound` None: this is the first process, which opens the ports."""
        assert self._doors is not None and self._kept is not None and self._account is not None
        settings, doors = self._settings, self._doors
        await self._here.others_ready()
        if self._account.plans:
            await self._account.collect_garbage()
        entrances = entrances_of(doors, self._opening.sql_port(doors))
        crowd = Crowd(file_descriptors.for_connections(), clock=self._machine)
        certificate = self._opening.certificate
        listeners = await open_ports(
            self._open, settings, self._machine, crowd, entrances, self._kept, bound, certificate
        )
        doors.use(settings, listeners)
        if bound is None:
            self._hand_over(listeners)
            announce(settings, listeners)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing else is written there
            greet(settings, listeners, doors.credentials.owners[0], self._setup.shows_strings)
            self._channel.send(Announced())

    def _hand_over(self, listeners: Mapping[str, Listener]) -> None:
        for listener in listeners.values():
            listener.share()
        counts = {name: len(each.descriptors) for name, each in listeners.items()}
        self._channel.send(PortsOpened(counts), [each for one in listeners.values() for each in one.descriptors])

    # What the supervisor says.

    def _receive(self) -> None:
        while True:
            try:
                received = self._channel.receive()
            except BlockingIOError:
                return
            if received is None:
                os._exit(1)  # it has ended; what was acknowledged is stored
            message, sockets = received
            if isinstance(message, Ping):
                self._channel.send(Pong())
            elif isinstance(message, Peer):
                self._do(self._meet(message, sockets[0]))
            elif isinstance(message, Ports) and not self._ports.done():
                self._ports.set_result(None if message.counts is None else by_doors(message.counts, sockets))
            elif isinstance(message, handing_over.Reread):
                self._do(self._use(message))
            elif isinstance(message, StopListening):
                self._do(self._stop_listening())
            elif isinstance(message, End):
                self._ending.set()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _use(self, message: handing_over.Reread) -> None:
        try:
            await use_reread(self._settings, message.settings, self._runtime, is_told=self._setup.number == FIRST)
            self._settings = message.settings
        except Exception:
            log.exception("the settings could not be used")
        self._channel.send(Done())

    async def _stop_listening(self) -> None:
        await self._open.aclose()
        if self._account is not None:
            await self._account.captures.gather()  # while the others are there
        self._channel.send(Done())

    # Other processes.

    async def _meet(self, peer: Peer, end: socket.socket) -> None:
        self._here.places[peer.number].pid = peer.pid
        try:
            await connect(end, self._here, self._setup.number, self._here.places.write_ids)
        except (Failure, OSError) as error:
            log.debug("process %d has ended before it was connected: %s", peer.number, error)

    def _start_anew(self, number: int) -> None:
        pid = os.getpid() if number == self._setup.number else self._here.places[number].pid
        self._channel.send(StartAnew(number, pid))

    def _first_met(self, link: Link) -> None:
        if self._here.is_ready and self._account is not None:
            self._do(rejoin(self._here, self._account.controls, link))
        else:
            self._opening.connected.set()

    def _has_left(self, number: int) -> None:
        self._opening.has_left(number)
        if number == FIRST and not self._here.is_ready:
            os._exit(1)  # it is started anew, and asks the next first process
