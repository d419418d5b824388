"""Shapes of traversals: constants are taken out, names of properties stay."""

from __future__ import annotations

import pytest

from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.traversal_shape import shape_of_bytecode, shape_of_script


@pytest.mark.parametrize(
    ("script", "shape"),
    [
        ("g.V('a', 2).has('age', gt(20))", "g.V(?,?).has('age',gt(?))"),
        ("g.V().has('person', 'name', 'ann')", "g.V().has(?,?,?)"),
        ("g.V().hasLabel('person').values('name')", "g.V().hasLabel(?).values('name')"),
        ("g.V().repeat(out('knows')).times(2)", "g.V().repeat(out(?)).times(?)"),
    ],
)
def test_scripts(script: str, shape: str) -> None:
    assert shape_of_script(script) == shape
    [statement] = parse(script, {})
    assert shape_of_bytecode(statement.traversal).replace("__.", "") == shape


def test_what_cannot_be_read() -> None:
    assert shape_of_script("g.V('half") == "?"
