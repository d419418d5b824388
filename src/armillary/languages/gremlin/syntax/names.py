"""Every name of the language: steps, what comes before them at the source, terminal calls, strategies.

A step that is here and has no builder in `build` is known and refused by name.
"""

from __future__ import annotations

from typing import Final

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
