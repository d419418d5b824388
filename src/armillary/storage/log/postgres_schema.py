"""Tables of the replicated log on PostgreSQL, in the schema `armillary`.

The rows of a log are in tables of a fixed number of rows each, partitions of `armillary.log`, so that trimming drops
tables and leaves no dead rows. The schema has a version. A newer node migrates it under an advisory lock; an older node
refuses a schema that it does not know.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.limits import LOG_TRIM_LOCK_MS
from armillary.storage.log.replicated_log import LogRefused
from armillary.storage.log.rows import START, Place

_LOCK: Final = 0x41726D696C6C  # advisory: migrations, and new tables of the log
_SEQ_END: Final = 1 << 63

_NEW_KEY: Final = "sha256(" + " || ".join(["uuid_send(gen_random_uuid())"] * 3) + ")"

# Data is bytes that do not compress: EXTERNAL spares the attempt.
_MIGRATIONS: Final = (
    """
CREATE TABLE armillary.log (
    log integer NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    chain bytea NOT NULL,
    confirmed bytea NOT NULL,
    time_us bigint NOT NULL,
    transactions bigint NOT NULL,
    kind smallint NOT NULL,
    is_last boolean NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (log, seq)
) PARTITION BY RANGE (log, seq);
ALTER TABLE armillary.log ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE armillary.leaders (
    log integer PRIMARY KEY,
    generation bytea NOT NULL,
    table_rows integer NOT NULL,
    epoch bigint NOT NULL,
    node text NOT NULL,
    renewals bigint NOT NULL,
    confirmed bytea NOT NULL
);
CREATE TABLE armillary.replicas (
    log integer NOT NULL,
    node text NOT NULL,
    applied bigint NOT NULL,
    flushed bigint NOT NULL,
    PRIMARY KEY (log, node)
);
CREATE TABLE armillary.nodes (
    node text PRIMARY KEY,
    region text NOT NULL,
    addresses json NOT NULL,
    seen timestamptz NOT NULL
);
""",
    # Nodes prove to each other that they know the key.
    f"""
ALTER TABLE armillary.leaders ADD COLUMN key bytea;
UPDATE armillary.leaders SET key = {_NEW_KEY};
ALTER TABLE armillary.leaders ALTER COLUMN key SET NOT NULL;
""",  # noqa: S608 - constants
)

SCHEMA_VERSION: Final = len(_MIGRATIONS)

# Of the catalog's tables: names are looked up in a cache, which is not refreshed while waiting for an advisory lock.
_HAS_VERSION: Final = """
SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'armillary' AND relname = 'schema_version')"""

_NEW_LOG: Final = f"""
INSERT INTO armillary.leaders (log, generation, key, table_rows, epoch, node, renewals, confirmed)
VALUES ($1, coalesce($4::bytea, uuid_send(gen_random_uuid())), {_NEW_KEY}, $2, $5, '', 0, $3)
ON CONFLICT (log) DO NOTHING RETURNING true"""  # noqa: S608 - constants

_TABLES: Final = """
SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'armillary.log'::regclass"""


async def migrate(connection: Any) -> None:
    """Bring the schema to this version, or create it."""
    if await _version(connection) == SCHEMA_VERSION:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        version = await _version(connection)
        if version == 0:
            await connection.execute("CREATE SCHEMA IF NOT EXISTS armillary")
            await connection.execute("CREATE TABLE armillary.schema_version (version integer NOT NULL)")
            await connection.execute("INSERT INTO armillary.schema_version VALUES (0)")
        for migration in _MIGRATIONS[version:]:
            await connection.execute(migration)
        await connection.execute("UPDATE armillary.schema_version SET version = $1", SCHEMA_VERSION)


async def create_log(
    connection: Any, log: int, table_rows: int, begin: Place = START, generation: bytes | None = None
) -> bool:
    """Give a log its record of the leader, with a new generation and key, if it has none. Returns whether it had
    none."""
    arguments = (log, table_rows, begin.pack(), generation, begin.epoch)
    return await connection.fetchval(_NEW_LOG, *arguments) is not None


async def identity_of(connection: Any, log: int) -> tuple[bytes, int] | None:
    """The generation of a log and how many rows its tables have; None if the database holds no such log."""
    if await _version(connection) == 0:
        return None
    found = await connection.fetchrow("SELECT generation, table_rows FROM armillary.leaders WHERE log = $1", log)
    return (found["generation"], found["table_rows"]) if found is not None else None


async def identities_of(connection: Any) -> list[tuple[bytes, bytes]]:
    """The generation and the key of each log, by its number. The schema has this version."""
    found = await connection.fetch("SELECT log, generation, key FROM armillary.leaders ORDER BY log")
    if [each["log"] for each in found] != list(range(len(found))):
        raise LogRefused(
            "Some of the cluster's logs are missing in the database: it was restored incompletely, or rows of "
            "armillary.leaders were removed. Restore it as a whole."
        )
    return [(each["generation"], each["key"]) for each in found]


async def key_of(connection: Any, log: int) -> bytes:
    """The key of the cluster. The schema has this version and the log is there."""
    key: bytes = await connection.fetchval("SELECT key FROM armillary.leaders WHERE log = $1", log)
    return key


async def _version(connection: Any) -> int:
    if not await connection.fetchval(_HAS_VERSION):
        return 0
    version: int = await connection.fetchval("SELECT version FROM armillary.schema_version")
    if version > SCHEMA_VERSION:
        raise LogRefused(
            f"The log was made by a newer version of Armillary (schema {version}; this one knows {SCHEMA_VERSION}): "
            "upgrade this node."
        )
    return version


class LogTables:
    """The tables of one log."""

    def __init__(self, log: int, table_rows: int) -> None:
        self._log = log
        self._rows = table_rows

    def table_of(self, first: int, last: int) -> str:
        """The name of the table that has all these rows. A statement that names it is planned once and for all; one
        for the whole log is planned each time."""
        number = first // self._rows
        return f"armillary.log_{self._log}_{number}" if number == last // self._rows else "armillary.log"

    async def reach(self, connection: Any, first: int, last: int) -> int:
        """Make the tables of these rows and the one behind them. Returns the first seq that may have none. Attaching a
        table does not hold up appends. The lock is taken only if a table is missing: most sessions find all of them,
        and do not wait for one that holds it."""
        numbers = range(first // self._rows, last // self._rows + 2)
        if await self._missing(connection, numbers):
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                for number in await self._missing(connection, numbers):  # another node may have made them meanwhile
                    await self._make(connection, number)
        return numbers.stop * self._rows

    async def _missing(self, connection: Any, numbers: range) -> list[int]:
        present = {name for (name,) in await connection.fetch(_TABLES)}
        return [number for number in numbers if f"log_{self._log}_{number}" not in present]

    async def _make(self, connection: Any, number: int) -> None:
        name = f"log_{self._log}_{number}"
        low, high = number * self._rows, (number + 1) * self._rows
        await connection.execute(f"CREATE TABLE armillary.{name} (LIKE armillary.log INCLUDING ALL)")
        await connection.execute(
            f"ALTER TABLE armillary.log ATTACH PARTITION armillary.{name} "
            f"FOR VALUES FROM ({self._log}, {low}) TO ({self._log}, {high})"
        )

    async def drop_all(self, connection: Any) -> None:
        await self.drop(connection, below=_SEQ_END)

    async def drop(self, connection: Any, below: int) -> None:
        """Drop the tables that have no row from a seq on, inside a transaction. Appends wait for it, so it does not
        wait long for a reader of the tables, such as a backup."""
        prefix = f"log_{self._log}_"
        numbers = [
            int(name.removeprefix(prefix)) for (name,) in await connection.fetch(_TABLES) if name.startswith(prefix)
        ]
        old = sorted(number for number in numbers if (number + 1) * self._rows <= below)
        if old:
            await connection.execute(f"SET LOCAL lock_timeout = {LOG_TRIM_LOCK_MS}")
            await connection.execute("DROP TABLE " + ", ".join(f"armillary.{prefix}{number}" for number in old))
