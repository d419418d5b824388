"""Query plans: the form that client libraries read without looking twice."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.languages.sql.compile import compile_query
from armillary.languages.sql.plan import query_plan
from armillary.model.keys import PartitionKeyDefinition

KEY = PartitionKeyDefinition.parse({"paths": ["/pk"], "kind": "Hash", "version": 2})
TREE_KEY = PartitionKeyDefinition.parse({"paths": ["/a", '/"b c"'], "kind": "MultiHash", "version": 2})
FULL = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}


def point(*key: Any) -> dict[str, Any]:
    place = (KEY if len(key) == 1 else TREE_KEY).effective_key(key).hex().upper()
    return {"min": place, "max": place, "isMinInclusive": True, "isMaxInclusive": True}


def ranges(where: str, definition: PartitionKeyDefinition | None = KEY, **given: Any) -> list[dict[str, Any]]:
    parameters = {f"@{name}": value for name, value in given.items()}
    return query_plan(compile_query(f"SELECT * FROM c WHERE {where}"), parameters, definition)["queryRanges"]  # type: ignore[no-any-return]


def test_plain_plan() -> None:
    assert query_plan(compile_query("SELECT * FROM c"), {}, KEY, "OrderBy,Top") == {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None",
            "top": None,
            "offset": None,
            "limit": None,
            "orderBy": [],
            "orderByExpressions": [],
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": "",
            "hasSelectValue": False,
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": [FULL],
    }


def test_ranges_of_pinned_keys() -> None:
    assert ranges("c.pk = 'x'") == [point("x")]
    assert ranges("c.pk = @p", p="a")[0]["min"] == "3A5381E1114EB8D3FCC90795045B49B7"
    assert ranges("c.pk IN ('x', 'y', 5, null, 'x')") == sorted(
        [point("x"), point("y"), point(5), point(None)], key=lambda entry: str(entry["min"])
    )
    for where in ("c.pk > 'x'", "c.a = 1", "c.pk = 'x' OR c.a = 1", "false", "c.pk = 'x' AND c.pk = 'y'"):
        assert ranges(where) == [FULL], where
    assert ranges("c.pk = 'x'", None) == [FULL]


def test_ranges_of_hierarchical_keys() -> None:
    low = KEY.effective_key(("x",)).hex().upper()
    prefix = {"min": low, "max": low + "FF", "isMinInclusive": True, "isMaxInclusive": False}
    assert ranges("c.a = 'x'", TREE_KEY) == [prefix]
    assert ranges("c.a = 'x' AND c['b c'] = 1", TREE_KEY) == [point("x", 1)]
    assert ranges("c.a = 'x' OR (c.a = 'x' AND c['b c'] = 1)", TREE_KEY) == [prefix]
    assert ranges("c['b c'] = 1", TREE_KEY) == [FULL]


@pytest.mark.parametrize(("text", "has_value"), [("SELECT VALUE c.a FROM c", True), ("SELECT c.a FROM c", False)])
def test_select_value_is_told(text: str, has_value: bool) -> None:
    assert query_plan(compile_query(text), {}, KEY)["queryInfo"]["hasSelectValue"] is has_value
