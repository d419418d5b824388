"""Query plans: the form that client libraries read without looking twice."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.planning.plan import query_plan
from armillary.model.key_values import Key
from armillary.model.keys import PartitionKeyDefinition

KEY = PartitionKeyDefinition.parse({"paths": ["/pk"], "kind": "Hash", "version": 2})
TREE_KEY = PartitionKeyDefinition.parse({"paths": ["/a", '/"b c"'], "kind": "MultiHash", "version": 2})
FULL = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}


def point(*key: Any) -> dict[str, Any]:
    place = (KEY if len(key) == 1 else TREE_KEY).effective_key(Key(key)).hex().upper()
    return {"min": place, "max": place, "isMinInclusive": True, "isMaxInclusive": True}


def ranges(where: str, definition: PartitionKeyDefinition | None = KEY, **given: Any) -> list[dict[str, Any]]:
    parameters = {f"@{name}": value for name, value in given.items()}
    bound = compile_query(f"SELECT * FROM c WHERE {where}").bind(parameters)
    return query_plan(bound, definition)["queryRanges"]  # type: ignore[no-any-return]


def test_plain_plan() -> None:
    assert query_plan(compile_query("SELECT * FROM c").bind({}), KEY, "OrderBy,Top") == {
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
    low = KEY.effective_key(Key(("x",))).hex().upper()
    prefix = {"min": low, "max": low + "FF", "isMinInclusive": True, "isMaxInclusive": False}
    assert ranges("c.a = 'x'", TREE_KEY) == [prefix]
    assert ranges("c.a = 'x' AND c['b c'] = 1", TREE_KEY) == [point("x", 1)]
    assert ranges("c.a = 'x' OR (c.a = 'x' AND c['b c'] = 1)", TREE_KEY) == [prefix]
    assert ranges("c['b c'] = 1", TREE_KEY) == [FULL]


@pytest.mark.parametrize(("text", "has_value"), [("SELECT VALUE c.a FROM c", True), ("SELECT c.a FROM c", False)])
def test_select_value_is_told(text: str, has_value: bool) -> None:
    assert query_plan(compile_query(text).bind({}), KEY)["queryInfo"]["hasSelectValue"] is has_value


# Queries that clients put together. FILTER is what they replace.

FILTER = "{documentdb-formattableorderbyquery-filter}"


def info(text: str, **given: Any) -> dict[str, Any]:
    parameters = {f"@{name}": value for name, value in given.items()}
    found: dict[str, Any] = query_plan(compile_query(text).bind(parameters), KEY)["queryInfo"]
    neutral: dict[str, Any] = query_plan(compile_query("SELECT * FROM c").bind({}), KEY)["queryInfo"]
    assert found.keys() == neutral.keys()
    return {name: value for name, value in found.items() if value != neutral[name] or (type(value) is bool and value)}


def ordered(*keys: str, directions: str = "Ascending") -> dict[str, Any]:
    return {"orderBy": directions.split(","), "orderByExpressions": list(keys)}


PLANS: list[tuple[str, dict[str, Any]]] = [
    (
        "SELECT * FROM c ORDER BY c.x",
        ordered("c.x")
        | {
            "rewrittenQuery": 'SELECT c._rid, [{"item": c.x}] AS orderByItems, c AS payload FROM c '
            f"WHERE ({FILTER}) ORDER BY c.x"
        },
    ),
    (
        "SELECT TOP 3 r.a, r.b AS q, 1 FROM root r WHERE r.n > 1 ORDER BY r.x DESC, r['y z'] ASC",
        ordered("r.x", 'r["y z"]', directions="Descending,Ascending")
        | {
            "top": 3,
            "rewrittenQuery": 'SELECT TOP 3 r._rid, [{"item": r.x}, {"item": r["y z"]}] AS orderByItems, '
            '{"a": r.a, "q": r.b, "$1": 1} AS payload FROM root AS r '
            f'WHERE ((r.n > 1) AND ({FILTER})) ORDER BY r.x DESC, r["y z"]',
        },
    ),
    (
        "SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.x OFFSET 2 LIMIT 3",
        ordered("c.x")
        | {
            "offset": 2,
            "limit": 3,
            "hasSelectValue": True,
            "rewrittenQuery": 'SELECT c._rid, [{"item": c.x}] AS orderByItems, t AS payload FROM c JOIN t IN c.tags '
            f"WHERE ({FILTER}) ORDER BY c.x OFFSET 0 LIMIT 5",
        },
    ),
    ("SELECT TOP 5 * FROM c", {"top": 5}),
    (
        "SELECT c.a FROM c OFFSET 1 LIMIT 0",
        {"offset": 1, "limit": 0, "rewrittenQuery": "SELECT c.a FROM c OFFSET 0 LIMIT 1"},
    ),
    ("SELECT DISTINCT c.a FROM c", {"distinctType": "Unordered"}),
    (
        "SELECT DISTINCT TOP 2 VALUE c.x FROM c ORDER BY c.x",
        ordered("c.x")
        | {
            "distinctType": "Ordered",
            "top": 2,
            "hasSelectValue": True,
            "rewrittenQuery": 'SELECT c._rid, [{"item": c.x}] AS orderByItems, c.x AS payload FROM c '
            f"WHERE (IS_DEFINED(c.x) AND ({FILTER})) ORDER BY c.x",
        },
    ),
    (
        "SELECT VALUE COUNTIF(c.a > 1) FROM c",
        {
            "aggregates": ["CountIf"],
            "hasSelectValue": True,
            "rewrittenQuery": 'SELECT VALUE [{"item": COUNTIF((c.a > 1))}] FROM c',
        },
    ),
    (
        "SELECT TOP 1 VALUE MIN(c.a) FROM c WHERE c.b ORDER BY c.a",
        {
            "top": 1,
            "aggregates": ["Min"],
            "hasSelectValue": True,
            "rewrittenQuery": 'SELECT VALUE [{"item": MIN(c.a), "item2": {"min": MIN(c.a), "count": COUNT(c.a)}}] '
            "FROM c WHERE c.b",
        },
    ),
    (
        "SELECT COUNT(1), SUM(c.a) AS s FROM c",
        {
            "groupByAliases": ["$1", "s"],
            "groupByAliasToAggregateType": {"$1": "Count", "s": "Sum"},
            "rewrittenQuery": 'SELECT {"$1": {"item": COUNT(1)}, "s": {"item": SUM(c.a)}} AS payload FROM c',
        },
    ),
    (
        "SELECT c.k, MAKELIST(c.v) AS v FROM c GROUP BY c.k",
        {
            "groupByExpressions": ["c.k"],
            "groupByAliases": ["k", "v"],
            "groupByAliasToAggregateType": {"k": None, "v": "MakeList"},
            "rewrittenQuery": 'SELECT [{"item": c.k}] AS groupByItems, {"k": c.k, "v": {"item": MAKELIST(c.v)}} '
            "AS payload FROM c GROUP BY c.k",
        },
    ),
    (
        "SELECT VALUE COUNT(1) FROM c GROUP BY c.k, LOWER(c.l)",
        {
            "groupByExpressions": ["c.k", "LOWER(c.l)"],
            "aggregates": ["Count"],
            "hasSelectValue": True,
            "rewrittenQuery": 'SELECT [{"item": c.k}, {"item": LOWER(c.l)}] AS groupByItems, [{"item": COUNT(1)}] '
            "AS payload FROM c GROUP BY c.k, LOWER(c.l)",
        },
    ),
    (
        "SELECT COUNT(1) AS n FROM (SELECT DISTINCT VALUE c.x FROM c WHERE c.y = 1)",
        {
            "distinctType": "Unordered",
            "dCountInfo": {"dCountAlias": "n"},
            "rewrittenQuery": "SELECT DISTINCT VALUE c.x FROM c WHERE (c.y = 1)",
        },
    ),
    (
        "SELECT c.id FROM c ORDER BY VectorDistance(c.v, [1, 2]) OFFSET 1 LIMIT 2",
        ordered("VectorDistance(c.v, [1, 2])", directions="Descending")
        | {
            "offset": 1,
            "limit": 2,
            "hasNonStreamingOrderBy": True,
            "rewrittenQuery": 'SELECT TOP 3 c._rid, [{"item": VectorDistance(c.v, [1, 2])}] AS orderByItems, '
            f'{{"id": c.id}} AS payload FROM c WHERE ({FILTER}) ORDER BY VectorDistance(c.v, [1, 2])',
        },
    ),
]


@pytest.mark.parametrize(("text", "expected"), PLANS, ids=[text for text, _ in PLANS])
def test_plans(text: str, expected: dict[str, Any]) -> None:
    assert info(text) == expected
    rewritten = expected.get("rewrittenQuery", "")
    if rewritten:
        for condition in ("true", "c.x > 5 OR (c.x = 5 AND c._rid > 'a')", "(c.x >= 'it\\u0027s')"):
            condition = condition if "root AS r" not in rewritten else condition.replace("c.", "r.")
            compile_query(rewritten.replace(FILTER, condition)).bind({})


def test_distances_order_the_other_way() -> None:
    options = "{'distanceFunction': 'Euclidean'}"
    for text, given in ((options, {}), ("@o", {"o": {"distanceFunction": "euclidean"}})):
        found = info(f"SELECT TOP @n * FROM c ORDER BY VectorDistance(c.v, @v, false, {text})", n=2, v=[1], **given)
        assert found["orderBy"] == ["Ascending"]
        assert found["top"] == 2
        assert found["rewrittenQuery"].startswith("SELECT TOP @n c._rid")
        assert "??" not in found["rewrittenQuery"], "an item without a vector has no order item, and comes first"


def test_what_is_read_can_be_read_again() -> None:
    chain = " + ".join(["c.a"] * 2900)
    choice = "".join([f"c.a = {n} ? {n} : " for n in range(60)]) + "0"
    some = ["(1 + 2) * 3 - -4", "1 - (2 - 3)", "NOT (c.b OR c.d)", "'{documentdb-formattable'", "-c.a || 'x'"]
    for expression in (chain, choice, *some):
        text = info(f"SELECT {expression} AS e FROM c ORDER BY c.x")["rewrittenQuery"].replace(FILTER, "true")
        assert "{documentdb" not in text
        item = {"a": 2, "x": 1, "b": True, "d": False, "_rid": "r"}
        rows = compile_query(text).bind({}).evaluate_over([item])
        expected = compile_query(f"SELECT {expression} AS e FROM c").bind({}).evaluate_over([item])
        assert [row["payload"] for row in rows] == expected  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("text", "features", "missing"),
    [
        ("SELECT * FROM c", "None", None),
        ("SELECT * FROM c ORDER BY c.x", "OrderBy", None),
        ("SELECT * FROM c ORDER BY c.x, c.y", "OrderBy", "MultipleOrderBy"),
        ("SELECT TOP 1 * FROM c", "orderby, top", None),
        ("SELECT c.k FROM c GROUP BY c.k", "Aggregate,OrderBy", "GroupBy"),
        ("SELECT COUNT(1), SUM(c.a) FROM c", "Aggregate", "NonValueAggregate, MultipleAggregates"),
        ("SELECT VALUE MAKESET(c.a) FROM c", "Aggregate", "ListAndSetAggregate"),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.x FROM c)", "Distinct,Aggregate", "DCount"),
        (
            "SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.u, 'b'), [1, 2])",
            "HybridSearch",
            "WeightedRankFusion",
        ),
    ],
)
def test_features_that_a_client_lacks(text: str, features: str, missing: str | None) -> None:
    bound = compile_query(text).bind({})
    if missing is None:
        query_plan(bound, KEY, features)
        return
    with pytest.raises(Failure) as caught:
        query_plan(bound, KEY, features)
    assert f"which the calling client does not support: {missing}. With --queries merge" in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT VALUE FLOOR(AVG(c.x)) FROM c", "Compositions of aggregates"),
        ("SELECT COUNT(1) + 5 FROM c", "Compositions of aggregates"),
        ("SELECT VALUE s.x FROM (SELECT DISTINCT c.x FROM c) s", "cannot be put together"),
        (f"SELECT {', '.join(['SUM(c.a)'] * 22)} FROM c", "at most 21"),
    ],
)
def test_what_cannot_be_planned(text: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        query_plan(compile_query(text).bind({}), KEY)


def test_hybrid_search() -> None:
    text = (
        "SELECT TOP 70 c.id FROM c WHERE c.a = @a "
        "ORDER BY RANK RRF(VectorDistance(c.v, @v), FullTextScore(c.t, ['x', @w]), [2, -0.5])"
    )
    plan = query_plan(compile_query(text).bind({"@a": 1, "@v": [1, 2], "@w": "y"}), KEY)
    assert plan["queryInfo"]["distinctType"] == "None"
    hybrid = plan["hybridSearchQueryInfo"]
    assert hybrid["globalStatisticsQuery"] == (
        'SELECT COUNT(1) AS documentCount, [{"totalWordCount": SUM(_FullTextWordCount(c.t)), "hitCounts": '
        '[COUNTIF(FullTextContains(c.t, "x")), COUNTIF(FullTextContains(c.t, @w))]}] AS fullTextStatistics FROM c'
    )
    assert hybrid["componentWeights"] == [2, 0.5]
    assert (hybrid["skip"], hybrid["take"], hybrid["requiresGlobalStatistics"]) == (None, 70, True)
    vector, words = hybrid["componentQueryInfos"]
    assert [each["orderBy"] for each in (vector, words)] == [["Descending"], ["Ascending"]]
    assert [each["top"] for each in (vector, words)] == [140, 140]
    assert vector["orderByExpressions"] == ["_VectorScore(c.v, @v)"]
    assert vector["rewrittenQuery"].endswith("WHERE (c.a = @a) ORDER BY _VectorScore(c.v, @v) DESC")
    for each in (vector, words):
        assert FILTER not in each["rewrittenQuery"], "Python replaces it only together with statistics"
        assert "totalwordcount-1}" in each["rewrittenQuery"], "numbered by component"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM c ORDER BY VectorDistance(c.v, [1]) ASC", "Specifying a sorting order"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'x') DESC", "Specifying a sort order"),
        ("SELECT * FROM c ORDER BY VectorDistance(c.v, [1]), c.x", "2206"),
        ("SELECT * FROM c ORDER BY RANK LOWER(c.t)", "SC2221"),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'x'))", "SC2221"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.t)", "SC2050"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c, 'x')", "2206"),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.t, c.u)", "SC2226"),
        ("SELECT t FROM c JOIN t IN c.a ORDER BY RANK FullTextScore(c.t, 'x')", "SC2224"),
        ("SELECT t FROM t IN c.a ORDER BY RANK FullTextScore(t.t, 'x')", "SC2223"),
        ("SELECT * FROM (SELECT c.t FROM c) s ORDER BY RANK FullTextScore(s.t, 'x')", "SC2225"),
        ("SELECT COUNT(1) FROM c ORDER BY RANK FullTextScore(c.t, 'x')", "SC2102"),
        ("SELECT RRF(c.a, c.b) FROM c", "SC2005"),
        ("SELECT t FROM c JOIN t IN c.a ORDER BY VectorDistance(t.v, [1])", "2206"),
    ],
)
def test_orders_of_scores_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        compile_query(text)
    assert message in caught.value.message
