"""Where in a partition's log a time is: a feed from some time on need not begin at the beginning.

Clocks are set, and a merge mixes two logs, so times do not follow the lsn; but up to any lsn there is a latest one.
That is found out by whoever reads, and holds: entries leave the log and never come in between. Nothing is stored.
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
        self._latest_s: list[int] = []  # of all entries up to that lsn
        self._lsn = 0
        self._latest = 0  # of all entries up to there
        self._every = every  # lsns between two marks

    def older_until(self, since_s: int) -> int:
        """The highest lsn known up to which everything is older."""
        if self._latest < since_s:
            return self._lsn
        mark = bisect_left(self._latest_s, since_s)
        return self._lsns[mark - 1] if mark else 0

    def noting(self, transactions: Iterable[Transaction], after_lsn: int) -> Iterator[Transaction]:
        """The same transactions, noted on their way. They are all there are after an lsn."""
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
