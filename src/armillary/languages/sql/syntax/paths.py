"""Recognizes expressions that are paths, `c.a["b"][0]`, and resolves aliases of FROM and JOIN to paths of the item.
Used by the code generator, by index conditions, by ORDER BY, which takes only paths, and for the names of SELECT
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.walk import children_of

# None stands for any element of an array: the alias t of `t IN c.tags`.
Path: TypeAlias = tuple[str | int | None, ...]
# Aliases and their paths in the item: () is the item itself, None a computed value.
Scope: TypeAlias = Mapping[str, Path | None]


def rooted_path(node: tree.Expression) -> tuple[str, Path] | None:
    """The alias and the steps of `c.a["b"][0]`; None for anything that is not a path with literal steps."""
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
            return node.name, tuple(reversed(steps))
        else:
            return None


def item_path(node: tree.Expression, scope: Scope) -> Path | None:
    """The path of an expression from the root of the item, with aliases resolved; None if it is not such a path."""
    found = rooted_path(node)
    prefix = None if found is None else scope.get(found[0])
    return None if found is None or prefix is None else prefix + found[1]


def missing_operand(node: tree.Expression) -> tree.Expression | None:
    """The operand x of `IS_DEFINED(x) = false` or `NOT IS_DEFINED(x)`; None for other expressions."""
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
    return call.arguments[0] if isinstance(call, tree.Call) and call.name == "IS_DEFINED" else None


def source_alias(source: tree.Source) -> str | None:
    """The alias of a source: the written one, else the last name of its path, else None."""
    if source.alias is not None:
        return source.alias
    expression = source.expression
    return expression.name if isinstance(expression, (tree.Name, tree.Member)) else None


def source_path(source: tree.Source, scope: Scope, *, is_container: bool) -> Path | None:
    """The path in the item of a source's values. With `is_container` its first name is the container's, which may be
    any name."""
    found = rooted_path(source.expression)
    if found is None:
        return None
    prefix = () if is_container else scope.get(found[0])
    if prefix is None:
        return None
    return prefix + found[1] + ((None,) if source.is_iterated else ())


def scope_of(query: tree.Query, outer: Scope, *, is_outermost: bool) -> dict[str, Path | None]:
    """The aliases that are visible in a query's clauses, with their paths."""
    scope = dict(outer)
    for number, source in enumerate(query.sources):
        alias = source_alias(source)
        if alias is not None:
            scope[alias] = source_path(source, scope, is_container=is_outermost and number == 0)
    return scope


def has_container(query: tree.Query) -> bool:
    """Whether a query reads the container: not without FROM, nor with FROM over a constant."""
    if not query.sources:
        return False
    expression = query.sources[0].expression
    if isinstance(expression, tree.Subquery):
        return has_container(expression.query)
    return rooted_path(expression) is not None


def path_uses(roots: Iterable[tree.Expression]) -> Mapping[tuple[str, Path], int]:
    """How often each path occurs in expressions."""
    uses: dict[tuple[str, Path], int] = {}
    for root in roots:
        pending = [root]
        while pending:
            node = pending.pop()
            path = rooted_path(node)
            if path is not None:
                uses[path] = uses.get(path, 0) + 1
            else:
                pending.extend(children_of(node))
    return uses
