"""Work that a partition does by itself: sweeping expired items, forgetting old tombstones, carrying a change of rules
through the stored items, and looking which paths all items have. Each piece is small, resumable and goes through the
one write path.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from armillary import limits
from armillary.model import documents, layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.keys import NO_KEY
from armillary.partition import events, log, versions
from armillary.partition.operations import MemberFailed, Operation, Verb
from armillary.partition.partition import Partition
from armillary.partition.presence import Presence, paths_of
from armillary.partition.records import expired_keys
from armillary.partition.schema import Schema
from armillary.storage.engine import View


async def sweep_expired(partition: Partition, now_s: float) -> int:
    """Delete up to one batch of items whose time is over. Returns how many were deleted."""

    def due(view: View) -> list[tuple[bytes, str]]:
        found = []
        entries = view.scan(layout.EXPIRY, layout.expiry_key(int(now_s) + 1, 0))
        for key, _ in islice(entries, limits.SWEEP_ITEMS_MAX):
            stored = view.get(layout.ITEMS + key[-layout.RID_BYTES :])
            if stored is not None:
                found.append((unpack_header(stored).epk, documents.item_id(stored)))
        return found

    deleted = 0
    for epk, item_id in await partition.read(due):
        try:
            await partition.write_all([Operation(Verb.DELETE, epk, NO_KEY, item_id, is_expiry=True)])
            deleted += 1
        except MemberFailed:
            continue  # written again or deleted meanwhile, or given more time by new rules
    return deleted


async def forget_tombstones(partition: Partition, from_key: bytes, now_s: float) -> bytes:
    """Drop the tombstones in the next stretch of the log that no client may ask for any more. Returns where to go on,
    which may be inside a transaction; live items' entries stay, so a stretch is passed over only once per run of the
    server."""
    oldest_s = now_s - limits.TOMBSTONE_SECONDS

    def stretch(view: View) -> tuple[list[bytes], bytes]:
        old, next_key, count = [], from_key, 0
        entries = view.scan(max(from_key, layout.CHANGES), layout.space_end(layout.CHANGES))
        for key, value in islice(entries, limits.SWEEP_ITEMS_MAX):
            change = log.unpack_change(key, value)
            if change.kind != log.ITEM_WRITTEN:
                if change.deleted_s >= oldest_s:
                    break
                old.append(key)
            next_key, count = key + b"\x00", count + 1
        else:
            if count < limits.SWEEP_ITEMS_MAX:
                next_key = layout.change_key(partition.lsn_in(view) + 1)  # there is no more
        return old, next_key

    old, next_key = await partition.read(stretch)
    if old:
        await partition.forget(old)
    return next_key


async def forget_records(partition: Partition, now_s: float) -> None:
    """Drop what was answered to writes of sessions that have ended."""
    is_any = partition.records.expire(now_s)
    while is_any:
        keys = await partition.read(lambda view: list(islice(expired_keys(view, now_s), limits.SWEEP_ITEMS_MAX)))
        if keys:
            await partition.forget(keys)
        is_any = len(keys) == limits.SWEEP_ITEMS_MAX


async def forget_events(partition: Partition, now_s: float) -> None:
    """Drop what was noted for change streams beyond what is kept, when much was noted."""
    if partition.events_noted < limits.MONGO_EVENTS_LOOK:
        return
    partition.events_noted = 0
    keys, last_lsn = await partition.read(lambda view: events.too_many(view, now_s))
    if keys:
        await partition.forget_events(keys, last_lsn)


async def forget_versions(partition: Partition, schema: Schema, now_s: float) -> None:
    """Begin or end the keeping of all versions where that is still to be done, and drop those that are too old."""
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


async def apply_rules(partition: Partition, schema: Schema) -> None:
    """Bring every item under the present rules, batch by batch, while reads and writes go on."""
    rules_number = schema.rules.number
    partition.restated_count = 0
    after = 0
    while schema.rules.number == rules_number:

        def batch(view: View, low: int = after) -> list[int]:
            entries = view.scan(layout.item_key(low), layout.space_end(layout.ITEMS))
            return [int.from_bytes(key[1:], "big") for key, _ in islice(entries, limits.RESTATE_ITEMS)]

        numbers = await partition.read(batch)
        if not numbers:
            await partition.confirm_rules(rules_number)
            return
        await partition.restate(numbers)
        after = numbers[-1] + 1


class Look:
    """A look at all items of a partition for the paths that every one has a term under, some items at a time."""

    def __init__(self, partition: Partition, schema: Schema, begun: Presence) -> None:
        self._partition = partition
        self._schema = schema
        self._begun = begun
        self._next_number = 0
        self._found: frozenset[str] | None = None

    @classmethod
    async def begin(cls, partition: Partition, schema: Schema) -> Look | None:
        """None: not while new rules work through the items."""
        begun = await partition.begin_look()
        return cls(partition, schema, begun) if begun is not None else None

    async def go_on(self, items_max: int) -> bool:
        """Look at some more items; whether that was all."""
        for _ in range(0, items_max, limits.RESTATE_ITEMS):
            if not await self._partition.read(self._batch):
                await self._partition.end_look(self._begun, self._found)
                return True
            await asyncio.sleep(0)
        return False

    def _batch(self, view: View) -> bool:
        entries = view.scan(layout.item_key(self._next_number), layout.space_end(layout.ITEMS))
        number = None
        for key, stored in islice(entries, limits.RESTATE_ITEMS):
            number = int.from_bytes(key[1:], "big")
            header = unpack_header(stored)
            terms = documents.item_terms(self._schema.rules_of(header).indexing, header, payload_of(stored)).terms
            self._found = paths_of(terms) if self._found is None else self._found.intersection(dict(terms))
            if not self._found:
                return False  # no path is everywhere: the rest need not be looked at
        if number is None:
            return False
        self._next_number = number + 1
        return True
