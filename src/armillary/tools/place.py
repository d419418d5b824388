"""The account that a command works on: that of a running server, or of the data directory of a stopped one, which the
command then opens itself. For snapshots and backups, which work either way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from armillary.account.account import Account
from armillary.account.catalog.catalog import Catalog
from armillary.account.registry import AccountSettings
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType
from armillary.processes.stopped.undivided_engine import UndividedAccount, UndividedEngine
from armillary.storage.directory import process_directories
from armillary.storage.private import Permissions
from armillary.storage.rocks import RocksEngine
from armillary.tools.check import refuse_missing
from armillary.tools.control_file import read_control
from armillary.tools.remote import Server, Where, find_server
from armillary.tools.settings import Settings


class Place:
    def __init__(self, settings: Settings, where: Where) -> None:
        self._settings = settings
        self._where = where
        self._server: Server | None = None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def directory(self) -> Path:
        return self._settings.directory

    @property
    def permissions(self) -> Permissions:
        return self._settings.data_permissions

    def server(self) -> Server | None:
        """The running server; None: no server runs, and its data directory may be opened."""
        is_known = self._where.url is not None or self._settings.control_key is not None
        if not is_known and read_control(self.directory).key is None:
            return None
        self._server = server = find_server(self._settings, self._where)
        if server.is_answering:
            return server
        if self._where.url is not None:
            raise Failure(
                Kind.UNAVAILABLE,
                f"No server answers at {self._where.url}. Start it, or leave --url out to use the data directory.",
            )
        return None

    async def open_engine(self) -> RocksEngine | UndividedEngine:
        if process_directories(self.directory):
            return await UndividedEngine.open(self.directory, SystemClock(), self.permissions)
        return await RocksEngine.open(self.directory, permissions=self.permissions)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Account]:
        """The account in the directory, which no server uses."""
        refuse_missing(self.directory)
        engine, clock = await self.open_engine(), SystemClock()
        try:
            catalog = Catalog(engine, clock)
            await catalog.open()
            has_offers = bool(catalog.of_type(ResourceType.OFFER))
            is_serverless = not has_offers and bool(catalog.of_type(ResourceType.CONTAINER))
            made = UndividedAccount if isinstance(engine, UndividedEngine) else Account
            account = await made.open(engine, clock, AccountSettings(is_serverless=is_serverless))
            try:
                yield account
            finally:
                await account.close()
        finally:
            await engine.close()
