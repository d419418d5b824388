"""One graph by all the ways that lead to it: the released clients of Python and JavaScript, TLS, the SQL door; and
while its partitions split."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from gremlin_python.driver.driver_remote_connection import DriverRemoteConnection
from gremlin_python.driver.protocol import GremlinServerError
from gremlin_python.process.anonymous_traversal import traversal
from gremlin_python.process.graph_traversal import GraphTraversalSource, __
from gremlin_python.process.traversal import P, T
from support.process import ServerProcess

pytestmark = [
    # The client's own: it leaves event loops to the collector.
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
JAVASCRIPT = Path(__file__).parent / "js"
RESULT_S = 90
Run = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def _quiet_client() -> None:
    logging.getLogger("gremlinpython").setLevel(logging.CRITICAL)


@pytest.fixture
def graph(server: ServerProcess, name: str) -> Iterator[ContainerProxy]:
    """A graph of the test's own, through the SQL door."""
    with CosmosClient(server.url, server.key) as sql:
        database = sql.create_database_if_not_exists("graphs")
        yield database.create_container(name, PartitionKey("/pk"), offer_throughput=400)


def is_scaling(graph: ContainerProxy) -> bool:
    offer = graph.get_throughput().properties
    assert offer is not None
    return bool(offer["content"].get("isOfferReplacePending", False))


def options(server: ServerProcess, graph: str) -> dict[str, Any]:
    return {
        "username": f"/dbs/graphs/colls/{graph}",
        "password": server.key,
        "message_serializer": serializer.GraphSONSerializersV2d0(),
        "pool_size": 1,
    }


@pytest.fixture
def run(server: ServerProcess, graph: ContainerProxy) -> Iterator[Run]:
    """run(script, bindings): its results."""
    client = Client(server.doors["gremlin"], "g", **options(server, graph.id))
    yield lambda script, bindings=None: client.submit(script, bindings).all().result(RESULT_S)
    client.close()


def test_fluent(server: ServerProcess, graph: ContainerProxy) -> None:
    connection = DriverRemoteConnection(
        server.doors["gremlin"] + "/gremlin",
        "g",
        username=f"/dbs/graphs/colls/{graph.id}",
        password=server.key,
        pool_size=1,
    )
    with contextlib.closing(connection):
        check_traversals(traversal().with_remote(connection))


def check_traversals(g: GraphTraversalSource) -> None:
    for name, age in (("ann", 30), ("bob", 40), ("cid", 50)):
        g.add_v("person").property(T.id, name).property("pk", name[0]).property("age", age).iterate()
    g.V("ann").add_e("knows").to(__.V("bob")).property("since", 2001).iterate()
    g.V(["b", "bob"]).add_e("knows").to(__.V("cid")).iterate()
    assert g.V("ann").out("knows").out("knows").values("age").to_list() == [50]
    assert g.V().has("age", P.gt(30)).order().by("age").id_().to_list() == ["bob", "cid"]
    assert g.V("cid").repeat(__.in_()).emit().path().by(T.id).to_list()[-1].objects == ["cid", "bob", "ann"]
    assert g.V("ann").out_e().value_map(True).next()["since"] == 2001
    g.V("bob").drop().iterate()
    assert g.V().count().next() == 2
    assert g.E().count().next() == 0


def test_tls(server: ServerProcess, graph: ContainerProxy) -> None:
    """On the same port."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    address = server.doors["gremlin"].replace("ws://", "wss://") + "/"
    client = Client(address, "g", ssl_options=trusting, **options(server, graph.id))
    assert client.submit("g.inject(1, 2)").all().result(RESULT_S) == [1, 2]
    client.close()


@pytest.mark.parametrize("version", [2, 3], ids=["javascript-GraphSON2", "javascript-GraphSON3"])
def test_a_graph_that_begins_with_its_use(start_server: Callable[..., ServerProcess], version: int) -> None:
    server = start_server("--gremlin-create", "/pk")
    node = shutil.which("node")
    assert node is not None, "Node.js 20 or newer is not on the PATH; `make test` brings it"
    ran = subprocess.run(
        [node, "gremlin.mjs"],
        cwd=JAVASCRIPT,
        env={
            **os.environ,
            "TEST_GREMLIN_ENDPOINT": server.doors["gremlin"] + "/",
            "TEST_USER": "/dbs/graphs/colls/javascript",
            "TEST_KEY": server.key,
            "TEST_FORM": f"application/vnd.gremlin-v{version}.0+json",
        },
        capture_output=True,
        text=True,
        timeout=RESULT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout) == {
        "added": "ann",
        "names": ["bob", "cid"],
        "charge": True,
        "refused": 597,
        "fluent": ["bob", "cid"],
    }


def test_sql_sees_what_gremlin_writes(graph: ContainerProxy, run: Run) -> None:
    run("g.addV('city').property('id','a').property('pk','x').property('name','A').property(list,'tag','t','since',1)")
    run("g.addV('city').property('id','b').property('pk','y')")
    run("g.V('a').addE('road').to(g.V('b')).property('id','e').property('km',7)")
    vertex = graph.read_item("a", "x")
    assert (vertex["label"], vertex["pk"]) == ("city", "x")
    assert vertex["name"][0]["_value"] == "A"
    assert vertex["tag"][0]["_meta"] == {"since": 1}
    edge = graph.read_item("e", "x")
    ends = {name: edge[name] for name in edge if name.startswith(("_sink", "_vertex", "_is"))}
    assert ends == {
        "_isEdge": True,
        "_vertexId": "a",
        "_vertexLabel": "city",
        "_sink": "b",
        "_sinkLabel": "city",
        "_sinkPartition": "y",
    }
    assert edge["km"] == 7
    text = "SELECT VALUE c.id FROM c JOIN n IN c.name WHERE n._value = 'A'"
    found: list[Any] = list(graph.query_items(text, enable_cross_partition_query=True))
    assert found == ["a"]


def test_gremlin_sees_what_sql_writes(graph: ContainerProxy, run: Run) -> None:
    graph.create_item({"id": "a", "pk": "x", "label": "city", "name": [{"id": "1", "_value": "A"}], "bare": 5})
    graph.create_item({"id": "b", "pk": "y", "label": "city"})
    ends = {"_vertexId": "a", "_vertexLabel": "city", "_sink": "b", "_sinkLabel": "city", "_sinkPartition": "y"}
    graph.create_item({"id": "e", "pk": "x", "label": "road", "_isEdge": True, "km": 7, **ends})
    graph.create_item({"id": "stranger", "pk": "x", "name": "no label"})
    graph.create_item({"id": "loose", "pk": "x", "label": "road", "_isEdge": True})
    assert run("g.V().id().order()") == ["a", "b"]
    assert run("g.E().id()") == ["e"]
    assert run("g.V().has('name','A').outE('road').has('km',7).inV().id()") == ["b"]
    assert run("g.V().has('bare',5).id()") == ["a"]
    assert run("g.V(['y','b']).in().values('name')") == ["A"]
    run("g.V('a').property('name','B')")
    assert graph.read_item("a", "x")["name"][0]["_value"] == "B"
    graph.delete_item("a", "x")
    assert run("g.V().count()") == [1]


def test_both_doors_work_on_one_graph(graph: ContainerProxy, run: Run) -> None:
    """Vertices and edges by turns, each side on what the other wrote; nothing is seen twice or lost."""
    for number in range(0, 20, 2):
        run(f"g.addV('n').property('id','{number}').property('pk','k{number % 5}').property('number',{number})")
        odd = number + 1
        content = {"id": str(odd), "pk": f"k{odd % 5}", "label": "n", "number": [{"id": f"p{odd}", "_value": odd}]}
        graph.create_item(content)
    for number in range(19):
        if number % 3:
            ends = f"g.V('{number}').addE('next').to(V('{number + 1}'))"
            run(f"{ends}.property('id','e{number}').property('way','gremlin')")
        else:
            sides = {"_vertexId": str(number), "_sink": str(number + 1), "_sinkPartition": f"k{(number + 1) % 5}"}
            edge = {"id": f"e{number}", "pk": f"k{number % 5}", "label": "next", "_isEdge": True, "way": "sql", **sides}
            graph.create_item({**edge, "_vertexLabel": "n", "_sinkLabel": "n"})
    assert run("g.V('0').repeat(out('next')).until(__.not(out('next'))).path().by('number')")[0].objects == [*range(20)]
    assert run("g.V('19').repeat(__.in('next')).emit().count()") == [19]
    assert run("g.E().groupCount().by('way')") == [{"sql": 7, "gremlin": 12}]
    text = "SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c._isEdge)"
    found: list[Any] = list(graph.query_items(text, enable_cross_partition_query=True))
    assert found == [19]
    # Each changes and drops what is the other's.
    item = graph.read_item("4", "k4")
    item["number"] = [{"id": "p4", "_value": 400}]
    graph.replace_item(item, item)
    run("g.V('5').property('number',500)")
    assert run("g.V('3').out().values('number')") == [400]
    assert graph.read_item("5", "k0")["number"][0]["_value"] == 500
    graph.delete_item("e7", "k2")
    run("g.E('e9').drop()")
    run("g.V('15').drop()")
    assert run("g.V('0').repeat(out('next')).until(__.not(out('next'))).id()") == ["7"]
    assert run("g.V('16').in().count()") == [0]
    left: list[Any] = list(graph.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True))
    gone = {"e7", "e9", "15", "e14", "e15"}
    assert len(left) == len(set(left))
    assert set(left) == ({str(n) for n in range(20)} | {f"e{n}" for n in range(19)}) - gone


def test_an_id_is_taken_once(graph: ContainerProxy, run: Run) -> None:
    run("g.addV('city').property('id','a').property('pk','x')")
    with pytest.raises(GremlinServerError) as caught:
        run("g.addV('city').property('id','a').property('pk','x')")
    assert caught.value.status_attributes["x-ms-status-code"] == 409


def test_nothing_is_lost_while_partitions_split(server: ServerProcess, graph: ContainerProxy, run: Run) -> None:
    count = 60
    for number in range(count):
        run(
            "g.addV('n').property('id',id).property('pk',pk).property('number',number)",
            {"id": str(number), "pk": f"k{number % 17}", "number": number},
        )
    for number in range(count):
        run("g.V(a).addE('next').to(__.V(b))", {"a": str(number), "b": str((number + 1) % count)})
    failures: list[Any] = []
    is_over = threading.Event()
    added: list[int] = []

    def read() -> None:
        client = Client(server.doors["gremlin"], "g", **options(server, graph.id))
        while not is_over.is_set():
            asked = [
                ("g.V().has('number',gte(0)).count()", [count]),
                ("g.V().out('next').out('next').dedup().count()", None),
                ("g.V('5').repeat(out('next')).times(10).values('number')", [15]),
                ("g.V('5').repeat(__.in('next')).times(3).id()", ["2"]),
            ]
            for script, wanted in asked:
                found = client.submit(script).all().result(RESULT_S)
                if wanted is not None and found != wanted:
                    failures.append((script, found))
                if wanted is None and found[0] < count:
                    failures.append((script, found))
        client.close()

    def write() -> None:
        client = Client(server.doors["gremlin"], "g", **options(server, graph.id))
        while not is_over.is_set():
            number = len(added)
            script = "g.addV('extra').property('id',id).property('pk',pk).as('a').V('0').addE('to').to('a')"
            client.submit(script, {"id": f"x{number}", "pk": f"k{number % 17}"}).all().result(RESULT_S)
            added.append(number)
        client.close()

    threads = [threading.Thread(target=each) for each in (read, write)]
    for thread in threads:
        thread.start()
    try:
        for throughput in (11_000, 25_000, 45_000):
            graph.replace_throughput(throughput)
            while is_scaling(graph):
                pass
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(list(graph.read_feed_ranges(force_refresh=True))) > 3
    assert run("g.V().hasLabel('extra').count()") == [len(added)]
    assert run("g.V('0').out('to').dedup().count()") == [len(added)]
    assert run("g.V().hasLabel('n').count()") == [count]
    assert run("g.V('7').out('next').in('next').id()") == ["7"]
