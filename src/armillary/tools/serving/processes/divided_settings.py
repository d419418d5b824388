"""Where each process of a server has its data, and which settings of the account differ in processes but the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from armillary.account.registry import AccountSettings
from armillary.clock import Clock
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools.serving.doors import account_settings
from armillary.tools.settings import Settings

PROCESSES_DIRECTORY: Final = "processes"  # in the data directory, which is the first process's


def process_directory(directory: Path, number: int) -> Path:
    """The data directory of a process but the first."""
    return directory / PROCESSES_DIRECTORY / str(number)


def further_settings(settings: Settings) -> AccountSettings:
    """The history of load and captures are kept by the first process."""
    return replace(account_settings(settings), history_path=None, captures_path=None)


async def open_engine(settings: Settings, directory: Path | None, clock: Clock) -> Engine:
    """`directory` None: in memory."""
    if directory is None:
        return MemoryEngine()
    return await RocksEngine.open(
        directory,
        durability="relaxed" if settings.durability == "relaxed" else "full",
        clock=clock,
        permissions=settings.data_permissions,
        reserve_bytes=settings.reserve_bytes(),
        has_statistics=settings.has_storage_statistics,
    )
