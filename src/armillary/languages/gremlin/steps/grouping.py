"""group() and groupCount(): as a result, or with a name as a side effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.gremlin.by_modulators import IDENTITY, By, ByTraversal, OneBy, make_by
from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.pipeline import Builder, Flow, Pipeline, Scope, Step, after, builds, chunks, drain
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.reducing import CountStep
from armillary.languages.gremlin.traversers import MISSING, Batch
from armillary.languages.gremlin.values.comparing import map_key
from armillary.languages.gremlin.values.typed_values import Long
from armillary.work import spend


class Groups:
    """A group() under way: for each key the values so far, or the traversers that its value will be computed from."""

    def __init__(self, step: GroupStep) -> None:
        self.step = step
        self.entries: dict[Any, list[Any]] = {}
        self.ready: dict[Any, Any] = {}  # initial entries from withSideEffect()

    async def finish(self, run: Run) -> dict[Any, Any]:
        step = self.step
        result: dict[Any, Any] = dict(self.ready)
        for key, members in self.entries.items():
            if step.reduction is None:
                if not step.is_single:
                    result[key] = members
                elif members:
                    result[key] = members[-1]
            elif step.is_counting:
                spend(5 + len(members) // 8)
                result[key] = Long(sum(members))
            else:
                flow = step.reduction.flow(chunks([each.copy() for each in members], run.batch), run, Scope())
                found = await drain(flow)
                if found:
                    result[key] = found[0].value
        return result


async def side_effect(run: Run, name: str) -> Any:
    """The current value of a side effect; MISSING if there is none of the name."""
    value = run.side_effects.get(name)
    return await value.finish(run) if isinstance(value, Groups) else value


def as_value(value: Any) -> Any:
    """A side effect as the value of a traverser: a copy, so that it can be added to the same side effect without a
    cycle.
    """
    return value.copy() if type(value) is dict else type(value)(value) if isinstance(value, list) else value


class GroupStep(Step):
    name = "group"
    is_lazy = True

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.is_barrier = key is None
        self.by_key: By | None = None
        self.by_value: By | None = None
        # reduces all members of a group to one value; without it the values are collected in a list
        self.reduction: Pipeline | None = None
        self.is_single = False

    @property
    def is_counting(self) -> bool:
        return self.reduction is not None and [type(each) for each in self.reduction.steps] == [CountStep]

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "by":
            super().modulate(name, arguments, builder)
        by = make_by(arguments, builder)
        if self.by_key is None:
            self.by_key = by
        elif self.by_value is None:
            self.by_value = by
            if isinstance(by, ByTraversal) and by.pipeline is not None:
                if by.pipeline.has_barrier:
                    self.reduction = by.pipeline
                else:
                    # the value is the last result of a traversal; with a key or token it is a list
                    self.is_single = True
        else:
            raise compilation("The key and value traversals for group()-step have already been set.")

    def children(self) -> Iterable[Pipeline]:
        return [by.pipeline for by in (self.by_key, self.by_value) if by is not None and by.pipeline is not None]

    def register(self, run: Run) -> None:
        if self.key is not None:
            known = run.side_effects.values.get(self.key)
            if not isinstance(known, Groups):
                groups = run.side_effects.values[self.key] = Groups(self)
                if isinstance(known, dict):
                    groups.ready = known

    async def add(self, groups: Groups, batch: Batch, run: Run) -> None:
        by_key, by_value = self.by_key or IDENTITY, self.by_value or IDENTITY
        await by_key.prepare(batch, run)
        if self.reduction is None:
            await by_value.prepare(batch, run)
        run.hold_elements(batch)
        for each in batch:
            spend(15)
            key = by_key.read(each.value, run) if by_key.is_plain else await by_key.value(each, run)
            if key is MISSING:
                continue
            members = groups.entries.setdefault(map_key(key), [])
            if self.is_counting:
                members.append(each.bulk)
            elif self.reduction is not None:
                members.append(each.copy())
            else:
                value = by_value.read(each.value, run) if by_value.is_plain else await by_value.value(each, run)
                if value is not MISSING:
                    members.extend([value] * each.bulk if each.bulk > 1 else [value])

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if self.key is not None:
            return _passing(self, source, run, self.key)

        async def make() -> Batch:
            groups = Groups(self)
            while batch := await source():
                await self.add(groups, batch, run)
                await run.breathe()
            return [run.start(await groups.finish(run))]

        return after(make)


@builds("group")
def _group(builder: Builder, arguments: Arguments) -> Step:
    return GroupStep(arguments.text() if len(arguments) else None)


class GroupCountStep(OneBy, Step):
    name = "groupCount"
    is_lazy = True

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.is_barrier = key is None

    def register(self, run: Run) -> None:
        if self.key is not None and not isinstance(run.side_effects.values.get(self.key), dict):
            run.side_effects.values[self.key] = {}

    async def add(self, counts: dict[Any, Any], batch: Batch, run: Run) -> None:
        by = self.by or IDENTITY
        await by.prepare(batch, run)
        before = len(counts)
        for each in batch:
            spend(15)
            key = by.read(each.value, run) if by.is_plain else await by.value(each, run)
            if key is not MISSING:
                key = map_key(key)
                counts[key] = Long(counts.get(key, 0) + each.bulk)
        run.hold(len(counts) - before)

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if self.key is not None:
            return _passing(self, source, run, self.key)

        async def make() -> Batch:
            counts: dict[Any, Any] = {}
            while batch := await source():
                await self.add(counts, batch, run)
                await run.breathe()
            return [run.start(counts)]

        return after(make)


@builds("groupCount")
def _group_count(builder: Builder, arguments: Arguments) -> Step:
    return GroupCountStep(arguments.text() if len(arguments) else None)


def _passing(step: GroupStep | GroupCountStep, source: Flow, run: Run, key: str) -> Flow:
    """The step as a side effect: groups every batch and passes it on."""
    step.register(run)
    grouped: Any = run.side_effects.values[key]

    async def pull() -> Batch:
        batch = await source()
        if batch:
            await step.add(grouped, batch, run)
        return batch

    return pull
