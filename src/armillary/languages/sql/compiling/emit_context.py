"""What the functions of one compiled query have in common while they are emitted."""

from __future__ import annotations

from typing import Any

from armillary import limits
from armillary.languages.sql.compiling.constants import NAMED_MAX, Constants
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.expressions import too_many_operators
from armillary.work import spend

_COUNTED, _OPERATOR_UNITS = 64, 150  # operators that are emitted at a time, and the work for one


class Workshop:
    """What the functions of one compiled query have in common: constants, names, and limits on its size."""

    def __init__(self, constants: Constants, namespace: dict[str, Any]) -> None:
        self.constants = constants
        self.namespace = namespace
        self.preamble: list[str] = []  # what is computed once, when constants are bound
        self.has_loops = False
        self._fresh = 0
        self._bound = 0
        self._operators = 0

    def fresh(self, letter: str = "t") -> str:
        """A name that nothing else has: functions nest, and see each other's."""
        self._fresh += 1
        return f"{letter}{self._fresh}"

    @property
    def operators(self) -> int:
        """How many were emitted so far: a measure of the work that code takes."""
        return self._operators

    def count(self, node: tree.Expression) -> None:
        self._operators += 1
        if not self._operators % _COUNTED:
            spend(_COUNTED * _OPERATOR_UNITS)
        if self._operators > limits.QUERY_EMITTED_MAX:
            raise too_many_operators(node.start, node.end)

    def name(self, value: Any) -> str:
        name = f"K{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def bound(self, source: str) -> str:
        self._bound += 1
        if self._bound > NAMED_MAX:
            self.preamble += [] if self._bound > NAMED_MAX + 1 else ["B = []"]
            self.preamble.append(f"B.append({source})")
            return f"B[{self._bound - NAMED_MAX - 1}]"
        name = self.name(None).lower()
        self.preamble.append(f"{name} = {source}")
        return name
