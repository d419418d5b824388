"""Logs of each kind, opened fresh, for the tests that all of them must pass, and servers of PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from support.postgres import PostgresPrograms, PostgresServer, PostgresTrio, unavailable

from armillary.clock import SystemClock
from armillary.storage.log.memory_log import MemoryLog, MemoryLogMaker, MemoryLogServer
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_log_maker import PostgresLogMaker
from armillary.storage.log.replicated_log import LogMaker, ReplicatedLog

TABLE_ROWS = 4  # so that a few rows fill several tables

OpenLog = Callable[[], Awaitable[ReplicatedLog]]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_programs() -> Iterator[PostgresPrograms]:
    try:
        programs = PostgresPrograms()
    except OSError as error:
        unavailable(error)
        raise
    yield programs
    programs.remove()


@pytest.fixture(scope="session")
def postgres(postgres_programs: PostgresPrograms) -> Iterator[PostgresServer]:
    """One server without standbys."""
    server = PostgresServer(postgres_programs, "single")
    try:
        server.start()
        server.wait_ready()
    except OSError as error:
        server.stop()
        unavailable(error)
    yield server
    server.stop()


@pytest.fixture
def postgres_trio(postgres_programs: PostgresPrograms) -> Iterator[PostgresTrio]:
    """A primary and two synchronous standbys, for one test."""
    trio = PostgresTrio(postgres_programs)
    servers = trio.servers
    try:
        trio.start()
    except OSError as error:
        trio.stop()
        unavailable(error)
    yield trio
    for server in servers:
        server.stop()


@pytest.fixture
async def database(postgres: PostgresServer) -> str:
    """The URL of an empty database."""
    return await postgres.new_database(f"test_{next(_numbers)}")


def _memory_opener() -> OpenLog:
    server, clock = MemoryLogServer(b"generation of it"), SystemClock()

    async def opened() -> ReplicatedLog:
        return MemoryLog(server, clock)

    return opened


def _postgres_opener(url: str) -> OpenLog:
    async def opened() -> ReplicatedLog:
        return await PostgresLog.open(url, allows_single=True, table_rows=TABLE_ROWS)

    return opened


@pytest.fixture(params=["memory", "postgres"])
async def open_log(request: pytest.FixtureRequest) -> AsyncIterator[OpenLog]:
    """open_log(): the connection of one more node to the same log, which is empty at first."""
    opener = _memory_opener()
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        opener = _postgres_opener(await server.new_database(f"test_{next(_numbers)}"))
    opened: list[ReplicatedLog] = []

    async def open_one() -> ReplicatedLog:
        opened.append(await opener())
        return opened[-1]

    yield open_one
    for log in opened:
        await log.close()


@pytest.fixture(params=["memory", "postgres"])
async def log_maker(request: pytest.FixtureRequest) -> tuple[LogMaker, OpenLog]:
    """A maker of a log, where none is yet, and what opens the log that it has made."""
    if request.param == "memory":
        maker = MemoryLogMaker()

        async def opened() -> ReplicatedLog:
            assert maker.server is not None
            return MemoryLog(maker.server, SystemClock())

        return maker, opened
    server: PostgresServer = request.getfixturevalue("postgres")
    url = await server.new_database(f"test_{next(_numbers)}")
    return PostgresLogMaker(url, allows_single=True, table_rows=TABLE_ROWS), _postgres_opener(url)
