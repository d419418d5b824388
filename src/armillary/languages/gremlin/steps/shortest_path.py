"""shortestPath(): all shortest paths from each vertex to every reachable vertex, or to given targets.

Runs without a graph computer: from each start the vertices are visited by distance, and the edges of all vertices at
one distance are read in one request.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

from armillary.languages.gremlin.by_modulators import By, make_by
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import Builder, Pipeline, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run, vertex_key
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal
from armillary.languages.gremlin.syntax.tokens import CONSTANTS, Direction
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import is_number, kind_of
from armillary.languages.gremlin.values.elements import Edge, Path, Vertex

_OPTIONS: Final = {
    CONSTANTS[f"ShortestPath.{name}"]: name for name in ("target", "edges", "distance", "maxDistance", "includeEdges")
}


class _Reached:
    """A reached vertex, its distance, and the last edges of all shortest paths to it."""

    __slots__ = ("distance", "vertex", "ways")

    def __init__(self, vertex: Vertex, distance: float) -> None:
        self.vertex = vertex
        self.distance = distance
        self.ways: list[tuple[Any, Edge]] = []  # the key of the vertex before, and the edge


class ShortestPathStep(WaitingStep):
    name = "shortestPath"

    def __init__(self, edges: Pipeline) -> None:
        self.edges = edges
        self.target: Pipeline | None = None
        self.distance: By | None = None
        self.distance_max: float | None = None
        self.includes_edges = False

    def children(self) -> Iterable[Pipeline]:
        own = [self.edges, *([self.target] if self.target is not None else [])]
        return [*own, *([self.distance.pipeline] if self.distance is not None and self.distance.pipeline else [])]

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "with":
            super().modulate(name, arguments, builder)
        option = _OPTIONS.get(arguments.text())
        if option == "target":
            self.target = builder.pipeline(arguments.traversal())
        elif option == "edges":
            if arguments.is_next(Direction):
                step = Instruction("toE", [arguments.token(Direction)])
                self.edges = builder.pipeline(Traversal([], [step]))
            else:
                self.edges = builder.pipeline(arguments.traversal())
        elif option == "distance":
            self.distance = make_by(arguments, builder)
        elif option == "maxDistance":
            value = arguments.take()
            if not is_number(value):
                raise compilation("maxDistance is a number.")
            self.distance_max = float(value)
        elif option == "includeEdges":
            self.includes_edges = arguments.take() is not False if len(arguments) else True
        else:
            raise compilation("shortestPath() does not know that option of with().")

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            if not isinstance(each.value, Vertex):
                raise execution(f"shortestPath() is for vertices, not for {kind_of(each.value)}.")
            reached = await self._reached(each, run)
            for key, place in reached.items():
                if self.target is None or await self.target.first(each.with_value(place.vertex), run) is not None:
                    found.extend(each.to(path) for path in self._paths(key, reached, run))
        return found

    async def _reached(self, start: Traverser, run: Run) -> dict[Any, _Reached]:
        reached = {vertex_key(start.value): _Reached(start.value, 0.0)}
        waiting: list[tuple[float, int, Any]] = [(0.0, 0, vertex_key(start.value))]
        order = 0
        done: set[Any] = set()
        while waiting:
            await run.breathe()
            nearest = waiting[0][0]
            level = []
            while waiting and waiting[0][0] == nearest:
                key = heapq.heappop(waiting)[2]
                if key not in done:
                    done.add(key)
                    level.append((key, start.with_value(reached[key].vertex)))
            await self.edges.prepare([each for _, each in level], run)
            for key, each in level:
                for edge in await self.edges.results(each, run):
                    other, distance = await self._end(edge.value, each, run)
                    distance += nearest
                    if self.distance_max is not None and distance > self.distance_max + 1e-9:
                        continue
                    other_key = vertex_key(other)
                    known = reached.get(other_key)
                    if known is None or distance < known.distance - 1e-9:
                        known = reached[other_key] = _Reached(other, distance)
                        order += 1
                        heapq.heappush(waiting, (distance, order, other_key))
                        run.hold(1)
                    elif distance > known.distance + 1e-9 or other_key in done:
                        continue
                    known.ways.append((key, edge.value))
        run.release(len(reached))
        return reached

    async def _end(self, edge: Any, traverser: Traverser, run: Run) -> tuple[Vertex, float]:
        if not isinstance(edge, Edge):
            raise execution("The edges of shortestPath() must be given by a traversal to edges.")
        other = edge.in_vertex if edge.out_vertex == traverser.value else edge.out_vertex
        if self.distance is None:
            return other, 1.0
        value = await self.distance.of(edge, traverser, run)
        if value is MISSING or not is_number(value) or value < 0:
            raise execution("The distance of shortestPath() is a number that is not less than 0.")
        return other, float(value)

    def _paths(self, key: Any, reached: dict[Any, _Reached], run: Run) -> Iterable[Path]:
        """Builds the paths by walking back over the last edges."""
        waiting: list[tuple[Any, list[Any]]] = [(key, [reached[key].vertex])]
        while waiting:
            at, objects = waiting.pop()
            place = reached[at]
            if not place.ways:
                run.hold(1)
                yield Path(objects[::-1], [()] * len(objects))
            for before, edge in place.ways:
                added = [edge, reached[before].vertex] if self.includes_edges else [reached[before].vertex]
                waiting.append((before, [*objects, *added]))


@builds("shortestPath")
def _shortest_path(builder: Builder, arguments: Arguments) -> Step:
    return ShortestPathStep(builder.pipeline(Traversal([], [Instruction("bothE", [])])))
