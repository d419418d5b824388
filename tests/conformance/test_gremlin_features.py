"""TinkerPop's feature files, run on the graph in memory.

They belong to another project and are not kept here. Where they are is said by two variables:

    GREMLIN_FEATURES  …/gremlin-test/src/main/resources/org/apache/tinkerpop/gremlin/test/features
    GREMLIN_DATA      …/data, with tinkerpop-modern.json and the other graphs in GraphSON

Without them the tests are skipped. Scenarios with lambdas, a graph computer, services or files are out of scope; the
others that are not met are listed with the reason.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conformance.gremlin_features import Graphs, Run, Scenario, Skipped, scenarios

FEATURES, DATA = os.environ.get("GREMLIN_FEATURES"), os.environ.get("GREMLIN_DATA")
SCENARIOS = list(scenarios(Path(FEATURES))) if FEATURES else []
GRAPHS = Graphs(Path(DATA) if DATA else None)
OUT_OF_SCOPE = {
    "map/Call": "services are TinkerGraph's own",
    "map/ConnectedComponent": "needs a graph computer",
    "map/PageRank": "needs a graph computer",
    "map/PeerPressure": "needs a graph computer",
    "sideEffect/Read": "a server reads no files for its clients",
    "sideEffect/Write": "a server writes no files for its clients",
}
NOT_MET = {
    "g_withStrategiesXSeedStrategyX_V_order_byXnameX_coinX50X": "the numbers are those of Java's dice",
    "g_withStrategiesXSeedStrategyX_V_group_byXlabelX_byXbothE_weight_order_sampleX2X_foldXunfold": "Java's dice",
    "g_withStrategiesXSeedStrategyX_V_group_byXlabelX_byXbothE_weight_order_fold_sampleXlocal_5XXunfold": "Java's dice",
    "g_V_shortestpath": "labels of a vertex that is met again at once are kept twice",
    "g_addVXanimalX_propertyXname_mateoX_propertyXname_gateoX_propertyXname_cateoX_propertyXage_5X": "default: single",
    "g_V_addVXanimalX_propertyXname_valuesXnameXX_propertyXname_an_animalX_propertyXvaluesXnameX_labelX": "as above",
    "g_V_properties_order_id": "ids are texts",
}


@pytest.mark.skipif(not SCENARIOS, reason="GREMLIN_FEATURES does not say where TinkerPop's feature files are")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.folder}/{scenario.name}")
async def test_scenario(scenario: Scenario) -> None:
    if scenario.folder in OUT_OF_SCOPE:
        pytest.skip(OUT_OF_SCOPE[scenario.folder])
    computer = set() if scenario.folder == "map/ShortestPath" else {"@GraphComputerOnly"}  # ours needs none
    if scenario.tags & (computer | {"@AllowNullPropertyValues"}):
        pytest.skip("out of scope: " + ", ".join(sorted(scenario.tags)))
    if scenario.name in NOT_MET:
        pytest.skip(NOT_MET[scenario.name])
    try:
        await Run(scenario, GRAPHS).run()
    except Skipped as reason:
        pytest.skip(str(reason))
