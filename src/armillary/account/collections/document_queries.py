"""Queries over the documents of a collection: a condition that indexes can serve, the filter that decides, an order,
and which index the planner chooses for them. `account/queries` runs the selections that are made here; what filters
and sorts mean is in `languages/mongo`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from armillary.account.container import Container
from armillary.account.visits.uncounted_visits import several_at
from armillary.languages.mongo.filters.filter_recipes import DocumentsOrigin
from armillary.languages.mongo.filters.matching import Matcher
from armillary.model.bson.bson_values import Document
from armillary.query.access.field_access import FieldPlan, HasSeveral, field_plan, keyed_parts, several_in
from armillary.query.access.field_order import Served, field_of_stretch, field_ordering, served_order
from armillary.query.conditions import ALL, And, Condition, Equal, In, both, through
from armillary.query.selection import Selection, Stage

IndexCondition: TypeAlias = Condition  # what indexes can serve of a filter
DocumentSelection: TypeAlias = Selection  # for `item_pages.select` and `SortedReading`
EVERY_DOCUMENT: Final[IndexCondition] = ALL

SortFields = Sequence[tuple[str, bool]]  # dotted paths, and whether each descends
Matches = Callable[[Document], bool]


def with_hint(condition: IndexCondition, index_name: str) -> IndexCondition:
    """The same condition, to be served by the index of this name."""
    return both([condition, through(index_name)])


def names_ids(condition: IndexCondition) -> bool:
    """Whether a condition lists the values of `_id`."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return any(isinstance(part, Equal | In) and part.path == "/id" for part in parts)


def selection(condition: IndexCondition, matcher: Matcher, matches: Matches | None = None) -> DocumentSelection:
    """Documents that match, in the order in which they are stored. `matches`: the matcher's, with what else the caller
    does with documents that match, where they are in this process."""
    stage = Stage(predicate=matches or matcher.matches, is_sure=True)
    return Selection(condition, (stage,), origin=DocumentsOrigin(matcher))


def sorted_selection(
    condition: IndexCondition, matcher: Matcher, fields: SortFields, take: int | None
) -> DocumentSelection:
    """Documents that match, sorted by fields."""
    stage = Stage(predicate=matcher.matches, is_sure=True)
    return Selection(condition, (stage,), field_ordering(tuple(fields)), take=take, origin=DocumentsOrigin(matcher))


def index_range_selection(condition: IndexCondition, matcher: Matcher, take: int) -> DocumentSelection | None:
    """The first `take` documents of one range of an index, in the index's order, which the client has not asked for;
    None: the condition is not one range of one field."""
    field = field_of_stretch(condition)
    if field is None:
        return None
    stage = Stage(predicate=matcher.matches, is_sure=True)
    order, origin = field_ordering(((field, False),)), DocumentsOrigin(matcher)
    return Selection(condition, (stage,), order, take=take, is_order_free=True, origin=origin)


def taking(selection: DocumentSelection, take: int) -> DocumentSelection:
    return replace(selection, take=take)


@dataclass(frozen=True, slots=True)
class ChosenIndex:
    """The index that the planner uses for a query."""

    name: str
    filtered_fields: frozenset[str]  # fields whose conditions limit the keys that are read
    is_multikey: bool
    is_reverse: bool
    sorts: bool  # it gives documents in the order that was asked for


async def choose_index(
    container: Container, condition: IndexCondition, sorting: DocumentSelection | None
) -> ChosenIndex | None:
    """The index that the first partition uses for a condition, and for the order of `sorting` if given; None: no index
    of the collection serves them, or one is being built."""
    if container.is_restating:
        return None
    policy = container.schema.rules.indexing
    ordering = sorting.ordering if sorting is not None else None

    def choose(has_several: HasSeveral) -> ChosenIndex | None:
        served: Served | None = None
        if ordering is not None:
            served = served_order(ordering, condition, policy, has_several)
        plan: FieldPlan | None = field_plan(keyed_parts(condition), policy, has_several)
        chosen = served.chosen if served is not None else plan.chosen if plan is not None else None
        if chosen is None:
            return None
        return ChosenIndex(
            chosen.name,
            plan.fields if plan is not None else frozenset(),
            has_several(chosen),
            served is not None and served.is_reverse,
            served is not None,
        )

    first = next(iter(container.partitions.values()))
    if first.is_elsewhere:
        return choose(await several_at(container, first))
    return await first.read(lambda view: choose(several_in(view)))
