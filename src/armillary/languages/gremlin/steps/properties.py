"""Steps that read elements and properties: id(), label(), key(), value(), values(), properties(), valueMap(),
elementMap(), propertyMap(), element().
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from armillary.languages.gremlin.by_modulators import Bys, make_by
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import Builder, Flow, Pipeline, PlainStep, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.tokens import CONSTANTS, Direction, T
from armillary.languages.gremlin.traversers import MISSING, Batch
from armillary.languages.gremlin.values.comparing import kind_of, shown
from armillary.languages.gremlin.values.elements import Edge, Entry, Property, Vertex, VertexProperty


class TokenStep(PlainStep):
    """id(), label(), key(), value()."""

    def __init__(self, token: T) -> None:
        self.name = token.value
        self.token = token

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._read(each.value)) for each in batch]

    def _read(self, value: Any) -> Any:
        token = self.token
        if token is T.id:
            if isinstance(value, Vertex | Edge | VertexProperty):
                return value.id
        elif token is T.label:
            if isinstance(value, Vertex | Edge | VertexProperty):
                return value.label
        elif isinstance(value, VertexProperty | Property):
            return value.key if token is T.key else value.value
        elif isinstance(value, Entry):
            return value[0] if token is T.key else value[1]
        raise execution(f"{self.name}() cannot be asked of {kind_of(value)} {shown(value):.60}.")


@builds("id", "label", "key", "value")
def _token(builder: Builder, arguments: Arguments) -> Step:
    return TokenStep(T(arguments.step))


_OWN_NAMES: Final = frozenset(("id", "label"))


class ValuesStep(PlainStep):
    """values() and properties()."""

    loads = True
    property_filter: Pipeline | None = None  # the filter of SubgraphStrategy

    def __init__(self, name: str, keys: tuple[str, ...], matches_nothing: bool = False) -> None:
        self.name = name
        self.keys = keys
        self.gives_values = name == "values"
        self.matches_nothing = matches_nothing

    def describe(self) -> str:
        return f"{self.name}({','.join(self.keys)})"

    def children(self) -> Iterable[Pipeline]:
        return (self.property_filter,) if self.property_filter is not None else ()

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if self.property_filter is None:
            return super().flow(source, run, scope)
        keep = self.property_filter

        async def pull() -> Batch:
            while batch := await source():
                found: Batch = []
                for each in await run.loaded(batch):
                    for one in properties_of(each.value, self.keys, self.name):
                        if type(one) is Property or await keep.first(each.with_value(one), run) is not None:
                            found.append(each.to(one.value if self.gives_values else one))
                if found:
                    return found
            return []

        return pull

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        if self.matches_nothing:
            return found
        gives_values = self.gives_values
        if gives_values and self.keys and not _OWN_NAMES.isdisjoint(self.keys):
            return self._with_tokens(batch)
        for each in batch:
            for one in properties_of(each.value, self.keys, self.name):
                found.append(each.to(one.value if gives_values else one))
        return found

    def _with_tokens(self, batch: Batch) -> Batch:
        """values('id') and values('label') give the id and label of the element, because stored items name them so."""
        found: Batch = []
        for each in batch:
            element = each.value
            for key in self.keys:
                if key in _OWN_NAMES and (type(element) is Vertex or type(element) is Edge):
                    found.append(each.to(element.id if key == "id" else element.label))
                else:
                    found += [each.to(one.value) for one in properties_of(element, (key,), self.name)]
        return found


def properties_of(element: Any, keys: tuple[str, ...], step: str) -> Iterable[VertexProperty | Property]:
    """The property objects of an element, in the order of the keys if any are given."""
    if type(element) is Vertex:
        properties = element.properties or {}
        for key in keys or properties:
            yield from properties.get(key, ())
    elif type(element) is Edge:
        own = element.properties or {}
        for key in keys or own:
            if key in own:
                yield Property(key, own[key], element)
    elif type(element) is VertexProperty:
        for key in keys or element.meta:
            if key in element.meta:
                yield Property(key, element.meta[key], element)
    else:
        raise execution(f"{step}() is for elements, not for {kind_of(element)} {shown(element):.60}.")


def _keys(arguments: Arguments) -> tuple[tuple[str, ...], bool]:
    """The keys, and whether only nulls were given, which match nothing."""
    given = len(arguments)
    keys = arguments.texts()
    return tuple(dict.fromkeys(keys)), bool(given) and not keys


@builds("values", "properties")
def _values(builder: Builder, arguments: Arguments) -> Step:
    keys, matches_nothing = _keys(arguments)
    return ValuesStep(arguments.step, keys, matches_nothing)


class ElementStep(PlainStep):
    """element(): the element that a property belongs to."""

    name = "element"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = each.value
            if type(value) is VertexProperty:
                found.append(each.to(value.vertex))
            elif type(value) is Property:
                found.append(each.to(value.owner))
            else:
                raise execution(f"element() is for properties, not for {kind_of(value)}.")
        return found


@builds("element")
def _element(builder: Builder, arguments: Arguments) -> Step:
    return ElementStep()


_TOKENS = CONSTANTS["WithOptions.tokens"]


class ValueMapStep(WaitingStep):
    """valueMap() and propertyMap()."""

    def __init__(self, name: str, keys: tuple[str, ...], tokens: int, matches_nothing: bool = False) -> None:
        self.name = name
        self.keys = keys
        self.tokens = tokens
        self.bys = Bys()  # applied to the keys in turn
        self.matches_nothing = matches_nothing

    def describe(self) -> str:
        return f"{self.name}({','.join(self.keys)})"

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name == "by":
            self.bys.each.append(make_by(arguments, builder))
        elif name == "with":
            key = arguments.take()
            if key not in (_TOKENS, "tokens"):
                raise compilation(f"{self.name}() does not know with({shown(key)}).")
            value = arguments.take() if len(arguments) else 15
            if value is True or value is False:
                value = 15 if value else 0
            if not isinstance(value, int):
                raise compilation(f"with(WithOptions.tokens) does not take {shown(value)}.")
            self.tokens = value
        else:
            super().modulate(name, arguments, builder)

    def children(self) -> Iterable[Pipeline]:
        return self.bys.pipelines()

    async def prepare(self, batch: Batch, run: Run) -> None:
        await run.load([each.value for each in batch])

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in await run.loaded(batch):
            entries = self._entries(each.value)
            if self.bys.each:
                for at, (key, value) in enumerate(list(entries.items())):
                    new = await self.bys.at(at).of(value, each, run)
                    if new is MISSING:
                        del entries[key]
                    else:
                        entries[key] = new
            found.append(each.to({**self._token_entries(each.value), **entries}))
        return found

    def _token_entries(self, element: Any) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        if self.tokens and isinstance(element, Vertex | Edge | VertexProperty):
            if self.tokens & 1:
                entries[T.id] = element.id
            if isinstance(element, VertexProperty):
                if self.tokens & 4:
                    entries[T.key] = element.key
                if self.tokens & 8:
                    entries[T.value] = element.value
            elif self.tokens & 2:
                entries[T.label] = element.label
        return entries

    def _entries(self, element: Any) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        if self.matches_nothing:
            return entries
        is_listed = type(element) is Vertex
        gives_values = self.name == "valueMap"
        for one in properties_of(element, self.keys, self.name):
            value = one.value if gives_values else one
            if is_listed:
                entries.setdefault(one.key, []).append(value)
            else:
                entries[one.key] = value
        return entries


@builds("valueMap", "propertyMap")
def _value_map(builder: Builder, arguments: Arguments) -> Step:
    tokens = 0
    if arguments.is_next(bool):
        tokens = 15 if arguments.take() else 0
    keys, matches_nothing = _keys(arguments)
    return ValueMapStep(arguments.step, keys, tokens, matches_nothing)


class ElementMapStep(PlainStep):
    name = "elementMap"
    loads = True

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._map(each.value)) for each in batch]

    def _map(self, element: Any) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        if type(element) is VertexProperty:
            entries[T.id], entries[T.key], entries[T.value] = element.id, element.key, element.value
        elif isinstance(element, Vertex | Edge):
            entries[T.id], entries[T.label] = element.id, element.label
        if type(element) is Edge:
            for direction, end in ((Direction.IN, element.in_vertex), (Direction.OUT, element.out_vertex)):
                entries[direction] = {T.id: end.id, T.label: end.label}
        for one in properties_of(element, self.keys, self.name):
            entries[one.key] = one.value
        return entries


@builds("elementMap")
def _element_map(builder: Builder, arguments: Arguments) -> Step:
    return ElementMapStep(_keys(arguments)[0])
