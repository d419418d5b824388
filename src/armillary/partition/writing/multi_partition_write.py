"""One transaction over several partitions of an engine: all operations are applied or none, also after a crash.
Choosing the operations, and handling those that cannot be applied this way, is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from armillary.partition.history.retryable_write_records import Record
from armillary.partition.operations import Operation, Outcome
from armillary.partition.partition import Done, Guard, Partition
from armillary.storage.engine import Store, Txn


class Share(NamedTuple):
    """One partition's part of the transaction."""

    partition: Partition
    operations: Sequence[Operation]
    record: Record | None
    guard: Guard | None = None  # runs before its operations, and may refuse the whole transaction


Beside = tuple[Store, Callable[[Txn], None]]  # what is written with the shares to another store of the same engine


async def write_together(
    shares: Sequence[Share],
    guard: Callable[[], None] | None = None,
    on_run: Callable[[], None] | None = None,
    beside: Beside | None = None,
) -> list[list[Outcome]]:
    """The outcomes of each share, of which no two may be of one partition; raises what `Partition.write_all` raises.
    `guard` runs first and may raise; `on_run` is called when all operations succeeded, before they are durable and
    perhaps more than once."""
    parts: list[tuple[Store, Callable[[Txn], Any]]] = []
    for place, share in enumerate(shares):
        store, run = share.partition.share(share.operations, share.record, share.guard)
        before = guard if place == 0 else None
        after = on_run if place == len(shares) - 1 else None
        parts.append((store, _around(run, before, after)))
    if beside is not None:
        parts.append(beside)
    found = (await parts[0][0].write_together(parts))[: len(shares)]
    return [share.partition.joined(done, share.record) for share, done in zip(shares, found, strict=True)]


def _around(
    run: Callable[[Txn], Done], before: Callable[[], None] | None, after: Callable[[], None] | None
) -> Callable[[Txn], Done]:
    def run_all(txn: Txn) -> Done:
        if before is not None:
            before()
        done = run(txn)
        if after is not None:
            after()
        return done

    return run_all
