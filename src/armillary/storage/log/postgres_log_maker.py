"""Making a log on PostgreSQL that continues from the state of a data directory: the first of a cluster, or one in the
place of a log that was lost or set back. Its first row stands for that state (`rows.origin_row`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from armillary import limits
from armillary.storage.log import postgres_statements as sql
from armillary.storage.log.postgres_connections import Connector, Lane, Session, T
from armillary.storage.log.postgres_schema import LogTables, create_log, identity_of, migrate
from armillary.storage.log.replicated_log import LOG_EXISTS, LogRefused
from armillary.storage.log.rows import Place, Row

_REMOVE_LOG: Final = "DELETE FROM armillary.leaders WHERE log = $1"
_REMOVE_REPLICAS: Final = "DELETE FROM armillary.replicas WHERE log = $1"


class PostgresLogMaker:
    def __init__(
        self,
        url: str,
        *,
        number: int = 0,
        allows_single: bool = False,
        table_rows: int = limits.LOG_TABLE_ROWS,
        call_seconds: float = limits.LOG_CALL_SECONDS,
    ) -> None:
        """Raises LogRefused for an address that is none."""
        self._connector = Connector(url, number, allows_single=allows_single)
        self._number = number
        self._table_rows = table_rows
        self._call_seconds = call_seconds

    async def generation(self) -> bytes | None:
        async def work(session: Session) -> bytes | None:
            identity = await identity_of(session.connection, self._number)
            await session.connection.execute(sql.BARRIER)
            return identity[0] if identity is not None else None

        return await self._run(work)

    async def holds(self, place: Place) -> bool:
        async def work(session: Session) -> bool:
            connection = session.connection
            if await identity_of(connection, self._number) is None:
                return False
            found = await connection.fetchrow(sql.PLACE_AT, self._number, place.seq)
            lowest = await connection.fetchval(sql.LOWEST, self._number)
            await connection.execute(sql.BARRIER)
            is_trimmed = lowest is not None and lowest > place.seq
            return is_trimmed or (found is not None and Place(*found).chain == place.chain)

        return await self._run(work)

    async def make(self, generation: bytes, origin: Row, *, replaces: bool) -> None:
        async def work(session: Session) -> None:
            connection = session.connection
            await migrate(connection)
            async with connection.transaction():
                await connection.execute(sql.LOCK_LEADER, self._number)
                identity = await identity_of(connection, self._number)
                if identity is None or (replaces and identity[0] != generation):
                    await self._replace(connection, generation, origin)
                elif identity[0] != generation:
                    raise LogRefused(LOG_EXISTS)
            await connection.execute(sql.BARRIER)  # also for a log that an earlier attempt has made

        await self._run(work)

    async def _replace(self, connection: Any, generation: bytes, origin: Row) -> None:
        tables = LogTables(self._number, self._table_rows)
        await connection.execute(_REMOVE_REPLICAS, self._number)
        await connection.execute(_REMOVE_LOG, self._number)
        await tables.drop_all(connection)
        is_made = await create_log(connection, self._number, self._table_rows, origin.place, generation)
        if not is_made:  # another process makes one at the same time
            raise LogRefused(LOG_EXISTS)
        await tables.reach(connection, origin.seq, origin.seq)
        await connection.execute(sql.APPEND_FENCE, self._number, *sql.columns_of(origin))

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        lane = Lane(self._connector, self._call_seconds)
        try:
            return await lane.run(work)
        finally:
            lane.close()
