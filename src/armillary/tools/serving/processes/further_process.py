"""How each process but the first of a server with several opens its account: with the catalog, the controls and the
connections of the first.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from armillary.clock import Clock
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.net.http import DoorsByPrefix
from armillary.portal.entrance_pages import CERTIFICATE_PATH
from armillary.portal.policy import redirect_browser
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.places import Places, ProcessHere
from armillary.storage.directory import process_directory
from armillary.tools.serving.doors import Doors
from armillary.tools.serving.processes.divided_settings import further_settings, open_engine
from armillary.tools.serving.processes.forwarded_requests import ForwardingDoor
from armillary.tools.serving.processes.handing_over import Channel, Setup
from armillary.tools.serving.runtime import Runtime


class OpeningFurther:
    def __init__(self, setup: Setup, channel: Channel, machine: Clock) -> None:
        assert setup.control_key is not None, "the first process has found it"
        self._setup = setup
        self._settings = setup.settings
        self._machine = machine
        self._replica = CatalogReplica()
        self.control_key = setup.control_key
        self.certificate = setup.certificate
        self.here = ProcessHere(Places(setup.number, setup.settings.processes, machine), self._replica, machine)
        self.connected = asyncio.Event()  # to the first process

    async def open_account(self, opened: AsyncExitStack, clock: Clock, runtime: Runtime) -> DividedAccount:
        await self.connected.wait()
        await self.here.load_catalog()
        supervisor = self._setup.supervisor
        engine = await open_engine(self._settings, self._directory, self._machine, "further", supervisor)
        opened.push_async_callback(engine.close)
        divided = DividedEngine(self._replica, {self._setup.number: engine})
        divided.drop_elsewhere = self.here.drop_store
        account = DividedAccount(divided, clock, further_settings(self._settings), self.here)
        account.controls.runtime = runtime
        await account.controls.ask()
        await account.begin()
        await account.controls.ask()  # again: captures are of containers that are open now
        opened.push_async_callback(account.close)
        self.here.open(account)
        return account

    @property
    def _directory(self) -> Path | None:
        if self._settings.is_in_memory:
            return None
        return process_directory(self._settings.directory, self._setup.number)

    def has_opened(self, doors: Doors) -> None:
        """Nothing is asked of its doors by other processes."""

    def has_left(self, number: int) -> None:
        """Nothing here waits for other processes."""

    def sql_port(self, doors: Doors) -> DoorsByPrefix:
        forwarding = ForwardingDoor(self.here)
        forwarded = ((CONTROL_PREFIX, forwarding), (CERTIFICATE_PATH, forwarding))
        return DoorsByPrefix(doors.sql, forwarded, redirect_browser)
