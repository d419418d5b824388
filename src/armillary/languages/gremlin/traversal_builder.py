"""Builds pipelines of steps from instructions: looks up the builder of each step, hands modulators to the step they
follow, and adds the filters of strategies.

`program.py` makes a Program of the pipeline, which can run any number of times on graphs with the same partition key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from armillary.languages.gremlin.errors import compilation, unsupported
from armillary.languages.gremlin.graph_protocol import Reference
from armillary.languages.gremlin.pipeline import FACTORIES, Pipeline, Step
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps import (  # noqa: F401 -- importing a module registers its builders
    branching,
    conversions,
    filters,
    grouping,
    lists,
    mapping,
    match,
    math_step,
    merge_elements,
    mutations,
    navigation,
    order_and_dedup,
    paths,
    properties,
    ranges,
    reducing,
    repeat,
    select_and_where,
    shortest_path,
    side_effects,
    strings,
)
from armillary.languages.gremlin.steps.filters import HasStep, TraversalFilter
from armillary.languages.gremlin.steps.mapping import IdentityStep
from armillary.languages.gremlin.steps.mutations import (
    AddEdgeStep,
    AddVertexStep,
    Assignment,
    DropStep,
    PropertyStep,
    WritingStep,
    make_assignments,
)
from armillary.languages.gremlin.steps.navigation import (
    EndStep,
    GraphStep,
    InjectStep,
    OtherEndStep,
    VertexStep,
    references_of,
    to_vertices,
)
from armillary.languages.gremlin.steps.properties import ValuesStep
from armillary.languages.gremlin.steps.repeat import RepeatStep, check_closed, fill
from armillary.languages.gremlin.strategies import Settings
from armillary.languages.gremlin.syntax.instructions import STEPS, Instruction, Traversal
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.values.predicates import P
from armillary.work import spend

STARTS: Final = frozenset("V E addV addE mergeV mergeE inject union call io".split())


class TraversalBuilder:
    """Implements `pipeline.Builder`."""

    def __init__(self, partition_key: str | None, element_id: Callable[[Any], Any], settings: Settings) -> None:
        self.partition_key = partition_key
        self.element_id = element_id
        self.settings = settings
        self._vertex_filter: list[Callable[[], Step]] = []
        self._edge_filter: Pipeline | None = None
        self._property_filter: Pipeline | None = None
        self._set_up_filters()

    def references(self, values: list[Any], *, flattens_always: bool = False) -> list[Reference]:
        return references_of(values, self, flattens_always=flattens_always)

    # -- strategies that filter

    def _set_up_filters(self) -> None:
        settings = self.settings
        vertices = list(settings.vertex_filters)
        edges = list(settings.edge_filters)
        if vertices and settings.checks_ends:
            for end in ("inV", "outV"):
                edges.extend(Traversal([], [Instruction(end, []), *each.steps]) for each in vertices)
        if settings.partition is not None:
            key, _, read = settings.partition
            belongs = Traversal([], [Instruction("has", [key, P("within", read)])])
            vertices.append(belongs)
            edges.append(belongs)
        for each in vertices:
            self._vertex_filter.append(self._filter_maker(each))
        if edges:
            self._edge_filter = Pipeline([self._filter_maker(each)() for each in edges])
        if settings.property_filters:
            self._property_filter = Pipeline([self._filter_maker(each)() for each in settings.property_filters])

    def _filter_maker(self, traversal: Traversal) -> Callable[[], Step]:
        plain = TraversalBuilder(self.partition_key, self.element_id, Settings())

        def make() -> Step:
            pipeline = plain.pipeline(traversal)
            if len(pipeline.steps) == 1 and isinstance(pipeline.steps[0], HasStep):
                return pipeline.steps[0]
            return TraversalFilter("filter", pipeline)

        return make

    def _filtered(self, step: Step) -> list[Step]:
        """The step, followed by the filters of strategies."""
        if isinstance(step, VertexStep):
            step.edge_filter = self._edge_filter
            return [step] if step.gives_edges else [step, *(make() for make in self._vertex_filter)]
        if isinstance(step, GraphStep) and step.name == "E":
            return [step, *(self._edge_filter.steps if self._edge_filter is not None else ())]
        if isinstance(step, GraphStep | EndStep | OtherEndStep):
            return [step, *(make() for make in self._vertex_filter)]
        if isinstance(step, ValuesStep) and self._property_filter is not None:
            step.property_filter = self._property_filter
        return [step]

    # -- pipelines

    def pipeline(self, traversal: Traversal) -> Pipeline:
        if traversal.source:
            raise unsupported("A traversal inside another one cannot have a source of its own.")
        return self.root(traversal.steps, is_anonymous=True)

    def root(self, instructions: list[Instruction], *, is_anonymous: bool = False) -> Pipeline:
        instructions = connected(instructions)
        if not is_anonymous and instructions[0].name not in STARTS:
            raise compilation(f"A traversal cannot start with {instructions[0].name}().")
        steps: list[Step] = []
        last: Step | None = None  # the step that modulators belong to
        for instruction in instructions:
            spend(100)
            name = instruction.name
            arguments = Arguments(name, instruction.arguments)
            if name == "as":
                if not steps:
                    last = IdentityStep(is_start=True)
                    steps.append(last)
                self._label(steps[-1], arguments)
            elif name in ("by", "with", "option") or (name in ("from", "to") and not arguments.is_next(Direction)):
                if last is None:
                    raise compilation(f"{name}() has no step before it.")
                last.modulate(name, arguments, self)
            elif name in ("times", "until", "emit"):
                if not isinstance(last, RepeatStep):
                    last = RepeatStep()
                    steps.append(last)
                last.modulate(name, arguments, self)
            elif name == "repeat" and isinstance(last, RepeatStep) and last.is_open:
                fill(last, self, arguments)
            elif name == "property" and self._joins(last, arguments):
                pass
            else:
                last = self._step(name, arguments)
                steps.extend(self._filtered(last))
            arguments.end()
        check_closed(steps)
        if is_anonymous and steps and isinstance(steps[0], InjectStep):
            steps[0].is_behind = True
        return Pipeline(steps)

    def _label(self, step: Step, arguments: Arguments) -> None:
        labels = arguments.texts()
        if not labels:
            raise compilation("as() takes at least one label.")
        step.labels = (*step.labels, *(label for label in labels if label not in step.labels))

    def _joins(self, last: Step | None, arguments: Arguments) -> bool:
        """Whether property() becomes part of the write before it. It does not if it reads values that the write
        changes.
        """
        reads = any(isinstance(value, Traversal) for value in arguments.values)
        if not isinstance(last, WritingStep) or (reads and (isinstance(last, PropertyStep) or last.labels)):
            return False
        self._check_keys(arguments)
        last.assignments.extend(make_assignments(arguments, self))
        return True

    def _check_keys(self, arguments: Arguments) -> None:
        for value in arguments.values:
            names = value if isinstance(value, dict) else [value]
            for name in names:
                if isinstance(name, str) and name in self.settings.reserved_keys and value is not arguments.values[-1]:
                    raise compilation(f"A step is setting a property key to a reserved word: {name}.")

    def _step(self, name: str, arguments: Arguments) -> Step:
        if name == "to":
            return to_vertices(arguments.token(Direction), arguments.rest())
        factory = FACTORIES.get(name)
        if factory is None:
            if name in STEPS:
                raise unsupported(f"The step {name}() is not supported.")
            raise compilation(f"Unable to find any method '{name}'.")
        if name == "property":
            self._check_keys(arguments)
        step = factory(self, arguments)
        self._verify(step)
        return step

    def _verify(self, step: Step) -> None:
        writes = isinstance(step, WritingStep | DropStep | merge_elements.MergeStep)
        if writes and self.settings.is_read_only:
            raise compilation("The provided traversal has a mutating step and thus is not read only.")
        if isinstance(step, VertexStep) and self.settings.verifies_edge_labels and not step.edge_labels:
            raise compilation(
                f"The provided traversal contains a vertex step without any specified edge label: {step.name}()."
            )
        partition = self.settings.partition
        if partition is not None and isinstance(step, AddVertexStep | AddEdgeStep):
            if partition[1] is None:
                raise compilation("PartitionStrategy without a writePartition cannot write.")
            step.assignments.append(Assignment(None, partition[0], partition[1], []))
        if partition is not None and isinstance(step, merge_elements.MergeStep):
            step.extra = {partition[0]: partition[1]}


def connected(instructions: list[Instruction]) -> list[Instruction]:
    """Rewrites and() and or() between steps to filters of the traversals on both sides; and() binds tighter."""
    for name in ("or", "and"):
        for at, instruction in enumerate(instructions):
            if instruction.name != name or instruction.arguments or at == 0:
                continue
            begin = 1 if instructions[0].name in STARTS and at > 1 else 0
            left = Traversal([], connected(instructions[begin:at]))
            right = Traversal([], connected(instructions[at + 1 :]))
            return [*instructions[:begin], Instruction(name, [left, right])]
    return instructions
