"""typeOf() and what makes values of other types: asNumber(), asBool(), asDate()."""

from __future__ import annotations

from typing import Any

import pytest
from support.gremlin_graph import MemoryGraph, run_script

from armillary.errors import Failure
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Short


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("1", "INT NUMBER"),
        ("1L", "LONG NUMBER"),
        ("1b", "BYTE NUMBER"),
        ("1s", "SHORT NUMBER"),
        ("1n", "BIGINT NUMBER"),
        ("1.5f", "FLOAT NUMBER"),
        (".5", "DOUBLE NUMBER"),
        ("1.5m", "BIGDECIMAL NUMBER"),
        ("true", "BOOLEAN"),
        ("null", "NULL"),
        ("'a'", "STRING"),
        ("UUID('6100808b-62f9-42b7-957e-ed66c30f40d1')", "UUID"),
        ("DateTime('2023-08-02T00:00:00Z')", "DATETIME"),
        ("[1]", "LIST"),
        ("{1}", "SET"),
        ("[a:1]", "MAP"),
    ],
)
async def test_a_value_has_its_types_and_no_others(value: str, types: str) -> None:
    names = (
        "BIGDECIMAL BIGINT BINARY BOOLEAN BYTE CHAR DATETIME DOUBLE DURATION EDGE FLOAT GRAPH INT LIST LONG MAP NULL"
    )
    names += " NUMBER PATH PROPERTY SET SHORT STRING TREE UUID VERTEX VPROPERTY"
    found = {
        name for name in names.split() if await run_script(MemoryGraph(), f"g.inject({value}).is(typeOf(GType.{name}))")
    }
    assert found == set(types.split())


async def test_types_of_elements() -> None:
    graph = MemoryGraph()
    await run_script(graph, "g.addV('a').property('n',1).as('x').addE('e').to('x').property('w',2)")
    for script, name in (
        ("g.V()", "VERTEX"),
        ("g.E()", "EDGE"),
        ("g.V().properties()", "VPROPERTY"),
        ("g.V().properties()", "PROPERTY"),
        ("g.E().properties()", "PROPERTY"),
        ("g.V().out().path()", "PATH"),
        ("g.V().tree()", "TREE"),
        ("g.E().subgraph('s').cap('s')", "GRAPH"),
        ("g.V().aggregate('s').cap('s')", "SET"),
    ):
        assert await run_script(graph, f"{script}.is(P.typeOf(GType.{name})).count()") == [1], (script, name)
        assert await run_script(graph, f"{script}.is(P.not(typeOf(GType.{name}))).count()") == [0]
    assert await run_script(graph, "g.V().has('n',typeOf('Integer')).count()") == [1]
    with pytest.raises(Failure, match="robot is not a registered type"):
        await run_script(graph, "g.V().has('n',typeOf('robot'))")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("g.inject('5').asNumber()", 5),
        ("g.inject('0x5').asNumber()", 5),
        ("g.inject('3000000000').asNumber()", Long(3_000_000_000)),
        ("g.inject(5.67).asNumber(GType.INT)", 5),
        ("g.inject(5).asNumber(GType.LONG)", Long(5)),
        ("g.inject(5).asNumber(GType.BYTE)", Byte(5)),
        ("g.inject(5).asNumber(GType.SHORT)", Short(5)),
        ("g.inject(5).asNumber(GType.BIGINT)", BigInt(5)),
        ("g.inject(5).asNumber(GType.FLOAT)", Float32(5)),
        ("g.inject(null).asNumber(GType.INT)", None),
        ("g.inject(datetime('1970-01-01T00:00:01Z')).asNumber()", Long(1000)),
        ("g.inject(1000).asDate().asNumber()", Long(1000)),
        ("g.inject(1e300f)", Float32("inf")),
        ("g.inject('tRUe').asBool()", True),
        ("g.inject(NaN).asBool()", False),
        ("g.inject(-0.0).asBool()", False),
    ],
)
async def test_conversions(script: str, expected: Any) -> None:
    [found] = await run_script(MemoryGraph(), script)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("g.inject('test').asNumber()", "Can't parse string 'test' as number."),
        ("g.inject('1_000').asNumber()", "Can't parse string '1_000' as number."),
        ("g.inject([1]).asNumber()", "Can't parse type List as number."),
        ("g.inject(300).asNumber(GType.BYTE)", "Can't convert number of type Integer to Byte due to overflow."),
        ("g.inject(1e300).asNumber(GType.FLOAT)", "Can't convert number of type Double to Float due to overflow."),
        ("g.inject(NaN).asNumber(GType.INT)", "Can't convert number of type Double to Integer."),
        ("g.inject(1).asNumber(GType.VERTEX)", "requires a numeric type token, got VERTEX"),
        ("g.inject(null).asBool()", "Can't parse null as Boolean."),
        ("g.inject('hello').asBool()", "Can't parse hello as Boolean."),
    ],
)
async def test_refused_conversions(script: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        await run_script(MemoryGraph(), script)
    assert message in caught.value.message
