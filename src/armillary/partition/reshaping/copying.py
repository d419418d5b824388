"""Copying parents' stores to children: a snapshot, key space by key space and byte for byte, then the changes written
since. A split has one parent and two children, a merge two parents and one child; both use this code.

The copy is loaded as table files, so it costs neither write-ahead log nor compaction, and no item is parsed. It cannot
be resumed: after a crash it starts again. After it, each child is a complete partition at an lsn of its parent, and its
store says so; from there `catch_up` uses the one write path, in transactions that also move the position in the
parent's log, and can be resumed after any interruption. Holding the parents' writers and updating the catalog is left
to `account/reshaping`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.encoding import FIXED_HEADER_BYTES, epk_of
from armillary.model.ranges import KeyRange
from armillary.model.resources import first_item_rid
from armillary.partition.history import change_stream_events, log, versions
from armillary.partition.history.retryable_write_records import stored_records
from armillary.partition.partition import RULES_KEY, Partition
from armillary.partition.reshaping.item_moves import Adopter
from armillary.partition.schema import Schema
from armillary.partition.upkeep.background_throttle import portions
from armillary.partition.writing.path_coverage import COVERAGE_KEY, SETTLED, PathCoverage, trusted_coverage
from armillary.partition.writing.writer import PathPrefixes
from armillary.storage.engine import Kept, Loader, Store, Txn, View

Rest = Callable[[], Awaitable[None]]

_BY_KEY = (layout.IDS, layout.MEMBERS, layout.SIZES, layout.UNIQUE)  # spaces in the order of effective keys
_BY_RID = (layout.CHANGES, layout.EXPIRY)  # spaces whose keys end in the item's rid
_KEPT_VERSIONS = (layout.VERSIONS, layout.IMAGES)  # spaces whose entries contain their effective key
_REST = (layout.TERMS, layout.META, layout.RECORDS, layout.EVENTS)
COPIED_SPACES = (layout.ITEMS, *_BY_KEY, *_BY_RID, *_KEPT_VERSIONS, *_REST)
_PATHS = layout.path_key("")
_NO_OWNER = 255


class Overtaken(Exception):
    """The container's rules changed: the copy follows the old ones and must be made again. Never leaves
    `account/reshaping`."""


@dataclass(slots=True)
class Target:
    """A child being filled."""

    low: bytes
    high: bytes
    store: Store
    head: log.Head = field(default_factory=lambda: log.new_head(0, 0))
    paths: PathPrefixes = field(default_factory=dict)  # index path -> term key prefix, as far as remembered
    places: dict[int, bytes] = field(default_factory=dict)  # by parent: the first place in its log not applied yet
    stored_places: dict[int, bytes] = field(default_factory=dict)  # the same, as the last submitted write stores it
    version_places: dict[int, bytes] = field(default_factory=dict)  # by parent: the first version entry not applied yet


@dataclass(slots=True)
class Progress:
    items_total: int = 0
    items_copied: int = 0
    bytes_copied: int = 0
    changes_applied: int = 0


class Transfer:
    def __init__(self, sources: Sequence[Partition], targets: Sequence[Target], schema: Schema, clock: Clock) -> None:
        assert len(sources) == 1 or len(targets) == 1
        self.sources = sources
        self.targets = targets
        self.progress = Progress()
        self._schema = schema
        self.rules_number = -1  # the rules that all items of the children follow
        self._clock = clock
        self._lows = [target.low for target in targets]
        self._owners: dict[bytes, bytearray] = {}  # by the upper six bytes of rids: the child that owns each item

    # Copying.

    async def copy(self, rest: Rest) -> None:
        """Fill the children with what the parents hold now."""
        self.progress = Progress(items_total=sum(source.head.item_count for source in self.sources))
        self.rules_number = self._schema.rules.number
        kept: list[Kept] = []
        loaders: list[Loader] = []
        try:
            for source in self.sources:
                kept.append(await source.store.keep())
            loaders += [target.store.loader() for target in self.targets]
            for _ in self._copy_all(kept, loaders):
                await rest()
                for loader in loaders:
                    await loader.ready()
                self.check_rules()
            for loader in loaders:
                await loader.finish()
                await rest()
            for source in self.sources:
                await _settle(source.store)  # a kept snapshot may show writes that are not durable yet
            # Not by what is acknowledged now: a snapshot of an empty partition has no head, and its first write may
            # have come since.
            heads = [source.head_in(each) for each, source in zip(kept, self.sources, strict=True)]
            coverage = self._coverage(kept, heads)
            for target in self.targets:
                await self._found(target, heads, coverage)
        except BaseException:
            for loader in loaders:
                loader.abandon()
            raise
        finally:
            for each in kept:
                each.release()
            self._owners = {}

    def _copy_all(self, kept: Sequence[Kept], loaders: Sequence[Loader]) -> Iterator[None]:
        numbers: dict[str, int] = {}
        for each in kept:
            yield from self._copy_items(each, loaders)
            for space in _BY_RID:
                yield from self._copy_by_rid(each, space, loaders)
            for space in _BY_KEY:
                yield from self._copy_by_key(each, space, loaders)
            for space in _KEPT_VERSIONS:
                yield from self._copy_versions(each, space, loaders)
            if len(self.sources) == 1:
                yield from self._copy_alike(each, _PATHS, loaders)
                for target in self.targets:
                    target.head.next_path = log.load_head(each, 0, 0).next_path
                yield from self._copy_by_rid(each, layout.TERMS, loaders)
            else:
                yield from self._copy_terms(each, numbers, loaders[0])
        if numbers:
            loaders[0].put([(layout.path_key(path), numbers[path].to_bytes(4, "big")) for path in sorted(numbers)])
            self.targets[0].head.next_path = len(numbers) + 1

    def _copy_items(self, kept: Kept, loaders: Sequence[Loader]) -> Iterator[None]:
        progress, lows, owners = self.progress, self._lows, self._owners
        heads = [target.head for target in self.targets]
        is_divided = len(loaders) > 1
        low, high = self.targets[0].low, self.targets[-1].high
        for portion in _portions(kept.scan(layout.ITEMS, layout.space_end(layout.ITEMS))):
            parts: list[list[tuple[bytes, bytes]]] = [[] for _ in loaders]
            for pair in portion:
                key, stored = pair
                epk = epk_of(stored)
                if not low <= epk < high:
                    raise _misplaced()
                owner = bisect_right(lows, epk) - 1 if is_divided else 0
                parts[owner].append(pair)
                size_bytes = len(stored) - FIXED_HEADER_BYTES - len(epk)
                heads[owner].item_count += 1
                heads[owner].size_bytes += size_bytes
                progress.bytes_copied += size_bytes
                if is_divided:
                    if (chunk := owners.get(key[1:7])) is None:
                        chunk = owners[key[1:7]] = bytearray([_NO_OWNER]) * 65_536
                    chunk[key[7] << 8 | key[8]] = owner
            _put(loaders, parts)
            progress.items_copied += len(portion)
            yield

    def _copy_by_rid(self, kept: Kept, space: bytes, loaders: Sequence[Loader]) -> Iterator[None]:
        """Entries go to the child of their item; tombstones contain their effective key."""
        is_divided = len(loaders) > 1
        owners, lows = self._owners, self._lows
        for portion in _portions(kept.scan(space, layout.space_end(space))):
            if not is_divided:
                loaders[0].put(portion)
                yield
                continue
            parts: list[list[tuple[bytes, bytes]]] = [[] for _ in loaders]
            for pair in portion:
                key = pair[0]
                chunk = owners.get(key[-8:-2])
                owner = chunk[key[-2] << 8 | key[-1]] if chunk is not None else _NO_OWNER
                if owner == _NO_OWNER:
                    assert space == layout.CHANGES, "an entry without its item"
                    owner = bisect_right(lows, log.unpack_change(*pair).epk) - 1
                parts[owner].append(pair)
            _put(loaders, parts)
            yield

    def _copy_by_key(self, kept: Kept, space: bytes, loaders: Sequence[Loader]) -> Iterator[None]:
        for target, loader in zip(self.targets, loaders, strict=True):
            for portion in _portions(kept.scan(space + target.low, space + target.high)):
                loader.put(portion)
                yield

    def _copy_versions(self, kept: Kept, space: bytes, loaders: Sequence[Loader]) -> Iterator[None]:
        for portion in _portions(kept.scan(space, layout.space_end(space))):
            parts: list[list[tuple[bytes, bytes]]] = [[] for _ in loaders]
            for pair in portion:
                parts[bisect_right(self._lows, versions.owner_epk(pair)) - 1].append(pair)
            _put(loaders, parts)
            yield

    def _copy_alike(self, kept: Kept, prefix: bytes, loaders: Sequence[Loader]) -> Iterator[None]:
        for portion in _portions(kept.scan(prefix, layout.prefix_end(prefix))):
            for loader in loaders:
                loader.put(portion)
            yield

    def _copy_terms(self, kept: Kept, numbers: dict[str, int], loader: Loader) -> Iterator[None]:
        """For a merge: each parent has numbered its paths by itself."""
        moved: list[tuple[int, bytes]] = []
        for key, value in kept.scan(_PATHS, layout.prefix_end(_PATHS)):
            path = key[len(_PATHS) :].decode()
            moved.append((numbers.setdefault(path, len(numbers) + 1), value))
        yield
        for number, old in sorted(moved):
            new = layout.term_prefix(number)
            old = layout.TERMS + old
            for portion in _portions(kept.scan(old, layout.prefix_end(old))):
                loader.put([(new + key[len(new) :], value) for key, value in portion])
                yield

    def _coverage(self, kept: Sequence[Kept], heads: Sequence[log.Head]) -> PathCoverage | None:
        """The paths that all items of all parents have: all items of each child have them too."""
        with_items = [
            trusted_coverage(each, head) for each, head in zip(kept, heads, strict=True) if head.item_count > 0
        ]
        paths: frozenset[str] | None = None
        for each in with_items:
            if each is None or each.rules_number != self._schema.rules.number:
                return None
            paths = each.paths if paths is None else paths & each.paths
        if paths is None:
            return None
        return PathCoverage(1, self._schema.rules.number, max(source.lsn for source in self.sources), paths, SETTLED)

    async def _found(self, target: Target, heads: Sequence[log.Head], coverage: PathCoverage | None) -> None:
        """The transaction that makes a copy a partition."""
        target.head.lsn = max(head.lsn for head in heads)
        target.head.coverage_generation = coverage.generation if coverage is not None else 0
        places = {
            source.range.id: layout.change_key(head.lsn + 1) for source, head in zip(self.sources, heads, strict=True)
        }
        version_places = {
            source.range.id: layout.version_key(head.lsn + 1) for source, head in zip(self.sources, heads, strict=True)
        }

        def run(txn: Txn) -> None:
            self.check_rules()
            txn.put(layout.HEAD_KEY, target.head.pack())
            txn.put(RULES_KEY, self.rules_number.to_bytes(2, "big"))
            if coverage is not None:
                txn.put(COVERAGE_KEY, coverage.pack())
            for range_id, place in places.items():
                txn.put(_place_key(range_id), place)
            for range_id, place in version_places.items():
                txn.put(_version_place_key(range_id), place)

        await target.store.write(run)
        target.places, target.stored_places = places, dict(places)
        target.version_places = version_places

    def check_rules(self) -> None:
        if self._schema.rules.number != self.rules_number or self._schema.older_rules:
            raise Overtaken

    # Catching up.

    async def resume(self) -> bool:
        """Whether the children were copied before and only have to catch up."""
        for target in self.targets:

            def load(view: View) -> tuple[log.Head, dict[int, bytes], dict[int, bytes], bytes | None]:
                places, version_places = (
                    {
                        each.range.id: place
                        for each in self.sources
                        if (place := view.get(key(each.range.id))) is not None
                    }
                    for key in (_place_key, _version_place_key)
                )
                return log.load_head(view, 0, 0), places, version_places, view.get(RULES_KEY)

            target.head, target.places, target.version_places, rules_number = await target.store.read(load)
            is_ruled_alike = rules_number == self._schema.rules.number.to_bytes(2, "big")
            if min(len(target.places), len(target.version_places)) < len(self.sources) or not is_ruled_alike:
                return False
            target.stored_places = dict(target.places)
        self.rules_number = self._schema.rules.number
        self.progress.items_total = self.progress.items_copied = sum(each.head.item_count for each in self.targets)
        self.progress.bytes_copied = sum(each.head.size_bytes for each in self.targets)
        return True

    def behind(self) -> int:
        """About how many transactions of the parents the children lack."""
        return sum(
            max(0, source.lsn + 1 - min(log.change_lsn(place) for place in self._places_in(source.range.id)))
            for source in self.sources
        )

    def _places_in(self, range_id: int) -> list[bytes]:
        return [each for target in self.targets for each in (target.places[range_id], target.version_places[range_id])]

    async def catch_up(self, rest: Rest) -> int:
        """Apply the next changes, at most CATCH_UP_ENTRIES_MAX. Returns how many. After a failure, `resume` determines
        how far they were applied."""
        applied, entries_max = 0, limits.CATCH_UP_ENTRIES_MAX
        for source in self.sources:
            range_id = source.range.id
            start = min(target.places[range_id] for target in self.targets)
            changes = await source.store.read(lambda view, start=start: _changes(view, start, entries_max))  # type: ignore[misc]
            if not changes:
                continue
            await rest()
            # In order, and awaited together: the engine makes them durable in one group commit.
            writes = []
            for at in range(0, len(changes), limits.CATCH_UP_ENTRIES):
                for target in self.targets:
                    writes.append(self._apply(target, range_id, changes[at : at + limits.CATCH_UP_ENTRIES]))
            await _all(writes)
            for target in self.targets:
                target.places[range_id] = max(target.places[range_id], _after(changes[-1][0]))
            applied += len(changes)
        applied += await self._catch_up_versions(rest, entries_max)
        self.progress.changes_applied += applied
        return applied

    async def _catch_up_versions(self, rest: Rest, entries_max: int) -> int:
        """The same for version entries: an item that was written twice has two of them."""
        applied = 0
        for source in self.sources:
            range_id = source.range.id
            start = min(target.version_places[range_id] for target in self.targets)
            taken, end = await source.store.read(lambda view, start=start: _versions(view, start, entries_max))  # type: ignore[misc]
            if taken:
                await rest()
                await _all([self._apply_versions(target, range_id, taken) for target in self.targets])
                applied += len(taken)
            for target in self.targets:
                target.version_places[range_id] = max(target.version_places[range_id], end)
        return applied

    async def _apply_versions(self, target: Target, range_id: int, taken: Sequence[versions.Packed]) -> None:
        place = target.version_places[range_id]

        def run(txn: Txn) -> None:
            for each in taken:
                if target.low <= each.epk < target.high and each.key >= place:
                    versions.put_packed(txn, each)
            txn.put(_version_place_key(range_id), _after(taken[-1].key))

        await target.store.write(run)

    async def _apply(self, target: Target, range_id: int, changes: Sequence[tuple[bytes, bytes, bytes | None]]) -> None:
        place = target.places[range_id]
        low, high = target.low, target.high
        mine = []
        for key, value, stored in changes:
            epk = epk_of(stored) if stored is not None else log.unpack_change(key, value).epk
            if low <= epk < high and key >= place:
                mine.append((key, value, stored))
        if not mine:
            return

        expected, becomes = target.stored_places[range_id], _after(changes[-1][0])
        target.stored_places[range_id] = becomes

        def run(txn: Txn) -> Adopter:
            self.check_rules()
            if txn.get(_place_key(range_id)) != expected:
                raise Failure(Kind.UNAVAILABLE, "A change before this one could not be applied.")
            head = log.load_head(txn, 0, 0)
            key_range, schema = KeyRange(range_id, low, high, (), 0), self._schema.as_it_is()
            adopter = Adopter(txn, schema, head, target.paths, None, self._clock.now_s(), key_range)
            for key, value, stored in mine:
                if stored is not None:
                    adopter.adopt(int.from_bytes(key[-layout.RID_BYTES :], "big"), stored)
                else:
                    adopter.bury(key, value)
            adopter.finish()
            txn.put(_place_key(range_id), becomes)
            return adopter

        adopter = await target.store.write(run)
        target.head = adopter.head
        if len(target.paths) < limits.PATHS_REMEMBERED_MAX:
            target.paths.update(adopter.new_paths)

    # Cutting over: the parents' writers are held.

    async def settle(self) -> None:
        """Wait until everything written to the parents is durable and visible to readers."""
        for source in self.sources:
            await _settle(source.store)

    async def seal(self, range_ids: Sequence[int]) -> None:
        """Finish the children: they continue from their parents' highest lsn, allocate rids of their own, and get all
        records of retryable writes."""
        heads = [await source.store.read(source.head_in) for source in self.sources]
        records = [pair for source in self.sources for pair in await source.store.read(stored_records)]
        noted = [pair for source in self.sources for pair in await source.store.read(change_stream_events.all_entries)]
        sinces = [await source.store.read(change_stream_events.since) for source in self.sources]
        number = self._schema.versions_number
        kept_since = [await source.store.read(lambda view: versions.since(view, number)) for source in self.sources]
        lsn = max(head.lsn for head in heads)
        assert sum(head.item_count for head in heads) == sum(target.head.item_count for target in self.targets)
        assert sum(head.size_bytes for head in heads) == sum(target.head.size_bytes for target in self.targets)
        for target, range_id in zip(self.targets, range_ids, strict=True):

            def run(txn: Txn, range_id: int = range_id, target: Target = target) -> log.Head:
                head = log.load_head(txn, 0, 0)
                head.lsn, head.next_rid = lsn, first_item_rid(range_id)
                txn.put(layout.HEAD_KEY, head.pack())
                for key, value in records:
                    txn.put(key, value)
                _put_events(txn, target, noted, sinces)
                versions.begin_from(txn, number, lsn, kept_since)
                return head

            target.head = await target.store.write(run)


def _put_events(txn: Txn, target: Target, noted: Sequence[tuple[bytes, bytes]], sinces: Sequence[int | None]) -> None:
    """Copy the change stream events of the child's keys. If only one parent was watched, the events are complete from
    the later `since` on."""
    known = [each for each in sinces if each is not None]
    if not known:
        return
    for key, value in noted:
        if target.low <= change_stream_events.unpack_event(key, value).epk < target.high:
            txn.put(key, value)
    txn.put(change_stream_events.SINCE_KEY, max(known).to_bytes(8, "big"))


def _portions(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    return portions(entries, limits.COPY_PORTION_ENTRIES)


def _put(loaders: Sequence[Loader], parts: Sequence[list[tuple[bytes, bytes]]]) -> None:
    for loader, part in zip(loaders, parts, strict=True):
        loader.put(part)


def _changes(view: View, start: bytes, entries_max: int) -> list[tuple[bytes, bytes, bytes | None]]:
    """The next entries of a log, with the items that were written."""
    changes: list[tuple[bytes, bytes, bytes | None]] = []
    size_bytes = 0
    for key, value in islice(view.scan(start, layout.space_end(layout.CHANGES)), entries_max):
        stored = None
        if value == log.WRITTEN:
            stored = view.get(layout.ITEMS + key[-layout.RID_BYTES :])
            assert stored is not None, "a change without its item"
            size_bytes += len(stored)
        changes.append((key, value, stored))
        if size_bytes > limits.CATCH_UP_BYTES_MAX:
            break
    return changes


def _versions(view: View, start: bytes, entries_max: int) -> tuple[list[versions.Packed], bytes]:
    """The next version entries, and the place after them."""
    taken = versions.entries_from(view, start, entries_max, limits.CATCH_UP_BYTES_MAX)
    if taken:
        return taken, _after(taken[-1].key)
    return [], layout.version_key(log.load_head(view, 0, 0).lsn + 1)


def _place_key(range_id: int) -> bytes:
    return layout.META + b"reshape/" + range_id.to_bytes(4, "big")


def _version_place_key(range_id: int) -> bytes:
    return layout.META + b"reshape-versions/" + range_id.to_bytes(4, "big")


def _after(key: bytes) -> bytes:
    return key + b"\x00"


async def _settle(store: Store) -> None:
    """Wait until all earlier writes of a store are durable."""
    await store.write(lambda txn: None)


async def _all(writes: Sequence[Awaitable[None]]) -> None:
    """Wait for all; raise the first failure."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _misplaced() -> Failure:
    """No child's range contains the item, so copying would lose it."""
    return Failure(
        Kind.CORRUPT,
        "An item lies outside of the partition's range. Stop the server and run `armillary check --repair`.",
    )
