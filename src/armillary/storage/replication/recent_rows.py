"""The newest acknowledged rows of a leader, kept in memory for followers, and what a leader says with them.

Rows come here when they are applied at the leader, so followers are never ahead of it. A confirmation holds even if a
deposed leader sends it: a row that the log has acknowledged stays. That nothing newer is acknowledged holds only while
the lease does, so a `LeaderWord` says whether it did.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from armillary import limits
from armillary.clock import Clock, within
from armillary.storage.log.rows import Place, Row

_ROW_BYTES: Final = 300  # of memory, besides its data


class LeaderWord(NamedTuple):
    """What a leader had applied at a moment between being asked and answering."""

    place: Place
    transactions: int
    time_us: int  # its clock then; rows that are not applied at this place have a later time
    is_leased: bool  # the lease held: nothing else was acknowledged to any client


class Pushed(NamedTuple):
    """Rows of a leader for one follower."""

    rows: Sequence[Row]
    confirmed: Place  # a row that is acknowledged, at or behind these
    word: LeaderWord
    is_kept: bool  # False: the rows that were asked for are not in memory any more, the log has them


class RecentRows:
    def __init__(self, after_seq: int) -> None:
        """Rows up to `after_seq` are not kept."""
        self._rows: deque[Row] = deque()
        self._dropped_seq = after_seq
        self._newest_seq = after_seq
        self._size_bytes = 0
        self._changed = asyncio.Event()
        self._is_ended = False

    def add(self, rows: Sequence[Row]) -> None:
        """Rows were acknowledged and applied, right behind those before."""
        self._rows.extend(rows)
        self._newest_seq = rows[-1].seq
        for row in rows:
            self._size_bytes += len(row.data) + _ROW_BYTES
        while self._size_bytes > limits.RECENT_ROWS_BYTES_MAX:
            dropped = self._rows.popleft()
            self._dropped_seq = dropped.seq
            self._size_bytes -= len(dropped.data) + _ROW_BYTES
        self._wake()

    def end(self) -> None:
        """The leader has ceased to lead: followers do not wait here any more."""
        self._is_ended = True
        self._wake()

    def above(self, after_seq: int, bytes_max: int) -> list[Row] | None:
        """At least one row if there is any; None if some are not kept. Followers mostly ask for the newest few."""
        if after_seq < self._dropped_seq:
            return None
        found: list[Row] = []
        for row in reversed(self._rows):
            if row.seq <= after_seq:
                break
            found.append(row)
        found.reverse()
        size_bytes = 0
        for number, row in enumerate(found):
            size_bytes += len(row.data)
            if size_bytes > bytes_max and number:
                return found[:number]
        return found

    async def wait_above(self, after_seq: int, clock: Clock, wait_s: float) -> None:
        """Until there are rows above a seq, at most for a while."""
        if self._newest_seq > after_seq or self._is_ended:
            return
        try:
            await within(clock, wait_s, self._news(after_seq))
        except TimeoutError:
            return

    async def _news(self, after_seq: int) -> None:
        while self._newest_seq <= after_seq and not self._is_ended:
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def pushed(recent: RecentRows, word: LeaderWord, after_seq: int) -> Pushed:
    """The answer to a follower that has confirmed rows up to a seq."""
    rows = recent.above(after_seq, limits.LOG_READ_BYTES)
    if rows is None:
        return Pushed([], word.place, word, is_kept=False)
    return Pushed(rows, rows[-1].place if rows else word.place, word, is_kept=True)
