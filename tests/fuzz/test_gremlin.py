"""Mutated Gremlin: scripts, GraphSON and GraphBinary with something wrong. Only documented failures, no crash, no hang.

20,000 inputs, from seeds that a failure prints. What passes the parser is run, with few loops and little memory.
"""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from conformance.gremlin_bytecode import bytecode
from conformance.test_gremlin import CASES, build
from fuzz.mutation import mutated_bytes, mutated_value
from gremlin_python.structure.io import graphbinaryV1, graphsonV3d0
from support.gremlin_graph import MemoryGraph, World
from support.limits import WithLimits
from support.portions import first

from armillary.errors import Failure, Kind
from armillary.languages.gremlin.errors import timed_out
from armillary.languages.gremlin.formats import graphbinary_read, graphbinary_write, graphson_read
from armillary.languages.gremlin.formats.graphson_write import Writer
from armillary.languages.gremlin.program import answer, compile_traversal
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.instructions import Traversal

SCRIPTS = [case["script"] for case in CASES]
PIECES = (
    *(
        "g",
        "V()",
        "out()",
        ".out().",
        "repeat(",
        "__.",
        "g.V()",
        "(",
        ")",
        "[",
        "]",
        ",",
        "'",
        '"',
        ".",
        "..",
        "{",
        "}",
    ),
    *("'name'", "-1", "0", "1e400", "99999999999999999999", "0x", "1.5m", "NaN", "null", "T.id", "P.", "gt(1)", "\\u0"),
    *("T.", "local", "desc", "keys", ".by('name')", ".by(out())", ".as('a')", ".select('a')", ".fold()", ".unfold()"),
    *(".cap('x')", ".store('x')", ".aggregate('x')", ".path()", ".tree()", ".drop()", ".times(2)", ".until(has('x'))"),
    *(".emit()", ".limit(1)", ".dedup()", ".order()", ".group()", ".math('_*')", ".match(", ".choose(", ".option("),
    *(".property('a',1)", ".addV()", ".addE('x')", ".to('a')", ".sack()", "withSack(1)", ".union(", ".coalesce("),
    *(".inject(1)", ".sum()", ".max()", ".mean()", ".concat('x')", ".split('')", ".format('%{')", ".asDate()", ";"),
)
KINDS = {Kind.BAD_REQUEST, Kind.UNSUPPORTED, Kind.TOO_LARGE, Kind.CONFLICT, Kind.NOT_FOUND, Kind.TIMED_OUT}


class Hurried(World):
    """Time that passes with every look at the clock, so that whatever goes on for long is stopped."""

    def elapsed_s(self) -> float:
        self.now_s += 0.001
        return self.now_s

    async def pause(self) -> None:
        if self.now_s > 3:
            raise timed_out("The traversal took longer than its time limit.")


def mutated_text(dice: random.Random, text: str) -> str:
    for _ in range(dice.choice((1, 1, 2, 3, 5))):
        at = dice.randrange(len(text) + 1)
        match dice.randrange(6):
            case 0:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + dice.randrange(1, 10) :]
            case 2:
                text = text[:at] + dice.choice(PIECES) + text[at + dice.randrange(8) :]
            case 3:
                other = dice.choice(SCRIPTS)
                text = text[:at] + other[dice.randrange(len(other)) :]
            case 4:
                end = at + dice.randrange(20)
                text = text[:at] + text[at:end] * 2 + text[end:]
            case _:
                text = text[:at] + chr(dice.choice((0, 9, 39, 92, 233, 0xFFFD, 0x1F600, 0x2028))) + text[at:]
    return text


async def run(graph: MemoryGraph, given: Traversal) -> None:
    program = compile_traversal(given, partition_key=graph.partition_key, element_id=graph.element_id)
    found = program.run(graph, Hurried(), deadline_s=3.0)
    values: list[Any] = []
    while len(values) < 500 and (batch := await found.pull()):
        values.extend(each.value for each in batch)
    for version in (1, 2, 3):
        orjson.dumps(Writer(version).results(values))
    graphbinary_write.write(values)


@pytest.fixture(autouse=True)
def small(with_limits: WithLimits) -> None:
    with_limits(GREMLIN_HELD_MAX=20_000, GREMLIN_LIST_MAX=20_000, GREMLIN_TEXT_CHARACTERS_MAX=20_000)


@pytest.mark.parametrize("part", first(1, range(5)))
async def test_scripts(part: int) -> None:
    dice = random.Random(f"scripts {part}")
    graphs = [await build("modern"), await build("roads")]
    ran = 0
    for _ in range(2_000):
        text = mutated_text(dice, dice.choice(SCRIPTS))
        graph = dice.choice(graphs).copy()
        try:
            for statement in parse(text, {"x": 1, "y": "knows", "n": 30, "xs": ["marko"]}):
                if statement.transaction is None:
                    await run(graph, statement.traversal)
            ran += 1
        except Exception as crash:
            if isinstance(crash, Failure) and crash.kind in KINDS:
                continue
            raise AssertionError(f"seed 'scripts {part}': {text!r}") from crash
    assert ran > 100


@pytest.mark.parametrize("form", ["graphson", "graphbinary"])
@pytest.mark.parametrize("part", first(1, range(3)))
async def test_bytecode(form: str, part: int) -> None:
    dice = random.Random(f"{form} {part}")
    modern = await build("modern")
    written = []
    for case in CASES:
        if "error" not in case:
            sent = bytecode(parse(case["script"], case.get("bindings"))[-1].traversal)
            if form == "graphson":
                written.append(json.loads(graphsonV3d0.GraphSONWriter().write_object(sent)))
            else:
                written.append(bytes(graphbinaryV1.GraphBinaryWriter().write_object(sent)))
    ran = 0
    for _ in range(1_700):
        given: Any = dice.choice(written)
        given = mutated_value(dice, given) if form == "graphson" else mutated_bytes(dice, given)
        try:
            found = graphson_read.read(given) if form == "graphson" else graphbinary_read.read(given)
            if isinstance(found, Traversal):
                await run(modern.copy(), found)
                ran += 1
        except Exception as crash:
            if isinstance(crash, Failure) and crash.kind in KINDS:
                continue
            raise AssertionError(f"seed '{form} {part}': {given!r}") from crash
    assert ran > 20


async def test_terminals() -> None:
    graph = await build("modern")
    for script, expected in (
        ("g.V().count().next()", [6]),
        ("g.V().next(2).size", None),
        ("g.V().values('age').order().next(2)", [27, 29]),
        ("g.V().hasNext()", [True]),
        ("g.V('x').hasNext()", [False]),
        ("g.V('x').tryNext()", []),
        ("g.V().label().toSet()", ["person", "software"]),
        ("g.V().iterate()", []),
        ("g.V('x').next()", None),
    ):
        if expected is None:
            with pytest.raises(Failure):
                await _answered(graph, script)
        else:
            assert await _answered(graph, script) == expected


async def _answered(graph: MemoryGraph, script: str) -> list[Any]:
    statement = parse(script)[-1]
    program = compile_traversal(statement.traversal, element_id=graph.element_id)
    pull = await answer(statement, program.run(graph, graph.world))
    return await pull()
