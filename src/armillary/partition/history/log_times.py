"""Finding the place of a time in a partition's log, so that a change feed with a start time need not read from the
beginning.

Clocks can be set back and a merge interleaves two logs, so times do not ascend with the lsn; but the latest time of all
entries up to an lsn does. It is noted by readers of the log and stays an upper bound, because entries leave the log and
are never inserted. It is kept in memory only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from armillary import limits
from armillary.model.encoding import unpack_header
from armillary.partition.history.log import Transaction


class LogTimes:
    def __init__(self, every: int = limits.LOG_TIMES_EVERY) -> None:
        self._lsns: list[int] = []
        self._latest_s: list[int] = []  # the latest time of all entries up to that lsn
        self._lsn = 0
        self._latest = 0  # the same up to the last noted entry
        self._every = every  # lsns between two marks

    def older_until(self, since_s: int) -> int:
        """The highest lsn known for which all entries up to it are older than this time."""
        if self._latest < since_s:
            return self._lsn
        mark = bisect_left(self._latest_s, since_s)
        return self._lsns[mark - 1] if mark else 0

    def noting(self, transactions: Iterable[Transaction], after_lsn: int) -> Iterator[Transaction]:
        """Pass transactions through and note their times. They must be all transactions after an lsn."""
        for lsn, items in transactions:
            if after_lsn <= self._lsn < lsn:
                latest_s = max([unpack_header(stored).ts for stored in items], default=0)
                self._note(lsn, latest_s)
            after_lsn = lsn
            yield Transaction(lsn, items)

    def _note(self, lsn: int, latest_s: int) -> None:
        self._lsn, self._latest = lsn, max(self._latest, latest_s)
        if lsn - (self._lsns[-1] if self._lsns else 0) < self._every:
            return
        self._lsns.append(lsn)
        self._latest_s.append(self._latest)
        if len(self._lsns) > limits.LOG_TIMES_MAX:
            del self._lsns[::2], self._latest_s[::2]
            self._every *= 2
