"""`armillary serve`: opens the storage engine, the account and the doors, announces them, and closes them.

They are closed in the opposite order: no door answers without an account, and every acknowledged write is durable when
the process ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager

from armillary import work
from armillary.account.account import Account
from armillary.clock import Clock, MovableClock, SystemClock
from armillary.errors import Failure
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.storage import file_descriptors
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools import logs
from armillary.tools.resolve import check_exposure
from armillary.tools.serving import supervision
from armillary.tools.serving.doors import Doors, Kept, account_settings, control_key_of, keys_of, make_doors
from armillary.tools.serving.event_loop import log_slower_loop, stop_signal
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
            settings, machine, clock, crowd, hidden, stopping, _full_collections_in_pauses, runtime, shows_strings
        )
    else:
        async with AsyncExitStack() as opened:
            failed: asyncio.Future[Failure] | None = None
            if settings.processes > 1:
                from armillary.tools.serving.processes.first_process import open_divided_server  # likewise

                doors, listeners, others = await open_divided_server(
                    opened, settings, machine, clock, crowd, hidden, runtime
                )
                failed = others.failed
            else:
                doors, listeners = await open_server(opened, settings, machine, clock, crowd, hidden, runtime)
            announce(settings, listeners)
            greet(settings, listeners, doors.credentials.owners[0], shows_strings)
            supervision.tell(supervision.READY)
            runtime.start()
            opened.push_async_callback(runtime.stop)
            with _full_collections_in_pauses():
                await _until(stopping, failed)
            supervision.tell(supervision.STOPPING)
            log.info("stopping")


async def _until(stopping: asyncio.Event, failed: asyncio.Future[Failure] | None) -> None:
    """Raises the Failure for which the server cannot go on."""
    if failed is None:
        await stopping.wait()
        return
    failed.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if failed.done():
        raise failed.result()


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


# A full pass of Python's garbage collector looks at every live container object and cannot be interrupted: with the
# million values that one evaluation may hold it would stop all requests for more than 100 ms. So full passes are made
# between long evaluations, when little is alive, and during one only after a very large number of new objects.
# Requests make and drop many small objects and hardly any cycles: looking for those less often is measurable.
_YOUNG_OBJECTS = 20_000  # made and not dropped, for a pass over them
_YOUNG_PASSES = 5  # for a pass over what they left: 100,000 objects, about 5 ms
_PASSES_AT_MOST, _PASSES_IN_PAUSE = 100, 5  # of the latter kind, for a full one


@contextmanager
def _full_collections_in_pauses() -> Iterator[None]:
    def collect() -> None:
        if gc.get_count()[2] >= _PASSES_IN_PAUSE:
            gc.collect()

    gc.collect()
    gc.freeze()  # what was made until now stays: full passes need not look at it again
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_PASSES, _PASSES_AT_MOST)
    loop = asyncio.get_running_loop()
    work.after_long_runs = lambda: loop.call_soon(collect)  # its values are referenced until its task goes on
    try:
        yield
    finally:
        work.after_long_runs = None


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
