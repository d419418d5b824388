"""Settings of sessions on PostgreSQL, and the checks of a server before the log is used on it.

An append is acknowledged when PostgreSQL says that it has committed. That means something only if the server syncs its
files, if synchronous standbys have the row too, and if the session belongs to one backend. A server that promises less
is refused, with a sentence that says what to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from armillary.limits import LOG_IDLE_TRANSACTION_MS, LOG_KEEPALIVE_SECONDS
from armillary.storage.log.replicated_log import LogRefused, LogUnavailable

VERSION_MIN: Final = 13
APPLICATION_NAME: Final = "armillary"  # by which sessions of nodes are told from those of other programs

# Roles and databases may have other defaults; those of a session win. A timeout that ends the wait for a standby would
# report a commit that only the primary has.
SESSION_SETTINGS: Final = {
    "application_name": APPLICATION_NAME,
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": str(LOG_IDLE_TRANSACTION_MS),
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "search_path": "pg_catalog",
    "tcp_keepalives_idle": str(LOG_KEEPALIVE_SECONDS),
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": str(LOG_KEEPALIVE_SECONDS),
}

# Settings that this version of PostgreSQL does not know are left out.
_SET: Final = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS wanted(name, value)
WHERE current_setting(name, true) IS NOT NULL"""

_FACTS: Final = """
SELECT pg_is_in_recovery() AS is_standby,
    current_setting('fsync') = 'on' AS syncs,
    current_setting('full_page_writes') = 'on' AS writes_full_pages,
    current_setting('synchronous_standby_names') AS standbys,
    current_setting('synchronous_commit') AS commit_level,
    pg_backend_pid() AS backend,
    CASE WHEN pg_is_in_recovery() THEN 0
        ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline"""


class Plans(StrEnum):
    """How statements of a session are planned."""

    AUTO = "auto"  # once, where that is good enough: for statements on one table of the log
    CUSTOM = "force_custom_plan"  # each time: a plan for all tables of the log locks all of them


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself."""

    version: int
    is_standby: bool
    syncs: bool
    writes_full_pages: bool
    standbys: str
    commit_level: str
    is_pooled: bool
    timeline: int  # grows with every promotion


async def set_up(connection: Any, plans: Plans) -> None:
    """Give a new session its settings."""
    _check_version(connection)
    settings = SESSION_SETTINGS | {"plan_cache_mode": plans}
    await connection.execute(_SET, list(settings), list(settings.values()))


async def facts_of(connection: Any) -> ServerFacts:
    version = _check_version(connection)
    found = await connection.fetchrow(_FACTS)
    return ServerFacts(
        version=version,
        is_standby=found["is_standby"],
        syncs=found["syncs"],
        writes_full_pages=found["writes_full_pages"],
        standbys=found["standbys"],
        commit_level=found["commit_level"],
        # Poolers answer the start of a session with a process number of their own.
        is_pooled=found["backend"] != connection.get_server_pid(),
        timeline=found["timeline"],
    )


def check(facts: ServerFacts, *, allows_single: bool) -> None:
    """Raises LogRefused, or LogUnavailable for a standby, which may be promoted later."""
    if facts.is_pooled:
        raise LogRefused(
            "The address leads to a connection pooler: settings of a session and the order of its statements would be "
            "lost. Give the addresses of the PostgreSQL servers themselves."
        )
    if facts.is_standby:
        raise LogUnavailable("the server is a standby")
    if not facts.syncs:
        raise LogRefused(
            "PostgreSQL runs with fsync = off: a crash of its machine would lose acknowledged writes. Set fsync = on "
            "in its configuration and reload it."
        )
    if not facts.writes_full_pages:
        raise LogRefused(
            "PostgreSQL runs with full_page_writes = off: a crash of its machine could leave torn pages. Set "
            "full_page_writes = on in its configuration and reload it."
        )
    if facts.commit_level != "on":
        raise LogRefused(
            f"PostgreSQL keeps synchronous_commit = {facts.commit_level} for this session although it was set to on. "
            "Let the role change it, and remove whatever sets it back."
        )
    _check_standbys(standby_names(facts.standbys), allows_single=allows_single)


def _check_standbys(names: list[str], *, allows_single: bool) -> None:
    if "*" in names:
        raise LogRefused(
            "synchronous_standby_names is *, so any program that receives the write-ahead log counts as a standby, "
            "a backup too. Name the standbys, for example synchronous_standby_names = 'ANY 1 (s1, s2)'."
        )
    if not names and not allows_single:
        raise LogRefused(
            "PostgreSQL has no synchronous standby: losing its machine would lose acknowledged writes. Set "
            "synchronous_standby_names, for example to 'ANY 1 (s1, s2)', or say that a single server is enough."
        )


def _check_version(connection: Any) -> int:
    version: int = connection.get_server_version().major
    if version < VERSION_MIN:
        raise LogRefused(
            f"PostgreSQL {version} is too old for the replicated log: upgrade it to {VERSION_MIN} or newer."
        )
    return version


def standby_names(setting: str) -> list[str]:
    """The names in a value of synchronous_standby_names: `s1, s2`, `2 (s1, s2)`, `FIRST 1 (s1)`, `ANY 1 ("s 1")`."""
    _, opening, inner = setting.rpartition("(")
    listed = inner.rpartition(")")[0] if opening else setting
    return [name.strip().strip('"') for name in listed.split(",") if name.strip()]
