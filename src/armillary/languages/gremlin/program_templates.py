"""Compiled programs reused with other start ids: clients send `g.V(x)…` many times with different x.

A template is made only if the requests differ in nothing but the ids in V() or E() at the beginning, so that parsing,
building and optimising cannot depend on them. The cache of templates is in `doors/gremlin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from armillary.errors import Failure
from armillary.languages.gremlin.program import Program
from armillary.languages.gremlin.steps.navigation import GraphStep
from armillary.languages.gremlin.strategies import Settings
from armillary.languages.gremlin.syntax.grammar import Statement, parse
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.traversal_builder import TraversalBuilder
from armillary.languages.gremlin.values.typed_values import Long, Uuid

_STARTS: Final = ("V", "E")
_IDS: Final = frozenset({str, int, Long, Uuid})
_PARTITIONS: Final = _IDS | {float, bool}  # values of a partition key; as ids they are refused later
_SHAPE_CHARACTERS_MAX: Final = 400  # longer traversals are unlikely to be sent again


class Slot:
    """Stands for the value of a binding while a script is parsed for a template."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Slots(dict[str, Any]):
    """Bindings without values. Counts how often the parser reads one, to detect bindings that are used elsewhere than
    in V() or E().
    """

    asked = 0

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        self.asked += 1
        return Slot(name)


class Template:
    """A program and the arguments of its V() or E(): values, slots, and lists of them."""

    def __init__(self, program: Program, arguments: list[Any], builder: TraversalBuilder) -> None:
        self._program = program.starting_at(())  # without the ids of the first request, which may be many
        self._arguments = arguments
        self._builder = builder
        first, *others = program.pipeline.steps
        self.is_bare = not others and first.name == "V" and not first.labels and program.report is None

    def named(self, bindings: Mapping[str, Any]) -> list[Any]:
        """The arguments of V() or E() for these bindings."""
        values: list[Any] = []
        for argument in self._arguments:
            value = bindings[argument.name] if type(argument) is Slot else argument
            if type(value) is list:
                value = [bindings[each.name] if type(each) is Slot else each for each in value]
            values.append(value)
        return values

    def filled(self, bindings: Mapping[str, Any]) -> Program | None:
        """The program for these bindings; None if a value is not an id and could change more than the start of the
        traversal.
        """
        return self.started(self.named(bindings))

    def started(self, values: list[Any]) -> Program | None:
        """The program for these arguments of V() or E(); None as in `filled`."""
        if not are_ids(values):
            return None
        return self._program.starting_at(tuple(self._builder.references(values)))


def are_ids(values: list[Any]) -> bool:
    """Whether all values are ids, or lists of ids and values of the partition key."""
    for value in values:
        kind = type(value)
        if kind not in _IDS and (kind is not list or any(type(each) not in _PARTITIONS for each in value)):
            return False
    return True


def template_of_script(
    text: str,
    names: Mapping[str, Any],
    program: Program,
    partition_key: str | None,
    element_id: Callable[[Any], Any],
) -> tuple[Statement, Template] | None:
    """The template of a script compiled with bindings of these names; None if bindings are used elsewhere than in its
    first step.
    """
    slots = _Slots(names)
    try:
        statements = parse(text, slots)
    except Failure:
        return None
    statement = statements[0]
    if len(statements) > 1 or statement.transaction is not None or not slots.asked:
        return None
    first = statement.traversal.steps[0]
    if first.name not in _STARTS or slots.asked != sum(map(_count_slots, first.arguments)):
        return None
    made = template_of(program, first.arguments, partition_key, element_id)
    return (statement, made) if made is not None else None


def template_of(
    program: Program, arguments: list[Any], partition_key: str | None, element_id: Callable[[Any], Any]
) -> Template | None:
    first = program.pipeline.steps[0]
    if not isinstance(first, GraphStep) or first.references is None:
        return None
    return Template(program, arguments, TraversalBuilder(partition_key, element_id, Settings()))


def _count_slots(argument: Any) -> int:
    if type(argument) is list:
        return sum(type(each) is Slot for each in argument)
    return int(type(argument) is Slot)


def shape_of(traversal: Traversal) -> tuple[Any, ...] | None:
    """A cache key that is equal for traversals which differ only in their start ids; None if the traversal cannot be a
    template.
    """
    if traversal.source or not traversal.steps:
        return None
    first, *others = traversal.steps
    if first.name not in _STARTS or not first.arguments or not are_ids(first.arguments):
        return None
    shape: list[Any] = [first.name]
    size = 0
    for instruction in others:
        for argument in instruction.arguments:
            if type(argument) is not str:
                return None
            size += len(argument)
        shape.append((instruction.name, *instruction.arguments))
    return tuple(shape) if size <= _SHAPE_CHARACTERS_MAX else None
