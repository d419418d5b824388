"""The query plan of ORDER BY RANK over several partitions (hybrid search): one query for global text statistics, and
one component query for the best items by each score; the client fuses their ranks. A query over a single partition is
ranked by the server (`compiling/score_ranking.py`).
"""

from __future__ import annotations

from typing import Any

from armillary.errors import bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.compiling.constants import folded
from armillary.languages.sql.planning.partition_queries import (
    LAST,
    Feature,
    call,
    coalesced,
    enveloped,
    literal,
    nothing_to_merge,
    payload_of,
    speakable,
)
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.order_by_rank import VECTOR, Component, components_of, weights_of
from armillary.languages.sql.syntax.paths import scope_of
from armillary.languages.sql.syntax.render import query_text, text_of
from armillary.languages.sql.syntax.walk import nodes_of
from armillary.model.values import Value

_DOCUMENTS = "{documentdb-formattablehybridsearchquery-totaldocumentcount}"
_WORDS = "{documentdb-formattablehybridsearchquery-totalwordcount-%d}"
_HITS = "{documentdb-formattablehybridsearchquery-hitcountsarray-%d}"
_TAKEN_MIN = 120  # items of each component query, as in the service: items in the middle of several rankings may win
_SCORES = ("_FULLTEXTSCORE", "_VECTORSCORE")


def is_hybrid(bound: BoundQuery) -> bool:
    """Whether a query needs a hybrid-search plan: ORDER BY RANK, except by a single VectorDistance, which is planned as
    an ordinary ORDER BY."""
    query = bound.original
    if not query.is_ranked:
        return False
    first = query.order_by[0].expression
    return not (isinstance(first, tree.Call) and first.name == VECTOR)


def is_component(bound: BoundQuery) -> bool:
    """Whether a query is a component query of a hybrid-search plan."""
    orders = bound.original.order_by
    return bool(orders) and any(
        isinstance(node, tree.Call) and node.name in _SCORES for node in nodes_of(orders[0].expression)
    )


def hybrid_plan(bound: BoundQuery) -> tuple[dict[str, Any], list[Feature]]:
    """The `hybridSearchQueryInfo` of a plan, and the features that the client must support."""
    query, selection = bound.original, bound.selection
    if query.select.is_distinct:
        raise bad_request("DISTINCT together with ORDER BY RANK cannot be put together from several partitions.")
    components = components_of(query, scope_of(query, {}, is_outermost=True))
    weights = _weights(bound, len(components))
    scores = [_score(component, place) for place, component in enumerate(components)]
    # Items without a score come last, in ascending and in descending order.
    known = [
        coalesced(score, LAST if weight < 0 else -1 if component.is_text else -LAST)
        for score, component, weight in zip(scores, components, weights or [1.0] * len(scores), strict=True)
    ]
    pairs = (("payload", payload_of(query)), ("componentScores", tree.ArrayLiteral(0, 0, tuple(known))))
    payload = tree.ObjectLiteral(0, 0, pairs)
    parts = [
        _part(bound, known[place] if weight < 0 else score, text_of(score), payload, is_ascending=weight < 0)
        for place, (score, weight) in enumerate(zip(scores, weights or [1.0] * len(scores), strict=True))
    ]
    plan = {
        "globalStatisticsQuery": _statistics_query(query, components),
        "componentQueryInfos": parts,
        "componentWithoutPayloadQueryInfos": [],
        "projectionQueryInfo": None,
        # A negative weight reverses its component, which `orderBy` expresses; the weights are absolute values.
        "componentWeights": [abs(weight) for weight in weights or [1.0] * len(scores)],
        "skip": selection.skip if query.offset is not None else None,
        "take": selection.take,
        "requiresGlobalStatistics": any(component.is_text for component in components),
    }
    return plan, ["HybridSearch"] if weights is None else ["HybridSearch", "WeightedRankFusion"]


def _weights(bound: BoundQuery, count: int) -> list[float] | None:
    fusion = bound.original.order_by[0].expression
    assert isinstance(fusion, tree.Call)

    def value(node: tree.Expression) -> Value:
        return bound.parameters[node.name] if isinstance(node, tree.Parameter) else folded(node)

    return weights_of(fusion, count, value)


def _score(component: Component, place: int) -> tree.Expression:
    path, *terms = component.call.arguments
    if not component.is_text:
        return call("_VECTORSCORE", path, *terms)
    numbers = [tree.Slot(0, 0, text) for text in (_DOCUMENTS, _WORDS % place, _HITS % place)]
    return call("_FULLTEXTSCORE", path, tree.ArrayLiteral(0, 0, tuple(terms)), *numbers)


def _part(
    bound: BoundQuery, score: tree.Expression, text: str, payload: tree.Expression, *, is_ascending: bool
) -> dict[str, Any]:
    """The component query for the best items by one score. It has no filter placeholder: the Python client would not
    replace it where no statistics are needed."""
    query, selection = bound.original, bound.selection
    top = None if selection.take is None else max(_TAKEN_MIN, 2 * (selection.skip + selection.take))
    order = tree.Order(0, 0, score, not is_ascending, True)
    select = tree.Select(0, 0, query.select.kind, query.select.items, False, None if top is None else literal(top))
    ordered = tree.Query(0, 0, select, query.sources, query.where, (), (order,), False, None, None)
    return nothing_to_merge() | {
        "top": top,
        "orderBy": ["Ascending" if is_ascending else "Descending"],
        "orderByExpressions": [text],
        "rewrittenQuery": query_text(enveloped(ordered, [score], payload, [])),
        "hasNonStreamingOrderBy": True,
    }


def _statistics_query(query: tree.Query, components: tuple[Component, ...]) -> str:
    """The statistics query; its row has the number of items, and for each text the number of words and of items that
    contain each term."""
    entries = []
    for component in components:
        if component.is_text:
            path, *terms = component.call.arguments
            hits = [call("COUNTIF", call("FULLTEXTCONTAINS", path, term)) for term in terms]
            words = call("SUM", call("_FULLTEXTWORDCOUNT", path))
            pairs = (("totalWordCount", words), ("hitCounts", tree.ArrayLiteral(0, 0, tuple(hits))))
            entries.append(tree.ObjectLiteral(0, 0, pairs))
    items = (
        tree.Item(0, 0, call("COUNT", literal(1)), "documentCount"),
        tree.Item(0, 0, tree.ArrayLiteral(0, 0, tuple(entries)), "fullTextStatistics"),
    )
    select = tree.Select(0, 0, "LIST", items, False, None)
    return query_text(tree.Query(0, 0, select, speakable(query).sources, None, (), (), False, None, None))
