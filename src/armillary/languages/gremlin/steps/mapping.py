"""Steps that map each value to others: identity(), constant(), map(), flatMap(), local(), unfold(), loops(), index(),
project(); and sideEffect(), which runs a traversal and passes the value unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.gremlin.by_modulators import ManyBys
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import Builder, Pipeline, PlainStep, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.tokens import CONSTANTS
from armillary.languages.gremlin.traversers import MISSING, Batch
from armillary.languages.gremlin.values.elements import Entry, Path, Subgraph, Tree, pairs


class IdentityStep(PlainStep):
    name = "identity"

    def __init__(self, is_start: bool = False) -> None:
        self.is_start = is_start  # stands for an as() at the start of a traversal

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return batch


@builds("identity")
def _identity(builder: Builder, arguments: Arguments) -> Step:
    return IdentityStep()


class ConstantStep(PlainStep):
    name = "constant"

    def __init__(self, value: Any) -> None:
        self.value = value

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self.value) for each in batch]


@builds("constant")
def _constant(builder: Builder, arguments: Arguments) -> Step:
    return ConstantStep(arguments.take())


class UnfoldStep(PlainStep):
    name = "unfold"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            parts = unfolded(each.value)
            if parts is None:
                found.append(each.to(each.value))
            else:
                found.extend(each.to(part) for part in parts)
        return found


def unfolded(value: Any) -> Iterable[Any] | None:
    """The members of a collection; None if the value is not a collection."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [Entry(key, each) for key, each in pairs(value)]
    if isinstance(value, Path):
        return value.objects
    if isinstance(value, Tree):
        return [Entry(key, inner) for key, inner in value.entries()]
    if isinstance(value, Subgraph):
        return [*value.vertices, *value.edges]
    return None


@builds("unfold")
def _unfold(builder: Builder, arguments: Arguments) -> Step:
    return UnfoldStep()


class ChildStep(WaitingStep):
    """map(), flatMap(), local(), sideEffect(): runs a traversal for each traverser separately."""

    def __init__(self, name: str, pipeline: Pipeline) -> None:
        self.name = name
        self.pipeline = pipeline
        self.is_lazy = name == "sideEffect"

    def children(self) -> Iterable[Pipeline]:
        return (self.pipeline,)

    async def prepare(self, batch: Batch, run: Run) -> None:
        await self.pipeline.prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        await self.pipeline.prepare(batch, run)
        found: Batch = []
        name = self.name
        for each in batch:
            await run.breathe()
            if name == "map":
                first = await self.pipeline.first(each, run)
                if first is not None:
                    found.append(each.to(first.value))
                continue
            results = await self.pipeline.results(each, run)
            if name == "flatMap":
                for result in results:
                    new = each.to(result.value)
                    new.bulk = each.bulk * result.bulk
                    new.sack = result.sack
                    found.append(new)
            elif name == "local":
                for result in results:
                    result.bulk *= each.bulk
                found.extend(results)
            else:
                found.append(each)
        return found


@builds("map", "flatMap", "local", "sideEffect")
def _child(builder: Builder, arguments: Arguments) -> Step:
    return ChildStep(arguments.step, builder.pipeline(arguments.traversal()))


class LoopsStep(PlainStep):
    name = "loops"

    def __init__(self, loop: str | None) -> None:
        self.loop = loop

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._count(each.loops)) for each in batch]

    def _count(self, loops: tuple[tuple[str, int], ...]) -> int:
        if self.loop is None:
            return loops[-1][1] if loops else 0
        for name, count in reversed(loops):
            if name == self.loop:
                return count
        raise execution(f"There is no loop named {self.loop!r} here.")


@builds("loops")
def _loops(builder: Builder, arguments: Arguments) -> Step:
    return LoopsStep(arguments.text() if len(arguments) else None)


class IndexStep(PlainStep):
    name = "index"

    def __init__(self) -> None:
        self.makes_map = False

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "with":
            super().modulate(name, arguments, builder)
        key = arguments.take()
        if key != CONSTANTS["WithOptions.indexer"]:
            raise compilation(f"index() does not know with({key!r}).")
        value = arguments.take()
        if value not in (0, 1):
            raise compilation("index() takes WithOptions.list or WithOptions.map.")
        self.makes_map = value == 1

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            parts = unfolded(each.value)
            values = [each.value] if parts is None else list(parts)
            indexed: Any
            if self.makes_map:
                indexed = dict(enumerate(values))
            else:
                indexed = [[value, at] for at, value in enumerate(values)]
            found.append(each.to(indexed))
        return found


@builds("index")
def _index(builder: Builder, arguments: Arguments) -> Step:
    return IndexStep()


class ProjectStep(ManyBys, WaitingStep):
    name = "project"

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        if len(set(keys)) != len(keys):
            raise compilation("keys must be unique in project().")
        self.keys = keys

    async def prepare(self, batch: Batch, run: Run) -> None:
        await self.bys.prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        await self.bys.prepare(batch, run)
        for each in batch:
            await run.breathe()
            entries = {}
            for at, key in enumerate(self.keys):
                by = self.bys.at(at)
                value = by.read(each.value, run) if by.is_plain else await by.value(each, run)
                if value is not MISSING:
                    entries[key] = value
            found.append(each.to(entries))
        return found


@builds("project")
def _project(builder: Builder, arguments: Arguments) -> Step:
    keys = arguments.texts()
    if not keys:
        raise compilation("project() takes at least one key.")
    return ProjectStep(keys)
