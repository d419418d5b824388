"""Rewrites pipelines to cheaper ones with the same results: has() conditions and limits are pushed down to the graph,
outE().inV() becomes out(), and steps before a limit() return small batches early instead of filling large ones.
"""

from __future__ import annotations

from armillary.languages.gremlin.graph_protocol import Condition, Reference
from armillary.languages.gremlin.pipeline import WHOLE_PATH, Pipeline, Step
from armillary.languages.gremlin.steps.filters import ConnectiveFilter, HasStep, IdPredicate, TraversalFilter
from armillary.languages.gremlin.steps.mapping import IdentityStep
from armillary.languages.gremlin.steps.navigation import EndStep, GraphStep, OtherEndStep, VertexStep
from armillary.languages.gremlin.steps.ranges import RangeStep
from armillary.languages.gremlin.steps.repeat import RepeatStep
from armillary.languages.gremlin.syntax.tokens import Direction, T


def optimise(pipeline: Pipeline, needs_path: int, *, is_short: bool = False) -> None:
    """Changes the pipeline in place. `is_short`: only the first result is used."""
    for step in pipeline.steps:
        for child in step.children():
            optimise(child, needs_path, is_short=isinstance(step, TraversalFilter | ConnectiveFilter))
    steps = list(pipeline.steps)
    if needs_path < WHOLE_PATH:
        steps = _without_edges(steps)
    if len(steps) > 1:
        steps = [steps[0], *(each for each in steps[1:] if type(each) is not IdentityStep or each.labels)]
    _push_conditions(steps)
    _hurry(steps, is_short)
    pipeline.steps = tuple(steps)
    pipeline.is_plain = all(step.is_plain for step in steps)


def _without_edges(steps: list[Step]) -> list[Step]:
    """Replaces outE().inV() by out(), which is the same for traversals without paths."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        if isinstance(before, VertexStep) and before.gives_edges and not before.labels:
            is_end = isinstance(step, EndStep) and step.direction is before.direction.opposite
            if before.direction is not Direction.BOTH and is_end and type(step) is EndStep:
                found[-1] = _adjacent(before, step)
                continue
            if isinstance(step, OtherEndStep):
                found[-1] = _adjacent(before, step)
                continue
        found.append(step)
    return found


def _adjacent(edges: VertexStep, end: Step) -> VertexStep:
    name = {Direction.OUT: "out", Direction.IN: "in"}.get(edges.direction, "both")
    step = VertexStep(name, edges.direction, edges.edge_labels, False)
    step.matches_nothing = edges.matches_nothing
    step.edge_filter = edges.edge_filter
    step.labels = end.labels
    return step


def needs_whole_path(pipeline: Pipeline) -> bool:
    """Whether a step needs the whole path, not counting an otherV() that `optimise` removes."""
    steps = pipeline.steps
    for at, step in enumerate(steps):
        if isinstance(step, OtherEndStep):
            before = steps[at - 1] if at else None
            if isinstance(before, VertexStep) and before.gives_edges and not before.labels:
                continue
        if step.needs_path == WHOLE_PATH or any(needs_whole_path(child) for child in step.children()):
            return True
    return False


def _push_conditions(steps: list[Step]) -> None:
    for at, step in enumerate(steps):
        if not isinstance(step, GraphStep):
            continue
        conditions: list[Condition] = []
        following = at + 1
        while following < len(steps) and isinstance(steps[following], HasStep) and not steps[following - 1].labels:
            has = steps[following]
            assert isinstance(has, HasStep)
            conditions.extend(has.conditions)
            following += 1
        for condition in conditions:
            references = _references(condition)
            if references is not None and step.references is None:
                step.references = references
        step.conditions = tuple(conditions)
        if following < len(steps):
            limit = steps[following]
            if isinstance(limit, RangeStep) and limit.high != -1 and at == 0:
                step.count = limit.high


def _references(condition: Condition) -> tuple[Reference, ...] | None:
    if condition.key is not T.id:
        return None
    if isinstance(condition.predicate, IdPredicate):
        return tuple(condition.predicate.references)
    if condition.predicate.name == "eq":
        value = condition.predicate.value
        return (Reference(value),) if value is not None else ()
    return None


def _hurry(steps: list[Step], is_short: bool) -> None:
    is_limited = is_short
    for at in range(len(steps) - 1, -1, -1):
        step = steps[at]
        if isinstance(step, RangeStep):
            is_limited = is_limited or step.high != -1
        elif step.is_barrier:
            is_limited = False
        elif isinstance(step, VertexStep) and is_limited:
            step.is_hurried = True
            following = steps[at + 1] if at + 1 < len(steps) else None
            if following is None and is_short:
                step.limit = 1
            elif isinstance(following, RangeStep) and following.high != -1 and step.edge_filter is None:
                step.limit = following.high
        elif isinstance(step, RepeatStep) and is_limited:
            step.is_hurried = True
