"""A graph in memory for tests of the Gremlin language: the plainest implementation of `graph.Graph`, and a world with
dice from a seed. It keeps copies, gives references at the far ends of edges and pages of a few
elements, as storage does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from armillary.clock import Dice
from armillary.errors import Failure, Kind
from armillary.languages.gremlin.graph_protocol import (
    ANYWHERE,
    AddEdge,
    AddVertex,
    DropEdge,
    DropVertex,
    ReplaceEdge,
    ReplaceVertex,
    StoreOperation,
    Wanted,
    Write,
)
from armillary.languages.gremlin.program import answer, compile_traversal
from armillary.languages.gremlin.steps.filters import meets
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.values.elements import Edge, Vertex, VertexProperty

PAGE = 5


class World:
    """Environment of a run: time stands still unless told otherwise."""

    def __init__(self, seed: int = 0) -> None:
        self._dice = Dice(seed)
        self._count = 0
        self.now_s = 0.0
        self.pauses = 0

    def elapsed_s(self) -> float:
        return self.now_s

    def random(self) -> float:
        return self._dice.number()

    def guid(self) -> str:
        self._count += 1
        return f"guid-{self._count}"

    async def pause(self) -> None:
        self.pauses += 1


def text_id(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class MemoryGraph:
    def __init__(self, partition_key: str | None = None) -> None:
        self.partition_key = partition_key
        self.operations: list[StoreOperation] = []
        self.stored_vertices: dict[tuple[Any, Any], Vertex] = {}
        self.stored_edges: dict[tuple[Any, Any], Edge] = {}
        self.out_edges: dict[tuple[Any, Any], dict[tuple[Any, Any], None]] = {}
        self.in_edges: dict[tuple[Any, Any], dict[tuple[Any, Any], None]] = {}
        self.reads = 0  # calls of adjacent, load, vertices, edges
        self.uses_conditions = True
        self.world = World()

    element_id = staticmethod(text_id)

    def copy(self) -> MemoryGraph:
        copy = MemoryGraph(self.partition_key)
        copy.stored_vertices = {key: copy_vertex(vertex) for key, vertex in self.stored_vertices.items()}
        copy.stored_edges = {key: copy_edge(edge) for key, edge in self.stored_edges.items()}
        copy.out_edges = {key: dict(keys) for key, keys in self.out_edges.items()}
        copy.in_edges = {key: dict(keys) for key, keys in self.in_edges.items()}
        copy.world = self.world
        return copy

    def _read(self, count: int) -> None:
        self.reads += 1
        self.operations.append(StoreOperation(1, count, 100 * count, 0.1))

    def _pages(self, stored: dict[tuple[Any, Any], Any], wanted: Wanted, copy: Callable[[Any], Any]) -> Any:
        if wanted.references is None:
            found = list(stored)
        elif any(each.partition is ANYWHERE for each in wanted.references):
            ids: dict[Any, list[tuple[Any, Any]]] = {}
            for key in stored:
                ids.setdefault(key[1], []).append(key)
            found = []
            for each in wanted.references:
                found += [key for key in ids.get(each.id, []) if each.partition in (ANYWHERE, key[0])]
        else:
            found = [(each.partition, each.id) for each in wanted.references]
        size = PAGE if wanted.count is None else max(1, min(PAGE, wanted.count))
        at = 0

        async def pull() -> list[Any]:
            nonlocal at
            page: list[Any] = []
            while at < len(found) and len(page) < size:
                element = stored.get(found[at])
                at += 1
                if element is None:
                    continue
                if self.uses_conditions and not all(meets(element, condition) for condition in wanted.conditions):
                    continue
                page.append(copy(element))
            self._read(len(page))
            return page

        return pull

    def vertices(self, wanted: Wanted) -> Callable[[], Awaitable[list[Vertex]]]:
        return self._pages(self.stored_vertices, wanted, copy_vertex)  # type: ignore[no-any-return]

    def edges(self, wanted: Wanted) -> Callable[[], Awaitable[list[Edge]]]:
        return self._pages(self.stored_edges, wanted, copy_edge)  # type: ignore[no-any-return]

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        index = self.out_edges if direction is Direction.OUT else self.in_edges
        found = []
        for vertex in vertices:
            edges: list[Edge] = []
            for key in index.get((vertex.partition, vertex.id), ()):
                edge = self.stored_edges[key]
                if not labels or edge.label in labels:
                    edges.append(copy_edge(edge))
                    if limit is not None and len(edges) >= limit:
                        break
            found.append(edges)
        self._read(sum(map(len, found)))
        return found

    async def load(self, vertices: Sequence[Vertex]) -> None:
        self._read(len(vertices))
        for vertex in vertices:
            stored = self.stored_vertices.get((vertex.partition, vertex.id))
            if stored is not None:
                copy = copy_vertex(stored)
                vertex.label, vertex.properties = copy.label, copy.properties
                for values in (vertex.properties or {}).values():
                    for each in values:
                        each.vertex = vertex

    async def write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            match write:
                case AddVertex(vertex):
                    self._check_free((vertex.partition, vertex.id))
                    self.stored_vertices[(vertex.partition, vertex.id)] = copy_vertex(vertex)
                case ReplaceVertex(vertex):
                    self._check_there(self.stored_vertices, vertex)
                    self.stored_vertices[(vertex.partition, vertex.id)] = copy_vertex(vertex)
                case DropVertex(vertex):
                    key = (vertex.partition, vertex.id)
                    for edge in [*self.out_edges.pop(key, ()), *self.in_edges.pop(key, ())]:
                        self._drop_edge(edge)
                    self.stored_vertices.pop(key, None)
                case AddEdge(edge):
                    self._check_free((edge.partition, edge.id))
                    key = (edge.partition, edge.id)
                    self.stored_edges[key] = copy_edge(edge)
                    for index, end in ((self.out_edges, edge.out_vertex), (self.in_edges, edge.in_vertex)):
                        index.setdefault((end.partition, end.id), {})[key] = None
                case ReplaceEdge(edge):
                    self._check_there(self.stored_edges, edge)
                    self.stored_edges[(edge.partition, edge.id)] = copy_edge(edge)
                case DropEdge(edge):
                    self._drop_edge((edge.partition, edge.id))

    def _drop_edge(self, key: tuple[Any, Any]) -> None:
        edge = self.stored_edges.pop(key, None)
        if edge is not None:
            self.out_edges.get((edge.out_vertex.partition, edge.out_vertex.id), {}).pop(key, None)
            self.in_edges.get((edge.in_vertex.partition, edge.in_vertex.id), {}).pop(key, None)

    def _check_free(self, key: tuple[Any, Any]) -> None:
        if key in self.stored_vertices or key in self.stored_edges:
            raise Failure(
                Kind.CONFLICT, "Conflicting request to resource has been attempted. Retry to avoid conflicts."
            )

    def _check_there(self, stored: dict[tuple[Any, Any], Any], element: Vertex | Edge) -> None:
        if (element.partition, element.id) not in stored:
            raise Failure(Kind.NOT_FOUND, "The element does not exist.")


def copy_vertex(vertex: Vertex) -> Vertex:
    copy = Vertex(vertex.id, vertex.label, vertex.partition, {})
    assert copy.properties is not None
    for key, values in (vertex.properties or {}).items():
        copy.properties[key] = [VertexProperty(each.id, key, each.value, copy, dict(each.meta)) for each in values]
    return copy


def copy_edge(edge: Edge) -> Edge:
    out, into = edge.out_vertex, edge.in_vertex
    return Edge(
        edge.id,
        edge.label,
        Vertex(out.id, out.label, out.partition),
        Vertex(into.id, into.label, into.partition),
        dict(edge.properties or {}),
    )


async def run_script(graph: MemoryGraph, text: str, bindings: dict[str, Any] | None = None) -> list[Any]:
    """All results of a script's last statement."""
    found: list[Any] = []
    for statement in parse(text, bindings):
        found = []
        if statement.transaction is not None:
            continue
        program = compile_traversal(statement.traversal, partition_key=graph.partition_key, element_id=graph.element_id)
        pull = await answer(statement, program.run(graph, graph.world))
        while page := await pull():
            found.extend(page)
    return found
