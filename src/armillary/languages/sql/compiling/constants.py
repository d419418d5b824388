"""The constants of a query: literals, array and object literals made of them, and parameters. The generated code
depends only on the types of constants; the values are passed as a list when the code is bound to an execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armillary.languages.sql.syntax import tree
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Undefined, Value

# Static types. "trilean" is true, false or undefined; "big" is a number so large that Python compares it differently
# from a double.
_KINDS: dict[type, str] = {
    Undefined: "undefined",
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


# Local names are faster than list elements, but Python's compile time is quadratic in their number.
NAMED_MAX = 100


class Code(NamedTuple):
    """A Python expression, how deep its brackets nest, and its static type if known."""

    source: str
    depth: int = 0
    kind: str = ""


def kind_of(value: Value) -> str:
    kind = _KINDS[value.__class__]
    if kind == "number" and not -EXACT_INT_MAX < value < EXACT_INT_MAX:  # type: ignore[operator]
        return "big"
    return kind


class Constants:
    """Assigns places in the list of constants to parameters, which come first, and to literals."""

    def __init__(self, parameters: Sequence[str], kinds: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(parameters)}
        self._kinds = list(kinds)
        self._seen: dict[int, int | None] = {}  # by id() of nodes, which the tree keeps alive
        self.literals: list[Value] = []
        self.used: set[int] = set()

    def place(self, node: tree.Expression) -> int | None:
        """The place of a constant expression's value; None if the expression is not constant."""
        if isinstance(node, tree.Parameter):
            return self._places[node.name]
        if not isinstance(node, (tree.Literal, tree.ArrayLiteral, tree.ObjectLiteral)):
            return None
        if id(node) not in self._seen:
            value = folded(node)
            is_constant = value is not UNDEFINED or isinstance(node, tree.Literal)
            self._seen[id(node)] = self.keep(value) if is_constant else None
        return self._seen[id(node)]

    def keep(self, value: Value) -> int:
        self.literals.append(value)
        self._kinds.append(kind_of(value))
        return len(self._kinds) - 1

    def kind(self, place: int) -> str:
        return self._kinds[place]

    def code(self, place: int) -> Code:
        if place >= NAMED_MAX:
            return Code(f"C[{place}]", 0, self._kinds[place])
        self.used.add(place)
        return Code(f"c{place}", 0, self._kinds[place])


def folded(node: tree.Expression) -> Value:
    """The value of a literal, or of an array or object of literals; UNDEFINED if it is not constant."""
    if isinstance(node, tree.Literal):
        return node.value
    if isinstance(node, tree.ArrayLiteral):
        elements = [folded(element) for element in node.elements]
        return UNDEFINED if any(element is UNDEFINED for element in elements) else elements
    if isinstance(node, tree.ObjectLiteral):
        pairs = [(name, folded(value)) for name, value in node.pairs]
        return UNDEFINED if any(value is UNDEFINED for _, value in pairs) else dict(pairs)
    return UNDEFINED
