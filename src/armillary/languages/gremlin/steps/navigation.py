"""Steps that navigate the graph: V(), E(), out(), in(), both(), outE(), outV(), otherV() and the like; inject() and
subgraph(). Each makes one request for a whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.graph_protocol import Condition, Reference, Wanted
from armillary.languages.gremlin.pipeline import (
    WHOLE_PATH,
    Builder,
    Flow,
    Pipeline,
    PlainStep,
    Scope,
    Step,
    WaitingStep,
    builds,
)
from armillary.languages.gremlin.run import Run, vertex_key
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.traversers import Batch, Traverser
from armillary.languages.gremlin.values.comparing import kind_of, shown
from armillary.languages.gremlin.values.elements import Edge, Subgraph, Vertex
from armillary.languages.gremlin.values.predicates import P

_SLICE: Final = 64  # vertices whose edges are processed between two checks of the time limit


class Void:
    """The value of the traverser that enters the first step; no step can see it."""

    def __repr__(self) -> str:
        return "nothing"


VOID = Void()


class GraphStep(Step):
    """V() and E(), at the start or in the middle of a traversal. Conditions come from the has() steps that follow
    (`optimiser`).
    """

    def __init__(self, name: str, references: list[Reference] | None) -> None:
        self.name = name
        self.references = tuple(references) if references is not None else None
        self.conditions: tuple[Condition, ...] = ()
        self.count: int | None = None

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.references, self.conditions, self.count)

    def starting_at(self, references: tuple[Reference, ...]) -> GraphStep:
        """The same step with other ids."""
        made = GraphStep.__new__(GraphStep)
        made.__dict__.update(self.__dict__)
        made.references = references
        return made

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        waiting: Batch = []
        batch: Batch = []
        pages: Any = None

        async def pull() -> Batch:
            nonlocal waiting, batch, pages
            while True:
                await run.breathe()
                if pages is None:
                    if not waiting:
                        waiting = await source()
                        if not waiting:
                            return []
                    # All traversers of a batch share the pages that are read. The batch is small, since each traverser
                    # is combined with each element.
                    batch, waiting = waiting[: limits.GREMLIN_BATCH], waiting[limits.GREMLIN_BATCH :]
                    if self.references is not None and not self.references:
                        continue
                    pages = run.graph.vertices(self.wanted) if self.name == "V" else run.graph.edges(self.wanted)
                run.request_count += 1
                page = run.known(await pages())
                if not page:
                    pages = None
                elif len(batch) == 1:
                    go = batch[0].to
                    return [go(element) for element in page]
                else:
                    return run.merged([traverser.to(element) for traverser in batch for element in page])

        return pull

    def describe(self) -> str:
        ids = [] if self.references is None else [str(each.id) for each in self.references]
        more = [f"{c.key if isinstance(c.key, str) else '~' + c.key.value}.{c.predicate!r}" for c in self.conditions]
        return f"{self.name}({', '.join([*ids, *more])})"


@builds("V", "E")
def _graph(builder: Builder, arguments: Arguments) -> Step:
    if not len(arguments):
        return GraphStep(arguments.step, None)
    return GraphStep(arguments.step, builder.references(arguments.rest()))


class VertexStep(Step):
    """out(), in(), both(), outE(), inE(), bothE(), toE(): edges of vertices, or the vertices at their other ends."""

    def __init__(self, name: str, direction: Direction, labels: tuple[str, ...], gives_edges: bool) -> None:
        self.name = name
        self.direction = direction
        self.edge_labels = labels
        self.gives_edges = gives_edges
        self.limit: int | None = None  # the most edges of each vertex that are needed
        self.is_hurried = False  # whether a limit() follows, so that early results matter more than full batches
        self.matches_nothing = False
        self.edge_filter: Pipeline | None = None  # of SubgraphStrategy and PartitionStrategy

    def children(self) -> Iterable[Pipeline]:
        return (self.edge_filter,) if self.edge_filter is not None else ()

    def describe(self) -> str:
        return f"{self.name}({','.join(self.edge_labels)})"

    async def prepare(self, batch: Batch, run: Run) -> None:
        if not self.matches_nothing:
            await run.prefetch([each.value for each in batch], self.direction, self.edge_labels, self.limit)

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if run.is_merging and not self.is_hurried:
            return self._merging_flow(source, run)
        waiting: Batch = []
        pace = 1 if self.is_hurried else limits.GREMLIN_BATCH

        async def pull() -> Batch:
            nonlocal waiting, pace
            while True:
                if not waiting:
                    waiting = await source()
                    if not waiting:
                        return []
                await run.breathe()
                now, waiting = waiting[:pace], waiting[pace:]
                pace = min(pace * 4, limits.GREMLIN_BATCH)
                found: Batch = []
                for direction, edges_of in await self._edges(now, run):
                    is_out = direction is Direction.OUT
                    for each in now:
                        go = each.to
                        for edge in edges_of[vertex_key(each.value)]:
                            if self.gives_edges:
                                found.append(go(edge))
                            else:
                                found.append(go(edge.in_vertex if is_out else edge.out_vertex))
                if found:
                    return found

        return pull

    def _merging_flow(self, source: Flow, run: Run) -> Flow:
        """Holds results back, up to a limit, to merge equal ones, so that the next step requests each vertex once."""
        waiting: Batch = []
        ready: Batch = []
        is_over = False
        least = 1 if run.is_singly else limits.GREMLIN_EDGES_BATCH  # vertices in one request

        async def pull() -> Batch:
            nonlocal waiting, ready, is_over
            if not ready:
                ready = await gather()
            given, ready = ready[: limits.GREMLIN_EDGES_BATCH], ready[limits.GREMLIN_EDGES_BATCH :]
            return given

        async def gather() -> Batch:
            nonlocal waiting, is_over
            found: dict[Any, Traverser] = {}
            while (waiting or not is_over) and len(found) < limits.GREMLIN_MERGE:
                while not is_over and len(waiting) < least:
                    more = await source()
                    is_over = not more
                    waiting = waiting + more if waiting else more
                await run.breathe()
                now, waiting = waiting[: limits.GREMLIN_EDGES_BATCH], waiting[limits.GREMLIN_EDGES_BATCH :]
                for direction, edges_of in await self._edges(now, run):
                    for at in range(0, len(now), _SLICE):
                        await run.breathe()
                        if self.gives_edges:
                            for each in now[at : at + _SLICE]:
                                run.merge(found, [each.to(edge) for edge in edges_of[vertex_key(each.value)]])
                        else:
                            run.merge_ends(found, now[at : at + _SLICE], edges_of, direction)
            return list(found.values())

        return pull

    async def _edges(self, batch: Batch, run: Run) -> list[tuple[Direction, dict[Any, list[Edge]]]]:
        """The edges of all vertices of a batch, for each direction."""
        if self.matches_nothing:
            return []
        unique: dict[Any, Vertex] = {}
        for each in batch:
            vertex = each.value
            if type(vertex) is not Vertex:
                raise execution(f"{self.name}() is for vertices, not for {kind_of(vertex)} {shown(vertex):.60}.")
            unique[vertex_key(vertex)] = vertex
        found = []
        for direction in (Direction.OUT, Direction.IN) if self.direction is Direction.BOTH else (self.direction,):
            edges = await run.adjacent(list(unique.values()), direction, self.edge_labels, self.limit)
            edges_of = dict(zip(unique, edges, strict=True))
            if self.edge_filter is not None:
                await self._filter(edges_of, run)
            found.append((direction, edges_of))
        return found

    async def exists(self, batch: Batch, run: Run) -> set[Any]:
        """The keys of the vertices of a batch that have a matching edge."""
        found: set[Any] = set()
        for _, edges_of in await self._edges(batch, run):
            found.update(key for key, edges in edges_of.items() if edges)
        return found

    async def _filter(self, edges_of: dict[Any, list[Edge]], run: Run) -> None:
        assert self.edge_filter is not None
        for vertex, edges in edges_of.items():
            edges_of[vertex] = [
                edge for edge in edges if await self.edge_filter.first(Traverser(edge), run) is not None
            ]


def _vertex_step(name: str, direction: Direction, labels: list[Any], gives_edges: bool) -> VertexStep:
    given = Arguments(name, labels)
    texts = given.texts()
    step = VertexStep(name, direction, tuple(sorted(set(texts))), gives_edges)
    step.matches_nothing = bool(labels) and not texts and labels != [[]]
    return step


@builds("out", "in", "both", "outE", "inE", "bothE")
def _adjacent(builder: Builder, arguments: Arguments) -> Step:
    direction = {"o": Direction.OUT, "i": Direction.IN, "b": Direction.BOTH}[arguments.step[0]]
    return _vertex_step(arguments.step, direction, arguments.rest(), arguments.step.endswith("E"))


@builds("toE")
def _to_edge(builder: Builder, arguments: Arguments) -> Step:
    direction = arguments.token(Direction)
    return _vertex_step("toE", direction, arguments.rest(), True)


def to_vertices(direction: Direction, labels: list[Any]) -> Step:
    """`to(Direction, labels…)`, the general form of out()."""
    return _vertex_step("to", direction, labels, False)


class EndStep(PlainStep):
    """outV, inV, bothV, toV."""

    def __init__(self, name: str, direction: Direction) -> None:
        self.name = name
        self.direction = direction

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            edge = each.value
            if type(edge) is not Edge:
                raise execution(f"{self.name}() is for edges, not for {kind_of(edge)} {shown(edge):.60}.")
            if self.direction is not Direction.IN:
                found.append(each.to(edge.out_vertex))
            if self.direction is not Direction.OUT:
                found.append(each.to(edge.in_vertex))
        return found


class OtherEndStep(PlainStep):
    """otherV(): the end of the edge that the traverser did not come from."""

    name = "otherV"
    needs_path = WHOLE_PATH

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            edge = each.value
            if type(edge) is not Edge:
                raise execution(f"otherV() is for edges, not for {kind_of(edge)} {shown(edge):.60}.")
            place = each.path
            while place is not None and type(place.value) is not Vertex:
                place = place.before
            if place is None:
                raise execution("otherV() needs a vertex that the edge was reached from.")
            found.append(each.to(edge.in_vertex if edge.out_vertex == place.value else edge.out_vertex))
        return found


@builds("outV", "inV", "bothV")
def _end(builder: Builder, arguments: Arguments) -> Step:
    direction = {"o": Direction.OUT, "i": Direction.IN, "b": Direction.BOTH}[arguments.step[0]]
    return EndStep(arguments.step, direction)


@builds("toV")
def _to_vertex(builder: Builder, arguments: Arguments) -> Step:
    return EndStep("toV", arguments.token(Direction))


@builds("otherV")
def _other(builder: Builder, arguments: Arguments) -> Step:
    return OtherEndStep()


class InjectStep(Step):
    """inject(…): adds values before the input."""

    name = "inject"

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.is_behind = False  # at the start of a child traversal its values come after the input

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        is_due = bool(self.values)

        async def pull() -> Batch:
            nonlocal is_due
            if is_due and not self.is_behind:
                is_due = False
                return [run.start(value) for value in self.values]
            while batch := await source():
                found = [each for each in batch if each.value is not VOID]
                if found:
                    return found
            if is_due:
                is_due = False
                return [run.start(value) for value in self.values]
            return []

        return pull


@builds("inject")
def _inject(builder: Builder, arguments: Arguments) -> Step:
    return InjectStep(arguments.rest())


class SubgraphStep(WaitingStep):
    """subgraph('x'): collects edges and their vertices in a side effect."""

    name = "subgraph"
    is_lazy = True

    def __init__(self, key: str) -> None:
        self.key = key

    def register(self, run: Run) -> None:
        if not isinstance(run.side_effects.values.get(self.key), Subgraph):
            run.side_effects.values[self.key] = Subgraph()

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        graph = run.side_effects.values[self.key]
        for each in batch:
            if type(each.value) is not Edge:
                raise execution("com.tinkerpop: subgraph() is for edges.")
            graph.add(each.value)
        await run.load([end for each in batch for end in (each.value.out_vertex, each.value.in_vertex)])
        run.hold(len(batch))
        return batch


@builds("subgraph")
def _subgraph(builder: Builder, arguments: Arguments) -> Step:
    return SubgraphStep(arguments.text())


def references_of(values: list[Any], builder: Any, *, flattens_always: bool) -> list[Reference]:
    """Implements `pipeline.Builder.references`. In a partitioned graph a list of two is a partition key and an id;
    otherwise a list stands for the ids in it.
    """
    found: list[Reference] = []
    if builder.partition_key is None:
        if len(values) == 1 and isinstance(values[0], list):
            values = values[0]
        elif flattens_always:
            values = [each for value in values for each in (value if isinstance(value, list) else [value])]
    for value in values:
        found.extend(_references(value, builder, True))
    return found


def _references(value: Any, builder: Any, is_outer: bool) -> list[Reference]:
    if value is None:
        return []
    if isinstance(value, Vertex | Edge):
        if value.partition is None:
            return [Reference(builder.element_id(value.id))]
        return [Reference(builder.element_id(value.id), value.partition)]
    if isinstance(value, list) and builder.partition_key is not None and is_outer:
        if len(value) == 2 and not any(isinstance(each, list) for each in value):
            return [Reference(builder.element_id(value[1]), value[0])]
        return [reference for each in value for reference in _references(each, builder, isinstance(each, list))]
    if isinstance(value, list | dict | Traversal | P):
        raise compilation(f"{str(value)[:60]} is not an id.")
    return [Reference(builder.element_id(value))]
