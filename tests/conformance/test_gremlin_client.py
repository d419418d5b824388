"""The Gremlin corpus through the released client against a real server: as texts and, where it can be said so, as
bytecode; on graphs of one partition and of four. `make test` takes two ways on each, `make soak` all."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from conformance.gremlin_bytecode import bytecode
from conformance.gremlin_received import ours
from conformance.gremlin_values import matches
from conformance.test_gremlin import CASES, GRAPHS
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from gremlin_python.driver.protocol import GremlinServerError
from support.process import ServerProcess

from armillary.languages.gremlin.syntax.grammar import parse

pytestmark = [
    # The client's own: it leaves event loops to the collector.
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SERIALIZERS = {
    "graphson2": serializer.GraphSONSerializersV2d0,
    "graphson3": serializer.GraphSONSerializersV3d0,
    "graphbinary": serializer.GraphBinarySerializersV1,
}
WAYS = ["text-graphson2", "text-graphson3", "bytecode-graphson2", "bytecode-graphbinary"]
OFTEN = {(1, "text-graphson3"), (1, "bytecode-graphson2"), (4, "text-graphson2"), (4, "bytecode-graphbinary")}
CELLS = [
    pytest.param(partitions, way, marks=() if (partitions, way) in OFTEN else pytest.mark.soak)
    for partitions in (1, 4)
    for way in WAYS
]
PARTITION_RU = 200  # of which a graph's 400 request units make four partitions
RESULT_S = 90


class House:
    """A server with both graphs of the corpus, and clients of it."""

    def __init__(self, partitions: int) -> None:
        logging.getLogger("gremlinpython").setLevel(logging.CRITICAL)
        options = ["--partition-throughput", str(PARTITION_RU)] if partitions > 1 else []
        self.server = ServerProcess.start(None, "--gremlin-create", "none", *options)
        self._clients: dict[tuple[str, str], Client] = {}
        self.clean: set[str] = set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            database = CosmosClient(self.server.url, self.server.key).create_database("cases")
            roads = database.create_container("roads", PartitionKey("/region"), offer_throughput=400)
        self.partition_count = len(list(roads.read_feed_ranges()))

    def client(self, graph: str, form: str) -> Client:
        found = self._clients.get((graph, form))
        if found is None:
            found = self._clients[(graph, form)] = Client(
                self.server.doors["gremlin"] + "/gremlin",
                "g",
                username=f"/dbs/cases/colls/{graph}",
                password=self.server.key,
                message_serializer=SERIALIZERS[form](),
                pool_size=1,
            )
        return found

    def run(
        self, graph: str, message: Any, bindings: dict[str, Any] | None = None, form: str = "graphson2"
    ) -> list[Any]:
        found = self.client(graph, form).submit(message, bindings).all().result(RESULT_S)
        if isinstance(message, str):
            return [ours(each) for each in found]
        return [ours(each.object) for each in found for _ in range(each.bulk)]

    def rebuild(self, graph: str) -> None:
        self.run(graph, "g.V().drop()")
        for script in GRAPHS[graph]["scripts"]:
            self.run(graph, script)
        self.clean.add(graph)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self.server.stop()


@pytest.fixture(scope="module")
def houses() -> Iterator[dict[int, House]]:
    """By the partitions of their graphs."""
    made: dict[int, House] = {}
    try:
        for partitions in (1, 4):
            made[partitions] = House(partitions)
            assert made[partitions].partition_count == partitions
        yield made
    finally:
        for each in made.values():
            each.close()


@pytest.mark.parametrize(("partitions", "way"), CELLS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(houses: dict[int, House], case: dict[str, Any], partitions: int, way: str) -> None:
    house = houses[partitions]
    kind, form = way.split("-")
    graph, script, bindings = case["graph"], case["script"], case.get("bindings")
    message: Any = script
    if kind == "bytecode":
        if "error" in case or "executionProfile" in script:
            pytest.skip("said in texts only")
        [statement] = parse(script, bindings)
        if statement.terminal != "toList" or statement.transaction is not None:
            pytest.skip("a call of texts")
        message, bindings = bytecode(statement.traversal), None
        if form == "graphbinary" and "$tree" in str(case["expect"]):
            pytest.skip("the client cannot read trees in GraphBinary")
    if graph not in house.clean or case.get("fresh"):
        house.rebuild(graph)
    if case.get("fresh"):
        house.clean.discard(graph)
    for each in case.get("setup", []):
        house.run(graph, each)
    if case.get("error"):
        with pytest.raises(GremlinServerError) as caught:
            house.run(graph, message, bindings, form)
        wanted = case.get("x_ms_status_code")
        assert wanted is None or caught.value.status_attributes["x-ms-status-code"] == wanted
        return
    results = house.run(graph, message, bindings, form)
    if "expect_keys" in case:
        assert set(case["expect_keys"]) <= set(results[0])
    else:
        assert matches(case, results), f"expected {case['expect']}, found {results}"


def test_old_drivers_read_graphbinary(houses: dict[int, House]) -> None:
    """Before 3.7 they take elements to have no properties, and stumble over those that have some."""
    house = houses[1]
    house.run("bare", "g.V().drop()")
    house.run("bare", "g.addV('city').property('id','a').property('n',1)")
    found = {}
    for version in ("3.6.8", "3.7.4"):
        client = Client(
            house.server.doors["gremlin"],
            "g",
            username="/dbs/cases/colls/bare",
            password=house.server.key,
            message_serializer=SERIALIZERS["graphbinary"](),
            pool_size=1,
            headers={"User-Agent": f"NotAvailable Gremlin-Python.{version} 3.11.7 Linux.6 x86_64"},
            enable_user_agent_on_connect=False,
        )
        [found[version]] = client.submit("g.V()").all().result(RESULT_S)
        client.close()
    assert found["3.6.8"].id == found["3.7.4"].id == "a"
    assert not found["3.6.8"].properties
    assert [(each.key, each.value) for each in found["3.7.4"].properties] == [("n", 1)]
