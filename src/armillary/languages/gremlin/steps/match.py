"""match(): patterns are solved in the order in which their names become known; each result is a map of all names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import compilation, too_much
from armillary.languages.gremlin.pipeline import LABELLED_PATH, Builder, Pipeline, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run, vertex_key
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.filters import ConnectiveFilter, HasKeyStep, HasStep, TraversalFilter
from armillary.languages.gremlin.steps.mapping import IdentityStep
from armillary.languages.gremlin.steps.navigation import EndStep, VertexStep
from armillary.languages.gremlin.steps.properties import ValuesStep
from armillary.languages.gremlin.steps.select_and_where import WherePredicateStep, WhereStart
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.traversers import MISSING, Batch, Place, Traverser
from armillary.languages.gremlin.values.comparing import equal
from armillary.languages.gremlin.values.elements import Vertex

Bindings = dict[str, Any]
# Results of patterns by start vertex: the same pattern runs again for every combination of the other names.
Memory = dict[tuple[int, Any], Batch]
_REMEMBERED: Final = (VertexStep, EndStep, HasStep, HasKeyStep, ValuesStep)  # their results depend on the vertex only
_MEMORY_MAX: Final = 10_000


class Pattern:
    """`as('a')…as('b')`: leads from one name to another, or filters names that are known."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.start: str | None = None
        self.end: str | None = None
        self.needed: set[str] = set()  # names besides the start that must be known before it can run
        self.alternatives: list[list[Pattern]] = []  # of or(…)
        self.is_negated = False
        steps = list(pipeline.steps)
        first = steps[0] if steps else None
        if len(steps) == 1 and isinstance(first, ConnectiveFilter):
            self.alternatives = [[Pattern(each)] for each in first.pipelines]
            if first.name == "and":
                self.alternatives = [[part for alternative in self.alternatives for part in alternative]]
        elif len(steps) == 1 and isinstance(first, TraversalFilter) and not first.is_wanted:
            inner = Pattern(first.pipeline)
            self.is_negated = True
            self.alternatives = [[inner]]
        elif len(steps) == 1 and isinstance(first, WherePredicateStep):
            self.needed |= {first.start} if first.start is not None else set()
            for part in first.predicate.parts():
                self.needed |= set(part.value if isinstance(part.value, list) else [part.value])
        elif len(steps) == 1 and isinstance(first, TraversalFilter):
            self.needed |= {step.label for step in pipeline.all_steps() if isinstance(step, WhereStart)}
        elif isinstance(first, IdentityStep) and first.is_start and first.labels:
            self.start = first.labels[0]
            steps = steps[1:]
            if steps and steps[-1].labels:
                self.end = steps[-1].labels[-1]
                steps[-1].labels = ()
            for step in steps:
                if isinstance(step, WherePredicateStep):
                    for part in step.predicate.parts():
                        names = part.value if isinstance(part.value, list) else [part.value]
                        self.needed |= {name for name in names if isinstance(name, str)}
        else:
            raise compilation("A pattern of match() starts with as(), or is where(), not(), and() or or().")
        self.pipeline = Pipeline(steps)

    def starts(self) -> set[str]:
        found = {self.start} if self.start is not None else set()
        for alternative in self.alternatives:
            for pattern in alternative:
                found |= pattern.starts()
        return found

    def ends(self) -> set[str]:
        found = {self.end} if self.end is not None else set()
        for alternative in self.alternatives:
            for pattern in alternative:
                found |= pattern.ends()
        return found

    def inner_pipelines(self) -> list[Pipeline]:
        inner = [
            each for alternative in self.alternatives for pattern in alternative for each in pattern.inner_pipelines()
        ]
        return inner or [self.pipeline]

    def is_ready(self, known: Bindings, all_names: set[str]) -> bool:
        if self.alternatives:
            if self.is_negated:
                return all(name in known for name in (self.starts() | self.ends()) & all_names)
            return any(alternative[0].is_ready(known, all_names) for alternative in self.alternatives)
        needed = {name for name in self.needed if name in all_names}
        return (self.start is None or self.start in known) and all(name in known for name in needed)

    def rank(self, known: Bindings) -> int:
        """The order of patterns: filters, then patterns between known names, then patterns that find new names."""
        if self.alternatives:
            return 3
        return 0 if self.end is None else 1 if self.end in known else 2

    async def solutions(
        self, known: Bindings, traverser: Traverser, run: Run, names: set[str], memory: Memory
    ) -> list[Bindings]:
        if self.alternatives:
            found: list[Bindings] = []
            for alternative in self.alternatives:
                results = await solve(alternative, known, traverser, run, names, memory)
                if self.is_negated:
                    return [] if results else [known]
                found.extend(results)
                if found:
                    break
            return found
        reached = await self._reached(known, traverser, run, memory)
        if self.end is None:
            return [known] if reached else []
        if self.end in known:
            value = known[self.end]
            return [known for each in reached if equal(each.value, value)]
        return [{**known, self.end: each.value} for each in reached for _ in range(each.bulk)]

    async def _reached(self, known: Bindings, traverser: Traverser, run: Run, memory: Memory) -> Batch:
        value = known[self.start] if self.start is not None else dict(known)
        key: tuple[int, Any] | None = None
        if type(value) is Vertex and all(type(step) in _REMEMBERED for step in self.pipeline.all_steps()):
            key = (id(self), vertex_key(value))
            if key in memory:
                return memory[key]
        reached = await self.pipeline.results(_bound(traverser, known).with_value(value), run)
        if key is not None:
            if len(memory) >= _MEMORY_MAX:
                memory.clear()
            memory[key] = reached
        return reached


def _bound(traverser: Traverser, known: Bindings) -> Traverser:
    """The traverser with all known names as labels on its path."""
    new = traverser.copy(1)
    for name, value in known.items():
        new.path = Place(new.path, value, (name,))
    return new


async def solve(
    patterns: list[Pattern], known: Bindings, traverser: Traverser, run: Run, names: set[str], memory: Memory
) -> list[Bindings]:
    level: list[tuple[Bindings, list[Pattern]]] = [(known, patterns)]
    found: list[Bindings] = []
    while level:
        bindings, left = level.pop()
        if not left:
            found.append(bindings)
            if len(found) > limits.GREMLIN_MATCH_BINDINGS_MAX:
                raise too_much(f"match() finds at most {limits.GREMLIN_MATCH_BINDINGS_MAX} solutions at a time.")
            continue
        ready = [pattern for pattern in left if pattern.is_ready(bindings, names)]
        if not ready:
            raise compilation("The patterns of match() are not connected: no name of the next one is known.")
        chosen = min(ready, key=lambda pattern: pattern.rank(bindings))
        rest = [pattern for pattern in left if pattern is not chosen]
        await run.breathe()
        solutions = await chosen.solutions(bindings, traverser, run, names, memory)
        level.extend((solution, rest) for solution in reversed(solutions))
    return found


class MatchStep(WaitingStep):
    name = "match"
    needs_path = LABELLED_PATH

    def __init__(self, patterns: list[Pattern]) -> None:
        if not patterns:
            raise compilation("match() takes at least one pattern.")
        self.patterns = patterns
        starts = [pattern for pattern in patterns if pattern.starts()]
        ends = {name for pattern in patterns for name in pattern.ends() if not pattern.is_negated}
        names = list(dict.fromkeys(name for pattern in starts for name in sorted(pattern.starts())))
        if not names:
            raise compilation("match() has no pattern that starts with as().")
        free = [name for name in names if name not in ends]
        self.first = free[0] if free else names[0]
        self.names = set(names) | ends
        for pattern in patterns:
            self.names |= pattern.ends()

    def children(self) -> Iterable[Pipeline]:
        return [each for pattern in self.patterns for each in pattern.inner_pipelines()]

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        memory: Memory = {}
        for each in batch:
            known: Bindings = {}
            for name in sorted(self.names):
                value = each.last_labelled(name)
                if value is not MISSING:
                    known[name] = value
            if self.first not in known:
                known[self.first] = each.value
            for bindings in await solve(self.patterns, known, each, run, self.names, memory):
                new = _bound(each, bindings)
                new.bulk = each.bulk
                found.append(new.to(dict(bindings)))
        return found


@builds("match")
def _match(builder: Builder, arguments: Arguments) -> Step:
    if arguments.is_next(str):
        raise compilation("match() takes traversals; declarative query texts are not supported.")
    patterns = []
    for traversal in arguments.traversals():
        pipeline = builder.pipeline(_where_unwrapped(traversal))
        patterns.append(Pattern(pipeline))
    return MatchStep(patterns)


def _where_unwrapped(traversal: Traversal) -> Traversal:
    """where(as('a')…) inside match() is replaced by its pattern."""
    if len(traversal.steps) == 1 and traversal.steps[0].name == "where":
        arguments = traversal.steps[0].arguments
        if len(arguments) == 1 and isinstance(arguments[0], Traversal):
            return arguments[0]
    return traversal
