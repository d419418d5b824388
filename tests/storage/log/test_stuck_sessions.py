"""Nodes that stop while their session in PostgreSQL holds a lock: the others end it, instead of waiting until the node
goes on. Here its connection keeps the last bytes back, which the server cannot tell from a node that was stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import asyncpg
import pytest
from support.limits import WithLimits
from support.log_rows import all_rows, append, lead, next_rows
from support.postgres import PostgresServer
from support.tcp_proxy import TcpProxy
from support.waiting import PATIENCE_S

from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.replicated_log import Deposed, LogUnavailable

SYNC = b"S\x00\x00\x00\x04"  # the last message of a statement: PostgreSQL commits when it has come
SOON_S = 3.0  # less than LOG_IDLE_TRANSACTION_MS
WAITS_FOR_ITS_NODE = """
SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = 'armillary' AND wait_event = 'ClientRead'
    AND backend_xid IS NOT NULL"""


@pytest.fixture(autouse=True)
def _soon(with_limits: WithLimits) -> None:
    with_limits(LOG_PRIMARY_SECONDS=0.1, LOG_STUCK_SECONDS=0.1)


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.listening(postgres.port) as opened:
        yield opened


@pytest.fixture
async def open_node(
    postgres: PostgresServer, database: str, proxy: TcpProxy
) -> AsyncIterator[Callable[..., Awaitable[PostgresLog]]]:
    opened: list[PostgresLog] = []

    async def open_one(*, through: bool = False, call_seconds: float = 10.0) -> PostgresLog:
        url = database.replace(str(postgres.port), str(proxy.port)) if through else database
        opened.append(await PostgresLog.open(url, allows_single=True, table_rows=4, call_seconds=call_seconds))
        return opened[-1]

    yield open_one
    for each in opened:
        await each.close()


OpenNode = Callable[..., Awaitable[PostgresLog]]


def stop_within(proxy: TcpProxy) -> None:
    """The next statement is carried out, but its last message does not come, nor anything after it."""
    is_stopped = False

    def change(chunk: bytes) -> bytes:
        nonlocal is_stopped
        if is_stopped:
            return b""
        is_stopped = chunk.startswith(b"B") and chunk.endswith(SYNC)
        return chunk.removesuffix(SYNC) if is_stopped else chunk

    proxy.changes_requests = change


def stop_after(proxy: TcpProxy, statement: bytes) -> None:
    """The next statement with these words is carried out, and nothing comes after it."""
    is_next = is_stopped = False

    def change(chunk: bytes) -> bytes:
        nonlocal is_next, is_stopped
        if is_stopped:
            return b""
        is_stopped = (is_next and chunk.startswith(b"B")) or (chunk.startswith(b"Q") and statement in chunk)
        is_next = is_next or statement in chunk
        return chunk

    proxy.changes_requests = change


async def has_stopped(postgres: PostgresServer, database: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await postgres.execute(WAITS_FOR_ITS_NODE, database.rpartition("/")[2]) is None:
            pass


async def test_a_leader_stops_within_an_append(
    postgres: PostgresServer, database: str, proxy: TcpProxy, open_node: OpenNode
) -> None:
    """Its row is there, uncommitted, where the fence of the next leader belongs."""
    stopped, rival = await open_node(through=True), await open_node()
    _, fence = await lead(stopped)
    last = await append(stopped, fence.place, b"one")
    stop_within(proxy)
    appending = asyncio.create_task(stopped.append(next_rows(last, b"two")))
    await has_stopped(postgres, database)
    begun_s = time.monotonic()
    _, fence = await lead(rival, "b")
    assert time.monotonic() - begun_s < SOON_S
    await append(rival, fence.place, b"three")
    proxy.changes_requests = None
    with pytest.raises(Deposed):
        await appending
    assert [row.data for row in await all_rows(rival)][1:] == [b"one", b"b", b"three"]


@pytest.mark.parametrize("words", [b"UPDATE armillary.leaders", b"CREATE TABLE"])
async def test_a_node_stops_while_it_takes_over(
    postgres: PostgresServer, database: str, proxy: TcpProxy, open_node: OpenNode, words: bytes
) -> None:
    stopped, rival = await open_node(through=True), await open_node()
    stop_after(proxy, words)
    taking = asyncio.create_task(lead(stopped))
    await has_stopped(postgres, database)
    begun_s = time.monotonic()
    state, _ = await lead(rival, "b")
    assert time.monotonic() - begun_s < SOON_S
    assert (state.epoch, state.node) == (1, "b")
    with pytest.raises(LogUnavailable):
        await taking


async def test_a_node_stops_while_the_leader_renews(
    postgres: PostgresServer, database: str, proxy: TcpProxy, open_node: OpenNode
) -> None:
    """A node that joins locks the record of the leader for a moment."""
    leader, stopped = await open_node(), await open_node(through=True)
    state, fence = await lead(leader)
    stop_after(proxy, b"INSERT INTO armillary.replicas")
    registering = asyncio.create_task(stopped.register("b"))
    await has_stopped(postgres, database)
    begun_s = time.monotonic()
    assert await leader.renew(state, fence.place) is not None
    assert time.monotonic() - begun_s < SOON_S
    with pytest.raises(LogUnavailable):
        await registering


async def test_sessions_of_other_programs_are_left_alone(database: str, open_node: OpenNode) -> None:
    node = await open_node(call_seconds=1.0)
    other = await asyncpg.connect(database)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM armillary.leaders FOR UPDATE")
            with pytest.raises(LogUnavailable):
                await lead(node)
            assert await other.fetchval("SELECT 1") == 1
    finally:
        with suppress(asyncpg.PostgresError):
            await other.close()
    await lead(node)
