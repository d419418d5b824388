"""Programs kept for other elements to start from answer as those do that are compiled for the request alone."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.gremlin_house import GremlinHouse, asked

from armillary import limits
from armillary.account.graphs.graph import element_id
from armillary.doors.gremlin.traversals import Programs
from armillary.languages.gremlin.program import compile_traversal
from armillary.languages.gremlin.program_templates import shape_of, template_of_script
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal

FORM = "application/vnd.gremlin-v3.0+json"
VALUES: list[Any] = [
    ["red", "a"],
    "a",
    ["blue", "b"],
    "nobody",
    ["red", "nobody"],
    ["a", "b"],
    [["red", "a"], ["blue", "b"]],
    [["red", "a"], "b"],
    [],
    [None],
    None,
    True,
    7,
    [1, "a"],
    [True, "a"],
    [1.5, "a"],
    3_000_000_000,
    1.5,
    {"red": "a"},
    ["a", "b", "c"],
    [["red", "a"]] * 70,
    {"@type": "g:UUID", "@value": "41d2e28a-20a4-4ab0-b379-d810dede3786"},
    {"@type": "g:T", "@value": "id"},
    {"@type": "g:P", "@value": {"predicate": "eq", "value": "a"}},
    {"@type": "g:Vertex", "@value": {"id": "a", "label": "person"}},
]
OF_STARTS = [
    "g.V(x)",
    "g.V(x).out('knows').values('name')",
    "g.V([x, 'a'])",
    "g.V(['red', x])",
    "g.V(x, 'b').id()",
    "g.V(x, x).count()",
    "g.V(x).hasLabel('person').has('name', 'A').limit(1)",
    "g.V(x).as('s').out().as('t').select('s', 't').by('name')",
    "g.V(x).fold()",
    "g.E(x).outV().id()",
    "g.V(x).explain()",
    "g.V(x).toString()",
    "g.V(x).next()",
    "g.V(x).hasNext()",
    "g.withSideEffect('s', []).V(x).aggregate('s').by('name').cap('s')",
    "g.withStrategies(ReadOnlyStrategy).V(x).values('name')",
]
OF_MORE = [
    "g.V(x).hasId(x)",
    "g.V().has('name', x)",
    "g.V('a').limit(x)",
    "g.V([[x, 'a']])",
    "g.V(1..x)",
    "g.V(x).next(x)",
    "g.V(new Vertex(x, 'person'))",
    "g.V(x).union(V(x), identity()).id()",
    "g.with('materializeProperties', x).V('a')",
    "g.inject(x)",
    "g.V(x).id(); g.V('b').id()",
    "g.V('a').filter(not(x))",
]


@pytest.fixture(params=["/pk", "none"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[GremlinHouse]:
    made = await GremlinHouse.open(request.param)
    vertices = [("red", "a"), ("blue", "b"), ("red", "c")]
    if request.param != "none":
        vertices.append(("a", "b"))  # the same id in another partition
    for key, name in vertices:
        text = "g.addV('person').property(id, n).property('pk', k).property('name', u)"
        await made.run(text, n=name, k=key, u=name.upper())
    await made.run("g.V(['red', 'a']).addE('knows').to(g.V(['blue', 'b'])).property(id, 'e')")
    yield made
    await made.close()


async def _answer(house: GremlinHouse, request: dict[str, Any]) -> tuple[int, str]:
    answers = await house.send(house.friend(), request, FORM)
    status = answers[-1]["status"]
    told = json.dumps([status["message"], *(each["result"]["data"] for each in answers)])
    # Messages carry the id of their request, and new properties have ids of their own.
    return status["code"], re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "-", told)


async def _same(house: GremlinHouse, request: dict[str, Any], kept: Programs) -> int:
    house.door.programs = Programs()
    fresh = await _answer(house, request)
    house.door.programs = kept
    assert await _answer(house, request) == fresh, request
    return fresh[0]


@pytest.mark.parametrize("script", OF_STARTS + OF_MORE)
async def test_bound_scripts_answer_as_new_ones(house: GremlinHouse, script: str) -> None:
    kept = Programs()
    codes = set()
    for value in [*VALUES, *reversed(VALUES)]:
        codes.add(await _same(house, asked(script, bindings={"x": value}), kept))
        await _same(house, asked(script, bindings={"x": value, "id": 1}), kept)
    await _same(house, asked(script, bindings={"y": 1}), kept)
    assert codes & {200, 204} or script in ("g.V(1..x)", "g.V([[x, 'a']])")


STEPS: list[list[list[Any]]] = [
    [],
    [["out", "knows"], ["values", "name"]],
    [["has", "name", "A"], ["count"]],
    [["property", "name", "A"]],
    [["limit", {"@type": "g:Int64", "@value": 1}]],
    [["valueMap", True]],
    [["out", 1]],
    [["profile", "p"]],
    [["as", "s"], ["out"], ["path"]],
]


@pytest.mark.parametrize("start", ["V", "E"])
@pytest.mark.parametrize("steps", STEPS)
async def test_bytecode_answers_as_new_bytecode(house: GremlinHouse, start: str, steps: list[list[Any]]) -> None:
    kept = Programs()
    for value in [*VALUES, *reversed(VALUES)]:
        for arguments in ([value], [value, "b"], []):
            body = {"step": [[start, *arguments], *steps]}
            request = asked({"@type": "g:Bytecode", "@value": body}, aliases={"g": "g"})
            await _same(house, request | {"op": "bytecode", "processor": "traversal"}, kept)


def _template(script: str) -> object:
    program = compile_traversal(parse(script, {"x": 1})[0].traversal, partition_key="pk", element_id=element_id)
    return template_of_script(script, {"x": 1}, program, "pk", element_id)


@pytest.mark.parametrize("script", OF_STARTS)
def test_templates_are_made_where_only_the_start_differs(script: str) -> None:
    assert _template(script) is not None


@pytest.mark.parametrize("script", [each for each in OF_MORE if "not(x)" not in each])
def test_no_template_where_a_binding_means_more(script: str) -> None:
    assert _template(script) is None


def test_shapes_of_bytecode() -> None:
    def shape(*steps: Instruction) -> object:
        return shape_of(Traversal([], list(steps)))

    one = shape(Instruction("V", ["a"]), Instruction("out", ["knows"]))
    assert one is not None and one == shape(Instruction("V", [["red", "b"]]), Instruction("out", ["knows"]))
    assert one != shape(Instruction("V", ["a"]), Instruction("out", ["likes"]))
    assert one != shape(Instruction("E", ["a"]), Instruction("out", ["knows"]))
    assert shape(Instruction("V", []), Instruction("out", ["knows"])) is None
    assert shape(Instruction("V", ["a"]), Instruction("limit", [1])) is None
    assert shape(Instruction("V", ["a"]), Instruction("has", ["name", "x" * 1000])) is None
    assert shape_of(Traversal([Instruction("withPath", [])], [Instruction("V", ["a"])])) is None


def test_what_is_kept_is_bounded() -> None:
    kept = Programs()
    for number in range(limits.QUERY_CACHE_ENTRIES + 10):
        kept.of_script(f"g.V(x).has('name', '{number}')", {"x": "a"}, "pk")
        kept.of_bytecode(parse(f"g.V('a').has('name', '{number}')")[0].traversal, "pk")
    assert len(kept) == limits.QUERY_CACHE_ENTRIES
