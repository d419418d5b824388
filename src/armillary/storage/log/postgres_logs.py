"""All logs of a cluster on PostgreSQL, on the connections of one node (`postgres_lanes.py`). Each log has a row in
`armillary.leaders`, numbered from 0 on; the first node that wants more logs than there are adds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import limits
from armillary.storage.log import postgres_statements as sql
from armillary.storage.log.postgres_connections import Connector, Lane, Session
from armillary.storage.log.postgres_lanes import Lanes
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_schema import create_log, identities_of, migrate
from armillary.storage.log.replicated_log import NO_LOG, OTHER_LOG, LeaderState, LogRefused, LogUnavailable
from armillary.storage.log.rows import Place


class PostgresLogs:
    """Implements ReplicatedLogs."""

    def __init__(self, lanes: Lanes, cluster_key: bytes, generation: bytes, count: int) -> None:
        self.cluster_key = cluster_key
        self.generation = generation  # of log 0
        self.count = count
        self._lanes = lanes
        self._logs: dict[int, PostgresLog] = {}

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        count: int | None = None,
        allows_single: bool = False,
        table_rows: int = limits.LOG_TABLE_ROWS,
        call_seconds: float = limits.LOG_CALL_SECONDS,
    ) -> PostgresLogs:
        """Connect. Without a count the logs that the database has are used, or one is made; with a count, what is
        missing of them is made, and fewer than there are are refused. Raises LogRefused or LogUnavailable."""
        connector = Connector(url, 0, allows_single=allows_single)
        lane = Lane(connector, call_seconds)

        async def prepare(session: Session) -> list[tuple[bytes, bytes]]:
            connection = session.connection
            await migrate(connection)
            present = await identities_of(connection)
            _check_count(len(present), count)
            for number in range(len(present), count or 1):  # in order: a stop leaves no gap
                await create_log(connection, number, table_rows)
            present = await identities_of(connection)
            _check_count(len(present), count)  # another node may have made more at the same time
            await connection.execute(sql.BARRIER)
            return present

        try:
            present = await lane.run(prepare)
        finally:
            lane.close()
        if not present:
            raise LogUnavailable("the log was removed while it was opened")
        connector.generation, cluster_key = present[0]
        lanes = Lanes(connector, call_seconds, check_seconds=limits.LEASE_RENEW_SECONDS / 2)
        return cls(lanes, cluster_key, connector.generation, len(present))

    async def log(self, number: int) -> PostgresLog:
        if number not in self._logs:
            opened = await PostgresLog.shared(self._lanes, number)
            self._logs.setdefault(number, opened)
        return self._logs[number]

    async def leaders(self) -> Sequence[LeaderState]:
        found = await self._lanes.leading.fetch(sql.LEADERS)
        if not found or [each["log"] for each in found] != list(range(len(found))):
            raise LogRefused(NO_LOG)
        if found[0]["generation"] != self.generation:
            raise LogRefused(OTHER_LOG)
        states = [
            LeaderState(generation, epoch, node, renewals, Place.unpack(confirmed))
            for _, generation, epoch, node, renewals, confirmed in found
        ]
        self.count = max(self.count, len(states))
        return states

    async def close(self) -> None:
        for log in self._logs.values():
            await log.close()
        self._lanes.close()


def _check_count(present: int, count: int | None) -> None:
    if count is None:
        return
    if not 1 <= count <= limits.CLUSTER_LOGS_MAX:
        raise LogRefused(f"A cluster has from 1 to {limits.CLUSTER_LOGS_MAX} logs.")
    if present > count:
        raise LogRefused(
            f"The cluster has {present} logs, and cannot have fewer: their partitions would be lost. Leave out the "
            "number of logs, or name at least as many."
        )
