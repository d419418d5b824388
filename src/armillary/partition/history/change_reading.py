"""Reading a partition's log for the change feed: the items of a key range as last written, or all their versions, in
lsn order, one time slice after another. The changes of a transaction are returned together. The account decides about
key ranges and pages (`account/changes`); the entries' form is defined in `log.py` and `versions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from armillary import limits
from armillary.errors import bad_request
from armillary.model import layout
from armillary.model.encoding import ItemHeader, unpack_header
from armillary.model.layout import unpack_size
from armillary.partition.history import log, versions
from armillary.partition.history.versions import Version
from armillary.partition.meter import NOT_COUNTED
from armillary.partition.partition import Partition
from armillary.storage.engine import View

IsDue = Callable[[], bool]

_CHECK_TIME_EVERY = 32  # entries between two looks at the clock


class Changed(NamedTuple):
    lsn: int
    stored: bytes  # the item with its header; for a delete, the item before it
    version: Version | None = None  # the kind of change, where all versions are read


class Room(NamedTuple):
    """The space left in a page."""

    items: int
    size_bytes: int
    is_whole: bool  # the page is empty: it takes one transaction of any size, or the feed would never advance


class Step(NamedTuple):
    items: list[Changed]
    size_bytes: int
    lsn: int  # everything up to here was read
    is_end: bool  # the end of the log, as of when reading began, was reached
    is_full: bool  # the page is full


class ChangeReader:
    """Reads one key range of one partition, from a place in its log to the end of the log as of the first read. An item
    that is written again meanwhile appears in a later page, so no page has it twice and every page ends."""

    def __init__(
        self,
        partition: Partition,
        low: bytes,
        high: bytes,
        lsn: int,
        *,
        since_s: int | None = None,
        is_live: Callable[[ItemHeader], bool] | None = None,
    ) -> None:
        self.partition = partition
        self.low = low
        self.high = high
        self.lsn = lsn  # everything up to here was read
        self.ticket = NOT_COUNTED  # with which the page has entered the partition
        self._last_lsn: int | None = None
        self._since_s = since_s
        self._is_live = is_live
        # The range covers the whole partition, so keys need not be compared.
        self._is_whole = low <= partition.range.low and high >= partition.range.high
        self._needs_header = not self._is_whole or since_s is not None or is_live is not None

    async def read(self, room: Room, is_due: IsDue) -> Step:
        """The next changes, until the log ends, the page is full or the time is up."""
        step, last_lsn = await self.partition.read(lambda view: self._step(view, room, is_due))
        self.lsn, self._last_lsn = step.lsn, last_lsn
        return step

    async def end_lsn(self) -> int:
        """Of the last change, now."""
        return await self.partition.read(self.partition.lsn_in)

    @property
    def last_lsn(self) -> int | None:
        """The end of the log as of the first read."""
        return self._last_lsn

    def go_on(self, last_lsn: int | None) -> None:
        """It is the reader of a page that has begun in another process."""
        self._last_lsn = last_lsn

    def _step(self, view: View, room: Room, is_due: IsDue) -> tuple[Step, int]:
        last_lsn = self._last_lsn
        if last_lsn is None:
            last_lsn = self.partition.lsn_in(view)
            if self.lsn > last_lsn:
                raise bad_request(
                    f"The change feed position {self.lsn} is ahead of the partition, whose last change is {last_lsn}. "
                    "It belongs to another container, or to data that is no longer there: start again without it."
                )
        at = self.lsn
        if self._since_s is not None:
            at = min(max(at, self.partition.times.older_until(self._since_s)), last_lsn)
        found: list[Changed] = []
        size_bytes = examined = 0
        for lsn, kept, looked_at, kept_bytes in self._kept(view, at, last_lsn):
            if kept:
                is_over = len(found) + len(kept) > room.items or size_bytes + kept_bytes > room.size_bytes
                if is_over and (found or not room.is_whole):
                    return Step(found, size_bytes, at, False, True), last_lsn
                found += kept
                size_bytes += kept_bytes
            at = lsn
            if len(found) >= room.items:
                return Step(found, size_bytes, at, at == last_lsn, True), last_lsn
            examined += 1 + looked_at
            if examined >= _CHECK_TIME_EVERY:
                examined = 0
                if is_due():
                    return Step(found, size_bytes, at, at == last_lsn, False), last_lsn
        return Step(found, size_bytes, last_lsn, True, False), last_lsn

    def _kept(self, view: View, after_lsn: int, last_lsn: int) -> Iterator[tuple[int, list[Changed], int, int]]:
        """For each transaction: the changes that belong in the feed, the number of all its changes, and the bytes of
        the former."""
        is_wanted = self._is_wanted if self._needs_header else None
        for lsn, items in self._transactions(view, after_lsn, last_lsn):
            kept = [Changed(lsn, stored) for stored in items if is_wanted is None or is_wanted(stored)]
            yield lsn, kept, len(items), sum([len(each.stored) for each in kept])

    def _is_wanted(self, stored: bytes) -> bool:
        header = unpack_header(stored)
        if not self._is_whole and not self.low <= header.epk < self.high:
            return False
        # Times do not ascend with the lsn (the clock may have been set, and a merge interleaves logs), so each item is
        # checked.
        if self._since_s is not None and header.ts < self._since_s:
            return False
        return self._is_live is None or self._is_live(header)

    def _transactions(self, view: View, after_lsn: int, last_lsn: int) -> Iterable[log.Transaction]:
        if not self._is_whole:
            keys = self._few_keys(view, last_lsn - after_lsn)
            if keys is not None:
                return log.transactions_of(view, keys, after_lsn, last_lsn)
        logged = log.transactions(view, after_lsn, last_lsn)
        return logged if self._since_s is None else self.partition.times.noting(logged, after_lsn)

    def _few_keys(self, view: View, entries_max: int) -> list[bytes] | None:
        """The partition keys of the range if reading all their items costs less than reading the log; else None."""
        most = min(limits.CHANGES_BY_KEY_ITEMS, entries_max)
        keys: list[bytes] = []
        count = 0
        sizes = view.scan(layout.size_key(self.low), layout.size_key(self.high))
        for key, value in islice(sizes, most + 1):
            count += unpack_size(value).item_count
            if count > most:
                return None
            keys.append(key[1:])
        return keys


class VersionReader(ChangeReader):
    """Like ChangeReader, for all versions and deletes within the retention time."""

    def _kept(self, view: View, after_lsn: int, last_lsn: int) -> Iterator[tuple[int, list[Changed], int, int]]:
        since_lsn = versions.since(view, self.partition.versions_number)
        if since_lsn is None or after_lsn < since_lsn:
            raise bad_request(
                "You must read the change feed from within the retention period. That of all versions and deletes "
                f"goes back to {since_lsn}, behind the position {after_lsn}: what was done between is older than the "
                "retentionDuration of the container's changeFeedPolicy, or was done before it had one. Start again "
                "from now."
            )
        is_wanted = None if self._is_whole else self._is_in_stretch
        for lsn, done in versions.transactions(view, after_lsn, last_lsn, is_wanted):
            kept = [Changed(lsn, each.current or each.previous or b"", each) for each in done]
            yield lsn, kept, len(done), sum([each.size_bytes for each in done])

    def _is_in_stretch(self, entry: versions.Entry) -> bool:
        return self.low <= entry.epk < self.high
