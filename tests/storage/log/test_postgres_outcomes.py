"""Appends to PostgreSQL whose outcome is unknown: connections that are cut, waits for standbys that are cancelled, a
primary that dies or stops. Nothing acknowledged is lost, and nothing is acknowledged that the standbys do not have."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from support.log_rows import all_rows, append, lead, next_rows
from support.postgres import PostgresServer, PostgresTrio
from support.tcp_proxy import TcpProxy
from support.waiting import PATIENCE_S, until

from armillary.storage.log import postgres_connections
from armillary.storage.log.postgres_checks import Plans
from armillary.storage.log.postgres_connections import Connector, Lane, Session
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.replicated_log import Deposed, LogUnavailable
from armillary.storage.log.rows import Place

DATABASE = "log"

# A backend that has committed and waits for a standby.
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = $1 LIMIT 1"


async def open_trio(trio: PostgresTrio) -> PostgresLog:
    await trio.streaming()
    await trio.primary.execute(f"CREATE DATABASE {DATABASE}")
    return await PostgresLog.open(trio.url(DATABASE))


async def waiting_backend(server: PostgresServer) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pid: int | None = await server.execute(WAITING, DATABASE)
            if pid is not None:
                return pid


@pytest.mark.parametrize("is_committed", [False, True])
async def test_the_connection_is_cut(postgres: PostgresServer, database: str, is_committed: bool) -> None:
    async with TcpProxy.listening(postgres.port) as proxy:
        url = database.replace(str(postgres.port), str(proxy.port))
        log = await PostgresLog.open(url, allows_single=True)
        state, fence = await lead(log)
        last = await append(log, fence.place, b"one")
        last = await append(log, last, b"two", b"three")
        for pieces in ([b"four"], [b"five", b"six"]):
            (proxy.cut_next_answer if is_committed else proxy.cut_next_request)()
            last = await append(log, last, *pieces)
        assert proxy.cuts == 2
        (proxy.cut_next_answer if is_committed else proxy.cut_next_request)()
        with pytest.raises(LogUnavailable):
            await log.renew(state, last)
        renewed = await log.renew(state, last)
        assert renewed is not None and renewed.renewals == state.renewals + 1
        (proxy.cut_next_answer if is_committed else proxy.cut_next_request)()
        with pytest.raises(LogUnavailable):
            await log.renew(renewed, last)
        assert await log.resign(renewed, "b")
        assert (await log.leader()).node == "b"
        assert [row.data for row in await all_rows(log)][1:] == [b"one", b"two", b"three", b"four", b"five", b"six"]
        await log.close()


async def test_a_lost_renewal_is_not_taken_for_the_own_one_in_another_epoch(
    postgres: PostgresServer, database: str
) -> None:
    async with TcpProxy.listening(postgres.port) as proxy:
        log = await PostgresLog.open(database.replace(str(postgres.port), str(proxy.port)), allows_single=True)
        state, fence = await lead(log)
        proxy.cut_next_request()
        with pytest.raises(LogUnavailable):
            await log.renew(state, fence.place)
        other = await PostgresLog.open(database, allows_single=True)
        await lead(other, "b")
        assert await log.renew(state, fence.place) is None
        for each in (log, other):
            await each.close()


async def test_the_wait_for_standbys_is_cancelled(postgres_trio: PostgresTrio) -> None:
    """The primary reports the commit as done then, with a warning; or it ends the connection. Neither is an
    acknowledgement, and what other calls find meanwhile on the primary does not count."""
    log = await open_trio(postgres_trio)
    _, fence = await lead(log)
    last = await append(log, fence.place, b"one")
    primary = postgres_trio.primary
    for standby in postgres_trio.standbys:
        standby.signal_all(signal.SIGSTOP)
    rows = next_rows(last, b"two")
    appending = asyncio.create_task(log.append(rows))
    ended: set[int] = set()
    for statement in ("SELECT pg_cancel_backend($1)", "SELECT pg_terminate_backend($1)") * 2:
        pid = await waiting_backend(primary)
        assert pid not in ended, "a connection in doubt is not used again"
        ended.add(pid)
        await primary.execute(statement, pid)
        while await primary.execute(WAITING, DATABASE) == pid:
            pass
    newest = asyncio.create_task(log.newest())
    assert len(await log.read(1, 100)) == 2, "the row is visible on the primary"
    certain = asyncio.create_task(log.read(1, 100, is_certain=True))
    await waiting_backend(primary)
    with pytest.raises(LogUnavailable, match="synchronous_standby_names"):
        await PostgresLog.open(postgres_trio.url(DATABASE), call_seconds=0.2)
    assert not appending.done() and not newest.done() and not certain.done()
    for standby in postgres_trio.standbys:
        standby.signal_all(signal.SIGCONT)
    await appending
    assert await newest == rows[-1].place
    assert (await certain)[-1] == rows[0]
    assert (await all_rows(log))[-1] == rows[0]
    await log.close()


class Writer:
    """A leader that appends as fast as it can, and what was acknowledged to it."""

    def __init__(self, log: PostgresLog, fence: Place) -> None:
        self.log = log
        self.last = fence
        self.acknowledged: dict[int, bytes] = {}
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while True:
            rows = next_rows(self.last, *[f"{number}-{piece}".encode() for piece in range(1 + number % 3)])
            await self.log.append(rows)
            self.last = rows[-1].place
            self.acknowledged |= {row.seq: row.data for row in rows}
            number += 1

    async def more(self, count: int) -> None:
        """Wait until so many more rows are acknowledged."""
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted or self.task.done(), "rows are acknowledged")
        if self.task.done():
            await self.task


@pytest.mark.parametrize("fate", ["killed", "stopped"])
async def test_a_standby_is_promoted(postgres_trio: PostgresTrio, fate: str) -> None:
    """A primary that is stopped keeps its connections: the append finds the other one by itself."""
    log = await open_trio(postgres_trio)
    state, fence = await lead(log)
    writer = Writer(log, fence.place)
    await writer.more(200)
    former = postgres_trio.primary
    if fate == "killed":
        former.kill()
    else:
        former.signal_all(signal.SIGSTOP)
    await postgres_trio.promote()
    await writer.more(200)
    acknowledged = dict(writer.acknowledged)  # it goes on meanwhile
    assert acknowledged.items() <= {row.seq: row.data for row in await all_rows(log)}.items()
    assert await log.renew(state, writer.last) is not None
    rival = await PostgresLog.open(postgres_trio.url(DATABASE), generation=log.generation)
    await lead(rival, "b")
    with pytest.raises(Deposed):
        await writer.task
    assert writer.acknowledged.items() <= {row.seq: row.data for row in await all_rows(rival)}.items()
    for each in (log, rival):
        await each.close()


async def test_a_connection_is_cut_between_two_steps_of_a_statement(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver stumbles over the connection that is gone. It is as good as one that broke; other exceptions are
    defects, and are not hidden."""

    def stumble() -> None:
        raise AttributeError("'NoneType' object has no attribute 'bind_execute'")

    async def cut(session: Session) -> None:
        session.cut("it took too long")
        stumble()

    async def fail(session: Session) -> None:
        stumble()

    lane = Lane(Connector(database, 0, allows_single=True), 10.0)
    with pytest.raises(LogUnavailable, match="it took too long"):
        await lane.run(cut)
    with pytest.raises(AttributeError):
        await lane.run(fail)

    async def cut_while_set_up(connection: Any, plans: Plans) -> None:
        connection.terminate()
        stumble()

    monkeypatch.setattr(postgres_connections, "set_up", cut_while_set_up)
    with pytest.raises(LogUnavailable):
        await lane.run(fail)
