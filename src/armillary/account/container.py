"""An open container: its record, the parsed policies, the map of its partitions, and the partitions themselves.

Built from the catalog's record when the account opens or the container is created or replaced. Routing a key or a
scope to partitions is here; what is done there is in `account/items/items.py` and `account/queries/item_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from weakref import WeakSet

from armillary.account.captures.recorder import Recording
from armillary.account.catalog.allocation import NewStore
from armillary.account.catalog.container_rules import older_rules, present_rules
from armillary.account.catalog.container_state import ContainerState
from armillary.account.catalog.records import Record
from armillary.account.events import Events
from armillary.account.faults import Faults
from armillary.account.migration.item_filter import fence_of
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.languages.sql.library.context import Context
from armillary.model.documents import json_form, key_of_bson
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.keys import NO_KEY, SPACE_HIGH, SPACE_LOW, Key, PartitionKeyDefinition
from armillary.model.policies import ContainerPolicies
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.model.values import UNDEFINED
from armillary.partition.meter import Meter, Totals
from armillary.partition.partition import Partition
from armillary.partition.schema import Cap, Schema
from armillary.storage.engine import Engine

# Makes the stand-in for a partition that another process holds, or one that another may come to hold; None: this
# process holds it for good.
StandIns = Callable[["Container", KeyRange], Partition | None]


class Container:
    def __init__(
        self,
        record: Record,
        database: Record,
        engine: Engine,
        clock: Clock,
        logical_bytes_max: int,
        stand_ins: StandIns | None = None,
    ) -> None:
        body = record.body
        key = PartitionKeyDefinition.parse(body["partitionKey"]) if "partitionKey" in body else None
        if key is not None and record.container_state.collection is not None:
            key = replace(key, takes_objects=True)
        self.record = record
        self.database = database
        self.policies = ContainerPolicies.parse(body)
        self.key = key
        self.schema = Schema(
            rid=record.rid,
            self_link=record.self_link,
            key=key,
            unique=UniqueKeyPolicy.parse(body.get("uniqueKeyPolicy")),
            rules=present_rules(record, key),
            older_rules=older_rules(record, key),
            logical_partition_bytes_max=logical_bytes_max,
            keeps_events=record.container_state.is_watched,
        )
        self.clock = clock
        self.adopt_kept()
        self._adopt_versions()
        self.adopt_moved()
        self.form = json_form(self.schema)  # of its items, to the doors that read JSON
        self.map = PartitionMap(record.container_state.ranges)
        self._engine = engine
        self._stand_ins = stand_ins
        self.partitions = {each.id: self.new_partition(each) for each in self.map.ranges}
        self.faults: Faults | None = None  # None, unless there are rules of faults
        self.recording: Recording | None = None  # None, unless its requests are captured
        self.is_observed = False  # by either of these: what the fast path of reads tests
        self.events: Events | None = None  # of its account, once it serves
        self.is_retired = False  # it was deleted
        self.epks: dict[bytes, bytes] = {}  # effective keys by the header that gives the key; a cache of point reads
        self.epks_of_texts: dict[str, bytes] = {}  # those of texts in a shard key of one field, likewise
        self.are_events_begun = False  # all partitions are known to keep what change streams read
        self.failed_builds: dict[str, Failure] = {}  # unique indexes that documents violate, by name
        self.reshaped_for = ""  # the reason of the last split or merge
        self.on_left: Callable[[Meter], None] | None = None  # called with a meter whose figures are final
        # Of partitions that were split or merged away since the start and may be read.
        self._left: dict[Meter, int] = {}
        self._left_totals = Totals()  # of those that are gone
        self._replaced: WeakSet[Partition] = WeakSet()  # that may still be read
        self._rename()

    def _rename(self) -> None:
        self.name = self.record.name
        self.rid_text = self.record.rid_text
        self.link = f"dbs/{self.database.name}/colls/{self.record.name}"

    @property
    def state(self) -> ContainerState:
        """What the catalog keeps of it that clients do not see."""
        return self.record.container_state

    @property
    def is_collection(self) -> bool:
        """Whether it was made by the MongoDB protocol."""
        return self.state.collection is not None

    async def open(self) -> None:
        """Read what its partitions keep in memory, and write nothing."""
        for partition in self.partitions.values():
            await partition.open()

    async def keep_versions(self) -> None:
        """Partitions begin to keep all versions, or cease to."""
        for partition in self.partitions.values():
            try:
                await partition.keep_versions()
            except Failure:
                continue  # it is being split, or the disk is full: upkeep comes again

    def retire(self, reason: Failure | None = None) -> None:
        """Refuse all further writes: the container was deleted, or there is a `reason`. Requests that hold it must not
        write into its stores."""
        self.is_retired = True
        for partition in self.partitions.values():
            partition.close(reason)

    def end(self, reason: Failure) -> None:
        """Refuse reads and writes: the account was closed, and this object no longer follows what is stored."""
        self.is_retired = True
        for partition in (*self.partitions.values(), *self._replaced):
            partition.end(reason)

    def observe(self, faults: Faults | None, recording: Recording | None) -> None:
        """Have rules of faults and captures see its requests from now on."""
        self.faults, self.recording = faults, recording
        self.is_observed = faults is not None or recording is not None

    def adopt_database(self, record: Record) -> None:
        self.database = record
        self._rename()

    def adopt(self, record: Record) -> None:
        """Take over a replaced record: policies may have changed, the key and the partitions have not."""
        self.record = record
        self.policies = ContainerPolicies.parse(record.body)
        self.schema.older_rules = older_rules(record, self.key)
        self.schema.rules = present_rules(record, self.key)
        self.schema.keeps_events = self.state.is_watched
        self.adopt_kept()
        self._adopt_versions()
        self.adopt_moved()
        self._rename()

    def _adopt_versions(self) -> None:
        minutes = self.policies.change_feed_minutes or 0
        self.schema.versions_number = self.state.versions_number if minutes else 0
        self.schema.versions_seconds = 60 * minutes

    def adopt_kept(self) -> None:
        """Take over the options of a MongoDB collection that partitions must know."""
        collection = self.state.collection
        self.schema.keeps_images = collection is not None and collection.keeps_images
        self.schema.cap = Cap(*collection.cap) if collection is not None and collection.cap is not None else None

    def adopt_moved(self) -> None:
        """Refuse writes to items that were moved to containers of their own."""
        self.schema.fence = fence_of(self.state.moved, self.query_context())

    def query_context(self) -> Context:
        """What the functions of a query are told about time and about the container."""
        policies = self.policies
        is_planar = policies.geospatial == "Geometry"
        return Context(self.clock, full_text=policies.full_text, vectors=policies.vector, is_planar=is_planar)

    # Keys.

    def parse_key(self, given: str | bytes) -> Key:
        """A partition key as JSON: the list of its parts. For fixed containers every form of "none" is the one key."""
        if self.key is not None:
            return self.key.parse_header(given)
        text = given if isinstance(given, str) else given.decode("latin-1")
        if text.replace(" ", "") in ("[]", "[{}]", "[null]"):
            return NO_KEY
        raise Failure(
            Kind.KEY_MISMATCH,
            f"The container '{self.name}' has no partition key, but the request gives one. Leave it out.",
        )

    def key_of(self, document: Mapping[str, Any]) -> Key:
        return self.key.extract(document) if self.key is not None else NO_KEY

    def key_of_bson(self, document: Mapping[str, Any]) -> Key:
        return key_of_bson(self.key, document) if self.key is not None else NO_KEY

    def is_former_key(self, key: Key, document: Mapping[str, Any]) -> bool:
        """Whether a key is the one that an item had before a migration to another partition key: clients may still send
        it."""
        former = self.state.former_key
        if former is None:
            return False
        if former.definition is None:
            return not key or key in (Key((UNDEFINED,)), Key((None,)))  # all forms of "none"
        return PartitionKeyDefinition.parse(former.definition).extract(document) == key

    def effective_key(self, key: Key) -> bytes:
        """Where a full key lies in the hash space."""
        definition = self.key
        if definition is None:
            return b""
        if len(key) != len(definition.paths):
            definition.check_full(key)
            return definition.stored_key(key)
        return definition.effective_key(key)

    def key_range(self, key: Key) -> tuple[bytes, bytes]:
        """The stretch of the hash space that a full key or a prefix of a hierarchical one covers."""
        if self.key is None:
            return SPACE_LOW, SPACE_HIGH
        if len(key) < len(self.key.paths) and not self.key.is_system:
            return self.key.prefix_range(key)
        epk = self.effective_key(key)
        return epk, epk + b"\x00"

    def stretch(
        self, key: Key | None, range_id: str | None, epk_range: tuple[bytes, bytes] | None
    ) -> tuple[bytes, bytes]:
        """The stretch of the hash space that a request is about: range id, EPK pair and key together."""
        low, high = SPACE_LOW, SPACE_HIGH
        if range_id is not None:
            key_range = self.partition_by_id(range_id).range
            low, high = key_range.low, key_range.high
        if epk_range is not None:
            low, high = max(low, epk_range[0]), min(high, epk_range[1])
        if key is not None:
            key_low, key_high = self.key_range(key)
            low, high = max(low, key_low), min(high, key_high)
        if self.key is not None and self.key.is_one_key(low, high):
            high = low + b"\x00"
        return low, high

    def one_key(self, low: bytes, high: bytes) -> bytes | None:
        """The one logical partition that a stretch is about, if it is about one."""
        if self.key is None:
            return b""
        return low if low and high == low + b"\x00" else None

    # Partitions.

    def new_partition(self, key_range: KeyRange) -> Partition:
        stand_in = self._stand_ins(self, key_range) if self._stand_ins is not None else None
        if stand_in is not None:
            return stand_in
        store = self._engine.store(key_range.store)
        return Partition(store, self.schema, key_range, self.clock, self.state.first_lsn)

    def take_over(self, new_map: PartitionMap, children: Sequence[Partition], reason: str = "") -> None:
        """Serve from the children of a split or merge. Reads of the parents that have begun may finish."""
        self.reshaped_for = reason
        parents = [partition for partition in self.partitions.values() if new_map.get(partition.range.id) is None]
        self._left |= {parent.meter: parent.range.id for parent in parents}
        self._replaced.update(parents)
        live = {each.id: self.partitions[each.id] for each in new_map.ranges if each.id in self.partitions}
        # New objects, so that iterations over the old ones go on undisturbed.
        self.partitions = live | {child.range.id: child for child in children}
        self.map = new_map

    def exchange(self, partition: Partition) -> None:
        """Have another object serve a range: the place of its store has another holder."""
        range_id = partition.range.id
        former = self.partitions[range_id]
        self._left[former.meter] = range_id
        self._replaced.add(former)
        self.partitions = self.partitions | {range_id: partition}
        self.forget(former.meter)

    @property
    def meters(self) -> list[Meter]:
        """Of all partitions that may be read, those that were split or merged away included."""
        return [*[partition.meter for partition in self.partitions.values()], *self._left]

    @property
    def left_meters(self) -> Mapping[Meter, int]:
        """Of partitions that were split or merged away and may still be read, with the ids of their ranges."""
        return self._left

    @property
    def left_totals(self) -> Totals:
        """What partitions have counted that were split or merged away since the start."""
        totals = self._left_totals
        for meter in self._left:
            totals = totals.plus(meter.totals)
        return totals

    def forget(self, meter: Meter) -> None:
        """A retired partition is not used any more: its figures are final."""
        if meter in self._left:
            del self._left[meter]
            self._left_totals = self._left_totals.plus(meter.totals)
            if self.on_left is not None:
                self.on_left(meter)

    @property
    def reached_lsn(self) -> int:
        """The highest lsn of any transaction that has run, acknowledged or not."""
        return max([partition.reached_lsn for partition in self.partitions.values()], default=0)

    @property
    def is_divided(self) -> bool:
        """Whether other processes hold some of its partitions."""
        return any(partition.is_elsewhere for partition in self.partitions.values())

    def partition_for(self, epk: bytes) -> Partition:
        return self.partitions[self.map.find(epk).id]

    def partition_by_id(self, range_id: str) -> Partition:
        try:
            return self.partitions[int(range_id)]
        except (ValueError, KeyError):
            raise Failure(
                Kind.RANGE_GONE,
                f"The partition key range '{range_id}' of container '{self.name}' does not exist (any more). "
                "Read the partition key ranges again.",
            ) from None

    def past_stretch(self, range_id: str) -> tuple[bytes, bytes] | None:
        """The keys of a range that was split or merged away; None: there was no such range, or too long ago."""
        for each in self.state.past:
            if str(each.id) == range_id:
                return each.low, each.high
        return None

    def has_lineage(self, range_id: str, low: bytes, high: bytes) -> bool:
        """Whether a range, or what it was split into or merged with, holds the keys of a stretch."""
        number = int(range_id) if range_id.isascii() and range_id.isdigit() else -1
        return all(number == each.id or number in each.parents for each in self.map.overlapping(low, high))

    @property
    def range_etag(self) -> str:
        """Changes when a partition splits or merges, and differs between containers and incarnations."""
        return f'"{self.record.rid.hex()}-{self._ranges_number}"'

    @property
    def _ranges_number(self) -> int:
        """Grows with each split and merge: their children have the highest ids. Of the map that is served, which a
        process switches later than it takes over the record that names the new ranges."""
        return 1 + max(each.id for each in self.map.ranges)

    def is_newer(self, etag: str | None) -> bool:
        """Whether an etag of this container's ranges was given by a node that knows newer ranges."""
        number = self._etag_number(etag)
        return number is not None and number > self._ranges_number

    def _etag_number(self, etag: str | None) -> int | None:
        prefix = f'"{self.record.rid.hex()}-'
        number = etag[len(prefix) : -1] if etag is not None and etag.startswith(prefix) else ""
        return int(number) if number.isascii() and number.isdigit() else None

    def ranges_since(self, etag: str | None) -> tuple[KeyRange, ...]:
        """The live ranges that are newer than an etag; all of them for one that is not this container's."""
        number = self._etag_number(etag)
        if number is None:
            return self.map.ranges
        return tuple(each for each in self.map.ranges if each.id >= number)

    @property
    def is_restating(self) -> bool:
        """Whether a change of policy is still working through the items: until then the index is not complete."""
        return bool(self.schema.older_rules)

    @property
    def restated_percent(self) -> int:
        if not self.is_restating:
            return 100
        total = sum(partition.head.item_count for partition in self.partitions.values())
        done = sum(partition.restated_count for partition in self.partitions.values())
        return min(99, 100 * done // total) if total else 99


def new_ranges(boundaries: list[bytes], new_store: NewStore, places: Sequence[int] = ()) -> tuple[KeyRange, ...]:
    """The ranges of a new container, ids counting from 0, each with a store of its own. `places`: the processes that
    hold them, in this order; the first one if it is empty."""
    edges = [SPACE_LOW, *boundaries, SPACE_HIGH]
    pairs = list(pairwise(edges))
    places = places or [0] * len(pairs)
    return tuple([KeyRange(number, *pairs[number], (), new_store(place)) for number, place in enumerate(places)])
