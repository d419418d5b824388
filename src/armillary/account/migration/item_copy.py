"""Bringing the items of one container into another with another key: all that there are at some moment, then every
change since, in order, deletes included. Items keep their text and their times; rids and etags are the new container's.

Its writes are not charged. The stages, and when the other container takes over, are `migration.py`'s part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from armillary import limits
from armillary.account.changes.feed_positions import Stretch
from armillary.account.container import Container
from armillary.account.migration.item_filter import Chooses
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import documents, layout
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import ID, field_name
from armillary.model.encoding import FORMAT_JSON, payload_of, unpack_header
from armillary.model.items import strip_system_properties
from armillary.model.keys import Key, PartitionKeyDefinition
from armillary.model.ranges import KeyRange
from armillary.model.values import UNDEFINED
from armillary.partition.history.change_reading import IsDue, Room, VersionReader
from armillary.partition.history.retryable_write_records import stored_records
from armillary.partition.history.versions import Version
from armillary.partition.operations import Document, Draft, Operation, Verb, bson_draft, draft
from armillary.partition.upkeep.background_throttle import Throttle, portions
from armillary.partition.writing.fenced_items import unfenced_kind
from armillary.partition.writing.writer import Writer
from armillary.storage.engine import Kept

_PORTION = 32  # items in one transaction: other writers wait for it
_CHANGES = 500  # that are looked at together
_CHANGE_BYTES = 4 * 1024 * 1024
_SUM_BYTES = 16
_SYSTEM = b',"_rid":"'  # what stands behind an item's own text


class Pinned(NamedTuple):
    """A partition as it was at a moment."""

    range: KeyRange
    view: Kept

    def items(self) -> Iterator[bytes]:
        return (stored for _, stored in self.view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)))


class Sum(NamedTuple):
    """Of items, whatever their order: how many, and their digests added up."""

    items: int
    digest: int


async def pin(container: Container) -> list[Pinned]:
    """What is durable in each partition; they must be held, or held still, for these to belong together."""
    return [Pinned(each.range, await each.store.pin()) for each in container.partitions.values()]


def release(pinned: Iterable[Pinned]) -> None:
    for each in pinned:
        each.view.release()


class Copier:
    def __init__(self, source: Container, target: Container, clock: Clock, chooses: Chooses | None = None) -> None:
        """`chooses`: the items to bring over; None: all."""
        self._source = source
        self._chooses = chooses or (lambda stored: True)
        self._target = target
        self._clock = clock
        self._throttle = Throttle(clock, lambda: 1)
        self.examined = 0  # items of the source
        self.copied = 0
        self.followed = 0
        self.removed = 0

    # All that there is.

    async def reconcile(self, pinned: Sequence[Pinned]) -> None:
        """Take out of the target what an earlier attempt left there and the source no longer has, or has otherwise."""
        held = await pin(self._target)
        try:
            for stored in (stored for each in held for stored in each.items()):
                document = self._document(stored)
                source_key = self._key(self._source, stored, document)
                found = _find(pinned, self._source.effective_key(source_key), documents.item_id(stored))
                if found is None or _own(found) != _own(stored) or not self._chooses(found):
                    await self._write([self._removal(stored)])
                await self._throttle.rest()
        finally:
            release(held)

    async def copy(self, pinned: Sequence[Pinned], *, is_resumed: bool) -> None:
        for each in pinned:
            for portion in portions(each.items(), _PORTION):
                chosen = [stored for stored in portion if self._chooses(stored)]
                arrivals = [(stored, self._arrival(stored)) for stored in chosen]
                if is_resumed:
                    arrivals = [each for each in arrivals if not await self._has(*each)]
                await self._write([operation for _, operation in arrivals])
                self.examined += len(portion)
                self.copied += len(chosen)
                await self._throttle.rest()

    async def _has(self, stored: bytes, operation: Operation) -> bool:
        found = await self._target.partition_for(operation.epk).read_item(operation.epk, operation.item_id)
        return found is not None and _own(found) == _own(stored)

    # Every change since.

    async def follow(self, position: Sequence[Stretch]) -> tuple[tuple[Stretch, ...], int]:
        """Do what was done to the source, up to where it is now. Where that leads to, and how many changes it took."""
        reached: list[Stretch] = []
        count = 0
        for stretch in position:
            for key_range in self._source.map.overlapping(stretch.low, stretch.high):
                partition = self._source.partitions[key_range.id]
                low, high = max(stretch.low, key_range.low), min(stretch.high, key_range.high)
                reader = VersionReader(partition, low, high, stretch.lsn)
                is_end = False
                while not is_end:
                    step = await reader.read(Room(_CHANGES, _CHANGE_BYTES, True), self._is_slice_over())
                    changes = [each.version for each in step.items if each.version is not None]
                    for first in range(0, len(changes), _PORTION):
                        portion = changes[first : first + _PORTION]
                        await self._write([operation for each in portion for operation in self._operations(each)])
                        await self._throttle.rest()
                    count += len(changes)
                    self.followed += len(changes)
                    is_end = step.is_end
                reached.append(Stretch(low, high, reader.lsn))
        return tuple(reached), count

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
        found = [pair for each in self._source.partitions.values() for pair in await each.store.read(stored_records)]
        for partition in self._target.partitions.values() if found else ():
            await partition.adopt_records(found)

    async def _write(self, operations: Sequence[Operation], container: Container | None = None) -> None:
        """Apply operations in the partitions of the target, or of another container, that own their keys, in this
        order for each key."""
        owner, waiting = container or self._target, list(operations)
        kind = unfenced_kind(owner.schema)
        while waiting:
            groups: dict[int, list[Operation]] = {}
            for operation in waiting:
                groups.setdefault(owner.map.find(operation.epk).id, []).append(operation)
            waiting = []
            for range_id, group in groups.items():
                partition = owner.partitions[range_id]
                try:
                    await partition.transact(lambda _, writer, group=group: _apply(writer, group), kind)  # type: ignore[misc]
                except Failure as failure:
                    if failure.kind is not Kind.RANGE_BUSY:
                        raise
                    waiting += group
                    await partition.released()

    # Removing what was moved.

    async def remove(self, pinned: Sequence[Pinned]) -> None:
        """Delete the chosen items from the source, which refuses to write them. Not those that are gone already."""
        for each in pinned:
            for portion in portions(each.items(), _PORTION):
                chosen = [stored for stored in portion if self._chooses(stored)]
                await self._write([self._departure(stored) for stored in chosen], self._source)
                self.removed += len(chosen)
                await self._throttle.rest()

    def _departure(self, stored: bytes) -> Operation:
        key = self._key(self._source, stored, self._document(stored))
        return Operation(Verb.DELETE, unpack_header(stored).epk, key, documents.item_id(stored), is_any=True)

    # Comparing.

    async def sum(self, container: Container, pinned: Sequence[Pinned], now_s: float) -> Sum:
        count = digest = 0
        for each in pinned:
            for stored in each.items():
                is_live = container.schema.is_live(unpack_header(stored), now_s)
                if is_live and (container is self._target or self._chooses(stored)):
                    count += 1
                    digest += int.from_bytes(blake2b(_own(stored), digest_size=_SUM_BYTES).digest(), "big")
                if not count % _PORTION:
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


def _apply(writer: Writer, operations: Sequence[Operation]) -> None:
    for operation in operations:
        try:
            writer.apply(operation)
        except Failure as failure:
            # The delete of an item that was never copied.
            if operation.verb is not Verb.DELETE or failure.kind is not Kind.NOT_FOUND:
                raise Failure(
                    failure.kind, f"The item '{operation.item_id}' cannot be brought over: {failure.message}"
                ) from None


def _find(pinned: Sequence[Pinned], epk: bytes, item_id: str) -> bytes | None:
    for each in pinned:
        if each.range.low <= epk < each.range.high:
            number = each.view.get(layout.id_key(epk, item_id))
            return each.view.get(layout.ITEMS + number) if number is not None else None
    return None


def _own(stored: bytes) -> bytes:
    """What an item is, wherever it is: its format, its time and its text."""
    ts = unpack_header(stored).ts.to_bytes(8, "big")
    if stored[0] != FORMAT_JSON:
        return stored[:1] + ts + documents.bson_bytes(stored)
    payload = payload_of(stored)
    return stored[:1] + ts + payload[: payload.rindex(_SYSTEM)]
