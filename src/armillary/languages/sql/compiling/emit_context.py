"""State shared by all functions that are emitted for one query: constants, generated names, and the count of emitted
operators, which is limited. `emit.py` and `blocks.py` write the source.
"""

from __future__ import annotations

from typing import Any

from armillary import limits
from armillary.languages.sql.compiling.constants import NAMED_MAX, Constants
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.expressions import too_many_operators
from armillary.work import spend

_COUNTED, _OPERATOR_UNITS = 64, 150  # operators between two charges to the work budget, and the work for one


class EmitContext:
    """One for each compiled variant of a query."""

    def __init__(self, constants: Constants, namespace: dict[str, Any]) -> None:
        self.constants = constants
        self.namespace = namespace
        self.preamble: list[str] = []  # statements that run once, when the constants are bound
        self.has_loops = False
        self._fresh = 0
        self._bound = 0
        self._operators = 0

    def fresh(self, letter: str = "t") -> str:
        """A new local name, unique within the query: nested functions see the names of the outer ones."""
        self._fresh += 1
        return f"{letter}{self._fresh}"

    @property
    def operators(self) -> int:
        """How many operators were emitted so far: a measure of the cost of the code."""
        return self._operators

    def count(self, node: tree.Expression) -> None:
        """Count one operator; refuse the query if it has too many."""
        self._operators += 1
        if not self._operators % _COUNTED:
            spend(_COUNTED * _OPERATOR_UNITS)
        if self._operators > limits.QUERY_EMITTED_MAX:
            raise too_many_operators(node.start, node.end)

    def name(self, value: Any) -> str:
        """A global name for a value that the code refers to."""
        name = f"K{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def bound(self, source: str) -> str:
        """A name for an expression that is evaluated once, when the constants are bound. Beyond NAMED_MAX the values
        are elements of a list."""
        self._bound += 1
        if self._bound > NAMED_MAX:
            self.preamble += [] if self._bound > NAMED_MAX + 1 else ["B = []"]
            self.preamble.append(f"B.append({source})")
            return f"B[{self._bound - NAMED_MAX - 1}]"
        name = self.name(None).lower()
        self.preamble.append(f"{name} = {source}")
        return name
