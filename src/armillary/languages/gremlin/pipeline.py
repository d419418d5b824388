"""Steps and pipelines: a Step turns one flow of batches into another, a Pipeline is a sequence of steps. The table of
step builders is here too; `traversal_builder` looks them up.

A flow is a function that gives the next batch; an empty batch is the end. A consumer that has enough results stops
pulling, so flows need no closing. Most steps process one batch without waiting (`PlainStep`); pipelines of such steps
run as plain loops, which makes by() and where() cheap. A step holds no state of a run: state that outlives a batch is
in local variables of the flow, or in the Scope where repeat() and union() run one pipeline several times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

from armillary import limits
from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.graph_protocol import Reference
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.traversers import Batch, Traverser
from armillary.work import spend

_TRAVERSER_UNITS: Final = 15  # work units for one traverser in one step

Flow = Callable[[], Awaitable[Batch]]
State = TypeVar("State")

# How much of a traverser's path a step needs.
NO_PATH, LABELLED_PATH, WHOLE_PATH = 0, 1, 2


class Scope:
    """The states of steps that keep one between several runs of the same pipeline, inside repeat() or union()."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[Any, Any] = {}

    def state(self, owner: object, make: Callable[[], State]) -> State:
        found: State | None = self._states.get(id(owner))
        if found is None:
            found = self._states[id(owner)] = make()
        return found


class Builder(Protocol):
    """The part of TraversalBuilder that functions which build steps use."""

    partition_key: str | None
    element_id: Callable[[Any], Any]

    def pipeline(self, traversal: Traversal) -> Pipeline: ...

    def references(self, values: list[Any], *, flattens_always: bool = False) -> list[Reference]:
        """Ids, elements, [partition, id] pairs and lists of them, as references."""


class Step:
    """One step of a traversal, ready to run any number of times."""

    name = ""
    labels: tuple[str, ...] = ()
    is_barrier = False  # whether it reads all of its input before it gives a result
    is_plain = False
    is_lazy = False  # whether it has a side effect that must not run ahead of the results that are pulled
    needs_path = NO_PATH

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        raise NotImplementedError

    def children(self) -> Iterable[Pipeline]:
        """The pipelines of all traversals inside the step."""
        return ()

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        """Takes a modulator that follows the step: by(), from(), to(), with(), option(). Called while the traversal is
        built.
        """
        raise compilation(f"{name}() cannot modulate {self.name}().")

    def register(self, run: Run) -> None:
        """Creates the step's side effect, empty, before the run starts."""

    async def prepare(self, batch: Batch, run: Run) -> None:
        """Called with a whole batch before a child pipeline that begins with this step runs for each of its traversers:
        fetches in one request what the traversers would request one by one.
        """

    def describe(self) -> str:
        inner = ",".join(str(child) for child in self.children())
        text = f"{self.name}({inner})"
        return f"{text}@[{', '.join(self.labels)}]" if self.labels else text


Factory = Callable[[Builder, Arguments], Step]
FACTORIES: Final[dict[str, Factory]] = {}


def builds(*names: str) -> Callable[[Factory], Factory]:
    """Registers a function as the builder of these steps; `traversal_builder` looks it up."""

    def register(factory: Factory) -> Factory:
        for name in names:
            assert name not in FACTORIES, name
            FACTORIES[name] = factory
        return factory

    return register


class PlainStep(Step):
    """A step that processes a batch without waiting, except for loading vertices."""

    is_plain = True
    loads = False  # whether vertices must be loaded with their properties
    is_stateful = False  # whether it keeps state in the scope

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        raise NotImplementedError

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def pull() -> Batch:
            while batch := await source():
                if self.loads:
                    batch = await run.loaded(batch)
                spend(_TRAVERSER_UNITS * len(batch))
                found = self.apply(batch, run, scope)
                if found:
                    return found
            return []

        return pull

    async def prepare(self, batch: Batch, run: Run) -> None:
        if self.loads:
            await run.load([traverser.value for traverser in batch])


class WaitingStep(Step):
    """A step that processes a batch and may have to wait for the graph."""

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        raise NotImplementedError

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def pull() -> Batch:
            while batch := await source():
                spend(_TRAVERSER_UNITS * len(batch))
                found = await self.process(batch, run, scope)
                if found:
                    return found
            return []

        return pull


class GatheringStep(Step):
    """A barrier: collects all of its input before it gives its results."""

    is_barrier = True

    async def gathered(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        raise NotImplementedError

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def make() -> Batch:
            everything: Batch = []
            while batch := await source():
                spend(len(batch))
                everything.extend(batch)
                run.hold_elements(batch)
            found = await self.gathered(everything, run, scope)
            run.release(len(everything))
            return found

        return after(make)


class Pipeline:
    """A sequence of steps."""

    __slots__ = ("has_barrier", "is_plain", "steps")

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps: tuple[Step, ...] = tuple(steps)
        self.is_plain = all(step.is_plain for step in self.steps)
        self.has_barrier = any(step.is_barrier for step in self.steps)

    def with_first(self, step: Step) -> Pipeline:
        """The same pipeline with another first step of the same kind."""
        made = Pipeline.__new__(Pipeline)
        made.steps = (step, *self.steps[1:])
        made.is_plain, made.has_barrier = self.is_plain, self.has_barrier
        return made

    def __str__(self) -> str:
        return f"[{', '.join(step.describe() for step in self.steps)}]"

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        for step in self.steps:
            if step.is_lazy and run.is_singly:
                source = singly(source)
            source = step.flow(source, run, scope)
            if step.labels:
                source = labelling(source, step.labels)
        return source

    async def prepare(self, batch: Batch, run: Run) -> None:
        if self.steps and len(batch) > 1:
            await self.steps[0].prepare(batch, run)

    async def results(self, start: Traverser, run: Run) -> Batch:
        """All results for one traverser, which is copied with a bulk of one."""
        batch: Batch = [start.copy(1)]
        if self.is_plain:
            return await self.plain_results(batch, run)
        pull = self.flow(once(batch), run, Scope())
        found: Batch = []
        while more := await pull():
            found.extend(more)
        return found

    async def first(self, start: Traverser, run: Run) -> Traverser | None:
        batch: Batch = [start.copy(1)]
        if self.is_plain:
            found = await self.plain_results(batch, run)
        else:
            found = await self.flow(once(batch), run, Scope())()
        return found[0] if found else None

    async def plain_results(self, batch: Batch, run: Run) -> Batch:
        """`results` for a pipeline of plain steps."""
        scope = _NO_STATE
        for step in self.steps:
            assert isinstance(step, PlainStep)
            if step.loads:
                batch = await run.loaded(batch)
            if step.is_stateful:
                scope = Scope()
            spend(_TRAVERSER_UNITS * len(batch))
            batch = step.apply(batch, run, scope)
            if not batch:
                break
            if step.labels:
                for traverser in batch:
                    traverser.label(step.labels)
        return batch

    def all_steps(self) -> Iterator[Step]:
        """Including the steps of the traversals inside."""
        for step in self.steps:
            yield step
            for child in step.children():
                yield from child.all_steps()


_NO_STATE: Final = Scope()


def once(batch: Batch) -> Flow:
    """A flow of one batch."""
    waiting = batch

    async def pull() -> Batch:
        nonlocal waiting
        given, waiting = waiting, []
        return given

    return pull


def after(make: Callable[[], Awaitable[Batch]]) -> Flow:
    """A flow of the results that `make` computes on the first pull, in pieces."""
    made: Batch | None = None
    at = 0

    async def pull() -> Batch:
        nonlocal made, at
        if made is None:
            made = await make()
        piece = made[at : at + limits.GREMLIN_EDGES_BATCH]
        at += len(piece)
        return piece

    return pull


def chunks(batch: Batch, size: int) -> Flow:
    """A flow of a long list in batches."""
    at = 0

    async def pull() -> Batch:
        nonlocal at
        piece = batch[at : at + size]
        at += size
        return piece

    return pull


def singly(source: Flow) -> Flow:
    """The same flow in batches of one traverser."""
    waiting: Batch = []

    async def pull() -> Batch:
        nonlocal waiting
        if not waiting:
            waiting = await source()
        given, waiting = waiting[:1], waiting[1:]
        return given

    return pull


async def drain(flow: Flow) -> Batch:
    found: Batch = []
    while batch := await flow():
        found.extend(batch)
    return found


def labelling(source: Flow, labels: tuple[str, ...]) -> Flow:
    async def pull() -> Batch:
        batch = await source()
        for traverser in batch:
            traverser.label(labels)
        return batch

    return pull
