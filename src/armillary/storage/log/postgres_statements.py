"""SQL of the replicated log on PostgreSQL. `$1` is always the number of the log.

An append is one statement that always writes. It inserts rows if the row before them has their epoch and chain, or if
they are there already, and then touches them: a statement that writes nothing returns at once, without waiting for
standbys, and would acknowledge rows that only the primary has. The first row is inserted before the others are tried,
so either all of them are inserted or none.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.storage.log.rows import Place, Row, kind_of

_COLUMNS: Final = "seq, epoch, chain, confirmed, time_us, transactions, kind, is_last, data"

_UNLESS_ANOTHERS: Final = """
ON CONFLICT (log, seq) DO UPDATE SET confirmed = present.confirmed
WHERE present.epoch = excluded.epoch AND present.chain = excluded.chain
RETURNING seq"""


def append_one(table: str) -> str:
    # The second condition is for a repeated append: the row before may have been trimmed since, if this node was
    # removed from the replicas.
    return f"""
INSERT INTO {table} AS present (log, {_COLUMNS})
SELECT $1::integer, $2::bigint, $3::bigint, $4::bytea, $5::bytea, $6::bigint, $7::bigint, $8::smallint, $9::boolean,
    $10::bytea
WHERE EXISTS (SELECT FROM {table} WHERE log = $1 AND seq = $2 - 1 AND epoch = $3 AND chain = $11)
    OR EXISTS (SELECT FROM {table} WHERE log = $1 AND seq = $2 AND epoch = $3 AND chain = $4)
{_UNLESS_ANOTHERS}"""  # noqa: S608 - names of tables are made of numbers


def append_many(table: str) -> str:
    return f"""
WITH first AS ({append_one(table)}), rest AS (
INSERT INTO {table} AS present (log, {_COLUMNS})
SELECT $1, * FROM unnest($12::bigint[], $13::bigint[], $14::bytea[], $15::bytea[], $16::bigint[], $17::bigint[],
    $18::smallint[], $19::boolean[], $20::bytea[])
WHERE EXISTS (SELECT FROM first)
{_UNLESS_ANOTHERS})
SELECT seq FROM first UNION ALL SELECT seq FROM rest"""  # noqa: S608 - names of tables are made of numbers


APPEND_FENCE: Final = f"""
INSERT INTO armillary.log (log, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (log, seq) DO NOTHING RETURNING seq"""  # noqa: S608 - constants

# A commit that waits for the standbys and changes no table.
BARRIER: Final = "SELECT pg_logical_emit_message(true, 'armillary', '')"

# The lengths of values that are stored apart are known without reading them.
READ: Final = f"""
SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, sum(octet_length(data)) OVER (ORDER BY seq) AS bytes, row_number() OVER (ORDER BY seq) AS number
    FROM (SELECT {_COLUMNS} FROM armillary.log WHERE log = $1 AND seq > $2 ORDER BY seq LIMIT $4) AS rows
) AS counted WHERE bytes <= $3 OR number = 1 ORDER BY seq"""  # noqa: S608 - constants

NEWEST: Final = """
SELECT epoch, seq, chain, time_us, transactions FROM armillary.log WHERE log = $1 ORDER BY seq DESC LIMIT 1"""
LOWEST: Final = "SELECT seq FROM armillary.log WHERE log = $1 ORDER BY seq LIMIT 1"
PLACE_AT: Final = "SELECT epoch, seq, chain FROM armillary.log WHERE log = $1 AND seq = $2"
FIRST_ABOVE: Final = "SELECT seq FROM armillary.log WHERE log = $1 AND seq > $2 ORDER BY seq LIMIT 1"
NEXT: Final = "SELECT seq FROM armillary.log WHERE log = $1 AND seq = $2 + 1"

LEADER: Final = "SELECT generation, epoch, node, renewals, confirmed FROM armillary.leaders WHERE log = $1"
LEADERS: Final = "SELECT log, generation, epoch, node, renewals, confirmed FROM armillary.leaders ORDER BY log"
LOCK_LEADER: Final = "SELECT FROM armillary.leaders WHERE log = $1 FOR UPDATE"
TAKE: Final = """
UPDATE armillary.leaders SET epoch = epoch + 1, renewals = renewals + 1, node = $4
WHERE log = $1 AND epoch = $2 AND renewals = $3
RETURNING generation, epoch, node, renewals, confirmed"""
# $5: an earlier renewal, whose outcome is unknown, may have been done. In one epoch only its leader renews.
_AS_SEEN: Final = "log = $1 AND epoch = $2 AND (renewals = $3 OR ($5 AND renewals = $3 + 1 AND node = $6))"
RENEW: Final = f"""
UPDATE armillary.leaders SET renewals = $3 + 1, confirmed = $4 WHERE {_AS_SEEN}
RETURNING generation, epoch, node, renewals, confirmed"""  # noqa: S608 - constants
RESIGN: Final = f"""
UPDATE armillary.leaders SET renewals = renewals + 1, node = $4 WHERE {_AS_SEEN}
RETURNING true"""  # noqa: S608 - constants

REGISTER: Final = """
INSERT INTO armillary.replicas AS present (log, node, applied, flushed) VALUES ($1, $2, $3, $3)
ON CONFLICT (log, node) DO UPDATE SET flushed = present.flushed RETURNING flushed"""
REPORT: Final = "UPDATE armillary.replicas SET applied = $3, flushed = $4 WHERE log = $1 AND node = $2 RETURNING true"
REPLICAS: Final = "SELECT node, applied, flushed FROM armillary.replicas WHERE log = $1 ORDER BY node"
REMOVE: Final = "DELETE FROM armillary.replicas WHERE log = $1 AND node = $2"
WITHDRAW: Final = """
DELETE FROM armillary.replicas AS leaving WHERE log = $1 AND node = $2
    AND NOT EXISTS (SELECT FROM armillary.leaders WHERE log = $1 AND node = $2)
    AND EXISTS (SELECT FROM armillary.replicas AS other WHERE log = $1 AND other.node <> $2 AND other.flushed >= $3)"""
IS_REPLICA: Final = "SELECT true FROM armillary.replicas WHERE log = $1 AND node = $2"
LOWEST_FLUSHED: Final = "SELECT min(flushed) FROM armillary.replicas WHERE log = $1"

ANNOUNCE: Final = """
INSERT INTO armillary.nodes (node, region, addresses, seen) VALUES ($1, $2, $3::json, clock_timestamp())
ON CONFLICT (node) DO UPDATE SET region = excluded.region, addresses = excluded.addresses, seen = excluded.seen"""
NODES: Final = """
SELECT node, region, addresses, extract(epoch FROM clock_timestamp() - seen)::float8 AS silent_s
FROM armillary.nodes ORDER BY node"""
FORGET: Final = "DELETE FROM armillary.nodes WHERE node = $1"

# Sessions of nodes that hold what session $1 waits for, and that have waited for their own node for $2 seconds: it has
# stopped. PostgreSQL ends them by itself only between statements (LOG_IDLE_TRANSACTION_MS), not where a node stopped
# before the last bytes of one: it was carried out and is not committed. A commit that waits for a standby is not ended.
END_STUCK: Final = """
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ANY (pg_blocking_pids($1)) AND usename = current_user AND application_name = $3
    AND wait_event_type = 'Client' AND state_change < clock_timestamp() - $2 * interval '1 second'"""

# Columns of other sessions are empty for a role that may not see them.
FIGURES: Final = """
SELECT (SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'armillary.log'::regclass AND starts_with(relname, 'log_' || $1::integer || '_')
    ) AS size_bytes,
    (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = 'armillary') AS dead_rows,
    current_setting('synchronous_standby_names') AS standbys,
    (SELECT CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
        count(*) FILTER (WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')) > 0 END
        FROM pg_stat_replication) AS has_standby"""


def columns_of(row: Row) -> tuple[Any, ...]:
    """The values of `_COLUMNS`."""
    return (
        row.seq,
        row.epoch,
        row.chain,
        row.confirmed.pack(),
        row.time_us,
        row.transactions,
        int(row.kind),
        row.is_last,
        row.data,
    )


def row_of(found: Any) -> Row:
    seq, epoch, chain, confirmed, time_us, transactions, kind, is_last, data = found
    return Row(epoch, seq, chain, Place.unpack(confirmed), time_us, transactions, kind_of(kind), is_last, data)
