"""Filters of single traversers: the has() steps, is(), all(), any(), none(), coin(), timeLimit(), and filter(), not(),
and(), or() with traversals. Filters by label are in `select_and_where`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from armillary.languages.gremlin.errors import compilation, fail_step
from armillary.languages.gremlin.graph_protocol import ANYWHERE, Condition, Reference
from armillary.languages.gremlin.pipeline import Builder, Flow, Pipeline, PlainStep, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run, vertex_key
from armillary.languages.gremlin.step_arguments import Arguments, flattened
from armillary.languages.gremlin.steps.navigation import VertexStep
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal
from armillary.languages.gremlin.syntax.tokens import T
from armillary.languages.gremlin.traversers import Batch, Traverser
from armillary.languages.gremlin.values.comparing import shown
from armillary.languages.gremlin.values.elements import Edge, Path, Property, Vertex, VertexProperty
from armillary.languages.gremlin.values.predicates import P, as_predicate, within
from armillary.model.key_values import same_component


def values_of(element: Any, key: str) -> list[Any]:
    """All values of a property."""
    if type(element) is Vertex:
        return [each.value for each in (element.properties or {}).get(key, ())]
    if type(element) is Edge:
        properties = element.properties or {}
        return [properties[key]] if key in properties else []
    if type(element) is VertexProperty:
        return [element.meta[key]] if key in element.meta else []
    return []


class HasStep(PlainStep):
    """has(key, predicate), hasLabel(), hasId() and has(T, …), any number of them together."""

    name = "has"

    def __init__(self, conditions: list[Condition]) -> None:
        self.conditions = conditions
        self.loads = any(isinstance(condition.key, str) for condition in conditions)

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        conditions = self.conditions
        return [each for each in batch if all(meets(each.value, condition) for condition in conditions)]

    def describe(self) -> str:
        inner = ", ".join(
            f"{c.key if isinstance(c.key, str) else '~' + c.key.value}.{c.predicate!r}" for c in self.conditions
        )
        return f"has([{inner}])"


def meets(element: Any, condition: Condition) -> bool:
    key = condition.key
    if isinstance(key, str):
        holds = condition.predicate.holds
        if type(element) is Vertex:
            values = (element.properties or {}).get(key)
            return values is not None and any(holds(each.value) for each in values)
        if isinstance(element, dict):
            return key in element and holds(element[key])
        if condition.is_partition and type(element) is Edge:
            return holds(element.partition)
        return any(holds(value) for value in values_of(element, key))
    if not isinstance(element, Vertex | Edge | VertexProperty | Property):
        return isinstance(element, dict) and _entry_meets(element, condition)
    if key is T.id:
        if isinstance(element, Property):
            return False
        return condition.predicate.holds(element if isinstance(condition.predicate, IdPredicate) else element.id)
    if key is T.label:
        return not isinstance(element, Property) and condition.predicate.holds(element.label)
    if key is T.key:
        return isinstance(element, VertexProperty | Property) and condition.predicate.holds(element.key)
    return isinstance(element, VertexProperty | Property) and condition.predicate.holds(element.value)


def _entry_meets(entries: dict[Any, Any], condition: Condition) -> bool:
    """On a map, has('id', …) and has('label', …) test its entries."""
    assert isinstance(condition.key, T)
    name, predicate = condition.key.value, condition.predicate
    if name not in entries:
        return False
    if isinstance(predicate, IdPredicate):
        return any(each.id == entries[name] for each in predicate.references)
    return predicate.holds(entries[name])


class IdPredicate(P):
    """hasId(…): the id is one of several references."""

    __slots__ = ("references",)

    def __init__(self, references: list[Reference]) -> None:
        super().__init__("within", references)
        self.references = references

    def holds(self, value: Any) -> bool:
        id, partition = value.id, getattr(value, "partition", None)
        return any(
            each.id == id and (each.partition is ANYWHERE or same_component(each.partition, partition))
            for each in self.references
        )


_TOKENS: Final[dict[str | None, T]] = {"id": T.id, "label": T.label}


def id_condition(values: list[Any], builder: Builder) -> Condition:
    if len(values) == 1 and isinstance(values[0], P):
        return Condition(T.id, _as_ids(values[0], builder))
    return Condition(T.id, IdPredicate(builder.references(values, flattens_always=True)))


def _as_ids(predicate: P, builder: Builder) -> P:
    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(each) for each in value]
        return builder.element_id(value) if value is not None else None

    if predicate.name == "within":
        return IdPredicate(builder.references(predicate.value, flattens_always=True))
    return predicate.with_values(change)


@builds("has")
def _has(builder: Builder, arguments: Arguments) -> Step:
    if len(arguments) == 1:
        if arguments.is_next(T):
            raise compilation("has() takes more than a token.")
        key = arguments.text_or_null()
        return HasKeyStep(key, True)
    if len(arguments) == 3:
        label = arguments.take()
        key = arguments.text_or_null()
        value = arguments.take()
        return HasStep([Condition(T.label, as_predicate(label)), _condition(key, value, builder)])
    key_or_token = arguments.take()
    value = arguments.take()
    arguments.end()
    if isinstance(value, Traversal):
        if isinstance(key_or_token, T):
            head = key_or_token.value
            steps = builder.pipeline(Traversal([], [Instruction(head, []), *value.steps]))
        else:
            steps = builder.pipeline(Traversal([], [Instruction("values", [str(key_or_token)]), *value.steps]))
        return TraversalFilter("has", steps)
    if key_or_token is not None and not isinstance(key_or_token, str | T):
        raise compilation(f"has() takes a key or a token first, not {shown(key_or_token)}.")
    return HasStep([_condition(key_or_token, value, builder)])


def _condition(key: str | T | None, value: Any, builder: Builder) -> Condition:
    if isinstance(key, str):
        key = _TOKENS.get(key, key)  # id and label are not properties
    if key is T.id:
        return id_condition([value], builder)
    if key is None:
        return Condition(T.id, P("within", []))  # matches nothing: properties always have a name
    return Condition(key, as_predicate(value), is_partition=key == builder.partition_key)


@builds("hasId")
def _has_id(builder: Builder, arguments: Arguments) -> Step:
    if not len(arguments):
        raise compilation("hasId() takes at least one id.")
    return HasStep([id_condition(arguments.rest(), builder)])


@builds("hasLabel", "hasKey", "hasValue")
def _has_token(builder: Builder, arguments: Arguments) -> Step:
    token = {"hasLabel": T.label, "hasKey": T.key, "hasValue": T.value}[arguments.step]
    if not len(arguments):
        raise compilation(f"{arguments.step}() takes at least one value.")
    values = arguments.rest()
    if len(values) == 1 and isinstance(values[0], P):
        return HasStep([Condition(token, values[0])])
    return HasStep([Condition(token, within(flattened(values)))])


class HasKeyStep(PlainStep):
    """has(key) and hasNot(key)."""

    name = "has"
    loads = True

    def __init__(self, key: str | None, is_wanted: bool) -> None:
        self.key = key
        self.is_wanted = is_wanted

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each for each in batch if self._has(each.value) is self.is_wanted]

    def _has(self, element: Any) -> bool:
        if type(element) is Vertex or type(element) is Edge:
            return self.key in _TOKENS or self.key in (element.properties or {})
        if type(element) is VertexProperty:
            return self.key in element.meta
        return isinstance(element, dict) and self.key in element


@builds("hasNot")
def _has_not(builder: Builder, arguments: Arguments) -> Step:
    key = arguments.text_or_null()
    return HasKeyStep(key, False)


class IsStep(PlainStep):
    name = "is"

    def __init__(self, predicate: P) -> None:
        self.predicate = predicate

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        holds = self.predicate.holds
        return [each for each in batch if holds(each.value)]

    def describe(self) -> str:
        return f"is({self.predicate!r})"


@builds("is")
def _is(builder: Builder, arguments: Arguments) -> Step:
    value = arguments.take()
    return IsStep(as_predicate(value))


class ListFilter(PlainStep):
    """all(p), any(p) and none(p) on lists; other values do not pass."""

    def __init__(self, name: str, predicate: P) -> None:
        self.name = name
        self.predicate = predicate

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            values = each.value.objects if isinstance(each.value, Path) else each.value
            if isinstance(values, list) and self._passes(values):
                found.append(each)
        return found

    def _passes(self, values: list[Any]) -> bool:
        holds = self.predicate.holds
        if self.name == "all":
            return all(holds(value) for value in values)
        return any(holds(value) for value in values) is (self.name == "any")


class NothingStep(PlainStep):
    """discard(): pulls all input and gives nothing."""

    name = "none"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return []


@builds("all", "any")
def _all(builder: Builder, arguments: Arguments) -> Step:
    return ListFilter(arguments.step, arguments.predicate())


@builds("none", "discard")
def _none(builder: Builder, arguments: Arguments) -> Step:
    if arguments.step == "none" and len(arguments):
        return ListFilter("none", arguments.predicate())
    return NothingStep()


class CoinStep(PlainStep):
    name = "coin"

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            bulk = 0
            if each.bulk < 1000:
                bulk = sum(run.random() <= self.probability for _ in range(each.bulk))
            elif run.random() <= self.probability:
                bulk = each.bulk
            if bulk:
                each.bulk = bulk
                found.append(each)
        return found


@builds("coin")
def _coin(builder: Builder, arguments: Arguments) -> Step:
    value = arguments.take()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise compilation("coin() takes a probability.")
    return CoinStep(float(value))


class TimeLimitStep(PlainStep):
    name = "timeLimit"
    is_stateful = True

    def __init__(self, limit_ms: int) -> None:
        if limit_ms < 0:
            raise compilation("timeLimit() takes a positive number.")
        self.limit_ms = limit_ms

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        begin: list[float] = scope.state(self, lambda: [run.environment.elapsed_s()])
        return batch if (run.environment.elapsed_s() - begin[0]) * 1000 <= self.limit_ms else []


@builds("timeLimit")
def _time_limit(builder: Builder, arguments: Arguments) -> Step:
    return TimeLimitStep(arguments.count())


class FailStep(Step):
    name = "fail"

    def __init__(self, message: str) -> None:
        self.message = message

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def pull() -> Batch:
            if await source():
                raise fail_step(self.message)
            return []

        return pull


@builds("fail")
def _fail(builder: Builder, arguments: Arguments) -> Step:
    return FailStep(arguments.text() if len(arguments) else "fail() step triggered")


class TraversalFilter(WaitingStep):
    """filter(traversal), where(traversal) and not(traversal): whether the traversal has a result."""

    def __init__(self, name: str, pipeline: Pipeline, is_wanted: bool = True) -> None:
        self.name = name
        self.pipeline = pipeline
        self.is_wanted = is_wanted

    @property
    def _adjacent(self) -> VertexStep | None:
        """The edges to look for if the filter is a single step such as out('x'), so that one request serves a whole
        batch.
        """
        steps = self.pipeline.steps
        return steps[0] if len(steps) == 1 and isinstance(steps[0], VertexStep) else None

    def children(self) -> Iterable[Pipeline]:
        return (self.pipeline,)

    async def prepare(self, batch: Batch, run: Run) -> None:
        await self.pipeline.prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        if self._adjacent is not None and all(type(each.value) is Vertex for each in batch):
            existing = await self._adjacent.exists(batch, run)
            return [each for each in batch if (vertex_key(each.value) in existing) is self.is_wanted]
        await self.pipeline.prepare(batch, run)
        found = []
        for each in batch:
            has_result = await self.pipeline.first(each, run) is not None
            if has_result is self.is_wanted and (self.is_wanted or not await self._is_undefined(each, run)):
                found.append(each)
        return found

    async def _is_undefined(self, traverser: Traverser, run: Run) -> bool:
        """Whether a comparison is undefined, so that not() of it does not pass either: not(is(gt(NaN)))."""
        last = self.pipeline.steps[-1] if self.pipeline.steps else None
        if not isinstance(last, IsStep) or last.predicate.name in ("eq", "neq", "within", "without"):
            return False
        values = await Pipeline(self.pipeline.steps[:-1]).results(traverser, run)
        return any(last.predicate.test(each.value) is None for each in values)


class ConnectiveFilter(WaitingStep):
    """and(…) and or(…)."""

    def __init__(self, name: str, pipelines: list[Pipeline]) -> None:
        self.name = name
        self.pipelines = pipelines

    def children(self) -> Iterable[Pipeline]:
        return self.pipelines

    async def prepare(self, batch: Batch, run: Run) -> None:
        if self.pipelines:
            await self.pipelines[0].prepare(batch, run)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        is_and = self.name == "and"
        undecided, passed = batch, set[int]()
        for pipeline in self.pipelines:
            await pipeline.prepare(undecided, run)
            remaining = []
            for each in undecided:
                has_result = await pipeline.first(each, run) is not None
                if has_result is is_and:
                    remaining.append(each)
                elif has_result:
                    passed.add(id(each))
            undecided = remaining
        return undecided if is_and else [each for each in batch if id(each) in passed]


@builds("filter", "not")
def _filter(builder: Builder, arguments: Arguments) -> Step:
    if arguments.step == "filter" and arguments.is_next(P):
        return IsStep(arguments.predicate())
    return TraversalFilter(arguments.step, builder.pipeline(arguments.traversal()), arguments.step != "not")


@builds("and", "or")
def _connective(builder: Builder, arguments: Arguments) -> Step:
    return ConnectiveFilter(arguments.step, [builder.pipeline(each) for each in arguments.traversals()])
