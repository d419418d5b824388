"""The replicated log on PostgreSQL, which replicates it synchronously to its standbys.

Appends, the lease, reading and upkeep have a connection each, so none waits for another (`postgres_lanes.py`). A
failover of PostgreSQL is survived inside the calls: an append is repeated until its outcome is known, other calls raise
LogUnavailable and can be repeated. What a server answers without having written counts only after a synchronous
commit on the same connection, because a former primary that does not know of its successor still answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from armillary import limits
from armillary.storage.log import postgres_statements as sql
from armillary.storage.log.postgres_checks import standby_names
from armillary.storage.log.postgres_connections import Connector, Lane, Session, T, check_generation
from armillary.storage.log.postgres_lanes import Lanes
from armillary.storage.log.postgres_schema import LogTables, create_log, identity_of, key_of, migrate
from armillary.storage.log.replicated_log import (
    NO_LOG,
    OTHER_LOG,
    Deposed,
    LeaderState,
    LogFigures,
    LogRefused,
    LogUnavailable,
    NodeState,
    ReplicaState,
)
from armillary.storage.log.rows import START, Place, Row, RowKind, new_row

_log = logging.getLogger("armillary.storage")


class PostgresLog:
    """A log of a cluster, as one node uses it."""

    def __init__(
        self,
        lanes: Lanes,
        number: int,
        generation: bytes,
        table_rows: int,
        cluster_key: bytes,
        *,
        has_own_lanes: bool = True,
    ) -> None:
        """`has_own_lanes`: no other log uses them, so they are closed with this one."""
        self._lanes = lanes
        self._has_own_lanes = has_own_lanes
        self._number = number
        self.generation = generation
        self.cluster_key = cluster_key  # what nodes prove to each other to know
        self._tables = LogTables(number, table_rows)
        self._appending = lanes.new_appending()
        self._last: Place | None = None  # the newest acknowledged row of this node's epoch
        self._renewing: tuple[int, int] | None = None  # epoch and renewals, of a renewal whose outcome is unknown
        self._rests = False
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        number: int = 0,
        generation: bytes | None = None,
        allows_single: bool = False,
        table_rows: int = limits.LOG_TABLE_ROWS,
        call_seconds: float = limits.LOG_CALL_SECONDS,
    ) -> PostgresLog:
        """Connect, and create the log if the database holds none; with a generation, only the log of that generation is
        opened. Raises LogRefused or LogUnavailable."""
        connector = Connector(url, number, allows_single=allows_single)
        connector.generation = generation
        lane = Lane(connector, call_seconds)

        async def prepare(session: Session) -> tuple[bytes, int, bytes] | None:
            connection = session.connection
            await migrate(connection)
            await create_log(connection, number, table_rows)
            identity = await identity_of(connection, number)
            key = await key_of(connection, number)
            await connection.execute(sql.BARRIER)
            return (*identity, key) if identity is not None else None

        try:
            identity = await lane.run(prepare)
        finally:
            lane.close()
        if identity is None:
            raise LogUnavailable("the log was removed while it was opened")
        connector.generation = identity[0]
        return cls(Lanes(connector, call_seconds), number, *identity)

    @classmethod
    async def shared(cls, lanes: Lanes, number: int) -> PostgresLog:
        """One of several logs of a node, which is there. Raises LogRefused or LogUnavailable."""

        async def work(session: Session) -> tuple[bytes, int, bytes] | None:
            identity = await identity_of(session.connection, number)
            return (*identity, await key_of(session.connection, number)) if identity is not None else None

        identity = await lanes.upkeep.run(work)
        if identity is None:
            raise LogRefused(NO_LOG)
        return cls(lanes, number, *identity, has_own_lanes=False)

    async def count(self) -> int:
        """Of the logs of the cluster. Raises LogUnavailable."""
        return len(await self._lanes.leading.fetch(sql.LEADERS))

    async def leader(self) -> LeaderState:
        found = await self._fetch(self._lanes.leading, sql.LEADER, self._number)
        return self.state_of(found[0] if found else None)

    async def take(self, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        async def work(session: Session) -> tuple[LeaderState, Row] | None:
            await self._lanes.check(session)
            connection = session.connection
            tables_end = 0
            async with connection.transaction():
                found = await connection.fetchrow(sql.TAKE, self._number, seen.epoch, seen.renewals, node)
                if found is None:
                    return None
                state = self.state_of(found)
                # The record is locked now. The former leader may still append, until a fence comes first.
                while True:
                    fence = _fence(await connection.fetchrow(sql.NEWEST, self._number), state, time_us)
                    if fence.seq >= tables_end:
                        tables_end = await self._tables.reach(connection, fence.seq, fence.seq)
                    if await connection.fetchval(sql.APPEND_FENCE, self._number, *sql.columns_of(fence)) is not None:
                        break
            return state, fence

        taken = await self._run(self._lanes.leading, work)
        if taken is not None:
            self._last, self._renewing, self._rests = taken[1].place, None, False
        return taken

    async def renew(self, seen: LeaderState, confirmed: Place) -> LeaderState | None:
        async def work(session: Session) -> Any:
            await self._lanes.check(session)
            return await self._replace(session, sql.RENEW, seen, confirmed.pack())

        found = await self._run(self._lanes.leading, work)
        self._renewing = None
        return self.state_of(found) if found is not None else None

    async def resign(self, seen: LeaderState, successor: str) -> bool:
        async def work(session: Session) -> Any:
            return await self._replace(session, sql.RESIGN, seen, successor)

        found = await self._run(self._lanes.leading, work)
        self._renewing = None
        return found is not None

    async def append(self, rows: Sequence[Row]) -> None:
        async def work(session: Session) -> bool:
            return await self._append(session, rows)

        told = ""
        while not self._is_closed:
            if self._rests:  # what an earlier epoch has in flight: the session is needed for this attempt alone
                self._appending.rest()
            try:
                is_ours = await self._run(self._appending, work)
            except LogUnavailable as error:
                if told != str(error):  # not with each attempt
                    told = str(error)
                    _log.warning("the outcome of an append is unknown, it is repeated: %s", error)
                await asyncio.sleep(limits.LOG_RETRY_SECONDS)
                continue
            if not is_ours:
                raise Deposed
            self._last = rows[-1].place
            return
        raise LogUnavailable("the log is closed")

    def rest(self) -> None:
        self._rests = True
        self._appending.rest()

    async def read(self, after_seq: int, bytes_max: int, *, is_certain: bool = False) -> list[Row]:
        async def work(session: Session) -> list[Any]:
            arguments = (self._number, after_seq, bytes_max, limits.LOG_READ_ROWS)
            found: list[Any] = await session.connection.fetch(sql.READ, *arguments)
            if is_certain:
                await session.connection.execute(sql.BARRIER)
            return found

        return [sql.row_of(each) for each in await self._run(self._lanes.reading, work)]

    async def newest(self) -> Place:
        async def work(session: Session) -> Any:
            found = await session.connection.fetchrow(sql.NEWEST, self._number)
            await session.connection.execute(sql.BARRIER)
            return found

        found = await self._run(self._lanes.reading, work)
        return Place(found["epoch"], found["seq"], found["chain"]) if found is not None else START

    async def lowest(self) -> int:
        return _first(await self._fetch(self._lanes.reading, sql.LOWEST, self._number))

    async def tail(self, after_seq: int) -> None:
        """Looks for the next row again and again, less often while nothing comes. LISTEN would be quicker to tell, but
        NOTIFY makes commits wait for each other."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.LOG_POLL_SECONDS
        pause_s = limits.LOG_TAIL_SECONDS_MIN
        statement = sql.FIRST_ABOVE  # the next row may have been trimmed
        while not await self._fetch(self._lanes.reading, statement, self._number, after_seq) and loop.time() < until:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, limits.LOG_TAIL_SECONDS_MAX)
            statement = sql.NEXT

    async def register(self, node: str) -> int:
        async def work(session: Session) -> int:
            connection = session.connection
            async with connection.transaction():
                await connection.execute(sql.LOCK_LEADER, self._number)
                lowest = _first(await connection.fetch(sql.LOWEST, self._number))
                flushed: int = await connection.fetchval(sql.REGISTER, self._number, node, lowest - 1)
                return flushed

        return await self._run(self._lanes.upkeep, work)

    async def report(self, node: str, applied: int, flushed: int) -> bool:
        async def work(session: Session) -> bool:
            return await self._written(session, sql.REPORT, node, applied, flushed) is not None

        return await self._run(self._lanes.upkeep, work)

    async def replicas(self) -> list[ReplicaState]:
        return [ReplicaState(*found) for found in await self._fetch(self._lanes.upkeep, sql.REPLICAS, self._number)]

    async def withdraw(self, node: str, applied: int) -> bool:
        async def work(session: Session) -> bool:
            connection = session.connection
            async with connection.transaction():
                # Two replicas that leave at the same time do so one after the other.
                await connection.execute(sql.LOCK_LEADER, self._number)
                await connection.execute(sql.WITHDRAW, self._number, node, applied)
                is_gone = await connection.fetchval(sql.IS_REPLICA, self._number, node) is None
            await connection.execute(sql.BARRIER)
            return is_gone

        return await self._run(self._lanes.upkeep, work)

    async def remove(self, node: str) -> None:
        await self._fetch(self._lanes.upkeep, sql.REMOVE, self._number, node)

    async def trim(self) -> int:
        async def work(session: Session) -> int:
            connection = session.connection
            try:
                async with connection.transaction():
                    await connection.execute(sql.LOCK_LEADER, self._number)
                    flushed = await connection.fetchval(sql.LOWEST_FLUSHED, self._number)
                    newest = await connection.fetchrow(sql.NEWEST, self._number)
                    if flushed is not None and newest is not None:
                        await self._tables.drop(connection, below=min(flushed, newest["seq"]))
                    return _first(await connection.fetch(sql.LOWEST, self._number))
            except self._lanes.connector.is_locked:  # a reader holds a table: the next trim comes to it
                return _first(await connection.fetch(sql.LOWEST, self._number))

        return await self._run(self._lanes.upkeep, work)

    async def announce(self, node: str, region: str, addresses: dict[str, str]) -> None:
        await self._fetch(self._lanes.upkeep, sql.ANNOUNCE, node, region, json.dumps(addresses))

    async def nodes(self) -> list[NodeState]:
        found = await self._fetch(self._lanes.upkeep, sql.NODES)
        return [NodeState(node, region, json.loads(addresses), silent_s) for node, region, addresses, silent_s in found]

    async def forget(self, node: str) -> None:
        await self._fetch(self._lanes.upkeep, sql.FORGET, node)

    async def figures(self) -> LogFigures:
        async def work(session: Session) -> LogFigures:
            connection = session.connection
            newest = await connection.fetchrow(sql.NEWEST, self._number)
            lowest = await connection.fetchval(sql.LOWEST, self._number)
            found = await connection.fetchrow(sql.FIGURES, self._number)
            return LogFigures(
                newest_seq=newest["seq"] if newest is not None else 0,
                newest_time_us=newest["time_us"] if newest is not None else 0,
                newest_transactions=newest["transactions"] if newest is not None else 0,
                lowest_seq=lowest if lowest is not None else 1,
                size_bytes=found["size_bytes"],
                dead_rows=found["dead_rows"],
                wants_standby=bool(standby_names(found["standbys"])),
                has_standby=found["has_standby"],
            )

        return await self._run(self._lanes.upkeep, work)

    async def close(self) -> None:
        """An append whose outcome is unknown raises LogUnavailable then."""
        self._is_closed = True
        self._lanes.end_appending(self._appending)
        if self._has_own_lanes:
            self._lanes.close()

    async def _run(self, lane: Lane, work: Callable[[Session], Awaitable[T]]) -> T:
        async def checked(session: Session) -> T:
            if self._number not in session.logs:  # it was opened for another log of this node
                await check_generation(session.connection, self._number, self.generation)
                session.logs.add(self._number)
            return await work(session)

        return await lane.run(checked)

    async def _fetch(self, lane: Lane, statement: str, *arguments: Any) -> list[Any]:
        async def work(session: Session) -> list[Any]:
            found: list[Any] = await session.connection.fetch(statement, *arguments)
            return found

        return await self._run(lane, work)

    async def _append(self, session: Session, rows: Sequence[Row]) -> bool:
        """One attempt. Returns whether the rows are in the log, as the standbys have it too."""
        connection, first, rest = session.connection, rows[0], rows[1:]
        if rows[-1].seq >= session.tables_ends.get(self._number, 0):
            session.tables_ends[self._number] = await self._tables.reach(connection, first.seq, rows[-1].seq)
        before = self._last
        if before is None or before.seq != first.seq - 1:
            before = await self._place_before(connection, first)
        # No row has an empty chain: rows that follow from another one are not inserted, but may be there already.
        chain = before.chain if before is not None and first.follows(before) else b""
        table = self._tables.table_of(first.seq - 1, rows[-1].seq)
        arguments = [self._number, *sql.columns_of(first), chain]
        if rest:
            columns = [list(column) for column in zip(*map(sql.columns_of, rest), strict=True)]
            written = await connection.fetch(sql.append_many(table), *arguments, *columns)
        else:
            written = await connection.fetch(sql.append_one(table), *arguments)
        if not written:
            await connection.execute(sql.BARRIER)
            return False
        assert len(written) == len(rows), "rows of one append are in the log together"
        return True

    async def _place_before(self, connection: Any, row: Row) -> Place | None:
        """What is before a row, for a node that has opened the log anew since it became the leader."""
        found = await connection.fetchrow(sql.PLACE_AT, self._number, row.seq - 1)
        return Place(*found) if found is not None else None

    async def _replace(self, session: Session, statement: str, seen: LeaderState, value: Any) -> Any:
        """Change the record of the leader, if it is as it was seen or as an earlier call with the same record left it
        whose outcome is unknown."""
        place = (seen.epoch, seen.renewals)
        is_repeated, self._renewing = self._renewing == place, place
        return await self._written(session, statement, *place, value, is_repeated, seen.node)

    def state_of(self, found: Any) -> LeaderState:
        """The log may have been made anew while this node uses it."""
        if found is None:
            raise LogRefused(NO_LOG)
        generation, epoch, node, renewals, confirmed = found
        if generation != self.generation:
            raise LogRefused(OTHER_LOG)
        return LeaderState(generation, epoch, node, renewals, Place.unpack(confirmed))

    async def _written(self, session: Session, statement: str, *arguments: Any) -> Any:
        """The first row that a statement wrote. If it wrote none, that is certain after a synchronous commit."""
        found = await session.connection.fetchrow(statement, self._number, *arguments)
        if found is None:
            await session.connection.execute(sql.BARRIER)
        return found


def _first(found: Sequence[Any]) -> int:
    return found[0]["seq"] if found else 1


def _fence(newest: Any, state: LeaderState, time_us: int) -> Row:
    """The first row of an epoch. It names its node, so that the fences of two nodes never have the same chain."""
    after, transactions = START, 0
    if newest is not None:
        after = Place(newest["epoch"], newest["seq"], newest["chain"])
        time_us, transactions = max(time_us, newest["time_us"]), newest["transactions"]
    return new_row(
        after,
        state.epoch,
        RowKind.FENCE,
        confirmed=state.confirmed,
        time_us=time_us,
        transactions=transactions,
        is_last=True,
        data=state.node.encode(),
    )
