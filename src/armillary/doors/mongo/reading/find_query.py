"""The options of a find, compiled: filter, sort, projection, hint, skip and limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.reading import compiled_filters, hints
from armillary.languages.mongo.collation import Collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters.matching import Matcher
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.sort_keys import Sort, compile_sort
from armillary.model.bson.bson_values import Document

_NOT_OFFERED: Final = ("requestResumeToken", "readOnce")


@dataclass(frozen=True, slots=True)
class Query:
    """A find, compiled."""

    given: Document
    matcher: Matcher
    collation: Collation | None
    sort: Sort | None
    skip: int
    limit: int  # 0: none
    project: Callable[[Document], Document] | None
    returns_keys: bool = False  # returnKey
    shows_numbers: bool = False  # showRecordId

    @property
    def most(self) -> int | None:
        return self.skip + self.limit if self.limit else None


def query_of(call: Call, container: Container | None) -> Query:
    fields = call.fields
    for name in _NOT_OFFERED:
        if call.body.get(name):
            raise refusal(115, f"find with '{name}' is not supported.")
    given = fields.document("filter", {})
    own = namespaces.options_of(container).get("collation") if container is not None else None
    collation = compiled_filters.collation_of(fields.optional_document("collation"), own)
    shown = fields.document("projection", {})
    has_context = bool(shown) or collation is not None or "let" in call.body
    context = compiled_filters.context_of(call, compiled_filters.let_of(call), collation) if has_context else None
    matcher = compiled_filters.matcher_of(
        given,
        call,
        context,
        has_collation=collation is not None or "let" in call.body,
        text_index=hints.text_index(container),
    )
    order = fields.document("sort", {})
    sort = compile_sort(order, collation, matcher.text) if order else None
    hinted = hints.check(container, call.body.get("hint"))
    if hinted is not None and sort is not None and sort.natural:
        raise refusal(2, "sort $natural cannot be combined with a hint of an index")
    if sort is None:
        sort = hints.natural_order(call.body.get("hint"))
    if sort is None and hinted is not None and matcher.near is None:
        sort = hints.order_of(hinted, collation)  # a hint without sort gives the order of the index
    matcher = hints.hinted(hints.bounded(call, matcher, hinted), hinted)
    hints.check_near(container, matcher)
    project = compile_projection(shown, context, matcher) if context is not None and shown else None
    skip = fields.number("skip", 0)
    limit = fields.number("limit", 0)
    returns_keys, shows_numbers = fields.flag("returnKey", False), fields.flag("showRecordId", False)
    return Query(given, matcher, collation, sort, skip, limit, project, returns_keys, shows_numbers)
