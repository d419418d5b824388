"""Translates WHERE to conditions that an index can use (`query/conditions.py`). A condition may be weaker than the
filter, never stronger: the compiled filter tests every candidate, unless the condition is exact.

A condition on an alias of JOIN or EXISTS is a condition on some element of its array, which is how the index stores
arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.languages.sql.compiling.constants import folded
from armillary.languages.sql.compiling.like import literal_prefix
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.paths import Path, Scope, item_path, missing_operand, rooted_path, scope_of
from armillary.languages.sql.syntax.walk import is_aggregated
from armillary.model.encoding import encode_term, is_cut
from armillary.model.indexes.index_paths import path_text
from armillary.model.spatial.cells import region_around
from armillary.model.values import UNDEFINED, Value, as_double
from armillary.query import conditions
from armillary.query.conditions import (
    ALL,
    NOTHING,
    And,
    Condition,
    Defined,
    Equal,
    In,
    Range,
    SameElement,
    Touching,
    both,
    either,
)

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MEETINGS = frozenset(["ST_WITHIN", "ST_INTERSECTS"])
_TYPE_CHECKS = frozenset(["IS_ARRAY", "IS_DEFINED", "IS_NUMBER", "IS_OBJECT", "IS_PRIMITIVE", "IS_STRING"])


class FilterPaths:
    """What a filter names, whatever its parameters: the aliases, and the paths of nodes that were resolved before."""

    __slots__ = ("paths", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.paths: dict[int, str | None] = {}  # by the id of the node, which lives as long as its query


class KnownPaths(dict[int, FilterPaths]):
    """Those of one query and of the queries in its FROM, by the id of the query. Kept with the compiled query."""

    def of(self, query: tree.Query) -> FilterPaths:
        known = self.get(id(query))
        if known is None:
            known = self[id(query)] = FilterPaths(scope_of(query, {}, is_outermost=True))
        return known


def filter_of(
    query: tree.Query, parameters: Mapping[str, Value], known: KnownPaths, *, is_planar: bool = False
) -> tuple[Condition, bool]:
    """A necessary condition for an item to give rows, and whether it is also sufficient. Spatial coordinates are
    geographic unless `is_planar`."""
    found: list[Condition] = []
    is_exact = True
    while True:
        reader = FilterReader(parameters, known.of(query), is_planar)
        if query.where is not None:
            condition = reader.condition(query.where)
            found.append(condition)
            is_exact = is_exact and reader.is_exact(query.where, condition)
        source = query.sources[0] if query.sources else None
        if source is None or not isinstance(source.expression, tree.Subquery):
            is_direct = source is not None and isinstance(source.expression, tree.Name) and not source.is_iterated
            return both(found), is_exact and is_direct and len(query.sources) == 1
        # The filter of an outer query is about the rows of its subquery; only the innermost is about items.
        is_exact = False
        query = source.expression.query


class FilterReader:
    def __init__(self, parameters: Mapping[str, Value], known: FilterPaths, is_planar: bool) -> None:
        self._parameters = parameters
        self._scope = known.scope
        self._paths = known.paths
        self._is_planar = is_planar
        self._parts: dict[int, list[Condition]] = {}  # of the operands of an AND, by the id of its node

    def condition(self, node: tree.Expression) -> Condition:
        """A condition that every item meets for which the expression is true."""
        match node:
            case tree.Logic(operator="AND"):
                parts = self._parts[id(node)] = [self.condition(operand) for operand in node.operands]
                return both([*parts, *self._together(node.operands, parts)])
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
                    return self._near(node.operand, high) if is_high_known else ALL
                return both(
                    [
                        self._ordered(path, ">=", low) if is_known else ALL,
                        self._ordered(path, "<=", high) if is_high_known else ALL,
                    ]
                )
            case tree.Like(is_negated=False):
                return self._like(node)
            case tree.Call():
                return self._call(node)
            case tree.Unary(operator="NOT"):
                if (operand := missing_operand(node)) is not None:
                    return self._missing(operand)
                path = self._path(node.operand)
                return ALL if path is None else Equal(path, False)
            case tree.Member() | tree.Index():
                path = self._path(node)
                return ALL if path is None else Equal(path, True)
            case tree.Literal() | tree.Parameter():
                return ALL if self._constant(node)[0] is True else NOTHING
            case tree.Subquery(kind="EXISTS"):
                return self._exists(node.query)
        return ALL

    def is_exact(self, node: tree.Expression, condition: Condition) -> bool:
        """Whether every item that meets the condition also meets the expression. Recognizes only filters that are
        common in COUNT queries; others are tested item by item."""
        if isinstance(node, tree.Logic) and node.operator == "AND":
            return all(map(self.is_exact, node.operands, self._parts[id(node)]))
        if isinstance(node, tree.Literal):
            return node.value is True
        if isinstance(condition, And) or "/[]" in getattr(condition, "path", "/[]"):
            return False
        match condition:
            case Equal():
                is_same = isinstance(node, tree.Binary) and node.operator == "="
                return (is_same or _is_call(node, "IS_NULL") or isinstance(node, tree.In)) and _is_whole(
                    condition.value
                )
            case In():
                return isinstance(node, tree.In) and all(map(_is_whole, condition.values))
            case Range():
                if isinstance(node, tree.Between) and (condition.low is UNDEFINED or condition.high is UNDEFINED):
                    return False  # one of the bounds is not constant
                is_said = isinstance(node, (tree.Binary, tree.Between)) or _is_call(node, "STARTSWITH")
                return is_said and _is_whole(condition.low) and _is_whole(condition.high)
            case Defined():
                return _is_call(node, "IS_DEFINED")
        return False

    def _comparison(self, node: tree.Binary) -> Condition:
        if (operand := missing_operand(node)) is not None:
            return self._missing(operand)
        operator = node.operator
        if operator not in _FLIPPED:
            return ALL
        path = self._path(node.left)
        value, is_known = self._constant(node.right)
        if path is None:
            path, operator = self._path(node.right), _FLIPPED[operator]
            value, is_known = self._constant(node.left)
        if path is None:
            return self._measured(node)
        if not is_known:
            return ALL
        if value is UNDEFINED:
            return NOTHING
        return Equal(path, value) if operator == "=" else self._ordered(path, operator, value)

    def _missing(self, operand: tree.Expression) -> Condition:
        path = self._path(operand)
        # One element may lack what another has.
        return ALL if path is None or "/[]" in path else Equal(path, UNDEFINED)

    def _ordered(self, path: str, operator: str, value: Value) -> Condition:
        if isinstance(value, bool) or value is None:
            # At most two values: no range needed.
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

    def _like(self, node: tree.Like) -> Condition:
        path = self._path(node.operand)
        pattern, is_known = self._constant(node.pattern)
        if path is None or not is_known:
            return ALL
        if not isinstance(pattern, str):
            return NOTHING
        prefix, is_all = literal_prefix(pattern, node.escape)
        return Equal(path, prefix) if is_all else conditions.prefix_range(path, prefix)

    def _call(self, node: tree.Call) -> Condition:
        arguments = node.arguments
        if not arguments or node.is_user_defined:
            return ALL
        if node.name in _MEETINGS:
            return self._around(arguments, 0.0)
        path = self._path(arguments[0])
        if node.name == "ARRAY_CONTAINS":
            return self._array_contains(node, path)
        if path is None:
            return ALL
        if node.name in _TYPE_CHECKS:
            return Defined(path)
        if node.name == "IS_NULL":
            return Equal(path, None)
        if node.name in ("IS_BOOL", "IS_BOOLEAN"):
            return In(path, (False, True))
        if node.name in ("STARTSWITH", "STRINGEQUALS") and len(arguments) == 2:
            text, is_known = self._constant(arguments[1])
            if is_known and not isinstance(text, str):
                return NOTHING
            if is_known and isinstance(text, str):
                return conditions.prefix_range(path, text) if node.name == "STARTSWITH" else Equal(path, text)
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

    def _measured(self, node: tree.Binary) -> Condition:
        """ST_DISTANCE compared with a constant, or a boolean function compared with true."""
        for call, other, operator in (
            (node.left, node.right, node.operator),
            (node.right, node.left, _FLIPPED[node.operator]),
        ):
            if isinstance(call, tree.Call):
                value, is_known = self._constant(other)
                if is_known and operator in ("=", "<", "<="):
                    return self.condition(call) if operator == "=" and value is True else self._near(call, value)
        return ALL

    def _near(self, node: tree.Expression, most: Value) -> Condition:
        """The condition that ST_DISTANCE is at most `most`."""
        if not _is_call(node, "ST_DISTANCE") or not isinstance(most, (int, float)) or isinstance(most, bool):
            return ALL
        assert isinstance(node, tree.Call)
        return self._around(node.arguments, as_double(most)) if most >= 0 else NOTHING

    def _around(self, arguments: tuple[tree.Expression, ...], reach: float) -> Condition:
        """The condition that a shape of the item lies within `reach` of a constant shape."""
        for mine, given in (arguments, arguments[::-1]):
            path = self._path(mine)
            shape, is_known = self._constant(given)
            if path is not None and is_known:
                region = region_around(shape, reach, is_planar=self._is_planar)
                if region is None:
                    return NOTHING
                return ALL if region.is_everything else Touching(path, region)
        return ALL

    def _exists(self, query: tree.Query) -> Condition:
        """EXISTS: some row meets the filter of the subquery, so the item meets the filter's condition."""
        if query.where is None or is_aggregated(query):
            return ALL  # an aggregated query always has a row
        known = FilterPaths(scope_of(query, self._scope, is_outermost=False))
        inner = FilterReader(self._parameters, known, self._is_planar)
        return inner.condition(query.where)

    def _together(self, operands: Sequence[tree.Expression], parts: Sequence[Condition]) -> list[SameElement]:
        """Equalities that must hold for the same array element: those that use the same alias of JOIN or a subquery."""
        found: dict[str, list[Equal]] = {}
        for operand, part in zip(operands, parts, strict=True):
            if isinstance(part, Equal) and "/[]" in part.path and isinstance(operand, (tree.Binary, tree.In)):
                sides = (operand.left, operand.right) if isinstance(operand, tree.Binary) else (operand.needle,)
                for alias, steps in filter(None, map(rooted_path, sides)):
                    if None in (self._scope.get(alias) or ()) and all(isinstance(step, str) for step in steps):
                        found.setdefault(alias, []).append(part)
        return [SameElement(tuple(each)) for each in found.values() if len(each) > 1]

    def _path(self, node: tree.Expression) -> str | None:
        try:
            return self._paths[id(node)]
        except KeyError:
            steps = item_path(node, self._scope)
            path = self._paths[id(node)] = _index_path(steps) if steps else None
            return path

    def _constant(self, node: tree.Expression) -> tuple[Value, bool]:
        """The value of a constant expression, and whether it is one."""
        if isinstance(node, tree.Parameter):
            return self._parameters[node.name], True
        if isinstance(node, tree.Literal):
            return node.value, True
        value = folded(node)
        return value, value is not UNDEFINED


def _is_call(node: tree.Expression, name: str) -> bool:
    return isinstance(node, tree.Call) and node.name == name and not node.is_user_defined


def _is_whole(value: Value) -> bool:
    """Whether the index term of a value identifies it: long terms are truncated."""
    return not isinstance(value, (list, dict)) and not is_cut(encode_term(value))


def _index_path(steps: Path) -> str:
    """The index path: all elements of an array share one, whatever their position."""
    return path_text([step if isinstance(step, str) else None for step in steps])
