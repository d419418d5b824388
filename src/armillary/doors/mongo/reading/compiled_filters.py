"""Compiled filters, collations and variables of commands. Filters that depend only on the document are compiled once
and cached.
"""

from __future__ import annotations

from typing import Any

from armillary.account.collections.collection_rules import dice as dice
from armillary.doors.mongo.call import Call
from armillary.languages.mongo.collation import Collation, key_function, parse_collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import compile_expression, looks_at_documents
from armillary.languages.mongo.filters.matching import Matcher, cached_matcher, compile_filter
from armillary.languages.mongo.filters.matching import forget as forget
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.model.bson.bson_values import Document


def collation_of(given: Any, default: Document | None = None) -> Collation | None:
    """`default`: the collation of the collection."""
    return parse_collation(given or default)


def context_of(call: Call, let: Document | None = None, collation: Collation | None = None) -> Context:
    """`let`: evaluated values."""
    return Context.of(
        int(call.clock.now_s() * 1000), dice(call.clock), let, key_function(collation), call.run_javascript
    )


def matcher_of(
    given: Document,
    call: Call,
    context: Context | None = None,
    *,
    has_collation: bool = False,
    text_index: TextIndex | None = None,
) -> Matcher:
    if has_collation:
        return compile_filter(given, context or context_of(call), text_index=text_index)
    return cached_matcher(given, lambda: context_of(call), context, text_index)


def let_of(call: Call) -> Document | None:
    """The variables of a command: constants, as drivers send them; expressions are evaluated here, each with the
    variables before it."""
    given = call.fields.optional_document("let")
    if not given:
        return None
    found: Document = {}
    for name, each in given.items():
        if not name or not (name[0].islower() or name[0] == "_" or ord(name[0]) > 127):
            raise refusal(9, f"'{name[:64]}' starts with an invalid character for a user variable name")
        if looks_at_documents(each):
            raise refusal(
                4890500,
                "Command let Expression tried to access a field, but this is not allowed because Command let "
                "Expressions run before the query examines any documents.",
            )
        context = context_of(call, found)
        found[name] = compile_expression(each, context)(context.scope({}))
    return found
