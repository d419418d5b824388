"""The state of one run of a traversal: graph, side effects, sack, loaded elements, and the limits on time and memory.

Steps request elements and edges here, in batches. Edges that were prefetched for a batch are kept until the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from armillary import limits
from armillary.languages.gremlin.errors import execution, timed_out, too_much
from armillary.languages.gremlin.graph_protocol import Environment, Graph, Write
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.traversers import MISSING, NO_SACK, Batch, PathTraverser, Place, Traverser
from armillary.languages.gremlin.values.comparing import identity
from armillary.languages.gremlin.values.elements import Edge, Property, Vertex, VertexProperty
from armillary.model.key_values import Key
from armillary.work import made, make, spend
from armillary.work import release as give_back

_PAUSE_EVERY_S = 0.01
_ELEMENT_BYTES, _PROPERTY_BYTES, _HELD_BYTES = 500, 200, 60


class SideEffects:
    """The named side effects of a run. A reducer combines old and new values; without one the last value is kept."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.reducers: dict[str, Callable[[Any, Any], Any]] = {}

    def get(self, name: str) -> Any:
        return self.values.get(name, MISSING)


class Run:
    def __init__(
        self,
        graph: Graph,
        environment: Environment,
        *,
        keeps_whole_path: bool = False,
        is_writing: bool = False,
        batch: int = limits.GREMLIN_BATCH,
        deadline_s: float | None = None,
    ) -> None:
        self.graph = graph
        self.environment = environment
        self.random = environment.random
        self.random_below: Callable[[int], int] = lambda limit: int(self.random() * limit)
        self.traverser_type: type[Traverser] = PathTraverser if keeps_whole_path else Traverser
        self.batch = batch
        self.deadline_s = deadline_s
        self.side_effects = SideEffects()
        self.sack_initial: Any = NO_SACK
        self.sack_merge: Callable[[Any, Any], Any] | None = None
        self.is_merging = True  # whether equal traversers may be merged to one
        self.is_bulked = True
        self.is_singly = False  # whether lazy side effects run for one traverser at a time
        self.productive_keys: frozenset[str] | None = None  # keys of ProductiveByStrategy; empty: all keys
        self.is_productive = False
        self.read_count = 0  # elements and edges read from the graph
        self.write_count = 0
        self.request_count = 0  # requests to the graph
        self._is_writing = is_writing
        self._known: dict[Any, Any] = {}  # one object for each stored element, in runs that write
        self._edges: dict[tuple[Direction, tuple[str, ...], int | None], dict[Vertex, list[Edge]]] = {}
        self._held = 0
        self._next_pause_s = environment.elapsed_s() + _PAUSE_EVERY_S

    # -- traversers

    def start(self, value: Any, bulk: int = 1) -> Traverser:
        traverser = self.traverser_type(value, bulk, None, (), self.sack_initial)
        if self.traverser_type is PathTraverser:
            traverser.path = Place(None, value, ())
        return traverser

    def merged(self, batch: Batch) -> Batch:
        """Merges equal traversers. Traversers with sacks are merged only if the sacks have a merge operator."""
        if len(batch) < 2 or not self.is_merging:
            return batch
        found: dict[Any, Traverser] = {}
        self.merge(found, batch)
        return list(found.values()) if len(found) < len(batch) else batch

    def merge(self, found: dict[Any, Traverser], batch: Batch) -> None:
        """Adds traversers to `found`, merging those that are equal."""
        spend(8 * len(batch))
        for traverser in batch:
            value = traverser.value
            key: Any
            if type(value) is Vertex:
                key = vertex_key(value)
            else:
                key = (value,) if type(value) is Edge else (identity(value),)
            if traverser.path is not None or traverser.loops:
                key = (key, id(traverser.path), traverser.loops)
            known = found.get(key)
            if known is None:
                found[key] = traverser
            else:
                if self.sack_merge is not None:
                    known.sack = self.sack_merge(known.sack, traverser.sack)
                if self.is_bulked:
                    known.bulk += traverser.bulk

    def merge_ends(
        self, found: dict[Any, Traverser], batch: Batch, edges_of: dict[Any, list[Edge]], direction: Direction
    ) -> None:
        """As `merge`, for the vertices at the far ends of edges, without creating traversers that would be merged at
        once.
        """
        is_out = direction is Direction.OUT
        for traverser in batch:
            go, loops, bulk, path = traverser.to, traverser.loops, traverser.bulk, traverser.path
            edges = edges_of[vertex_key(traverser.value)]
            spend(10 + 8 * len(edges))
            for edge in edges:
                vertex = edge.in_vertex if is_out else edge.out_vertex
                partition = vertex.partition  # as in `vertex_key`
                if type(partition) is str:
                    key: Any = (partition, vertex.id)
                else:
                    key = vertex.id if partition is None else (Key((partition,)), vertex.id)
                if loops or path is not None:
                    key = (key, id(path), loops)
                known = found.get(key)
                if known is None:
                    found[key] = go(vertex)
                else:
                    if self.sack_merge is not None:
                        known.sack = self.sack_merge(known.sack, traverser.sack)
                    if self.is_bulked:
                        known.bulk += bulk

    def hold(self, count: int) -> None:
        """Counts the values that barriers and side effects keep in memory."""
        make(_HELD_BYTES * count)
        self._held += count
        if self._held > limits.GREMLIN_HELD_MAX:
            raise too_much(f"A traversal holds at most {limits.GREMLIN_HELD_MAX} values at a time; limit() it earlier.")

    def hold_elements(self, batch: Batch) -> None:
        """As `hold`, also counting the memory of the traversers' elements."""
        self.hold(len(batch))
        last: Any = None
        for traverser in batch:
            value = traverser.value
            if value is not last and (type(value) is Vertex or type(value) is Edge):
                make(_ELEMENT_BYTES + _PROPERTY_BYTES * len(value.properties or ()))
                last = value

    def release(self, count: int) -> None:
        self._held -= count
        give_back(max(0, made() - _HELD_BYTES * count))

    async def breathe(self) -> None:
        """Yields to other requests and checks the time limit. Called by steps that can run for long."""
        now_s = self.environment.elapsed_s()
        if now_s < self._next_pause_s:
            return
        if self.deadline_s is not None and now_s > self.deadline_s:
            raise timed_out("The traversal took longer than its time limit.")
        await self.environment.pause()
        self._next_pause_s = self.environment.elapsed_s() + _PAUSE_EVERY_S

    # -- the graph

    def known(self, elements: Iterable[Any]) -> list[Any]:
        """In runs that write, replaces elements by the one object kept for each, so that all traversers see its
        changes.
        """
        found = list(elements)
        self.read_count += len(found)
        if not self._is_writing:
            return found
        for at, element in enumerate(found):
            known = self._known.setdefault(element, element)
            if known is not element:
                if known.properties is None:
                    known.properties, known.token, known.label = element.properties, element.token, element.label
                    for values in (known.properties or {}).values():
                        for each in values if type(known) is Vertex else ():
                            each.vertex = known
                found[at] = known
            if type(element) is Edge:
                found[at].out_vertex = self._known.setdefault(element.out_vertex, element.out_vertex)
                found[at].in_vertex = self._known.setdefault(element.in_vertex, element.in_vertex)
        return found

    async def load(self, values: Iterable[Any]) -> None:
        """Loads the properties of those vertices that are references."""
        lacking: dict[int, Vertex] = {}
        for value in values:
            if type(value) is Vertex and value.properties is None:
                lacking[id(value)] = value
        if lacking:
            self.request_count += 1
            self.read_count += len(lacking)
            await self.graph.load(list(lacking.values()))

    async def loaded(self, batch: Batch) -> Batch:
        """The batch with its vertices loaded, without those that no longer exist."""
        for traverser in batch:
            value = traverser.value
            if type(value) is Vertex and value.properties is None:
                break
        else:
            return batch
        await self.load(traverser.value for traverser in batch)
        return [each for each in batch if type(each.value) is not Vertex or each.value.properties is not None]

    async def load_deep(self, value: Any) -> None:
        """Loads all vertices that a result holds, at any depth."""
        found: list[Any] = []
        _vertices_in(value, found, 0)
        await self.load(found)

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None = None
    ) -> list[list[Edge]]:
        prepared = self._edges.get((direction, labels, limit))
        if prepared is not None and all(vertex in prepared for vertex in vertices):
            return [prepared[vertex] for vertex in vertices]
        return await self._adjacent(vertices, direction, labels, limit)

    async def prefetch(
        self, vertices: Iterable[Any], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> None:
        """Reads the edges of many vertices at once, for child pipelines that request them one by one."""
        wanted = list({vertex: None for vertex in vertices if type(vertex) is Vertex})
        for one in (Direction.OUT, Direction.IN) if direction is Direction.BOTH else (direction,):
            found = await self._adjacent(wanted, one, labels, limit)
            self._edges[(one, labels, limit)] = dict(zip(wanted, found, strict=True))

    async def _adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        self.request_count += 1
        found = await self.graph.adjacent(vertices, direction, labels, limit)
        if self._is_writing:
            return [self.known(edges) for edges in found]
        self.read_count += sum(map(len, found))
        return found

    async def write(self, writes: list[Write]) -> None:
        if not writes:
            return
        if not self._is_writing:
            raise execution("The traversal may not write.")
        self._edges.clear()
        self.write_count += len(writes)
        self.request_count += 1
        await self.graph.write(writes)

    def remember(self, element: Vertex | Edge) -> None:
        """Makes a new element the one object of its id, so that later reads in this run return it."""
        self._known[element] = element

    def forget(self, element: Vertex | Edge) -> None:
        self._known.pop(element, None)


def vertex_key(vertex: Vertex) -> Any:
    """A key that is equal for equal vertices and fast to hash."""
    partition = vertex.partition
    if partition is None:
        return vertex.id
    # `Key`, because as a partition key true differs from 1
    return (partition if type(partition) is str else Key((partition,)), vertex.id)


def _vertices_in(value: Any, found: list[Any], depth: int) -> None:
    if depth > limits.GREMLIN_MESSAGE_DEPTH_MAX:
        raise too_much(f"A result is nested at most {limits.GREMLIN_MESSAGE_DEPTH_MAX} deep.")
    if type(value) is Vertex:
        if value.properties is None:
            found.append(value)
    elif isinstance(value, dict):
        spend(4 * len(value))
        for key, each in value.items():
            _vertices_in(getattr(key, "value", key), found, depth + 1)
            _vertices_in(each, found, depth + 1)
    elif isinstance(value, list | tuple):
        spend(2 * len(value))
        for each in value:
            _vertices_in(each, found, depth + 1)
    elif hasattr(value, "objects"):
        _vertices_in(value.objects, found, depth + 1)
    elif hasattr(value, "branches"):
        for key, inner in value.branches.values():
            _vertices_in(key, found, depth + 1)
            _vertices_in(inner, found, depth + 1)
    elif isinstance(value, Edge | VertexProperty | Property):
        return
