"""Servers, settings and schemas that the log on PostgreSQL refuses, and those that it corrects for itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from support.log_rows import append, lead, next_rows
from support.postgres import PostgresServer, PostgresTrio
from support.tcp_proxy import TcpProxy
from support.waiting import PATIENCE_S, until

from armillary.storage.log.postgres_checks import ServerFacts, check, standby_names
from armillary.storage.log.postgres_connections import host_urls
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_schema import SCHEMA_VERSION
from armillary.storage.log.replicated_log import LogRefused, LogUnavailable

# A wait for a lock that is longer than the limits that the test sets.
LONG_WAIT = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = $1 AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '400 ms'"""

FIT = ServerFacts(
    version=16,
    is_standby=False,
    syncs=True,
    writes_full_pages=True,
    standbys="ANY 1 (s1, s2)",
    commit_level="on",
    is_pooled=False,
    timeline=1,
)


@asynccontextmanager
async def configured(server: PostgresServer, name: str, value: str) -> AsyncIterator[None]:
    """A setting of the server that is changed for a while, as an operator reloads it."""

    async def set_to(statement: str, wanted: str) -> None:
        await server.execute(statement)
        await server.execute("SELECT pg_reload_conf()")
        while await server.execute(f"SHOW {name}") != wanted:
            pass

    before = await server.execute(f"SHOW {name}")
    await set_to(f"ALTER SYSTEM SET {name} = '{value}'", value)
    try:
        yield
    finally:
        await set_to(f"ALTER SYSTEM RESET {name}", before)


def test_a_fit_server_passes() -> None:
    check(FIT, allows_single=False)
    check(replace(FIT, standbys=""), allows_single=True)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FIT, syncs=False), "fsync = on"),
        (replace(FIT, writes_full_pages=False), "full_page_writes = on"),
        (replace(FIT, commit_level="local"), "synchronous_commit = local"),
        (replace(FIT, standbys=""), "no synchronous standby"),
        (replace(FIT, standbys="*"), "Name the standbys"),
        (replace(FIT, standbys='ANY 1 (s1, "*")'), "Name the standbys"),
        (replace(FIT, is_pooled=True), "connection pooler"),
        (replace(FIT, is_standby=True), "is a standby"),
    ],
)
def test_an_unfit_server_is_refused(facts: ServerFacts, reason: str) -> None:
    with pytest.raises(LogUnavailable, match=reason.replace("(", r"\(")) as refused:
        check(facts, allows_single=False)
    assert isinstance(refused.value, LogRefused) is not facts.is_standby, "a standby may be promoted"


def test_names_of_standbys() -> None:
    assert standby_names("") == []
    assert standby_names("s1,s2") == ["s1", "s2"]
    assert standby_names('FIRST 2 (s1, "S 2", s3)') == ["s1", "S 2", "s3"]
    assert standby_names("1 (*)") == ["*"]


def test_urls_of_several_hosts() -> None:
    assert host_urls("postgresql://u:p@a:1,b,[::1]:3/db?sslmode=require&target_session_attrs=read-write") == [
        "postgresql://u:p@a:1/db?sslmode=require",
        "postgresql://u:p@b/db?sslmode=require",
        "postgresql://u:p@[::1]:3/db?sslmode=require",
    ]
    with pytest.raises(LogRefused, match="postgresql://"):
        host_urls("mysql://a/db")


@pytest.mark.parametrize(("name", "value"), [("fsync", "off"), ("full_page_writes", "off")])
async def test_settings_are_checked_when_opening_and_with_every_renewal(
    postgres: PostgresServer, database: str, name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = await PostgresLog.open(database, allows_single=True)
    state, fence = await lead(log)
    last = await append(log, fence.place, b"one")
    async with configured(postgres, name, value):
        with pytest.raises(LogRefused, match=f"{name} = on"):
            await log.renew(state, fence.place)
        with pytest.raises(LogRefused, match=f"{name} = on"):
            await log.take(state, "b", 2_000)
        with pytest.raises(LogRefused, match=f"{name} = on"):
            await PostgresLog.open(database, allows_single=True)
        appending = asyncio.create_task(append(log, last, b"two"))
        await until(lambda: "is repeated" in caplog.text, "the append was refused")
        assert not appending.done(), "acknowledged by a server that promises too little"
    assert (await appending).seq == last.seq + 1
    assert await log.renew(state, fence.place) is not None
    await log.close()


async def test_a_server_without_standbys_needs_a_flag(database: str) -> None:
    with pytest.raises(LogRefused, match="no synchronous standby"):
        await PostgresLog.open(database)


async def test_sessions_have_settings_of_their_own(postgres: PostgresServer, database: str) -> None:
    """Defaults of the database that would end waits, hide warnings and make every transaction read-only."""
    name = database.rpartition("/")[2]
    for setting in (
        "synchronous_commit = off",
        "statement_timeout = 300",
        "lock_timeout = 300",
        "client_min_messages = error",
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "search_path = nowhere",
    ):
        await postgres.execute(f"ALTER DATABASE {name} SET {setting}")
    log = await PostgresLog.open(database, allows_single=True)
    state, fence = await lead(log)
    last = await append(log, fence.place, bytes(1_000_000), bytes(1_000_000))
    assert await log.newest() == last
    other = await postgres.connect(name)
    async with other.transaction(readonly=False, isolation="read_committed"):
        await other.execute("LOCK TABLE armillary.leaders")
        renewing = asyncio.create_task(log.renew(state, last))
        while not await postgres.execute(LONG_WAIT, name):
            pass
    assert await renewing is not None
    await other.close()
    await log.close()


async def test_a_pooler_is_refused(postgres: PostgresServer, database: str) -> None:
    """Poolers give clients another number than that of the backend: the message K of the protocol."""

    def renumbered(answer: bytes) -> bytes:
        at = answer.find(b"K\x00\x00\x00")
        return answer if at < 0 else answer[: at + 5] + b"\x00\x00\x00\x01" + answer[at + 9 :]

    async with TcpProxy.listening(postgres.port) as proxy:
        proxy.changes_answers = renumbered
        with pytest.raises(LogRefused, match="connection pooler"):
            await PostgresLog.open(database.replace(str(postgres.port), str(proxy.port)), allows_single=True)


async def test_a_newer_schema_is_refused(postgres: PostgresServer, database: str) -> None:
    await (await PostgresLog.open(database, allows_single=True)).close()
    name = database.rpartition("/")[2]
    await postgres.execute("UPDATE armillary.schema_version SET version = version + 1", database=name)
    with pytest.raises(LogRefused, match=f"schema {SCHEMA_VERSION + 1}"):
        await PostgresLog.open(database, allows_single=True)


async def test_a_log_of_the_first_schema_gets_a_key(postgres: PostgresServer, database: str) -> None:
    await (await PostgresLog.open(database, allows_single=True)).close()
    name = database.rpartition("/")[2]
    await postgres.execute("ALTER TABLE armillary.leaders DROP COLUMN key", database=name)
    await postgres.execute("UPDATE armillary.schema_version SET version = 1", database=name)
    log, other = [await PostgresLog.open(database, allows_single=True) for _ in range(2)]
    assert len(log.cluster_key) == 32
    assert log.cluster_key == other.cluster_key != bytes(32)
    for each in (log, other):
        await each.close()


async def test_the_log_of_another_cluster_is_refused(postgres: PostgresServer, database: str) -> None:
    with pytest.raises(LogRefused, match="holds no log"):
        await PostgresLog.open(database, generation=bytes(16), allows_single=True)
    log = await PostgresLog.open(database, allows_single=True)
    again = await PostgresLog.open(database, generation=log.generation, allows_single=True)
    assert (await again.leader()).generation == log.generation
    with pytest.raises(LogRefused, match="another cluster"):
        await PostgresLog.open(database, generation=bytes(16), allows_single=True)
    await postgres.execute(
        "UPDATE armillary.leaders SET generation = uuid_send(gen_random_uuid())", database=database.rpartition("/")[2]
    )
    with pytest.raises(LogRefused, match="another cluster"):
        await log.newest()  # its connection for reading is opened now
    with pytest.raises(LogRefused, match="another cluster"):
        await again.leader()  # this one is open already
    for each in (log, again):
        await each.close()


async def test_no_server_answers() -> None:
    with pytest.raises(LogUnavailable, match="no primary of PostgreSQL answers"):
        await PostgresLog.open("postgresql://postgres@127.0.0.1:1/postgres")


async def test_the_driver_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(LogRefused, match=r"armillary\[cluster\]"):
        await PostgresLog.open("postgresql://127.0.0.1/postgres")


async def test_a_trim_gives_way_to_a_reader(postgres: PostgresServer, database: str) -> None:
    """A backup locks every table for as long as it takes. Appends must not queue up behind a trim that waits for it."""
    log = await PostgresLog.open(database, allows_single=True, table_rows=4)
    _, fence = await lead(log)
    await log.register("a")
    last = await append(log, fence.place, *[b"x"] * 20)
    await log.report("a", last.seq, last.seq)
    backup = await postgres.connect(database.rpartition("/")[2])
    async with backup.transaction():
        await backup.execute("LOCK TABLE armillary.log IN ACCESS SHARE MODE")
        assert await log.trim() == 1
        last = await append(log, last, b"goes on")
    await backup.close()
    assert await log.trim() > 1
    await log.close()


async def test_a_repeated_append_finds_its_row_after_the_row_before_was_trimmed(database: str) -> None:
    """A leader that was removed from the replicas does not hold up the trim while the outcome of its append is
    unknown."""
    log = await PostgresLog.open(database, allows_single=True, table_rows=4)
    _, fence = await lead(log)
    last = await append(log, fence.place, *[b"x"] * 6)
    rows = next_rows(last, b"y")
    await log.append(rows)
    await log.register("another node")
    await log.report("another node", rows[0].seq, rows[0].seq)
    assert await log.trim() == rows[0].seq
    await log.append(rows)
    await log.close()


async def test_nodes_announce_themselves(database: str) -> None:
    log = await PostgresLog.open(database, allows_single=True)
    await log.announce("b", "us", {"sql": "b.example:8081"})
    await log.announce("a", "eu", {"sql": "a.example:8081"})
    await log.announce("b", "eu", {"sql": "b.example:9000", "mongo": "b.example:10255"})
    found = [(node.node, node.region, node.addresses) for node in await log.nodes()]
    assert found == [
        ("a", "eu", {"sql": "a.example:8081"}),
        ("b", "eu", {"sql": "b.example:9000", "mongo": "b.example:10255"}),
    ]
    assert all(0 <= node.silent_s < 300 for node in await log.nodes())
    await log.forget("a")
    assert [node.node for node in await log.nodes()] == ["b"]
    await log.close()


async def test_whether_a_standby_is_connected(postgres_trio: PostgresTrio) -> None:
    log = await PostgresLog.open(postgres_trio.url("postgres"))
    await postgres_trio.streaming()
    figures = await log.figures()
    assert (figures.wants_standby, figures.has_standby) == (True, True)
    for standby in postgres_trio.standbys:
        standby.kill()
    await _until_gone(postgres_trio.primary)
    figures = await log.figures()
    assert (figures.wants_standby, figures.has_standby) == (True, False)
    await log.close()


async def test_standbys_that_the_role_may_not_see(postgres: PostgresServer, database: str) -> None:
    await postgres.execute("CREATE ROLE plain LOGIN")
    name = database.rpartition("/")[2]
    await postgres.execute(f"GRANT CREATE ON DATABASE {name} TO plain")
    log = await PostgresLog.open(database.replace("postgres@", "plain@"), allows_single=True)
    figures = await log.figures()
    assert (figures.wants_standby, figures.has_standby) == (False, None)
    await postgres.execute("GRANT pg_read_all_stats TO plain")
    assert (await log.figures()).has_standby is False
    await log.close()


async def _until_gone(primary: PostgresServer) -> None:
    """The senders of dead standbys end a moment later."""
    async with asyncio.timeout(PATIENCE_S):
        while await primary.execute("SELECT count(*) FROM pg_stat_replication"):
            pass
