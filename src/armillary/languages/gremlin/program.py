"""Compiled traversals: a Program is built once and run any number of times; its results are pulled batch by batch.

    program = compile_traversal(traversal, partition_key=None, element_id=str)
    results = program.run(graph, environment, deadline_s=…)
    while batch := await results.pull(): …

`answer` applies the terminal call of a script (`next()`, `iterate()`, …) to the results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from armillary import limits, work
from armillary.languages.gremlin.errors import compilation, execution, too_much
from armillary.languages.gremlin.graph_protocol import Environment, Graph, Reference, Wanted
from armillary.languages.gremlin.optimiser import needs_whole_path, optimise
from armillary.languages.gremlin.pipeline import LABELLED_PATH, WHOLE_PATH, Pipeline, Scope, Step, once
from armillary.languages.gremlin.profile import Profile
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.steps.merge_elements import MergeStep
from armillary.languages.gremlin.steps.mutations import DropStep, WritingStep
from armillary.languages.gremlin.steps.navigation import VOID, GraphStep
from armillary.languages.gremlin.steps.ranges import RangeStep
from armillary.languages.gremlin.steps.select_and_where import SelectStep, WherePredicateStep, WhereStart
from armillary.languages.gremlin.steps.side_effects import StoreStep
from armillary.languages.gremlin.strategies import SeededDice, Settings, read_settings
from armillary.languages.gremlin.syntax.grammar import Statement
from armillary.languages.gremlin.syntax.instructions import Traversal, check_size
from armillary.languages.gremlin.traversal_builder import TraversalBuilder
from armillary.languages.gremlin.traversers import NO_SACK, Batch, Traverser
from armillary.languages.gremlin.values.comparing import shown, unique
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.languages.gremlin.values.numbers import OPERATIONS
from armillary.languages.gremlin.values.typed_values import BulkSet

_REPORTS = ("profile", "executionProfile", "explain")


class Direct(NamedTuple):
    """A traversal that is run without flows: a read of elements by id, then plain steps."""

    wanted: Wanted
    gives_vertices: bool
    labels: tuple[str, ...]
    rest: Pipeline


class Program:
    """A compiled traversal. Holds no state of runs."""

    def __init__(self, pipeline: Pipeline, settings: Settings, report: str | None) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.text: str | None = None  # the script, for reports
        self.report = report  # profile, executionProfile or explain instead of the results
        steps = list(pipeline.all_steps())
        self.is_writing = any(isinstance(step, WritingStep | DropStep | MergeStep) for step in steps)
        self.needs_path = max((step.needs_path for step in steps), default=0)
        if self.needs_path == WHOLE_PATH and not needs_whole_path(pipeline):
            self.needs_path = LABELLED_PATH
        if settings.keeps_path:
            self.needs_path = WHOLE_PATH
        self.registering = [step for step in steps if type(step).register is not Step.register]
        # Lazy side effects run for one traverser at a time where running ahead would change the results: before a
        # limit, or if a later step reads them.
        lazy = any(step.is_lazy for step in steps)
        reads = any(isinstance(step, SelectStep | WherePredicateStep | WhereStart) for step in steps)
        stores = any(isinstance(step, StoreStep) for step in steps)
        self.is_singly = (lazy and any(isinstance(step, RangeStep) for step in steps)) or (stores and reads)
        optimise(pipeline, self.needs_path)
        self._plain_rest = self._find_plain_rest()
        self.direct = self._direct(pipeline.steps[0])

    def _find_plain_rest(self) -> Pipeline | None:
        """The steps after V() or E() with ids, if all of them are plain."""
        first, *others = self.pipeline.steps
        if self.report is not None or self.is_writing or self.is_singly or not isinstance(first, GraphStep):
            return None
        rest = Pipeline(others)
        return rest if first.references is not None and rest.is_plain else None

    def _direct(self, first: Step) -> Direct | None:
        """The shortcut for the most common traversals: a few elements by id, then plain steps."""
        rest = self._plain_rest
        if rest is None or not isinstance(first, GraphStep) or not 1 <= len(first.references or ()) <= _DIRECT_MAX:
            return None
        return Direct(first.wanted, first.name == "V", first.labels, rest)

    def starting_at(self, references: tuple[Reference, ...]) -> Program:
        """The same program with other ids in its V() or E()."""
        first = self.pipeline.steps[0]
        assert isinstance(first, GraphStep) and first.references is not None
        step = first.starting_at(references)
        made = Program.__new__(Program)
        made.__dict__.update(self.__dict__)  # shared: steps keep no state of runs
        made.pipeline = self.pipeline.with_first(step)
        made.direct = self._direct(step)
        return made

    @property
    def options(self) -> dict[str, Any]:
        """The options given by with(): `evaluationTimeout` in milliseconds, `materializeProperties`, …"""
        return self.settings.options

    def explain(self) -> str:
        return str(self.pipeline)

    def run(self, graph: Graph, environment: Environment, *, deadline_s: float | None = None) -> Results:
        return Results(self, graph, environment, deadline_s)


class Results:
    """The results of one run. `pull` gives traversers whose elements are loaded; an empty batch is the end."""

    def __init__(self, program: Program, graph: Graph, environment: Environment, deadline_s: float | None) -> None:
        settings = program.settings
        run = Run(
            graph,
            environment,
            keeps_whole_path=program.needs_path == WHOLE_PATH,
            is_writing=program.is_writing,
            deadline_s=deadline_s,
        )
        run.is_singly = program.is_singly
        run.is_bulked = settings.is_bulked
        run.is_productive, run.productive_keys = settings.is_productive, settings.productive_keys
        if settings.side_effects:
            run.side_effects.values.update({name: _copied(value) for name, value in settings.side_effects.items()})
            run.side_effects.reducers.update({name: OPERATIONS[each] for name, each in settings.reducers.items()})
        if settings.sack is not NO_SACK:
            run.sack_initial = settings.sack
            run.sack_merge = OPERATIONS[settings.sack_merge] if settings.sack_merge is not None else None
        run.is_merging = program.needs_path < WHOLE_PATH and (settings.sack is NO_SACK or run.sack_merge is not None)
        if settings.seed is not None:
            dice = SeededDice(settings.seed)
            run.random, run.random_below = dice.number, dice.below
        self.run = run
        for step in program.registering:
            step.register(run)
        self._program = program
        start = Traverser(VOID, 1, None, (), run.sack_initial)
        if run.traverser_type is not Traverser:
            start = run.traverser_type(VOID, 1, None, (), run.sack_initial)
        self._profile: Profile | None = None
        self._is_done = False
        self._start = start
        if program.direct is not None:
            return
        source = once([start])
        if program.report in ("profile", "executionProfile"):
            self._profile = Profile(program.pipeline, run)
            self._flow = self._profile.flow(source, Scope())
        else:
            self._flow = program.pipeline.flow(source, run, Scope())

    async def pull(self) -> Batch:
        if self._is_done:
            return []
        if self._program.direct is not None:
            return await self._pull_directly(self._program.direct)
        report = self._program.report
        if report is None:
            before_bytes = work.made()
            try:
                return await self._loaded(await self._flow())
            except RecursionError:
                raise too_much("A value is nested too deeply.") from None
            finally:
                # The memory of these results is no longer counted once they are handed over, unless side effects may
                # still hold them.
                if not self._program.registering:
                    work.release(before_bytes)
        self._is_done = True
        if report == "explain":
            return [Traverser(self._program.explain())]
        assert self._profile is not None
        while await self._flow():
            pass
        if report == "executionProfile":
            return [Traverser(self._profile.execution_profile(self._program.text))]
        return [Traverser(self._profile.metrics())]

    async def _pull_directly(self, direct: Direct) -> Batch:
        self._is_done = True
        run = self.run
        run.request_count += 1
        pages = run.graph.vertices(direct.wanted) if direct.gives_vertices else run.graph.edges(direct.wanted)
        go = self._start.to
        batch: Batch = []
        while page := await pages():
            batch += [go(element) for element in run.known(page)]
        if direct.labels:
            for traverser in batch:
                traverser.label(direct.labels)
        if direct.rest.steps:
            batch = await direct.rest.plain_results(batch, run)
        return await self._loaded(batch)

    async def _loaded(self, batch: Batch) -> Batch:
        if not batch:
            return batch
        await self.run.breathe()
        for traverser in batch:
            value = traverser.value
            kind = type(value)
            if kind not in _SCALARS and kind is not Edge and (kind is not Vertex or value.properties is None):
                break
        else:
            return batch
        await self.run.load_deep([traverser.value for traverser in batch])
        return batch

    @property
    def explanation(self) -> str:
        return self._program.explain()

    async def values(self) -> list[Any]:
        """All values, each repeated by its bulk."""
        found: list[Any] = []
        while batch := await self.pull():
            for traverser in batch:
                if len(found) + traverser.bulk > limits.GREMLIN_HELD_MAX:
                    raise execution(f"A traversal gives at most {limits.GREMLIN_HELD_MAX} results at once.")
                found.extend([traverser.value] * traverser.bulk)
        return found


_DIRECT_MAX = 64  # ids; more are read in pages
_SCALARS = frozenset({str, int, float, bool, type(None)})


def _copied(value: Any) -> Any:
    """Side effects are changed by a run; the program's initial value must not be."""
    if isinstance(value, list):
        return type(value)(value)
    return dict(value) if isinstance(value, dict) else value


def compile_traversal(
    traversal: Traversal, *, partition_key: str | None = None, element_id: Callable[[Any], Any] = str
) -> Program:
    check_size(traversal)
    settings = read_settings(traversal.source)
    steps = traversal.steps
    report = None
    if steps and steps[-1].name in _REPORTS:
        last = steps[-1]
        report = last.name
        steps = steps[:-1]
        if last.arguments:
            if report != "profile" or len(last.arguments) != 1 or not isinstance(last.arguments[0], str):
                raise compilation(f"{report}() does not take {shown(last.arguments[0])}.")
            report = None  # profile('x') without cap('x'): a side effect that no step reads
    elif [each.name for each in steps[-2:]] == ["profile", "cap"] and steps[-1].arguments == steps[-2].arguments:
        report, steps = "profile", steps[:-2]  # profile('x').cap('x') is profile()
    for step in steps:
        if step.name in _REPORTS:
            raise compilation(f"{step.name}() must be the last step of a traversal.")
    if not steps:
        raise compilation("A traversal has at least one step after its source.")
    builder = TraversalBuilder(partition_key, element_id, settings)
    return Program(builder.root(steps), settings, report)


async def answer(statement: Statement, results: Results) -> Callable[[], Awaitable[list[Any]]]:
    """The values that a statement returns to the client, in pages; an empty page is the end."""
    terminal = statement.terminal
    if terminal in ("toList", "explain"):
        return _pages(results)
    if terminal in ("toSet", "toBulkSet"):
        values = await results.values()
        return _page(unique(values) if terminal == "toSet" else BulkSet(values))
    if terminal == "iterate":
        while await results.pull():
            pass
        return _page([])
    if terminal == "toString":
        return _page([results.explanation])
    count = statement.count if terminal == "next" and statement.count is not None else 1
    found: list[Any] = []
    while len(found) < count and (batch := await results.pull()):
        for traverser in batch:
            found.extend([traverser.value] * min(traverser.bulk, count - len(found)))
    if terminal == "hasNext":
        return _page([bool(found)])
    if terminal == "next" and not found and statement.count is None:
        raise execution("NoSuchElementException: the traversal has no result.")
    return _page(found)


def _page(values: list[Any]) -> Callable[[], Awaitable[list[Any]]]:
    waiting = values

    async def pull() -> list[Any]:
        nonlocal waiting
        given, waiting = waiting, []
        return given

    return pull


def _pages(results: Results) -> Callable[[], Awaitable[list[Any]]]:
    left: list[tuple[Any, int]] = []  # values with the number of times that each is still to be given

    async def pull() -> list[Any]:
        found: list[Any] = []
        if not left:
            batch = await results.pull()
            if len(batch) == 1 and batch[0].bulk == 1:
                return [batch[0].value]
            left.extend((each.value, each.bulk) for each in batch)
        while left and len(found) < limits.GREMLIN_BATCH:
            value, bulk = left[0]
            taken = min(bulk, limits.GREMLIN_BATCH - len(found))
            found.extend([value] * taken)
            if taken == bulk:
                del left[0]
            else:
                left[0] = (value, bulk - taken)
        return found

    return pull
