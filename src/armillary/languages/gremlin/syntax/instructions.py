"""The tree that scripts and bytecode are parsed to: instructions of the source, then steps, each a name with arguments;
and all names of steps, terminal calls and strategies.

Arguments are plain values, tokens, predicates and nested traversals. `traversal_builder` builds steps from them; a step
that is named here and has no builder is refused as not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import compilation, unsupported
from armillary.languages.gremlin.syntax.tokens import Cardinality
from armillary.languages.gremlin.values.elements import pairs
from armillary.languages.gremlin.values.predicates import P

MODULATORS: Final = frozenset("as by from to with option times until emit".split())
STEPS: Final = (
    frozenset(
        """
    V E out in both outE inE bothE outV inV bothV otherV toE toV
    addV addE property drop mergeV mergeE
    has hasId hasLabel hasNot hasKey hasValue is where and or not filter dedup limit range skip tail sample coin
    timeLimit simplePath cyclicPath none discard all any
    id label key value values properties valueMap elementMap propertyMap element identity constant map flatMap
    count sum max min mean fold unfold group groupCount project select path tree order match math index sack loops
    choose branch coalesce optional union local repeat
    aggregate store cap inject sideEffect barrier subgraph profile explain executionProfile fail
    asString asBool asNumber concat format length lTrim rTrim trim toLower toUpper replace split substring reverse
    asDate dateAdd dateDiff combine merge difference disjunct intersect product conjoin
    shortestPath connectedComponent pageRank peerPressure program call io read write
    """.split()
    )
    | MODULATORS
)
SOURCE_STEPS: Final = frozenset(
    "withSack withSideEffect withStrategies withoutStrategies withBulk withPath with withComputer".split()
)
TERMINALS: Final = frozenset("next toList toSet toBulkSet iterate hasNext tryNext explain toString".split())
STRATEGIES: Final = frozenset(
    """
    PartitionStrategy SubgraphStrategy ReadOnlyStrategy SeedStrategy ProductiveByStrategy ProjectionStrategy
    EdgeLabelVerificationStrategy ReservedKeysVerificationStrategy OptionsStrategy
    AdjacentToIncidentStrategy ByModulatorOptimizationStrategy ComputerFinalizationStrategy
    ComputerVerificationStrategy ConnectiveStrategy CountStrategy EarlyLimitStrategy ElementIdStrategy EventStrategy
    FilterRankingStrategy GraphFilterStrategy HaltedTraverserStrategy IdentityRemovalStrategy
    IncidentToAdjacentStrategy InlineFilterStrategy LambdaRestrictionStrategy LazyBarrierStrategy
    MatchAlgorithmStrategy MatchPredicateStrategy MessagePassingReductionStrategy OrderLimitStrategy
    PathProcessorStrategy PathRetractionStrategy ProfileStrategy ReferenceElementStrategy RemoteStrategy
    RepeatUnrollStrategy RequirementsStrategy SackStrategy SideEffectStrategy StandardVerificationStrategy
    VertexProgramRestrictionStrategy VertexProgramStrategy
    """.split()
)


class Instruction:
    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: list[Any]) -> None:
        self.name = name
        self.arguments = arguments

    def __eq__(self, other: object) -> bool:
        return type(other) is Instruction and self.name == other.name and self.arguments == other.arguments

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class Traversal:
    """Instructions of the source (`withSack`, `withStrategies`, …) and steps; anonymous traversals have steps only."""

    __slots__ = ("source", "steps")

    def __init__(self, source: list[Instruction], steps: list[Instruction]) -> None:
        self.source = source
        self.steps = steps

    def __eq__(self, other: object) -> bool:
        return type(other) is Traversal and self.source == other.source and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return ".".join(map(repr, (*self.source, *self.steps))) or "identity()"


class Strategy:
    """A strategy by name with its settings."""

    __slots__ = ("name", "settings")

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.settings = settings

    def __eq__(self, other: object) -> bool:
        return type(other) is Strategy and self.name == other.name and self.settings == other.settings

    __hash__ = None  # type: ignore[assignment]


class CardinalityValue:
    """`list('x')` as the value in a map of properties."""

    __slots__ = ("cardinality", "value")

    def __init__(self, cardinality: Cardinality, value: Any) -> None:
        self.cardinality = cardinality
        self.value = value

    def __eq__(self, other: object) -> bool:
        same = type(other) is CardinalityValue and self.cardinality is other.cardinality
        return same and bool(self.value == other.value)  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


def parts(value: Any) -> Iterator[Any]:
    """The values directly inside an argument."""
    if isinstance(value, Traversal):
        for instruction in (*value.source, *value.steps):
            yield from instruction.arguments
    elif isinstance(value, P):
        yield value.value
    elif isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        for key, each in pairs(value):
            yield key
            yield each
    elif isinstance(value, CardinalityValue):
        yield value.value
    elif isinstance(value, Strategy):
        yield from value.settings.values()


def check_size(traversal: Traversal) -> None:
    """Refuses traversals with too many steps or too deep a nesting, before recursive functions run on them."""
    steps = 0
    level: list[Any] = [traversal]
    for _ in range(limits.GREMLIN_DEPTH_MAX + 1):
        if not level:
            return
        steps += sum(len(each.steps) + len(each.source) for each in level if isinstance(each, Traversal))
        if steps > limits.GREMLIN_STEPS_MAX:
            raise compilation(f"A traversal has at most {limits.GREMLIN_STEPS_MAX} steps.")
        level = [part for each in level for part in parts(each)]
    raise compilation(f"A traversal is nested at most {limits.GREMLIN_DEPTH_MAX} deep.")


def check_transaction(name: Any) -> None:
    """Every request is its own transaction: commit, rollback and close do nothing, and opening one is refused."""
    if name in ("begin", "open"):
        raise unsupported("Transactions of several requests are not supported: every request is one by itself.")
    if name not in ("commit", "rollback", "close"):
        raise compilation(f"g.tx().{str(name)[:40]}() is not a method of a transaction.")
