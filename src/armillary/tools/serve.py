"""`armillary serve`: opens the storage engine, the account and the doors, announces them, and closes them.

They are closed in the opposite order: no door answers without an account, and every acknowledged write is durable when
the process ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import uvloop

from armillary import __version__, work
from armillary.account.account import Account
from armillary.clock import Clock, MovableClock, SystemClock
from armillary.net.connection_limits import Crowd
from armillary.storage import file_descriptors
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools import logs
from armillary.tools.doors import account_settings, in_url, keys_of, open_doors
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


def run(settings: Settings) -> int:
    """Serve until told to stop. A refusal to start is a Failure."""
    settings.check_exposure()
    secrets = {*keys_of(settings), settings.control_key}
    logs.set_up(settings.log_level, settings.log_format, lambda: secrets)
    file_descriptors.raise_limit()
    uvloop.run(serve(settings, secrets))
    return 0


async def serve(settings: Settings, secrets: set[str | None] | None = None) -> None:
    """`secrets`: what the log must not hold; keys that are made later are added."""
    # The machine's own time for storage, sockets, certificates and signatures; the account may have one of its own.
    machine = SystemClock()
    clock = MovableClock() if settings.clock == "movable" else machine
    stopping = _stop_signal()
    async with AsyncExitStack() as opened:
        engine = await _open_engine(settings, machine)
        opened.push_async_callback(engine.close)
        crowd = Crowd(file_descriptors.for_connections(), clock=machine)
        account = await Account.open(engine, clock, account_settings(settings))
        opened.push_async_callback(account.close)
        hidden = secrets if secrets is not None else set()
        doors = await open_doors(opened, settings, account, machine, crowd, hidden)
        _announce(
            settings,
            **{name: f"{settings.scheme(name)}://{in_url(settings.host)}:{door.port}" for name, door in doors.items()},
        )
        with _full_collections_in_pauses():
            await stopping.wait()
        log.info("stopping")
    log.info("stopped")


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


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. A second signal ends the process at once, which loses nothing acknowledged."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


async def _open_engine(settings: Settings, clock: Clock) -> Engine:
    if settings.is_in_memory:
        return MemoryEngine()
    return await RocksEngine.open(
        settings.directory,
        durability="relaxed" if settings.durability == "relaxed" else "full",
        clock=clock,
        permissions=settings.data_permissions,
    )


def _announce(settings: Settings, **doors: str) -> None:
    """The one line on standard output: the program that started the server waits for it."""
    if settings.has_exposed_key:
        log.warning(
            "ANYBODY WHO REACHES %s OWNS THIS DATABASE: it is served to other machines with the emulator's well-known "
            "key (--allow-well-known-key). Publish its ports to one machine only, or set ARMILLARY_KEY.",
            settings.host,
        )
    if settings.is_public and not settings.requires_tls:
        log.warning("TLS is not required: keys and data may cross the network in plain text (--require-tls)")
    where = "memory" if settings.is_in_memory else f"{settings.directory}, durability {settings.durability}"
    if os.geteuid() == 0:
        log.warning("running as root: a defect would reach all of this machine. Run the server as a user of its own.")
    log.info("armillary %s serves from %s; throughput: %s", __version__, where, settings.throughput)
    print("ready", *(f"{name}={address}" for name, address in doors.items()), flush=True)
