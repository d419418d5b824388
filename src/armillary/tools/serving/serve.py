"""`armillary serve`: opens the storage engine, the account and the doors, announces them, and closes them.

They are closed in the opposite order: no door answers without an account, and every acknowledged write is durable when
the process ends.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack

from armillary.account.account import Account
from armillary.clock import Clock, MovableClock, SystemClock
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.storage import file_descriptors
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools import logs
from armillary.tools.exposure import keys_of
from armillary.tools.resolve import check_exposure
from armillary.tools.serving import supervision
from armillary.tools.serving.doors import Doors, Kept, account_settings, control_key_of, make_doors
from armillary.tools.serving.event_loop import full_collections_in_pauses, log_slower_loop, stop_signal
from armillary.tools.serving.event_loop import run as run_loop
from armillary.tools.serving.ports import announce, entrances_of, open_ports
from armillary.tools.serving.reload import Reload, Reread
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.start_message import greet
from armillary.tools.serving.tracing import begin_tracing
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


def run(settings: Settings, reread: Reread | None = None, *, shows_strings: bool | None = None) -> int:
    """Serve until told to stop. A refusal to start is a Failure. `reread`: finds the settings again, on SIGHUP.
    `shows_strings`: see `start_message.greet`."""
    check_exposure(settings)
    secrets = {*keys_of(settings), settings.control_key, settings.control_read_only_key}
    logs.set_up(settings.log_level, settings.log_format, lambda: secrets)
    for warning in settings.warnings:
        log.warning("%s", warning)
    file_descriptors.raise_limit()
    log_slower_loop()
    run_loop(serve(settings, secrets, reread, shows_strings=shows_strings))
    return 0


async def serve(
    settings: Settings,
    secrets: set[str | None] | None = None,
    reread: Reread | None = None,
    *,
    shows_strings: bool | None = None,
) -> None:
    """`secrets`: what the log must not hold; keys that are made later are added."""
    # The machine's own time for storage, sockets, certificates and signatures; the account may have one of its own.
    machine = SystemClock()
    clock = MovableClock() if settings.clock == "movable" else machine
    stopping = stop_signal(ends_with_stdin=settings.stops_with_stdin)
    hidden = secrets if secrets is not None else set()
    crowd = Crowd(file_descriptors.for_connections(), clock=machine)
    runtime = Runtime(settings, machine)
    runtime.hidden = hidden
    with ExitStack() as tracing:
        begin_tracing(settings, runtime, tracing)
        if reread is not None:
            Reload(settings, reread, runtime, machine).on_hangup()
        await _serve(settings, machine, clock, crowd, hidden, stopping, runtime, shows_strings)
    log.info("stopped")


async def _serve(
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    stopping: asyncio.Event,
    runtime: Runtime,
    shows_strings: bool | None,
) -> None:
    if settings.cluster is not None:
        from armillary.tools.serving.serve_node import serve_node  # what a single server does not need

        hidden.add(settings.cluster)
        await serve_node(
            settings, machine, clock, crowd, hidden, stopping, full_collections_in_pauses, runtime, shows_strings
        )
    else:
        async with AsyncExitStack() as opened:
            doors, listeners = await open_server(opened, settings, machine, clock, crowd, hidden, runtime)
            announce(settings, listeners)
            greet(settings, listeners, doors.credentials.owners[0], shows_strings)
            supervision.tell(supervision.READY)
            runtime.start()
            opened.push_async_callback(runtime.stop)
            with full_collections_in_pauses():
                await stopping.wait()
            supervision.tell(supervision.STOPPING)
            log.info("stopping")


async def open_server(
    opened: AsyncExitStack,
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    runtime: Runtime,
) -> tuple[Doors, dict[str, Listener]]:
    """A single server, closed with `opened`: its doors, and its ports by their names."""
    engine = await _open_engine(settings, machine)
    opened.push_async_callback(engine.close)
    account = await Account.open(engine, clock, account_settings(settings))
    opened.push_async_callback(account.close)
    kept = Kept.made(settings, machine, control_key_of(settings, machine), runtime)
    doors = await make_doors(settings, account, machine, kept, hidden)
    opened.push_async_callback(doors.close)
    listeners = await open_ports(opened, settings, machine, crowd, entrances_of(doors), kept)
    doors.use(settings, listeners)
    return doors, listeners


async def _open_engine(settings: Settings, clock: Clock) -> Engine:
    if settings.is_in_memory:
        return MemoryEngine()
    return await RocksEngine.open(
        settings.directory,
        durability="relaxed" if settings.durability == "relaxed" else "full",
        clock=clock,
        permissions=settings.data_permissions,
        reserve_bytes=settings.reserve_bytes(),
        has_statistics=settings.has_storage_statistics,
    )
