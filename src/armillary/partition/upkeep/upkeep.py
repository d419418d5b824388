"""Background work of a partition: garbage collection of tombstones, records, events and versions, and scanning for
path coverage. Each piece is small, resumable and uses the one write path; `account/upkeep_rounds.py` schedules them.
The TTL sweep is in `ttl_sweep.py`, applying a change of rules in `rules_change.py`.
"""

from __future__ import annotations

from itertools import islice

from armillary import limits
from armillary.model import documents, layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.partition.history import change_stream_events, log, versions
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.partition.upkeep.background_throttle import Slice
from armillary.partition.writing.path_coverage import PathCoverage, paths_of
from armillary.storage.engine import View

_LOOK_EVERY = 16  # entries of the log between two looks at the clock


async def forget_tombstones(partition: Partition, from_key: bytes, now_s: float) -> bytes:
    """Drop the tombstones in the next stretch of the log that are older than their retention time. Returns the key to
    continue from, which may be inside a transaction. Entries of existing items stay, so each stretch is scanned only
    once per run of the server, and not at all if nothing was deleted since the end of the log was reached."""
    if not partition.marks.may_have_tombstones:
        return layout.change_key(partition.lsn + 1)
    oldest_s = now_s - limits.TOMBSTONE_SECONDS

    def stretch(view: View) -> tuple[list[bytes], bytes, int]:
        slice_ = Slice(partition.clock)
        old, next_key, count, end_lsn = [], from_key, 0, -1
        entries = view.scan(max(from_key, layout.CHANGES), layout.space_end(layout.CHANGES))
        for key, value in islice(entries, limits.SWEEP_ITEMS_MAX):
            if value != log.WRITTEN:  # nearly all are, and each is examined once
                if log.unpack_change(key, value).deleted_s >= oldest_s:
                    break
                old.append(key)
            next_key, count = key + b"\x00", count + 1
            if count % _LOOK_EVERY == 0 and not slice_.takes(_LOOK_EVERY * (len(key) + len(value))):
                break
        else:
            if count < limits.SWEEP_ITEMS_MAX:
                end_lsn = partition.lsn_in(view)
                next_key = layout.change_key(end_lsn + 1)  # the end of the log
        return old, next_key, end_lsn

    old, next_key, end_lsn = await partition.read(stretch)
    if old:
        await partition.forget(old)
    partition.marks.note_thinned(end_lsn)
    return next_key


async def forget_records(partition: Partition, now_s: float) -> None:
    """Drop the records of retryable writes of sessions that have ended."""
    while keys := partition.records.ended_keys(now_s, limits.SWEEP_ITEMS_MAX):
        await partition.forget(keys)


async def forget_events(partition: Partition, now_s: float) -> None:
    """Drop change stream events beyond the limits, if many were noted since the last time."""
    if partition.events_noted < limits.MONGO_EVENTS_LOOK:
        return
    partition.events_noted = 0
    last_key = await partition.evaluate(lambda view: change_stream_events.last_too_many(view, now_s))
    if last_key is not None:
        await partition.forget_events(last_key)


async def forget_versions(partition: Partition, schema: Schema, now_s: float) -> None:
    """Start or stop keeping versions if that is pending, and drop those past the retention time."""
    number = schema.versions_number
    if number != partition.versions_number:
        await partition.keep_versions()
    if not number:
        return
    oldest_s, most = now_s - schema.versions_seconds, limits.FORGET_VERSIONS_MAX
    while True:
        old = await partition.read(lambda view: versions.too_old(view, number, oldest_s, most))
        if old:
            await partition.forget_versions(old)
        if len(old) < most:
            return


class CoverageScan:
    """A scan of all items for the paths that every one has a term under, some items at a time."""

    def __init__(self, partition: Partition, schema: Schema, begun: PathCoverage) -> None:
        self._partition = partition
        self._schema = schema
        self._begun = begun
        self._next_number = 0
        self._found: frozenset[str] | None = None

    @classmethod
    async def begin(cls, partition: Partition, schema: Schema) -> CoverageScan | None:
        """None: a rules change is under way."""
        begun = await partition.begin_coverage_scan()
        return cls(partition, schema, begun) if begun is not None else None

    async def go_on(self) -> bool:
        """Scan some more items; whether that was all."""
        if self._partition.is_moved:
            return True  # its items are stored elsewhere now, and changes of policy no longer reach those here
        if await self._partition.evaluate(self._batch):
            return False
        await self._partition.end_coverage_scan(self._begun, self._found)
        return True

    def _batch(self, view: View) -> bool:
        entries = view.scan(layout.item_key(self._next_number), layout.space_end(layout.ITEMS))
        slice_ = Slice(self._partition.clock)
        # As it is with this snapshot: a change of policy may end, and forget older rules, while the scan has given way.
        schema = self._schema.as_it_is()
        number = None
        for key, stored in islice(entries, limits.RESTATE_ITEMS):
            number = int.from_bytes(key[1:], "big")
            header = unpack_header(stored)
            terms = documents.item_terms(schema.rules_of(header).indexing, header, payload_of(stored)).terms
            self._found = paths_of(terms) if self._found is None else self._found.intersection(dict(terms))
            if not self._found:
                return False  # no path is in all items: the rest need not be scanned
            if not slice_.takes(len(stored)):
                break
        if number is None:
            return False
        self._next_number = number + 1
        return True
