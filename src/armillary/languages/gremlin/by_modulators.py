"""The by() modulators: how a step gets a key, a value or a weight from a traverser.

A by() without a result is *unproductive* and gives MISSING; each step decides whether to drop the traverser, use null
or fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import Builder, Pipeline, Step
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.tokens import Column, Order, T
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import kind_of, shown
from armillary.languages.gremlin.values.elements import Edge, Entry, Property, Tree, Vertex, VertexProperty, pairs
from armillary.languages.gremlin.values.typed_values import Set


class By:
    """by() without arguments: the traverser's own value. Subclasses read something else."""

    is_plain = True  # whether `read` alone gives the value, without running a traversal
    loads = False
    pipeline: Pipeline | None = None

    async def prepare(self, batch: Batch, run: Run) -> None:
        if self.loads:
            await run.load([traverser.value for traverser in batch])

    def read(self, value: Any, run: Run) -> Any:
        return value

    async def value(self, traverser: Traverser, run: Run) -> Any:
        return self.read(traverser.value, run)

    async def of(self, value: Any, traverser: Traverser, run: Run) -> Any:
        """The same for another value than the traverser's own, for example a step of its path."""
        if self.loads:
            await run.load((value,))
        if self.is_plain:
            return self.read(value, run)
        return await self.value(traverser.with_value(value), run)


IDENTITY = By()


class ByKey(By):
    """A property of an element, or an entry of a map."""

    loads = True

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, value: Any, run: Run) -> Any:
        found = property_value(value, self.key)
        if found is MISSING and run.is_productive and (not run.productive_keys or self.key in run.productive_keys):
            return None
        return found


class ByToken(By):
    def __init__(self, token: T) -> None:
        self.token = token

    def read(self, value: Any, run: Run) -> Any:
        return token_value(value, self.token)


class ByColumn(By):
    def __init__(self, column: Column) -> None:
        self.column = column

    def read(self, value: Any, run: Run) -> Any:
        return column_value(value, self.column)


class ByTraversal(By):
    is_plain = False

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    async def prepare(self, batch: Batch, run: Run) -> None:
        assert self.pipeline is not None
        await self.pipeline.prepare(batch, run)

    async def value(self, traverser: Traverser, run: Run) -> Any:
        assert self.pipeline is not None
        found = await self.pipeline.first(traverser, run)
        if found is None:
            return None if run.is_productive and not run.productive_keys else MISSING
        return found.value


def property_value(value: Any, key: str) -> Any:
    if key in ("id", "label") and (type(value) is Vertex or type(value) is Edge):
        return value.id if key == "id" else value.label  # stored items name them so
    if type(value) is Vertex:
        values = (value.properties or {}).get(key)
        return values[0].value if values else MISSING
    if type(value) is Edge:
        return (value.properties or {}).get(key, MISSING)
    if type(value) is VertexProperty:
        return value.meta.get(key, MISSING)
    if isinstance(value, Tree):
        value = value.as_map()
    if isinstance(value, dict):
        return value.get(key)  # null for a key that the map does not have
    raise execution(
        f'The by("{key}") modulator can only be applied to a traverser that is an Element or a Map, '
        f"not {shown(value):.80}."
    )


def token_value(value: Any, token: T) -> Any:
    """T.id, T.label, T.key or T.value of an element or property; for a map, its entry under the token."""
    if isinstance(value, dict):
        return value.get(token, MISSING)
    if token is T.id and isinstance(value, Vertex | Edge | VertexProperty):
        return value.id
    if token is T.label and isinstance(value, Vertex | Edge | VertexProperty):
        return value.label
    if token is T.key and isinstance(value, VertexProperty | Property):
        return value.key
    if token is T.value and isinstance(value, VertexProperty | Property):
        return value.value
    raise execution(f"{shown(value):.80} has no T.{token.value}.")


def column_value(value: Any, column: Column) -> Any:
    if isinstance(value, dict):
        if column is Column.keys:
            return Set(key for key, _ in pairs(value))
        return list(value.values())
    if isinstance(value, Tree):
        return column_value(value.as_map(), column)
    if isinstance(value, Entry):
        return value[0] if column is Column.keys else value[1]
    if hasattr(value, "objects") and hasattr(value, "labels"):
        return [Set(labels) for labels in value.labels] if column is Column.keys else list(value.objects)
    raise execution(f"The provided object does not have acessible {column.value}: {kind_of(value)}.")


def make_by(arguments: Arguments, builder: Builder) -> By:
    """Builds a by() from its arguments. order() reads its own."""
    if not len(arguments):
        return IDENTITY
    value = arguments.take()
    if isinstance(value, Traversal):
        return ByTraversal(builder.pipeline(value))
    if isinstance(value, str):
        return ByKey(value)
    if isinstance(value, T):
        return ByToken(value)
    if isinstance(value, Column):
        return ByColumn(value)
    if isinstance(value, Order):
        return IDENTITY
    raise compilation(f"by() takes a key, a token or a traversal, not {shown(value)}.")


class Bys:
    """The by()s of a step that uses them in turn."""

    def __init__(self) -> None:
        self.each: list[By] = []

    def at(self, index: int) -> By:
        return self.each[index % len(self.each)] if self.each else IDENTITY

    def pipelines(self) -> list[Pipeline]:
        return [by.pipeline for by in self.each if by.pipeline is not None]

    @property
    def is_plain(self) -> bool:
        return all(by.is_plain for by in self.each)

    async def prepare(self, batch: Batch, run: Run) -> None:
        for by in self.each:
            await by.prepare(batch, run)


class ManyBys(Step):
    """A step that takes any number of by()s."""

    def __init__(self) -> None:
        self.bys = Bys()

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "by":
            super().modulate(name, arguments, builder)
        self.bys.each.append(make_by(arguments, builder))

    def children(self) -> Iterable[Pipeline]:
        return self.bys.pipelines()


class OneBy(Step):
    """A step that takes one by()."""

    by: By | None = None

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "by":
            super().modulate(name, arguments, builder)
        if self.by is not None:
            raise compilation(f"{self.name[0].upper()}{self.name[1:]} step can only have one by modulator.")
        self.by = make_by(arguments, builder)

    def children(self) -> Iterable[Pipeline]:
        return (self.by.pipeline,) if self.by is not None and self.by.pipeline is not None else ()
