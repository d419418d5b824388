"""Generates a skewed graph: some vertices have very many edges, most have few. It is bulk-loaded through the engine
into a data directory that a server opens afterwards (`python -m bench.gremlin_graph DIRECTORY VERTICES EDGES`), or
written as a file for TinkerPop's server.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvloop

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.graphs.graph import StoredGraph
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import SystemClock
from armillary.languages.gremlin.graph_protocol import AddEdge, AddVertex
from armillary.languages.gremlin.values.elements import Edge, Vertex, VertexProperty
from armillary.storage.rocks import RocksEngine
from bench.gremlin_wire import DATABASE, GRAPH, PARTITION_KEY

REGIONS: Final = 1_000
SEED: Final = 7
_THROUGHPUT_RU: Final = 24_000  # makes four partitions
_AT_ONCE: Final = 2_000


def region(number: int) -> str:
    return f"r{number % REGIONS}"


def vertex(number: int) -> Vertex:
    found = Vertex(f"v{number}", "person", region(number), {})
    found.properties = {
        name: [VertexProperty(f"{number}-{name}", name, value, found)]
        for name, value in (("name", f"person {number}"), ("age", number % 90))
    }
    return found


def edges(vertices: int, count: int) -> Iterator[tuple[int, int]]:
    """Source and target of each edge; a tenth of the vertices has about a third of the edges."""
    dice = random.Random(SEED)
    for _ in range(count):
        yield int(vertices * dice.random() ** 2), int(vertices * dice.random() ** 2)


async def fill(directory: Path, vertex_count: int, edge_count: int) -> None:
    clock = SystemClock()
    engine = await RocksEngine.open(directory, "relaxed")
    account = await Account.open(engine, clock, AccountSettings())
    database = await containers.create_database(account, {"id": DATABASE}, None)
    key = {"paths": [f"/{PARTITION_KEY}"], "kind": "Hash", "version": 2}
    body = {"id": GRAPH, "partitionKey": key}
    container = await containers.create_container(account, database, body, Throughput.manual(_THROUGHPUT_RU))
    graph = StoredGraph(account, container)
    known = [Vertex(f"v{number}", "person", region(number)) for number in range(vertex_count)]
    for first in range(0, vertex_count, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, vertex_count))
        await graph.write([AddVertex(vertex(number)) for number in some])
    waiting: list[AddEdge] = []
    for number, (out, into) in enumerate(edges(vertex_count, edge_count)):
        waiting.append(AddEdge(Edge(f"e{number}", "knows", known[out], known[into], {})))
        if len(waiting) == _AT_ONCE:
            await graph.write(waiting)
            waiting.clear()
    await graph.write(waiting)
    await account.close()
    await engine.close()


def write_graphson(path: Path, vertex_count: int, edge_count: int) -> None:
    """The same for TinkerPop: a vertex with its edges in each line."""
    outgoing: dict[int, list[dict[str, Any]]] = {}
    incoming: dict[int, list[dict[str, Any]]] = {}
    for number, (out, into) in enumerate(edges(vertex_count, edge_count)):
        outgoing.setdefault(out, []).append({"id": f"e{number}", "inV": f"v{into}"})
        incoming.setdefault(into, []).append({"id": f"e{number}", "outV": f"v{out}"})
    with path.open("w") as out_file:
        for number in range(vertex_count):
            record: dict[str, Any] = {"id": f"v{number}", "label": "person"}
            if number in outgoing:
                record["outE"] = {"knows": outgoing[number]}
            if number in incoming:
                record["inE"] = {"knows": incoming[number]}
            record["properties"] = {
                "name": [{"id": f"n{number}", "value": f"person {number}"}],
                "age": [{"id": f"a{number}", "value": {"@type": "g:Int32", "@value": number % 90}}],
            }
            out_file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    uvloop.run(fill(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
