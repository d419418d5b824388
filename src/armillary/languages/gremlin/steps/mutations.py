"""addV(), addE(), property() and drop(). The writes of a batch of traversers are one request to the graph; property()
steps directly after addV(), addE() or another property() are part of the same write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.graph_protocol import (
    AddEdge,
    AddVertex,
    DropEdge,
    DropVertex,
    Reference,
    ReplaceEdge,
    ReplaceVertex,
    Wanted,
    Write,
)
from armillary.languages.gremlin.pipeline import LABELLED_PATH, Builder, Pipeline, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.navigation import VOID
from armillary.languages.gremlin.steps.select_and_where import scope_value
from armillary.languages.gremlin.syntax.instructions import CardinalityValue, Traversal
from armillary.languages.gremlin.syntax.tokens import Cardinality, T
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import equal, is_number, kind_of, shown, text_of
from armillary.languages.gremlin.values.elements import Edge, Property, Vertex, VertexProperty


class Assignment:
    """property(…): cardinality, key, value and meta-properties. Keys and values may be traversals."""

    def __init__(self, cardinality: Cardinality | None, key: Any, value: Any, meta: list[tuple[Any, Any]]) -> None:
        self.cardinality = cardinality
        self.key = key
        self.value = value
        self.meta = meta

    def pipelines(self) -> list[Pipeline]:
        return [
            each
            for each in (self.key, self.value, *(value for pair in self.meta for value in pair))
            if isinstance(each, Pipeline)
        ]


class Resolved:
    """An assignment whose traversals have been evaluated."""

    __slots__ = ("cardinality", "key", "meta", "value")

    def __init__(self, cardinality: Cardinality | None, key: Any, value: Any, meta: dict[str, Any]) -> None:
        self.cardinality = cardinality
        self.key = key
        self.value = value
        self.meta = meta


async def resolve(assignments: list[Assignment], traverser: Traverser, run: Run) -> list[Resolved]:
    found: list[Resolved] = []
    for each in assignments:
        key = await _known(each.key, traverser, run)
        value = await _known(each.value, traverser, run)
        if key is MISSING or value is MISSING:
            continue
        meta: dict[str, Any] = {}
        for name, content in each.meta:
            name, content = await _known(name, traverser, run), await _known(content, traverser, run)
            if name is not MISSING and content is not MISSING:
                meta[_property_name(name)] = content
        if key is None and isinstance(value, dict):
            for name, content in value.items():
                cardinality = each.cardinality
                if isinstance(content, CardinalityValue):
                    cardinality, content = content.cardinality, content.value
                found.append(Resolved(cardinality, name, content, {}))
        else:
            found.append(Resolved(each.cardinality, key, value, meta))
    return found


async def _known(value: Any, traverser: Traverser, run: Run) -> Any:
    if not isinstance(value, Pipeline):
        return value
    result = await value.first(traverser, run)
    return MISSING if result is None else result.value


def _property_name(key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise execution(f"A property's name is a text, not {shown(key)}.")
    if key.startswith("~"):
        raise execution(f"Property key can not be a hidden key: {key}.")
    return key


def make_assignments(arguments: Arguments, builder: Builder) -> list[Assignment]:
    cardinality = arguments.token(Cardinality) if arguments.is_next(Cardinality) else None
    values = [builder.pipeline(each) if isinstance(each, Traversal) else each for each in arguments.rest()]
    if len(values) == 1:
        if values[0] is not None and not isinstance(values[0], dict):
            raise compilation("property() takes a key and a value, or a map.")
        return [Assignment(cardinality, None, values[0] or {}, [])]
    if not values or len(values) % 2:
        raise compilation("property() takes keys and values in pairs.")
    if isinstance(values[1], CardinalityValue):
        cardinality, values[1] = values[1].cardinality, values[1].value
    meta = [(values[at], values[at + 1]) for at in range(2, len(values), 2)]
    return [Assignment(cardinality, values[0], values[1], meta)]


def set_property(vertex: Vertex, each: Resolved, run: Run) -> None:
    """Changes one property of a vertex in memory; the caller writes the vertex."""
    key, value = _property_name(each.key), each.value
    properties = vertex.properties
    assert properties is not None
    partition_key = run.graph.partition_key
    if key == partition_key:
        known = properties.get(key)
        if known and not equal(known[0].value, value):
            raise execution(f"The partition key property '{key}' of a vertex cannot be changed.")
        if not isinstance(value, str | bool) and not is_number(value):
            raise execution(f"Cannot add a vertex where the partition key property has value '{text_of(value):.60}'.")
    cardinality = each.cardinality or Cardinality.single
    if value is None:
        if cardinality is Cardinality.single:
            properties.pop(key, None)
        return
    known = properties.get(key, [])
    if cardinality is Cardinality.set:
        for one in known:
            if equal(one.value, value):
                one.meta.update(each.meta)
                return
    id = f"{vertex.id}|{key}" if key == partition_key else run.environment.guid()
    meta = {name: content for name, content in each.meta.items() if content is not None}
    new = VertexProperty(id, key, value, vertex, meta)
    properties[key] = [new] if cardinality is Cardinality.single else [*known, new]


def new_vertex(label: str | None, assignments: list[Resolved], run: Run) -> Vertex:
    """A new vertex of addV() or mergeV(), not yet written."""
    id: Any = None
    given: list[Resolved] = []
    for each in assignments:
        if each.key is T.id or each.key == "id":
            id = each.value
        elif each.key is T.label:
            label = each.value
        elif each.key == "label":
            raise execution("The label is given to addV(), not as a property.")
        elif isinstance(each.key, T):
            raise execution(f"T.{each.key.value} is not a property.")
        else:
            given.append(each)
    if label is None:
        label = "vertex"
    vertex = Vertex(run.environment.guid() if id is None else run.graph.element_id(id), _label(label), None, {})
    partition_key = run.graph.partition_key
    for each in given:
        set_property(vertex, each, run)
    if partition_key is not None:
        values = (vertex.properties or {}).get(partition_key)
        if not values:
            raise execution("Cannot add a vertex where the partition key property has value 'null'.")
        vertex.partition = values[0].value
    return vertex


def _label(label: Any) -> str:
    if not isinstance(label, str) or not label:
        raise execution(f"A label is a text that is not empty, not {shown(label)}.")
    if label.startswith("~"):
        raise execution(f"Label can not be a hidden key: {label}.")
    return label


def new_edge(label: Any, out: Vertex, into: Vertex, assignments: list[Resolved], run: Run) -> Edge:
    id: Any = None
    properties: dict[str, Any] = {}
    for each in assignments:
        if each.key is T.id or each.key == "id":
            id = each.value
        elif each.key is T.label:
            label = each.value
        else:
            set_edge_property(properties, each)
    return Edge(
        run.environment.guid() if id is None else run.graph.element_id(id), _label(label), out, into, properties
    )


def set_edge_property(properties: dict[str, Any], each: Resolved) -> None:
    key = _property_name(each.key)
    if each.cardinality not in (None, Cardinality.single) or each.meta:
        raise execution("Edges have neither cardinalities nor meta-properties.")
    if key == "label":
        raise execution("The label of an edge cannot be set as a property.")
    if each.value is None:
        properties.pop(key, None)
    else:
        properties[key] = each.value


class WritingStep(WaitingStep):
    """A step whose write includes the property() steps that follow it."""

    is_lazy = True

    def __init__(self) -> None:
        self.assignments: list[Assignment] = []

    def children(self) -> Iterable[Pipeline]:
        return [pipeline for each in self.assignments for pipeline in each.pipelines()]


class AddVertexStep(WritingStep):
    name = "addV"

    def __init__(self, label: str | Pipeline | None) -> None:
        super().__init__()
        self.label = label

    def children(self) -> Iterable[Pipeline]:
        return [*([self.label] if isinstance(self.label, Pipeline) else []), *super().children()]

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        writes: list[Write] = []
        for each in batch:
            label = await _known(self.label, each, run)
            if label is MISSING:
                raise execution("The label traversal of addV() has no result.")
            assignments = await resolve(self.assignments, each, run)
            for _ in range(each.bulk):
                vertex = new_vertex(label, assignments, run)
                writes.append(AddVertex(vertex))
                new = each.to(vertex)
                new.bulk = 1
                found.append(new)
        await run.write(writes)
        for each in found:
            run.remember(each.value)
        return found


@builds("addV")
def _add_vertex(builder: Builder, arguments: Arguments) -> Step:
    if not len(arguments):
        return AddVertexStep(None)
    if arguments.is_next(Traversal):
        return AddVertexStep(builder.pipeline(arguments.traversal()))
    return AddVertexStep(_label(arguments.text()))


class AddEdgeStep(WritingStep):
    name = "addE"
    needs_path = LABELLED_PATH

    def __init__(self, label: str | Pipeline) -> None:
        super().__init__()
        self.label = label
        self.out: Any = None  # a label, a traversal or a vertex; None: the traverser's vertex
        self.into: Any = None

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name not in ("from", "to"):
            super().modulate(name, arguments, builder)
        value = arguments.take()
        if isinstance(value, Traversal):
            value = builder.pipeline(value)
        elif not isinstance(value, str | Vertex):
            raise compilation(f"{name}() takes a label, a traversal or a vertex, not {shown(value)}.")
        if name == "from":
            self.out = value
        else:
            self.into = value

    def children(self) -> Iterable[Pipeline]:
        own = [each for each in (self.label, self.out, self.into) if isinstance(each, Pipeline)]
        return [*own, *super().children()]

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        writes: list[Write] = []
        for each in batch:
            label = await _known(self.label, each, run)
            if label is MISSING:
                raise execution("The label traversal of addE() has no result.")
            out = await self._end(self.out, each, "from", run)
            into = await self._end(self.into, each, "to", run)
            assignments = await resolve(self.assignments, each, run)
            for _ in range(each.bulk):
                edge = new_edge(label, out, into, assignments, run)
                writes.append(AddEdge(edge))
                new = each.to(edge)
                new.bulk = 1
                found.append(new)
        await run.write(writes)
        for each in found:
            run.remember(each.value)
        return found

    async def _end(self, end: Any, traverser: Traverser, name: str, run: Run) -> Vertex:
        value = end
        if end is None:
            value = traverser.value
        elif isinstance(end, Pipeline):
            first = await end.first(traverser, run)
            if first is None:
                raise execution(f"The provided traverser of addE().{name}() does not map to a value.")
            value = first.value
        elif isinstance(end, str):
            value = await scope_value(traverser, end, run)
            if value is MISSING:
                raise execution(f"The label '{end}' of addE().{name}() is nowhere on the path.")
        return await stored_vertex(value, f"addE().{name}()", run)


async def stored_vertex(value: Any, what: str, run: Run) -> Vertex:
    """A stored vertex: the element itself, or read by id if a client sent a reference."""
    if isinstance(value, Vertex):
        if value.properties is None and (value.partition is not None or run.graph.partition_key is None):
            await run.load((value,))
        if value.properties is not None:
            return value
        found = run.known(await run.graph.vertices(Wanted((Reference(run.graph.element_id(value.id)),)))())
        if found:
            return found[0]  # type: ignore[no-any-return]
        raise execution(f"{what}: the vertex {value.id!r} does not exist.")
    if value is VOID:
        raise execution(f"{what} is missing, and the step before gives no vertex to use instead.")
    raise execution(f"{what} needs a vertex, not {kind_of(value)} {shown(value):.60}.")


@builds("addE")
def _add_edge(builder: Builder, arguments: Arguments) -> Step:
    if arguments.is_next(Traversal):
        return AddEdgeStep(builder.pipeline(arguments.traversal()))
    return AddEdgeStep(_label(arguments.text()))


class PropertyStep(WritingStep):
    """property() on stored elements."""

    name = "property"

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        batch = await run.loaded(batch)
        changed: dict[Any, Write] = {}
        for each in batch:
            element = each.value
            if not isinstance(element, Vertex | Edge | VertexProperty):
                raise execution(f"property() is for elements, not for {kind_of(element)}.")
            for one in await resolve(self.assignments, each, run):
                if isinstance(one.key, T) or one.key in ("id", "label"):
                    raise execution(f"The {one.key.value if isinstance(one.key, T) else one.key} cannot be changed.")
                if isinstance(element, Vertex):
                    set_property(element, one, run)
                elif isinstance(element, Edge):
                    if element.properties is None:
                        element.properties = {}
                    set_edge_property(element.properties, one)
                else:
                    set_edge_property(element.meta, one)
            if isinstance(element, Edge):
                changed[element] = ReplaceEdge(element)
            else:
                vertex = element if isinstance(element, Vertex) else element.vertex
                if vertex is not None:
                    changed[vertex] = ReplaceVertex(vertex)
        await run.write(list(changed.values()))
        return batch


@builds("property")
def _property(builder: Builder, arguments: Arguments) -> Step:
    step = PropertyStep()
    step.assignments.extend(make_assignments(arguments, builder))
    return step


class DropStep(WaitingStep):
    name = "drop"
    is_lazy = True

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        writes: dict[Any, Write] = {}
        await run.load([_owner(each.value) for each in batch if not isinstance(each.value, Vertex)])
        for each in batch:
            element = each.value
            if isinstance(element, Vertex):
                writes[element] = DropVertex(element)
            elif isinstance(element, Edge):
                writes[element] = DropEdge(element)
            elif isinstance(element, VertexProperty | Property):
                owner = _owner(element)
                if owner is not None and not isinstance(writes.get(owner), DropVertex | DropEdge):
                    _remove(element, run)
                    writes[owner] = ReplaceEdge(owner) if isinstance(owner, Edge) else ReplaceVertex(owner)
            else:
                raise execution(f"drop() is for elements and properties, not for {kind_of(element)}.")
        await run.write(list(writes.values()))
        for write in writes.values():
            if isinstance(write, DropVertex):
                run.forget(write.vertex)
            elif isinstance(write, DropEdge):
                run.forget(write.edge)
        return []


def _owner(element: Any) -> Any:
    """The stored element that a property belongs to."""
    if isinstance(element, VertexProperty):
        return element.vertex
    if isinstance(element, Property):
        return element.owner.vertex if isinstance(element.owner, VertexProperty) else element.owner
    return element


def _remove(element: VertexProperty | Property, run: Run) -> None:
    if isinstance(element, VertexProperty):
        if element.key == run.graph.partition_key:
            raise execution(f"The partition key property '{element.key}' of a vertex cannot be removed.")
        properties = element.vertex.properties if element.vertex is not None else None
        if properties is not None and element.key in properties:
            left = [each for each in properties[element.key] if each.id != element.id]
            if left:
                properties[element.key] = left
            else:
                del properties[element.key]
    elif isinstance(element.owner, VertexProperty):
        element.owner.meta.pop(element.key, None)
    elif element.owner is not None and element.owner.properties is not None:
        element.owner.properties.pop(element.key, None)


@builds("drop")
def _drop(builder: Builder, arguments: Arguments) -> Step:
    return DropStep()
