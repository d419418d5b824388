"""Where each process of a server has its data, and which settings of the account differ in processes but the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from armillary.account.registry import AccountSettings
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.directory import IN_USE, Owner, process_directories
from armillary.storage.engine import HoldableEngine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools.serving.doors import account_settings
from armillary.tools.settings import Settings

# Processes of a server whose supervisor was killed end a moment after it: one that is started then waits for them.
_LOCK_S: Final = 2.0
_LOCK_POLL_S: Final = 0.05


def refuse_fewer(settings: Settings) -> None:
    """Partitions of a process that is not started would be lost to clients."""
    count = 1 + max(process_directories(settings.directory), default=0)
    if settings.processes < count:
        raise bad_request(
            f"The data directory holds the partitions of {count} processes, and --processes is {settings.processes}. "
            f"Serve it with --processes {count}, or have fewer hold them: "
            f"`armillary processes {settings.directory} --count {settings.processes}`."
        )


def refuse_lost(settings: Settings, places: Iterable[int]) -> None:
    """`places`: the processes that have partitions. Without its directory one would start anew, and they would seem to
    be empty."""
    lost = sorted({*places} - {0} - process_directories(settings.directory).keys())
    if lost:
        raise Failure(
            Kind.CORRUPT,
            f"Process {lost[0]} holds partitions, and its data is not there. Restore the whole data directory, with "
            "all in its folder 'processes'.",
        )


def further_settings(settings: Settings) -> AccountSettings:
    """The history of load and captures are kept by the first process."""
    return replace(account_settings(settings), history_path=None, captures_path=None)


async def open_engine(
    settings: Settings, directory: Path | None, clock: Clock, owner: Owner, server: int
) -> HoldableEngine:
    """`directory` None: in memory. `server`: the supervisor's process id."""
    if directory is None:
        return MemoryEngine()
    ends_s = clock.monotonic_s() + _LOCK_S
    while True:
        try:
            return await _open(settings, directory, clock, owner, server)
        except Failure as failure:
            if failure.details != IN_USE or clock.monotonic_s() > ends_s:
                raise
        await clock.sleep(_LOCK_POLL_S)


async def _open(settings: Settings, directory: Path, clock: Clock, owner: Owner, server: int) -> HoldableEngine:
    return await RocksEngine.open(
        directory,
        durability="relaxed" if settings.durability == "relaxed" else "full",
        clock=clock,
        permissions=settings.data_permissions,
        reserve_bytes=settings.reserve_bytes(),
        has_statistics=settings.has_storage_statistics,
        owner=owner,
        server=server,
    )
