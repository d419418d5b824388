"""Rewrites a cross-partition query into the query that a client sends to each partition, whose rows carry order keys or
partial aggregates, and describes how the client must merge them (`queryInfo`). The forms are those that the query
engines of the released clients accept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from armillary import limits
from armillary.errors import bad_request
from armillary.languages.sql.compiling.blocks import item_names
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.compiling.constants import folded
from armillary.languages.sql.library.scores import distance_name
from armillary.languages.sql.library.vectors import is_similarity
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.lexer import FILTER
from armillary.languages.sql.syntax.order_by_rank import components_of, is_ranked
from armillary.languages.sql.syntax.paths import scope_of, source_alias
from armillary.languages.sql.syntax.render import query_text, text_of
from armillary.languages.sql.syntax.walk import aggregates_in, is_aggregate, is_aggregated
from armillary.model.values import UNDEFINED

LAST = 1.7976931348623157e308  # replaces an undefined score where the smallest is the best
_AGGREGATE_TYPES = {
    "AVG": "Average",
    "COUNT": "Count",
    "COUNTIF": "CountIf",
    "MAKELIST": "MakeList",
    "MAKESET": "MakeSet",
    "MAX": "Max",
    "MIN": "Min",
    "SUM": "Sum",
}
_COMPOSED = "Compositions of aggregates and other expressions are not allowed."
_STAGED = (
    "A query over the rows of a subquery with DISTINCT, GROUP BY or aggregates cannot be put together from several "
    "partitions; ask for one partition key at a time."
)


# What a client must be able to merge, by the names that clients announce. Each announces only some of them
# (tests/conformance/test_sql_features.py), and the others are refused to it.
Feature = Literal[
    "Aggregate",
    "CountIf",
    "DCount",
    "Distinct",
    "GroupBy",
    "HybridSearch",
    "ListAndSetAggregate",
    "MultipleAggregates",
    "MultipleOrderBy",
    "NonStreamingOrderBy",
    "NonValueAggregate",
    "OffsetAndLimit",
    "OrderBy",
    "Top",
    "WeightedRankFusion",
]


@dataclass(slots=True)
class Partial:
    """The `queryInfo` of a plan."""

    info: dict[str, Any]
    features: list[Feature]  # that the client must support


def nothing_to_merge() -> dict[str, Any]:
    """The `queryInfo` of a query that needs no merging. Clients expect every one of these properties."""
    return {
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
    }


def is_unmergeable(bound: BoundQuery) -> bool:
    """Whether clients cannot merge a query: its FROM is a grouped or distinct subquery, and it does more than count."""
    return len(bound.selection.stages) > 1 and _counted_distinct(bound.original) is None


def partial_of(bound: BoundQuery) -> Partial:
    query = bound.original
    info = nothing_to_merge()
    info["hasSelectValue"] = query.select.kind == "VALUE"
    partial = Partial(info, [])
    if len(bound.selection.stages) > 1:
        _count_distinct(query, partial)
        return partial
    _counts(bound, partial)
    if query.select.is_distinct:
        partial.features.append("Distinct")
        info["distinctType"] = "Unordered"
    if is_aggregated(query):
        _aggregated(query, partial)
    elif query.order_by:
        _ordered(bound, partial)
    elif query.offset is not None:
        info["rewrittenQuery"] = query_text(_from_the_start(query, bound))
    return partial


# TOP, OFFSET and LIMIT.


def _counts(bound: BoundQuery, partial: Partial) -> None:
    selection, query = bound.selection, bound.original
    if query.select.top is not None:
        partial.info["top"] = selection.take
        partial.features.append("Top")
    elif query.offset is not None:
        partial.info["offset"], partial.info["limit"] = selection.skip, selection.take
        partial.features.append("OffsetAndLimit")


def _from_the_start(query: tree.Query, bound: BoundQuery) -> tree.Query:
    """OFFSET 0 and LIMIT offset + limit: all rows that are needed may be in one partition."""
    if query.offset is None:
        return query
    count = min(bound.selection.skip + (bound.selection.take or 0), limits.QUERY_COUNT_MAX)
    return replace(query, offset=literal(0), limit=literal(count))


def _uncounted(query: tree.Query) -> tree.Query:
    """Without TOP, OFFSET, LIMIT and DISTINCT, which only the client can apply after merging."""
    return replace(query, select=replace(query.select, top=None, is_distinct=False), offset=None, limit=None)


# ORDER BY.


def _ordered(bound: BoundQuery, partial: Partial) -> None:
    query, info = bound.original, partial.info
    is_vector = is_ranked(query)
    expressions = [order.expression for order in query.order_by]
    items: list[tree.Expression] = list(expressions)
    is_descending = [order.is_descending for order in query.order_by]
    if is_vector:
        partial.features.append("NonStreamingOrderBy")
        info["hasNonStreamingOrderBy"] = True
        is_descending = [_is_best_greatest(bound)]
    else:
        partial.features += ["OrderBy", "MultipleOrderBy"] if len(expressions) > 1 else ["OrderBy"]
    info["orderBy"] = ["Descending" if each else "Ascending" for each in is_descending]
    info["orderByExpressions"] = [text_of(expression) for expression in expressions]
    rewritten = _from_the_start(query, bound)
    if query.select.is_distinct:
        # With _rid every row is distinct, so the limits can only be applied by the client.
        rewritten = _uncounted(query)
        if _is_covered(query):
            info["distinctType"] = "Ordered"
    elif is_vector and rewritten.limit is not None:
        rewritten = replace(rewritten, select=replace(rewritten.select, top=rewritten.limit), offset=None, limit=None)
    placeholder = tree.Slot(0, 0, f"({FILTER})")
    info["rewrittenQuery"] = query_text(
        enveloped(replace(rewritten, is_ranked=False), items, payload_of(query), [placeholder])
    )


def enveloped(
    query: tree.Query, order_items: Iterable[tree.Expression], payload: tree.Expression, extra: list[tree.Expression]
) -> tree.Query:
    """`SELECT c._rid, [{"item": …}] AS orderByItems, … AS payload FROM c WHERE … AND extra ORDER BY …`."""
    query = speakable(query)
    alias = root_of(query)
    keys = tuple([_object(("item", each)) for each in order_items])
    items = [
        _item(tree.Member(0, 0, tree.Name(0, 0, alias), "_rid"), None),
        _item(tree.ArrayLiteral(0, 0, keys), "orderByItems"),
        _item(payload, "payload"),
    ]
    conditions = [] if query.where is None else [query.where]
    if query.select.kind == "VALUE" and not isinstance(
        query.select.items[0].expression, (tree.Name, tree.ObjectLiteral, tree.ArrayLiteral)
    ):
        # SELECT VALUE omits undefined values; clients expect a payload in every row.
        conditions.append(call("IS_DEFINED", query.select.items[0].expression))
    conditions += extra
    where = None
    if conditions:
        where = conditions[0] if len(conditions) == 1 else tree.Logic(0, 0, "AND", tuple(conditions))
    return replace(query, select=replace(query.select, kind="LIST", items=tuple(items)), where=where)


def payload_of(query: tree.Query) -> tree.Expression:
    """What a query selects, as one expression."""
    select = query.select
    if select.kind == "*":
        return tree.Name(0, 0, root_of(speakable(query)))
    expressions = [item.expression for item in select.items]
    if select.kind == "VALUE":
        return expressions[0]
    return _object(*zip(item_names(select), expressions, strict=True))


def speakable(query: tree.Query) -> tree.Query:
    """The query with an alias for its first source if that has none that is a plain identifier (FROM c["any text"])."""
    source = query.sources[0]
    alias = source_alias(source)
    if alias is not None and text_of(tree.Member(0, 0, tree.Name(0, 0, ""), alias)) == f".{alias}":
        return query
    return replace(query, sources=(replace(source, alias="root"), *query.sources[1:]))


def root_of(query: tree.Query) -> str:
    alias = source_alias(query.sources[0])
    assert alias is not None, "it was made speakable"
    return alias


def _is_covered(query: tree.Query) -> bool:
    """Whether equal rows are adjacent: the selected expressions are the first ORDER BY keys."""
    if query.select.kind == "*":
        return False
    selected = {text_of(item.expression) for item in query.select.items}
    keys = [text_of(order.expression) for order in query.order_by]
    return selected == set(keys[: len(selected)])


def _is_best_greatest(bound: BoundQuery) -> bool:
    """Whether the distance function, set by the call or the container, is a similarity: greater is better."""
    component = components_of(bound.original, scope_of(bound.original, {}, is_outermost=True))[0]
    arguments = component.call.arguments
    options: Any = None
    if len(arguments) > 3:
        given = arguments[3]
        options = bound.parameters[given.name] if isinstance(given, tree.Parameter) else folded(given)
    return is_similarity(distance_name(bound.context, component.path, options))


# Aggregates and groups.


def is_bare_aggregate(bound: BoundQuery) -> bool:
    """SELECT COUNT(1), without VALUE or GROUP BY. The service leaves these to clients even if the filter fixes the
    partition key, and the Python client refuses them."""
    query = bound.original
    return query.select.kind == "LIST" and not query.group_by and is_aggregated(query)


def _aggregated(query: tree.Query, partial: Partial) -> None:
    info, select = partial.info, query.select
    calls = [found for item in select.items for found in aggregates_in(item.expression)]
    if len(calls) != sum(is_aggregate(item.expression) for item in select.items):
        raise bad_request(_COMPOSED)
    if len(calls) > limits.QUERY_MERGED_AGGREGATES_MAX:
        raise bad_request(
            f"A query over several partitions has at most {limits.QUERY_MERGED_AGGREGATES_MAX} aggregates."
        )
    _aggregate_features(query, calls, partial)
    rewritten = replace(_uncounted(query), order_by=())
    items: list[tree.Item] = []
    if query.group_by:
        info["groupByExpressions"] = [text_of(key) for key in query.group_by]
        keys = tuple([_object(("item", key)) for key in query.group_by])
        items.append(_item(tree.ArrayLiteral(0, 0, keys), "groupByItems"))
    if select.kind == "VALUE":
        expression = select.items[0].expression
        if calls:
            info["aggregates"] = [_AGGREGATE_TYPES[calls[0].name]]
            expression = tree.ArrayLiteral(0, 0, (_partial_aggregate(calls[0]),))
        if not query.group_by:
            value = replace(rewritten.select, items=(_item(expression, None),))
            info["rewrittenQuery"] = query_text(replace(rewritten, select=value))
            return
        items.append(_item(expression, "payload"))
    else:
        pairs: list[tuple[str, tree.Expression]] = []
        for name, item in zip(item_names(select), select.items, strict=True):
            found = item.expression
            is_call = isinstance(found, tree.Call) and is_aggregate(found)
            info["groupByAliases"].append(name)
            info["groupByAliasToAggregateType"][name] = _AGGREGATE_TYPES[found.name] if is_call else None  # type: ignore[union-attr]
            pairs.append((name, _partial_aggregate(found) if is_call else found))  # type: ignore[arg-type]
        items.append(_item(_object(*pairs), "payload"))
    listed = replace(rewritten.select, kind="LIST", items=tuple(items))
    info["rewrittenQuery"] = query_text(replace(rewritten, select=listed))


def _aggregate_features(query: tree.Query, calls: list[tree.Call], partial: Partial) -> None:
    features = partial.features
    if query.group_by:
        features.append("GroupBy")
    elif query.select.kind == "VALUE":
        features.append("Aggregate")
    else:
        features.append("NonValueAggregate")
    if len(calls) > 1:
        features.append("MultipleAggregates")
    names = {each.name for each in calls}
    if "COUNTIF" in names:
        features.append("CountIf")
    if names & {"MAKELIST", "MAKESET"}:
        features.append("ListAndSetAggregate")


def _partial_aggregate(aggregate: tree.Call) -> tree.Expression:
    """The partial aggregate of one partition, in the form that clients merge. An undefined one is `{}`."""
    argument = aggregate.arguments[0]
    count = call("COUNT", argument)
    if aggregate.name == "AVG":
        total = call("SUM", argument)
        both = _object(("sum", total), ("count", count))
        # The sum over a value that is not a number is undefined; then so is the average of all partitions.
        nothing = tree.Literal(0, 0, UNDEFINED)
        return _object(("item", tree.Conditional(0, 0, call("IS_DEFINED", total), both, nothing)))
    if aggregate.name in ("MIN", "MAX"):
        extreme = _object((aggregate.name.lower(), aggregate), ("count", count))
        return _object(("item", aggregate), ("item2", extreme))
    return _object(("item", aggregate))


def _count_distinct(query: tree.Query, partial: Partial) -> None:
    """COUNT over a DISTINCT subquery: the only query over a subquery's rows that clients can merge."""
    inner = _counted_distinct(query)
    if inner is None:
        raise bad_request(_STAGED)
    partial.features += ["DCount", "Distinct"]
    partial.info["distinctType"] = "Unordered"
    alias = "" if query.select.kind == "VALUE" else item_names(query.select)[0]
    partial.info["dCountInfo"] = {"dCountAlias": alias}
    partial.info["rewrittenQuery"] = query_text(inner)


def _counted_distinct(query: tree.Query) -> tree.Query | None:
    """The DISTINCT subquery whose rows a query counts, if it does nothing else."""
    inner, select = query.sources[0].expression, query.select
    expression = select.items[0].expression if len(select.items) == 1 else None
    is_count = (
        isinstance(expression, tree.Call)
        and is_aggregate(expression)
        and expression.name == "COUNT"
        and isinstance(expression.arguments[0], tree.Literal)
        and expression.arguments[0].value is not UNDEFINED
    )
    has_more = query.where is not None or query.group_by or query.order_by or query.offset or select.top
    is_plain = len(query.sources) == 1 and not query.sources[0].is_iterated and not select.is_distinct
    if not is_count or has_more or not is_plain or not isinstance(inner, tree.Subquery):
        return None
    if not inner.query.select.is_distinct or is_aggregated(inner.query) or _has_stages(inner.query):
        return None
    return inner.query


def _has_stages(query: tree.Query) -> bool:
    inner = query.sources[0].expression if query.sources else None
    return isinstance(inner, tree.Subquery)


# Constructors of nodes without a place in the text.


def literal(value: int | float) -> tree.Literal:
    return tree.Literal(0, 0, value)


def call(name: str, *arguments: tree.Expression) -> tree.Call:
    return tree.Call(0, 0, name, arguments, False, 0)


def coalesced(expression: tree.Expression, otherwise: int | float) -> tree.Expression:
    return tree.Logic(0, 0, "??", (expression, literal(otherwise)))


def _object(*pairs: tuple[str, tree.Expression]) -> tree.ObjectLiteral:
    return tree.ObjectLiteral(0, 0, pairs)


def _item(expression: tree.Expression, alias: str | None) -> tree.Item:
    return tree.Item(0, 0, expression, alias)
