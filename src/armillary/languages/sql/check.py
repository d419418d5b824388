"""What a parsed query must satisfy before it is compiled: every name stands for something, every function exists and
gets as many arguments as it takes, and nothing is used that is not offered yet. Refusals name the thing and its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.sql import tree
from armillary.languages.sql.functions import AGGREGATES, ANY_NUMBER, FUNCTIONS, NOT_YET
from armillary.languages.sql.lexer import query_error


@dataclass(frozen=True, slots=True)
class Checked:
    query: tree.Query
    alias: str | None  # what stands for the item; None when there is no FROM
    parameters: tuple[str, ...]  # names in the order of their first use


def check_query(query: tree.Query) -> Checked:
    _check_clauses(query)
    alias = _alias(query)
    parameters: dict[str, None] = {}
    for root in _roots(query):
        for node in nodes_of(root):
            if isinstance(node, tree.Name):
                if node.name != alias:
                    message = f"Identifier '{node.name}' could not be resolved."
                    raise query_error("SC2001", message, node.start, node.end)
            elif isinstance(node, tree.Parameter):
                parameters[node.name] = None
            elif isinstance(node, tree.Call):
                _check_call(node)
            elif isinstance(node, tree.Subquery):
                raise not_yet(f"The subquery at position {node.start}")
            elif isinstance(node, tree.Like):
                raise not_yet(f"LIKE at position {node.start}")
    return Checked(query, alias, tuple(parameters))


def nodes_of(root: tree.Expression) -> Iterator[tree.Expression]:
    """Every node of an expression, in the order of the text, without recursion: a chain may be thousands long."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children_of(node)))


def children_of(node: tree.Expression) -> tuple[tree.Expression, ...]:
    match node:
        case tree.Literal() | tree.Parameter() | tree.Name() | tree.Subquery():
            return ()
        case tree.Member():
            return (node.source,)
        case tree.Binary():
            return (node.left, node.right)
        case tree.Logic():
            return node.operands
        case tree.In():
            return (node.needle, *node.values)
        case tree.Call():
            return node.arguments
        case tree.Index():
            return (node.source, node.index)
        case tree.Unary():
            return (node.operand,)
        case tree.Between():
            return (node.operand, node.low, node.high)
        case tree.Like():
            return (node.operand, node.pattern)
        case tree.Conditional():
            return (node.condition, node.then, node.otherwise)
        case tree.ArrayLiteral():
            return node.elements
        case tree.ObjectLiteral():
            return tuple([value for _, value in node.pairs])


def _roots(query: tree.Query) -> Iterator[tree.Expression]:
    for item in query.select.items:
        yield item.expression
    if query.where is not None:
        yield query.where


def _alias(query: tree.Query) -> str | None:
    if not query.sources:
        return None
    source = query.sources[0]
    if len(query.sources) > 1:
        raise not_yet("JOIN")
    if source.is_iterated:
        raise not_yet("FROM … IN")
    if not isinstance(source.expression, tree.Name):
        raise not_yet("FROM with anything but the container itself")
    return source.alias or source.expression.name


def _check_clauses(query: tree.Query) -> None:
    select = query.select
    if select.kind == "*":
        if query.group_by:
            raise query_error("SC2041", "'SELECT *' is not allowed with GROUP BY.", select.start, select.end)
        if not query.sources:
            message = "'SELECT *' is not valid if FROM clause is omitted."
            raise query_error("SC2040", message, select.start, select.end)
        if len(query.sources) > 1:
            message = "'SELECT *' is only valid with a single input set."
            raise query_error("SC2040", message, select.start, select.end)
    if len(query.sources) > limits.QUERY_JOINS_MAX + 1:
        message = f"The query has more than {limits.QUERY_JOINS_MAX} JOINs."
        raise query_error("SC2021", message, query.start, query.end)
    if select.is_distinct:
        raise not_yet("DISTINCT")
    if select.top is not None:
        _check_count(select.top, "TOP")
        raise not_yet("TOP")
    if query.group_by:
        raise not_yet("GROUP BY")
    if query.is_ranked:
        raise not_yet("ORDER BY RANK")
    if query.order_by:
        raise not_yet("ORDER BY")
    if query.offset is not None:
        raise not_yet("OFFSET … LIMIT")


def _check_count(count: tree.Expression, clause: str) -> None:
    if isinstance(count, tree.Literal) and not isinstance(count.value, int):
        message = f"The count value provided for a {clause} clause must be an integer."
        raise query_error("SC2060", message, count.start, count.end)


def _check_call(call: tree.Call) -> None:
    if call.is_user_defined:
        raise not_yet(f"The user-defined function udf.{call.name}")
    function = FUNCTIONS.get(call.name)
    if function is None:
        if call.name in AGGREGATES:
            raise not_yet(f"The aggregate {call.name}")
        if call.name in NOT_YET:
            raise not_yet(f"The function {call.name}")
        message = f"'{call.name[:100]}' is not a recognized built-in function name."
        raise query_error("SC2005", message, call.start, call.name_end)
    least, most = function.arguments_min, function.arguments_max
    if not least <= len(call.arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        if most == ANY_NUMBER:
            wanted = f"at least {least}"
        message = f"The {call.name} function requires {wanted} argument(s)."
        raise query_error("SC2050", message, call.start, call.end)


def not_yet(what: str) -> Failure:
    return Failure(Kind.UNSUPPORTED, f"{what} is not supported yet.")
