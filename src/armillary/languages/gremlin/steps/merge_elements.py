"""mergeV() and mergeE(): find an element that matches a map, or create it. The list step merge() is in `lists`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.graph_protocol import (
    AddEdge,
    AddVertex,
    Condition,
    Reference,
    ReplaceEdge,
    ReplaceVertex,
    Wanted,
)
from armillary.languages.gremlin.pipeline import Builder, Pipeline, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.filters import meets
from armillary.languages.gremlin.steps.mutations import (
    Resolved,
    new_edge,
    new_vertex,
    set_edge_property,
    set_property,
    stored_vertex,
)
from armillary.languages.gremlin.steps.navigation import VOID
from armillary.languages.gremlin.syntax.instructions import CardinalityValue, Traversal
from armillary.languages.gremlin.syntax.tokens import Cardinality, Direction, Merge, T
from armillary.languages.gremlin.traversers import Batch, Traverser
from armillary.languages.gremlin.values.comparing import equal, kind_of, shown
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.languages.gremlin.values.predicates import P

_INCOMING: Any = object()
Map = dict[Any, Any]


class MergeStep(WaitingStep):
    is_lazy = True

    def __init__(self, name: str, given: Any) -> None:
        self.name = name
        self.given = given  # a map, a pipeline, or _INCOMING
        self.options: dict[Merge, Any] = {}
        self.cardinalities: dict[Merge, Cardinality] = {}
        self.extra: Map = {}  # the partition property of PartitionStrategy

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name == "property":
            raise compilation(f"property() cannot modulate {self.name}().")
        if name != "option":
            super().modulate(name, arguments, builder)
        merge = arguments.token(Merge)
        if merge in (Merge.inV, Merge.outV) and self.name == "mergeV":
            raise compilation(f"mergeV() does not take option(Merge.{merge.value}).")
        value = arguments.take()
        if isinstance(value, Traversal):
            value = builder.pipeline(value)
        elif value is None:
            value = {}
        elif isinstance(value, dict):
            if merge in (Merge.onCreate, Merge.onMatch):
                self.check(value, merge)
        elif not isinstance(value, Vertex):
            raise compilation(f"option(Merge.{merge.value}) takes a map or a traversal.")
        self.options[merge] = value
        if len(arguments):
            self.cardinalities[merge] = arguments.token(Cardinality)

    def children(self) -> Iterable[Pipeline]:
        found = [each for each in (self.given, *self.options.values()) if isinstance(each, Pipeline)]
        return found

    async def map_of(self, given: Any, traverser: Traverser, run: Run, what: str) -> Map:
        if given is _INCOMING:
            value = traverser.value
        elif isinstance(given, Pipeline):
            first = await given.first(traverser, run)
            if first is None:
                raise execution(f"{what} of {self.name}() gave no result, but a map is needed.")
            value = first.value
        else:
            value = given
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise execution(f"{what} of {self.name}() must be a map, not {kind_of(value)}.")
        return dict(value)

    def check(self, entries: Map, merge: Merge | None) -> None:
        allowed: tuple[Any, ...] = (T.id, T.label)
        if self.name == "mergeE":
            allowed = (*allowed, Direction.OUT, Direction.IN)
        for key, value in entries.items():
            if merge is Merge.onMatch and not isinstance(key, str):
                raise execution(f"option(onMatch) does not allow {_shown(key)}: it cannot be changed.")
            if isinstance(key, str):
                if not key or key.startswith("~"):
                    raise execution(f"Property key can not be a hidden key: {key}.")
            elif key not in allowed:
                raise execution(f"{self.name}() does not allow {_shown(key)} as a key.")
            if key is T.label:
                if value is None or not isinstance(value, str):
                    raise execution(f"{self.name}() does not allow a label of {shown(value)}.")
                if not value or value.startswith("~"):
                    raise execution(f"Label can not be a hidden key: {value}." if value else "Label can not be empty.")
            if key is T.id and value is None:
                raise execution(f"{self.name}() does not allow a null id.")
            if isinstance(key, Direction) and value is None:
                raise execution(f"{self.name}() does not allow null for {_shown(key)}.")

    async def created(self, merge: Map, traverser: Traverser, run: Run) -> Map:
        """The map that a new element is created from."""
        if Merge.onCreate not in self.options:
            return merge
        extra = await self.map_of(self.options[Merge.onCreate], traverser, run, "option(onCreate)")
        self.check(extra, Merge.onCreate)
        for key, value in merge.items():
            if key in extra and not _is_same(value, extra[key]):
                raise execution(f"option(onCreate) cannot override values from merge() argument: ({_shown(key)}).")
        return {**merge, **extra}

    async def matched(self, element: Vertex | Edge, traverser: Traverser, run: Run) -> list[Resolved]:
        """The properties that option(onMatch) sets. If mergeV() or mergeE() is the first step, the traversal of the
        option starts from the element, otherwise from the incoming value, which may not be an element: TinkerPop 3.7
        refuses that as ambiguous.
        """
        option = self.options[Merge.onMatch]
        if isinstance(option, Pipeline):
            if traverser.value is VOID:
                traverser = traverser.with_value(element)
            elif isinstance(traverser.value, Vertex | Edge):
                step = "MergeVertexStep" if self.name == "mergeV" else "MergeEdgeStep"
                raise execution(f"The incoming traverser for {step} cannot be an Element.")
        changes = await self.map_of(option, traverser, run, "option(onMatch)")
        self.check(changes, Merge.onMatch)
        return self.resolved(changes, Merge.onMatch)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            if self.given is _INCOMING and each.value is VOID:
                raise compilation(f"{self.name}() without arguments needs a map as the incoming value.")
            merge = {**await self.map_of(self.given, each, run, "The argument"), **self.extra}
            self.check(merge, None)
            found.extend(each.to(element) for element in await self.merged(merge, each, run))
        return found

    async def merged(self, merge: Map, traverser: Traverser, run: Run) -> Sequence[Vertex | Edge]:
        """The elements that match the map, or the one created from it."""
        raise NotImplementedError

    def resolved(self, entries: Map, merge: Merge | None) -> list[Resolved]:
        found = []
        cardinality = self.cardinalities.get(merge) if merge is not None else None
        for key, value in entries.items():
            if isinstance(value, CardinalityValue):
                found.append(Resolved(value.cardinality, key, value.value, {}))
            else:
                found.append(Resolved(cardinality if isinstance(key, str) else None, key, value, {}))
        return found


def _shown(key: Any) -> str:
    return f"{key.family}.{key.value}" if hasattr(key, "family") else repr(key)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Vertex) and isinstance(other, Vertex):
        return bool(one.id == other.id)
    return equal(_plain(one), _plain(other))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, CardinalityValue) else value


def _conditions(entries: Map) -> tuple[Condition, ...]:
    return tuple(
        Condition(key, P("eq", _plain(value)))
        for key, value in entries.items()
        if isinstance(key, str) or key is T.label
    )


async def found_vertices(entries: Map, run: Run) -> list[Vertex]:
    """The vertices that match a map by id, label and one value of each property."""
    references = None
    if T.id in entries:
        references = (Reference(run.graph.element_id(entries[T.id])),)
    conditions = _conditions(entries)
    pages = run.graph.vertices(Wanted(references, conditions))
    found: list[Vertex] = []
    while page := await pages():
        known: list[Vertex] = run.known(page)
        found.extend(each for each in known if all(meets(each, one) for one in conditions))
        await run.breathe()
    return found


class MergeVertexStep(MergeStep):
    async def merged(self, merge: Map, traverser: Traverser, run: Run) -> list[Vertex]:
        matches = await found_vertices(merge, run)
        if not matches:
            entries = await self.created(merge, traverser, run)
            assignments = self.resolved(entries, Merge.onCreate)
            vertex = new_vertex(None, assignments, run)
            await run.write([AddVertex(vertex)])
            run.remember(vertex)
            return [vertex]
        if Merge.onMatch in self.options:
            for vertex in matches:
                for one in await self.matched(vertex, traverser, run):
                    set_property(vertex, one, run)
            await run.write([ReplaceVertex(vertex) for vertex in matches])
        return matches


class MergeEdgeStep(MergeStep):
    async def _end(self, value: Any, direction: Direction, traverser: Traverser, run: Run, is_needed: bool) -> Any:
        """The vertex that a map gives for one end: an id, a vertex or option(Merge.outV). None if it does not exist."""
        if value is Merge.outV or value is Merge.inV:
            if value is not (Merge.outV if direction is Direction.OUT else Merge.inV):
                raise execution(
                    f"Only Merge.{'outV' if direction is Direction.OUT else 'inV'} goes with {direction.value}."
                )
            if value not in self.options:
                raise execution(f"option(Merge.{value.value}) is missing.")
            option = self.options[value]
            if isinstance(option, Pipeline):
                first = await option.first(traverser, run)
                option = first.value if first is not None else None
            if isinstance(option, dict):
                matches = await found_vertices(option, run)
                value = matches[0] if matches else None
            elif isinstance(option, Vertex):
                value = option
            elif option is None:
                value = None
            else:
                raise execution(f"option(Merge.{value.value}) came to no map and no vertex.")
        elif not isinstance(value, Vertex) and value is not None:
            pages = run.graph.vertices(Wanted((_reference(value, run),)))
            matches = run.known(await pages())
            value = matches[0] if matches else None
        if value is None and is_needed:
            raise execution(
                f"Vertex id could not be resolved from mergeE: the {direction.value} vertex does not exist."
            )
        return await stored_vertex(value, "mergeE()", run) if value is not None else None

    async def merged(self, merge: Map, traverser: Traverser, run: Run) -> list[Edge]:
        ends: dict[Direction, Any] = {}
        for direction in (Direction.OUT, Direction.IN):
            if direction in merge:
                ends[direction] = await self._end(merge[direction], direction, traverser, run, False)
        matches = await self._matches(merge, ends, run)
        if matches:
            if Merge.onMatch in self.options:
                for edge in matches:
                    changes = await self.matched(edge, traverser, run)
                    if edge.properties is None:
                        edge.properties = {}
                    for one in changes:
                        set_edge_property(edge.properties, one)
                await run.write([ReplaceEdge(edge) for edge in matches])
            return matches
        entries = await self.created(merge, traverser, run)
        for direction in (Direction.OUT, Direction.IN):
            if direction in entries:
                ends[direction] = await self._end(entries[direction], direction, traverser, run, True)
            elif ends.get(direction) is None:
                side = "Out" if direction is Direction.OUT else "In"
                raise execution(f"{side} Vertex not specified in onCreate - edge cannot be created.")
        rest = {key: value for key, value in entries.items() if not isinstance(key, Direction)}
        if T.label not in rest:
            rest[T.label] = "edge"
        edge = new_edge("edge", ends[Direction.OUT], ends[Direction.IN], self.resolved(rest, None), run)
        await run.write([AddEdge(edge)])
        run.remember(edge)
        return [edge]

    async def _matches(self, merge: Map, ends: dict[Direction, Any], run: Run) -> list[Edge]:
        if any(direction in ends and ends[direction] is None for direction in ends):
            return []
        out, into = ends.get(Direction.OUT), ends.get(Direction.IN)
        conditions = _conditions(merge)
        labels = (merge[T.label],) if T.label in merge else ()
        found: list[Edge] = []
        if T.id in merge:
            wanted = Wanted((Reference(run.graph.element_id(merge[T.id])),), conditions)
            found = run.known(await run.graph.edges(wanted)())
        elif out is not None:
            found = (await run.adjacent([out], Direction.OUT, labels))[0]
        elif into is not None:
            found = (await run.adjacent([into], Direction.IN, labels))[0]
        else:
            pages = run.graph.edges(Wanted(None, conditions))
            while page := await pages():
                found.extend(run.known(page))
                await run.breathe()
        return [
            edge
            for edge in found
            if (out is None or edge.out_vertex == out)
            and (into is None or edge.in_vertex == into)
            and all(meets(edge, one) for one in conditions)
        ]


def _reference(value: Any, run: Run) -> Reference:
    if isinstance(value, list) and len(value) == 2 and run.graph.partition_key is not None:
        return Reference(run.graph.element_id(value[1]), value[0])
    return Reference(run.graph.element_id(value))


@builds("mergeV", "mergeE")
def _merge(builder: Builder, arguments: Arguments) -> Step:
    step = MergeVertexStep if arguments.step == "mergeV" else MergeEdgeStep
    if not len(arguments):
        return step(arguments.step, _INCOMING)
    value = arguments.take()
    if isinstance(value, Traversal):
        return step(arguments.step, builder.pipeline(value))
    if value is not None and not isinstance(value, dict):
        raise compilation(f"{arguments.step}() takes a map or a traversal, not {shown(value)}.")
    return step(arguments.step, value or {})
