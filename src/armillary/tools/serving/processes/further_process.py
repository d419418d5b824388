"""The program of each process but the first of a server with several (`armillary serve --processes`). It is started by
the first process, has a storage engine of its own, answers clients on the same ports, and ends with the first process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

from armillary.clock import Clock, MovableClock, SystemClock
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.net.connection_limits import Crowd
from armillary.net.http import DoorsByPrefix
from armillary.net.listen import Listener
from armillary.portal.entrance_pages import CERTIFICATE_PATH
from armillary.portal.policy import redirect_browser
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.connection import connect
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.places import Places, ProcessHere
from armillary.processes.process_questions import ProcessReady
from armillary.storage import file_descriptors
from armillary.storage.directory import process_directory
from armillary.storage.engine import HoldableEngine
from armillary.tools import logs
from armillary.tools.serving.doors import Doors, Kept, keys_of, make_doors
from armillary.tools.serving.event_loop import run as run_loop
from armillary.tools.serving.ports import entrances_of, open_ports
from armillary.tools.serving.processes.divided_settings import further_settings, open_engine
from armillary.tools.serving.processes.forwarded_requests import ForwardingDoor
from armillary.tools.serving.processes.handing_over import Peer, Ports, Setup, take_over
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.tracing import begin_tracing
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


def main(arguments: list[str]) -> int:
    handed = socket.socket(fileno=int(arguments[0]))
    received = take_over(handed)
    if received is None:
        return 1
    setup, [first] = received
    assert isinstance(setup, Setup)
    secrets = {*keys_of(setup.settings), setup.control_key, setup.settings.control_read_only_key}
    logs.set_up(setup.settings.log_level, setup.settings.log_format, lambda: secrets)
    for name in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a terminal sends them to all: the first process ends the others
        signal.signal(name, signal.SIG_IGN)
    file_descriptors.raise_limit()
    return run_loop(FurtherProcess(handed, setup, secrets).serve(first))


class FurtherProcess:
    def __init__(self, handed: socket.socket, setup: Setup, hidden: set[str | None]) -> None:
        self._handed = handed
        self._setup = setup
        self._hidden = hidden
        self._settings: Settings = setup.settings
        self._machine: Clock = SystemClock()
        self._places = Places(setup.number, setup.settings.processes, self._machine)
        self._replica = CatalogReplica()
        self._here = ProcessHere(self._places, self._replica, self._machine)
        self._ending = asyncio.Event()
        self._connecting: set[asyncio.Task[None]] = set()
        self._ports: asyncio.Future[dict[str, list[socket.socket]]]
        self._listeners: Mapping[str, Listener] = {}

    async def serve(self, first: socket.socket) -> int:
        """Until the first process says so or has ended."""
        loop = asyncio.get_running_loop()
        self._ports = loop.create_future()
        self._here.on_stop = self._stop_listening
        self._here.on_end = self._ending.set
        link, connection = await connect(first, self._here, self._places.number, self._places.write_ids)
        connection.on_lost = self._first_lost
        self._places.first.use(link, is_ready=True)
        self._handed.setblocking(False)
        loop.add_reader(self._handed.fileno(), self._take_over)
        async with AsyncExitStack() as opened:
            await self._here.load_catalog()
            engine = await open_engine(self._settings, self._directory, self._machine, "further")
            opened.push_async_callback(engine.close)
            doors, kept = await self._open(opened, engine)
            self._places.first.tell(ProcessReady(self._places.number))
            serving = asyncio.ensure_future(self._listen(opened, doors, kept))
            ending = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                await ending
            serving.cancel()
        return 0

    @property
    def _directory(self) -> Path | None:
        if self._settings.is_in_memory:
            return None
        return process_directory(self._settings.directory, self._places.number)

    async def _open(self, opened: AsyncExitStack, engine: HoldableEngine) -> tuple[Doors, Kept]:
        divided = DividedEngine(engine, self._places.number, self._replica)
        divided.drop_elsewhere = self._here.drop_store
        clock = MovableClock() if self._settings.clock == "movable" else self._machine
        account = DividedAccount(divided, clock, further_settings(self._settings), self._here)
        account.controls.runtime = runtime = Runtime(self._settings, self._machine)
        await account.controls.ask()
        await account.begin()
        opened.push_async_callback(account.close)
        self._here.open(account)
        runtime.hidden = self._hidden
        kept = Kept.made(self._settings, self._machine, self._setup.control_key, runtime)
        doors = await make_doors(self._settings, account, self._machine, kept, self._hidden)
        opened.push_async_callback(doors.close)
        self._here.doors["mongo"] = doors.late_mongo
        self._here.services = doors.control
        begin_tracing(self._settings, runtime, opened.enter_context(ExitStack()))
        runtime.start()
        opened.push_async_callback(runtime.stop)
        return doors, kept

    async def _listen(self, opened: AsyncExitStack, doors: Doors, kept: Kept) -> None:
        """Answer clients on the ports of the first process."""
        bound = await self._ports
        if self._connecting:
            await asyncio.wait(self._connecting)  # what is asked of the others is not to be refused
        forwarding = ForwardingDoor(self._here)
        sql_port = DoorsByPrefix(
            doors.sql, ((CONTROL_PREFIX, forwarding), (CERTIFICATE_PATH, forwarding)), redirect_browser
        )
        entrances = entrances_of(doors, sql_port)
        crowd = Crowd(file_descriptors.for_connections(), clock=self._machine)
        listeners = await open_ports(
            opened, self._settings, self._machine, crowd, entrances, kept, bound, self._setup.certificate
        )
        doors.use(self._settings, listeners)
        self._listeners = listeners

    async def _stop_listening(self) -> None:
        await asyncio.gather(*[each.close(float(self._settings.drain_s)) for each in self._listeners.values()])

    # What the first process hands over.

    def _take_over(self) -> None:
        try:
            received = take_over(self._handed)
        except BlockingIOError:
            return
        if received is None:
            self._first_lost()
            return
        message, sockets = received
        if isinstance(message, Peer):
            task = asyncio.get_running_loop().create_task(self._meet(message.number, sockets[0]))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        elif isinstance(message, Ports) and not self._ports.done():
            bound, at = {}, 0
            for door, count in message.counts.items():
                bound[door] = sockets[at : at + count]
                at += count
            self._ports.set_result(bound)

    async def _meet(self, number: int, end: socket.socket) -> None:
        place = self._places[number]
        link, connection = await connect(end, self._here, self._places.number, self._places.write_ids)
        place.use(link, is_ready=True)
        connection.on_lost = partial(self._lost, number, link)

    def _lost(self, number: int, link: object) -> None:
        place = self._places[number]
        if place.connected is link:
            place.use(None, is_ready=False)

    def _first_lost(self) -> None:
        """What was acknowledged is stored: there is nothing to wait for."""
        if not self._ending.is_set():
            log.error("process %d ends, because the first process of the server has ended", self._places.number)
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
