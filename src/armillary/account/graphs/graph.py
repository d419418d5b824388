"""A container as a graph, as traversals ask for it (`languages/gremlin/graph_protocol.py`): elements by reference or by
condition, edges of many vertices at once, and writes.

A graph has one partition key property, or none; its edges are stored with their out-vertex, so that out() asks the
partitions of the vertices it starts from, and in() asks all. How items are read in batches is `graph_reads.py`'s part,
how they are written `graph_writes.py`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.graphs import graph_writes
from armillary.account.graphs.graph_conditions import condition_of
from armillary.account.graphs.graph_documents import (
    EDGE_PARTITIONS,
    IS_EDGE,
    SINK,
    SOURCE,
    Item,
    edge_from,
    edge_item,
    vertex_from,
    vertex_item,
    vertex_of,
)
from armillary.account.graphs.graph_reads import NamedItems, Naming, Point, Tally, read_naming, read_points
from armillary.account.queries import item_pages
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.gremlin.errors import execution, unsupported
from armillary.languages.gremlin.graph_protocol import (
    ANYWHERE,
    EdgePages,
    Reference,
    StoreOperation,
    VertexPages,
    Wanted,
    Write,
)
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.values.comparing import is_number, shown
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.keys import NO_KEY, Key, key_forms, parse_path
from armillary.query.conditions import Equal, both
from armillary.query.selection import Selection, Stage

_PAGE_TEXT: Final = b"gremlin"  # what the continuations of our own pages are bound to
_OPERATIONS_MAX: Final = 10_000  # that a profile tells of
_IDS_AT_ONCE: Final = 1_000
_REFUSED_KEYS: Final = (("id",), ("label",))

Given = TypeVar("Given", Vertex, Edge)


@dataclass(frozen=True, slots=True)
class _Reader(Generic[Given]):
    """Items to elements of one kind."""

    is_edges: bool
    make: Callable[[Item], Given]

    def read(self, text: bytes) -> Given | None:
        item = edge_item(text) if self.is_edges else vertex_item(text)
        return self.make(item) if item is not None else None


def graph_key(container: Container) -> str | None:
    """The name of the partition key property. Refuses what cannot be a graph."""
    definition = container.key
    if definition is None or definition.is_system:
        return None
    if len(definition.paths) > 1:
        raise unsupported(f"The graph '{container.name}' has a hierarchical partition key; graphs have a single one.")
    check_key_path(definition.paths[0], container.name)
    return definition.steps[0][0]


def check_key_path(path: str, name: str) -> None:
    """Refuses what a graph cannot be partitioned by."""
    steps = parse_path(path)
    if steps in _REFUSED_KEYS:
        raise bad_request(
            f"Partition key path '{path}' of graph '{name}' is not allowed: '/id' and '/label' are not supported as "
            "partition keys of a Gremlin container. Choose a property."
        )
    if len(steps) > 1:
        raise bad_request(
            f"The partition key of graph '{name}' is inside another property ({path}). Choose a property of vertices."
        )


def element_id(value: Any) -> str:
    """An id as it is stored: a text, whatever it was given as."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Vertex | Edge):
        return str(value.id)
    if is_number(value):
        return str(value)
    raise execution(f"{shown(value):.60} cannot be the id of an element: an id is a text, a number or a UUID.")


class StoredGraph:
    """One run's view of a graph: what it reads and writes is added up here."""

    element_id = staticmethod(element_id)

    def __init__(self, account: Account, container: Container, *, is_read_only: bool = False) -> None:
        self.partition_key = graph_key(container)
        self.operations: list[StoreOperation] = []
        self.charge_ru = 0.0
        self.shown: tuple[str, ...] = ()  # system properties that this run sees among the others
        self._account = account
        self._container = container
        self._clock: Clock = account.clock
        self._is_read_only = is_read_only

    def show(self, names: tuple[str, ...]) -> None:
        """Let traversals see system properties."""
        for name in names:
            if name not in SYSTEM_PROPERTIES and name not in EDGE_PARTITIONS:
                raise unsupported(f"'{name[:60]}' is not a system property; _ts, _etag, _rid and _self are.")
        self.shown = names

    # Elements.

    def vertices(self, wanted: Wanted) -> VertexPages:
        return self._pages(wanted, _Reader(False, lambda item: vertex_from(item, self.partition_key, self.shown)))

    def edges(self, wanted: Wanted) -> EdgePages:
        return self._pages(wanted, _Reader(True, lambda item: edge_from(item, self.partition_key, shown=self.shown)))

    def _pages(self, wanted: Wanted, reader: _Reader[Given]) -> Callable[[], Awaitable[list[Given]]]:
        if wanted.references is None:
            return self._scan(wanted, reader)
        return self._referred(self._placed(wanted), reader)

    def _placed(self, wanted: Wanted) -> Sequence[Reference]:
        """References with the partition keys that has() steps name: point reads, not queries to all partitions."""
        references = wanted.references or ()
        if self.partition_key is None or all(each.partition is not ANYWHERE for each in references):
            return references
        for condition in wanted.conditions:
            if condition.key == self.partition_key and condition.predicate.name in ("eq", "within"):
                value = condition.predicate.value
                values = value if condition.predicate.name == "within" else [value]
                if all(_is_key_value(each) for each in values):
                    values = [key[0] for key in dict.fromkeys(form for each in values for form in key_forms((each,)))]
                    return [
                        placed
                        for each in references
                        for placed in (
                            [Reference(each.id, one) for one in values] if each.partition is ANYWHERE else [each]
                        )
                    ]
        return references

    def _scan(self, wanted: Wanted, reader: _Reader[Given]) -> Callable[[], Awaitable[list[Given]]]:
        conditions = [condition_of(each, self.partition_key, is_edges=reader.is_edges) for each in wanted.conditions]
        if reader.is_edges:
            conditions.append(Equal(f"/{IS_EDGE}", True))
        selection = Selection(both(conditions), (Stage(),))
        page_items = limits.PAGE_ITEMS_DEFAULT * 10 if wanted.count is None else max(1, wanted.count)
        options = FeedOptions(page_items=min(page_items, limits.PAGE_ITEMS_DEFAULT * 10))
        is_over = False

        async def pull() -> list[Given]:
            nonlocal is_over
            while not is_over:
                texts, continuation = await self._page(selection, options)
                options.continuation = continuation
                is_over = continuation is None
                found = [element for text in texts if (element := reader.read(text)) is not None]
                if found:
                    return found
            return []

        return pull

    async def _page(self, selection: Selection, options: FeedOptions) -> tuple[list[bytes], str | None]:
        begun_s = self._clock.elapsed_s()
        page = await item_pages.select(self._account, self._container, selection, _PAGE_TEXT, options)
        tally = Tally(page.charge_ru, len(page.lsns))
        tally.add(page.rows)
        self._note(tally, begun_s)
        return page.rows, page.continuation

    def _referred(
        self, references: Sequence[Reference], reader: _Reader[Given]
    ) -> Callable[[], Awaitable[list[Given]]]:
        left = list(references)

        async def pull() -> list[Given]:
            nonlocal left
            while left:
                some, left = left[:_IDS_AT_ONCE], left[_IDS_AT_ONCE:]
                found = await self._find(some, reader)
                if found:
                    return found
            return []

        return pull

    async def _find(self, references: Sequence[Reference], reader: _Reader[Given]) -> list[Given]:
        """In the order of the references. One that is given twice is found twice."""
        if len(references) == 1 and (only := self._point(references[0].id, references[0].partition)) is not None:
            [text] = await self._read_points([only])
            found_one = reader.read(text) if text is not None else None
            return [found_one] if found_one is not None else []
        points = [self._point(each.id, each.partition) for each in references]
        known = [point for point in points if point is not None]
        texts = iter(await self._read_points(known)) if known else iter(())
        by_id: dict[Any, list[Item]] = {}
        if len(known) < len(points):
            pairs = zip(references, points, strict=True)
            anywhere = {each.id: None for each, point in pairs if point is None and isinstance(each.id, str)}
            by_id = await self._by_ids(list(anywhere), is_edges=reader.is_edges)
        found: list[Given] = []
        for each, point in zip(references, points, strict=True):
            if point is None:
                found += [reader.make({**item}) for item in by_id.get(each.id, ())]
            elif (text := next(texts)) is not None and (element := reader.read(text)) is not None:
                found.append(element)
        return found

    def _point(self, id: Any, partition: Any) -> Point | None:
        """Where an element is, if that is known."""
        container = self._container
        if not isinstance(id, str):
            return None
        if self.partition_key is None:
            return Point(container.effective_key(NO_KEY), id, NO_KEY)
        if partition is ANYWHERE or not _is_key_value(partition):
            return None
        key = Key((partition,))
        return Point(container.effective_key(key), id, key)

    async def _read_points(self, points: Sequence[Point]) -> list[bytes | None]:
        begun_s = self._clock.elapsed_s()
        tally = Tally()
        found = await read_points(self._container, points, tally)
        self._note(tally, begun_s)
        return found

    async def _by_ids(self, ids: list[str], *, is_edges: bool) -> dict[str, list[Item]]:
        """Wherever they are: there may be several with one id."""
        begun_s = self._clock.elapsed_s()
        tally = Tally()
        asked = [Naming(place, id, None) for place, id in enumerate(ids)]
        rows = await read_naming(self._container, "/id", asked, NamedItems(is_edges, self.partition_key), tally)
        self._note(tally, begun_s)
        found: dict[str, list[Item]] = {}
        for _, item in rows:
            found.setdefault(item["id"], []).append(item)
        return found

    async def load(self, vertices: Sequence[Vertex]) -> None:
        points: list[Point] = []
        placed: list[Vertex] = []
        lost: list[Vertex] = []
        for vertex in vertices:
            point = self._point(vertex.id, vertex.partition)
            if point is None:
                lost.append(vertex)
            else:
                points.append(point)
                placed.append(vertex)
        # Traversers meet the same vertex often; it is read once.
        unique = list(dict.fromkeys(points))
        texts = dict(zip(unique, await self._read_points(unique), strict=True)) if unique else {}
        for vertex, point in zip(placed, points, strict=True):
            text = texts[point]
            if text is not None and (read := vertex_of(text, self.partition_key, self.shown)) is not None:
                _fill(vertex, read)
        if lost:
            by_id = await self._by_ids(list({str(vertex.id): None for vertex in lost}), is_edges=False)
            for vertex in lost:
                for item in by_id.get(str(vertex.id), ())[:1]:
                    _fill(vertex, vertex_from(item, self.partition_key, self.shown))

    # Edges of vertices.

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        is_out, key, shown = direction is Direction.OUT, self.partition_key, self.shown
        places: dict[Vertex, int] = {}
        for vertex in vertices:
            places.setdefault(vertex, len(places))
        unique = list(places)
        asked = [
            Naming(place, vertex.id, self._source_key(vertex) if is_out else None, None if is_out else vertex.partition)
            for place, vertex in enumerate(unique)
            if isinstance(vertex.id, str)
        ]
        tally = Tally()
        begun_s = self._clock.elapsed_s()
        found: list[list[Edge]] = [[] for _ in unique]

        path = f"/{SOURCE}" if is_out else f"/{SINK}"
        rows = await read_naming(self._container, path, asked, NamedItems(True, key, labels), tally, limit)
        self._note(tally, begun_s)
        for place, item in rows:
            if limit is None or len(found[place]) < limit:
                source, sink = (unique[place], None) if is_out else (None, unique[place])
                found[place].append(edge_from(item, key, source=source, sink=sink, shown=shown))
        return [found[places[vertex]] for vertex in vertices]

    def _source_key(self, vertex: Vertex) -> bytes | None:
        point = self._point(vertex.id, vertex.partition)
        return point[0] if point is not None else None

    # Writes.

    async def write(self, writes: Sequence[Write]) -> None:
        self._account.check_writable()
        if self._is_read_only:
            raise Failure(Kind.FORBIDDEN, "The key that was given may read and not write.")
        await graph_writes.write(self, self._container, self._clock, writes)

    def _note(self, tally: Tally, begun_s: float) -> None:
        self.charge_ru += tally.charge_ru
        if len(self.operations) < _OPERATIONS_MAX:
            time_ms = (self._clock.elapsed_s() - begun_s) * 1000
            self.operations.append(StoreOperation(max(tally.fanout, 1), tally.count, tally.size_bytes, time_ms))


def _is_key_value(value: Any) -> bool:
    return isinstance(value, str | bool) or is_number(value)


def _fill(vertex: Vertex, read: Vertex) -> None:
    vertex.label, vertex.partition, vertex.token = read.label, read.partition, read.token
    vertex.properties = read.properties
    for values in (read.properties or {}).values():
        for each in values:
            each.vertex = vertex
