"""Renders trees as query text in a canonical spelling: parentheses around every nested operation, `c.name` instead of
`c["name"]` where possible. Chains are rendered flat, so that the text stays within the parser's depth limit. Equivalent
spellings (`c["a"]`, `c.a`) give the same text, which defines the equality of expressions (`equal_expressions.py`).
Query plans are written with it too.
"""

from __future__ import annotations

import re

import orjson

from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.expressions import POWERS
from armillary.languages.sql.syntax.lexer import KEYWORDS
from armillary.model.values import UNDEFINED, Value

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The spelling that clients and logs use; other functions are in upper case.
_SPELLINGS = {
    "VECTORDISTANCE": "VectorDistance",
    "FULLTEXTCONTAINS": "FullTextContains",
    "_FULLTEXTSCORE": "_FullTextScore",
    "_FULLTEXTWORDCOUNT": "_FullTextWordCount",
    "_VECTORSCORE": "_VectorScore",
}
# Clients replace such placeholders wherever they occur, also inside a string literal.
_PLACEHOLDER, _NO_PLACEHOLDER = "{documentdb-", "\\u007bdocumentdb-"


def text_of(node: tree.Expression) -> str:
    match node:
        case tree.Literal():
            return literal_text(node.value)
        case tree.Parameter() | tree.Name():
            return node.name
        case tree.Member() | tree.Index():
            return _access(node)
        case tree.Unary():
            return f"({node.operator} {text_of(node.operand)})"
        case tree.Binary():
            return _binary(node)
        case tree.Logic():
            return "(" + f" {node.operator} ".join([text_of(operand) for operand in node.operands]) + ")"
        case tree.In():
            return f"({text_of(node.needle)}{_not(node.is_negated)} IN ({_list(node.values)}))"
        case tree.Between():
            bounds = f"{text_of(node.low)} AND {text_of(node.high)}"
            return f"({text_of(node.operand)}{_not(node.is_negated)} BETWEEN {bounds})"
        case tree.Like():
            escape = f" ESCAPE {literal_text(node.escape)}" if node.escape is not None else ""
            return f"({text_of(node.operand)}{_not(node.is_negated)} LIKE {text_of(node.pattern)}{escape})"
        case tree.Conditional():
            return _conditional(node)
        case tree.ArrayLiteral():
            return f"[{_list(node.elements)}]"
        case tree.ObjectLiteral():
            return "{" + ", ".join([f"{literal_text(name)}: {text_of(value)}" for name, value in node.pairs]) + "}"
        case tree.Call():
            name = f"udf.{node.name}" if node.is_user_defined else _SPELLINGS.get(node.name, node.name)
            return f"{name}({_list(node.arguments)})"
        case tree.Subquery():
            return f"{node.kind}({query_text(node.query)})"
        case tree.Slot():
            return node.source


def literal_text(value: Value) -> str:
    if value is UNDEFINED:
        return "undefined"
    return orjson.dumps(value).decode().replace(_PLACEHOLDER, _NO_PLACEHOLDER)


def query_text(query: tree.Query) -> str:
    parts = [_select(query.select)]
    if query.sources:
        parts.append("FROM " + " JOIN ".join([_source(source) for source in query.sources]))
    if query.where is not None:
        parts.append(f"WHERE {text_of(query.where)}")
    if query.group_by:
        parts.append(f"GROUP BY {_list(query.group_by)}")
    if query.order_by:
        orders = [text_of(order.expression) + (" DESC" if order.is_descending else "") for order in query.order_by]
        parts.append(f"ORDER BY {'RANK ' if query.is_ranked else ''}{', '.join(orders)}")
    if query.offset is not None and query.limit is not None:
        parts.append(f"OFFSET {text_of(query.offset)} LIMIT {text_of(query.limit)}")
    return " ".join(parts)


def _select(select: tree.Select) -> str:
    words = ["SELECT"]
    if select.is_distinct:
        words.append("DISTINCT")
    if select.top is not None:
        words.append(f"TOP {text_of(select.top)}")
    if select.kind == "*":
        words.append("*")
    elif select.kind == "VALUE":
        words.append(f"VALUE {text_of(select.items[0].expression)}")
    else:
        words.append(", ".join([_item(item) for item in select.items]))
    return " ".join(words)


def _item(item: tree.Item) -> str:
    return text_of(item.expression) + (f" AS {item.alias}" if item.alias is not None else "")


def _source(source: tree.Source) -> str:
    text = text_of(source.expression)
    if source.is_iterated:
        return f"{source.alias} IN {text}"
    return text + (f" AS {source.alias}" if source.alias is not None else "")


def _access(node: tree.Expression) -> str:
    # Without recursion: a path may be a hundred steps long.
    steps: list[str] = []
    while isinstance(node, (tree.Member, tree.Index)):
        if isinstance(node, tree.Index):
            steps.append(f"[{text_of(node.index)}]")
        elif _WORD.fullmatch(node.name) and node.name.upper() not in KEYWORDS:
            steps.append(f".{node.name}")
        else:
            steps.append(f"[{literal_text(node.name)}]")
        node = node.source
    return text_of(node) + "".join(reversed(steps))


def _binary(node: tree.Binary) -> str:
    # Without recursion: left-associative chains may be thousands long.
    rights: list[str] = []
    brackets = 1
    left: tree.Expression = node
    while isinstance(left, tree.Binary):
        below = left.left
        right = f" {left.operator} {text_of(left.right)}"
        if isinstance(below, tree.Binary) and POWERS[below.operator] < POWERS[left.operator]:
            brackets += 1
            right = ")" + right
        rights.append(right)
        left = below
    return "(" * brackets + text_of(left) + "".join(reversed(rights)) + ")"


def _conditional(node: tree.Conditional) -> str:
    # Right-associative.
    parts: list[str] = []
    last: tree.Expression = node
    while isinstance(last, tree.Conditional):
        parts.append(f"{text_of(last.condition)} ? {text_of(last.then)} : ")
        last = last.otherwise
    return f"({''.join(parts)}{text_of(last)})"


def _list(nodes: tuple[tree.Expression, ...]) -> str:
    return ", ".join([text_of(node) for node in nodes])


def _not(is_negated: bool) -> str:
    return " NOT" if is_negated else ""
