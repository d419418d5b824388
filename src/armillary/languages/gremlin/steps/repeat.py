"""repeat() with times(), until() and emit().

Waiting traversers are kept by their number of loops. If equal ones may be merged, all traversers of one loop run
together, so that their number is bounded by the elements of the graph. If they may not (paths), or if a limit()
follows, the deepest run first, a batch at a time: memory is bounded by the depth, and first results come early.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary import limits
from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.pipeline import Builder, Flow, Pipeline, Scope, Step, builds, chunks, drain
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal
from armillary.languages.gremlin.traversers import Batch, Traverser
from armillary.languages.gremlin.values.predicates import P


class RepeatStep(Step):
    name = "repeat"

    def __init__(self) -> None:
        self.loop = ""
        self.body: Pipeline | None = None
        self.until: Pipeline | None = None
        self.times: int | None = None
        self.is_until_first = False
        self.emit: Pipeline | None = None
        self.is_emitting = False
        self.is_emit_first = False
        self.is_hurried = False  # a limit() follows

    def children(self) -> Iterable[Pipeline]:
        return [each for each in (self.body, self.until, self.emit) if each is not None]

    @property
    def is_open(self) -> bool:
        """Whether only times(), until() or emit() have been seen so far, without repeat()."""
        return self.body is None

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name == "times":
            self._check_until()
            self.times = arguments.count()
            self.is_until_first = self.is_open
        elif name == "until":
            self._check_until()
            self.until = builder.pipeline(_condition(arguments))
            self.is_until_first = self.is_open
        elif name == "emit":
            if self.is_emitting:
                raise compilation("repeat() takes one emit().")
            self.is_emitting = True
            self.is_emit_first = self.is_open
            if len(arguments):
                self.emit = builder.pipeline(_condition(arguments))
        else:
            super().modulate(name, arguments, builder)

    def _check_until(self) -> None:
        if self.times is not None or self.until is not None:
            raise compilation("repeat() takes one until() or times().")

    async def _is_over(self, traverser: Traverser, run: Run) -> bool:
        if self.times is not None:
            return traverser.loops[-1][1] >= self.times
        return self.until is not None and await self.until.first(traverser, run) is not None

    async def _is_emitted(self, traverser: Traverser, run: Run) -> bool:
        if not self.is_emitting:
            return False
        return self.emit is None or await self.emit.first(traverser, run) is not None

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        body = self.body
        assert body is not None
        inner: Scope = scope.state(self, Scope)
        waiting: list[Batch] = []  # by the number of loops done
        ready: Batch = []
        merges = run.is_merging and not self.is_hurried
        is_whole = body.has_barrier or merges
        is_done = False
        size = [1]

        def wait(batch: Batch, loops: int) -> None:
            while len(waiting) <= loops:
                waiting.append([])
            run.hold(len(batch))
            joined = waiting[loops] + batch
            if merges:
                before = len(joined)
                joined = run.merged(joined)
                run.release(before - len(joined))
            waiting[loops] = joined

        async def enter(batch: Batch) -> None:
            given: Batch = []
            if self.until is not None and self.is_until_first:
                await self.until.prepare(batch, run)
            for each in batch:
                new = each.copy()
                new.loops = (*each.loops, (self.loop, 0))
                if self.is_until_first and await self._is_over(new, run):
                    ready.append(each)
                    continue
                if self.is_emit_first and await self._is_emitted(new, run):
                    ready.append(each.copy())
                given.append(new)
            wait(given, 0)

        async def leave(batch: Batch, loops: int) -> None:
            on: Batch = []
            if self.until is not None and not self.is_until_first:
                await self.until.prepare(batch, run)
            for each in batch:
                each.loops = (*each.loops[:-1], (self.loop, loops))
                if await self._is_over(each, run):
                    if self.is_until_first and not self.is_emit_first and await self._is_emitted(each, run):
                        # emit() gives it a first time, the end of the loop a second time
                        ready.append(_outside(each.copy()))
                    ready.append(_outside(each))
                    continue
                if await self._is_emitted(each, run):
                    ready.append(_outside(each.copy()))
                on.append(each)
            if on:
                wait(on, loops)

        async def pull() -> Batch:
            nonlocal is_done, ready
            while True:
                if ready:
                    found, ready = ready[: limits.GREMLIN_EDGES_BATCH], ready[limits.GREMLIN_EDGES_BATCH :]
                    return found
                levels = [at for at, batch in enumerate(waiting) if batch]
                if (is_whole and not is_done) or not levels:
                    if is_done:
                        return []
                    batch = await source()
                    is_done = not batch
                    if batch:
                        await enter(batch)
                    continue
                await run.breathe()
                at = levels[0] if is_whole else levels[-1]
                if is_whole:
                    batch, waiting[at] = waiting[at], []
                else:
                    batch, waiting[at] = waiting[at][: size[0]], waiting[at][size[0] :]
                    size[0] = min(size[0] * 2, run.batch)
                run.release(len(batch))
                found = await drain(body.flow(chunks(batch, max(run.batch, 1)), run, inner))
                for each in found:
                    if len(each.loops) == 0 or each.loops[-1][0] != self.loop:
                        each.loops = (*each.loops, (self.loop, at))
                await leave(found, at + 1)

        return pull


def _outside(traverser: Traverser) -> Traverser:
    traverser.loops = traverser.loops[:-1]
    return traverser


def _condition(arguments: Arguments) -> Traversal:
    if arguments.is_next(P):
        return Traversal([], [Instruction("is", [arguments.predicate()])])
    return arguments.traversal()


@builds("repeat")
def _repeat(builder: Builder, arguments: Arguments) -> Step:
    step = RepeatStep()
    fill(step, builder, arguments)
    return step


def fill(step: RepeatStep, builder: Builder, arguments: Arguments) -> None:
    """Sets the body of a repeat() whose times(), until() or emit() may have come before."""
    step.loop = arguments.text() if arguments.is_next(str) else ""
    step.body = builder.pipeline(arguments.traversal())


def check_closed(steps: list[Any]) -> None:
    for step in steps:
        if isinstance(step, RepeatStep) and step.is_open:
            raise compilation(
                "The repeat()-traversal was not defined: emit(), until() and times() belong to a repeat()."
            )
