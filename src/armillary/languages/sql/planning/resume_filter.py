"""The `resumeFilter` of a query request: `{"value": [5, "a"], "rid": "…", "exclude": false}`. Clients that resume an
ordered query from their own continuation (.NET's, Rust's) name the order keys of the last row of a partition in it,
where others write a filter into the text of the query.

The query continues at these keys: it gets a condition on its ORDER BY expressions. Rows with equal keys are excluded if
`exclude` says so; all others of them are sent again, because clients skip what they have seen by `_rid`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from armillary.errors import bad_request
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.parser import parse_query
from armillary.languages.sql.syntax.render import query_text
from armillary.model.values import UNDEFINED, Value

_MEMBERS: Final = {"value", "rid", "exclude"}
_PARAMETER: Final = "@__resume"
# How values of different types are ordered.
_TYPES: Final = ("undefined", "IS_NULL", "IS_BOOL", "IS_NUMBER", "IS_STRING", "IS_ARRAY", "IS_OBJECT")


@dataclass(frozen=True, slots=True)
class ResumeFilter:
    values: tuple[Value, ...]  # the keys of the row to continue at
    excludes_equal: bool

    def resume(self, text: str, parameters: dict[str, Value]) -> tuple[str, dict[str, Value]]:
        """The query with the condition, and its parameters with the keys."""
        query = parse_query(text)
        if not query.order_by or query.is_ranked:
            raise bad_request("A query with a resumeFilter has an ORDER BY clause of one or more properties.")
        if len(query.order_by) != len(self.values):
            counts = f"has {len(self.values)} values, and the query orders by {len(query.order_by)}"
            raise bad_request(f"The resumeFilter {counts}: there is one value for each.")
        condition: tree.Expression | None = None if self.excludes_equal else _literal(True)
        for place in reversed(range(len(self.values))):
            condition = _from(query.order_by[place], self.values[place], f"{_PARAMETER}{place}", condition)
        assert condition is not None, "there is at least one value"
        where = condition if query.where is None else _logic("AND", query.where, condition)
        keys = {f"{_PARAMETER}{place}": value for place, value in enumerate(self.values) if value is not UNDEFINED}
        return query_text(replace(query, where=where)), parameters | keys


def parse_resume_filter(given: Any) -> ResumeFilter | None:
    if given is None:
        return None
    if not isinstance(given, dict) or not isinstance(given.get("value"), list) or not given["value"]:
        raise bad_request('A resumeFilter is an object with the keys of a row: {"value": [5], "exclude": false}.')
    unknown = sorted(given.keys() - _MEMBERS)
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in the resumeFilter; it has 'value', 'rid' and 'exclude'.")
    excludes, rid = given.get("exclude", False), given.get("rid")
    if type(excludes) is not bool or not (rid is None or isinstance(rid, str)):
        raise bad_request("In a resumeFilter 'exclude' is true or false, and 'rid' a string.")
    return ResumeFilter(tuple([_value(each) for each in given["value"]]), excludes)


def _value(given: Any) -> Value:
    """An empty array stands for undefined. Arrays and objects are given as hashes, by which we do not order."""
    if given == []:
        return UNDEFINED
    if isinstance(given, list | dict):
        raise bad_request("A query cannot be resumed at an array or an object: the resumeFilter names one as a key.")
    return given  # type: ignore[no-any-return]


def _from(order: tree.Order, value: Value, parameter: str, equal: tree.Expression | None) -> tree.Expression:
    """Rows behind a key, and those with an equal one for which `equal` is true; None: of these none."""
    subject = order.expression
    rank = _rank(value)
    later = _TYPES[:rank] if order.is_descending else _TYPES[rank + 1 :]
    parts = [_is_of(subject, name) for name in later]
    if rank >= _TYPES.index("IS_BOOL"):
        key = tree.Parameter(0, 0, parameter)
        parts.append(tree.Binary(0, 0, "<" if order.is_descending else ">", subject, key))
        same: tree.Expression = tree.Binary(0, 0, "=", subject, key)
    else:
        same = _is_of(subject, _TYPES[rank])
    if equal is not None:
        parts.append(_logic("AND", same, equal))
    return _logic("OR", *parts) if parts else _literal(False)


def _rank(value: Value) -> int:
    if value is UNDEFINED:
        return 0
    names = {type(None): "IS_NULL", bool: "IS_BOOL", int: "IS_NUMBER", float: "IS_NUMBER", str: "IS_STRING"}
    return _TYPES.index(names[type(value)])


def _is_of(subject: tree.Expression, name: str) -> tree.Expression:
    if name == "undefined":
        return tree.Unary(0, 0, "NOT", _call("IS_DEFINED", subject))
    return _call(name, subject)


def _call(name: str, *arguments: tree.Expression) -> tree.Expression:
    return tree.Call(0, 0, name, arguments, False, 0)


def _logic(operator: str, *operands: tree.Expression) -> tree.Expression:
    return tree.Logic(0, 0, operator, operands) if len(operands) > 1 else operands[0]


def _literal(value: Value) -> tree.Expression:
    return tree.Literal(0, 0, value)
