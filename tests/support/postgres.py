"""PostgreSQL servers on this machine for tests: a single one, and a primary with two synchronous standbys.

They are those of `armillary cluster try`. Data directories are in memory where the system has a place for that. Where
PostgreSQL cannot be started, tests are skipped with the reason, and fail on machines that must have it (CI=true).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.waiting import PATIENCE_S

from armillary.tools.cluster import scratch_postgres
from armillary.tools.cluster.scratch_postgres import hosts_url, run_program

_MEMORY = Path("/dev/shm")


class PostgresPrograms(scratch_postgres.PostgresPrograms):
    def __init__(self) -> None:
        place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        super().__init__(Path(tempfile.mkdtemp(prefix="armillary-pg-", dir=place)))


class PostgresServer(scratch_postgres.PostgresServer):
    def __init__(self, programs: PostgresPrograms, name: str, follows: PostgresServer | None = None) -> None:
        super().__init__(programs, name, follows)
        self.configure("autovacuum = off")

    def rebuild(self, primary: PostgresServer) -> None:
        """Make the directory of a server that has ended anew, as a standby's: a base backup of the primary."""
        shutil.rmtree(self.directory)
        address = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres")
        program = self._programs.programs / "pg_basebackup"
        run_program(program, "-D", self.directory, *address, "-c", "fast", "--no-sync")
        self.configure(f"port = {self.port}\ncluster_name = {self.name}\n")
        (self.directory / "standby.signal").touch()
        self.follow(primary)

    async def connect(self, database: str = "postgres") -> Any:
        return await asyncpg.connect(self.url(database))

    async def execute(self, statement: str, *arguments: Any, database: str = "postgres") -> Any:
        connection = await self.connect(database)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    async def new_database(self, name: str) -> str:
        """The URL of a database of its own."""
        await self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


class PostgresTrio:
    """A primary and two standbys. One of the standbys has to have a row before it is acknowledged."""

    def __init__(self, programs: PostgresPrograms) -> None:
        self.primary = PostgresServer(programs, "s0")
        self.standbys = [PostgresServer(programs, name, follows=self.primary) for name in ("s1", "s2")]
        for server in self.servers:
            server.configure("synchronous_standby_names = 'ANY 1 (s0, s1, s2)'")

    @property
    def servers(self) -> list[PostgresServer]:
        return [self.primary, *self.standbys]

    def url(self, database: str) -> str:
        return hosts_url(self.servers, database)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_ready()

    async def promote(self) -> PostgresServer:
        """Make the standby that has more of the log the primary, as an operator or Patroni does."""
        # What the former primary has sent may not be read yet, and must not be once the choice is made.
        for standby in self.standbys:
            standby.configure("primary_conninfo = ''")
            standby.reload()
        received = {standby.name: await self._all_received(standby) for standby in self.standbys}
        best = max(self.standbys, key=lambda standby: received[standby.name])
        for standby in self.standbys:
            if standby is not best:
                standby.follow(best)
                standby.reload()
        assert await best.execute("SELECT pg_promote(true)")
        self.standbys = [standby for standby in self.standbys if standby is not best]
        self.primary = best
        return best

    async def _all_received(self, standby: PostgresServer) -> int:
        """How far the log of a standby goes that has ceased to receive."""
        async with asyncio.timeout(PATIENCE_S):
            while await standby.execute("SELECT count(*) FROM pg_stat_wal_receiver"):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        return int(await standby.execute("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"))

    async def streaming(self) -> None:
        """Wait until every standby receives the log."""
        count = 0

        async def look() -> None:
            nonlocal count
            count = await self.primary.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")

        async with asyncio.timeout(PATIENCE_S):
            while count < len(self.standbys):
                await look()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def unavailable(error: Exception) -> None:
    """PostgreSQL cannot be started here."""
    reason = f"PostgreSQL cannot be started on this machine: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
