"""What the Gremlin engine asks of a graph and when: batches, conditions, early stops, limits; profiles, strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.gremlin_graph import MemoryGraph, World, run_script
from support.limits import WithLimits

from armillary.errors import Failure, Kind
from armillary.languages.gremlin.graph_protocol import Reference, Wanted
from armillary.languages.gremlin.program import compile_traversal
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.tokens import Direction, T
from armillary.languages.gremlin.values.elements import Edge, Vertex, VertexProperty
from armillary.languages.gremlin.values.predicates import P


class Watched(MemoryGraph):
    """Notes what was asked."""

    def __init__(self, partition_key: str | None = None) -> None:
        super().__init__(partition_key)
        self.asked: list[tuple[Any, ...]] = []
        self.wanted: list[Wanted] = []

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        self.asked.append(("adjacent", len(vertices), direction.value, labels, limit))
        return await super().adjacent(vertices, direction, labels, limit)

    async def load(self, vertices: Sequence[Vertex]) -> None:
        self.asked.append(("load", len(vertices)))
        await super().load(vertices)

    def vertices(self, wanted: Wanted) -> Any:
        self.wanted.append(wanted)
        return super().vertices(wanted)


def star(leaves: int) -> Watched:
    """A hub with edges to leaves, each of which has an edge to one sink."""
    graph = Watched()
    for id in ("hub", "sink", *(f"leaf{at}" for at in range(leaves))):
        vertex = Vertex(id, "v", None, {})
        assert vertex.properties is not None
        vertex.properties["name"] = [VertexProperty(f"{id}p", "name", id, vertex)]
        graph.stored_vertices[(None, id)] = vertex
    for at in range(leaves):
        for label, out, into in (("to", "hub", f"leaf{at}"), ("on", f"leaf{at}", "sink")):
            edge = Edge(f"{label}{at}", label, Vertex(out, "v"), Vertex(into, "v"), {})
            graph.stored_edges[(None, edge.id)] = edge
            graph.out_edges.setdefault((None, out), {})[(None, edge.id)] = None
            graph.in_edges.setdefault((None, into), {})[(None, edge.id)] = None
    return graph


async def test_two_hops_ask_for_all_vertices_of_a_hop_at_once() -> None:
    graph = star(1000)
    assert await run_script(graph, "g.V('hub').out().out().dedup().count()") == [1]
    assert graph.asked == [("adjacent", 1, "OUT", (), None), ("adjacent", 1000, "OUT", (), None)]


async def test_vertices_are_loaded_when_somebody_looks_and_in_batches() -> None:
    graph = star(50)
    assert len(await run_script(graph, "g.V('hub').out().id()")) == 50
    assert ("load", 50) not in graph.asked
    assert len(await run_script(graph, "g.V('hub').out().values('name')")) == 50
    assert graph.asked[-1] == ("load", 50)


async def test_edges_that_only_lead_on_are_not_looked_at() -> None:
    graph = star(10)
    program = compile_traversal(parse("g.V('hub').outE('to').inV().count()")[0].traversal)
    assert "outE" not in program.explain() and "out(to)" in program.explain()
    program = compile_traversal(parse("g.V('hub').outE('to').inV().path()")[0].traversal)
    assert "outE(to)" in program.explain()
    assert await run_script(graph, "g.V('hub').bothE().otherV().count()") == [10]


async def test_children_are_prepared_for_whole_batches() -> None:
    graph = star(20)
    await run_script(graph, "g.V().project('n').by(out().count())")
    asked = [each for each in graph.asked if each[0] == "adjacent"]
    assert len(asked) <= 1 + 22 // 5  # one for each page of the graph in memory
    graph.asked.clear()
    await run_script(graph, "g.V().where(out('on')).count()")
    assert {each[4] for each in graph.asked} == {1}  # one edge of each says enough


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("g.V().has('name','x')", Wanted(None, (("name", "eq('x')"),))),  # type: ignore[arg-type]
        ("g.V().hasLabel('v').has('name',gt(1)).limit(3)", Wanted(None, (("label", "eq('v')"), ("name", "gt(1)")), 3)),  # type: ignore[arg-type]
        ("g.V().hasId('a')", Wanted((Reference("a"),), ())),
        ("g.V('a','b')", Wanted((Reference("a"), Reference("b")), ())),
        ("g.V().has(id,'a').limit(1)", Wanted((Reference("a"),), (), 1)),
    ],
)
async def test_conditions_go_to_the_graph(script: str, expected: Any) -> None:
    graph = star(1)
    await run_script(graph, script)
    (found,) = graph.wanted
    assert found.references == expected.references and found.count == expected.count
    keys = [(c.key.value if isinstance(c.key, T) else c.key, repr(c.predicate)) for c in found.conditions]
    assert [each for each in keys if each[0] != "id"] == list(expected.conditions)


async def test_pairs_are_point_reads_in_a_partitioned_graph() -> None:
    graph = Watched("region")
    await run_script(graph, "g.V(['USA','x'],['UK','y'])")
    assert graph.wanted[0].references == (Reference("x", "USA"), Reference("y", "UK"))
    await run_script(graph, "g.V().has('region',within('UK','USA'))")
    (condition,) = graph.wanted[1].conditions
    assert condition.key == "region" and isinstance(condition.predicate, P)


async def test_a_limit_stops_early() -> None:
    graph = star(1000)
    assert len(await run_script(graph, "g.V('hub').out().out().limit(1)")) == 1
    assert [each[1] for each in graph.asked if each[0] == "adjacent"] == [1, 1]
    graph.asked.clear()
    graph.reads = 0
    assert len(await run_script(graph, "g.V().limit(2)")) == 2
    assert graph.reads == 1


async def test_deep_repeats_with_a_limit_hold_little() -> None:
    """A ladder: every vertex leads to both of the next pair, so the number of ways doubles with each hop."""
    graph = MemoryGraph()
    script = ["g.addV('v').property('id','a0').addV('v').property('id','b0')"]
    for at in range(1, 30):
        script.append(f"g.addV('v').property('id','a{at}').addV('v').property('id','b{at}')")
        for out in "ab":
            for into in "ab":
                script.append(f"g.V('{out}{at - 1}').addE('e').to(__.V('{into}{at}'))")
    for line in script:
        await run_script(graph, line)
    graph.reads = 0
    assert len(await run_script(graph, "g.V('a0').repeat(out()).times(29).path().limit(3)")) == 3
    assert graph.reads < 200
    assert await run_script(graph, "g.V('a0').repeat(out()).times(29).count()") == [2**29]
    assert await run_script(graph, "g.V('a0').repeat(out()).times(29).dedup().count()") == [2]


async def test_endless_repeats_meet_the_deadline() -> None:
    class Ticking(World):
        def elapsed_s(self) -> float:
            self.now_s += 0.01
            return self.now_s

    graph = star(1)
    await run_script(graph, "g.V('sink').addE('back').to(__.V('hub'))")
    program = compile_traversal(parse("g.V('hub').repeat(out()).until(has('never'))")[0].traversal)
    world = Ticking()
    with pytest.raises(Failure) as caught:
        await program.run(graph, world, deadline_s=5.0).values()
    assert caught.value.kind is Kind.TIMED_OUT and caught.value.details["status"] == 598
    assert world.pauses > 10


async def test_what_barriers_hold_is_limited(with_limits: WithLimits) -> None:
    with_limits(GREMLIN_HELD_MAX=100)
    graph = star(100)
    assert await run_script(graph, "g.V('hub').out().fold().count(local)") == [100]
    with pytest.raises(Failure, match="at most 100 values"):
        await run_script(graph, "g.V('hub').union(out(),identity()).fold()")


async def test_lazy_effects_do_not_run_ahead() -> None:
    graph = star(20)
    assert len((await run_script(graph, "g.V('hub').out().store('x').limit(3).cap('x')"))[0]) == 3
    assert len((await run_script(graph, "g.V('hub').out().aggregate('x').limit(3).cap('x')"))[0]) == 20


async def test_one_write_for_an_element_and_its_properties() -> None:
    graph = MemoryGraph()
    counts: list[int] = []
    write = graph.write

    async def watched(writes: Sequence[Any]) -> None:
        counts.append(len(writes))
        await write(writes)

    graph.write = watched  # type: ignore[method-assign]
    await run_script(graph, "g.addV('a').property('id','1').property('x',1).property(list,'y',1,'m',2)")
    await run_script(graph, "g.V('1').property('x',2).property('z',3)")
    await run_script(graph, "g.inject(1,2,3).addV('b')")
    assert counts == [1, 1, 3]
    assert (await run_script(graph, "g.V('1').valueMap('x','y','z')")) == [{"x": [2], "y": [1], "z": [3]}]


async def test_profile_and_explain() -> None:
    graph = star(5)
    (metrics,) = await run_script(graph, "g.V('hub').out().profile()")
    assert [each["counts"]["elementCount"] for each in metrics["metrics"]] == [1, 5]
    (profile,) = await run_script(graph, "g.V('hub').out().executionProfile()")
    assert [each["name"] for each in profile["metrics"]] == [
        "GetVertices",
        "GetEdges",
        "GetNeighborVertices",
        "ProjectOperator",
    ]
    assert [each["counts"]["resultCount"] for each in profile["metrics"]] == [1, 5, 5, 5]
    assert [bool(each.get("storeOps")) for each in profile["metrics"]] == [True, True, False, False]
    (text,) = await run_script(graph, "g.V('hub').out().explain()")
    assert text == "[V(hub), out()]"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("g.withStrategies(ReadOnlyStrategy).addV()", "mutating"),
        ("g.withStrategies(new EdgeLabelVerificationStrategy(throwException:true)).V().out()", "edge label"),
        (
            "g.withStrategies(new ReservedKeysVerificationStrategy(throwException:true)).addV().property('id',1)",
            "reserved",
        ),
        ("g.withStrategies(ElementIdStrategy).V()", "ElementIdStrategy"),
        ("g.withStrategies(new SubgraphStrategy(vertexes:__.has('a'))).V()", "vertexes"),
        ("g.withComputer().V()", "withComputer"),
        ("g.V().pageRank()", "pageRank"),
        ("g.io('x').read()", "io"),
        ("g.call('x')", "call"),
        ("g.out()", "cannot start"),
        ("g.V().by('x')", "cannot modulate"),
        ("g.V().emit()", "repeat"),
        ("g.V().limit(-1)", "legal range"),
        ("g.V().range(3,1)", "legal range"),
        ("g.V().values('name').sum()", "sum"),
        ("g.V().profile().out()", "last step"),
        ("g.V('hub').addE('x').to(__.V('nowhere'))", "does not map"),
        ("g.inject(1).out()", "for vertices"),
        ("g.inject('a').math('_ + 1')", "Number"),
        ("g.inject(1).math('_ +')", "too early"),
    ],
)
async def test_refused(script: str, words: str) -> None:
    with pytest.raises(Failure, match=words):
        await run_script(star(1), script)
