"""What a query's selection is compiled from, as other processes get it: the text with its computed properties, the
parameters, and the time that the query has as its own. User-defined functions are those of the container there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from armillary.errors import bad_request
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.check import check_query
from armillary.languages.sql.syntax.parser import parse_condition, parse_filter, parse_query
from armillary.model.sendable import Sendable
from armillary.model.values import Value
from armillary.query.selection import Recipe, Selection

Computed: TypeAlias = tuple[tuple[str, str], ...]  # computed properties of a container: name and query


class TextKind(Enum):
    """By which rules a text is parsed."""

    QUERY = "query"
    FILTER = "filter"  # FROM c WHERE …
    CONDITION = "condition"  # c.a = 1


@dataclass(frozen=True, slots=True)
class QuerySource(Sendable):
    text: str
    computed: Computed
    kind: TextKind

    def parsed(self) -> tree.Query:
        return _PARSERS[self.kind](self.text)

    def definitions(self) -> dict[str, tree.Query]:
        """Of the computed properties, by name."""
        return {name: _definition(query) for name, query in self.computed}


_PARSERS: Final = {
    TextKind.QUERY: parse_query,
    TextKind.FILTER: parse_filter,
    TextKind.CONDITION: parse_condition,
}


def _definition(text: str) -> tree.Query:
    """Parse the definition of a computed property: `SELECT VALUE … FROM c` without further clauses."""
    query = parse_query(text)
    check_query(query)
    source = query.sources[0] if len(query.sources) == 1 else None
    bare = replace(query, where=None, group_by=(), order_by=(), offset=None, limit=None)
    has_more = query.where is not None or query.group_by or query.order_by or query.offset or query.select.top
    is_plain = source is not None and isinstance(source.expression, tree.Name) and not source.is_iterated
    if query.select.kind != "VALUE" or query.select.is_distinct or has_more or not is_plain:
        raise bad_request(f"The computed property '{text[:100]}' must be SELECT VALUE … FROM c.")  # noqa: S608
    return bare


@dataclass(frozen=True, slots=True)
class QueryRecipe(Recipe):
    source: QuerySource
    parameters: Mapping[str, Value]
    static_ticks: int  # what GetCurrentTicksStatic and its like answer


class QueryOrigin:
    __slots__ = ("context", "parameters", "source")

    def __init__(self, source: QuerySource, parameters: Mapping[str, Value], context: Context) -> None:
        self.source = source
        self.parameters = parameters
        self.context = context

    def recipe(self, selection: Selection) -> Recipe:
        return QueryRecipe(self.source, self.parameters, self.context.static_ticks())
