"""Finds equal expressions by value numbering: two expressions get the same number if and only if `render.py` would give
them the same text. Numbering all parts of a tree takes linear time; comparing the texts of all parts would be
quadratic.
"""

from __future__ import annotations

from collections.abc import Hashable

from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.render import literal_text, text_of
from armillary.languages.sql.syntax.walk import children_of


class ExpressionNumbers:
    """The numbers of the expressions of one query."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._known: dict[tree.Expression, int] = {}  # nodes are compared by identity

    def number_of(self, root: tree.Expression) -> int:
        known = self._known
        if root in known:
            return known[root]
        # Without recursion: chains may be thousands of nodes deep. The list has parents before children, so walking it
        # backwards numbers children first.
        nodes = [root]
        for node in nodes:
            nodes.extend([child for child in children_of(node) if child not in known])
        for node in reversed(nodes):
            if node not in known:
                key: tuple[Hashable, ...] = (
                    node.__class__.__name__,
                    _own(node),
                    *[known[child] for child in children_of(node)],
                )
                known[node] = self._numbers.setdefault(key, len(self._numbers))
        return known[root]


def _own(node: tree.Expression) -> Hashable:
    """What distinguishes a node besides its children."""
    match node:
        case tree.Literal():
            return literal_text(node.value)
        case tree.Parameter() | tree.Name() | tree.Member():
            return node.name
        case tree.Unary() | tree.Binary() | tree.Logic():
            return node.operator
        case tree.In() | tree.Between():
            return node.is_negated
        case tree.Like():
            return node.is_negated, node.escape
        case tree.ObjectLiteral():
            return tuple([name for name, _ in node.pairs])
        case tree.Call():
            return node.name, node.is_user_defined
        case tree.Subquery():
            return text_of(node)
        case tree.Slot():
            return node.source
        case tree.Index() | tree.Conditional() | tree.ArrayLiteral():
            return None
