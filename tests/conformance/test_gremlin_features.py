"""TinkerPop's feature files, run on the graph in memory, and through a released client against a real server.

They belong to another project and are not kept here. Where they are is said by two variables:

    GREMLIN_FEATURES  …/gremlin-test/src/main/resources/org/apache/tinkerpop/gremlin/test/features
    GREMLIN_DATA      …/data, with tinkerpop-modern.json and the other graphs in GraphSON

Without them the tests are skipped. Scenarios with lambdas, a graph computer, services or files are out of scope; the
others that are not met are listed with the reason.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.gremlin_features import Graphs, Run, Scenario, Skipped, scenarios
from conformance.gremlin_wire_features import GRAPHS as FILES
from conformance.gremlin_wire_features import Door, WireRun, finish
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from support.process import ServerProcess

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
    "g_VX1X_out_hasIdX2_listXid3_id4XX": "lists of ids are flattened wherever they stand, as up to 3.7.6",
    "g_V_shortestpath": "labels of a vertex that is met again at once are kept twice",
    "g_addVXanimalX_propertyXname_mateoX_propertyXname_gateoX_propertyXname_cateoX_propertyXage_5X": "default: single",
    "g_V_addVXanimalX_propertyXname_valuesXnameXX_propertyXname_an_animalX_propertyXvaluesXnameX_labelX": "as above",
    "g_V_properties_order_id": "ids are texts",
}


needs_files = pytest.mark.skipif(
    not SCENARIOS, reason="GREMLIN_FEATURES does not say where TinkerPop's feature files are"
)
each_scenario = pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=lambda scenario: f"{scenario.folder}/{scenario.name}"
)


def skip_others(scenario: Scenario) -> None:
    if scenario.folder in OUT_OF_SCOPE:
        pytest.skip(OUT_OF_SCOPE[scenario.folder])
    computer = set() if scenario.folder == "map/ShortestPath" else {"@GraphComputerOnly"}  # ours needs none
    if scenario.tags & (computer | {"@AllowNullPropertyValues"}):
        pytest.skip("out of scope: " + ", ".join(sorted(scenario.tags)))
    if scenario.name in NOT_MET:
        pytest.skip(NOT_MET[scenario.name])


@needs_files
@each_scenario
async def test_scenario(scenario: Scenario) -> None:
    skip_others(scenario)
    try:
        await Run(scenario, GRAPHS).run()
    except Skipped as reason:
        pytest.skip(str(reason))


FORMS = {"graphson3": serializer.GraphSONSerializersV3d0, "graphbinary": serializer.GraphBinarySerializersV1}


@pytest.fixture(scope="module", params=FORMS)
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    logging.getLogger("gremlinpython").setLevel(logging.CRITICAL)
    server = ServerProcess.start(None, "--gremlin-create", "none")
    clients = {
        name: Client(
            server.doors["gremlin"],
            "g",
            username=f"/dbs/features/colls/{name}",
            password=server.key,
            message_serializer=FORMS[request.param](),
            pool_size=1,
        )
        for name in ("empty", *FILES)
    }
    made = Door(clients)
    for name, file in FILES.items():
        made.load(name, Path(DATA or "") / f"{file}.json")
    yield made
    for client in clients.values():
        client.close()
    server.stop()


@needs_files
@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client's own
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each_scenario
def test_scenario_of_a_client(door: Door, scenario: Scenario) -> None:
    skip_others(scenario)
    try:
        finish(WireRun(scenario, door).run())
    except Skipped as reason:
        pytest.skip(str(reason))
