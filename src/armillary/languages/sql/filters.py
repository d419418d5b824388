"""The WHERE of a query as conditions that an index can use (`query/conditions.py`). It says what it can and leaves out
the rest: the compiled filter looks at every item anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.languages.sql import tree
from armillary.languages.sql.constants import folded
from armillary.languages.sql.paths import Path, missing_path, path_of
from armillary.model.index_paths import path_text
from armillary.model.values import UNDEFINED, Value
from armillary.query import conditions
from armillary.query.conditions import ALL, NOTHING, Condition, Defined, Equal, In, Range, both, either

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TYPE_CHECKS = frozenset(["IS_ARRAY", "IS_DEFINED", "IS_NUMBER", "IS_OBJECT", "IS_PRIMITIVE", "IS_STRING"])


class FilterReader:
    def __init__(self, parameters: Mapping[str, Value]) -> None:
        self._parameters = parameters

    def condition(self, node: tree.Expression) -> Condition:
        """What holds for an item when the expression is exactly true."""
        match node:
            case tree.Logic(operator="AND"):
                return both([self.condition(operand) for operand in node.operands])
            case tree.Logic(operator="OR"):
                return either([self.condition(operand) for operand in node.operands])
            case tree.Binary():
                return self._comparison(node)
            case tree.In(is_negated=False):
                return self._in(node)
            case tree.Between(is_negated=False):
                path, (low, is_known), (high, is_high_known) = (
                    self._path(node.operand),
                    self._constant(node.low),
                    self._constant(node.high),
                )
                if path is None:
                    return ALL
                return both(
                    [
                        self._ordered(path, ">=", low) if is_known else ALL,
                        self._ordered(path, "<=", high) if is_high_known else ALL,
                    ]
                )
            case tree.Call():
                return self._call(node)
            case tree.Unary(operator="NOT"):
                missing = missing_path(node)
                if missing:
                    return Equal(_index_path(missing), UNDEFINED)
                path = self._path(node.operand)
                return ALL if path is None else Equal(path, False)
            case tree.Member() | tree.Index():
                path = self._path(node)
                return ALL if path is None else Equal(path, True)
            case tree.Literal() | tree.Parameter():
                return ALL if self._constant(node)[0] is True else NOTHING
        return ALL

    def _comparison(self, node: tree.Binary) -> Condition:
        missing = missing_path(node)
        if missing:
            return Equal(_index_path(missing), UNDEFINED)
        operator = node.operator
        if operator not in _FLIPPED:
            return ALL
        path = self._path(node.left)
        value, is_known = self._constant(node.right)
        if path is None:
            path, operator = self._path(node.right), _FLIPPED[operator]
            value, is_known = self._constant(node.left)
        if path is None or not is_known:
            return ALL
        if value is UNDEFINED:
            return NOTHING
        return Equal(path, value) if operator == "=" else self._ordered(path, operator, value)

    def _ordered(self, path: str, operator: str, value: Value) -> Condition:
        if isinstance(value, bool) or value is None:
            # Two values at most: not worth a range, and each is its own type in the index.
            return In(path, (False, True)) if isinstance(value, bool) else Equal(path, None)
        if not isinstance(value, (int, float, str)):
            return NOTHING  # arrays and objects have no order, so the comparison is undefined
        if operator in (">", ">="):
            return Range(path, value, UNDEFINED, includes_low=operator == ">=")
        return Range(path, UNDEFINED, value, includes_high=operator == "<=")

    def _in(self, node: tree.In) -> Condition:
        path = self._path(node.needle)
        if path is None:
            return ALL
        values: list[Value] = []
        for member in node.values:
            value, is_known = self._constant(member)
            if not is_known:
                return ALL
            if value is not UNDEFINED:
                values.append(value)
        if not values:
            return NOTHING
        return Equal(path, values[0]) if len(values) == 1 else In(path, tuple(values))

    def _call(self, node: tree.Call) -> Condition:
        arguments = node.arguments
        if not arguments:
            return ALL
        path = self._path(arguments[0])
        if node.name == "ARRAY_CONTAINS":
            return self._array_contains(node, path)
        if path is None:
            return ALL
        if node.name in _TYPE_CHECKS:
            return Defined(path)
        if node.name == "IS_NULL":
            return Equal(path, None)
        if node.name == "IS_BOOL":
            return In(path, (False, True))
        if node.name == "STARTSWITH" and len(arguments) == 2:
            prefix, is_known = self._constant(arguments[1])
            if is_known:
                return conditions.prefix_range(path, prefix) if isinstance(prefix, str) else NOTHING
        return ALL

    def _array_contains(self, node: tree.Call, path: str | None) -> Condition:
        if len(node.arguments) != 2:
            return ALL
        array, is_known = self._constant(node.arguments[0])
        if is_known:
            needle = self._path(node.arguments[1])
            if needle is None:
                return ALL
            return In(needle, tuple(array)) if isinstance(array, list) else NOTHING
        value, is_known = self._constant(node.arguments[1])
        if path is None or not is_known:
            return ALL
        return NOTHING if value is UNDEFINED else Equal(path + "/[]", value)

    def _path(self, node: tree.Expression) -> str | None:
        steps = path_of(node)
        return _index_path(steps) if steps else None

    def _constant(self, node: tree.Expression) -> tuple[Value, bool]:
        """The value of a constant expression, and whether it is one."""
        if isinstance(node, tree.Parameter):
            return self._parameters[node.name], True
        if isinstance(node, tree.Literal):
            return node.value, True
        value = folded(node)
        return value, value is not UNDEFINED


def _index_path(steps: Path) -> str:
    """Elements of an array are one path in the index, whatever their position."""
    return path_text([step if isinstance(step, str) else None for step in steps])
