"""What a partition remembers of its background work, so that upkeep does not scan again where nothing can be found:
whether the log may have tombstones, and where the next TTL sweep begins. Kept in memory; after a start everything is
scanned once.

Every transaction is noted when it has *run*, before its commit: a scan or a sweep that ended earlier does not count for
what it wrote. A transaction that fails afterwards only makes the next scan longer.
"""

from __future__ import annotations

from typing import Protocol

from armillary.model import layout
from armillary.partition.history.log import Head


class Written(Protocol):
    """A Writer whose transaction function has run."""

    head: Head
    has_tombstones: bool  # of items that it removed
    first_expiry: bytes | None  # the lowest expiry key that it put


class UpkeepMarks:
    def __init__(self) -> None:
        self._tombstone_lsn = 0  # the highest lsn of a transaction that left tombstones
        self._thinned_lsn = -1  # the end of the log when a scan of it left none; -1: there was no such scan yet
        # There are no expiry keys below this one: sweeps have deleted them, and RocksDB would step over each of them
        # again, and over all that was deleted behind them.
        self.expiry_from = layout.EXPIRY
        self._first_expiry = layout.EXPIRY  # the lowest that was put since the last sweep began
        self._sweeps = 0

    def note(self, writer: Written) -> None:
        if writer.has_tombstones:
            self._tombstone_lsn = max(self._tombstone_lsn, writer.head.lsn)
        key = writer.first_expiry
        if key is not None:
            self._first_expiry = min(self._first_expiry, key)
            self.expiry_from = min(self.expiry_from, key)

    # Tombstones.

    @property
    def may_have_tombstones(self) -> bool:
        """Whether the log, as far as it is acknowledged, has to be scanned for tombstones."""
        return self._tombstone_lsn > self._thinned_lsn

    def note_thinned(self, end_lsn: int) -> None:
        """A scan has reached the end of the log, which was this lsn, and left no tombstones."""
        self._thinned_lsn = max(self._thinned_lsn, end_lsn)

    # Sweeps.

    def begin_sweep(self) -> int:
        """Returns a number for `end_sweep`."""
        self._first_expiry = layout.space_end(layout.EXPIRY)
        self._sweeps += 1
        return self._sweeps

    def end_sweep(self, number: int, due_key: bytes) -> None:
        """A sweep has deleted all expiry keys below this one, the first that is left, and that is durable."""
        if number == self._sweeps:  # else another one has begun
            self.expiry_from = min(due_key, self._first_expiry)
