"""Batched reads for graph traversals: many items by partition key and id, and the items that refer to any of many ids
(the edges of vertices), with one visit to each partition. A visit works in slices of time, each on a new snapshot.
`graph_documents.py` turns items into vertices and edges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import orjson

from armillary import limits
from armillary.account.captures.notes import Note, QueryNote, spread
from armillary.account.container import Container
from armillary.account.graphs.graph_documents import Item, edge_item, sink_partition, vertex_item
from armillary.account.visits import visits
from armillary.account.visits.read_visits import ReadItem, read_at_hand
from armillary.account.visits.visits import Visit
from armillary.clock import Clock
from armillary.errors import Reason, computed_too_large
from armillary.model import charges, documents, layout
from armillary.model.charges import QueryWork
from armillary.model.encoding import encode_term, unpack_header
from armillary.model.key_values import Key, same_component
from armillary.partition.budget import QUERY_DEPOSIT
from armillary.partition.operations import Result
from armillary.partition.partition import Partition
from armillary.query.access.access_path import WHOLE, Index, candidates, path_prefix
from armillary.query.conditions import ALL, Equal, In
from armillary.query.page import Counters
from armillary.storage.engine import View


class Point(NamedTuple):
    """Where an element is."""

    epk: bytes
    item_id: str
    key: Key  # for captures

    @property
    def place(self) -> tuple[bytes, str]:
        return self.epk, self.item_id


_LOOK_AT_CLOCK_EVERY = 32
_POINTS_AT_ONCE = 1024
_LOADED_AT_ONCE = 256


@dataclass(slots=True)
class Tally:
    """What one reading came to, over all partitions."""

    charge_ru: float = 0.0
    fanout: int = 0
    count: int = 0
    size_bytes: int = 0

    def add(self, texts: Sequence[bytes]) -> None:
        self.count += len(texts)
        self.size_bytes += sum(map(len, texts))


async def read_points(container: Container, points: Sequence[Point], tally: Tally) -> list[bytes | None]:
    """The JSON of the items at these points, in their order; None where there is none."""
    if len(points) == 1:
        return [await _read_point(container, points[0], tally)]
    found: list[bytes | None] = [None] * len(points)
    left = list(range(len(points)))
    while left:
        left = await _read_points(container, points, left, found, tally)
    return found


async def _read_point(container: Container, point: Point, tally: Tally) -> bytes | None:
    """One alone, as most are asked for."""
    tally.fanout = 1
    visit = ReadItem(point.epk, point.item_id, key=point.key)
    answer = read_at_hand(container, visit) or await visits.run(container, visit)
    tally.charge_ru += answer.charge_ru
    if answer.payload is not None:
        tally.add((answer.payload,))
    return answer.payload


async def _read_points(
    container: Container,
    points: Sequence[Point],
    places: Sequence[int],
    found: list[bytes | None],
    tally: Tally,
) -> list[int]:
    """Those that must be asked for again: their partition was split or merged meanwhile."""
    by_partition: dict[int, list[int]] = {}
    for place in places:
        by_partition.setdefault(container.map.find(points[place][0]).id, []).append(place)
    again: list[int] = []
    tally.fanout = max(tally.fanout, len(by_partition))
    for range_id, own in by_partition.items():
        partition = container.partitions.get(range_id)
        if partition is None:
            again += own
            continue
        for begin in range(0, len(own), _POINTS_AT_ONCE):
            some = own[begin : begin + _POINTS_AT_ONCE]
            visit = ReadPoints(points[some[0]][0], [points[place] for place in some])
            if container.faults is not None:
                for epk in {points[place][0] for place in some}:
                    await container.faults.at_key(visit.OPERATION, container, epk)
            done = await visits.run_at(container, partition, visit)
            if done is None:
                again += some
                continue
            tally.charge_ru += done.charge_ru
            for place, text in zip(some, done.texts, strict=True):
                if text is not None:
                    found[place] = text
                    tally.add((text,))
    return again


@dataclass(slots=True)
class PointsRead:
    texts: list[bytes | None]  # JSON
    charge_ru: float


@dataclass(slots=True)
class ReadPoints(Visit[PointsRead]):
    """Many items of one partition by key and id."""

    epk: bytes  # of the first
    points: Sequence[Point]
    OPERATION: ClassVar[str] = "read"

    def notes(self, done: PointsRead | None) -> Sequence[Note]:
        texts: Sequence[bytes | None] = done.texts if done is not None else [None] * len(self.points)
        notes = []
        for point, text in zip(self.points, texts, strict=True):
            note = Note("read", Result.MISSING, charges.failed_read_ru(1), point.key, point.item_id, is_alone=False)
            if text is not None:
                note.outcome, note.charge_ru = Result.READ, charges.read_ru(len(text))
                note.rows, note.size_bytes = 1, len(text)
            notes.append(note)
        return spread(notes, done.charge_ru) if done is not None else notes

    async def run(self, container: Container, partition: Partition) -> PointsRead:
        keys = [layout.id_key(*point.place) for point in self.points]
        stored = await partition.read(lambda view: _at(view, keys))
        is_live = liveness(container, partition.clock)
        texts = [
            documents.json_text(each, container.schema) if each is not None and is_live(each) else None
            for each in stored
        ]
        given = [text for text in texts if text is not None]
        cost_ru = sum([charges.read_ru(len(text)) for text in given])
        cost_ru += (len(texts) - len(given)) * charges.failed_read_ru(1)
        return PointsRead(texts, cost_ru)


def _at(view: View, keys: list[bytes]) -> list[bytes | None]:
    numbers = view.get_many(keys)
    stored = iter(view.get_many([layout.ITEMS + number for number in numbers if number is not None]))
    return [next(stored) if number is not None else None for number in numbers]


def liveness(container: Container, clock: Clock) -> Callable[[bytes], bool]:
    """Whether a stored item has not expired."""
    schema = container.schema
    if schema.rules.default_ttl is None:
        return lambda stored: True
    now_s = clock.now_s()
    return lambda stored: schema.is_live(unpack_header(stored), now_s)


# Items that name an id.


@dataclass(frozen=True, slots=True)
class Naming:
    """Items whose property at a path is `value`: of one logical partition if `epk` is given, and edges that lead to a
    vertex of this partition key if `sink_partition` is. The place is for callers that ask for many."""

    place: int
    value: str
    epk: bytes | None
    sink_partition: Any = None


@dataclass(frozen=True, slots=True)
class NamedItems:
    """Which items are read: vertices, or edges with these labels."""

    is_edges: bool
    partition_key: str | None
    labels: tuple[str, ...] = ()

    def item(self, path: str, asked: Naming, text: bytes) -> Item | None:
        item = edge_item(text, self.labels) if self.is_edges else vertex_item(text)
        # An index tells long ids apart by their beginnings only.
        if item is None or item.get(path[1:]) != asked.value:
            return None
        if asked.sink_partition is not None and not same_component(
            asked.sink_partition, sink_partition(item, self.partition_key)
        ):
            return None
        return item


class NamingWalk:
    """Through one partition for many values, a slice of time after the other."""

    def __init__(self, visit: ReadNaming, index: Index) -> None:
        self._path = visit.path
        self._asked = visit.asked
        self._index = index
        self._wanted = visit.wanted
        self._limit = visit.limit
        self._at = 0  # which of those asked for
        self._after_rid = -1
        self._kept = 0  # of that one
        self.counters = Counters()
        self.found: list[tuple[int, Item]] = []
        self.sizes_bytes: list[int] = []  # of the items of these
        self.loaded_bytes = 0  # of the others

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._asked)

    def step(
        self,
        view: View,
        is_live: Callable[[bytes], bool],
        text: Callable[[bytes], bytes],
        is_due: Callable[[], bool],
    ) -> None:
        """Go on until all are found or time is up."""
        if not self._index.is_indexed(self._path):
            self._scan(view, is_live, text, is_due)
            return
        if self._limit is None:
            self._run(view, is_live, text, is_due)
            return
        looked = 0
        while not self.is_done:
            asked = self._asked[self._at]
            for rid, stored in self._candidates(view, asked):
                self._after_rid = rid
                looked += 1
                if (asked.epk is None or unpack_header(stored).epk == asked.epk) and is_live(stored):
                    self._take(asked, text(stored))
                if self._limit is not None and self._kept >= self._limit:
                    break
                if looked % _LOOK_AT_CLOCK_EVERY == 0 and is_due():
                    return
            self._at, self._after_rid, self._kept = self._at + 1, -1, 0
            looked += 1
            if looked % _LOOK_AT_CLOCK_EVERY == 0 and is_due():
                return

    def _run(
        self,
        view: View,
        is_live: Callable[[bytes], bool],
        text: Callable[[bytes], bytes],
        is_due: Callable[[], bool],
    ) -> None:
        """All that the index has, loaded together for many values."""
        prefix = path_prefix(view, self._path)
        while not self.is_done:
            places = self._places(view, prefix)
            stored = view.get_many([layout.item_key(rid) for _, rid in places])
            for (at, _), each in zip(places, stored, strict=True):
                asked = self._asked[at]
                if each is None or (asked.epk is not None and unpack_header(each).epk != asked.epk):
                    continue
                if is_live(each):
                    self._take(asked, text(each))
            if len(places) < _LOADED_AT_ONCE:
                self._at = len(self._asked)
            else:
                self._at, self._after_rid = places[-1]
            if is_due():
                return

    def _places(self, view: View, prefix: bytes) -> list[tuple[int, int]]:
        """The next that the index has: which of those asked for, and the rid of an item. Few: there are no more."""
        places: list[tuple[int, int]] = []
        after_rid = self._after_rid
        for at in range(self._at, len(self._asked)):
            term = prefix + encode_term(self._asked[at].value)
            low = term + (after_rid + 1).to_bytes(layout.RID_BYTES, "big")
            rows = islice(view.scan(low, layout.prefix_end(term)), _LOADED_AT_ONCE - len(places))
            places += [(at, int.from_bytes(key[-layout.RID_BYTES :], "big")) for key, _ in rows]
            if len(places) >= _LOADED_AT_ONCE:
                break
            after_rid = -1
        return places

    def _take(self, asked: Naming, content: bytes) -> None:
        item = self._wanted.item(self._path, asked, content)
        if item is None:
            self.loaded_bytes += len(content)
        else:
            self.found.append((asked.place, item))
            self.sizes_bytes.append(len(content))
            self._kept += 1

    def _scan(
        self,
        view: View,
        is_live: Callable[[bytes], bool],
        text: Callable[[bytes], bytes],
        is_due: Callable[[], bool],
    ) -> None:
        """Without an index: all items once, for all values together."""
        by_value: dict[str, list[Naming]] = {}
        for each in self._asked:
            by_value.setdefault(each.value, []).append(each)
        name = self._path[1:]
        rows = candidates(view, ALL, WHOLE, self._index, self._after_rid, limits.PAGE_ITEMS_DEFAULT, self.counters)
        for looked, (_, rid, stored) in enumerate(rows, 1):
            self._after_rid = rid
            assert stored is not None, "a scan gives items"
            content = text(stored)
            value = orjson.loads(content).get(name)
            for asked in by_value.get(value, ()) if type(value) is str else ():
                is_here = asked.epk is None or unpack_header(stored).epk == asked.epk
                if is_here and is_live(stored):
                    self._take(asked, content)
            self.loaded_bytes += len(content)
            if looked % _LOOK_AT_CLOCK_EVERY == 0 and is_due():
                return
        self._at = len(self._asked)

    def _candidates(self, view: View, asked: Naming) -> Iterator[tuple[int, bytes]]:
        condition = Equal(self._path, asked.value)
        most = limits.PAGE_ITEMS_DEFAULT if self._limit is None else self._limit
        for _, rid, stored in candidates(view, condition, WHOLE, self._index, self._after_rid, most, self.counters):
            if stored is not None:
                yield rid, stored


async def read_naming(
    container: Container,
    path: str,
    asked: Sequence[Naming],
    wanted: NamedItems,
    tally: Tally,
    limit: int | None = None,
) -> list[tuple[int, Item]]:
    """The items that name what is asked for, with the places of those that they are for."""
    while True:
        before = container.map
        found = await _read_naming(container, path, asked, wanted, tally, limit)
        if found is not None and container.map is before:
            return found
        # A split or merge came in between; what was read of the parents may miss what was written to the children.


async def _read_naming(
    container: Container, path: str, asked: Sequence[Naming], wanted: NamedItems, tally: Tally, limit: int | None
) -> list[tuple[int, Item]] | None:
    by_partition: dict[int, list[Naming]] = {}
    for each in asked:
        ranges = container.map.ranges if each.epk is None else (container.map.find(each.epk),)
        for key_range in ranges:
            by_partition.setdefault(key_range.id, []).append(each)
    tally.fanout = max(tally.fanout, len(by_partition))
    found: list[tuple[int, Item]] = []
    if container.faults is not None:
        ranges_asked = [container.partitions[range_id].range for range_id in by_partition]
        low, high = container.stretch(None, None, None)
        await container.faults.over(ReadNaming.OPERATION, container, low, high, ranges_asked)
    for range_id, own in by_partition.items():
        partition = container.partitions.get(range_id)
        if partition is None:
            return None
        done = await visits.run_at(container, partition, ReadNaming(path, own, wanted, limit))
        if done is None:
            return None
        found += done.found
        tally.charge_ru += done.charge_ru
        tally.count += len(done.found)
        tally.size_bytes += done.size_bytes
        if len(found) > limits.GREMLIN_HELD_MAX:
            raise computed_too_large(
                f"One step reads more than {limits.GREMLIN_HELD_MAX} edges at once. Filter or limit() before it.",
                reason=Reason.HELD_TOO_MUCH,
            )
    return found


@dataclass(slots=True)
class NamingRead:
    found: list[tuple[int, Item]]
    size_bytes: int
    charge_ru: float


@dataclass(slots=True)
class ReadNaming(Visit[NamingRead]):
    """The items of one partition that name any of many values."""

    path: str
    asked: Sequence[Naming]
    wanted: NamedItems
    limit: int | None = None
    epk: bytes | None = None  # of none in particular
    DEPOSIT: ClassVar[int] = QUERY_DEPOSIT
    OPERATION: ClassVar[str] = "query"

    def notes(self, done: NamingRead | None) -> Sequence[Note]:
        [note] = Visit.notes(self, done)
        note.query = QueryNote(In(self.path, tuple([each.value for each in self.asked])))
        if done is not None:
            note.rows = note.loaded = len(done.found)
            note.size_bytes = done.size_bytes
        return (note,)

    async def run(self, container: Container, partition: Partition) -> NamingRead:
        clock, schema = partition.clock, container.schema
        walk = NamingWalk(self, Index(schema.rules.indexing, is_complete=not container.is_restating))
        is_live = liveness(container, clock)

        def text(stored: bytes) -> bytes:
            return documents.json_text(stored, schema)

        while not walk.is_done:
            slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
            await partition.read(
                lambda view: walk.step(view, is_live, text, lambda: clock.elapsed_s() > slice_end_s)  # noqa: B023
            )
            if not walk.is_done:
                await asyncio.sleep(0)
        work = QueryWork(partitions_begun=1, seeks=1, loaded_bytes=walk.loaded_bytes)
        work.returned_ru = sum([charges.read_ru(size_bytes) for size_bytes in walk.sizes_bytes])
        return NamingRead(walk.found, sum(walk.sizes_bytes), charges.query_page_ru(work))
