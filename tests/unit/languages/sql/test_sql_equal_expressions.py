"""Expressions have the same number exactly when they render alike."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

from armillary.languages.sql.syntax.equal_expressions import ExpressionNumbers
from armillary.languages.sql.syntax.parser import parse_query
from armillary.languages.sql.syntax.render import text_of
from armillary.languages.sql.syntax.walk import expressions_of, nodes_of

CASES = Path(__file__).parents[3] / "conformance/sql/cases.jsonl"


def test_same_number_as_same_text() -> None:
    numbering = ExpressionNumbers()
    texts: dict[int, set[str]] = {}
    numbers: dict[str, set[int]] = {}
    for line in CASES.read_text("utf-8").splitlines():
        case = json.loads(line)
        if "error" in case:
            continue
        for root in expressions_of(parse_query(case["query"])):
            for node in nodes_of(root):
                text, number = text_of(node), numbering.number_of(node)
                texts.setdefault(number, set()).add(text)
                numbers.setdefault(text, set()).add(number)
    assert all(len(each) == 1 for each in texts.values())
    assert all(len(each) == 1 for each in numbers.values())


def test_spelling_does_not_matter() -> None:
    numbering = ExpressionNumbers()
    first, second, third = (
        parse_query(f"SELECT VALUE {text}").select.items[0].expression
        for text in ("c['a'] + ABS( c.b )", "(c.a) +abs(c['b'])", "c.a + ABS(c.c)")
    )
    assert numbering.number_of(first) == numbering.number_of(second) != numbering.number_of(third)


def test_what_differs() -> None:
    numbering = ExpressionNumbers()
    texts = ["1", "'1'", "true", "null", "undefined", "@p", "c", "c.a", "c[0]", "c['0']", "[1]", "{a: 1}", "{b: 1}"]
    texts += ["-c", "~c", "c IN (1)", "c NOT IN (1)", "c LIKE 'a'", "c LIKE 'a' ESCAPE '!'", "udf.f(c)", "ABS(c)"]
    texts += ["c + 1", "1 + c", "c AND c", "c OR c", "c ?? c", "c BETWEEN 1 AND 2", "c ? 1 : 2", "(SELECT VALUE 1)"]
    found = [parse_query(f"SELECT VALUE {text}").select.items[0].expression for text in texts]
    for one, other in combinations(found, 2):
        assert numbering.number_of(one) != numbering.number_of(other), (text_of(one), text_of(other))


def test_long_chains_take_time_by_their_length() -> None:
    root = parse_query("SELECT VALUE " + "c.a + " * 2500 + "1").select.items[0].expression
    numbering = ExpressionNumbers()
    assert len({numbering.number_of(node) for node in nodes_of(root)}) == 2500 + 3
