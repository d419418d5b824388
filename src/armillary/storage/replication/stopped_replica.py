"""Data directories of stopped nodes: opened to be checked and copied, whether they are a single server's or a
replica's, and turned from one into the other by storing or removing a position.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from armillary.clock import Clock
from armillary.errors import bad_request
from armillary.storage.directory import DataDirectory, Owner, ReplicaRefused
from armillary.storage.disk_errors import translated
from armillary.storage.overlay import Layer
from armillary.storage.private import Permissions
from armillary.storage.replication.arriving_copy import ArrivingCopy
from armillary.storage.replication.local_replica import LocalReplica, Position, holds_stores
from armillary.storage.replication.replicated_engine import ReplicatedEngine
from armillary.storage.rocks import RocksEngine
from armillary.storage.rocks_database import POSITION_KEY, Database


async def open_stopped(
    path: Path, clock: Clock, permissions: Permissions = "private"
) -> RocksEngine | ReplicatedEngine:
    """A replica's engine can be read and copied, and refuses every write."""
    try:
        return await RocksEngine.open(path, clock=clock, permissions=permissions)
    except ReplicaRefused:
        directory = DataDirectory.claim(path, permissions)
        return ReplicatedEngine(LocalReplica.open(directory, None, reserve_bytes=0), clock)


class StoppedDirectory:
    """A data directory that no node uses, claimed until it is closed."""

    def __init__(self, directory: DataDirectory, database: Database) -> None:
        self._directory = directory
        self._database = database

    @classmethod
    def open(cls, path: Path, permissions: Permissions = "private", owner: Owner = "single") -> Self:
        """Opening would create a missing one, so that is refused."""
        try:
            is_there = path.is_dir() and any(path.iterdir())
        except OSError as error:
            raise bad_request(f"The data directory at {path} cannot be read: {error.strerror}.") from None
        if not is_there:
            raise bad_request(f"There is no data directory at {path}.")
        directory = DataDirectory.claim(path, permissions, owner=owner)
        try:
            return cls(directory, Database(directory.engine_path))
        except BaseException as error:
            directory.release()
            raise (translated(error) or error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._database.close()
        self._directory.release()

    @property
    def position(self) -> Position | None:
        """None: it is not a replica's."""
        stored = self._database.get(POSITION_KEY)
        return Position.unpack(stored) if stored is not None else None

    @property
    def is_empty(self) -> bool:
        return not holds_stores(self._database)

    def store(self, position: Position | None) -> None:
        """Make it a replica at this position, or with None a single server's, which needs no copy that was arriving.
        Durable."""
        layer = Layer()
        layer.writes[POSITION_KEY] = position.pack() if position is not None else None
        self._database.write(self._database.batch(layer))
        self._database.finish()
        if position is None:
            ArrivingCopy(self._directory).drop()
