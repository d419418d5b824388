"""Side effects and sacks: aggregate(), store(), cap(), barrier(), sack(). group() and tree() with a name are in
`grouping` and `paths`.
"""

from __future__ import annotations

from typing import Any

from armillary.languages.gremlin.by_modulators import IDENTITY, By, OneBy
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import (
    Builder,
    Flow,
    GatheringStep,
    PlainStep,
    Scope,
    Step,
    WaitingStep,
    after,
    builds,
)
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.grouping import as_value, side_effect
from armillary.languages.gremlin.syntax.tokens import Barrier, Operator
from armillary.languages.gremlin.syntax.tokens import Scope as ScopeToken
from armillary.languages.gremlin.traversers import MISSING, NO_SACK, Batch
from armillary.languages.gremlin.values import numbers
from armillary.languages.gremlin.values.comparing import identity
from armillary.languages.gremlin.values.typed_values import BulkSet, Set
from armillary.work import spend


class Collecting:
    """Shared by aggregate() and store(): adds values to a named collection."""

    key: str
    by: By | None
    is_barrier: bool

    def register(self, run: Run) -> None:
        run.side_effects.values.setdefault(self.key, BulkSet())

    async def collect(self, batch: Batch, run: Run) -> None:
        effects = run.side_effects
        target = effects.values.get(self.key)
        if target is None:
            target = effects.values[self.key] = BulkSet()
        by = self.by or IDENTITY
        await by.prepare(batch, run)
        reducer = effects.reducers.get(self.key)
        known = {identity(value) for value in target} if isinstance(target, Set) and reducer is None else set()
        together = BulkSet()
        for each in batch:
            value = by.read(each.value, run) if by.is_plain else await by.value(each, run)
            spend(10)
            if value is MISSING:
                continue
            run.hold(each.bulk)
            if reducer is not None and isinstance(target, list):
                together.extend([value] * each.bulk)
                if not self.is_barrier:  # store() adds them one by one
                    target = effects.values[self.key] = reducer(effects.values[self.key], together)
                    together = BulkSet()
            elif reducer is not None:
                for _ in range(each.bulk):
                    spend(10)
                    effects.values[self.key] = reducer(effects.values[self.key], value)
            elif isinstance(target, Set):
                if identity(value) not in known:
                    known.add(identity(value))
                    target.append(value)
            elif isinstance(target, list):
                target.extend([value] * each.bulk if each.bulk > 1 else [value])
            else:
                raise execution(f"The side effect {self.key!r} is not a collection.")
        if together and reducer is not None:
            effects.values[self.key] = reducer(target, together)


class AggregateStep(OneBy, Collecting, GatheringStep):
    """aggregate('x'): a barrier that adds all values before the first one passes."""

    name = "aggregate"

    def __init__(self, key: str) -> None:
        self.key = key

    async def gathered(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        await self.collect(batch, run)
        return batch


class StoreStep(OneBy, Collecting, WaitingStep):
    """store('x') and aggregate(local, 'x'): adds each value as it passes."""

    name = "store"
    is_lazy = True

    def __init__(self, key: str) -> None:
        self.key = key

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        await self.collect(batch, run)
        return batch


@builds("aggregate", "store")
def _aggregate(builder: Builder, arguments: Arguments) -> Step:
    scope = arguments.scope()
    key = arguments.text()
    if arguments.step == "store" or scope is ScopeToken.local:
        return StoreStep(key)
    return AggregateStep(key)


class CapStep(Step):
    name = "cap"
    is_barrier = True

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def make() -> Batch:
            while await source():
                await run.breathe()
            if len(self.keys) == 1:
                return [run.start(await self._value(self.keys[0], run))]
            values = {key: await side_effect(run, key) for key in self.keys}
            return [run.start({key: as_value(value) for key, value in values.items() if value is not MISSING})]

        return after(make)

    async def _value(self, key: str, run: Run) -> Any:
        value = await side_effect(run, key)
        if value is MISSING:
            raise execution(f"The side-effect key does not exist in the side-effects: {key}.")
        return as_value(value)


@builds("cap")
def _cap(builder: Builder, arguments: Arguments) -> Step:
    keys = arguments.texts()
    if not keys:
        raise compilation("cap() takes at least one name.")
    return CapStep(keys)


class BarrierStep(GatheringStep):
    """barrier(): collects all traversers, or some at a time, and merges equal ones."""

    name = "barrier"

    def __init__(self, size: int | None, normalises: bool) -> None:
        self.size = size
        self.normalises = normalises

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if self.size is None:
            return super().flow(source, run, scope)
        size = max(self.size, 1)

        async def pull() -> Batch:
            held: Batch = []
            while len(held) < size:
                batch = await source()
                if not batch:
                    break
                held.extend(batch)
            return run.merged(held)

        return pull

    async def gathered(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        if self.normalises:
            total = numbers.total((each.sack, each.bulk) for each in batch).result
            for each in batch:
                each.sack = float(each.sack) / float(total) if total else 0.0
            return batch
        return run.merged(batch)


@builds("barrier")
def _barrier(builder: Builder, arguments: Arguments) -> Step:
    if arguments.is_next(Barrier):
        arguments.take()
        return BarrierStep(None, True)
    return BarrierStep(arguments.count() if len(arguments) else None, False)


class SackStep(PlainStep):
    """sack(): the traverser's sack."""

    name = "sack"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(None if each.sack is NO_SACK else each.sack) for each in batch]


class SackValueStep(OneBy, WaitingStep):
    """sack(operator).by(…)."""

    name = "sack"

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        operation = numbers.OPERATIONS[self.operator]
        by = self.by or IDENTITY
        await by.prepare(batch, run)
        found: Batch = []
        for each in batch:
            value = by.read(each.value, run) if by.is_plain else await by.value(each, run)
            if value is MISSING:
                continue
            each.sack = operation(None if each.sack is NO_SACK else each.sack, value)
            found.append(each)
        return found


@builds("sack")
def _sack(builder: Builder, arguments: Arguments) -> Step:
    return SackValueStep(arguments.token(Operator)) if len(arguments) else SackStep()
