"""Expressions that are paths into the item: `c.a["b"][0]`. The emitter loads them, the index is asked for them, and
SELECT names its results by them.
"""

from __future__ import annotations

from typing import TypeAlias

from armillary.languages.sql import tree

Path: TypeAlias = tuple[str | int, ...]


def path_of(node: tree.Expression) -> Path | None:
    """The steps of `c.a["b"][0]`; None for anything that is not a path from the item with literal steps."""
    steps: list[str | int] = []
    while True:
        if isinstance(node, tree.Member):
            steps.append(node.name)
            node = node.source
        elif isinstance(node, tree.Index):
            index = node.index.value if isinstance(node.index, tree.Literal) else None
            if index.__class__ is not int:
                return None
            steps.append(index)
            node = node.source
        elif isinstance(node, tree.Name):
            return tuple(reversed(steps))
        else:
            return None


def missing_path(node: tree.Expression) -> Path | None:
    """The path of `IS_DEFINED(path) = false` or `NOT IS_DEFINED(path)`."""
    if isinstance(node, tree.Unary) and node.operator == "NOT":
        call = node.operand
    elif isinstance(node, tree.Binary) and node.operator == "=":
        sides = (node.left, node.right)
        calls = [side for side in sides if isinstance(side, tree.Call)]
        if len(calls) != 1 or not any(isinstance(side, tree.Literal) and side.value is False for side in sides):
            return None
        call = calls[0]
    else:
        return None
    return path_of(call.arguments[0]) if isinstance(call, tree.Call) and call.name == "IS_DEFINED" else None
