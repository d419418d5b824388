"""Bringing the items of one container into another with another key: all that there are at some moment, then every
change since, in order, deletes included. Items keep their text and their times; rids and etags are the new container's.

Its writes are not charged. The stages, and when the other container takes over, are `migration.py`'s part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.changes.changes_elsewhere import ChangesElsewhere
from armillary.account.changes.feed_positions import Stretch
from armillary.account.container import Container
from armillary.account.migration.copy_visits import ReadRecords, ReadStored, TakeOverRecords, WriteCopies
from armillary.account.migration.item_filter import Chooses
from armillary.account.migration.pinned_partitions import PinnedPartitions
from armillary.account.visits.page_walk import Moved
from armillary.account.visits.uncounted_visits import at_all
from armillary.account.visits.visits import run_uncounted, run_uncounted_at
from armillary.errors import Failure, Kind
from armillary.model import documents
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import ID, field_name
from armillary.model.encoding import FORMAT_JSON, payload_of, unpack_header
from armillary.model.items import strip_system_properties
from armillary.model.keys import Key, PartitionKeyDefinition
from armillary.model.ranges import KeyRange
from armillary.model.values import UNDEFINED
from armillary.partition.history.change_reading import ChangeReader, IsDue, Room, VersionReader
from armillary.partition.history.versions import Version
from armillary.partition.operations import Document, Draft, Operation, Verb, bson_draft, draft
from armillary.partition.upkeep.background_throttle import Throttle

_PORTION = 32  # items in one transaction: other writers wait for it
_CHANGES = 500  # that are looked at together
_CHANGE_BYTES = 4 * 1024 * 1024
_SUM_BYTES = 16
_SYSTEM = b',"_rid":"'  # what stands behind an item's own text


class Sum(NamedTuple):
    """Of items, whatever their order: how many, and their digests added up."""

    items: int
    digest: int


class Copier:
    def __init__(self, account: Account, source: Container, target: Container, chooses: Chooses | None = None) -> None:
        """`chooses`: the items to bring over; None: all."""
        self._account = account
        self._source = source
        self._chooses = chooses or (lambda stored: True)
        self._target = target
        self._clock = account.clock
        self._throttle = Throttle(account.clock, lambda: 1)
        self.examined = 0  # items of the source
        self.copied = 0
        self.followed = 0
        self.removed = 0

    # All that there is.

    async def reconcile(self, pinned: PinnedPartitions) -> None:
        """Take out of the target what an earlier attempt left there and the source no longer has, or has otherwise."""
        held = await PinnedPartitions.pin(self._account, self._target)
        try:
            async for portion in held.items(_PORTION):
                for stored in portion:
                    source_key = self._key(self._source, stored, self._document(stored))
                    found = await pinned.find(self._source.effective_key(source_key), documents.item_id(stored))
                    if found is None or _own(found) != _own(stored) or not self._chooses(found):
                        await self._write([self._removal(stored)])
                await self._throttle.rest()
        finally:
            held.release()

    async def copy(self, pinned: PinnedPartitions, *, is_resumed: bool) -> None:
        self.examined = self.copied = 0  # it may have been begun before
        async for portion in pinned.items(_PORTION):
            chosen = [stored for stored in portion if self._chooses(stored)]
            arrivals = [(stored, self._arrival(stored)) for stored in chosen]
            if is_resumed:
                arrivals = [each for each in arrivals if not await self._has(*each)]
            await self._write([operation for _, operation in arrivals])
            self.examined += len(portion)
            self.copied += len(chosen)
            await self._throttle.rest()

    async def _has(self, stored: bytes, operation: Operation) -> bool:
        found = await run_uncounted(self._target, ReadStored(operation.epk, operation.item_id))
        return found.stored is not None and _own(found.stored) == _own(stored)

    # Every change since.

    async def follow(self, position: Sequence[Stretch]) -> tuple[tuple[Stretch, ...], int]:
        """Do what was done to the source, up to where it is now. Where that leads to, and how many changes it took."""
        reached: list[Stretch] = []
        count = 0
        waiting = list(reversed(position))
        while waiting:
            stretch = waiting.pop()
            key_range = self._source.map.find(stretch.low)
            if key_range.high < stretch.high:  # it was split since
                waiting.append(stretch._replace(low=key_range.high))
                stretch = stretch._replace(high=key_range.high)
            reader = self._reader(key_range, stretch)
            is_end = False
            while not is_end:
                try:
                    step = await reader.read(Room(_CHANGES, _CHANGE_BYTES, True), self._is_slice_over())
                except Moved:
                    waiting.append(stretch._replace(lsn=reader.lsn))
                    break
                changes = [each.version for each in step.items if each.version is not None]
                for first in range(0, len(changes), _PORTION):
                    portion = changes[first : first + _PORTION]
                    await self._write([operation for each in portion for operation in self._operations(each)])
                    await self._throttle.rest()
                count += len(changes)
                self.followed += len(changes)
                is_end = step.is_end
            if is_end:
                reached.append(stretch._replace(lsn=reader.lsn))
        return tuple(reached), count

    def _reader(self, key_range: KeyRange, stretch: Stretch) -> ChangeReader:
        partition = self._source.partitions[key_range.id]
        place = stretch.low, stretch.high, stretch.lsn
        if partition.is_elsewhere:
            return ChangesElsewhere(self._source, partition, *place, None, None, has_versions=True)
        return VersionReader(partition, *place)

    def _is_slice_over(self) -> IsDue:
        end_s = self._clock.elapsed_s() + limits.SLICE_SECONDS
        return lambda: self._clock.elapsed_s() > end_s

    def _operations(self, version: Version) -> Iterator[Operation]:
        """An item that comes to be chosen arrives as a new one does; one that ceases to be is removed as a deleted
        one."""
        current = previous = None
        if version.current is not None and self._chooses(version.current):
            current = self._arrival(version.current)
        if version.previous is not None and self._chooses(version.previous):
            previous = version.previous
        if previous is not None:
            removal = self._removal(previous)
            if current is None or (removal.epk, removal.item_id) != (current.epk, current.item_id):
                yield removal
        if current is not None:
            yield current

    # Items of the one container as those of the other.

    def _document(self, stored: bytes) -> Document:
        if stored[0] == FORMAT_JSON:
            return strip_system_properties(orjson.loads(payload_of(stored)))
        return documents.bson_document(stored)

    @staticmethod
    def _key(container: Container, stored: bytes, document: Document) -> Key:
        return container.key_of(document) if stored[0] == FORMAT_JSON else container.key_of_bson(document)

    def _arrival(self, stored: bytes) -> Operation:
        document, ts, schema = self._document(stored), unpack_header(stored).ts, self._target.schema
        made: Draft
        if stored[0] == FORMAT_JSON:
            made = draft(schema, document, ts)
        else:
            made = bson_draft(schema, document, documents.bson_bytes(stored), ts)
        key = self._key(self._target, stored, document)
        if stored[0] != FORMAT_JSON and self._target.is_collection and self._target.key is not None:
            _check_shard_key(self._target.key, document)
        return Operation(Verb.UPSERT, self._target.effective_key(key), key, made.item_id, draft=made)

    def _removal(self, stored: bytes) -> Operation:
        key = self._key(self._target, stored, self._document(stored))
        epk, item_id = self._target.effective_key(key), documents.item_id(stored)
        return Operation(Verb.DELETE, epk, key, item_id, is_any=True)

    async def carry_records(self) -> None:
        """Copy the recorded answers of retryable writes. They are not kept by key, so every partition gets all of
        them."""
        found = [pair for each in await at_all(self._source, ReadRecords()) for pair in each.pairs]
        if found:
            await at_all(self._target, TakeOverRecords(found))

    async def _write(self, operations: Sequence[Operation], container: Container | None = None) -> None:
        """Apply operations in the partitions of the target, or of another container, that own their keys, in this
        order for each key."""
        owner, waiting = container or self._target, list(operations)
        while waiting:
            groups: dict[int, list[Operation]] = {}
            for operation in waiting:
                groups.setdefault(owner.map.find(operation.epk).id, []).append(operation)
            waiting = []
            for range_id, group in groups.items():
                partition = owner.partitions.get(range_id)  # None: it was split or merged while others were written to
                if partition is None or await run_uncounted_at(owner, partition, WriteCopies(group)) is None:
                    waiting += group
                    if partition is not None:
                        await partition.released()

    # Removing what was moved.

    async def remove(self, pinned: PinnedPartitions) -> None:
        """Delete the chosen items from the source, which refuses to write them. Not those that are gone already."""
        async for portion in pinned.items(_PORTION):
            chosen = [stored for stored in portion if self._chooses(stored)]
            await self._write([self._departure(stored) for stored in chosen], self._source)
            self.removed += len(chosen)
            await self._throttle.rest()

    def _departure(self, stored: bytes) -> Operation:
        key = self._key(self._source, stored, self._document(stored))
        return Operation(Verb.DELETE, unpack_header(stored).epk, key, documents.item_id(stored), is_any=True)

    # Comparing.

    async def sum(self, container: Container, pinned: PinnedPartitions, now_s: float) -> Sum:
        count = digest = 0
        async for portion in pinned.items(_PORTION):
            for stored in portion:
                is_live = container.schema.is_live(unpack_header(stored), now_s)
                if is_live and (container is self._target or self._chooses(stored)):
                    count += 1
                    digest += int.from_bytes(blake2b(_own(stored), digest_size=_SUM_BYTES).digest(), "big")
            await self._throttle.rest()
        return Sum(count, digest % (1 << 8 * _SUM_BYTES))


def _check_shard_key(definition: PartitionKeyDefinition, document: Document) -> None:
    """As for documents that are inserted: all of the shard key is there, and no arrays are in it."""
    for steps in definition.steps:
        value: Any = document
        for name in (field_name(steps[0]) or ID, *steps[1:]):
            value = value.get(name, UNDEFINED) if type(value) is dict else UNDEFINED
        if value is UNDEFINED or type(value) is list:
            what = "an array" if type(value) is list else "nothing"
            raise Failure(
                Kind.CONFLICT,
                f"The document with the _id {id_text(document[ID])} has {what} where the shard key is to be: "
                f"/{'/'.join(steps)}.",
            )


def _own(stored: bytes) -> bytes:
    """What an item is, wherever it is: its format, its time and its text."""
    ts = unpack_header(stored).ts.to_bytes(8, "big")
    if stored[0] != FORMAT_JSON:
        return stored[:1] + ts + documents.bson_bytes(stored)
    payload = payload_of(stored)
    return stored[:1] + ts + payload[: payload.rindex(_SYSTEM)]
