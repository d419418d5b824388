"""How the first process of a server with several opens its account: it has the catalog and a part of the partitions,
and answers for all processes at the control API and the portal.

Started anew while the others serve, it goes on with what they know (`processes/rejoining.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.clock import Clock
from armillary.model.resources import ResourceType
from armillary.net.http import DoorsByPrefix
from armillary.processes.catalog_owner import FIRST, CatalogOwner
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.moments.moments import Moments
from armillary.processes.moments.others import Others
from armillary.processes.places import Places
from armillary.processes.rejoining import Rejoining
from armillary.processes.shared_locks import LockTable
from armillary.processes.transactions.shared_moments import SharedMoments
from armillary.tools.serving.doors import Doors, account_settings, control_key_of
from armillary.tools.serving.processes.divided_settings import open_engine, refuse_fewer, refuse_lost
from armillary.tools.serving.processes.forwarded_requests import FirstProcess, pages_of_others
from armillary.tools.serving.processes.handing_over import Channel, Opened, Setup
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.tls import DoorTls


class OpeningFirst:
    def __init__(self, setup: Setup, channel: Channel, machine: Clock) -> None:
        self._setup = setup
        self._settings = setup.settings
        self._channel = channel
        self._machine = machine
        self._replica = CatalogReplica()
        self._rejoining = Rejoining(setup.serving)
        self.control_key = setup.control_key or ""
        self.certificate = setup.certificate
        self.here = FirstProcess(Places(FIRST, setup.settings.processes, machine), self._replica, machine)
        self.here.rejoining = self._rejoining
        self.here.locks = LockTable()
        self.connected = asyncio.Event()  # it is the first process itself

    async def open_account(self, opened: AsyncExitStack, clock: Clock, runtime: Runtime) -> DividedAccount:
        settings, machine, here = self._settings, self._machine, self.here
        if not settings.is_in_memory:
            refuse_fewer(settings)
        directory = None if settings.is_in_memory else settings.directory
        engine = await open_engine(settings, directory, machine, "first", self._setup.supervisor)
        opened.push_async_callback(engine.close)
        if not self.control_key:
            await self._tell_others()
        here.owner = await CatalogOwner.open(engine.store(CATALOG_STORE), self._replica, self._setup.life)
        here.owner.spread = here.spread_change
        divided = DividedEngine(self._replica, {FIRST: engine})
        divided.drop_elsewhere = here.drop_store
        self._rejoining.has_catalog.set()
        for number in await self._rejoining.done():
            here.end_process(number)
        account = DividedAccount(divided, clock, account_settings(settings), here)
        account.controls.runtime = runtime
        moments = Moments(here)
        divided.make_checkpoint = moments.checkpoint
        account.transactions.moments = SharedMoments(here, moments)
        account.others = Others(here, moments, here.owner)
        if self._rejoining.controls is not None:
            account.controls.use(self._rejoining.controls)
        await account.begin()
        opened.push_async_callback(account.close)
        if not settings.is_in_memory:
            containers = account.catalog.of_type(ResourceType.CONTAINER)
            refuse_lost(settings, [place_of_store(store) for each in containers for store in each.stores])
        here.open(account)
        await account.spread_controls()
        return account

    async def _tell_others(self) -> None:
        settings, machine = self._settings, self._machine
        self.control_key = control_key_of(settings, machine)
        self.certificate = await asyncio.to_thread(DoorTls(settings, machine).shared_certificate)
        self._channel.send(Opened(self.control_key, self.certificate))

    def has_opened(self, doors: Doors) -> None:
        """What comes to other processes and is about the whole server is asked of this one."""
        self.here.answer_request = doors.sql_port.answer
        doors.control.facts.other_pages = partial(pages_of_others, self.here.places)

    def has_left(self, number: int) -> None:
        self._rejoining.joined(number)

    def sql_port(self, doors: Doors) -> DoorsByPrefix:
        return doors.sql_port
