"""A second evaluator of queries, slow and obvious: it walks the tree, keeps every row in a list, and is written from
the language's tables alone. What is compiled, indexed, streamed and paged is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from armillary.languages.sql.syntax import tree
from armillary.model.values import UNDEFINED

U = UNDEFINED
Row = dict[str, Any]  # what each alias stands for
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF", "MAKELIST", "MAKESET")


def int32(number: Any) -> int:
    bits = int(number) & 0xFFFFFFFF
    return bits - 2**32 if bits >= 2**31 else bits


BITWISE: dict[str, Callable[[int, int], int]] = {
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "<<": lambda left, right: int32(left << (right & 31)),
    ">>": lambda left, right: left >> (right & 31),
    ">>>": lambda left, right: (left & 0xFFFFFFFF) >> (right & 31),
}


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


def walk(node: Any, row: Row, parameters: dict[str, Any]) -> Any:
    """The value of an expression where the aliases stand for what `row` says."""

    def at(inner: tree.Expression) -> Any:
        return walk(inner, row, parameters)

    match node:
        case tree.Literal():
            return node.value
        case tree.Parameter():
            return parameters[node.name]
        case tree.Name():
            return row[node.name]
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
            return {"-": -operand, "+": operand, "~": ~int32(operand)}[node.operator]
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
        case tree.Like():
            text, pattern = at(node.operand), at(node.pattern)
            if kind(text) != "s" or kind(pattern) != "s":
                return U
            return like(text, pattern, node.escape) != node.is_negated
        case tree.Subquery():
            return subquery(node, row, parameters)
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
    if operator in BITWISE:
        return BITWISE[operator](int32(left), int32(right))
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


def like(text: str, pattern: str, escape: str | None) -> bool:
    """By trying everything."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape and rest:
        return text[:1] == rest[0] and like(text[1:], rest[1:], escape)
    if first == "%":
        return any(like(text[at:], rest, escape) for at in range(len(text) + 1))
    if first == "_":
        return bool(text) and like(text[1:], rest, escape)
    if first == "[" and "]" in rest[2:] + rest[1:2]:
        end = rest.index("]", 2 if rest[0] == "^" else 1)
        members, is_negated = (rest[1:end], True) if rest[0] == "^" else (rest[:end], False)
        return bool(text) and (_in_set(text[0], members) != is_negated) and like(text[1:], rest[end + 1 :], escape)
    return text[:1] == first and like(text[1:], rest, escape)


def _in_set(character: str, members: str) -> bool:
    while members:
        if len(members) > 2 and members[1] == "-":
            if members[0] <= character <= members[2]:
                return True
            members = members[3:]
        elif members[0] == character:
            return True
        else:
            members = members[1:]
    return False


# Queries.


def run(query: tree.Query, documents: list[Any], parameters: dict[str, Any]) -> list[Any]:
    """All rows of a query over documents in the order of their rids."""
    return rows_of(query, {}, parameters, documents)


def rows_of(query: tree.Query, outer: Row, parameters: dict[str, Any], documents: list[Any] | None = None) -> list[Any]:
    rows = sources(query, outer, parameters, documents)
    if query.where is not None:
        rows = [row for row in rows if walk(query.where, row, parameters) is True]
    calls = [node for item in query.select.items for node in aggregates(item.expression)]
    if query.group_by or calls:
        given = grouped(query, rows, outer, parameters, is_aggregated=bool(calls))
    else:
        given = [selected(query, row, parameters) for row in in_order(query, rows, parameters)]
    given = [value for value in given if value is not U]
    if query.select.is_distinct:
        given = [value for at, value in enumerate(given) if not any(same(value, other) for other in given[:at])]
    if query.select.top is not None:
        given = given[: walk(query.select.top, {}, parameters)]
    if query.offset is not None and query.limit is not None:
        first = walk(query.offset, {}, parameters)
        given = given[first : first + walk(query.limit, {}, parameters)]
    return given


def sources(query: tree.Query, outer: Row, parameters: dict[str, Any], documents: list[Any] | None) -> list[Row]:
    rows: list[Row] = [dict(outer)]
    for number, source in enumerate(query.sources):
        expression = source.expression
        joined: list[Row] = []
        for row in rows:
            if number == 0 and documents is not None:
                found = _from_container(expression, parameters, documents)
            elif isinstance(expression, tree.Subquery):
                found = [(value, 0) for value in rows_of(expression.query, row, parameters)]
            else:
                found = [(walk(expression, row, parameters), 0)]
            for value, place in found:
                values = (value if isinstance(value, list) else []) if source.is_iterated else [value]
                for each in values:
                    if each is not U:
                        more = {alias(source): each}
                        joined.append({**row, **more, "#": place if number == 0 else row.get("#", 0)})
        rows = joined
    return rows


def _from_container(
    expression: tree.Expression, parameters: dict[str, Any], documents: list[Any]
) -> list[tuple[Any, int]]:
    """The values of the first source, each with the number of its document."""
    if isinstance(expression, tree.Subquery):
        return [(value, 0) for value in rows_of(expression.query, {}, parameters, documents)]
    base: Any = expression
    while not isinstance(base, tree.Name):
        base = base.source
    return [(walk(expression, {base.name: each}, parameters), at) for at, each in enumerate(documents)]


def alias(source: tree.Source) -> str:
    return str(source.alias or getattr(source.expression, "name", "?"))


def selected(query: tree.Query, row: Row, parameters: dict[str, Any]) -> Any:
    select = query.select
    if select.kind == "*":
        return row[alias(query.sources[0])]
    return built(query, lambda expression: walk(expression, row, parameters))


def built(query: tree.Query, value: Callable[[tree.Expression], Any]) -> Any:
    select = query.select
    if select.kind == "VALUE":
        return value(select.items[0].expression)
    made: dict[str, Any] = {}
    unnamed = 0
    for item in select.items:
        name = item.alias
        if name is None and isinstance(item.expression, (tree.Member, tree.Name)):
            name = item.expression.name
        if name is None:
            unnamed += 1
            name = f"${unnamed}"
        found = value(item.expression)
        if found is not U:
            made[name] = found
    return made


def in_order(query: tree.Query, rows: list[Row], parameters: dict[str, Any]) -> list[Row]:
    """Rows of one document stay as they are; documents with equal keys go by their number, or backwards when the first
    key descends."""
    if not query.order_by:
        return rows

    def compare_rows(first: Row, second: Row) -> int:
        for order in query.order_by:
            keys = [walk(order.expression, row, parameters) for row in (first, second)]
            found = order_of(keys[0], keys[1])
            if found:
                return -found if order.is_descending else found
        found = int(first["#"] > second["#"]) - int(first["#"] < second["#"])
        return -found if query.order_by[0].is_descending else found

    return sorted(rows, key=cmp_to_key(compare_rows))


def order_of(first: Any, second: Any) -> int:
    ranks = [_rank(first), _rank(second)]
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if kind(first) == "n":
        first, second = float(first), float(second)
    if kind(first) in "ns":
        return (first > second) - (first < second)  # type: ignore[no-any-return]
    return 0


def _rank(value: Any) -> int:
    return "u0ftnsao".index({True: "t", False: "f"}[value] if isinstance(value, bool) else kind(value))


def aggregates(expression: tree.Expression) -> list[tree.Call]:
    if isinstance(expression, tree.Call) and expression.name in AGGREGATES:
        return [expression]
    inner: list[tree.Call] = []
    for name in expression.__dataclass_fields__:
        if not isinstance(expression, tree.Subquery):
            for each in _flat(getattr(expression, name)):
                inner += aggregates(each)
    return inner


def _flat(value: Any) -> list[tree.Expression]:
    if isinstance(value, tree.Node):
        return [value]  # type: ignore[list-item]
    return [each for inner in value for each in _flat(inner)] if isinstance(value, tuple) else []


def grouped(
    query: tree.Query, rows: list[Row], outer: Row, parameters: dict[str, Any], *, is_aggregated: bool
) -> list[Any]:
    groups: list[tuple[list[Any], list[Row]]] = []
    for row in rows:
        keys = [walk(key, row, parameters) for key in query.group_by]
        found = next((group for group in groups if all(map(same, group[0], keys))), None)
        if found is None:
            groups.append((keys, [row]))
        else:
            found[1].append(row)
    if not query.group_by and not groups and is_aggregated:
        groups = [([], [])]

    def value(expression: tree.Expression, members: list[Row]) -> Any:
        if isinstance(expression, tree.Call) and expression.name in AGGREGATES:
            argument = expression.arguments[0]
            return aggregate(expression.name, [walk(argument, row, parameters) for row in members])
        if isinstance(expression, tree.ObjectLiteral):
            pairs = [(name, value(inner, members)) for name, inner in expression.pairs]
            return {name: each for name, each in pairs if each is not U}
        if isinstance(expression, tree.ArrayLiteral):
            return [each for inner in expression.elements if (each := value(inner, members)) is not U]
        if isinstance(expression, tree.Binary):
            return binary(expression.operator, value(expression.left, members), value(expression.right, members))
        return walk(expression, members[0] if members else outer, parameters)

    return [built(query, lambda expression, members=members: value(expression, members)) for _, members in groups]  # type: ignore[misc]


def aggregate(name: str, values: list[Any]) -> Any:
    values = [value for value in values if value is not U]
    if name == "COUNT":
        return len(values)
    if name == "COUNTIF":
        return sum(value is True for value in values)
    if name == "MAKELIST":
        return values
    if name == "MAKESET":
        return [value for at, value in enumerate(values) if not any(same(value, other) for other in values[:at])]
    if name in ("SUM", "AVG"):
        if any(kind(value) != "n" for value in values):
            return U
        total = float(0)
        for value in values:
            total += float(value)
        return total if name == "SUM" else total / len(values) if values else U
    if any(kind(value) in "ao" for value in values) or not values:
        return U
    return sorted(values, key=cmp_to_key(order_of), reverse=name == "MAX")[0]


def subquery(node: tree.Subquery, row: Row, parameters: dict[str, Any]) -> Any:
    if node.kind == "ALL":
        found = sources(node.query, row, parameters, None)
        where = node.query.where
        return where is None or all(walk(where, each, parameters) is True for each in found)
    rows = rows_of(node.query, row, parameters)
    match node.kind:
        case "EXISTS":
            return bool(rows)
        case "ARRAY":
            return rows
        case "FIRST":
            return rows[0] if rows else U
        case "LAST":
            return rows[-1] if rows else U
    assert len(rows) < 2, "authors write scalar subqueries that give one row"
    return rows[0] if rows else U
