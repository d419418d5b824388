"""Random queries of every class through their plans: the items are dealt to some ranges, each runs the rewritten query,
and a merge as clients do it, written for clearness, gives the rows that the query gives over all items.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from support.author import Author
from support.portions import Amount

from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.planning.plan import query_plan
from armillary.model.encoding import encode_value
from armillary.model.values import UNDEFINED
from armillary.query.ordering import value_order

FILTER = "{documentdb-formattableorderbyquery-filter}"
QUERIES = 2000


def mergeable(author: Author) -> str:
    """A query of a class that the author seldom writes, or mostly in forms that have no plan."""
    dice = author.dice
    path, key = dice.choice(["c.a", "c.b", "c.a.b"]), dice.choice(["c.c", "c.id"])
    aggregate = f"{dice.choice(['COUNT', 'SUM', 'AVG', 'MIN', 'MAX', 'COUNTIF', 'MAKELIST', 'MAKESET'])}({path})"
    where = dice.choice(["", f" WHERE IS_NUMBER({path})", f" WHERE {author.expression(1)}"])
    return dice.choice(
        [
            f"SELECT VALUE {aggregate} FROM c{where}",
            f"SELECT VALUE {aggregate} FROM c{where} ORDER BY {path}",
            f"SELECT {aggregate}, MAX({key}) AS best FROM c{where}",
            f"SELECT {key} AS k, {aggregate} AS n FROM c{where} GROUP BY {key}",
            f"SELECT VALUE {aggregate} FROM c{where} GROUP BY {key}, {path}",
            f"SELECT DISTINCT VALUE {path} FROM c{where} ORDER BY {path}{dice.choice(['', ' DESC'])}",
            f"SELECT DISTINCT TOP 2 {path} AS p, {key} AS k FROM c{where} ORDER BY {path}, {key}",
            f"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE {path} FROM c{where})",
            f"SELECT DISTINCT {key} FROM c{where} OFFSET 1 LIMIT 2",
        ]
    )


def merged(info: dict[str, Any], ranges: list[list[Any]]) -> list[Any]:
    """The rows of all ranges, put together as `queryInfo` says."""
    is_ordered_distinct = info["distinctType"] == "Ordered"
    if info["orderBy"]:
        signs = [-1 if each == "Descending" else 1 for each in info["orderBy"]]
        if signs[0] < 0:
            ranges = ranges[::-1]  # ties then come as they do in one place
        rows = sorted([row for part in ranges for row in part], key=cmp_to_key(lambda a, b: compared(a, b, signs)))
        if any(isinstance(each.get("item"), (list, dict)) for row in rows for each in row["orderByItems"]):
            is_ordered_distinct = False  # all arrays are equal in an order
        rows = [row["payload"] for row in rows]
    elif info["groupByExpressions"] or info["aggregates"] or info["groupByAliasToAggregateType"]:
        rows = grouped(info, [row for part in ranges for row in part])
    else:
        rows = [row for part in ranges for row in part]
    if is_ordered_distinct:
        rows = rows[:1] + [row for last, row in pairwise(rows) if encode_value(last) != encode_value(row)]
    elif info["distinctType"] != "None":
        rows = first_of_each(rows)
    if info["dCountInfo"] is not None:
        alias = info["dCountInfo"]["dCountAlias"]
        rows = [{alias: len(rows)} if alias else len(rows)]
    if info["offset"] is not None:
        rows = rows[info["offset"] : info["offset"] + info["limit"]]
    return rows if info["top"] is None else rows[: info["top"]]


def first_of_each(rows: Sequence[Any]) -> list[Any]:
    seen: dict[bytes, Any] = {}
    for row in rows:
        seen.setdefault(encode_value(row), row)
    return list(seen.values())


def compared(first: Any, second: Any, signs: list[int]) -> int:
    for one, other, sign in zip(first["orderByItems"], second["orderByItems"], signs, strict=True):
        left, right = value_order(one.get("item", UNDEFINED)), value_order(other.get("item", UNDEFINED))
        if left != right:
            return sign if left > right else -sign
    return 0


def grouped(info: dict[str, Any], rows: list[Any]) -> list[Any]:
    groups: dict[bytes, list[Any]] = {}
    for row in rows:
        is_bare = info["hasSelectValue"] and not info["groupByExpressions"]
        key = [] if is_bare else row.get("groupByItems", [])
        groups.setdefault(encode_value(key), []).append(row if is_bare else row.get("payload", UNDEFINED))
    found = []
    for parts in groups.values():
        if info["hasSelectValue"]:
            kind = info["aggregates"][0] if info["aggregates"] else None
            made = combined(kind, [part[0] for part in parts]) if kind else parts[0]
        else:
            kinds = info["groupByAliasToAggregateType"]
            each = {
                name: combined(kind, [part[name] for part in parts]) if kind else parts[0].get(name, UNDEFINED)
                for name, kind in kinds.items()
            }
            made = {name: value for name, value in each.items() if value is not UNDEFINED}
        if made is not UNDEFINED:
            found.append(made)
    return found


def combined(kind: str, parts: list[dict[str, Any]]) -> Any:
    if kind in ("Min", "Max"):
        word = kind.lower()
        held = [part["item2"] for part in parts if part["item2"]["count"]]
        if not held or any(word not in each for each in held):
            return UNDEFINED
        values = [each[word] for each in held]
        return (min if kind == "Min" else max)(values, key=value_order)
    if any(part == {} for part in parts):
        return UNDEFINED
    items = [part["item"] for part in parts]
    if kind == "Average":
        count = sum(each["count"] for each in items)
        return sum(each["sum"] for each in items) / count if count else UNDEFINED
    if kind in ("MakeList", "MakeSet"):
        values = [value for each in items for value in each]
        return values if kind == "MakeList" else first_of_each(values)
    return sum(items)


def same(first: Any, second: Any) -> bool:
    numbers = [each for each in (first, second) if isinstance(each, (int, float)) and not isinstance(each, bool)]
    if len(numbers) == 2:
        return math.isclose(first, second, rel_tol=1e-9)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    return type(first) is type(second) and bool(first == second)


def test_plans_merge_to_what_the_query_gives(seed: int, amount: Amount) -> None:
    dice = random.Random(seed)
    kinds: dict[str, int] = {}
    queries = amount(QUERIES)
    for _ in range(queries):
        author = Author(dice)
        text = author.query() if dice.random() < 0.6 else mergeable(author)
        items = [{**author.item(), "_rid": f"{number:03}"} for number in range(dice.choice([0, 1, 5, 12]))]
        cuts = sorted(dice.randrange(len(items) + 1) for _ in range(2))
        ranges = [items[: cuts[0]], items[cuts[0] : cuts[1]], items[cuts[1] :]]
        try:
            bound = compile_query(text).bind(author.parameters)
            expected = bound.evaluate_over(items)
            plan = query_plan(bound, None)
        except Failure:
            continue
        if not bound.has_source:
            continue
        info = plan["queryInfo"]
        rewritten = info["rewrittenQuery"].replace(FILTER, dice.choice(["true", "c._rid >= '' OR c.x > 5"])) or text
        assert query_plan(bound, None)["queryInfo"] == info
        parts = [compile_query(rewritten).bind(author.parameters).evaluate_over(part) for part in ranges]
        found = merged(info, parts)
        for name in ("orderBy", "aggregates", "groupByExpressions", "groupByAliases", "dCountInfo", "top", "offset"):
            kinds[name] = kinds.get(name, 0) + bool(info[name])
        kinds[info["distinctType"]] = kinds.get(info["distinctType"], 0) + 1
        assert same(found, expected), (
            f"{text}\n{author.parameters}\n{rewritten}\n{ranges}\ngave {found}\nnot  {expected}"
        )
    assert min(kinds.values()) > queries // 200, kinds
