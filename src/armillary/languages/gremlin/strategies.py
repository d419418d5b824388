"""The settings of a traversal source: withStrategies(), withSack(), withSideEffect(), with() and the like, read into
`Settings`.

Strategies that only optimise TinkerPop's execution are accepted without effect, since they change no result; those that
need lambdas, events or a graph computer are refused by name.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.languages.gremlin.errors import compilation, unsupported
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import STRATEGIES, Instruction, Strategy, Traversal
from armillary.languages.gremlin.syntax.tokens import Operator
from armillary.languages.gremlin.traversers import NO_SACK
from armillary.languages.gremlin.values.comparing import shown

_REFUSED: Final = frozenset(
    """ElementIdStrategy EventStrategy VertexProgramStrategy GraphFilterStrategy ComputerFinalizationStrategy
    ComputerVerificationStrategy MessagePassingReductionStrategy HaltedTraverserStrategy""".split()
)
_KNOWN_SETTINGS: Final = {
    "PartitionStrategy": {"partitionKey", "writePartition", "readPartitions", "includeMetaProperties"},
    "SubgraphStrategy": {"vertices", "edges", "vertexProperties", "checkAdjacentVertices"},
    "ReadOnlyStrategy": set[str](),
    "SeedStrategy": {"seed"},
    "ProductiveByStrategy": {"productiveKeys"},
    "ProjectionStrategy": {"IncludeSystemProperties"},
    "EdgeLabelVerificationStrategy": {"throwException", "logWarning"},
    "ReservedKeysVerificationStrategy": {"keys", "throwException", "logWarning"},
}


class Settings:
    """The settings that the source of a traversal gives."""

    def __init__(self) -> None:
        self.sack: Any = NO_SACK
        self.sack_merge: Operator | None = None
        self.side_effects: dict[str, Any] = {}
        self.reducers: dict[str, Operator] = {}
        self.options: dict[str, Any] = {}  # from with(): evaluationTimeout, materializeProperties, …
        self.keeps_path = False
        self.is_bulked = True
        self.is_read_only = False
        self.seed: int | None = None
        self.is_productive = False
        self.productive_keys: frozenset[str] = frozenset()
        self.system_properties: tuple[str, ...] = ()  # from Cosmos DB's ProjectionStrategy
        self.verifies_edge_labels = False
        self.reserved_keys: frozenset[str] = frozenset()
        self.vertex_filters: list[Traversal] = []
        self.edge_filters: list[Traversal] = []
        self.property_filters: list[Traversal] = []
        self.checks_ends = True
        self.partition: tuple[str, str | None, list[Any]] | None = None  # key, written, read


def read_settings(source: list[Instruction]) -> Settings:
    settings = Settings()
    for instruction in source:
        arguments = Arguments(instruction.name, instruction.arguments)
        reader = _READERS.get(instruction.name)
        if reader is None:
            raise compilation(f"{instruction.name}() is not a method of a traversal source.")
        reader(settings, arguments)
        arguments.end()
    return settings


def _with_sack(settings: Settings, arguments: Arguments) -> None:
    settings.sack = arguments.take()
    if len(arguments) > 1:
        raise unsupported("withSack() with a split operator is not supported: it needs a lambda.")
    if len(arguments):
        settings.sack_merge = arguments.token(Operator)


def _with_side_effect(settings: Settings, arguments: Arguments) -> None:
    name = arguments.text()
    settings.side_effects[name] = arguments.take()
    if len(arguments):
        settings.reducers[name] = arguments.token(Operator)


def _with_bulk(settings: Settings, arguments: Arguments) -> None:
    settings.is_bulked = arguments.take() is not False


def _with_path(settings: Settings, arguments: Arguments) -> None:
    settings.keeps_path = True


def _with(settings: Settings, arguments: Arguments) -> None:
    name = arguments.text()
    settings.options[name] = arguments.take() if len(arguments) else True


def _with_computer(settings: Settings, arguments: Arguments) -> None:
    raise unsupported("withComputer() is not supported: there is no graph computer.")


def _without_strategies(settings: Settings, arguments: Arguments) -> None:
    for each in arguments.rest():
        if not isinstance(each, Strategy) and not (isinstance(each, str) and each.rpartition(".")[2] in STRATEGIES):
            raise compilation(f"withoutStrategies() takes strategies, not {shown(each)}.")


def _with_strategies(settings: Settings, arguments: Arguments) -> None:
    for each in arguments.rest():
        if not isinstance(each, Strategy):
            raise compilation(f"withStrategies() takes strategies, not {shown(each)}.")
        _apply(settings, each)


def _apply(settings: Settings, strategy: Strategy) -> None:
    name, given = strategy.name, strategy.settings
    if name in _REFUSED or name not in STRATEGIES:
        raise unsupported(f"The strategy {name} is not supported.")
    known = _KNOWN_SETTINGS.get(name)
    if known is not None:
        for setting in given:
            if setting not in known:
                raise compilation(f"{name} has no setting {setting!r}.")
    if name == "OptionsStrategy":
        settings.options.update(given)
    elif name == "ReadOnlyStrategy":
        settings.is_read_only = True
    elif name == "SeedStrategy":
        seed = given.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise compilation("SeedStrategy takes a whole number as its seed.")
        settings.seed = int(seed)
    elif name == "ProductiveByStrategy":
        settings.is_productive = True
        settings.productive_keys = frozenset(_texts(name, given.get("productiveKeys")))
    elif name == "ProjectionStrategy":
        settings.system_properties = tuple(_texts(name, given.get("IncludeSystemProperties")))
    elif name == "EdgeLabelVerificationStrategy":
        settings.verifies_edge_labels = given.get("throwException") is True
    elif name == "ReservedKeysVerificationStrategy":
        if given.get("throwException") is True:
            settings.reserved_keys = frozenset(_texts(name, given.get("keys")) or ("id", "label"))
    elif name == "SubgraphStrategy":
        _subgraph(settings, given)
    elif name == "PartitionStrategy":
        key = given.get("partitionKey")
        if not isinstance(key, str):
            raise compilation("PartitionStrategy takes a text as its partitionKey.")
        read = given.get("readPartitions", [])
        written = given.get("writePartition")
        reads = read if isinstance(read, list) else [read]
        if given.get("includeMetaProperties") is True:
            raise unsupported("PartitionStrategy with includeMetaProperties is not supported.")
        settings.partition = (key, written, reads)


def _subgraph(settings: Settings, given: dict[str, Any]) -> None:
    for name, filters in (
        ("vertices", settings.vertex_filters),
        ("edges", settings.edge_filters),
        ("vertexProperties", settings.property_filters),
    ):
        if name in given:
            if not isinstance(given[name], Traversal):
                raise compilation(f"SubgraphStrategy takes a traversal for {name}.")
            filters.append(given[name])
    settings.checks_ends = given.get("checkAdjacentVertices") is not False


def _texts(name: str, value: Any) -> list[str]:
    values = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in values):
        raise compilation(f"{name} takes texts.")
    return values


_READERS: Final = {
    "withSack": _with_sack,
    "withSideEffect": _with_side_effect,
    "withBulk": _with_bulk,
    "withPath": _with_path,
    "with": _with,
    "withComputer": _with_computer,
    "withStrategies": _with_strategies,
    "withoutStrategies": _without_strategies,
}


# Constants of the linear congruential generator, from the documentation of java.util.Random.
_FACTOR: Final = 0x5DEECE66D
_SUMMAND: Final = 0xB
_MASK: Final = (1 << 48) - 1
_INTS: Final = 1 << 31


class SeededDice:
    """Random numbers of SeedStrategy: the generator of java.util.Random, so that a seed gives the same results as on
    TinkerPop's own graphs, as far as steps draw in the same order.
    """

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _FACTOR) & _MASK

    def _bits(self, count: int) -> int:
        self._state = (self._state * _FACTOR + _SUMMAND) & _MASK
        return self._state >> (48 - count)

    def number(self) -> float:
        """From 0 to 1."""
        return float((self._bits(26) << 27) + self._bits(27)) / (1 << 53)

    def below(self, limit: int) -> int:
        """A whole number from 0, less than the limit."""
        if limit >= _INTS:
            return int(self.number() * limit)
        if limit & (limit - 1) == 0:
            return (limit * self._bits(31)) >> 31
        while True:
            drawn = self._bits(31)
            found = drawn % limit
            if (
                drawn - found + limit - 1 < _INTS
            ):  # otherwise draw again: a remainder of the last, incomplete range would be biased
                return found
