"""Compiled expressions against a second, slow evaluator that walks the tree; and conditions against the filters they
come from: every item that a filter keeps satisfies its condition.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from support.author import Author
from support.portions import Amount
from support.reference import U, same, walk

from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.syntax.parser import parse_query
from armillary.model.indexes.index_paths import text_steps
from armillary.model.values import compare, type_rank
from armillary.query.conditions import All, And, Condition, Defined, Equal, In, Nothing, Or, Range


def values_at(item: Any, path: str) -> list[Any]:
    found = [item]
    for step in text_steps(path):
        if step is None:
            found = list(itertools.chain.from_iterable(node for node in found if isinstance(node, list)))
        else:
            found = [node[step] for node in found if isinstance(node, dict) and step in node]
    return found


def satisfies(condition: Condition, item: Any) -> bool:
    match condition:
        case All():
            return True
        case Nothing():
            return False
        case And():
            return all(satisfies(part, item) for part in condition.parts)
        case Or():
            return any(satisfies(part, item) for part in condition.parts)
        case Equal():
            found = values_at(item, condition.path)
            return not found if condition.value is U else any(same(value, condition.value) for value in found)
        case In():
            found = values_at(item, condition.path)
            return any(same(value, member) for value in found for member in condition.values)
        case Defined():
            return bool(values_at(item, condition.path))
        case Range():
            return any(_within(condition, value) for value in values_at(item, condition.path))
        case _:
            raise AssertionError(f"this comparison knows no {condition}")


def _within(condition: Range, value: Any) -> bool:
    for bound, sign, includes in (
        (condition.low, 1, condition.includes_low),
        (condition.high, -1, condition.includes_high),
    ):
        if bound is U:
            continue
        if type_rank(bound) != type_rank(value):
            return False
        order = compare(value, bound) * sign
        if order < 0 or (order == 0 and not includes):
            return False
    return True


def test_compiled_queries_agree_with_the_slow_evaluator(amount: Amount) -> None:
    seed = 4711
    kept = 0
    for number in range(amount(1_500)):
        author = Author(random.Random(seed * 100_003 + number))
        where, project = author.expression(3), author.expression(2)
        text = f"SELECT VALUE [{project}] FROM c WHERE {where}"
        bound = compile_query(text).bind(author.parameters)
        parsed = parse_query(text)
        assert bound.predicate is not None and bound.project is not None and parsed.where is not None
        for _ in range(6):
            item = author.item()
            told = f"seed {seed}, number {number}: {text} with {author.parameters} on {item}"
            expected = walk(parsed.where, {"c": item}, author.parameters) is True
            assert bool(bound.predicate(item)) is expected, told
            row = walk(parsed.select.items[0].expression, {"c": item}, author.parameters)
            assert same(bound.project(item), row), told
            if expected:
                kept += 1
                assert satisfies(bound.condition, item), f"{told}: {bound.condition}"
    assert kept > amount(300), "the queries should match often enough to say something"
