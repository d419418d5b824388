"""Traversal of expression trees: children, all nodes, names and aggregates. Without recursion, because chains may be
thousands of nodes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from armillary.languages.sql.syntax import tree


def nodes_of(root: tree.Expression) -> Iterator[tree.Expression]:
    """Every node of an expression, in the order of the text. Subqueries are not entered."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children_of(node)))


def children_of(node: tree.Expression) -> tuple[tree.Expression, ...]:
    return _CHILDREN[node.__class__](node)


def _none(node: tree.Expression) -> tuple[tree.Expression, ...]:
    return ()


# A table by class: this is called several times for each node, and a `match` takes three times as long.
_CHILDREN: dict[type, Callable[[Any], tuple[tree.Expression, ...]]] = {
    tree.Literal: _none,
    tree.Parameter: _none,
    tree.Name: _none,
    tree.Subquery: _none,
    tree.Slot: _none,
    tree.Member: lambda node: (node.source,),
    tree.Binary: lambda node: (node.left, node.right),
    tree.Logic: lambda node: node.operands,
    tree.In: lambda node: (node.needle, *node.values),
    tree.Call: lambda node: node.arguments,
    tree.Index: lambda node: (node.source, node.index),
    tree.Unary: lambda node: (node.operand,),
    tree.Between: lambda node: (node.operand, node.low, node.high),
    tree.Like: lambda node: (node.operand, node.pattern),
    tree.Conditional: lambda node: (node.condition, node.then, node.otherwise),
    tree.ArrayLiteral: lambda node: node.elements,
    tree.ObjectLiteral: lambda node: tuple([value for _, value in node.pairs]),
}


def expressions_of(query: tree.Query) -> Iterator[tree.Expression]:
    """The outermost expressions of a query's clauses, in the order of the text."""
    for item in query.select.items:
        yield item.expression
    for source in query.sources:
        yield source.expression
    if query.where is not None:
        yield query.where
    yield from query.group_by
    for order in query.order_by:
        yield order.expression


def names_in(root: tree.Expression) -> Iterator[tree.Name]:
    """Every name in an expression, subqueries included, whatever it refers to."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, tree.Name):
            yield node
        elif isinstance(node, tree.Subquery):
            pending.extend(reversed(list(expressions_of(node.query))))
        else:
            pending.extend(reversed(children_of(node)))


def aggregates_in(root: tree.Expression) -> Iterator[tree.Call]:
    """The aggregate calls in an expression, outermost first. Subqueries are not entered."""
    for node in nodes_of(root):
        if isinstance(node, tree.Call) and is_aggregate(node):
            yield node


def is_aggregate(node: tree.Expression) -> bool:
    return isinstance(node, tree.Call) and not node.is_user_defined and node.name in AGGREGATE_NAMES


def is_aggregated(query: tree.Query) -> bool:
    """Whether a query has GROUP BY or aggregates: it returns a row for each group, or one row for all."""
    if query.group_by:
        return True
    return any(True for item in query.select.items for _ in aggregates_in(item.expression))


AGGREGATE_NAMES = frozenset(["AVG", "COUNT", "COUNTIF", "MAKELIST", "MAKESET", "MAX", "MIN", "SUM"])
