"""union(), choose(), branch(), coalesce() and optional(). The bodies of the first three are global: they run on the
traversers of a whole batch, or on all traversers if they contain a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.gremlin.by_modulators import By, make_by
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import (
    Builder,
    Flow,
    Pipeline,
    Scope,
    Step,
    WaitingStep,
    builds,
    chunks,
    drain,
)
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal
from armillary.languages.gremlin.syntax.tokens import Column, Pick, T
from armillary.languages.gremlin.traversers import MISSING, Batch
from armillary.languages.gremlin.values.comparing import equal
from armillary.languages.gremlin.values.predicates import P


class RoutingStep(Step):
    """Sends each traverser into some of its bodies and gives their results."""

    gives_of_nothing = False

    def bodies(self) -> list[Pipeline]:
        raise NotImplementedError

    async def routes(self, batch: Batch, run: Run) -> list[tuple[int, Batch]]:
        """The traversers for each body by its index; -1 for those that pass unchanged."""
        raise NotImplementedError

    def children(self) -> Iterable[Pipeline]:
        return self.bodies()

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        bodies = self.bodies()
        scopes: list[Scope] = scope.state(self, lambda: [Scope() for _ in bodies])
        waits = any(body.has_barrier for body in bodies)
        is_done = False
        flows: list[Flow] = []

        async def pull() -> Batch:
            nonlocal is_done, flows
            while True:
                while flows:
                    found = await flows[0]()
                    if found:
                        return found
                    del flows[0]
                if is_done:
                    return []
                await run.breathe()
                if waits:
                    is_done = True
                    batch = await drain(source)
                else:
                    batch = await source()
                    is_done = not batch
                routes = dict(await self.routes(batch, run)) if batch else {}
                if waits and self.gives_of_nothing:
                    # A barrier such as count() has a result even for no input.
                    for at in range(len(bodies)):
                        if bodies[at].has_barrier:
                            routes.setdefault(at, [])
                for at, given in sorted(routes.items()):
                    if at < 0:
                        flows.append(chunks(given, run.batch))
                    else:
                        flows.append(bodies[at].flow(chunks(given, run.batch), run, scopes[at]))

        return pull


class UnionStep(RoutingStep):
    name = "union"
    gives_of_nothing = True

    def __init__(self, pipelines: list[Pipeline]) -> None:
        self.pipelines = pipelines

    def bodies(self) -> list[Pipeline]:
        return self.pipelines

    async def routes(self, batch: Batch, run: Run) -> list[tuple[int, Batch]]:
        return [(at, [each.copy() for each in batch]) for at in range(len(self.pipelines))]


@builds("union")
def _union(builder: Builder, arguments: Arguments) -> Step:
    return UnionStep([builder.pipeline(each) for each in arguments.traversals()])


class ChooseStep(RoutingStep):
    """choose(…) with options, branch(…) with options."""

    def __init__(self, name: str, by: By) -> None:
        self.name = name
        self.by = by
        self.options: list[tuple[Any, Pipeline]] = []

    def bodies(self) -> list[Pipeline]:
        return [pipeline for _, pipeline in self.options]

    def children(self) -> Iterable[Pipeline]:
        keys = [key for key, _ in self.options if isinstance(key, Pipeline)]
        return [*([self.by.pipeline] if self.by.pipeline is not None else []), *keys, *self.bodies()]

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "option":
            super().modulate(name, arguments, builder)
        if len(arguments) == 1:
            self.options.append((Pick.any, builder.pipeline(arguments.traversal())))
            return
        key = arguments.take()
        if isinstance(key, Traversal):
            key = builder.pipeline(key)
        self.options.append((key, builder.pipeline(arguments.traversal())))

    async def routes(self, batch: Batch, run: Run) -> list[tuple[int, Batch]]:
        found: dict[int, Batch] = {}
        await self.by.prepare(batch, run)
        for each in batch:
            value = self.by.read(each.value, run) if self.by.is_plain else await self.by.value(each, run)
            chosen: list[int] = []
            if value is not MISSING:
                for at, (key, _) in enumerate(self.options):
                    if key is not Pick.any and await self._matches(key, value, each, run):
                        chosen.append(at)
                        if self.name == "choose":
                            break
            elif any(key is Pick.unproductive for key, _ in self.options):
                chosen = [at for at, (key, _) in enumerate(self.options) if key is Pick.unproductive]
            else:
                raise execution("The provided traverser does not map to a value.")
            if not chosen:
                chosen = [at for at, (key, _) in enumerate(self.options) if key is Pick.none]
            chosen += [at for at, (key, _) in enumerate(self.options) if key is Pick.any]
            for at in chosen:
                found.setdefault(at, []).append(each.copy())
        return list(found.items())

    async def _matches(self, key: Any, value: Any, traverser: Any, run: Run) -> bool:
        if isinstance(key, Pipeline):
            return await key.first(traverser.with_value(value), run) is not None
        if isinstance(key, P):
            return key.holds(value)
        return not isinstance(key, Pick) and equal(key, value)


class ConditionStep(RoutingStep):
    """choose(traversal, then[, else])."""

    name = "choose"

    def __init__(self, condition: Pipeline, then: Pipeline, otherwise: Pipeline | None) -> None:
        self.condition = condition
        self.then = then
        self.otherwise = otherwise

    def bodies(self) -> list[Pipeline]:
        return [self.then] if self.otherwise is None else [self.then, self.otherwise]

    def children(self) -> Iterable[Pipeline]:
        return [self.condition, *self.bodies()]

    async def routes(self, batch: Batch, run: Run) -> list[tuple[int, Batch]]:
        yes: Batch = []
        no: Batch = []
        await self.condition.prepare(batch, run)
        for each in batch:
            is_met = await self.condition.first(each, run) is not None
            (yes if is_met else no).append(each)
        found = [(0, yes)] if yes else []
        if no:
            found.append((-1 if self.otherwise is None else 1, no))
        return found


@builds("choose")
def _choose(builder: Builder, arguments: Arguments) -> Step:
    if len(arguments) == 1:
        if arguments.is_next(Traversal, T, Column, str):
            return ChooseStep("choose", make_by(arguments, builder))
        raise compilation("choose() takes a traversal, a token or a predicate with traversals.")
    if arguments.is_next(P):
        condition = builder.pipeline(Traversal([], [Instruction("is", [arguments.predicate()])]))
    else:
        condition = builder.pipeline(arguments.traversal())
    then = builder.pipeline(arguments.traversal())
    otherwise = builder.pipeline(arguments.traversal()) if len(arguments) else None
    return ConditionStep(condition, then, otherwise)


@builds("branch")
def _branch(builder: Builder, arguments: Arguments) -> Step:
    return ChooseStep("branch", make_by(arguments, builder))


class CoalesceStep(WaitingStep):
    """coalesce(): the results of the first body that has any."""

    name = "coalesce"

    def __init__(self, pipelines: list[Pipeline]) -> None:
        self.pipelines = pipelines

    def children(self) -> Iterable[Pipeline]:
        return self.pipelines

    async def prepare(self, batch: Batch, run: Run) -> None:
        if self.pipelines:
            await self.pipelines[0].prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        if self.pipelines:
            await self.pipelines[0].prepare(batch, run)
        for each in batch:
            await run.breathe()
            for pipeline in self.pipelines:
                results = await pipeline.results(each, run)
                if results:
                    for result in results:
                        new = each.to(result.value)
                        new.bulk = each.bulk * result.bulk
                        new.sack = result.sack
                        found.append(new)
                    break
        return found


@builds("coalesce")
def _coalesce(builder: Builder, arguments: Arguments) -> Step:
    return CoalesceStep([builder.pipeline(each) for each in arguments.traversals()])


class OptionalStep(WaitingStep):
    name = "optional"

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def children(self) -> Iterable[Pipeline]:
        return (self.pipeline,)

    async def prepare(self, batch: Batch, run: Run) -> None:
        await self.pipeline.prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        await self.pipeline.prepare(batch, run)
        for each in batch:
            await run.breathe()
            results = await self.pipeline.results(each, run)
            for result in results:
                result.bulk *= each.bulk
            found.extend(results or [each])
        return found


@builds("optional")
def _optional(builder: Builder, arguments: Arguments) -> Step:
    return OptionalStep(builder.pipeline(arguments.traversal()))
