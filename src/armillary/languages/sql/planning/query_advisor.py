"""The query advisor: the rules of the service's advisor that a query's text matches, by number. SDKs have texts
of their own; ours are for the portal and the commands. The advice depends on the text only, not on indexes or items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.walk import expressions_of, nodes_of

_COMPARISONS = frozenset(["=", "!=", "<>", "<", "<=", ">", ">="])
_CASES = frozenset(["UPPER", "LOWER"])
# Functions whose third argument, if true, asks for a partial or case-insensitive match.
_LOOSE = {"ARRAY_CONTAINS": "QA1000", "STARTSWITH": "QA1003", "STRINGEQUALS": "QA1003", "ENDSWITH": "QA1004"}
_MOVING = {"GETCURRENTDATETIME": "QA1007", "GETCURRENTTICKS": "QA1008", "GETCURRENTTIMESTAMP": "QA1009"}

ADVICE_TEXTS: Final = {
    "QA1000": "ARRAY_CONTAINS with a partial match cannot use the index fully: compare whole elements, or use EXISTS.",
    "QA1001": "DISTINCT over a JOIN makes all pairs first: use a subquery with EXISTS.",
    "QA1002": "CONTAINS reads every value of the path: STARTSWITH or an equality reads few.",
    "QA1003": "A comparison without case reads more of the index: store a lower-case form and compare that.",
    "QA1004": "ENDSWITH without case reads every value: store the reversed or lower-case form.",
    "QA1005": "GROUP BY with an expression cannot use the index: group by a property.",
    "QA1006": "UPPER and LOWER in a filter read every value: store the form that is compared, or use STRINGEQUALS.",
    "QA1007": "GetCurrentDateTime is evaluated for every item: give the time as a parameter.",
    "QA1008": "GetCurrentTicks is evaluated for every item: give the time as a parameter.",
    "QA1009": "GetCurrentTimestamp is evaluated for every item: give the time as a parameter.",
}


def advice_of(query: tree.Query) -> list[str]:
    """The numbers of the rules that a query matches."""
    return sorted(set(_rules(query)))


def _rules(query: tree.Query) -> Iterator[str]:
    if query.select.is_distinct and len(query.sources) > 1:
        yield "QA1001"
    for key in query.group_by:
        if not isinstance(key, (tree.Name, tree.Member, tree.Index)):
            yield "QA1005"
    for expression in expressions_of(query):
        for node in nodes_of(expression):
            if isinstance(node, tree.Subquery):
                yield from _rules(node.query)
            elif isinstance(node, tree.Call) and not node.is_user_defined:
                if node.name == "CONTAINS":
                    yield "QA1002"
                if node.name in _LOOSE and len(node.arguments) > 2 and _is_true(node.arguments[2]):
                    yield _LOOSE[node.name]
    for node in nodes_of(query.where) if query.where is not None else ():
        if isinstance(node, tree.Binary) and node.operator in _COMPARISONS:
            if _changes_case(node.left) or _changes_case(node.right):
                yield "QA1006"
        elif isinstance(node, tree.Call) and not node.is_user_defined and node.name in _MOVING:
            yield _MOVING[node.name]


def _is_true(node: tree.Expression) -> bool:
    return isinstance(node, tree.Literal) and node.value is True


def _changes_case(node: tree.Expression) -> bool:
    return isinstance(node, tree.Call) and not node.is_user_defined and node.name in _CASES
