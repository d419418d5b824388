"""Compiled filters, kept by their BSON. Only filters that depend on nothing but the document are kept: variables, a
collation or `$text` make a filter's meaning depend on the command or on the collection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from armillary import limits
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.model.bson.bson_values import Document, encode

_KEPT_BYTES_MAX: Final = 2048
# Operators whose result depends on more than the document.
_VOLATILE: Final = (b"$expr", b"$sampleRate", b"$text", b"$where")
_matchers: OrderedDict[bytes, Matcher] = OrderedDict()


def cached_matcher(
    given: Document, make_context: Callable[[], Context], context: Context | None, text_index: TextIndex | None
) -> Matcher:
    """The matcher of a filter without collation and variables. `context`: of the command, if there is one."""
    key = encode(given)
    found = _matchers.get(key)
    if found is not None:
        _matchers.move_to_end(key)
        return found
    if len(key) > _KEPT_BYTES_MAX or any(word in key for word in _VOLATILE):
        return compile_filter(given, context or make_context(), text_index=text_index)
    made = compile_filter(given, make_context())
    _matchers[key] = made
    if len(_matchers) > limits.QUERY_CACHE_ENTRIES:
        _matchers.popitem(last=False)
    return made


def forget() -> None:
    _matchers.clear()
