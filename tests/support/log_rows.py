"""Leaders and rows for tests of replicated logs."""

from __future__ import annotations

import itertools

from armillary.storage.log.replicated_log import LeaderState, ReplicatedLog
from armillary.storage.log.rows import Place, Row, RowKind, new_row


async def lead(log: ReplicatedLog, node: str = "a") -> tuple[LeaderState, Row]:
    """Become the leader, against the current record."""
    taken = await log.take(await log.leader(), node, 1_000)
    assert taken is not None
    return taken


def next_rows(after: Place, *pieces: bytes) -> list[Row]:
    """The rows of one group behind a row of the same epoch."""
    rows: list[Row] = []
    for number, data in enumerate(pieces, 1):
        last = rows[-1].place if rows else after
        is_last = number == len(pieces)
        rows.append(
            new_row(
                last,
                after.epoch,
                RowKind.GROUP,
                confirmed=after,
                time_us=2_000,
                transactions=last.seq,
                is_last=is_last,
                data=data,
            )
        )
    return rows


async def append(log: ReplicatedLog, after: Place, *pieces: bytes) -> Place:
    rows = next_rows(after, *pieces)
    await log.append(rows)
    return rows[-1].place


async def all_rows(log: ReplicatedLog) -> list[Row]:
    """Every row that the log has, checked for gaps and for its chain."""
    rows: list[Row] = []
    while found := await log.read(rows[-1].seq if rows else 0, 1_000_000):
        rows += found
    for before, row in itertools.pairwise(rows):
        assert row.follows(before.place), f"row {row.seq} does not follow from the one before"
        assert row.epoch >= before.epoch
    return rows
