"""The first process's side of a server with several: it starts the others, connects them with each other, gives them
its listening sockets, starts one anew that has ended, and ends them.

While a process is being started, requests to its partitions are refused with 503 and a retry-after; all others go on.
In memory its partitions are lost with a process, so the server ends then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import Lost
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.net.listen import Listener
from armillary.processes.connection import ProcessConnection, connect
from armillary.processes.places import Places
from armillary.processes.process_questions import EndProcess, StopListening
from armillary.tools.serving.processes.forwarded_requests import FirstProcess
from armillary.tools.serving.processes.handing_over import Peer, Ports, Setup, hand_over
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")

_PROGRAM: Final = ("-m", "armillary.tools.serving.processes.further_process")
_SHARED: Final = ("sql", "gateway", "table", "gremlin", "mongo")  # ports on which all processes answer
_PAUSE_S_MAX: Final = 10.0  # before a process is started again that has just been
_LIVES_S: Final = 30.0  # one that has run for so long is started again at once
_END_S: Final = 20.0
_BUFFER_BYTES: Final = 1024 * 1024


class _Child:
    """A process, from its start to its end."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, handed: socket.socket, begun_s: float) -> None:
        self.number = number
        self.process = process
        self.handed = handed  # what is handed to it later goes there
        self.begun_s = begun_s
        self.link: Link | None = None
        self.is_ready = False


class FurtherProcesses:
    def __init__(
        self, settings: Settings, machine: Clock, here: FirstProcess, setup: tuple[str, tuple[bytes, bytes] | None]
    ) -> None:
        """`setup`: the control key, and the certificate of a server in memory with its key."""
        self._settings = settings
        self._machine = machine
        self._here = here
        self._places: Places = here.places
        self._control_key, self._certificate = setup
        self._children: dict[int, _Child] = {}
        self._watching: dict[int, asyncio.Task[None]] = {}
        self._listeners: Mapping[str, Listener] = {}
        self._closing = asyncio.Event()
        self._ready: dict[int, asyncio.Future[None]] = {}
        self.failed: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        here.on_ready = self._is_ready
        here.end_process = self.kill

    async def start(self) -> None:
        """Returns when all are ready."""
        loop = asyncio.get_running_loop()
        for number in self._places.others:
            self._ready[number] = loop.create_future()
            self._watching[number] = loop.create_task(self._keep(number))
        waiting: set[asyncio.Future[object]] = {*self._ready.values(), self.failed}  # type: ignore[arg-type]
        while not all(each.done() for each in self._ready.values()):
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                raise self.failed.result()
            waiting = {each for each in waiting if not each.done()}

    def share_ports(self, listeners: Mapping[str, Listener]) -> None:
        """All processes answer on these ports from now on."""
        self._listeners = {name: listener for name, listener in listeners.items() if name in _SHARED}
        for listener in self._listeners.values():
            listener.share()
        for child in self._children.values():
            if child.is_ready:
                self._hand_ports(child)

    async def stop_listening(self) -> None:
        """No process but this one takes connections any more, and their requests are answered."""
        self._closing.set()
        asked = [
            place.ask(StopListening(), limit_s=float(self._settings.drain_s) + _END_S)
            for place in self._places.connected
        ]
        await asyncio.gather(*asked, return_exceptions=True)

    async def close(self) -> None:
        """End all of them."""
        self._closing.set()
        for place in self._places.others.values():
            if place.connected is not None:
                place.connected.tell(EndProcess())
        for child in self._children.values():
            try:
                async with asyncio.timeout(_END_S):
                    await child.process.wait()
            except TimeoutError:
                log.warning("process %d does not end: it is killed. What was acknowledged is stored.", child.number)
                self.kill(child.number)
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)

    def kill(self, number: int) -> None:
        child = self._children.get(number)
        if child is not None:
            with suppress(ProcessLookupError):
                child.process.kill()

    @property
    def pids(self) -> dict[int, int]:
        """Of the processes that run, by number."""
        return {number: child.process.pid for number, child in self._children.items()}

    # One process.

    async def _keep(self, number: int) -> None:
        """Have a process run, whatever ends it."""
        pause_s = 0.0
        while not self._closing.is_set():
            await self._machine.sleep(pause_s)
            try:
                child = await self._begin(number)
            except (OSError, Failure, Lost) as error:
                log.error("process %d cannot be started: %s", number, error)
                self._has_ended(number, None)
                if not self._ready[number].done():
                    self._fail(number)
                    return
                pause_s = min(_PAUSE_S_MAX, pause_s + 1.0)
                continue
            code = await child.process.wait()
            self._has_ended(number, code)
            child.handed.close()
            if self._closing.is_set():
                return
            if not self._ready[number].done() or self._settings.is_in_memory:
                self._fail(number)
                return
            lived_s = self._machine.monotonic_s() - child.begun_s
            pause_s = 0.0 if lived_s >= _LIVES_S else min(_PAUSE_S_MAX, pause_s + 0.5)
            log.error("process %d has ended (%s) and is started again", number, _ended_by(code))

    def _fail(self, number: int) -> None:
        message = (
            f"Process {number} of the server has ended, and its partitions were in memory."
            if self._ready[number].done()
            else f"Process {number} of the server could not be started. The log has the reason."
        )
        if not self.failed.done():
            self.failed.set_result(Failure(Kind.UNAVAILABLE, message))

    async def _begin(self, number: int) -> _Child:
        handed, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with given:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_PROGRAM,
                str(given.fileno()),
                pass_fds=(given.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            )
        child = self._children[number] = _Child(number, process, handed, self._machine.monotonic_s())
        own, other = connected_pair()
        with other:
            setup = Setup(number, self._settings, self._control_key, self._certificate)
            hand_over(handed, setup, [other.fileno()])
        link, connection = await connect(own, self._here, self._places.number, self._places.write_ids)
        child.link = link
        self._places[number].use(link, is_ready=False)
        connection.on_lost = partial(self._connection_lost, child, connection)
        return child

    def _is_ready(self, number: int) -> None:
        child = self._children[number]
        child.is_ready = True
        self._places[number].use(child.link, is_ready=True)
        for other in self._children.values():
            if other is not child and other.is_ready:
                self._introduce(child, other)
        if self._listeners:
            self._hand_ports(child)
        if not self._ready[number].done():
            self._ready[number].set_result(None)
        else:
            log.warning("process %d serves again", number)

    def _introduce(self, one: _Child, other: _Child) -> None:
        ends = connected_pair()
        try:
            for child, peer, end in ((one, other, ends[0]), (other, one, ends[1])):
                hand_over(child.handed, Peer(peer.number), [end.fileno()])
        except OSError as error:  # it has just ended: it is introduced again after its next start
            log.debug("a process has ended before it was connected: %s", error)
        finally:
            for end in ends:
                end.close()

    def _hand_ports(self, child: _Child) -> None:
        counts = {name: len(each.descriptors) for name, each in self._listeners.items()}
        descriptors = [number for each in self._listeners.values() for number in each.descriptors]
        with suppress(OSError):  # it has just ended
            hand_over(child.handed, Ports(counts), descriptors)

    def _connection_lost(self, child: _Child, _connection: ProcessConnection) -> None:
        if self._children.get(child.number) is child:
            self._has_ended(child.number, None)
            self.kill(child.number)  # it may have closed the connection and run on

    def _has_ended(self, number: int, _code: int | None) -> None:
        self._places[number].use(None, is_ready=False)
        self._here.followers.discard(number)
        if self._here.locks is not None:
            self._here.locks.leave(number)
        child = self._children.get(number)
        if child is not None:
            child.is_ready = False


def connected_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return pair


def _ended_by(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
