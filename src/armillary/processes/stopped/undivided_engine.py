"""A data directory of a server with several processes, opened as a whole by one program while no server uses it: to be
checked, copied, exported, and changed to another number of processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.directory import process_directories, process_directory, sync_directory
from armillary.storage.engine import Engine, Store
from armillary.storage.operating.storage_figures import StorageFigures
from armillary.storage.private import Permissions, make_directory
from armillary.storage.replication.stopped_replica import open_stopped
from armillary.storage.rocks import RocksEngine


class UndividedEngine:
    """An Engine: the number of a store says in which directory it is. Made by `open`."""

    def __init__(self, engines: Mapping[int, RocksEngine]) -> None:
        """`engines`: by the numbers of the processes."""
        self.engines = engines

    @classmethod
    async def open(
        cls, path: Path, clock: Clock, permissions: Permissions = "private", count: int = 1
    ) -> UndividedEngine:
        """`count`: of processes that have directories afterwards, at least."""
        engines: dict[int, RocksEngine] = {}
        try:
            engines[0] = await RocksEngine.open(path, clock=clock, permissions=permissions, owner="first")
            for number in sorted({*process_directories(path), *range(1, count)}):
                directory = process_directory(path, number)
                engines[number] = await RocksEngine.open(
                    directory, clock=clock, permissions=permissions, owner="further"
                )
        except BaseException:
            await cls(engines).close()
            raise
        return cls(engines)

    def store(self, number: int) -> Store:
        return self._engine_of(number).store(number)

    async def drop(self, number: int) -> None:
        await self._engine_of(number).drop(number)

    async def checkpoint(self) -> Path:
        checkpoints = {number: await engine.checkpoint() for number, engine in self.engines.items()}
        return await asyncio.to_thread(join_checkpoints, checkpoints)

    async def drop_checkpoint(self, name: str) -> None:
        await self.engines[0].drop_checkpoint(name)

    def figures(self) -> StorageFigures | None:
        return self.engines[0].figures()

    async def close(self) -> None:
        for engine in self.engines.values():
            await engine.close()

    def _engine_of(self, store: int) -> RocksEngine:
        place = place_of_store(store)
        engine = self.engines.get(place)
        if engine is None:
            raise Failure(Kind.CORRUPT, f"There is no data of process {place} in the data directory.")
        return engine


class UndividedAccount(Account):
    """The account in such a directory."""

    def reaches(self, place: int) -> bool:
        assert isinstance(self.engine, UndividedEngine)
        return place in self.engine.engines

    @property
    def place_count(self) -> int:
        assert isinstance(self.engine, UndividedEngine)
        return len(self.engine.engines)


async def open_whole(path: Path, clock: Clock, permissions: Permissions = "private") -> Engine:
    """The data directory of a stopped server with one process or several, or of a replica of a cluster, which
    refuses writes."""
    if process_directories(path):
        return await UndividedEngine.open(path, clock, permissions)
    return await open_stopped(path, clock, permissions)


def join_checkpoints(checkpoints: Mapping[int, Path]) -> Path:
    """Move those of the other processes into that of the first, which becomes one of the whole data directory."""
    whole = checkpoints[0]
    try:
        for number, made in checkpoints.items():
            if number:
                target = process_directory(whole, number)
                make_directory(target.parent)
                os.rename(made, target)
                sync_directory(target.parent)
    except OSError as error:
        for made in checkpoints.values():
            shutil.rmtree(made, ignore_errors=True)
        raise Failure(
            Kind.UNAVAILABLE,
            f"The files of the processes cannot be put together: {error.strerror}. Their directories must be on one "
            "file system.",
        ) from error
    return whole
