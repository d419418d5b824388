"""The Gremlin corpus as bytecode: each script's instructions, written by gremlinpython's own serialisers, read by ours,
and run; and results written by us, read by gremlinpython.
"""

from __future__ import annotations

import io
import json
from typing import Any

import orjson
import pytest
from conformance.gremlin_bytecode import bytecode
from conformance.gremlin_values import matches
from conformance.test_gremlin import CASES, build
from gremlin_python.process.anonymous_traversal import traversal
from gremlin_python.process.graph_traversal import __
from gremlin_python.process.strategies import PartitionStrategy, ReadOnlyStrategy, SeedStrategy, SubgraphStrategy
from gremlin_python.process.traversal import Bytecode, Operator, Order, P, T, TextP
from gremlin_python.structure.io import graphbinaryV1, graphsonV2d0, graphsonV3d0
from support.gremlin_graph import MemoryGraph, run_script

from armillary.errors import Failure
from armillary.languages.gremlin.formats import graphbinary_read, graphbinary_write, graphson_read
from armillary.languages.gremlin.formats.graphson_write import Writer
from armillary.languages.gremlin.program import compile_traversal
from armillary.languages.gremlin.syntax.bytecode import transaction_of
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.instructions import Traversal

FORMATS = ("graphson2", "graphson3", "graphbinary")
TEXTS = [case for case in CASES if "error" not in case and "executionProfile" not in case["script"]]


def decoded(written: Any, form: str) -> Traversal:
    """A client's bytecode through its serialiser and our reader."""
    if form == "graphbinary":
        found = graphbinary_read.read(bytes(graphbinaryV1.GraphBinaryWriter().write_object(written)))
    else:
        writer = (graphsonV2d0 if form == "graphson2" else graphsonV3d0).GraphSONWriter()
        found = graphson_read.read(json.loads(writer.write_object(written)))
    assert isinstance(found, Traversal)
    return found


async def results(graph: MemoryGraph, given: Traversal) -> list[Any]:
    program = compile_traversal(given, partition_key=graph.partition_key, element_id=graph.element_id)
    return await program.run(graph, graph.world).values()


def encoded(values: list[Any], form: str) -> Any:
    """Results by our writer and the client's reader."""
    if form == "graphbinary":
        return graphbinaryV1.GraphBinaryReader().to_object(io.BytesIO(graphbinary_write.write(values)))
    written = orjson.dumps(Writer(int(form[-1])).results(values))
    reader = (graphsonV2d0 if form == "graphson2" else graphsonV3d0).GraphSONReader()
    return reader.to_object(json.loads(written))


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case["id"])
async def test_case(case: dict[str, Any]) -> None:
    statement = parse(case["script"], case.get("bindings"))[-1]
    for form in FORMATS:
        graph = await build(case["graph"])
        for script in case.get("setup", []):
            await run_script(graph, script)
        sent = decoded(bytecode(statement.traversal), form)
        found = await results(graph, sent)
        assert matches(case, found), f"{form}: expected {case['expect']}, found {found}"
        if not any("$tree" in str(each) for each in case["expect"]):
            received = encoded(found, form)
            assert len(received) == len(found), form


G = traversal().with_(None)
FLUENT: list[tuple[Any, list[Any]]] = [
    (G.V().has("person", "name", "marko").out("knows").values("name").order(), ["josh", "vadas"]),
    (G.V().has("age", P.between(27, 32)).values("age").sum_(), [56]),
    (G.V().has("age", P.gt(27).and_(P.lt(35))).values("age").order(), [29, 32]),
    (G.V().has("name", TextP.starting_with("m")).id_(), ["1"]),
    (G.V().has("name", P.within("lop", "josh")).count(), [2]),
    (G.V().has("name", P.within(["lop", "josh"])).count(), [2]),
    (G.V("1").repeat(__.out()).times(2).values("name").order(), ["lop", "ripple"]),
    (G.V().order().by("name", Order.desc).limit(1).values("name"), ["vadas"]),
    (G.V().has_label("person").group_count().by(T.label), [{"person": 4}]),
    (G.V("1").out_e("created").in_v().values("name"), ["lop"]),
    (G.with_sack(0).V().has_label("person").sack(Operator.sum_).by("age").sack().sum_(), [123]),
    (G.V().where(__.out("created").count().is_(2)).values("name"), ["josh"]),
    (G.V("4").project("n", "c").by("name").by(__.out("created").count()), [{"n": "josh", "c": 2}]),
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("at", range(len(FLUENT)))
async def test_fluent(at: int, form: str) -> None:
    sent, expected = FLUENT[at]
    graph = await build("modern")
    assert await results(graph, decoded(sent.bytecode, form)) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_transactions_have_nothing_to_run(form: str) -> None:
    sent = Bytecode()
    sent.source_instructions = [["tx", "commit"]]
    found = decoded(sent, form)
    assert transaction_of(found) == "commit"
    with pytest.raises(Failure, match="tx"):
        compile_traversal(found)
    assert transaction_of(decoded(G.V().bytecode, form)) is None


@pytest.mark.parametrize("form", FORMATS)
def test_lambdas_are_refused(form: str) -> None:
    sent = G.V().map(lambda: ("it.get()", "gremlin-groovy"))
    with pytest.raises(Failure, match="Lambdas are not supported"):
        decoded(sent.bytecode, form)


@pytest.mark.parametrize("form", FORMATS)
async def test_strategies(form: str) -> None:
    graph = await build("modern")
    for strategy, count in (
        (SubgraphStrategy(vertices=__.has_label("person"), edges=__.has("weight", P.gt(0.6))), 4),
        (PartitionStrategy(partition_key="lang", read_partitions=["java"]), 2),
        (ReadOnlyStrategy(), 6),
        (SeedStrategy(7), 6),
    ):
        given = G.with_strategies(strategy).V().count()
        assert await results(graph, decoded(given.bytecode, form)) == [count], strategy
    with pytest.raises(Failure, match="not read only"):
        await results(graph, decoded(G.with_strategies(ReadOnlyStrategy()).add_v().bytecode, form))


@pytest.mark.parametrize(
    "value", [{"partitionKey": "lang"}, {"fqcn": "org.PartitionStrategy", "conf": {"partitionKey": "lang"}}]
)
def test_settings_of_strategies_stand_alone_or_beside_their_class(value: dict[str, Any]) -> None:
    """Before 3.8, and since."""
    for kind in ("g:PartitionStrategy", "org.apache.tinkerpop.gremlin.PartitionStrategy"):
        found = graphson_read.read({"@type": kind, "@value": value})
        assert (found.name, found.settings) == ("PartitionStrategy", {"partitionKey": "lang"})


async def test_vertices_of_clients_are_known_by_their_ids() -> None:
    graph = MemoryGraph("pk")
    await run_script(graph, "g.addV('city').property('id','a').property('pk','x')")
    await run_script(graph, "g.addV('city').property('id','b').property('pk','x')")
    assert await run_script(graph, "g.V().is(new Vertex('a','city')).id()") == ["a"]
    assert await run_script(graph, "g.withSideEffect('s',new Vertex('a','city')).V().where(neq('s')).id()") == ["b"]
