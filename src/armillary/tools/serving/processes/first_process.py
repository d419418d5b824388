"""The first process of a server with several (`armillary serve --processes`): it has the catalog and a part of the
partitions, starts the others, and answers for all of them at the control API, the portal and the MongoDB door.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.clock import Clock
from armillary.model.resources import ResourceType
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.processes.catalog_owner import FIRST, CatalogOwner
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.moments.moments import Moments
from armillary.processes.moments.others import Others
from armillary.processes.places import Places
from armillary.processes.shared_locks import LockTable
from armillary.tools.serving.doors import Doors, Kept, account_settings, control_key_of, make_doors
from armillary.tools.serving.ports import entrances_of, open_ports
from armillary.tools.serving.processes.divided_settings import open_engine, refuse_fewer, refuse_lost
from armillary.tools.serving.processes.forwarded_requests import FirstProcess, pages_of_others
from armillary.tools.serving.processes.further_processes import FurtherProcesses
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.tls import DoorTls
from armillary.tools.settings import Settings


async def open_divided_server(
    opened: AsyncExitStack,
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    runtime: Runtime,
) -> tuple[Doors, dict[str, Listener], FurtherProcesses]:
    """Closed with `opened`: its doors, and its ports by their names."""
    if not settings.is_in_memory:
        refuse_fewer(settings)
    engine = await open_engine(settings, None if settings.is_in_memory else settings.directory, machine, "first")
    opened.push_async_callback(engine.close)
    replica = CatalogReplica()
    here = FirstProcess(Places(FIRST, settings.processes, machine), replica, machine)
    here.owner = await CatalogOwner.open(engine.store(CATALOG_STORE), replica)
    here.owner.spread = here.spread_change
    here.locks = LockTable()
    divided = DividedEngine(engine, FIRST, replica)
    divided.drop_elsewhere = here.drop_store
    control_key = control_key_of(settings, machine)
    certificate = await asyncio.to_thread(DoorTls(settings, machine).shared_certificate)
    others = FurtherProcesses(settings, machine, here, (control_key, certificate))
    account = DividedAccount(divided, clock, account_settings(settings), here)
    account.controls.runtime = runtime
    moments = Moments(here)
    divided.make_checkpoint = moments.checkpoint
    account.others = Others(here, moments, here.owner)
    opened.push_async_callback(others.close)
    await account.begin()
    opened.push_async_callback(account.close)
    if not settings.is_in_memory:
        containers = account.catalog.of_type(ResourceType.CONTAINER)
        refuse_lost(settings, [place_of_store(store) for each in containers for store in each.stores])
    here.open(account)
    kept = Kept.made(settings, machine, control_key, runtime)
    starting = asyncio.ensure_future(others.start())
    try:
        doors = await make_doors(settings, account, machine, kept, hidden)
        opened.push_async_callback(doors.close)
        here.answer_request = doors.sql_port.answer
        here.doors["mongo"] = doors.late_mongo
        doors.control.facts.other_pages = partial(pages_of_others, here.places)
        await starting
    finally:
        starting.cancel()
    await account.collect_garbage()
    listeners = await open_ports(opened, settings, machine, crowd, entrances_of(doors), kept, certificate=certificate)
    others.share_ports(listeners)
    opened.push_async_callback(others.stop_listening)
    doors.use(settings, listeners)
    return doors, listeners, others
