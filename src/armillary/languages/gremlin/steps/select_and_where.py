"""select() and where(): values by name from a map, the side effects or the labels of the path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.errors import Failure
from armillary.languages.gremlin.by_modulators import ManyBys, column_value
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import (
    LABELLED_PATH,
    Builder,
    Pipeline,
    PlainStep,
    Scope,
    Step,
    WaitingStep,
    builds,
)
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.filters import ConnectiveFilter, IsStep, TraversalFilter
from armillary.languages.gremlin.steps.grouping import as_value, side_effect
from armillary.languages.gremlin.steps.mapping import IdentityStep
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.tokens import Column, Pop, T
from armillary.languages.gremlin.traversers import MISSING, Batch, Place, Traverser
from armillary.languages.gremlin.values.comparing import equal, map_key, text_of
from armillary.languages.gremlin.values.elements import Tree
from armillary.languages.gremlin.values.predicates import P


async def scope_value(traverser: Traverser, name: Any, run: Run, pop: Pop = Pop.last, *, is_kept: bool = False) -> Any:
    """The value of a name: an entry of the traverser's map, a side effect, or a label of its path, in this order;
    MISSING if there is none. With `is_kept`, a side effect is copied, since later steps may change it.
    """
    value = traverser.value
    if isinstance(value, Tree):
        value = value.as_map()
    if isinstance(value, dict):
        key = map_key(name)
        if key in value:
            return value[key]
    if isinstance(name, str):
        if name in run.side_effects.values:
            found = await side_effect(run, name)
            return as_value(found) if is_kept else found
        return path_value(traverser, name, pop)
    return MISSING


def path_value(traverser: Traverser, name: str, pop: Pop) -> Any:
    if pop is Pop.last:
        return traverser.last_labelled(name)
    if pop is Pop.first:
        return traverser.first_labelled(name)
    found = traverser.labelled(name)
    if pop is Pop.mixed:
        return MISSING if not found else found[0] if len(found) == 1 else found
    return found if found else MISSING


class SelectStep(ManyBys, WaitingStep):
    """select('a'), select('a', 'b'), with or without a Pop."""

    name = "select"
    needs_path = LABELLED_PATH

    def __init__(self, names: tuple[Any, ...], pop: Pop) -> None:
        super().__init__()
        self.names = names
        self.pop = pop

    def describe(self) -> str:
        return f"select({self.pop.value},{','.join(map(str, self.names))})"

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        selected: list[tuple[Traverser, list[Any]]] = []
        for each in batch:
            values = [await scope_value(each, name, run, self.pop, is_kept=True) for name in self.names]
            if MISSING not in [value for value in values if value is MISSING]:
                selected.append((each, values))
        for at in range(len(self.names)):
            by = self.bys.at(at)
            if not by.loads and by.is_plain:
                continue
            await by.prepare([each.with_value(values[at]) for each, values in selected], run)
        for each, values in selected:
            results = []
            for at, value in enumerate(values):
                by = self.bys.at(at)
                result = by.read(value, run) if by.is_plain else await by.of(value, each, run)
                if result is MISSING:
                    break
                results.append(result)
            else:
                if len(results) == 1:
                    found.append(each.to(results[0]))
                else:
                    found.append(each.to(dict(zip(self.names, results, strict=True))))
        return found


class SelectColumnStep(PlainStep):
    """select(keys), select(values)."""

    name = "select"

    def __init__(self, column: Column) -> None:
        self.column = column

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(column_value(each.value, self.column)) for each in batch]


class SelectTraversalStep(ManyBys, WaitingStep):
    """select(traversal): the key is the result of the traversal."""

    name = "select"
    needs_path = LABELLED_PATH

    def __init__(self, pipeline: Pipeline, pop: Pop) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.pop = pop

    def children(self) -> Iterable[Pipeline]:
        return (self.pipeline, *self.bys.pipelines())

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            key = await self.pipeline.first(each, run)
            if key is None:
                continue
            value = await scope_value(each, key.value, run, self.pop, is_kept=True)
            if value is MISSING:
                continue
            result = await self.bys.at(0).of(value, each, run)
            if result is not MISSING:
                found.append(each.to(result))
        return found


@builds("select")
def _select(builder: Builder, arguments: Arguments) -> Step:
    if arguments.is_next(Column):
        return SelectColumnStep(arguments.token(Column))
    pop = arguments.token(Pop) if arguments.is_next(Pop) else Pop.last
    if arguments.is_next(Traversal):
        return SelectTraversalStep(builder.pipeline(arguments.traversal()), pop)
    names: list[Any] = arguments.rest()
    if not names or not all(isinstance(name, str | T) for name in names):
        raise compilation("select() takes labels, keys or values.")
    return SelectStep(tuple(names), pop)


def nowhere(name: Any) -> Failure:
    return execution(f"Neither the map, sideEffects, nor path has a {text_of(name)}-key.")


class WherePredicateStep(ManyBys, WaitingStep):
    """where('a', eq('b')) and where(eq('a')): the predicate's values are names."""

    name = "where"
    needs_path = LABELLED_PATH

    def __init__(self, start: str | None, predicate: P) -> None:
        super().__init__()
        self.start = start
        self.predicate = predicate

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        if self.start is None:
            await self.bys.prepare(batch, run)
        return [each for each in batch if await self._passes(each, run)]

    async def _passes(self, traverser: Traverser, run: Run) -> bool:
        value = traverser.value
        if self.start is not None:
            value = await scope_value(traverser, self.start, run)
            if value is MISSING:
                raise nowhere(self.start)
        left = await self.bys.at(0).of(value, traverser, run)
        if left is MISSING:
            return False
        at = 0

        async def bound(predicate: P) -> P | None:
            nonlocal at
            if predicate.name in ("and", "or"):
                parts = [await bound(part) for part in predicate.value]
                return None if None in parts else P(predicate.name, parts)
            names = predicate.value if isinstance(predicate.value, list) else [predicate.value]
            values = []
            for name in names:
                at += 1
                found = await scope_value(traverser, name, run)
                if found is MISSING:
                    raise nowhere(name)
                is_many = isinstance(predicate.value, list) and isinstance(found, list)
                for one in found if is_many else [found]:
                    result = await self.bys.at(at).of(one, traverser, run)
                    if result is MISSING:
                        if not is_many:
                            return None
                        continue
                    values.append(result)
            return P(predicate.name, values if isinstance(predicate.value, list) else values[0])

        predicate = await bound(self.predicate)
        return predicate is not None and predicate.holds(left)


class WhereStart(WaitingStep):
    """as('a') at the start of a pattern: continues with the value of the name."""

    name = "whereStart"
    needs_path = LABELLED_PATH

    def __init__(self, label: str) -> None:
        self.label = label

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = await scope_value(each, self.label, run)
            if value is MISSING:
                raise nowhere(self.label)
            found.append(each.to(value))
        return found


class WhereEnd(WaitingStep):
    """as('b') at the end of a pattern: passes values equal to that of the name."""

    name = "whereEnd"
    needs_path = LABELLED_PATH

    def __init__(self, label: str) -> None:
        self.label = label

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = path_or_side_effect(each, self.label, run)
            if value is MISSING:
                raise nowhere(self.label)
            if equal(each.value, value):
                found.append(each)
        return found


def path_or_side_effect(traverser: Traverser, name: str, run: Run) -> Any:
    """As `scope_value` without the traverser's map: inside a pattern its entries are not names."""
    found = run.side_effects.get(name) if name in run.side_effects.values else MISSING
    return traverser.last_labelled(name) if found is MISSING else found


class MapBinding(PlainStep):
    """Puts the entries of a map on the path as labels, so that a pattern can still refer to them after later steps."""

    name = "whereBinding"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        for each in batch:
            if isinstance(each.value, dict):
                for key, value in each.value.items():
                    if isinstance(key, str):
                        each.path = Place(each.path, value, (key,))
        return batch


def wired(pipeline: Pipeline) -> Pipeline:
    """A pattern of where(), in which as() at both ends reads a name instead of setting it."""
    steps = list(pipeline.steps)
    if not steps:
        return pipeline
    first, last = steps[0], steps[-1]
    if len(steps) == 1 and isinstance(first, ConnectiveFilter):
        return Pipeline([ConnectiveFilter(first.name, [wired(each) for each in first.pipelines])])
    if len(steps) == 1 and isinstance(first, TraversalFilter) and first.name in ("not", "where", "filter"):
        return Pipeline([TraversalFilter(first.name, wired(first.pipeline), first.is_wanted)])
    is_start = isinstance(first, IdentityStep) and first.is_start
    if last.labels and not (is_start and last is first):
        if len(last.labels) > 1:
            raise compilation("A where()-traversal's end has at most one label.")
        label = last.labels[0]
        last.labels = ()
        steps.append(WhereEnd(label))
    if is_start and first.labels:
        if len(first.labels) > 1:
            raise compilation("A where()-traversal's start has at most one label.")
        steps[0] = WhereStart(first.labels[0])
        first.labels = ()
    return Pipeline(steps)


def _has_names(pipeline: Pipeline) -> bool:
    return any(isinstance(step, WhereStart | WhereEnd) for step in pipeline.all_steps())


@builds("where")
def _where(builder: Builder, arguments: Arguments) -> Step:
    if arguments.is_next(Traversal):
        pipeline = wired(builder.pipeline(arguments.traversal()))
        if _has_names(pipeline):
            pipeline = Pipeline([MapBinding(), *pipeline.steps])
        return WhereTraversalStep(pipeline)
    start = arguments.text() if arguments.is_next(str) else None
    predicate = arguments.predicate()
    for part in predicate.parts():
        names = part.value if isinstance(part.value, list) else [part.value]
        if not all(isinstance(name, str) for name in names):
            if start is None:
                return IsStep(predicate)
            raise compilation("where() compares with what has a name: its predicate holds labels.")
    return WherePredicateStep(start, predicate)


class WhereTraversalStep(TraversalFilter):
    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__("where", pipeline)

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        raise compilation(f"where(traversal) takes no {name}().")
