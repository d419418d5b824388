"""Compiled filters, collations and variables of commands. Filters that depend only on the document are compiled once
and cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from armillary import limits
from armillary.clock import Clock
from armillary.doors.mongo.call import Call
from armillary.languages.mongo.collation import Collation, key_function, parse_collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import compile_expression, looks_at_documents
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.model.bson.bson_values import Document, encode

_KEPT_BYTES_MAX: Final = 2048
# Operators whose result depends on more than the document.
_VOLATILE: Final = (b"$expr", b"$sampleRate", b"$text", b"$where")
_matchers: OrderedDict[bytes, Matcher] = OrderedDict()


def dice(clock: Clock) -> Callable[[], float]:
    return lambda: int.from_bytes(clock.random_bytes(7), "big") / (1 << 56)


def collation_of(given: Any, default: Document | None = None) -> Collation | None:
    """`default`: the collation of the collection."""
    return parse_collation(given or default)


def context_of(call: Call, let: Document | None = None, collation: Collation | None = None) -> Context:
    """`let`: evaluated values."""
    return Context.of(int(call.clock.now_s() * 1000), dice(call.clock), let, key_function(collation))


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
    key = encode(given)
    found = _matchers.get(key)
    if found is not None:
        _matchers.move_to_end(key)
        return found
    if len(key) > _KEPT_BYTES_MAX or any(word in key for word in _VOLATILE):
        return compile_filter(given, context or context_of(call), text_index=text_index)
    made = compile_filter(given, context_of(call))
    _matchers[key] = made
    if len(_matchers) > limits.QUERY_CACHE_ENTRIES:
        _matchers.popitem(last=False)
    return made


def forget() -> None:
    _matchers.clear()


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
