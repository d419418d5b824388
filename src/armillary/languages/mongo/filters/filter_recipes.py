"""What the selections of MongoDB's commands are compiled from, as other processes get it: the filter with its
variables, its collation and its time. What an index can serve of the filter and the order of the rows are sent as
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from armillary.languages.mongo.collation import Collation, collation_of, key_function
from armillary.languages.mongo.expression_context import CLUSTER_TIME, NOW, Context, Javascript
from armillary.languages.mongo.filters.matching import Matcher, cached_matcher, compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.languages.mongo.sort_keys import KeyBounds
from armillary.model.bson.bson_values import MISSING, decode, encode
from armillary.query.access.field_order import field_ordering
from armillary.query.conditions import Condition
from armillary.query.selection import Recipe, Selection, Stage


@dataclass(frozen=True, slots=True)
class DocumentsRecipe(Recipe):
    condition: Condition
    filter: bytes  # BSON
    let: bytes  # BSON: the values of the command's variables
    unset: tuple[str, ...]  # variables without a value
    collation: Collation | None
    now_ms: int
    cluster_time: Timestamp | None
    bounds: KeyBounds | None = None
    fields: tuple[tuple[str, bool], ...] | None = None  # of the order: dotted paths, and whether each descends
    skip: int = 0
    take: int | None = None
    is_order_free: bool = False

    def selection(self, random: Callable[[], float], javascript: Javascript, text_index: TextIndex | None) -> Selection:
        given, let = decode(self.filter), {**decode(self.let), **dict.fromkeys(self.unset, MISSING)}

        def make_context() -> Context:
            context = Context.of(self.now_ms, random, let, key_function(self.collation), javascript)
            if self.cluster_time is not None:
                context.values[CLUSTER_TIME] = self.cluster_time
            return context

        if not let and self.collation is None:
            matcher = cached_matcher(given, make_context, None, text_index)
        else:
            matcher = compile_filter(given, make_context(), text_index=text_index)
        if self.bounds is not None:
            matcher = matcher.between(self.bounds)
        ordering = field_ordering(self.fields) if self.fields is not None else None
        stage = Stage(predicate=matcher.matches, is_sure=True)
        return Selection(
            self.condition, (stage,), ordering, skip=self.skip, take=self.take, is_order_free=self.is_order_free
        )


class DocumentsOrigin:
    __slots__ = ("_matcher",)

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def recipe(self, selection: Selection) -> Recipe:
        matcher, context = self._matcher, self._matcher.context
        let, values = context.given_values(), context.values
        now: Any = values[NOW] if values else None
        return DocumentsRecipe(
            selection.condition,
            encode(matcher.given),
            encode({name: value for name, value in let.items() if value is not MISSING}),
            tuple([name for name, value in let.items() if value is MISSING]),
            collation_of(context.key),
            int(now) if now is not None else 0,
            values[CLUSTER_TIME] if values else None,
            matcher.bounds,
            selection.ordering.fields if selection.ordering is not None else None,
            selection.skip,
            selection.take,
            selection.is_order_free,
        )
