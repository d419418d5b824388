"""Tree rewriting: replaces computed properties by the expressions that define them, and provides the generic `rebuilt`,
with which `compiling/blocks.py` replaces group keys and aggregates by the variables that hold their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.paths import source_alias
from armillary.languages.sql.syntax.walk import children_of

Replacing = Callable[[tree.Expression], tree.Expression | None]


def rebuilt(node: tree.Expression, replacing: Replacing) -> tree.Expression:
    """The tree with every outermost node replaced for which `replacing` returns another one; the same object if there
    is none. Subqueries are not entered; `replacing` may return a rewritten subquery."""
    found = replacing(node)
    if found is not None:
        return found
    before = children_of(node)
    after = [rebuilt(child, replacing) for child in before]
    if all(old is new for old, new in zip(before, after, strict=True)):
        return node
    match node:
        case tree.Member():
            return replace(node, source=after[0])
        case tree.Index():
            return replace(node, source=after[0], index=after[1])
        case tree.Binary():
            return replace(node, left=after[0], right=after[1])
        case tree.Unary():
            return replace(node, operand=after[0])
        case tree.Logic():
            return replace(node, operands=tuple(after))
        case tree.In():
            return replace(node, needle=after[0], values=tuple(after[1:]))
        case tree.Between():
            return replace(node, operand=after[0], low=after[1], high=after[2])
        case tree.Like():
            return replace(node, operand=after[0], pattern=after[1])
        case tree.Conditional():
            return replace(node, condition=after[0], then=after[1], otherwise=after[2])
        case tree.ArrayLiteral():
            return replace(node, elements=tuple(after))
        case tree.ObjectLiteral():
            return replace(node, pairs=tuple(zip([name for name, _ in node.pairs], after, strict=True)))
        case tree.Call():
            return replace(node, arguments=tuple(after))
    raise AssertionError(f"has no children: {node.__class__.__name__}")


def with_computed(query: tree.Query, computed: Mapping[str, tree.Query]) -> tree.Query:
    """The query with each reference `alias.name` to a computed property replaced by its definition, where the alias is
    the item itself. SELECT * returns stored properties only."""
    return _Computed(computed).query(query, frozenset(), is_outermost=True) if computed else query


class _Computed:
    def __init__(self, computed: Mapping[str, tree.Query]) -> None:
        self._computed = computed

    def query(self, query: tree.Query, roots: frozenset[str], *, is_outermost: bool) -> tree.Query:
        """`roots`: aliases of the item that are visible from the outer query."""
        sources: list[tree.Source] = []
        for number, source in enumerate(query.sources):
            expression = source.expression
            is_container = is_outermost and number == 0 and isinstance(expression, tree.Name)
            if isinstance(expression, tree.Subquery):
                inner = self.query(expression.query, roots, is_outermost=is_outermost and number == 0)
                sources.append(replace(source, expression=replace(expression, query=inner)))
            elif is_container:
                sources.append(source)
            elif is_outermost and number == 0:
                sources.append(self._from(source))
            else:
                sources.append(replace(source, expression=self._expression(expression, roots)))
            alias = source_alias(source)
            if alias is not None:
                is_root = is_container and not source.is_iterated
                if isinstance(expression, tree.Name) and not source.is_iterated and expression.name in roots:
                    is_root = True
                roots = roots | {alias} if is_root else roots - {alias}
        select = query.select
        items = tuple([self._item(item, roots, select.kind) for item in select.items])
        return replace(
            query,
            select=replace(select, items=items),
            sources=tuple(sources),
            where=None if query.where is None else self._expression(query.where, roots),
            group_by=tuple([self._expression(key, roots) for key in query.group_by]),
            order_by=tuple(
                [replace(order, expression=self._expression(order.expression, roots)) for order in query.order_by]
            ),
        )

    def _from(self, source: tree.Source) -> tree.Source:
        """`FROM c.name`, `FROM t IN c.name`: the name before the first dot is the container, whatever it is called."""
        base = source.expression
        while isinstance(base, (tree.Member, tree.Index)):
            base = base.source
        if not isinstance(base, tree.Name):
            return source
        return replace(source, expression=self._expression(source.expression, frozenset([base.name])))

    def _item(self, item: tree.Item, roots: frozenset[str], kind: str) -> tree.Item:
        expression = self._expression(item.expression, roots)
        alias = item.alias
        if expression is not item.expression and alias is None and kind == "LIST":
            alias = item.expression.name if isinstance(item.expression, tree.Member) else None
        return replace(item, expression=expression, alias=alias)

    def _expression(self, node: tree.Expression, roots: frozenset[str]) -> tree.Expression:
        def replacing(each: tree.Expression) -> tree.Expression | None:
            if isinstance(each, tree.Subquery):
                return replace(each, query=self.query(each.query, roots, is_outermost=False))
            if not isinstance(each, tree.Member) or not isinstance(each.source, tree.Name):
                return None
            if each.source.name not in roots or each.name not in self._computed:
                return None
            return _definition(self._computed[each.name], each.source)

        return rebuilt(node, replacing)


def _definition(query: tree.Query, alias: tree.Name) -> tree.Expression:
    """The expression of `SELECT VALUE … FROM x`, with x renamed to `alias`."""
    expression = query.select.items[0].expression
    names = {
        source.alias or source.expression.name for source in query.sources if isinstance(source.expression, tree.Name)
    }

    def replacing(each: tree.Expression) -> tree.Expression | None:
        return alias if isinstance(each, tree.Name) and each.name in names else None

    return rebuilt(expression, replacing)
