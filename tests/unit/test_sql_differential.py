"""Compiled queries against a second, slow evaluator that walks the tree and is written from the language's tables
alone; and conditions against the filters they come from: every item that a filter keeps satisfies its condition.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

from armillary.languages.sql import tree
from armillary.languages.sql.compile import compile_query
from armillary.languages.sql.parser import parse_query
from armillary.model.index_paths import text_steps
from armillary.model.values import UNDEFINED, compare, type_rank
from armillary.query.conditions import All, And, Condition, Defined, Equal, In, Nothing, Or, Range

U = UNDEFINED


def kind(value: Any) -> str:
    return {bool: "b", int: "n", float: "n", str: "s", list: "a", dict: "o", type(None): "0"}.get(type(value), "u")


def same(first: Any, second: Any) -> bool:
    if kind(first) != kind(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if kind(first) == "n":
        return float(first) == float(second) or (math.isnan(first) and math.isnan(second))
    return bool(first == second)


def walk(node: Any, item: Any, parameters: dict[str, Any]) -> Any:
    def at(inner: tree.Expression) -> Any:
        return walk(inner, item, parameters)

    match node:
        case tree.Literal():
            return node.value
        case tree.Parameter():
            return parameters[node.name]
        case tree.Name():
            return item
        case tree.Member():
            source = at(node.source)
            return source.get(node.name, U) if isinstance(source, dict) else U
        case tree.Index():
            source, index = at(node.source), at(node.index)
            if isinstance(source, dict) and isinstance(index, str):
                return source.get(index, U)
            if isinstance(source, list) and kind(index) == "n" and index in range(len(source)):
                return source[int(index)]
            return U
        case tree.Unary():
            operand = at(node.operand)
            if node.operator == "NOT":
                return not operand if isinstance(operand, bool) else U
            if kind(operand) != "n":
                return U
            return {"-": -operand, "+": operand}.get(node.operator, U)
        case tree.Binary():
            return binary(node.operator, at(node.left), at(node.right))
        case tree.Logic():
            values = [at(operand) for operand in node.operands]
            if node.operator == "??":
                return next((value for value in values if value is not U), U)
            decisive = node.operator == "OR"
            if any(value is decisive for value in values):
                return decisive
            return (not decisive) if all(value is (not decisive) for value in values) else U
        case tree.In():
            pairs = [binary("=", at(node.needle), at(value)) for value in node.values]
            found = True if True in pairs else (U if any(pair is U for pair in pairs) else False)
            return found if found is U or not node.is_negated else not found
        case tree.Between():
            low = binary(">=", at(node.operand), at(node.low))
            high = binary("<=", at(node.operand), at(node.high))
            found = False if low is False or high is False else (True if low is True and high is True else U)
            return found if found is U or not node.is_negated else not found
        case tree.Conditional():
            return at(node.then) if at(node.condition) is True else at(node.otherwise)
        case tree.ArrayLiteral():
            return [value for value in map(at, node.elements) if value is not U]
        case tree.ObjectLiteral():
            return {name: value for name, inner in node.pairs if (value := at(inner)) is not U}
        case tree.Call():
            return call(node.name, [at(argument) for argument in node.arguments])
    raise AssertionError(node)


def binary(operator: str, left: Any, right: Any) -> Any:
    if left is U or right is U:
        return U
    if operator in ("=", "!="):
        return same(left, right) == (operator == "=")
    if operator in ("<", "<=", ">", ">="):
        if kind(left) != kind(right) or kind(left) in "ao":
            return U
        if left is None:
            return "=" in operator
        if kind(left) == "n":
            left, right = float(left), float(right)
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]
    if operator == "||":
        return left + right if kind(left) == kind(right) == "s" else U
    if kind(left) != "n" or kind(right) != "n":
        return U
    left, right = float(left), float(right)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            if right == 0:
                return (
                    math.nan
                    if left == 0 or math.isnan(left)
                    else math.copysign(math.inf, left * math.copysign(1, right))
                )
            return left / right
        case "%":
            return math.nan if right == 0 or not math.isfinite(left) else math.fmod(left, right)
    raise AssertionError(operator)


def call(name: str, given: list[Any]) -> Any:
    value = given[0]
    checks = {"IS_NULL": "0", "IS_BOOL": "b", "IS_NUMBER": "n", "IS_STRING": "s", "IS_ARRAY": "a", "IS_OBJECT": "o"}
    if name == "IS_DEFINED":
        return value is not U
    if name == "IS_PRIMITIVE":
        return kind(value) in "0bns"
    if name in checks:
        return kind(value) == checks[name]
    if name in ("STARTSWITH", "ENDSWITH", "CONTAINS"):
        part, ignores = given[1], given[2] if len(given) > 2 else False
        if kind(value) != "s" or kind(part) != "s" or kind(ignores) != "b":
            return U
        if ignores:
            value, part = value.lower(), part.lower()
        return {"S": value.startswith(part), "E": value.endswith(part), "C": part in value}[name[0]]
    if name == "ARRAY_CONTAINS":
        return U if kind(value) != "a" or given[1] is U else any(same(element, given[1]) for element in value)
    if name == "ABS":
        return abs(value) if kind(value) == "n" else U
    if name == "ARRAY_LENGTH":
        return len(value) if kind(value) == "a" else U
    if kind(value) != "s":
        return U
    return {"LOWER": value.lower(), "UPPER": value.upper(), "LENGTH": len(value)}[name]


class Author:
    """Writes random queries, with parameters, and random items that they may match."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.parameters: dict[str, Any] = {}

    def scalar(self) -> Any:
        if self.dice.random() < 0.7:  # few values, so that they meet
            return self.dice.choice([None, True, False, 1, "a"])
        return self.dice.choice([0, 2, -1, 1.5, 2**53, 2**53 + 1, 2**60, "", "ab", "b", "B"])

    def value(self, depth: int = 2) -> Any:
        roll = self.dice.random()
        if depth and roll < 0.15:
            return [self.value(depth - 1) for _ in range(self.dice.randrange(3))]
        if depth and roll < 0.3:
            return {self.dice.choice("abc"): self.value(depth - 1) for _ in range(self.dice.randrange(3))}
        return self.scalar()

    def item(self) -> dict[str, Any]:
        return {name: self.value() for name in ("id", "a", "b", "c", "x y") if self.dice.random() < 0.8}

    def path(self) -> str:
        text = self.dice.choice(["c.id", "c.a", "c.b", "c.c", 'c["x y"]', "c.missing"])
        for _ in range(self.dice.choice([0, 0, 0, 1, 1, 2, 5])):
            text += self.dice.choice([".a", ".b", "[0]", "[1]", '["c"]'])
        return text

    def literal(self, value: Any) -> str:
        if value is U:
            return "undefined"
        if isinstance(value, str):
            return "'" + value + "'"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.literal, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {self.literal(inner)}" for name, inner in value.items()) + "}"
        return (
            {None: "null", True: "true", False: "false"}[value]
            if value is None or value is True or value is False
            else repr(value)
        )

    def constant(self) -> str:
        value = self.dice.choice([self.value(1), self.scalar(), self.scalar(), U if self.dice.random() < 0.1 else 1])
        if self.dice.random() < 0.5:
            return self.literal(value)
        name = f"@p{len(self.parameters)}"
        self.parameters[name] = value
        return name

    def expression(self, depth: int) -> str:
        dice = self.dice
        roll = dice.random()
        if depth == 0 or roll < 0.1:
            return self.path() if dice.random() < 0.6 else self.constant()
        if roll < 0.35:
            return f"({self.path()} {dice.choice(['=', '!=', '<', '<=', '>', '>='])} {self.constant()})"
        if roll < 0.42:
            operator = dice.choice(["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "??"])
            return f"({self.expression(depth - 1)} {operator} {self.expression(depth - 1)})"
        if roll < 0.62:
            parts = [self.expression(depth - 1) for _ in range(dice.randrange(2, 4))]
            return "(" + dice.choice([" AND ", " OR "]).join(parts) + ")"
        if roll < 0.7:
            return f"(NOT {self.expression(depth - 1)})"
        if roll < 0.78:
            members = [self.constant() if dice.random() < 0.95 else self.path() for _ in range(dice.randrange(1, 6))]
            return f"({self.expression(depth - 1)} {dice.choice(['', 'NOT '])}IN ({', '.join(members)}))"
        if roll < 0.82:
            return f"({self.path()} {dice.choice(['', 'NOT '])}BETWEEN {self.constant()} AND {self.constant()})"
        if roll < 0.86:
            # Like a client's way of reading many items.
            rows = [self._row() for _ in range(dice.randrange(4, 9))]
            return "(" + " OR ".join(rows) + ")"
        if roll < 0.9:
            first, second, third = (self.expression(depth - 1) for _ in range(3))
            return f"({first} ? {second} : {third})"
        name = dice.choice(
            "IS_DEFINED IS_NULL IS_BOOL IS_NUMBER IS_STRING IS_ARRAY IS_OBJECT IS_PRIMITIVE LOWER UPPER LENGTH ABS "
            "ARRAY_LENGTH STARTSWITH ENDSWITH CONTAINS ARRAY_CONTAINS ARRAY_CONTAINS".split()
        )
        first = self.path() if dice.random() < 0.8 else self.expression(depth - 1)
        if name in ("STARTSWITH", "ENDSWITH", "CONTAINS", "ARRAY_CONTAINS"):
            second = self.constant() if dice.random() < 0.8 else self.path()
            first, second = (second, first) if dice.random() < 0.2 else (first, second)
            return f"{name}({first}, {second}{', true' if name != 'ARRAY_CONTAINS' and dice.random() < 0.3 else ''})"
        return f"{name}({first})"

    def _row(self) -> str:
        terms = [f"c.id = {self.constant()}"]
        if self.dice.random() < 0.8:
            terms.append(
                self.dice.choice([f"c.a = {self.constant()}", "IS_DEFINED(c.a) = false", "NOT IS_DEFINED(c.a)"])
            )
        return "(" + " AND ".join(terms) + ")"


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


def test_compiled_queries_agree_with_the_slow_evaluator() -> None:
    seed = 4711
    kept = 0
    for number in range(1500):
        author = Author(random.Random(seed * 100_003 + number))
        where, project = author.expression(3), author.expression(2)
        text = f"SELECT VALUE [{project}] FROM c WHERE {where}"
        bound = compile_query(text).bind(author.parameters)
        parsed = parse_query(text)
        assert bound.predicate is not None and bound.project is not None and parsed.where is not None
        for _ in range(6):
            item = author.item()
            told = f"seed {seed}, number {number}: {text} with {author.parameters} on {item}"
            expected = walk(parsed.where, item, author.parameters) is True
            assert bool(bound.predicate(item)) is expected, told
            row = walk(parsed.select.items[0].expression, item, author.parameters)
            assert same(bound.project(item), row), told
            if expected:
                kept += 1
                assert satisfies(bound.condition, item), f"{told}: {bound.condition}"
    assert kept > 500, "the queries should match often enough to say something"
